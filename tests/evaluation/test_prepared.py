"""Weight copies that a candidate keeps: pure copies are updated, wherever they are, and nothing else is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from kernelwright.evaluation.candidate.runner import load_weights
from kernelwright.evaluation.program import weight_copies


@dataclasses.dataclass
class Packed:
    matrix: torch.Tensor
    name: str = "w"


def padded(weight: torch.Tensor) -> torch.Tensor:
    rows, columns = weight.shape
    return nn.functional.pad(weight, (0, -columns % 8, 0, -rows % 16))


class Model(nn.Module):
    """A model of three layers, with the copies that a test keeps of them."""

    def __init__(self, keep: Callable[[Any], Any]) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(6, 10), nn.Linear(6, 10), nn.Linear(6, 10)
        with torch.no_grad():
            self.kept = keep(self)


FORMS: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda m: m.q.weight.t().contiguous(),
    "list": lambda m: [layer.weight.t().contiguous() for layer in (m.q, m.k, m.v)],
    "dict of tuples": lambda m: {"a": (m.q.weight.half(), m.q.bias.clone()), "b": (m.k.weight.clone(), None)},
    "dataclass": lambda m: Packed(m.q.weight.t().contiguous()),
    "namespace": lambda m: SimpleNamespace(w=m.v.weight.clone(), n=3),
    "joined": lambda m: torch.cat([m.q.weight, m.k.weight, m.v.weight]),
    "joined, transposed": lambda m: torch.cat([m.q.weight.t(), m.k.weight.t(), m.v.weight.t()], 1).contiguous(),
    "joined biases": lambda m: torch.cat([m.q.bias, m.k.bias]),
    "stacked": lambda m: torch.stack([m.v.weight, m.q.weight]),
    "padded": lambda m: padded(m.q.weight),
    "padded, transposed": lambda m: padded(m.q.weight.t()),
}
"""What an author may keep; each is made anew of other weights to compare."""

COMPUTED: dict[str, Callable[[Any], Any]] = {
    "sum": lambda m: m.q.weight + m.k.weight,
    "scaled": lambda m: m.q.weight * 2,
    "joined with a computed one": lambda m: torch.cat([m.q.weight, m.k.weight * 2]),
    "padded with ones": lambda m: nn.functional.pad(m.q.weight, (0, 2), value=1.0),
    "workspace": lambda _m: torch.zeros(10, 6),
    "half of one": lambda m: m.q.weight[:5].clone(),
}


def tensors(value: Any) -> list[torch.Tensor]:
    return list(weight_copies._held([value], 4))


def exchanged(model: Model) -> None:
    """Replaces the model's weights, as the judge does."""
    weights = dict(model.state_dict())
    with torch.no_grad():
        found = weight_copies.copies(model, weights)
        for weight in weights.values():
            weight.copy_(torch.randn_like(weight))
        weight_copies.follow(found)


@pytest.mark.parametrize("form", FORMS)
def test_copies_follow(form: str) -> None:
    model = Model(FORMS[form])
    exchanged(model)
    with torch.no_grad():
        wanted = FORMS[form](model)
    assert tensors(model.kept)
    for kept, fresh in zip(tensors(model.kept), tensors(wanted), strict=True):
        assert torch.equal(kept, fresh)


@pytest.mark.parametrize("form", COMPUTED)
def test_what_was_computed_stays(form: str) -> None:
    model = Model(COMPUTED[form])
    before = [t.clone() for t in tensors(model.kept)]
    exchanged(model)
    assert all(torch.equal(a, b) for a, b in zip(tensors(model.kept), before, strict=True))


def test_weights_of_one_value_are_told_by_the_others_beside_them() -> None:
    model = Model(lambda m: torch.cat([m.q.bias.zero_(), m.k.bias, m.v.bias.zero_()]))
    exchanged(model)
    assert torch.equal(model.kept, torch.cat([model.q.bias, model.k.bias, model.v.bias]))
    alone = Model(lambda m: torch.cat([m.q.bias.zero_(), m.k.bias.zero_()]))
    exchanged(alone)
    assert not alone.kept.any()


def test_a_new_models_lists_are_looked_through_by_whoever_gives_it_weights() -> None:
    """The judge and the profilers search a new model's lists; later only those of its constructor."""
    model, built = Model(FORMS["list"]), list[Any]()
    for new in (True, False):
        state = {name: torch.randn_like(weight) for name, weight in model.state_dict().items()}
        assert load_weights(model, state, built, new=new) == "names"
        assert all(torch.equal(a, b) for a, b in zip(model.kept, FORMS["list"](model), strict=True))
    other = Model(FORMS["list"])
    assert load_weights(other, state) == "names" and torch.equal(other.kept[0], state["q.weight"].t())
