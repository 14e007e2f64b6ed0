"""Values that random draws hardly ever give, and the tasks that cannot take them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from reference_modules import HEAD

from kernelwright.tasks import storages, structured
from kernelwright.tasks.distributions import examine_distributions
from kernelwright.tasks.workloads import instantiate

SHAPE = torch.Size((40, 96))
KINDS = {"far_below", "far_above", "tied_rows", "scaled_rows"}


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(1)


def reasons(inputs: str, forward: str) -> dict[Any, str]:
    text = f"class Model(nn.Module):\n    def forward(self, x, *rest):\n        {forward}\n"
    return dict(examine_distributions(instantiate(f"{HEAD}{text}def get_inputs():\n    return [{inputs}]\n"), seed=3))


def test_far_values_underflow_an_exponential() -> None:
    values = structured.far_below(SHAPE, generator(), 0)
    assert not values.exp().any() and values.mean() < -100
    assert structured.far_above(SHAPE, generator(), 0).mean() > 100
    assert structured.far_below(SHAPE, generator(), 1).mean().abs() < 1


def test_tied_rows_hold_zeros_constants_and_ties() -> None:
    rows = structured.tied_rows(SHAPE, generator(), 0)
    assert (rows == 0).all(1).any() and ((rows == rows[:, :1]).all(1) & (rows[:, 0] != 0)).any()
    assert (rows.view(-1, structured.GROUP) == 0).all(1).any()
    distinct = torch.tensor([row.unique().numel() for row in rows])
    assert (distinct < 40).any() and (distinct == SHAPE[1]).any()


def test_scaled_rows_have_very_different_sizes() -> None:
    sizes = structured.scaled_rows(SHAPE, generator(), 0).square().mean(1).sqrt()
    assert sizes.max() / sizes.min() > 1000


def test_two_draws_of_integers_meet_in_a_long_chain_of_carries() -> None:
    own = torch.randint(0, 16, (30, 64))
    a, b = (structured.integers(own, 0, 15, generator(), call, alike=False) for call in (0, 1))
    carries = 0
    for row in a + b:
        chain = longest = 0
        for digit in row.tolist():
            chain = chain + 1 if digit == 15 and chain else int(digit > 15)
            longest = max(longest, chain)
        carries = max(carries, longest)
    assert carries > 8 and 0 <= min(a.min(), b.min()) and max(a.max(), b.max()) <= 15


@pytest.mark.parametrize(
    ("inputs", "forward", "refused"),
    [
        ("torch.rand(40, 96)", "return x.softmax(-1)", set()),
        ("torch.rand(40, 96)", "return x.log()", {"far_below", "tied_rows", "scaled_rows"}),
        ("torch.randn(40, 96)", "return x.argmax(-1)", {"tied_rows"}),
        (
            "torch.randint(0, 9, (40, 96))",
            "return x.argmax(-1)",
            {"far_below", "tied_rows", "far_above", "scaled_rows"},
        ),
        ("torch.randn(40, 96)", "return x.flip(1).gather(1, x.topk(4, 1).indices)", {"tied_rows"}),
        ("torch.randn(40, 96)", "return x.gather(1, x.topk(4, 1).indices)", set()),
        ("torch.randn(40, 96)", "return x - x.max(1, keepdim=True).values", set()),
        ("torch.randint(0, 9, (96,))", "return torch.zeros(9).index_copy_(0, x, torch.ones(96))", KINDS),
        ("torch.randint(0, 9, (96,))", "return torch.bincount(x, minlength=9)", {"far_above", "scaled_rows"}),
    ],
)
def test_tasks_refuse_what_has_no_defined_result(inputs: str, forward: str, refused: set[str]) -> None:
    found = {d for d, reason in reasons(inputs, forward).items() if reason}
    assert found & KINDS == refused


def test_copies_keep_layouts_and_shared_memory() -> None:
    base = torch.randn(6, 20)
    given = [base[:, :10], base[:, 10:], base.T, torch.randn(1, 5).expand(4, 5), torch.randn(7)[2:]]
    made = storages.copies(given, lambda t: t.double())
    assert all(torch.equal(a.double(), b) and a.stride() == b.stride() for a, b in zip(given, made, strict=True))
    assert made[0].untyped_storage().data_ptr() == made[2].untyped_storage().data_ptr()
    assert made[0].untyped_storage().data_ptr() != base.untyped_storage().data_ptr()
