"""Converts verdicts on the library's schedules, on the tasks of `rl_schedules.py`, to a table of times, and back.

    python benchmarks/rl_times.py FOLDER VERDICTS OUT.json [--baselines eager,compile]
                                                                    rl_schedules.py wrote FOLDER
    python benchmarks/rl_times.py FOLDER VERDICTS IN.json --restore

VERDICTS is a folder of `rl_claims.py --verdicts`. The table has a row for each task and schedule. `families` has the
possible gain: the geometric mean of speedups over eager for schedules drawn evenly, for the schedule that is best on
the family's training tasks, and for each task's own best one; and the share that is then faster than eager.

`--restore` makes VERDICTS from a table, so that a model can be trained by the times of the table's card, there or
elsewhere, without judging again. The restored verdicts are marked in their environment (`restored`). Rows whose few
samples look like a stall are left out, to be judged again.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import defaultdict
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

from result_file import read_json, write_text

from kernelwright.evaluation import EvalOptions
from kernelwright.evaluation.judge.timing import TimedSamples
from kernelwright.inference.chat import HEADING
from kernelwright.records import Candidate, Evaluation, Provenance, Task, Timing, WorkloadResult
from kernelwright.runs.known_verdicts import question
from kernelwright.runs.store import Store
from kernelwright.search.rollout import parse_python
from kernelwright.tasks import load_suite

ON_GPU = EvalOptions(backend="gpu", trials=3, timing_seconds=0.1)
"""The options of `rl_claims.py --timing-seconds 0.1`."""
FILTER = ON_GPU.changed(backend="cpu", small_sizes=True)


def answers(folder: Path) -> Iterator[tuple[str, Task, str, Candidate]]:
    """Yields suite, task, schedule and candidate of each answer of the library."""
    texts: dict[str, dict[str, None]] = defaultdict(dict)
    for line in (folder / "answers.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        texts[row["task_id"]][row["answer"]] = None
    for suite in ("train", "held_out"):
        for task in load_suite(str(folder / f"{suite}.jsonl")):
            for text in texts[task.task_id]:
                candidate = parse_python(text, Provenance())
                assert isinstance(candidate, Candidate)
                yield suite, task, text.splitlines()[0].removeprefix(HEADING), candidate


def collected(folder: Path, verdicts: Path, options: EvalOptions = ON_GPU) -> list[dict[str, Any]]:
    """Returns the table's rows: the answers that the GPU has judged with these options."""
    rows = []
    with Store.open(verdicts, writable=False) as store:
        for suite, task, schedule, candidate in answers(folder):
            found = store.find_evaluation(question(task, candidate, options))
            if found is None:
                continue
            row: dict[str, Any] = {"suite": suite, "task": task.task_id, "schedule": schedule, "verdict": found.verdict}
            if found.timing is not None:
                row |= {"candidate_ms": found.timing.candidate_ms, "eager_ms": found.timing.eager_ms}
                row |= {"compile_ms": found.timing.compile_ms} if found.timing.compile_ms else {}
                row |= {"interval": found.timing.interval, "samples": found.timing.samples}
                row |= {"own_share": found.environment.own_kernel_share, "gpu": found.environment.gpu}
            rows.append(row)
    return rows


def families(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns by family, on held-out tasks, the results of evenly drawn, chosen and best schedules."""
    speeds: dict[str, dict[str, dict[str, float]]] = {"train": defaultdict(dict), "held_out": defaultdict(dict)}
    for row in rows:
        if row["verdict"] == "correct":
            speeds[row["suite"]][row["task"]][row["schedule"]] = row["eager_ms"] / row["candidate_ms"]
    made: dict[str, Any] = {}
    every: dict[str, list[float]] = defaultdict(list)
    for family in sorted({family_of(task) for task in speeds["held_out"]}):
        train, held = ([s for t, s in speeds[k].items() if family_of(t) == family] for k in ("train", "held_out"))
        common = set.intersection(*map(set, train)) if train else set()
        chosen = max(common, key=lambda name: statistics.geometric_mean([s[name] for s in train]), default=None)
        even = [statistics.geometric_mean(list(s.values())) for s in held]
        ways = {
            "even": even,
            "chosen": [s.get(chosen or "", e) for s, e in zip(held, even, strict=True)],
            "best": [max(s.values()) for s in held],
        }
        shares = [sum(x > 1 for x in s.values()) / len(s) for s in held]
        made[family] = {"chosen": chosen, **summary(ways, shares)}
        for name, values in ways.items():
            every[name] += values
        every["shares"] += shares
    return {**made, "all": summary(every, every["shares"])}


def summary(ways: dict[str, list[float]], shares: list[float]) -> dict[str, Any]:
    """Returns speedups and shares of fast answers; for evenly drawn ones the mean share, not the share of means."""
    fast = {name: statistics.mean(float(x > 1) for x in ways[name]) for name in ("chosen", "best")}
    return {
        "speedup": {name: round(statistics.geometric_mean(ways[name]), 4) for name in ("even", "chosen", "best")},
        "fast_1": {"even": round(statistics.mean(shares), 4), **{k: round(v, 4) for k, v in fast.items()}},
    }


def family_of(task: str) -> str:
    """Returns the family in a generated task's name, which ends with its seed and its number."""
    return task.rsplit("_", 2)[0]


def stalled(samples: dict[str, list[float]]) -> bool:
    """Tells whether the present stall rule would have taken more samples."""
    kept = TimedSamples(list(samples))
    kept.times = samples
    return kept.doubtful()


def restored(folder: Path, verdicts: Path, rows: list[dict[str, Any]]) -> int:
    """Writes the rows as verdicts of the GPU and, since all of them have passed it, of the filter."""
    right = [row for row in rows if row["verdict"] == "correct" and not stalled(row["samples"])]
    known = {(row["task"], row["schedule"]): row for row in right}
    count = 0
    with Store.open_or_create(verdicts, {"kind": "memory"}, shared=True) as store:
        for _, task, schedule, candidate in answers(folder):
            row = known.get((task.task_id, schedule))
            if row is None:
                continue
            times = {key: row[key] for key in ("candidate_ms", "eager_ms", "interval", "samples")}
            store.add_task(task)  # so that `curate` reads the restored verdicts as a run
            store.add_candidate(candidate)
            for options, timing in (
                (ON_GPU, Timing(**times, speedup=row["eager_ms"] / row["candidate_ms"])),
                (FILTER, None),
            ):
                environment = {"restored": "from a table of times"}
                if timing is not None:
                    environment |= {"own_kernel_share": str(row["own_share"]), "gpu": str(row["gpu"])}
                evaluation = Evaluation(
                    task_id=task.task_id,
                    task_hash=task.content_hash,
                    candidate_id=candidate.content_hash,
                    verdict="correct",
                    workloads=(WorkloadResult(name="restored", scope="declared", passed=True),),
                    backend="gpu" if timing is not None else "cpu",
                    timing=timing,
                    environment=environment,
                )
                store.add_evaluation(evaluation, question(task, candidate, options))
            count += 1
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("verdicts", type=Path)
    parser.add_argument("table", type=Path)
    parser.add_argument("--restore", action="store_true")
    parser.add_argument("--baselines", default="eager", type=lambda text: tuple(text.split(",")))
    asked = parser.parse_args()
    if asked.restore:
        rows = read_json(asked.table)["rows"]
        print(f"{restored(asked.folder, asked.verdicts, rows)} of {len(rows)} rows restored")
        return
    rows = collected(asked.folder, asked.verdicts, ON_GPU.changed(baselines=asked.baselines))
    if not any(row["suite"] == "held_out" and row["verdict"] == "correct" for row in rows):
        parser.error(f"{asked.verdicts} knows no right answer to a task of {asked.folder / 'held_out.jsonl'}")
    kept: dict[str, Any] = {
        "benchmark": "rl_times",
        "date": date.today().isoformat(),
        "families": families(rows),
        "rows": rows,
    }
    write_text(asked.table, json.dumps(kept, separators=(",", ":")) + "\n")
    for name, row in kept["families"].items():
        print(name, row["speedup"], row["fast_1"])


if __name__ == "__main__":
    main()
