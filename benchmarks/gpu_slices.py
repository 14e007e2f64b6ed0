"""Judges candidates for references too large to check whole in float64: a GPU checks some rows at a time.

    python benchmarks/gpu_slices.py OUT.json [--device cpu]

Each task has inputs of 2 GiB, and the judge may use ten times that: too little for the whole (12 times), enough for
slices (8 times). The library's own candidate must be `correct`. One with an error in a late element must be `wrong`,
with the rows in its reason. `--device cpu` does the same on the CPU with small tensors, to test the script.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from gpu_machine import hardware

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.records import Task
from kernelwright.solutions import write
from kernelwright.tasks import candidate_from_text

TEXT = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return {what}


def get_inputs():
    return [torch.randn({rows}, {columns})]


def get_init_inputs():
    return []
"""
REFERENCES = {
    "elementwise": "torch.tanh(x) * 0.5 + x",
    "softmax": "torch.softmax(x, dim=1)",
    "row_norm": "x / (torch.norm(x, dim=1, keepdim=True) + 1e-6)",
}
LATE = """

class _Late(ModelNew):
    def forward(self, x):
        y = super().forward(x)
        if x.shape[0] == {rows}:
            y[{row}, 7] += 1.0
        return y


ModelNew = _Late
"""


def judged(evaluator: Evaluator, task: Task, text: str) -> dict[str, Any]:
    began = time.monotonic()
    result = evaluator.evaluate(task, candidate_from_text(text, "benchmarks:slices"))
    return {
        "verdict": result.verdict,
        "reason": result.reason[:300],
        "slices": result.environment.checked_in_slices,
        "timing": result.timing.model_dump(mode="json") if result.timing else None,
        "wall_s": round(time.monotonic() - began, 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    given = parser.parse_args()
    rows, columns = (16384, 32768) if given.device == "cuda" else (96, 512)
    room = 10 * rows * columns * 4 / 2**30
    options = EvalOptions(backend="gpu", gpu_memory_gb=room, trials=2, timing_seconds=0.2, timeout=60.0, seed=20261123)
    made: dict[str, Any] = {"benchmark": "gpu_slices", **hardware(), "rows": rows, "columns": columns, "room_gb": room}
    failed = 0
    with Evaluator(options, device=None if given.device == "cuda" else "cpu") as evaluator:
        for name, what in REFERENCES.items():
            task = Task(task_id=name, source=TEXT.format(what=what, rows=rows, columns=columns), policy="libraries")
            text = write(task.source)
            right = judged(evaluator, task, text)
            late = judged(evaluator, task, text + LATE.format(rows=rows, row=rows - rows // 7))
            made[name] = {"right": right, "late": late}
            good = right["verdict"] == "correct" and right["slices"] and late["verdict"] == "wrong"
            failed += not good
            told = [f"{x['verdict']} in {x['wall_s']} s, {x['slices']} {x['reason']}" for x in (right, late)]
            print(f"{name}: {told[0]}; {told[1]}", flush=True)
            given.out.write_text(json.dumps(made, indent=1), encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
