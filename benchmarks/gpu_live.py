"""Judges candidates whose programs depend on values on a GPU, by executing their records as they arrive.

    python benchmarks/gpu_live.py --json FILE [--device cuda|host] [--only WORD...] [--seconds 0.5] [--no-compare]

The candidates are those of `tests/sets/live`: honest ones have to be `correct` by the road `program`, cheats anything
but `correct`. Each honest one is also judged with its host code in the process, for the times of both. First a child
process examines the card: whether memory can be mapped at the addresses that candidates choose, and what it costs. The
file has every exception in full. `--device host` judges the GPU's way on the CPU, at reduced sizes. Exit status 1 if
anything is not as wanted.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from gpu_honest import reduced

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from sets.live import CASES, Case

from kernelwright.backends.triton import triton_support
from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.judge import full_size
from kernelwright.evaluation.judge.full_size import ByProgram
from kernelwright.records import Evaluation, Task

Row = dict[str, Any]
SECONDS_A_CASE = 40.0
PROBE_SECONDS = 120.0
_PROBE = """
import json, sys, time, traceback
said = {}
def step(name, act):
    began = time.perf_counter()
    try:
        said[name] = act()
    except BaseException:
        said[name] = traceback.format_exc()
    said[name + " ms"] = round(1e3 * (time.perf_counter() - began), 3)
from kernelwright.evaluation.device import devices
from kernelwright.evaluation.program import live
device, _ = devices.make(sys.argv[1])
step("facts", device.facts)
card = None
def opened():
    global card
    card = live.card_of(device)
    return {"moved": card.moved, "granule": card.granule,
            "windows": [[hex(w.first), hex(w.base), w.nbytes] for w in card._windows]}
step("card", opened)
from kernelwright.backends.device_addresses import LOW
from kernelwright.evaluation.program.memory import GIVEN_LOW
for nbytes in (4096, 2 << 20, 64 << 20, 1 << 30):
    step(f"map {nbytes}", lambda: card.map(LOW + (8 << 30) + nbytes * 4, nbytes))
    step(f"map {nbytes} again", lambda: card.map(LOW + (8 << 30) + nbytes * 4, nbytes))
step("map given", lambda: card.map(GIVEN_LOW, 1 << 20))
step("fill", lambda: card.fill(GIVEN_LOW, 7, 1 << 20))
step("read", lambda: card.read(GIVEN_LOW, 4).hex())
step("write", lambda: card.write(GIVEN_LOW, b"abcdefgh"))
step("copy", lambda: card.copy(GIVEN_LOW + 64, GIVEN_LOW, 8))
step("read back", lambda: card.read(GIVEN_LOW + 64, 8).decode())
step("tensor", lambda: [str(card.tensor(GIVEN_LOW, 16).device), card.tensor(GIVEN_LOW, 16).tolist()])
step("torch writes", lambda: card.tensor(GIVEN_LOW, 16).fill_(9).sum().item())
step("read what torch wrote", lambda: card.read(GIVEN_LOW, 2).hex())
step("marks", lambda: card.elapsed(card.mark(), card.mark()))
def timed():
    device.begin("live"); card.fill(GIVEN_LOW, 0, 1 << 20)
    return str(device.end(0.0))
step("begin and end", timed)
def many():
    for _ in range(1000):
        card.fill(GIVEN_LOW, 0, 4096)
    card.wait()
step("1000 fills", many)
step("100 reads", lambda: [card.read(GIVEN_LOW, 4) for _ in range(100)] and None)
step("release", card.release)
step("map after release", lambda: card.map(GIVEN_LOW, 1 << 20))
print(json.dumps(said))
"""


def probed(device: str) -> Row:
    """Examines the card in a process of its own."""
    argv = [sys.executable, "-c", _PROBE, "cuda" if device == "cuda" else "cpu"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=PROBE_SECONDS)
    except subprocess.TimeoutExpired as error:
        return {"timeout": str(error)}
    try:
        found: Row = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        found = {"stdout": done.stdout[-4000:]}
    return {**found, "status": done.returncode, "stderr": done.stderr[-8000:]}


class Notes:
    """What the live road said about the candidate that a thread judges, in full."""

    def __init__(self) -> None:
        self._kept = threading.local()
        self._plain = full_size._with_handles

    def install(self) -> None:
        full_size._with_handles = self._watched

    def _watched(self, case: Any, gpu: Any, kind: Any) -> ByProgram:
        began, said = time.perf_counter(), {"road": kind.__name__}
        self._kept.rows = [*getattr(self._kept, "rows", []), said]
        try:
            found = self._plain(case, gpu, kind)
        except BaseException:
            said["raised"] = traceback.format_exc()
            raise
        finally:
            said["seconds"] = f"{time.perf_counter() - began:.3f}"
        said |= {"why": found.why, "log": found.log, "decided": str(found.attempt is not None)}
        return found

    def taken(self) -> list[Row]:
        """Returns the notes since the last call."""
        rows, self._kept.rows = getattr(self._kept, "rows", []), []
        return rows


def judged(evaluator: Evaluator, task: Task, case: Case, options: EvalOptions) -> Row:
    """Judges one candidate; returns its row."""
    began = time.perf_counter()
    try:
        result = evaluator.evaluate(task, case.candidate(f"{time.time_ns()}"), options)
    except Exception:
        return {"verdict": "task error", "raised": traceback.format_exc()}
    return {"wall_s": round(time.perf_counter() - began, 2), **_told(result)}


def _told(result: Evaluation) -> Row:
    timing, environment = result.timing, result.environment
    return {
        "verdict": result.verdict,
        "road": environment.road,
        "reason": result.reason,
        "replayed": environment.replayed,
        "candidate_ms": timing and timing.candidate_ms,
        "eager_ms": timing and timing.eager_ms,
        "speedup": timing and timing.speedup,
        "interval": timing and timing.interval,
        "samples": timing and {k: len(v) for k, v in timing.samples.items()},
        "issue_ms": environment.issue_ms,
        "stages": environment.gpu_seconds,
        "seconds": result.seconds.model_dump(),
        "findings": [f"{f.severity} {f.rule}: {f.evidence}"[:600] for f in result.findings],
        "launches": [[one.kernel, one.count] for one in result.launches],
        "errors": [[r.name, r.distribution, r.max_rel_error, r.tolerance] for r in result.workloads],
        "environment": environment.plain(),
        "log": result.log[-6000:],
    }


def as_wanted(case: Case, row: Row) -> bool:
    """Tells whether a verdict and its road are the wanted ones."""
    if case.honest:
        return row["verdict"] == "correct" and row.get("road") == "program"
    return row["verdict"] not in ("correct", "task error", "harness_error")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cuda", "host"), default="cuda")
    parser.add_argument("--only", nargs="*", default=[], help="judge only cases whose name contains a word")
    parser.add_argument("--seconds", type=float, default=0.5, help="timing of one candidate")
    parser.add_argument("--compare", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--json", type=Path, required=True, help="results, written after each case")
    args = parser.parse_args()
    possible = triton_support.installed()
    cases = [c for c in CASES if possible or c.language != "triton"]
    cases = [c for c in cases if not args.only or any(word in c.name for word in args.only)]
    report: Row = {"benchmark": "gpu_live", "date": datetime.date.today().isoformat(), "device": args.device}
    report |= {"probe": probed(args.device), "rows": []}
    print(json.dumps({k: v for k, v in report["probe"].items() if not k.endswith(" ms")}), flush=True)
    notes = Notes()
    notes.install()
    live = EvalOptions(backend="gpu", timing_seconds=args.seconds, timeout=SECONDS_A_CASE, trials=3, live=True)
    with Evaluator(live, device="cpu" if args.device == "host" else None) as evaluator:
        for case in cases:
            task = reduced(case.task(), evaluator) if args.device == "host" else case.task()
            row = {"name": case.name, "honest": case.honest, **judged(evaluator, task, case, live)}
            row["roads"] = notes.taken()
            row["as_wanted"] = as_wanted(case, row)
            if args.compare and case.honest:
                within = judged(evaluator, task, case, live.changed(live=False, replay=False))
                row["in_process"] = {
                    k: within.get(k) for k in ("verdict", "reason", "candidate_ms", "speedup", "wall_s")
                }
                notes.taken()
            report["rows"].append(row)
            log = evaluator.pool.home / "zygote.log"
            report["zygote_log"] = log.read_text(errors="replace")[-20_000:] if log.exists() else ""
            args.json.write_text(json.dumps(report, indent=1, default=str) + "\n")
            _print(row)
    wrong = [r["name"] for r in report["rows"] if not r["as_wanted"]]
    print(f"{len(report['rows']) - len(wrong)} of {len(report['rows'])} as wanted; not: {wrong}")
    return 1 if wrong else 0


def _print(row: Row) -> None:
    times = ", ".join(
        f"{k} {row[k]:.4g}" for k in ("candidate_ms", "speedup", "issue_ms") if isinstance(row.get(k), (int, float))
    )
    within = row.get("in_process") or {}
    beside = f"; in process {within.get('candidate_ms')} ms" if within.get("candidate_ms") else ""
    mark = "  " if row["as_wanted"] else "!!"
    said = f"{row.get('road')}, {row.get('replayed')}" if row["as_wanted"] else f"{row.get('reason')}; {row['roads']}"
    print(f"{mark} {row['name']:28} {row['verdict']:14} {times}{beside}  {said}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
