"""Runs the tests or a fuzzer on the functional machine, built with Address- and UndefinedBehaviorSanitizer.

    python benchmarks/sanitized_machine.py tests [PYTEST ARGUMENTS]
    python benchmarks/sanitized_machine.py fuzz [--minutes 60] [--seed N]

`tests` runs tests/machine. `fuzz` loads mutated PTX (bytes, tokens and lines of the PTX that NVRTC makes of the tests'
kernels) and launches the programs that load, in child processes, so that a crash is detected and its text kept in
fuzz-crash-*.ptx. Exit status 1 if a sanitizer or a test fails. The first build takes some minutes and is cached.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FLAGS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer", "-g1", "-O1")
QUIET = "-fno-sanitize=alignment,shift,signed-integer-overflow,float-cast-overflow,float-divide-by-zero"
"""Checks that are off, since the machine acts like the hardware: shifts and sums wrap, any value may be read."""
PER_CHILD = 400


def build(cache: Path) -> Path:
    """Builds the library where `library.build` will look for it in this cache folder."""
    os.environ["KERNELWRIGHT_CACHE"] = str(cache)
    from kernelwright.machine import library

    target = library.path()
    if target.exists():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    compiler = library._compiler()
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        jobs = []
        for source in sorted(library.SOURCES.rglob("*.cpp")):
            out = str(Path(folder) / f"{source.stem}.o")
            plain = [f for f in library._FLAGS if not f.startswith("-O")] + list(library._EXTRA.get(source.name, ()))
            plain += [*library._cpu_flags(), *FLAGS, QUIET, *library.INCLUDE]
            jobs.append([compiler, *plain, "-c", str(source), "-o", out])
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda command: subprocess.run(command, check=True), jobs))
        objects = [command[-1] for command in jobs]
        subprocess.run([compiler, "-shared", *FLAGS, *objects, "-o", f"{folder}/machine.so"], check=True)
        os.replace(f"{folder}/machine.so", target)
    return target


def environment() -> dict[str, str]:
    """Returns the environment for loading the sanitized library into an unsanitized interpreter."""
    from kernelwright.machine import nvrtc

    wanted = ("libasan.so", "libubsan.so", "libstdc++.so.6")
    found = [
        subprocess.run(["g++", f"-print-file-name={n}"], capture_output=True, text=True).stdout.strip() for n in wanted
    ]
    return {
        **os.environ,
        "LD_PRELOAD": ":".join(found),
        # AddressSanitizer's dlopen loses its caller's library path, and then cannot find NVRTC's parts.
        "LD_LIBRARY_PATH": ":".join(str(folder / "lib") for folder in nvrtc._wheel_folders()),
        "ASAN_OPTIONS": "detect_leaks=0:handle_segv=0:allocator_may_return_null=1:detect_odr_violation=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONPATH": f"{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}",
        "OMP_NUM_THREADS": "1",
    }


def seeds() -> list[str]:
    """Returns PTX of the kernels in tests/machine, from which mutations start."""
    from kernelwright.machine.nvrtc import compile_ptx

    texts = []
    for path in sorted((ROOT / "tests" / "machine").glob("*.py")):
        for found in re.findall(r'r?"""(.*?)"""|r?\'\'\'(.*?)\'\'\'', path.read_text(), re.DOTALL):
            source = "".join(found)
            if "__global__" not in source or "{{" in source:
                continue
            result = compile_ptx(source)
            if result.ok and result.ptx and len(result.ptx) < 60_000:
                texts.append(result.ptx)
    return texts


def mutated(text: str, others: list[str], chance: random.Random) -> str:
    """Returns the text with a few changes: a byte, a token from elsewhere, a line doubled, gone or foreign."""
    lines = text.split("\n")
    for _ in range(chance.choice((1, 1, 2, 4, 8))):
        i = chance.randrange(len(lines))
        kind = chance.randrange(6)
        other = chance.choice(others).split("\n")
        if kind == 0 and lines[i]:
            at = chance.randrange(len(lines[i]))
            lines[i] = lines[i][:at] + chr(chance.randrange(1, 127)) + lines[i][at + 1 :]
        elif kind == 1:
            words = re.findall(r"[\w.%$:]+", chance.choice(other)) or ["0"]
            tokens = re.split(r"([\w.%$:]+)", lines[i])
            lines[i] = "".join(
                chance.choice(words) if k % 2 and chance.random() < 0.3 else t for k, t in enumerate(tokens)
            )
        elif kind == 2:
            lines.insert(i, chance.choice(other))
        elif kind == 3:
            del lines[i]
            lines = lines or [""]
        elif kind == 4:
            lines[i] = re.sub(
                r"\d+", lambda m: str(chance.choice((0, 1, 31, 255, 65536, 2**31, 2**63, 2**64))), lines[i]
            )
        else:
            lines.insert(chance.randrange(len(lines)), lines[i])
    return "\n".join(lines)


def child(seed: int, folder: Path) -> None:
    """Loads and launches PER_CHILD mutations. The current one is on disk, in case this process dies of it."""
    import numpy as np

    from kernelwright.machine import Allocation, LaunchOptions, MachineFault, Program, PTXError, UnsupportedPTX

    chance, texts = random.Random(seed), [p.read_text() for p in sorted(folder.glob("seed-*.ptx"))]
    memory = np.zeros(1 << 14, np.float32)
    place = Allocation(memory.ctypes.data, memory.nbytes, "memory")
    for _ in range(PER_CHILD):
        text = mutated(chance.choice(texts), texts, chance)
        (folder / f"now-{seed}.ptx").write_text(text)
        try:
            program = Program.load(text)
        except (PTXError, UnsupportedPTX):
            continue
        for name, info in program.kernels.items():
            sizes = [size for size, _ in info.params]
            args = [(place.address if s == 8 else 64).to_bytes(s, "little") if s <= 8 else bytes(s) for s in sizes]
            try:
                options = LaunchOptions(budget=2_000_000, watch=seed % 2 == 0)
                program.launch(name, (2, 1, 1), (64, 1, 1), args, 256, [place], options)
            except MachineFault:
                pass


def fuzz(minutes: float, seed: int) -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, text in enumerate(seeds()):
            (folder / f"seed-{number:03}.ptx").write_text(text)
        print(f"{len(list(folder.glob('seed-*')))} programs to start from", flush=True)
        end, done, crashes = time.monotonic() + 60 * minutes, 0, 0
        while time.monotonic() < end:
            command = [sys.executable, __file__, "child", str(seed), str(folder)]
            try:
                run = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=600)
                said, failed = run.stderr, run.returncode != 0
            except subprocess.TimeoutExpired:
                said, failed = "600 s without an end", True
            if failed:
                crashes += 1
                (Path.cwd() / f"fuzz-crash-{seed}.ptx").write_text((folder / f"now-{seed}.ptx").read_text())
                print(f"seed {seed}: {said.strip()[-3000:]}", flush=True)
            done += PER_CHILD
            seed += 1
            (folder / f"now-{seed - 1}.ptx").unlink(missing_ok=True)
        print(f"{done} mutations in {minutes:g} minutes, {crashes} crashes", flush=True)
    return 1 if crashes else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("tests", "fuzz", "child"))
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "kernelwright-sanitized")
    args, rest = parser.parse_known_args()
    sys.path.insert(0, str(ROOT / "src"))
    if args.what == "child":
        child(int(rest[0]), Path(rest[1]))
        return 0
    build(args.cache)
    if args.what == "fuzz":
        return fuzz(args.minutes, args.seed)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(rest or ["tests/machine"])]
    return subprocess.run(command, cwd=ROOT, env=environment()).returncode


if __name__ == "__main__":
    sys.exit(main())
