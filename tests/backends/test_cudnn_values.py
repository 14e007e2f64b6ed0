"""cuDNN's routines on NaN and on values that are too large: the descriptors decide the result."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from kernelwright.backends import values
from kernelwright.backends.libraries import cudnn, library_memory

NAN, INF = math.nan, math.inf


def _run(name: str, choices: list[int], factors: list[float], *tensors: torch.Tensor) -> list[float]:
    """Returns the last tensor after a call, with all memory treated as device memory."""
    packed = [[t.data_ptr(), values.DTYPE_NUMBERS[t.dtype], *t.shape, *t.stride()] for t in tensors]
    status, made = cudnn.run(
        name, (choices, factors, *packed), library_memory.in_process(lambda address, nbytes: True, "cuDNN")
    )
    assert (status, made) == (0, tensors[-1].numel())
    return [float(v) for v in tensors[-1].flatten()]


def _row(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float32).view(1, 1, 1, -1)


def _same(got: list[float], expected: list[float]) -> bool:
    return got == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(("mode", "above"), [(1, INF), (3, 2.0)])
def test_rectifiers_pass_nan_on_where_they_are_told_to(mode: int, above: float) -> None:
    x, factors = _row(NAN, -1.0, INF), [1.0, 0.0, 2.0, 1.0]
    assert _same(_run("cudnnActivationForward", [mode, 0], factors, x, _row(0, 0, 0)), [0.0, 0.0, above])
    assert _same(_run("cudnnActivationForward", [mode, 1], factors, x, _row(0, 0, 0)), [NAN, 0.0, above])


def test_pooling_passes_nan_on_where_it_is_told_to() -> None:
    x, windows = _row(1.0, NAN, 3.0, 4.0), [1, 2, 0, 0, 1, 2]
    assert _same(_run("cudnnPoolingForward", [0, 0, *windows], [1.0, 0.0], x, _row(0, 0)), [1.0, 4.0])
    assert _same(_run("cudnnPoolingForward", [0, 1, *windows], [1.0, 0.0], x, _row(0, 0)), [NAN, 4.0])


def test_smaller_and_larger_pass_nan_on_where_they_are_told_to() -> None:
    args: tuple[Any, ...] = ([1.0, 0.0, 1.0], _row(NAN, 1.0), _row(2.0, 3.0))
    assert _same(_run("cudnnOpTensor", [2, 0], *args, _row(0, 0)), [2.0, 1.0])
    assert _same(_run("cudnnOpTensor", [3, 1], *args, _row(0, 0)), [NAN, 3.0])


def test_the_fast_softmax_overflows_and_the_accurate_one_does_not() -> None:
    x = torch.tensor([100.0, 100.0]).view(1, 2, 1, 1)
    assert _same(_run("cudnnSoftmaxForward", [0, 1], [1.0, 0.0], x, torch.zeros_like(x)), [NAN, NAN])
    assert _same(_run("cudnnSoftmaxForward", [1, 1], [1.0, 0.0], x, torch.zeros_like(x)), [0.5, 0.5])


def test_a_result_that_is_not_to_be_kept_is_not_read() -> None:
    """With beta 0 the output memory may hold anything, NaN too."""
    assert _run("cudnnAddTensor", [], [2.0, 0.0], _row(1.0, 2.0), _row(NAN, NAN)) == [2.0, 4.0]
    assert _run("cudnnAddTensor", [], [2.0, 0.5], _row(1.0, 2.0), _row(2.0, 4.0)) == [3.0, 6.0]
