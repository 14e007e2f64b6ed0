"""Decides which distributions of input values a task can take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kernelwright.records import Distribution
from kernelwright.tasks import metric
from kernelwright.tasks.draws import STRUCTURED_INTEGERS, Draws
from kernelwright.tasks.inputs import Namespace, construct, inputs_from, tensors_in
from kernelwright.tasks.reference_runs import (
    finite,
    is_inexact,
    nudged_outputs,
    parted_outputs,
    reference_outputs,
)

DISTRIBUTIONS: tuple[Distribution, ...] = (
    *("own", "uniform", "normal", "heavy_tail", "constant_rows"),
    *("far_below", "far_above", "tied_rows", "scaled_rows"),
)
"""Distributions on which every task is judged, unless the reference cannot run on them."""
HARDENING: tuple[Distribution, ...] = ("peaked", "wide", "shifted", "near_one")
"""Distributions for tasks that a null kernel passes under all others (see `evaluation.judge.null_kernel_gate`)."""
_CHOOSING = frozenset("argmax argmin sort argsort topk max min median nanmedian mode kthvalue".split())
"""Torch's functions that return one of several equal places; which one is not defined."""
_OVERWRITING = frozenset("scatter scatter_ index_copy index_copy_ index_put index_put_ put_ __setitem__".split())
"""Torch's functions whose result is not defined where two indices are equal."""

ANOTHER_PLACE = 1e-2
"""The relative error of an output that tiny changes of inputs do not make, and another chosen place does."""


@dataclass(frozen=True)
class _Subject:
    """A task's model and its own inputs and outputs, as far as distributions are compared with them."""

    model: Any
    seed: int
    inputs: list[torch.Tensor]
    outputs: list[torch.Tensor]
    floats: int
    integers: int
    calls: _Calls
    """What the reference calls."""


class _Calls(TorchFunctionMode):
    """Notes the names of torch's functions, and whether places that one has chosen are given to another."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.by_place = False
        self._places: list[torch.Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name != "__setitem__" or any(t.dtype is not torch.bool for t in tensors_in(args[1])):
            self.seen.add(name)
        given = tensors_in([args, kwargs])
        self.by_place |= name != "__get__" and any(t is place for t in given for place in self._places)
        made = func(*args, **(kwargs or {}))
        if name in _CHOOSING:
            places = made[1] if isinstance(made, tuple) else made
            self._places += [places] if isinstance(made, tuple) or name.startswith("arg") else []
        return made


def usable_distributions(
    namespace: Namespace, seed: int, among: Sequence[Distribution] = DISTRIBUTIONS[1:]
) -> list[Distribution]:
    """Returns the usable distributions, `own` first (see `examine_distributions`)."""
    return [d for d, reason in examine_distributions(namespace, seed, among).items() if not reason]


def examine_distributions(
    namespace: Namespace, seed: int, among: Sequence[Distribution] = DISTRIBUTIONS[1:]
) -> dict[Distribution, str]:
    """Returns each distribution with the reason why this task cannot use it; an empty text where it can.

    A distribution is unusable where the reference raises or is not finite although it is with the task's own values,
    where probabilities among the inputs (non-negative rows that sum to 1) turn negative, and where outputs depend on
    ties.
    """
    model = construct(namespace, seed)
    own = Draws("own", seed)
    values = inputs_from(namespace, own)
    with _Calls() as calls:
        outputs = reference_outputs(model, values, call_seed=seed)
    subject = _Subject(model, seed, tensors_in(values), outputs, own.floats, own.integers, calls)
    return {"own": "", **{d: _examine(namespace, subject, d) for d in among}}


def _examine(namespace: Namespace, subject: _Subject, distribution: Distribution) -> str:
    structured = distribution in STRUCTURED_INTEGERS and subject.integers > 0
    if not subject.floats and not structured:
        return "the task draws no values that it replaces"
    whole = not all(is_inexact(t) for t in subject.outputs)
    if whole and (structured or distribution == "tied_rows") and subject.calls.seen & _CHOOSING:
        return "integer outputs would hang on ties"
    if structured and subject.calls.seen & _OVERWRITING:
        return "equal indices would write to one place"
    try:
        values = inputs_from(namespace, Draws(distribution, subject.seed))
        if reason := _other_inputs(tensors_in(values), subject.inputs):
            return reason
        outputs = reference_outputs(subject.model, values, call_seed=subject.seed)
        for out, base in zip(outputs, subject.outputs, strict=True):
            if out.shape != base.shape:
                return "the outputs would be of another shape"
            if bool(finite(base).all()) and not bool(finite(out).all()):
                return "the reference would not be finite"
        if whole and _has_ties(subject.model, values, subject.seed):
            return "integer outputs would hang on ties"
        if subject.calls.by_place and _moved_by_parting(subject.model, values, subject.seed):
            return "outputs would hang on ties"
    except Exception as error:
        return f"the reference would raise {type(error).__name__}"
    return ""


def _other_inputs(tensors: Sequence[torch.Tensor], own: Sequence[torch.Tensor]) -> str:
    """Returns what the inputs lose against the task's own values; empty if nothing."""
    for i, (tensor, base) in enumerate(zip(tensors, own, strict=True)):
        if tensor.dtype.is_floating_point and _is_probability(base) and bool((tensor < 0).any()):
            return f"input {i} holds probabilities and would be negative"
        if bool(finite(base).all()) and not bool(finite(tensor).all()):
            return "the inputs would not be finite"
    return ""


def _is_probability(tensor: torch.Tensor) -> bool:
    if not tensor.is_floating_point() or tensor.element_size() == 1 or not tensor.dim() or not tensor.numel():
        return False
    return bool((tensor >= 0).all()) and bool(((tensor.double().sum(-1) - 1).abs() < 1e-2).all())


def _has_ties(model: Any, values: list[Any], seed: int) -> bool:
    """Tells whether integer outputs change when inputs move by half an ulp."""
    exact = reference_outputs(model, values, torch.float64, call_seed=seed)
    moved = nudged_outputs(model, values, seed)
    return any(not torch.equal(a, b) for a, b in zip(exact, moved, strict=True) if not is_inexact(a))


def _moved_by_parting(model: Any, values: list[Any], seed: int) -> bool:
    """Tells whether floating outputs change when equal inputs become different: another place is then chosen."""
    exact = reference_outputs(model, values, torch.float64, call_seed=seed)
    parted = parted_outputs(model, values, seed)
    pairs = [(b, a) for a, b in zip(exact, parted, strict=True) if is_inexact(a)]
    return any(metric.worst(b.numpy(), a.numpy()) > ANOTHER_PLACE for b, a in pairs)
