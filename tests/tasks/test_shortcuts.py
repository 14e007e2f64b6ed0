"""Null kernels that run the reference on reduced inputs: truncated inputs, and the error of lower precision."""

from __future__ import annotations

from typing import Any

import torch

from kernelwright.tasks import reference_runs
from kernelwright.tasks.shortcuts import MAX_RERUNS, changed_inputs, outputs_with_less


class Product(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


def _run(model: torch.nn.Module, values: list[Any], **options: Any) -> dict[str, list[torch.Tensor]]:
    honest = reference_runs.reference_outputs(model, values, None, 1)
    return outputs_with_less(model, values, honest, 1, options.get("only"), options.get("ignored", ()))


def test_half_and_a_quarter_of_a_reduction() -> None:
    a, b = torch.rand(6, 8), torch.rand(8, 5)
    found = _run(Product(), [a, b])
    assert torch.allclose(found["truncated-input0-dim1"][0], a[:, :4] @ b[:4])
    assert torch.allclose(found["sampled-input0-dim1"][0], a[:, :2].repeat(1, 4) @ b)
    assert torch.allclose(found["sampled-dim1-together"][0], 4 * (a[:, :2] @ b[:2]), rtol=1e-4)


def test_the_inputs_themselves_stay_as_they_are() -> None:
    a, b = torch.rand(6, 8), torch.rand(8, 5)
    kept = [a.clone(), b.clone()]
    _run(Product(), [a, b])
    assert torch.equal(a, kept[0]) and torch.equal(b, kept[1])


def test_what_changes_nothing_is_no_null() -> None:
    names = [name for name, _ in changed_inputs([torch.zeros(8, 8), torch.ones(8, 8)], ())]
    assert names == ["truncated-input1-dim0", "truncated-input1-dim1"]


def test_small_integer_and_unread_inputs_stay_whole() -> None:
    values = [torch.rand(64, 64), torch.rand(8), torch.arange(64), torch.rand(64, 64)]
    touched = {name.split("-")[1] for name, _ in changed_inputs(values, [3])}
    assert touched == {"input0"}


def test_only_some_names_are_run() -> None:
    found = _run(Product(), [torch.rand(6, 8), torch.rand(8, 5)], only=["truncated-input1-dim0", "bf16"])
    assert set(found) == {"truncated-input1-dim0", "bf16", "bf16-inputs"}


def test_fewer_bits_in_and_out() -> None:
    x = torch.rand(64) + 1
    found = _run(torch.nn.Identity(), [x])
    assert torch.equal(found["fp16"][0], x.half().float()) and found["fp16"][0].dtype == torch.float32
    assert torch.equal(found["bf16-inputs"][0], x.bfloat16().float())
    assert set(n for n in _run(torch.nn.Identity(), [x.half()]) if "16" in n) == {"bf16", "bf16-inputs"}
    assert not [n for n in _run(torch.nn.Identity(), [x.bfloat16()]) if "16" in n]


def test_a_rerun_that_raises_is_left_out() -> None:
    class Picky(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if bool((x == 0).any()):
                raise ValueError("no zeros, please")
            return x

    found = _run(Picky(), [torch.rand(8, 8) + 1])
    assert found and not [n for n in found if n.startswith("truncated")]


def test_many_dimensions_are_bounded() -> None:
    values = [torch.rand(4, 4, 4, 4) for _ in range(6)]
    honest = reference_runs.reference_outputs(_Sum(), values, None, 1)
    found = outputs_with_less(_Sum(), values, honest, 1, None, ())
    assert len([n for n in found if "16" not in n]) <= MAX_RERUNS


class _Sum(torch.nn.Module):
    def forward(self, *values: torch.Tensor) -> torch.Tensor:
        return torch.stack(values).sum(0)
