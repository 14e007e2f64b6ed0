"""References that divide into rows are checked in parts where the whole exceeds memory; others are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_full_size import TASK, judged, model

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.evaluation.reference import by_rows
from kernelwright.records import Candidate, SourceFile, Task

GB = 2.0**30
BYTES = 48 * 160 * 4
"""Inputs, and outputs, of TASK."""
BETWEEN = 10 * BYTES / GB
"""Room for checking in slices, and not for checking the whole."""


def found(function: Callable[..., Any], *values: torch.Tensor, step: int = 3) -> by_rows.Slicing | None:
    def run(wide: bool, given: list[torch.Tensor]) -> list[torch.Tensor]:
        made = function(*(t.double() if wide and t.is_floating_point() else t for t in given))
        return [*made] if isinstance(made, tuple) else [made]

    return by_rows.find([*values], run(False, [*values]), lambda v: run(True, v), step, seed=1)


ROWS = torch.randn(10, 6, generator=torch.Generator().manual_seed(0))
SQUARE = torch.randn(10, 10, generator=torch.Generator().manual_seed(1))
FIXED = torch.arange(10.0)


@pytest.mark.parametrize(
    ("function", "values", "cut"),
    [
        (torch.relu, (ROWS,), (0,)),
        (lambda x: torch.softmax(x, 1), (ROWS,), (0,)),
        (lambda x, y: x * y + 1, (ROWS, 2 * ROWS), (0, 1)),
        (lambda x, w: x @ w, (ROWS, torch.ones(6, 4)), (0,)),
        (lambda a, b: a @ b, (SQUARE, SQUARE.T.contiguous()), (0,)),
        (lambda a, b: b @ a, (SQUARE, SQUARE.T.contiguous()), (1,)),
        (lambda x: (x.sum(1), x.argmax(1)), (ROWS,), (0,)),
        (lambda x, bias: x + bias, (torch.randn(10), torch.tensor(2.0)), (0,)),
    ],
)
def test_what_divides_is_found_with_what_to_cut(
    function: Callable[..., Any], values: tuple[torch.Tensor, ...], cut: tuple[int, ...]
) -> None:
    way = found(function, *values)
    assert way is not None and way.cut == cut
    whole = [part for part in way.parts()]
    assert [i for part in whole for i in range(part.start, part.stop)] == list(range(10))
    made = torch.cat([torch.as_tensor(_first(function(*way.inputs(list(values), part)))) for part in whole])
    assert torch.allclose(made, _first(function(*values)), rtol=1e-4, atol=1e-5)


def _first(outputs: Any) -> torch.Tensor:
    return outputs[0] if isinstance(outputs, tuple) else outputs


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.softmax(x, 0),
        lambda x: torch.cumsum(x, 0),
        lambda x: x - x.mean(),
        lambda x: x.flip(0),
        lambda x: x.sum(0),
        lambda x: x.sum(),
        lambda x: x.T,
        lambda x: x / x.shape[0],
        lambda x: x + FIXED[:, None],
        lambda x: x if x.shape[0] > 8 else x + 1,
        lambda x: torch.roll(x, 1, 0),
        lambda x: (x, x.sum(0)),
        lambda x: torch.nn.functional.batch_norm(x, None, None, training=True),
        lambda x: torch.nn.functional.dropout(x, 0.5),
    ],
)
def test_what_does_not_divide_is_left_whole(function: Callable[..., Any]) -> None:
    assert found(function, ROWS) is None


@settings(max_examples=60, deadline=None)
@given(rows=st.integers(2, 50), step=st.integers(0, 60))
def test_parts_are_all_rows_once(rows: int, step: int) -> None:
    way = by_rows.Slicing((0,), rows, max(1, min(step, rows)))
    assert [i for p in way.parts() for i in range(p.start, p.stop)] == list(range(rows))


def test_a_size_without_room_is_checked_in_slices(pool: Pool) -> None:
    options = EvalOptions(trials=2, gpu_memory_gb=BETWEEN, timing_seconds=0.05, program_first=False)
    with Evaluator(options, device="cpu", pool=pool) as small:
        right = judged(small, model("return torch.relu(x) * self.scale"))
        late = judged(small, model("y = torch.relu(x) * self.scale\nif x.shape[0] == 48: y[41, 7] += 1.0\nreturn y"))
    assert right.verdict == "correct", right.reason
    step = right.environment.checked_in_slices or 0
    assert 1 <= step < 40
    assert late.verdict == "wrong", late.reason
    start = 41 // step * step
    assert f"in rows {start} to {min(47, start + step - 1)} of 48" in late.reason
    assert f"output 0 differs at [{41 - start}, 7]" in late.reason


def test_what_does_not_divide_says_so(pool: Pool) -> None:
    options = EvalOptions(trials=1, gpu_memory_gb=BETWEEN, timing_seconds=0.0)
    task = TASK.replace("torch.relu(x) * self.scale", "torch.softmax(x, 0) * self.scale")
    with Evaluator(options, device="cpu", pool=pool) as small:
        file = SourceFile(path="c.py", content=model("return torch.softmax(x, 0) * self.scale"))
        result = small.evaluate(
            Task(task_id="columns", source=task, policy="libraries"), Candidate(sources=(file,), language="cuda")
        )
    assert result.verdict == "unsupported" and "does not divide into rows" in result.reason
