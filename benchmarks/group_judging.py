"""Measures candidates judged a minute on the functional machine if several answer one task, as in training.

    python benchmarks/group_judging.py OUT.json [--tasks 20] [--answers 4] [--jobs 2] [--rounds 3]

The candidates are the solution library's answers to generated tasks. Each text comes `--answers` times with another
comment and the same seed, like a group of rollouts. Plans are cached. Rounds alternate between oracles that threads
share (`evaluation.processes.oracle_pool`) and a fresh one for each candidate.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from datetime import datetime
from pathlib import Path

from starter import hardware

from kernelwright.config import load_config
from kernelwright.evaluation import EvalOptions, Evaluator, evaluate_many
from kernelwright.evaluation.processes import oracle_pool
from kernelwright.records import Candidate, Task
from kernelwright.solutions import write
from kernelwright.tasks import candidate_from_text
from kernelwright.training.fine_tune.settings import recipe_path
from kernelwright.training.rl.loop import load_tasks
from kernelwright.training.rl.settings import RlSettings

WAYS = {"kept": oracle_pool.KEPT_FOR_EACH, "fresh": 0}


def groups(tasks: int, answers: int) -> list[tuple[Task, Candidate]]:
    """Returns answers of all tasks, in an order that separates the answers to one task."""
    settings = load_config(recipe_path("starter_rl"), [], RlSettings)
    known = [(task, text) for task in load_tasks(settings.tasks) if (text := write(task.source))][:tasks]
    return [
        (task, candidate_from_text(f"# {number}\n{text}", str(number)))
        for number in range(answers)
        for task, text in known
    ]


def judged(work: list[tuple[Task, Candidate]], jobs: int, keep: int) -> tuple[float, dict[str, int]]:
    """Judges the work and returns candidates a minute and verdicts."""
    oracle_pool.KEPT_FOR_EACH = keep
    options = EvalOptions(backend="cpu", small_sizes=True, seed=5)
    with Evaluator(options) as evaluator:
        evaluator.evaluate(*work[0])
        began = time.monotonic()
        found = list(evaluate_many(work, options, jobs, pool=evaluator))
        wall = time.monotonic() - began
    verdicts = [getattr(one, "verdict", "task error") for one in found]
    return 60 * len(work) / wall, {name: verdicts.count(name) for name in sorted(set(verdicts))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--answers", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    a = parser.parse_args()
    work = groups(a.tasks, a.answers)
    judged(work[: a.tasks], a.jobs, WAYS["kept"])  # derives plans and makes builds
    rates: dict[str, list[float]] = {way: [] for way in WAYS}
    verdicts = {}
    for turn in range(a.rounds):
        for way in list(WAYS) if turn % 2 == 0 else list(WAYS)[::-1]:
            rate, verdicts[way] = judged(work, a.jobs, WAYS[way])
            rates[way].append(round(rate, 1))
    found = {"date": datetime.now().date().isoformat(), "hardware": hardware(), "tasks": a.tasks, "answers": a.answers}
    found |= {"jobs": a.jobs, "a_minute": rates, "verdicts": verdicts}
    found["kept_over_fresh"] = round(statistics.median(rates["kept"]) / statistics.median(rates["fresh"]), 2)
    a.out.write_text(json.dumps(found) + "\n", encoding="utf-8")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
