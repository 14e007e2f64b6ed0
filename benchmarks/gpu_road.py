"""Judges folders of candidates and the honest set on a GPU, and prints by which road each verdict was reached.

    python benchmarks/gpu_road.py [FOLDER...] [--honest] [--no-live] [--device cuda|host] [--jobs 8] [--only WORD...]
        [--json FILE]

The first line of each file in a FOLDER names its task, in the folder `tasks` beside it: `# task: NAME.py`. `--honest`
adds the candidates of `tests/sets/honest`. In a folder whose name begins with `honest`, and in the honest set, verdicts
other than `correct` and `unsupported` are failures; in other folders `correct` is one. `--device host` judges the GPU's
way on the CPU, at reduced sizes. `--no-live` runs programs that depend on values in the process. Exit status 1 if
anything failed. The last line has the share of `correct` candidates that went by `program`, and evaluations a minute.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from gpu_honest import reduced

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from sets.honest import CASES

from kernelwright.backends.triton import triton_support
from kernelwright.evaluation import EvalOptions, Evaluator, evaluate_many
from kernelwright.records import Candidate, Evaluation, Task
from kernelwright.tasks import load_candidate, load_task

Row = dict[str, object]
SECONDS_A_CASE = 30.0


@dataclass(frozen=True)
class Wanted:
    """A candidate on its task, and the verdicts that count as right."""

    name: str
    task: Task
    candidate: Candidate
    honest: bool

    def as_wanted(self, verdict: str) -> bool:
        return verdict in ("correct", "unsupported") if self.honest else verdict != "correct"


def in_folder(folder: Path) -> list[Wanted]:
    """Returns the candidates of a folder."""
    found = []
    for path in sorted([*folder.glob("*.py"), *folder.glob("*.cu")]):
        name = path.read_text().split("\n", 1)[0].lstrip("#/ ").removeprefix("task:").split()[0]
        where = folder.parent / "tasks" / (name if name.endswith(".py") else f"{name}.py")
        honest = folder.name.startswith("honest")
        found.append(Wanted(f"{folder.name}/{path.stem}", load_task(f"{where}"), load_candidate(path), honest))
    return found


def of_the_honest_set(with_gpu: bool) -> list[Wanted]:
    """Returns the honest set; without a GPU, the cases that need none, and Triton's where that is installed."""
    possible = {"", "triton"} if triton_support.installed() else {""}
    cases = [c for c in CASES if with_gpu or c.needs in possible]
    return [Wanted(f"set/{c.name}", c.task(), c.candidate(f"{c.name} {time.time_ns()}"), True) for c in cases]


def row(wanted: Wanted, result: Evaluation | Exception) -> Row:
    """Returns one row of the report."""
    if not isinstance(result, Evaluation):
        return {"name": wanted.name, "verdict": "task error", "reason": str(result), "as_wanted": False}
    environment, timing = result.environment, result.timing
    return {
        "name": wanted.name,
        "verdict": result.verdict,
        "rule": next((f.rule for f in result.findings if f.severity in ("reject", "fault")), ""),
        "reason": result.reason[:300],
        "road": environment.road,
        "replayed": environment.replayed,
        "seconds": round(result.seconds.total, 3),
        "program_seconds": environment.gpu_seconds.get("program"),
        "issue_ms": environment.issue_ms,
        "candidate_ms": timing.candidate_ms if timing else None,
        "speedup": timing.speedup if timing else None,
        "as_wanted": wanted.as_wanted(result.verdict),
    }


def line(made: Row) -> str:
    mark = " " if made["as_wanted"] else "!"
    rule = f"  [{made['rule']}]" if made.get("rule") else ""
    road = f"{made.get('road', '')!s:11}{made.get('seconds', 0.0):7.2f} s"
    why = made.get("replayed") if made["verdict"] == "correct" else made["reason"]
    return f"{mark} {made['name']!s:52} {made['verdict']!s:14} {road}{rule}  {str(why or '')[:140]}"


def summary(rows: list[Row], seconds: float) -> Row:
    """Returns counts, the share of the program's road among correct candidates, and the rate."""
    right = [r for r in rows if r["verdict"] == "correct"]
    by_program = sum(r["road"] == "program" for r in right)
    return {
        "benchmark": "gpu_road",
        "candidates": len(rows),
        "not_as_wanted": [r["name"] for r in rows if not r["as_wanted"]],
        "verdicts": dict(collections.Counter(str(r["verdict"]) for r in rows)),
        "roads": dict(collections.Counter(str(r.get("road", "")) for r in rows)),
        "correct_by_program": round(by_program / len(right), 3) if right else None,
        "in_process_because": collections.Counter(
            str(r["replayed"])[:80] for r in right if r["road"] != "program"
        ).most_common(20),
        "a_minute": round(60 * len(rows) / seconds, 1) if seconds else None,
        "wall_s": round(seconds, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--honest", action="store_true", help="judge tests/sets/honest, too")
    parser.add_argument(
        "--live",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="execute programs that depend on values as they arrive",
    )
    parser.add_argument("--device", choices=("cuda", "host"), default="cuda")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--only", nargs="*", default=[], help="judge only candidates whose name contains a word")
    parser.add_argument("--timing-seconds", type=float, default=0.3)
    parser.add_argument("--json", type=Path, help="results, written after each candidate")
    args = parser.parse_args()
    cases = [case for folder in args.folders for case in in_folder(folder)]
    cases += of_the_honest_set(args.device == "cuda") if args.honest else []
    cases = [c for c in cases if not args.only or any(word in c.name for word in args.only)]
    options = EvalOptions(
        backend="gpu", timing_seconds=args.timing_seconds, timeout=SECONDS_A_CASE, trials=3, live=args.live
    )
    rows: list[Row] = []
    with Evaluator(options, device="cpu" if args.device == "host" else None) as evaluator:
        tasks = [reduced(c.task, evaluator) if args.device == "host" else c.task for c in cases]
        started = time.perf_counter()
        pairs = [(task, case.candidate) for task, case in zip(tasks, cases, strict=True)]
        for case, result in zip(cases, evaluate_many(pairs, pool=evaluator, jobs=args.jobs), strict=True):
            rows.append(row(case, result))
            print(line(rows[-1]), flush=True)
            if args.json:
                done = summary(rows, time.perf_counter() - started)
                args.json.write_text(json.dumps({**done, "rows": rows}, indent=1) + "\n")
        final = summary(rows, time.perf_counter() - started)
    print(json.dumps(final))
    return 1 if final["not_as_wanted"] else 0


if __name__ == "__main__":
    sys.exit(main())
