"""What is left to be measured on a GPU, in one call: each part under its own time limit, on the GPUs that there are.

    python benchmarks/gpu_rest.py OUT [--parts exploits,faults,tests,corpus,triton,pair] [--seconds 570] [--dry-run]

Parts take turns on the GPUs (CUDA_VISIBLE_DEVICES), the longest first, on one GPU the shortest; `pair` waits for two.
All keep what they have on disk as they go, so that a part that is cut, or this script, loses nothing: `facts.json` says
after each part how it ended. `exploits` and `corpus` go on from benchmarks/results/ or from an earlier OUT;
`confusion.py` then writes OUT/conformance.md of however much of the corpus there is. `--dry-run` goes the same way
without a GPU, on a few members of each.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu_machine import hardware
from result_file import read_text, write_text

from kernelwright.evaluation.options import visible_gpus

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent / "tests"
RESULTS = HERE / "results"
GRACE = 12.0
"""Seconds in which a part that is interrupted writes what it has, before it is killed."""


@dataclass(frozen=True)
class Part:
    """One thing to run: its command, wall seconds at most, GPUs that it wants."""

    name: str
    command: tuple[str, ...]
    limit: float
    gpus: int = 1


@dataclass
class Running:
    """A part that has begun."""

    part: Part
    process: subprocess.Popen[bytes]
    gpus: list[str]
    began: float
    until: float
    asked: list[int] = field(default_factory=list)
    """Signals that it was sent because it is late."""


def parts(out: Path, dry: bool) -> list[Part]:
    """All parts, those first that take longest."""
    python, here = sys.executable, str(HERE)
    exploits = [f"{here}/gpu_exploits.py", "--json", f"{out}/gpu_exploits.json", "--resume", f"{out}/gpu_exploits.json"]
    faults = [f"{here}/gpu_faults.py", "--json", f"{out}/gpu_faults.json"]
    corpus = [f"{here}/judge_corpus.py", "--json", f"{out}/corpus_gpu.json", "--resume", f"{out}/corpus_gpu.json"]
    corpus += ["--sizes", f"{RESULTS}/corpus_cpu.json.gz"]
    tests = ["-m", "pytest", "-v", "-rs", "-p", "no:cacheprovider", "-m", "gpu"]
    triton = [f"{here}/triton_cpu.py", "--no-interpreter", "--json", f"{out}/triton_errors.json"]
    triton += ["--only", "undefined-name", "block-of-no-power-of-two", "too-much-shared-memory", "falls-back-to-torch"]
    pair = [*tests, f"--junitxml={out}/pair.xml", f"{TESTS}/executor/test_two_gpus.py"]
    tests += [f"--junitxml={out}/tests.xml", str(TESTS / "machine" if dry else TESTS)]
    if dry:
        exploits += ["--device", "host", "--only", "B73 a loop"]
        faults += ["--device", "host", "--count", "3", "--jobs", "1"]
        corpus += ["--backend", "host", "--only", "map-relu", "--jobs", "1"]
        triton += ["--backend", "cpu", "--trials", "1"]
    else:
        faults += ["--count", "500", "--jobs", "8"]
        corpus += ["--backend", "gpu", "--jobs", "10", "--seconds", "440"]
        triton += ["--backend", "gpu"]
    return [
        Part("tests", (python, *tests), 420),
        Part("corpus", (python, *corpus), 460),
        Part("faults", (python, *faults), 400),
        Part("exploits", (python, *exploits), 240),
        Part("triton", (python, *triton), 120),
        Part("pair", (python, *pair), 150, gpus=2),
    ]


class Rest:
    """The parts on their way. `facts` is what `facts.json` holds."""

    def __init__(self, out: Path, gpus: Sequence[str], seconds: float) -> None:
        self.out = out
        self.free = list(gpus)
        self.count = len(self.free)
        self.end = time.monotonic() + seconds
        self.running: list[Running] = []
        self.facts: dict[str, Any] = {"parts": {}}

    def run(self, waiting: list[Part]) -> None:
        """Starts parts as GPUs get free, until all have ended or the time is up."""
        try:
            while waiting or self.running:
                self._start(waiting)
                self._look()
                time.sleep(0.2)
        except BaseException:  # this script is cut: what runs is asked to write what it has
            for one in self.running:
                self._signal(one, signal.SIGINT)
            limit = time.monotonic() + GRACE
            while self.running and time.monotonic() < limit:
                self._look()
                time.sleep(0.2)
            for one in self.running:
                self._signal(one, signal.SIGKILL)
                self._note(one.part.name, exit=124, cut=True)
            raise

    def _start(self, waiting: list[Part]) -> None:
        for part in list(waiting):
            left = self.end - time.monotonic() - GRACE
            if part.gpus > self.count or left < 10:
                waiting.remove(part)
                self._note(part.name, skipped="no time was left" if left < 10 else f"it wants {part.gpus} GPUs")
            elif part.gpus <= len(self.free):
                waiting.remove(part)
                self._begin(part, min(part.limit, left))

    def _begin(self, part: Part, limit: float) -> None:
        mine, self.free = self.free[: part.gpus], self.free[part.gpus :]
        shown = "" if mine == ["none"] else ",".join(mine)
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "CUDA_VISIBLE_DEVICES": shown}
        with open(self.out / f"{part.name}.log", "wb") as log:
            process = subprocess.Popen(
                part.command, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )
        now = time.monotonic()
        self.running.append(Running(part, process, mine, now, now + limit))
        self._note(part.name, gpus=mine, limit_s=round(limit, 1), running=True)

    def _look(self) -> None:
        now = time.monotonic()
        for one in list(self.running):
            code = one.process.poll()
            if code is not None:
                self.running.remove(one)
                self.free += one.gpus
                seconds = round(now - one.began, 1)
                self._note(one.part.name, exit=code, cut=bool(one.asked), seconds=seconds, running=False)
                last = (self.out / f"{one.part.name}.log").read_text(errors="replace").splitlines()[-3:]
                print(f"{one.part.name}: exit {code} after {seconds} s", *last, sep="\n  ", flush=True)
            elif now > one.until and signal.SIGINT not in one.asked:
                self._signal(one, signal.SIGINT)  # pytest writes its file then
            elif now > one.until + GRACE:
                self._signal(one, signal.SIGKILL)

    def _signal(self, one: Running, number: int) -> None:
        """An interrupt goes to the part itself, whose children are its own affair; a kill to all of them."""
        one.asked.append(number)
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(one.process.pid, number)
            else:
                os.kill(one.process.pid, number)

    def _note(self, name: str, **more: Any) -> None:
        self.facts["parts"].setdefault(name, {}).update(more)
        self.keep()

    def keep(self) -> None:
        """Writes the facts as far as they are known."""
        (self.out / "facts.json").write_text(json.dumps(self.facts, indent=1) + "\n")


def page(out: Path) -> int:
    """The table of machine against GPU, of as much of the corpus as was judged."""
    judged, recorded = out / "corpus_gpu.json", TESTS / "machine" / "recorded" / "opcodes.json"
    if not judged.exists():
        return 0
    line = [sys.executable, f"{HERE}/confusion.py", f"{RESULTS}/corpus_cpu.json.gz", str(judged)]
    line += ["--opcodes", str(recorded), "--out", str(out / "conformance.md")]
    with open(out / "confusion.log", "wb") as log:
        return subprocess.run(line, stdout=log, stderr=subprocess.STDOUT, timeout=300, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--parts", default="exploits,faults,tests,corpus,triton,pair")
    parser.add_argument("--seconds", type=float, default=570.0)
    parser.add_argument("--dry-run", action="store_true")
    args = parser.parse_args()
    wanted = args.parts.split(",")
    chosen = [part for part in parts(args.out.resolve(), args.dry_run) if part.name in wanted]
    if unknown := set(wanted) - {part.name for part in chosen}:
        parser.error(f"no part is called {', '.join(sorted(unknown))}")
    args.out.mkdir(parents=True, exist_ok=True)
    for kept in (RESULTS / "gpu_exploits.json", RESULTS / "corpus_gpu.json.gz"):
        begun = args.out / kept.name.removesuffix(".gz")
        if not args.dry_run and not begun.exists() and kept.exists():
            write_text(begun, read_text(kept))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as an interrupt: `timeout` sends it
    rest = Rest(args.out.resolve(), visible_gpus() or (("none",) if args.dry_run else ()), args.seconds)
    if rest.count == 1:
        chosen.reverse()
    if not rest.count:
        parser.error("there is no GPU here; --dry-run goes the same way without one")
    try:
        rest.facts["hardware"] = hardware()
    except Exception as error:  # the parts matter more than their description
        rest.facts["hardware"] = {"gpu": f"not known: {error}"}
    try:
        rest.run(chosen)
    except KeyboardInterrupt:
        print("cut: what there is, is on disk", file=sys.stderr)
        return 130
    if "corpus" in wanted and not args.dry_run:
        rest.facts["confusion_exit"] = page(args.out.resolve())
        rest.keep()
    bad = [name for name, one in rest.facts["parts"].items() if one.get("exit")]
    print(f"{len(rest.facts['parts'])} parts, not well: {', '.join(bad) or 'none'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
