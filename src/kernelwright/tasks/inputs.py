"""Makes a task's model and its inputs from the judge's seeds.

A task's `get_inputs` runs unchanged, but each random draw in it comes from a generator keyed by (seed, number of the
draw) and may follow another distribution. The task's own operations on its draws (A + A.T, softmax, masks, sorting)
therefore still hold. Integer and boolean draws keep their dtype and range under every distribution.

Calls a task's code, so it runs only where such code may run; imports torch. It compares nothing.
"""

from __future__ import annotations

import inspect
import itertools
import random
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from kernelwright.errors import TaskError, UnsupportedTask
from kernelwright.records import Distribution
from kernelwright.tasks import draws
from kernelwright.tasks.draws import Draws, OnDevice, draw_key

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
    return inputs_from(namespace, Draws(distribution, seed))


def make_drawn(namespace: Namespace, distribution: Distribution, seed: int) -> tuple[list[Any], list[bool]]:
    """Returns `make_inputs`, and for each tensor in it whether it is the unchanged result of one draw."""
    source = Draws(distribution, seed)
    values = inputs_from(namespace, source)
    return values, source.plain


def inputs_from(namespace: Namespace, source: Draws) -> list[Any]:
    """Returns the arguments of one forward call with the draws of `source`. Raises `TaskError`."""
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
    for number, tensor in enumerate(tensors_in(values)):
        refuse_other_kinds(tensor, f"input {number}")
    source.plain = [source.drew(t) for t in tensors_in(values)]
    return [map_tensors(v, resolved) for v in values]


def resolved(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor whose memory holds its values, where torch has conjugated or negated it by a mark alone."""
    return tensor.detach().resolve_conj().resolve_neg()


_CARRIED = frozenset(
    getattr(torch, name)
    for name in (
        *("float16", "bfloat16", "float32", "float64", "complex64", "complex128", "bool"),
        *("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
        *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"),
    )
)
_LAYOUTS = {"sparse_coo": "sparse COO", "sparse_csr": "sparse CSR", "sparse_csc": "sparse CSC"}


def refuse_other_kinds(tensor: torch.Tensor, name: str) -> None:
    """Raises `UnsupportedTask` for a tensor that is not dense, or of a dtype that is not judged."""
    layout = str(tensor.layout).removeprefix("torch.")
    if tensor.is_nested:
        kind = f"a nested ({layout}) tensor"
    elif tensor.layout is not torch.strided:
        kind = f"a {_LAYOUTS.get(layout, layout.replace('_', ' '))} tensor"
    elif tensor.is_quantized:
        kind = f"a quantized tensor ({tensor.dtype})"
    elif tensor.dtype not in _CARRIED:
        kind = f"a tensor of dtype {tensor.dtype}"
    else:
        return
    raise UnsupportedTask(f"{name} is {kind}, which is not supported", hint="use dense tensors of a common dtype")


def construct(namespace: Namespace, seed: int) -> Any:
    """Returns the task's `Model` on the CPU, its own weights from `seed`. Raises `TaskError` without a `Model`."""
    if not callable(namespace.get("Model")):
        raise TaskError("the reference defines no Model", hint="name the reference's nn.Module class Model")
    draws.seed_all(seed)
    with OnDevice("cpu"):
        args, named = init_arguments(namespace)
        draws.seed_all(seed)
        return namespace["Model"](*args, **named)


def init_arguments(namespace: Namespace) -> tuple[list[Any], dict[str, Any]]:
    """Returns the constructor's positional and named arguments, from the result of `get_init_inputs`: a list, a dict of
    named arguments, or `[[positional], {named}]`. Both are empty where it is missing. Raises `TaskError` for anything
    else."""
    get = namespace.get("get_init_inputs")
    init = get() if callable(get) else []
    if isinstance(init, dict):
        return [], init
    if init is None:
        return [], {}
    if not isinstance(init, (list, tuple)):
        raise TaskError(
            f"get_init_inputs returns a {type(init).__name__}, not a list", hint="return the constructor's arguments"
        )
    if len(init) == 2 and isinstance(init[0], (list, tuple)) and isinstance(init[1], dict):
        if _both_kinds(namespace.get("Model"), list(init[0]), init[1]):
            return list(init[0]), init[1]
    return list(init), {}


def _both_kinds(model: Any, args: list[Any], named: dict[Any, Any]) -> bool:
    """Tells whether `[args, named]` are positional and named arguments rather than two positional ones: the names are
    those of parameters, or there are none and no two positional parameters."""
    try:
        signature = inspect.signature(model)
        signature.bind(*args, **named)
    except (TypeError, ValueError):
        return False
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return bool(named) or sum(p.kind in plain for p in signature.parameters.values()) < 2


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


def replaced_all(value: Any, new: Iterable[torch.Tensor]) -> Any:
    """Returns the same nest with all tensors, in order, replaced by others."""
    return replaced(value, dict(enumerate(new)))


def replaced(value: Any, new: dict[int, torch.Tensor]) -> Any:
    """Returns the same nest with some tensors, by their number in `tensors_in`, replaced by others."""
    numbers = itertools.count()

    def swap(tensor: torch.Tensor) -> torch.Tensor:
        return new.get(next(numbers), tensor)

    return map_tensors(value, swap)


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
