"""Torch modes for a task's own code: all tensors on one device, random draws from the judge's seeds.

Does not call the task; `tasks.inputs` and `tasks.probe` do. Changes no global state but torch's seeds.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

from kernelwright.records import Distribution
from kernelwright.tasks import structured

Number = float | torch.Tensor

_UNIT = {"rand", "rand_like"}
_NORMAL = {"randn", "randn_like", "normal", "normal_"}
_RANDOM = {
    *_UNIT,
    *_NORMAL,
    *("uniform_", "randint", "randint_like", "randperm", "bernoulli", "bernoulli_", "multinomial", "poisson"),
    *("random_", "exponential_", "cauchy_", "geometric_", "log_normal_", "binomial"),
}
_BOUNDED = {"randint", "randint_like"}
_STRUCTURED = {
    "far_below": structured.far_below,
    "far_above": structured.far_above,
    "tied_rows": structured.tied_rows,
    "scaled_rows": structured.scaled_rows,
}
STRUCTURED_INTEGERS = ("far_below", "tied_rows")
"""The distributions under which integers have structure, too."""
home = "cpu"
"""The device of inputs and references; a child process that works on a GPU sets it once."""

_HEAVY_LIMIT = 60.0
_OUTLIER = 200.0


class OnDevice(TorchFunctionMode):
    """Puts every tensor on one device, whatever device the task names: `cpu`, or `meta` for shapes without memory."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = torch.device(device)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in (torch.Tensor.cuda, torch.Tensor.cpu):
            return args[0]
        if func is torch.Tensor.to:
            rest = [a for a in args[1:] if not isinstance(a, torch.device) and not _names_device(a)]
            kwargs.pop("device", None)
            return func(args[0], *rest, **kwargs) if rest or kwargs else args[0]
        if func in _device_constructors() or kwargs.get("device") is not None:
            kwargs["device"] = self.device
            kwargs.pop("pin_memory", None)
            if self.device.type == "meta":
                kwargs.pop("generator", None)
        return func(*args, **kwargs)


def _names_device(value: Any) -> bool:
    return isinstance(value, str) and value.split(":")[0] in ("cuda", "cpu")


class Draws(TorchFunctionMode):
    """Replaces the random draws of a task's `get_inputs`."""

    def __init__(self, distribution: Distribution, seed: int) -> None:
        super().__init__()
        self.distribution = distribution
        self.seed = seed
        self.calls = 0
        self.floats = 0
        """Number of floating draws that another distribution replaces, or would replace."""
        self.integers = 0
        """Number of draws of bounded integers that a structured distribution replaces, or would replace."""
        self.plain: list[bool] = []
        """For each tensor of the inputs, whether `drew` holds; set by who calls the task."""
        self._made: list[tuple[weakref.ref[torch.Tensor], int]] = []

    def drew(self, tensor: torch.Tensor) -> bool:
        """Tells whether a tensor is the result of one draw, and unchanged since: its values have no order."""
        return any(made() is tensor and tensor._version == version for made, version in self._made)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if name not in _RANDOM:
            return func(*args, **kwargs)
        key, call = draw_key(self.seed, self.calls), self.calls
        self.calls += 1
        kwargs.pop("generator", None)
        seed_all(key)
        out = func(*args, **kwargs)
        if not isinstance(out, torch.Tensor):
            return out
        if name not in ("randperm", "multinomial"):  # their values are distinct
            self._made.append((weakref.ref(out), out._version))
        if name in _BOUNDED:
            return self._structured(out, _bounds(name, args, kwargs), key, call)
        law = _law(name, args[1:] if name.endswith("_") else args, kwargs)
        if law is None or not out.is_floating_point():
            return out
        self.floats += 1
        if self.distribution != "own" and out.device.type != "meta":
            generator = torch.Generator(out.device).manual_seed(key)
            with torch.no_grad():
                out.copy_(_draw(self.distribution, out.shape, generator, *law, call=call))
            self._made[-1] = (weakref.ref(out), out._version)
        return out

    def _structured(self, own: Any, bounds: tuple[int, int] | None, key: int, call: int) -> Any:
        """Returns bounded integers, with structure under a structured distribution."""
        if bounds is None or not isinstance(own, torch.Tensor) or own.numel() < 2 or own.is_floating_point():
            return own
        self.integers += 1
        if self.distribution not in STRUCTURED_INTEGERS or own.device.type == "meta":
            return own
        generator = torch.Generator(own.device).manual_seed(key)
        alike = self.distribution == "far_below"
        with torch.no_grad():
            own.copy_(structured.integers(own.clone(), *bounds, generator, call, alike))
        self._made[-1] = (weakref.ref(own), own._version)
        return own


def seed_all(seed: int) -> None:
    """Seeds the devices in use; `torch.manual_seed` formats a traceback for each device that is not."""
    torch.random.default_generator.manual_seed(seed)
    if home == "cuda":
        torch.cuda.manual_seed_all(seed)


def draw_key(seed: int, call: int) -> int:
    """Returns a seed for one draw: equal (seed, call) give equal draws, other pairs independent ones."""
    return int(np.random.SeedSequence([seed % (1 << 64), call]).generate_state(1, np.uint64)[0] >> 1)


def _bounds(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[int, int] | None:
    """Returns the least and the largest integer of a draw; None where they are not plain numbers."""
    given = [a for a in (args[1:] if name == "randint_like" else args) if isinstance(a, int)][:2]
    if "high" in kwargs:
        given = [*given, kwargs["high"]]
    if "low" in kwargs:
        given = [kwargs["low"], *given]
    if not given or not all(isinstance(n, int) for n in given):
        return None
    return (given[0] if len(given) > 1 else 0), given[-1] - 1


def _law(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[bool, Number, Number] | None:
    """Returns (draws non-negative values, centre, size) of a floating draw; None for a draw to keep."""
    if name in _UNIT:
        return True, 0.0, 1.0
    if name == "uniform_":
        low = float(args[0] if args else kwargs.get("from", 0.0))
        high = float(args[1] if len(args) > 1 else kwargs.get("to", 1.0))
        if low >= 0:
            return True, low, high - low
        return False, (low + high) / 2 if low + high > abs(high) else 0.0, max(abs(low), abs(high))
    if name in ("normal", "normal_"):
        mean = args[0] if args else kwargs.get("mean", 0.0)
        std = args[1] if len(args) > 1 else kwargs.get("std", 1.0)
        return False, mean, std
    return (False, 0.0, 1.0) if name in _NORMAL else None


def _draw(
    kind: Distribution,
    shape: torch.Size,
    generator: torch.Generator,
    unit: bool,
    centre: Number,
    size: Number,
    call: int,
) -> torch.Tensor:
    """Returns float32 values of one distribution.

    `unit`: the task's own values are uniform from `centre` to `centre + size`.
    """
    if kind in _STRUCTURED:
        values = _STRUCTURED[kind](shape, generator, call)
    elif kind == "uniform":
        values = torch.rand(shape, generator=generator, device=generator.device)
        values = values if unit else 2 * values - 1
    elif kind == "normal":
        values = torch.randn(shape, generator=generator, device=generator.device)
    elif kind == "heavy_tail":
        values = _heavy_tail(shape, generator)
    elif kind == "peaked":
        values = _peaked(shape, generator)
    elif kind == "wide":
        # A row's scale is between 1/16 and 16, so that no one constant fits all rows.
        values = _normal(shape, generator) * torch.exp2(8 * _of_rows(shape, generator) - 4)
    elif kind == "shifted":
        values = _normal(shape, generator) + 8 * _of_rows(shape, generator) - 4
    elif kind == "near_one":
        # Long products of these values neither vanish nor overflow.
        values = _signs(shape, generator) * torch.exp2((_uniform(shape, generator) - 0.5) / 2)
    else:
        values = _constant_rows(shape, generator, unit)
    return values * size + centre


def _normal(shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=generator, device=generator.device)


def _uniform(shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    return torch.rand(shape, generator=generator, device=generator.device)


def _signs(shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    """Returns random values of plus and minus one."""
    return 2.0 * torch.randint(0, 2, shape, generator=generator, device=generator.device) - 1.0


def _of_rows(shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    """Returns one uniform value per row (last dimension), or per element of a vector."""
    return _uniform((*shape[:-1], 1) if len(shape) > 1 else shape, generator)


def _peaked(shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    """Returns small noise with one large value of either sign per row, which averages and samples miss."""
    values = 0.1 * _normal(shape, generator)
    if not values.dim() or not values.numel():
        return values
    rows = values.view(-1, shape[-1])
    place = torch.randint(0, shape[-1], (len(rows), 1), generator=generator, device=generator.device)
    rows.scatter_(1, place, _signs(place.shape, generator) * (4 + 8 * _uniform(place.shape, generator)))
    return values


def _heavy_tail(shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    """Returns bounded Student's t values (two degrees of freedom) with one outlier in about 4096, one near the end.

    At every seed the first outlier is positive and overflows an exponential in float32.
    """
    normal = torch.randn(shape, generator=generator, device=generator.device)
    chi = torch.empty(shape, device=generator.device).exponential_(generator=generator)
    values = normal / chi.sqrt().clamp_min(1e-6)
    # Squeezed, since clipping would make ties.
    values = values / (1 + values.abs() / _HEAVY_LIMIT)
    flat = values.view(-1)
    count = flat.numel()
    if count >= 16:
        far = 2 + count // 4096
        where = torch.randint(0, count, (far,), generator=generator, device=generator.device)
        back = torch.randint(0, max(1, count // 64), (1,), generator=generator, device=generator.device)
        where[-1] = count - 1 - int(back)
        if where.is_cuda:  # a GPU writes twice to one place in any order
            where = where.unique()
            far = where.numel()
        sizes = 0.25 + 0.75 * torch.rand(far, generator=generator, device=generator.device)
        flat[where] = torch.sign(flat[where]) * _OUTLIER * sizes
        flat[where[0]] = _OUTLIER * (0.75 + sizes[0] / 4)
    return values


def _constant_rows(shape: torch.Size, generator: torch.Generator, unit: bool) -> torch.Tensor:
    """Returns one value per row (last dimension), a multiple of 1/4 (1/8 for `unit`) and not small.

    These values are exact in every floating dtype, and so are sums of many thousands of them or of their squares. An
    honest mean of a constant row is therefore that constant and its variance zero, in any order of operations.
    """
    rows = shape[:-1]
    if unit:
        values = torch.randint(1, 8, rows, generator=generator, device=generator.device).to(torch.float32) / 8
    else:
        sign = 2 * torch.randint(0, 2, rows, generator=generator, device=generator.device) - 1
        values = sign * torch.randint(1, 9, rows, generator=generator, device=generator.device).to(torch.float32) / 4
    return values.unsqueeze(-1).expand(shape) if len(shape) else values
