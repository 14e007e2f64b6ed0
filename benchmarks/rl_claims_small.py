"""Compares turns and advantages with cheap seeds: the policy of `examples/rl_loop.py` on harder tasks, without a GPU.

    python benchmarks/rl_claims_small.py OUT.json [--seeds 10] [--steps 80] [--answers 24]

There are four tasks with 72 possible files each, few of them correct: a policy without a preference solves 1 to 3 %.
Every variant may give the same number of answers a step, in whole rollouts that end at a correct one. Updates, rate and
tasks are the example's. After training each policy is asked in the same way: 64 rollouts a task of four turns. Recorded
are the shares that are correct at once and within four turns, and for comparison the chance that one of four first
answers is correct. Verdicts come from the functional machine and are cached for all runs. Nothing is timed.

turns        leave-one-out by turn (`trloo`), with one, two and four turns at equal answers
advantages   two turns, credited by `grpo`, `mean`, `kevin`, `trloo`, `prefix_free`
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from result_file import write_text
from rl_hacking_small import load_example

from kernelwright.bench import metrics
from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.records import Task

EXPRESSIONS = {"relu": "torch.relu(x)", "square": "x * x", "shrink": "x / (1 + x.abs())", "negate": "-x"}
HOLES = {
    "index": ("blockIdx.x * 256 + threadIdx.x", "threadIdx.x", "blockIdx.x * 128 + threadIdx.x"),
    "guard": ("", "if (i <= n) ", "if (i < n) "),
    "expression": (
        *("fabsf(x[i])", "x[i] * x[i]", "fmaxf(x[i], 0.0f)", "-x[i]"),
        *("x[i] / (1.0f + fabsf(x[i]))", "x[i] + 1.0f", "2.0f * x[i]", "fminf(x[i], 0.0f)"),
    ),
}
LATER = {"gamma": 0.4}
LONE = {**LATER, "single": "zero_baseline"}
VARIANTS: dict[str, tuple[int, str, dict[str, Any]]] = {
    "one turn": (1, "trloo", LONE),
    "two turns": (2, "trloo", LONE),
    "four turns": (4, "trloo", LONE),
    "two turns, grpo": (2, "grpo", {}),
    "two turns, mean": (2, "mean", {}),
    "two turns, kevin": (2, "kevin", LATER),
    "two turns, prefix_free": (2, "prefix_free", LONE),
}
ASKED_TURNS, ASKED_ROLLOUTS = 4, 64


def harder() -> ModuleType:
    """Returns the example with these tasks and holes."""
    loop = load_example()
    loop.TASKS = [Task(task_id=n, source=loop.REFERENCE.format(e)) for n, e in EXPRESSIONS.items()]
    loop.HOLES = HOLES
    return loop


def trained(loop: ModuleType, judge: Any, variant: str, seed: int, steps: int, answers: int) -> dict[str, Any]:
    """Trains one run; returns its curve and the trained policy's measures."""
    loop.TURNS, name, parameters = VARIANTS[variant]
    loop.ROLLOUTS = answers // loop.TURNS
    torch.manual_seed(seed)
    policy = loop.Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=loop.LEARNING_RATE)
    curve, given = [], 0
    for _ in range(steps):
        batch = loop.rollouts(policy, judge)
        loop.update(policy, optimizer, batch, loop.credit(batch, name, parameters))
        given += len(batch.reward)
        curve.append(round(share_right(loop, batch, 1), 4))
    loop.TURNS, loop.ROLLOUTS = ASKED_TURNS, ASKED_ROLLOUTS
    asked = loop.rollouts(policy, judge)
    return {
        "seed": seed,
        "answers": given,
        "at_once": share_right(loop, asked, 1),
        "within_four": share_right(loop, asked, ASKED_TURNS),
        "one_of_four": one_of(loop, asked, 4),
        "curve": curve,
    }


def right(batch: Any, turns: int) -> set[tuple[int, int]]:
    """Returns the rollouts that are correct within so many turns."""
    rows = zip(batch.group, batch.trajectory, batch.turn, batch.reward, strict=True)
    return {(g, n) for g, n, turn, reward in rows if reward and turn < turns}


def share_right(loop: ModuleType, batch: Any, turns: int) -> float:
    return len(right(batch, turns)) / (len(loop.TASKS) * loop.ROLLOUTS)


def one_of(loop: ModuleType, batch: Any, count: int) -> float:
    """Returns the chance that one of so many first answers is correct, averaged over tasks."""
    first = [g for g, _ in right(batch, 1)]
    chances = [metrics.pass_at_k(loop.ROLLOUTS, first.count(g), count) or 0.0 for g in range(len(loop.TASKS))]
    return sum(chances) / len(chances)


def compared(runs: dict[str, list[dict[str, Any]]], what: str, first: str) -> dict[str, Any]:
    """Returns paired differences over seeds of every variant to one: a family of claims about shares."""
    base = [run[what] for run in runs[first]]
    others = {name: [run[what] for run in rows] for name, rows in runs.items() if name != first}
    return metrics.family({name: metrics.paired(base, values, shares=True) for name, values in others.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--answers", type=int, default=24)
    asked = parser.parse_args()
    loop, runs = harder(), {name: [] for name in VARIANTS}
    with Evaluator(EvalOptions(backend="cpu", trials=2, seed=0)) as evaluator:
        judge = loop.Judged(evaluator)
        for seed in range(asked.seeds):
            for name in VARIANTS:
                runs[name].append(trained(loop, judge, name, seed, asked.steps, asked.answers))
                row = {key: value for key, value in runs[name][-1].items() if key != "curve"}
                print(f"{name}: {json.dumps(row)}", flush=True)
    kept = {
        "benchmark": "rl_claims_small",
        "date": time.strftime("%Y-%m-%d"),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "asked": {"seeds": asked.seeds, "steps": asked.steps, "answers": asked.answers},
        "candidates_judged": len(judge.known),
        "means": {
            name: {what: sum(r[what] for r in rows) / len(rows) for what in ("at_once", "within_four", "one_of_four")}
            for name, rows in runs.items()
        },
        "to_one_turn": {what: compared(runs, what, "one turn") for what in ("at_once", "within_four")},
        "to_grpo": {what: compared(runs, what, "two turns, grpo") for what in ("at_once", "within_four")},
        "runs": runs,
    }
    write_text(asked.out, json.dumps(kept, indent=1) + "\n")
    print(json.dumps(kept["means"], indent=1))


if __name__ == "__main__":
    main()
