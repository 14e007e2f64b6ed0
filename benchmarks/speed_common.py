"""Times calls in turn on a GPU, writes results that a later call resumes, and judges answers, for scripts that measure
speed.

A timed call follows a write of twice the L2 cache, and starts while the device spins, so that the host's work for the
launches is not timed. Calls take turns in the order A B B A. All samples are kept.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, TypeVar

from gpu_machine import hardware
from result_file import read_json, write_text

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.policies.template import TemplatePolicy
from kernelwright.prompts import parse_answer
from kernelwright.records import Candidate, Task
from kernelwright.tasks import candidate_from_text

FEWEST_ROUNDS, MOST_ROUNDS = 3, 60
WARM_CALLS = 3
SPIN_FACTOR = 3.0
"""The device spins this many times the least time that the host takes to issue a call."""
LEAST_SPIN_MS = 0.05

OUT = Path(__file__).resolve().parent / "results"

Row = dict[str, Any]
Call = Callable[[], Any]


def library_answer(source: str) -> str:
    """Returns the candidate that `--policy template` answers first. Raises `PolicyError`."""
    answer = TemplatePolicy().generate((), seed=0, task=Task(task_id="speed", source=source), turn=0)
    found = parse_answer(answer.text)
    assert isinstance(found, Candidate)
    return found.text


def loaded(text: str, name: str) -> Any:
    """Executes a task of ours, or an answer of our own library, and returns it as a module."""
    module = ModuleType(name)
    exec(compile(text, f"<{name}>", "exec"), module.__dict__)
    return module


def plain_float32() -> None:
    """Turns TF32 off for torch's products and convolutions."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


class GpuClock:
    """Times calls by CUDA events on the current device."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        size = torch.cuda.get_device_properties(0).L2_cache_size
        self.scratch = torch.empty(2 * size, dtype=torch.int8, device="cuda")
        million = self._events(lambda: torch.cuda._sleep(1_000_000))
        self.cycles_a_ms = 1e6 / million

    def _events(self, call: Call) -> float:
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end))

    def issue_ms(self, call: Call) -> float:
        """Returns the least milliseconds in which the host issues a call."""
        seen = []
        for _ in range(WARM_CALLS):
            self.torch.cuda.synchronize()
            began = time.perf_counter()
            call()
            seen.append(1e3 * (time.perf_counter() - began))
        self.torch.cuda.synchronize()
        return min(seen)

    def interleaved(self, calls: Mapping[str, Call], seconds: float) -> dict[str, list[float]]:
        """Returns each call's milliseconds, timed in turn for about so many seconds."""
        spins = {
            n: int(max(LEAST_SPIN_MS, SPIN_FACTOR * self.issue_ms(c)) * self.cycles_a_ms) for n, c in calls.items()
        }
        samples: dict[str, list[float]] = {name: [] for name in calls}
        began = time.monotonic()
        for turn in range(2 * MOST_ROUNDS):
            if turn >= 2 * FEWEST_ROUNDS and turn % 2 == 0 and time.monotonic() - began > seconds:
                break
            for name in list(calls)[:: -1 if turn % 2 else 1]:
                self.scratch.zero_()
                self.torch.cuda._sleep(spins[name])
                samples[name].append(round(self._events(calls[name]), 6))
        return samples


def medians(samples: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Returns the median of each call's samples."""
    return {name: statistics.median(values) for name, values in samples.items()}


def errors(found: Any, exact: Any) -> dict[str, float]:
    """Returns the largest and the root mean square error, over the mean magnitude of the whole result and of its rows.

    `exact` is the result in float64; its last axis is the row.
    """
    gap = (found.double() - exact).abs()
    whole = exact.abs().mean()
    rows = exact.abs().mean(dim=-1, keepdim=True)
    by_row = gap / rows.where(rows > 0, rows.new_ones(()))
    return {
        "largest": float(gap.max() / whole),
        "rms": float(gap.square().mean().sqrt() / whole),
        "largest_by_row": float(by_row.max()),
        "rms_by_row": float(by_row.square().mean().sqrt()),
    }


def judged(source: str, text: str, evaluator: Evaluator, name: str) -> Row:
    """Judges an answer and returns its verdict with the reason."""
    found = evaluator.evaluate(Task(task_id=name, source=source), candidate_from_text(text, "solutions"))
    return {"verdict": found.verdict, "reason": found.reason[:300]}


def checked(cases: Sequence[Case], results: Results) -> int:
    """Judges the library's answers to small cases on the functional machine; returns 1 where one is not correct."""
    with Evaluator(EvalOptions(backend="cpu", trials=2, seed=1)) as evaluator:
        for case in cases:
            source = case.source()
            results.add({"case": case.name, **judged(source, library_answer(source), evaluator, case.name)})
    return int(any(row["verdict"] != "correct" for row in results.rows))


class Case(Protocol):
    """One thing to measure; `name` tells it apart, `kind` groups it in tables."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...

    def source(self) -> str:
        """Returns the case as a task."""
        ...


C = TypeVar("C", bound=Case)


def compare(
    what: str | None,
    benchmark: str,
    cases: Sequence[C],
    small: Sequence[C],
    measured: Callable[[C, GpuClock, float], Row],
) -> int:
    """Does what a script's command line asks for: measures its cases, or with `--check` judges its small ones.

    `what` is the script's docstring. The results go to `BENCHMARK.json` if no file is given. Returns the exit status.
    """
    asked = parser(what, f"{benchmark}.json").parse_args()
    results = begun(asked, benchmark, ("case",))
    return checked(small, results) if asked.check else measure(asked, results, cases, measured)


def measure(
    asked: argparse.Namespace, results: Results, cases: Sequence[C], measured: Callable[[C, GpuClock, float], Row]
) -> int:
    """Adds a row for each case of this part that has no times yet, until the time is over."""
    import torch

    plain_float32()
    clock = GpuClock()
    for case in cases:
        known = results.known(case=case.name)
        wanted = asked.part.holds(case.name) and asked.only in f"{case.kind} {case.name}"
        if results.over or not wanted or (known is not None and "ms" in known):
            continue
        row: Row = {"case": case.name, "kind": case.kind}
        try:
            row |= measured(case, clock, asked.timing_seconds)
        except Exception as error:  # a case that cannot be written or launched is a result
            row["failed"] = f"{type(error).__name__}: {error}"[:300]
        results.add(row)
        torch.cuda.empty_cache()
    return 0


@dataclass(frozen=True)
class Part:
    """One of `count` parts of a set, chosen by a hash of the name, so that a part does not depend on the others."""

    number: int = 1
    count: int = 1

    @classmethod
    def read(cls, text: str) -> Part:
        """Reads `i/n` with 1 <= i <= n. Raises `ArgumentTypeError`."""
        number, slash, count = text.partition("/")
        if slash and number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count):
            return cls(int(number), int(count))
        raise argparse.ArgumentTypeError(f"{text!r} is not I/N with I from 1 to N, for example 1/4")

    def holds(self, name: str) -> bool:
        """Tells whether a name is in this part."""
        return stable(name) % self.count == self.number - 1


def stable(name: str) -> int:
    """Returns a number that depends on the name alone."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "big")


@dataclass
class Results:
    """A JSON file of rows, written after each row. Rows of an earlier call with equal keys are kept and not repeated.

    `key`: the fields that tell rows apart. `seconds`: the time after which no further row is begun.
    """

    path: Path
    benchmark: str
    key: tuple[str, ...]
    seconds: float = float("inf")
    facts: Row = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    hardware: Mapping[str, object] = field(default_factory=hardware)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def resume(self, paths: Sequence[Path]) -> None:
        """Takes the rows of earlier files; of equal keys the last one counts."""
        found = [row for path in paths if path.exists() for row in read_json(path)["rows"]]
        self.rows = list({self.name(row): row for row in found}.values())

    def name(self, row: Row) -> tuple[Any, ...]:
        """Returns what tells a row apart."""
        return tuple(row.get(field_) for field_ in self.key)

    def known(self, **fields: Any) -> Row | None:
        """Returns the row with these values of the key's fields; None where there is none."""
        return next((row for row in self.rows if self.name(row) == self.name(fields)), None)

    @property
    def spent(self) -> float:
        """Seconds since the call began."""
        return time.monotonic() - self.began

    @property
    def over(self) -> bool:
        """True where no further row may be begun."""
        return self.spent > self.seconds

    def add(self, row: Row, told: str = "") -> None:
        """Adds a row in place of an earlier one with its key, writes the file, and prints `told`, or else the row.

        Threads may share the results.
        """
        with self.lock:
            self.rows = [r for r in self.rows if self.name(r) != self.name(row)] + [row]
            self.write()
        shown = {k: v for k, v in row.items() if k not in ("samples", "errors", "answer", "findings", "seconds")}
        print(told or f"{self.spent:6.1f} s  {json.dumps(shown)[:240]}", flush=True)

    def write(self, **more: Any) -> None:
        """Writes all rows, with the hardware and the facts of this call."""
        self.facts.update(more)
        value = {"benchmark": self.benchmark, **self.hardware, **self.facts, "rows": self.rows}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_name(f".new.{self.path.name}")
        write_text(new, json.dumps(value) + "\n")
        new.replace(self.path)  # a call that is killed leaves the rows before


def parser(what: str | None, out: str = "") -> argparse.ArgumentParser:
    """Returns a parser with the options that all scripts share."""
    made = argparse.ArgumentParser(description=what, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--out", type=Path, default=OUT / out if out else None)
    made.add_argument("--from", dest="earlier", type=Path, nargs="*", default=[], help="files of earlier calls")
    made.add_argument("--seconds", type=float, default=480.0, help="begin nothing after this time")
    made.add_argument("--part", type=Part.read, default=Part(), help="I/N: the I-th of N parts")
    made.add_argument("--only", default="", help="cases whose kind and name hold this text")
    made.add_argument("--timing-seconds", type=float, default=0.4, help="of each case")
    made.add_argument("--check", action="store_true", help="tiny sizes on the functional machine, without timing")
    return made


def begun(asked: argparse.Namespace, benchmark: str, key: tuple[str, ...]) -> Results:
    """Returns the results to add to, with the rows of earlier files; none of them with `--check`."""
    results = Results(asked.out, benchmark, key, asked.seconds)
    if not asked.check:
        results.resume([*asked.earlier, asked.out])
    return results
