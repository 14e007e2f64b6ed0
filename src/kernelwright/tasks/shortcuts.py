"""Makes the outputs of null kernels that run the reference on less data.

They use part of an input, a sample of it, or a lower precision. Runs only where a task's own code may run; imports
torch. It compares nothing: the judge does, as with a candidate.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

import torch

from kernelwright.tasks import inputs as task_inputs
from kernelwright.tasks import reference_runs

MAX_RERUNS = 24
"""Runs of the reference on changed inputs, at most."""
WEIGHTY = 0.1
"""Least share of all floating elements from which an input is truncated; a smaller input saves little work."""
SAMPLE = 4
"""A sampled axis keeps the first of this many parts."""
LOWER: dict[torch.dtype, dict[str, torch.dtype]] = {
    torch.float64: {"fp32": torch.float32},
    torch.float32: {"fp16": torch.float16, "bf16": torch.bfloat16},
    torch.float16: {"bf16": torch.bfloat16},
}
"""Lower precisions by the task's dtype: the null's name and its dtype."""

Outputs = list[torch.Tensor]


def outputs_with_less(
    model: Any, values: list[Any], honest: Outputs, call_seed: int, only: Container[str] | None, ignored: Container[int]
) -> dict[str, Outputs]:
    """Returns every null that applies, by name; shapes and dtypes are those of `honest`.

    `only` limits it to some names (None: all). `ignored` are the numbers of input tensors on which no output depends.
    Leaves out a rerun that raises or returns other shapes.
    """
    found: dict[str, Outputs] = {}
    changes = [c for c in changed_inputs(values, ignored) if only is None or c[0] in only][:MAX_RERUNS]
    for name, changed in changes:
        outputs = _attempt(lambda given=changed: reference_runs.reference_outputs(model, given, None, call_seed))
        if _alike(outputs, honest):
            found[name] = outputs
    for name, dtype in LOWER.get(widest(model, values), {}).items():
        if only is not None and name not in only and f"{name}-inputs" not in only:
            continue
        outputs = _attempt(lambda to=dtype: reference_runs.downgraded_outputs(model, values, to, call_seed))
        if len(outputs) == len(honest) and all(a.shape == b.shape for a, b in zip(outputs, honest, strict=True)):
            found[f"{name}-inputs"] = [a.to(b.dtype) for a, b in zip(outputs, honest, strict=True)]
            stored = [a.to(dtype) if a.is_floating_point() else a for a in outputs]
            found[name] = [a.to(b.dtype) for a, b in zip(stored, honest, strict=True)]
    return found


def changed_inputs(values: list[Any], ignored: Container[int]) -> Iterator[tuple[str, list[Any]]]:
    """Yields changed inputs by the null's name; leaves out changes without effect.

    `truncated-input0-dim1`: the second half along dimension 1 of input 0 is zero. `sampled-input0-dim1`: its first
    quarter replaces the whole. `sampled-dim1-together`: the same for all inputs with that extent, as a reduction of
    pairs needs.
    """
    tensors = task_inputs.tensors_in(values)
    total = sum(t.numel() for t in tensors if t.is_floating_point())
    weighty = [
        i
        for i, t in enumerate(tensors)
        if i not in ignored and _shortened(t) and t.numel() >= max(2.0, WEIGHTY * total)
    ]
    for i in weighty:
        for dim, extent in enumerate(tensors[i].shape):
            if extent >= 2:
                yield from _changed(values, tensors, {i: _truncate(tensors[i], dim)}, f"truncated-input{i}-dim{dim}")
            if extent >= SAMPLE:
                yield from _changed(values, tensors, {i: _sample(tensors[i], dim)}, f"sampled-input{i}-dim{dim}")
    # For reductions of pairs: the first tensor's dimensions, wherever their extents occur.
    first = tensors[weighty[0]] if len(weighty) > 1 else torch.empty(())
    for dim, extent in enumerate(first.shape):
        if extent >= SAMPLE:
            together = {
                i: _sample_extent(tensors[i], extent) for i in range(len(tensors)) if extent in tensors[i].shape
            }
            yield from _changed(values, tensors, together, f"sampled-dim{dim}-together")


def _shortened(tensor: torch.Tensor) -> bool:
    """Tells whether torch has the operators that shorten a tensor: not for 8-bit floats."""
    return tensor.is_floating_point() and tensor.element_size() > 1


def _changed(
    values: list[Any], tensors: Outputs, new: dict[int, torch.Tensor], name: str
) -> Iterator[tuple[str, list[Any]]]:
    if all(torch.equal(new[i], tensors[i]) for i in new):
        return
    yield name, task_inputs.replaced(values, new)


def _truncate(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    half = tensor.shape[dim] // 2
    cut = tensor.clone()
    cut.narrow(dim, half, tensor.shape[dim] - half).zero_()
    return cut


def _sample(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    extent = tensor.shape[dim]
    return tensor.index_select(dim, torch.arange(extent) % (extent // SAMPLE))


def _sample_extent(tensor: torch.Tensor, extent: int) -> torch.Tensor:
    for dim, size in enumerate(tensor.shape):
        if size == extent:
            tensor = _sample(tensor, dim)
    return tensor


def widest(model: Any, values: Any) -> torch.dtype:
    """Returns the widest floating dtype among inputs and weights; float32 where there is none."""
    weights = list(model.parameters()) if isinstance(model, torch.nn.Module) else []
    kinds = {t.dtype for t in [*task_inputs.tensors_in(values), *weights] if t.is_floating_point()}
    return max(kinds, key=lambda d: torch.finfo(d).bits, default=torch.float32)


def _attempt(run: Any) -> Outputs:
    """Returns a run's outputs; none where the reference refuses these inputs."""
    try:
        outputs: Outputs = run()
    except Exception:
        return []
    return outputs


def _alike(outputs: Outputs, honest: Outputs) -> bool:
    return len(outputs) == len(honest) and all(
        a.shape == b.shape and a.dtype == b.dtype for a, b in zip(outputs, honest, strict=True)
    )
