"""Runs the remaining GPU measurements in one call: each part has a time limit, on all GPUs of the machine.

    python benchmarks/gpu_rest.py OUT [--parts exploits,faults,tests,corpus,triton,pair] [--seconds 570] [--dry-run]

Parts are assigned to the GPUs in turn (CUDA_VISIBLE_DEVICES), the longest first, on one GPU the shortest first; `pair`
waits for two. All parts write their results to disk as they run, so that nothing is lost if a part or this script is
cut. `facts.json` records after each part how it ended. `exploits` and `corpus` resume from benchmarks/results/ or from
an earlier OUT; `confusion.py` then writes OUT/conformance.md of the corpus so far. `--dry-run` does the same without a
GPU, on a few members of each.
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
"""Seconds in which an interrupted part writes its results, before it is killed."""


@dataclass(frozen=True)
class Part:
    """One measurement: its command, its limit in wall seconds, the number of its GPUs."""

    name: str
    command: tuple[str, ...]
    limit: float
    gpus: int = 1


@dataclass
class Running:
    """A part that has been started."""

    part: Part
    process: subprocess.Popen[bytes]
    gpus: list[str]
    began: float
    until: float
    asked: list[int] = field(default_factory=list)
    """Signals that were sent because the part is late."""


def parts(out: Path, dry: bool) -> list[Part]:
    """Returns all parts, the longest first."""
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
    """The parts in progress. `facts` is the content of `facts.json`."""

    def __init__(self, out: Path, gpus: Sequence[str], seconds: float) -> None:
        self.out = out
        self.free = list(gpus)
        self.count = len(self.free)
        self.end = time.monotonic() + seconds
        self.running: list[Running] = []
        self.facts: dict[str, Any] = {"parts": {}}

    def run(self, waiting: list[Part]) -> None:
        """Starts parts as GPUs become free, until all have ended or the time is up."""
        try:
            while waiting or self.running:
                self._start(waiting)
                self._look()
                time.sleep(0.2)
        except BaseException:  # this script is cut: running parts are asked to write their results
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
        """Sends an interrupt to the part alone, which ends its children itself; sends a kill to all of them."""
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
        """Writes the facts so far."""
        (self.out / "facts.json").write_text(json.dumps(self.facts, indent=1) + "\n")


def page(out: Path) -> int:
    """Writes the page that compares machine and GPU, for the part of the corpus that was judged."""
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
