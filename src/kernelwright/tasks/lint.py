"""Lints a task's reference for faults that null kernels do not show.

It finds inputs and weights without effect on any output, state between calls, inputs that never change, values that are
not finite, and sizes too small to time. Runs only where a task's own code may run; imports torch. A note is `(rule,
evidence)`; none of them forbids a task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelwright.tasks import inputs as task_inputs
from kernelwright.tasks import probe, reference_runs, shortcuts
from kernelwright.tasks.workloads import instantiate

Note = tuple[str, str]
Outputs = list[torch.Tensor]

MAX_WEIGHTS = 48
"""Most parameters that are tested one by one."""
LAUNCH_SECONDS = 4e-6
"""Approximate cost of one kernel launch on a current GPU."""
BYTES_PER_SECOND, FLOPS_PER_SECOND = 4.8e12, 6.7e13
"""An H200's memory bandwidth and float32 rate (NVIDIA's data sheet): they bound the time of a size from below."""
LARGE_GB = 24.0
"""Memory in 1e9 bytes above which a task does not fit a common GPU."""


@dataclass(frozen=True)
class Subject:
    """One task at one size: its model, two draws of inputs, and the reference's outputs on the first."""

    model: Any
    values: list[Any]
    other: list[Any]
    outputs: Outputs
    seed: int

    def run(self, values: list[Any], model: Any = None) -> Outputs:
        return reference_runs.reference_outputs(model or self.model, values, None, self.seed)


def examine(source: str, constants: dict[str, Any], seed: int) -> tuple[list[Note], list[int]]:
    """Returns notes on a task at one size, and the numbers of the input tensors on which no output depends.

    Raises the reference's own exceptions.
    """
    namespace = instantiate(source, constants)
    model = task_inputs.construct(namespace, seed)
    task_inputs.randomise_weights(model, seed)
    values = task_inputs.make_inputs(namespace, "own", seed)
    other = task_inputs.make_inputs(namespace, "own", seed + 1)
    outputs = reference_runs.reference_outputs(model, values, None, seed)
    subject = Subject(model, values, other, outputs, seed)
    unread = list(_unread(subject))
    notes = [*_inputs(subject), *_calls(subject), *_values(subject), *_weights(subject)]
    notes += [("unread-input", f"no output depends on input {i}") for i in unread]
    return notes, unread


def sizes(source: str, declared: Sequence[dict[str, Any]]) -> tuple[list[Note], float | None]:
    """Notes on the declared sizes, given by their constants, and the memory of the largest in 1e9 bytes.

    Uses torch's meta device, so that nothing is allocated; returns no note where the task cannot run there.
    """
    costs = []
    for constants in declared:
        try:
            costs.append((probe.measure(source, constants, "meta"), _item_size(source, constants)))
        except probe.ReferenceFails:
            continue
    if not costs:
        return [], None
    cost, item = max(costs, key=lambda c: c[0].elements * c[1])
    moved = item * (cost.elements + cost.parameters)
    seconds = max(moved / BYTES_PER_SECOND, cost.flops / FLOPS_PER_SECOND)
    notes: list[Note] = []
    if seconds < LAUNCH_SECONDS:
        text = f"an H200 could do the declared size in {seconds * 1e6:.1f} us, a launch takes about 4 us"
        notes.append(("too-small-to-time", text))
    if moved / 1e9 > LARGE_GB:
        notes.append(("large", f"inputs, outputs and weights take {moved / 1e9:.0f} GB"))
    return notes, round(moved / 1e9, 4)


def _item_size(source: str, constants: dict[str, Any]) -> int:
    namespace = instantiate(source, constants)
    with torch.no_grad(), task_inputs.OnDevice("meta"):
        return shortcuts.widest(None, namespace["get_inputs"]()).itemsize


def _inputs(subject: Subject) -> Iterator[Note]:
    """Yields inputs that are equal under two seeds; a kernel may hard-code them."""
    pairs = zip(task_inputs.tensors_in(subject.values), task_inputs.tensors_in(subject.other), strict=True)
    same = [i for i, (a, b) in enumerate(pairs) if a.shape == b.shape and torch.equal(a, b)]
    if same:
        yield "constant-input", f"input {', '.join(map(str, same))} does not change with the seed"


def _calls(subject: Subject) -> Iterator[Note]:
    """Yields notes on a reference whose equal calls differ, or that writes to its inputs."""
    again = subject.run(subject.values)
    if not _equal(subject.outputs, again):
        yield "nondeterministic", "two calls with equal inputs, weights and seeds differ"
    elif not _equal(
        subject.outputs, reference_runs.reference_outputs(subject.model, subject.values, None, subject.seed + 1)
    ):
        yield "random-output", "the output changes with torch's seed (dropout or random draws in forward)"
    model = reference_runs.copied(subject.model)
    given = task_inputs.map_tensors(subject.values, torch.Tensor.clone)
    before = task_inputs.map_tensors(subject.values, torch.Tensor.clone)
    torch.manual_seed(subject.seed)
    with torch.no_grad(), task_inputs.OnDevice("cpu"):
        first = [t.clone() for t in reference_runs.flatten_outputs(model(*given))]
        if not _equal(task_inputs.tensors_in(before), task_inputs.tensors_in(given)):
            yield "mutates-inputs", "the reference writes to its inputs"
        torch.manual_seed(subject.seed)
        second = reference_runs.flatten_outputs(model(*before))
    if not _equal(first, second):
        yield "stateful", "a second call of the same model with equal inputs differs from the first"


def _values(subject: Subject) -> Iterator[Note]:
    """Yields notes on outputs that are not finite, constant, or equal for other inputs."""
    for i, out in enumerate(subject.outputs):
        finite = reference_runs.finite(out)
        if not bool(finite.all()):
            yield "not-finite", f"output {i} holds {int((~finite).sum())} NaN or infinite values"
        elif out.numel() > 1 and reference_runs.same_values(out, _first_repeated(out)):
            yield "uniform-output", f"all {out.numel()} elements of output {i} are equal"
    if _equal(subject.outputs, subject.run(subject.other)):
        yield "constant-output", "the output is the same for other inputs"


def _first_repeated(out: torch.Tensor) -> torch.Tensor:
    return out.reshape(-1)[:1].reshape((1,) * out.dim()).expand_as(out)


def _unread(subject: Subject) -> Iterator[int]:
    """Yields the numbers of input tensors that another draw's tensor can replace without a change of any output."""
    tensors = task_inputs.tensors_in(subject.values)
    for i, replacement in enumerate(task_inputs.tensors_in(subject.other)):
        if tensors[i].is_floating_point() and torch.equal(tensors[i], replacement):
            replacement = tensors[i] + torch.rand(tensors[i].shape).to(tensors[i].dtype)
        if torch.equal(tensors[i], replacement):
            continue
        changed = task_inputs.replaced(subject.values, {i: replacement})
        if _equal(subject.outputs, _try(subject, changed)):
            yield i


def _try(subject: Subject, values: list[Any]) -> Outputs:
    try:
        return subject.run(values)
    except Exception:  # the reference refuses the input, so it reads it
        return []


def _weights(subject: Subject) -> Iterator[Note]:
    """Yields notes on parameters that can take other values without a change of any output."""
    if not isinstance(subject.model, torch.nn.Module):
        return
    unused = []
    for name, parameter in list(subject.model.named_parameters())[:MAX_WEIGHTS]:
        kept = parameter.detach().clone()
        with torch.no_grad():
            parameter.add_(1 + 0.5 * torch.rand(parameter.shape).to(parameter.dtype))
        if _equal(subject.outputs, _try(subject, subject.values)):
            unused.append(name)
        with torch.no_grad():
            parameter.copy_(kept)
    if unused:
        yield "unused-weight", f"no output depends on {', '.join(unused[:5])}"


def _equal(one: Outputs, other: Outputs) -> bool:
    """Tells whether outputs are bitwise equal, NaN equal to NaN."""
    return len(one) == len(other) and all(
        a.dtype == b.dtype and reference_runs.same_values(a, b) for a, b in zip(one, other, strict=True)
    )
