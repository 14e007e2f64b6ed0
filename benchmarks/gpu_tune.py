"""Sweeps the library's schedules of some operator families on this machine's GPU and records their times.

    python benchmarks/gpu_tune.py OUT.json [--families NAME,...] [--count 1] [--jobs 8] [--seconds 240] [--backend gpu]

It does in one run what `kernelwright solutions tune` does for each family: every schedule's text is judged at the
task's own sizes (checked, then timed against eager). Each schedule has a row with the raw samples. Each task has a
summary: the best schedule, and how many times faster it is than the canonical one. Families alternate; those that the
time limit leaves out are named. `--backend cpu` tests the script and counts instructions instead of times.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpu_machine import hardware
from result_file import write_text

from kernelwright.evaluation import EvalOptions
from kernelwright.executor import load_executor
from kernelwright.runs.store import Store
from kernelwright.search import autotune

FAMILIES = (
    "matmul_rectangular", "bmm", "conv2d", "conv1d", "conv_depthwise2d", "softmax", "layer_norm", "rms_norm",
    "batch_norm2d", "sum", "argmax", "gelu", "avg_pool2d", "linear", "mse_loss", "fused_linear",
)  # fmt: skip
SEED = 20261123


def sweep(family: str, count: int, options: EvalOptions, jobs: int, folder: Path) -> list[dict[str, Any]]:
    """Returns one row for each schedule of `count` tasks of a family."""
    wanted = autotune.trials(autotune.tasks_of(family, count, SEED))
    timings: dict[str, Any] = {}

    def keep(item_id: str, evaluation: Any, _note: str) -> None:
        if evaluation is not None:
            timings[item_id] = evaluation.timing.model_dump(mode="json") if evaluation.timing else None

    with (
        Store.open_or_create(folder, {"verb": "solutions tune", "input": family}) as store,
        load_executor("local", jobs, options.backend) as executor,
    ):
        found = autotune.tune(wanted, store, executor.settle(options), executor, keep)
    return [
        {"family": family, **m.plain(), "timing": timings.get(t.row.item_id)}
        for t, m in zip(wanted, found, strict=True)
    ]


def summary(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns one row for each task: the best schedule, and its gain over the canonical one."""
    lines = []
    for task in dict.fromkeys(r["task"] for r in rows):
        mine = [r for r in rows if r["task"] == task]
        best = next((r for r in mine if r["best"]), None)
        plain = next((r for r in mine if r["schedule"] == "canonical"), None)
        cost = "candidate_ms" if best and best["candidate_ms"] is not None else "instructions"
        gain = plain[cost] / best[cost] if best and plain and plain["verdict"] == "correct" and best[cost] else None
        lines.append(
            {
                "task": task,
                "family": mine[0]["family"],
                "schedules": len(mine),
                "correct": sum(r["verdict"] == "correct" for r in mine),
                "best": best and best["schedule"],
                "best_over_canonical": gain and round(gain, 3),
                "best_speedup": best and best["speedup"],
                "canonical_speedup": plain and plain["speedup"],
            }
        )
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--timing-seconds", type=float, default=0.4)
    parser.add_argument("--backend", default="gpu")
    given = parser.parse_args()
    options = EvalOptions(backend=given.backend, timing_seconds=given.timing_seconds, timeout=30.0, seed=SEED)
    began, rows, left = time.monotonic(), [], []
    made: dict[str, Any] = {"benchmark": "gpu_tune", **hardware(), "seed": SEED, "not_swept": left, "rows": rows}

    def keep() -> None:
        told = {**made, "wall_s": round(time.monotonic() - began, 1), "tasks": summary(rows)}
        write_text(given.out, json.dumps(told, indent=1))

    with tempfile.TemporaryDirectory() as folder:
        for family in given.families.split(","):
            if time.monotonic() - began > given.seconds:
                left.append(family)
                continue
            rows += sweep(family, given.count, options, given.jobs, Path(folder) / family)
            keep()
            print(f"{time.monotonic() - began:7.1f} s  {family}: {json.dumps(summary(rows)[-1])}", flush=True)
    keep()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
