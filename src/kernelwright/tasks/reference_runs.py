"""Runs a reference on inputs: in its own dtype, in float64, at low precision, and on inputs moved by noise.

A run's outputs are what the reference returns, and then the inputs that it changes. Calls a task's code, so it runs
only where such code may run; imports torch. It compares nothing.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kernelwright.errors import TaskError
from kernelwright.tasks import draws, metric, storages
from kernelwright.tasks.draws import OnDevice, draw_key
from kernelwright.tasks.inputs import home, map_tensors, refuse_other_kinds, replaced_all, resolved, tensors_in


def to_float64(value: Any) -> Any:
    """Returns a copy of a nest with floating tensors in float64; integers, booleans and 8-bit floats keep their
    dtype. Layouts and shared memory stay."""
    return _copied_with(value, _wide)


def _copied_with(value: Any, change: Callable[[torch.Tensor], torch.Tensor] | None = None) -> Any:
    return replaced_all(value, storages.copies(tensors_in(value), change))


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_floating_point() and tensor.element_size() > 1:
        return tensor.to(torch.float64)
    return tensor.to(torch.complex128) if tensor.is_complex() else tensor


class _Widen(TorchFunctionMode):
    """Runs a reference in float64 even where its forward names narrower dtypes. Casts to 8-bit floats stay, since a
    format of three bits is part of what is computed; the values before the cast are kept."""

    NARROW = (torch.float32, torch.float16, torch.bfloat16)
    CASTS = (torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16)

    def __init__(self) -> None:
        super().__init__()
        self.sources: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        """Results of casts to 8-bit floats, and what was cast, by the results' storages."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in self.CASTS:
            return args[0].to(torch.float64)
        if any(a in self.NARROW for a in args if isinstance(a, torch.dtype)):
            args = tuple(torch.float64 if isinstance(a, torch.dtype) and a in self.NARROW else a for a in args)
        if kwargs.get("dtype") in self.NARROW:
            kwargs["dtype"] = torch.float64
        made = func(*args, **kwargs)
        if func is torch.Tensor.to and made.dtype in EIGHT_BITS and args[0].dtype not in EIGHT_BITS:
            self.sources[made.untyped_storage()._cdata] = made, args[0]
        return made

    def unrounded(self, output: torch.Tensor) -> torch.Tensor:
        """Returns an output in 8-bit floats in float64: as it was before the cast, if that made it."""
        if output.dtype not in EIGHT_BITS:
            return output
        made, source = self.sources.get(output.untyped_storage()._cdata, (None, None))
        if made is None or source is None or made.numel() != output.numel() or not output.is_contiguous():
            return output.to(torch.float64)
        return source.to(torch.float64).reshape(output.shape)


@contextmanager
def _float64_default() -> Iterator[_Widen]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Widen() as mode:
            yield mode
    finally:
        torch.set_default_dtype(before)


def reference_outputs(
    model: Any, inputs: Sequence[Any], dtype: torch.dtype | None = None, call_seed: int = 0
) -> list[torch.Tensor]:
    """Returns a run's outputs as a flat list of tensors; does not change model or inputs.

    `dtype` is None for the dtype that the task declares, or `torch.float64`. Python numbers come back as tensors.
    """
    return run_reference(model, inputs, dtype, call_seed).outputs


@dataclass(frozen=True)
class ReferenceResult:
    """The outputs of a run: what the reference returned, then the inputs `changed`, by number, as they are after it.

    `handed` are pairs of output and input, by number, for each output that shares an input's memory.
    """

    outputs: list[torch.Tensor]
    changed: list[int]
    handed: list[list[int]]


def run_reference(
    model: Any, inputs: Sequence[Any], dtype: torch.dtype | None = None, call_seed: int = 0
) -> ReferenceResult:
    """Runs the reference on copies of its inputs, in the dtype that the task declares or in `torch.float64`."""
    wide = dtype is torch.float64
    values = to_float64(list(inputs)) if wide else _copied_with(list(inputs))
    return _called(_twin(model, _wide if wide else None), values, call_seed, wide)


def leave_state(model: Any, inputs: Sequence[Any], call_seed: int) -> None:
    """Calls a reference on copies of its inputs, so that later runs find what the call has changed in the model."""
    _called(model, _copied_with(list(inputs)), call_seed, wide=False)


def optional_changes(model: Any, inputs: Sequence[Any], changed: Sequence[int], call_seed: int = 0) -> list[int]:
    """Returns those of the `changed` inputs that the reference changes only by the option `inplace=True` of one of
    torch's functions, which saves memory and means nothing to the caller."""
    if not changed:
        return []
    with _OutOfPlace():
        again = _called(_twin(model, None), _copied_with(list(inputs)), call_seed, wide=False)
    return [i for i in changed if i not in again.changed]


class _OutOfPlace(TorchFunctionMode):
    """Ignores the option `inplace=True` of torch's functions."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("inplace") is True:
            kwargs["inplace"] = False
        return func(*args, **kwargs)


def _called(model: Any, values: list[Any], call_seed: int, wide: bool) -> ReferenceResult:
    """Calls a model that may be changed, on values that may be changed."""
    draws.seed_all(call_seed)
    with torch.no_grad(), OnDevice(home()), _float64_default() if wide else nullcontext() as mode:
        run = outputs_of(model, values)
    return run if mode is None else replace(run, outputs=[mode.unrounded(t) for t in run.outputs])


def outputs_of(model: Any, values: Sequence[Any]) -> ReferenceResult:
    """Calls a model on values that it may change; raises what it raises."""
    given = tensors_in(values)
    before = [t._version for t in given]
    outputs = flatten_outputs(model(*values))
    changed = [i for i, (t, version) in enumerate(zip(given, before, strict=True)) if t._version != version]
    return ReferenceResult([*outputs, *(given[i] for i in changed)], changed, _handed(outputs, given))


def _handed(outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> list[list[int]]:
    places = [t.untyped_storage().data_ptr() for t in inputs]
    made = [t.untyped_storage().data_ptr() for t in outputs]
    return [[k, i] for k, a in enumerate(made) for i, b in enumerate(places) if a and a == b]


def _twin(model: Any, change: Callable[[torch.Tensor], torch.Tensor] | None) -> Any:
    """Returns a copy of a model, optionally with changed floating tensors (weights, buffers, attributes)."""
    twin = copy.deepcopy(model)
    if change is None or not isinstance(twin, torch.nn.Module):
        return twin
    if any(p.requires_grad for p in twin.parameters()):
        twin.requires_grad_(False)
    # Shared tensors stay shared. The original is kept beside its twin, so that its id is not reused.
    seen: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def once(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in seen:
            seen[id(tensor)] = (tensor, change(tensor))
        return seen[id(tensor)][1]

    for parameter in twin.parameters():
        parameter.data = change(parameter.data)
    for module in twin.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = once(buffer)
        for name, value in list(vars(module).items()):
            if not name.startswith("_") and tensors_in(value):
                vars(module)[name] = map_tensors(value, once)
    return twin


def copied(model: Any) -> Any:
    """Returns a copy of a model; calls of it do not change the original."""
    return _twin(model, None)


def flatten_outputs(value: Any) -> list[torch.Tensor]:
    """Returns a forward's result as a flat list of plain tensors, dicts in their order, without None.

    Raises `TaskError` for a result with anything but tensors and numbers.
    """
    if value is None:
        return []
    if isinstance(value, torch.Tensor):
        refuse_other_kinds(value, "an output")
        return [resolved(value).as_subclass(torch.Tensor)]
    if isinstance(value, (bool, int, float)):
        return [torch.tensor(value)]
    if isinstance(value, dict):
        return [t for v in value.values() for t in flatten_outputs(v)]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in flatten_outputs(v)]
    raise TaskError(
        f"the reference returns a {type(value).__name__}", hint="return tensors, or lists, tuples or dicts of them"
    )


def structure(value: Any) -> str:
    """Returns a result's structure as text, e.g. `(tensor, [tensor, tensor])`, ordered as `flatten_outputs`."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {structure(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(structure(v) for v in value) + "]"
    if isinstance(value, tuple):
        return "(" + ", ".join(structure(v) for v in value) + ")"
    return "tensor" if isinstance(value, torch.Tensor) else type(value).__name__


_SIGNIFICANT = {torch.float64: 24, torch.float32: 11, torch.bfloat16: 5, torch.float16: 4}
"""Significant bits of the next lower precision: float32 below float64, TF32 and float16 below float32, fp8 below the
16-bit dtypes."""
_UNIT_ROUNDOFF = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.bfloat16: 2.0**-9, torch.float16: 2.0**-12}


_NOISE = {torch.float64: 2.0**-48, torch.float32: 2.0**-19, torch.bfloat16: 2.0**-10, torch.float16: 2.0**-13}
"""Relative noise of nearby inputs, per dtype. For float32 it is about the backward error of a sequential sum of some
thousand terms. At every dtype it is far below the rounding of the next lower precision."""

_PARTING = 2.0**-40
"""The noise that parts equal values, relative to the size of their tensor: above the rounding of float64, and far below
the differences of values that are not equal."""


def round_significant(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the values rounded to the significant bits of the precision below the tensor's dtype; same dtype."""
    bits = _SIGNIFICANT.get(tensor.dtype)
    if bits is None:
        return tensor
    mantissa, exponent = torch.frexp(tensor.to(torch.float64))
    return torch.ldexp(torch.round(mantissa * 2.0**bits) / 2.0**bits, exponent).to(tensor.dtype)


def low_precision_error(
    model: Any,
    state: dict[str, torch.Tensor],
    inputs: Sequence[Any],
    exact: Sequence[torch.Tensor],
    call_seed: int = 0,
    worst: Callable[[torch.Tensor, torch.Tensor], float] | None = None,
) -> list[float | None]:
    """Returns, per output, the reference's error on inputs and weights rounded to the next lower precision.

    `exact` is `reference_outputs(..., torch.float64)`; the measure is `metric.worst`. None for integer outputs. Only
    inputs and weights are rounded and arithmetic stays float64, so no kernel of that lower precision is more accurate.
    """
    _restore(model, state)
    worst = worst or (lambda a, b: metric.worst(a.numpy(), b.numpy()))
    low = _run_changed(model, inputs, round_significant, call_seed)
    return [worst(a, b) if is_inexact(b) and a.shape == b.shape else None for a, b in zip(low, exact, strict=True)]


def downgraded_outputs(model: Any, inputs: Sequence[Any], dtype: torch.dtype, call_seed: int = 0) -> list[torch.Tensor]:
    """Returns float64 outputs on inputs and weights rounded to a lower precision; outputs are not rounded.

    No kernel with operands of that precision and wide accumulators is more accurate.
    """
    return _run_changed(model, inputs, lambda t: t.to(dtype).to(t.dtype) if t.is_floating_point() else t, call_seed)


def widen_honest(
    model: Any,
    state: dict[str, torch.Tensor],
    inputs: Sequence[Any],
    exact: Sequence[torch.Tensor],
    honest: Sequence[torch.Tensor],
    call_seed: int = 0,
) -> list[torch.Tensor]:
    """Returns `honest` with elements of a run on inputs moved by half an ulp, where these have the larger error.

    The reference in its own dtype may have a small error where another honest order of operations has a large one (a
    sum that cancels). Another order costs at least half an ulp on every input. Dtypes and integer outputs stay, and so
    do inputs such as masks (`_moved`), since a run with changed masks would excuse any error.
    """
    _restore(model, state)
    moved = _run_changed(model, inputs, lambda t: _moved(t, _nudge), call_seed)
    result = []
    for near, far, ref in zip(honest, moved, exact, strict=True):
        if not near.is_floating_point() or not ref.is_floating_point() or near.shape != far.shape:
            result.append(near)
            continue
        wide = near.to(torch.float64)
        farther = (far - ref).abs() > (wide - ref).abs()
        result.append(torch.where(farther & far.isfinite(), far, wide).to(near.dtype))
    return result


def _nudge(tensor: torch.Tensor) -> torch.Tensor:
    """Returns float64 values moved by one unit round-off of the tensor's dtype, two in three up, the others down.

    Most move in one direction, so that the errors of a long sum add up as in its worst order and do not average out.
    The ones that move down are drawn, so that equal values become distinct in any arrangement.
    """
    if tensor.dtype not in _UNIT_ROUNDOFF:
        return tensor
    return tensor + _UNIT_ROUNDOFF[tensor.dtype] * _directions(tensor, tensor.numel())


def _directions(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    """Returns float64 values of a tensor's own size, two in three positive."""
    wide = tensor.to(torch.float64)
    generator = torch.Generator(wide.device).manual_seed(seed)
    up = torch.rand(wide.shape, generator=generator, device=wide.device) < 2 / 3
    return wide.abs() * torch.where(up, 1.0, -1.0)


_BITS = {
    torch.float64: (torch.int64, 53),
    torch.float32: (torch.int32, 24),
    torch.bfloat16: (torch.int16, 8),
    torch.float16: (torch.int16, 11),
}
"""Per dtype: the integer dtype of its width, and its significant bits."""


def _moved(tensor: torch.Tensor, move: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Returns a floating tensor moved, in float64, except values that the next lower precision holds exactly.

    Zeros, masks, small integers and halves are not measurements; code that compares them means the exact value.
    """
    if tensor.dtype not in _BITS:
        return tensor
    integer, bits = _BITS[tensor.dtype]
    symbols = tensor.view(integer) & ((1 << (bits - _SIGNIFICANT[tensor.dtype])) - 1) == 0
    return torch.where(symbols, tensor.to(torch.float64), move(tensor))


def _drawn_in_rows(tensor: torch.Tensor) -> bool:
    """Tells whether each row holds one nonzero value, with more than two values over all rows."""
    if tensor.dtype not in _BITS or tensor.dim() < 2 or tensor.shape[-1] < 2 or not tensor.numel():
        return False
    first = tensor[..., :1]
    return bool((tensor == first).all()) and bool((first != 0).all()) and first.unique().numel() > 2


def nearby_outputs(
    model: Any, state: dict[str, torch.Tensor], inputs: Sequence[Any], call_seed: int, noise_seed: int, sign: int
) -> list[torch.Tensor] | None:
    """Returns float64 outputs on inputs and weights moved by relative noise of `_NOISE`, times `sign` (1 or -1).

    Two in three values move in one direction, as in `_nudge`. Masks stay (`_moved`), but the judge's constant rows move
    although every precision holds their values exactly. Returns None where the reference fails on these inputs.
    """
    _restore(model, state)
    number = itertools.count()

    def move(tensor: torch.Tensor) -> torch.Tensor:
        key = draw_key(noise_seed, next(number))
        return tensor + sign * _NOISE[tensor.dtype] * _directions(tensor, key)

    try:
        return _run_changed(model, inputs, lambda t: move(t) if _drawn_in_rows(t) else _moved(t, move), call_seed)
    except Exception:  # a reference may check its inputs and raise anything; also out of memory
        return None


def nudged_outputs(model: Any, inputs: Sequence[Any], call_seed: int) -> list[torch.Tensor]:
    """Returns float64 outputs on inputs and weights moved by one unit round-off of their dtype (`_nudge`)."""
    return _run_changed(model, inputs, _nudge, call_seed)


def parted_outputs(model: Any, inputs: Sequence[Any], call_seed: int) -> list[torch.Tensor]:
    """Returns float64 outputs on inputs and weights moved by `_PARTING` of their tensor's size, so that equal values,
    zeros included, become different ones."""

    def part(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dtype not in _BITS:
            return tensor
        wide = tensor.to(torch.float64)
        generator = torch.Generator(wide.device).manual_seed(tensor.numel())
        noise = torch.randn(wide.shape, generator=generator, dtype=torch.float64, device=wide.device)
        size = wide.nan_to_num(0.0, 0.0, 0.0).square().mean().sqrt()
        return wide + _PARTING * torch.where(size > 0, size, 1.0) * noise

    return _run_changed(model, inputs, part, call_seed)


def _run_changed(
    model: Any, inputs: Sequence[Any], change: Callable[[torch.Tensor], torch.Tensor], call_seed: int
) -> list[torch.Tensor]:
    """Returns float64 outputs on changed inputs and weights."""

    def wide(tensor: torch.Tensor) -> torch.Tensor:
        return _wide(change(tensor))

    return _called(_twin(model, wide), _copied_with(list(inputs), wide), call_seed, wide=True).outputs


def _restore(model: Any, state: dict[str, torch.Tensor]) -> None:
    if isinstance(model, torch.nn.Module) and state:
        model.load_state_dict(state)


def finite(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the mask of finite values."""
    return (tensor.to(torch.float32) if tensor.dtype in EIGHT_BITS else tensor).isfinite()


def same_values(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Tells whether tensors of one dtype hold equal values, NaN equal to NaN."""
    if a.dtype in EIGHT_BITS:
        a, b = a.to(torch.float32), b.to(torch.float32)
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


EIGHT_BITS = frozenset((torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz))
"""Floating-point dtypes on which torch has hardly any operators."""


def is_inexact(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()
