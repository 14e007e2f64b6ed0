"""Makes inputs from the judge's seeds and runs the reference on them: in its own dtype, in float64, at low precision.

A task's `get_inputs` runs unchanged, but each random draw in it comes from a generator keyed by (seed, number of the
draw) and may follow another distribution. The task's own operations on its draws (A + A.T, softmax, masks, sorting)
therefore still hold. Integer and boolean draws keep their dtype and range under every distribution.

Calls a task's code, so it runs only where such code may run; imports torch. It compares nothing.
"""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from kernelwright.errors import TaskError
from kernelwright.records import Distribution
from kernelwright.tasks import draws, metric
from kernelwright.tasks.draws import Draws, OnDevice, draw_key

DISTRIBUTIONS: tuple[Distribution, ...] = ("own", "uniform", "normal", "heavy_tail", "constant_rows")
"""Distributions on which every task is judged, unless the reference cannot run on them."""
HARDENING: tuple[Distribution, ...] = ("peaked", "wide", "shifted", "near_one")
"""Distributions for tasks that a null kernel passes under all others (see `evaluation.judge.null_kernel_gate`)."""

_UNSEEN = 1 << 40
"""A draw number above those of any `get_inputs`."""

Namespace = dict[str, Any]


def home() -> str:
    """Returns the device of this process's inputs and references (`draws.home`)."""
    return draws.home


def make_inputs(namespace: Namespace, distribution: Distribution, seed: int) -> list[Any]:
    """Returns the arguments of one forward call: the result of `get_inputs` with its draws from `seed`.

    Equal arguments give bit-equal inputs. Raises `TaskError` where `get_inputs` is missing or does not return a list.
    """
    return _inputs(namespace, Draws(distribution, seed))


def make_drawn(namespace: Namespace, distribution: Distribution, seed: int) -> tuple[list[Any], list[bool]]:
    """Returns `make_inputs`, and for each tensor in it whether it is the unchanged result of one draw."""
    source = Draws(distribution, seed)
    values = _inputs(namespace, source)
    return values, source.plain


def _inputs(namespace: Namespace, source: Draws) -> list[Any]:
    get_inputs = namespace.get("get_inputs")
    if not callable(get_inputs):
        raise TaskError("the reference defines no get_inputs", hint="add get_inputs() that returns a list of arguments")
    random.seed(source.seed)
    np.random.seed(source.seed % (1 << 32))
    draws.seed_all(draw_key(source.seed, _UNSEEN))  # for draws within operators, as torch.nn.init's
    with torch.no_grad(), OnDevice(home()), source:
        values = get_inputs()
    if not isinstance(values, (list, tuple)):
        raise TaskError(
            f"get_inputs returns a {type(values).__name__}, not a list",
            hint="return the arguments of forward in a list",
        )
    source.plain = [source.drew(t) for t in tensors_in(values)]
    return [map_tensors(v, torch.Tensor.detach) for v in values]


def construct(namespace: Namespace, seed: int) -> Any:
    """Returns the task's `Model` on the CPU, its own weights from `seed`. Raises `TaskError` without a `Model`."""
    if not callable(namespace.get("Model")):
        raise TaskError("the reference defines no Model", hint="name the reference's nn.Module class Model")
    draws.seed_all(seed)
    with OnDevice("cpu"):
        init = init_arguments(namespace)
        draws.seed_all(seed)
        return namespace["Model"](**init) if isinstance(init, dict) else namespace["Model"](*init)


def init_arguments(namespace: Namespace) -> Any:
    """Returns the list, or dict of keyword arguments, of `get_init_inputs`; an empty list where it is missing."""
    get = namespace.get("get_init_inputs")
    init = get() if callable(get) else []
    if init is None:
        return []
    if not isinstance(init, (list, tuple, dict)):
        raise TaskError(
            f"get_init_inputs returns a {type(init).__name__}, not a list", hint="return the constructor's arguments"
        )
    return init


def map_tensors(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """Returns the same nest of lists, tuples and dicts with every tensor replaced."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(v, change) for v in value))
    if isinstance(value, (list, tuple)):
        return type(value)(map_tensors(v, change) for v in value)
    if isinstance(value, dict):
        return {k: map_tensors(v, change) for k, v in value.items()}
    return value


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Returns the tensors of a nest, in order."""
    found: list[torch.Tensor] = []
    map_tensors(value, found.append)
    return found


def replaced(value: Any, new: dict[int, torch.Tensor]) -> Any:
    """Returns the same nest with some tensors, by their number in `tensors_in`, replaced by others."""
    numbers = itertools.count()

    def swap(tensor: torch.Tensor) -> torch.Tensor:
        return new.get(next(numbers), tensor)

    return map_tensors(value, swap)


def to_float64(value: Any) -> Any:
    """Returns a copy of a nest with floating tensors in float64; integers and booleans keep their dtype."""
    return map_tensors(value, lambda t: _wide(t.detach()).clone())


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_floating_point():
        return tensor.to(torch.float64)
    return tensor.to(torch.complex128) if tensor.is_complex() else tensor


def randomise_weights(model: Any, seed: int) -> dict[str, torch.Tensor]:
    """Gives parameters and running statistics fresh values of about their own size; returns a copy of the state.

    A layer that starts as zeros or ones gets other values, so that a candidate cannot skip it. Positive values that
    are not constant stay positive. Other buffers (masks, position tables) belong to the computation and are kept.
    """
    if not isinstance(model, torch.nn.Module):
        return {}
    generator = torch.Generator().manual_seed(draw_key(seed, 0))
    with torch.no_grad():
        for _name, parameter in model.named_parameters():
            if parameter.is_floating_point() and parameter.numel():
                parameter.copy_(_like(parameter, generator))
        for name, buffer in model.named_buffers():
            leaf = name.rsplit(".", 1)[-1]
            if buffer.is_floating_point() and leaf == "running_var":
                buffer.copy_(0.5 + torch.rand(buffer.shape, generator=generator))
            elif buffer.is_floating_point() and leaf == "running_mean":
                buffer.copy_(0.3 * torch.randn(buffer.shape, generator=generator))
    return {k: v.detach().clone() for k, v in model.state_dict().items() if isinstance(v, torch.Tensor)}


def _like(parameter: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Returns new values around a parameter's own scale."""
    old = parameter.detach().to(torch.float32)
    low, high = float(old.min()), float(old.max())
    noise = torch.rand(old.shape, generator=generator)
    if not (np.isfinite(low) and np.isfinite(high)):
        return old
    if low == high:
        if low == 0:
            return 0.2 * (2 * noise - 1)
        return low * (0.5 + noise)
    if low > 0:
        return low + (high - low) * noise
    # Uniform with the same mean and deviation, so that no value is far from the author's range.
    deviation, mean = float(old.std(correction=0)), float(old.mean())
    return mean + deviation * 3**0.5 * (2 * noise - 1)


class _Widen(TorchFunctionMode):
    """Runs a reference in float64 even where its forward names narrower dtypes."""

    NARROW = (torch.float32, torch.float16, torch.bfloat16)
    CASTS = (torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in self.CASTS:
            return args[0].to(torch.float64)
        if any(a in self.NARROW for a in args if isinstance(a, torch.dtype)):
            args = tuple(torch.float64 if isinstance(a, torch.dtype) and a in self.NARROW else a for a in args)
        if kwargs.get("dtype") in self.NARROW:
            kwargs["dtype"] = torch.float64
        return func(*args, **kwargs)


@contextmanager
def _float64_default() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Widen():
            yield
    finally:
        torch.set_default_dtype(before)


def reference_outputs(
    model: Any, inputs: Sequence[Any], dtype: torch.dtype | None = None, call_seed: int = 0
) -> list[torch.Tensor]:
    """Returns the reference's outputs as a flat list of tensors; does not change model or inputs.

    `dtype` is None for the dtype that the task declares, or `torch.float64`. Python numbers come back as tensors.
    """
    return run_reference(model, inputs, dtype, call_seed)[0]


def run_reference(
    model: Any, inputs: Sequence[Any], dtype: torch.dtype | None = None, call_seed: int = 0
) -> tuple[list[torch.Tensor], list[list[int]]]:
    """Returns `reference_outputs`, and an [output, input] pair for each output that shares an input's memory."""
    wide = dtype is torch.float64
    twin = _twin(model, _wide if wide else None)
    values = to_float64(list(inputs)) if wide else map_tensors(list(inputs), torch.Tensor.clone)
    draws.seed_all(call_seed)
    with torch.no_grad(), OnDevice(home()), _float64_default() if wide else nullcontext():
        outputs = flatten_outputs(twin(*values))
    return outputs, _handed(outputs, tensors_in(values))


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
        return [value.detach().as_subclass(torch.Tensor)]
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
    return [worst(a, b) if _is_inexact(b) and a.shape == b.shape else None for a, b in zip(low, exact, strict=True)]


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


def _run_changed(
    model: Any, inputs: Sequence[Any], change: Callable[[torch.Tensor], torch.Tensor], call_seed: int
) -> list[torch.Tensor]:
    """Returns float64 outputs on changed inputs and weights."""
    twin = _twin(model, lambda t: _wide(change(t)))
    values = to_float64(map_tensors(list(inputs), change))
    draws.seed_all(call_seed)
    with torch.no_grad(), OnDevice(home()), _float64_default():
        return flatten_outputs(twin(*values))


def _restore(model: Any, state: dict[str, torch.Tensor]) -> None:
    if isinstance(model, torch.nn.Module) and state:
        model.load_state_dict(state)


def _is_inexact(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def usable_distributions(
    namespace: Namespace, seed: int, among: Sequence[Distribution] = DISTRIBUTIONS[1:]
) -> list[Distribution]:
    """Returns the usable distributions, `own` first (see `examine_distributions`)."""
    return [d for d, reason in examine_distributions(namespace, seed, among).items() if not reason]


def examine_distributions(
    namespace: Namespace, seed: int, among: Sequence[Distribution] = DISTRIBUTIONS[1:]
) -> dict[Distribution, str]:
    """Returns each distribution with the reason why this task cannot use it; an empty text where it can.

    A distribution is unusable where the reference raises or is not finite, where probabilities among the inputs
    (non-negative rows that sum to 1) turn negative, and where integer outputs depend on ties.
    """
    model = construct(namespace, seed)
    own = Draws("own", seed)
    values = _inputs(namespace, own)
    baseline = reference_outputs(model, values, call_seed=seed)
    probabilities = [_is_probability(t) for t in tensors_in(values)]
    verdicts: dict[Distribution, str] = {"own": ""}
    for distribution in among:
        if not own.floats:
            verdicts[distribution] = "the task draws no floating values of its own"
        else:
            verdicts[distribution] = _examine(namespace, model, distribution, seed, baseline, probabilities)
    return verdicts


def _examine(
    namespace: Namespace,
    model: Any,
    distribution: Distribution,
    seed: int,
    baseline: list[torch.Tensor],
    probabilities: list[bool],
) -> str:
    try:
        values = make_inputs(namespace, distribution, seed)
        tensors = tensors_in(values)
        for i, (tensor, bounded) in enumerate(zip(tensors, probabilities, strict=True)):
            if bounded and bool((tensor < 0).any()):
                return f"input {i} holds probabilities and would be negative"
        if not all(bool(t.isfinite().all()) for t in tensors if _is_inexact(t)):
            return "the inputs would not be finite"
        outputs = reference_outputs(model, values, call_seed=seed)
        for out, base in zip(outputs, baseline, strict=True):
            if out.shape != base.shape:
                return "the outputs would be of another shape"
            if _is_inexact(base) and bool(base.isfinite().all()) and not bool(out.isfinite().all()):
                return "the reference would not be finite"
        if not all(_is_inexact(t) for t in outputs) and _has_ties(model, values, seed):
            return "integer outputs would hang on ties"
    except Exception as error:
        return f"the reference would raise {type(error).__name__}"
    return ""


def _is_probability(tensor: torch.Tensor) -> bool:
    if not tensor.is_floating_point() or not tensor.dim() or not tensor.numel():
        return False
    return bool((tensor >= 0).all()) and bool(((tensor.double().sum(-1) - 1).abs() < 1e-2).all())


def _has_ties(model: Any, values: list[Any], seed: int) -> bool:
    """Tells whether integer outputs change when inputs move by half an ulp."""
    exact = reference_outputs(model, values, torch.float64, call_seed=seed)
    moved = _run_changed(model, values, _nudge, seed)
    return any(not torch.equal(a, b) for a, b in zip(exact, moved, strict=True) if not _is_inexact(a))
