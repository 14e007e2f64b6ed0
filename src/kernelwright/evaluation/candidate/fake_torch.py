"""Pretends further parts of torch and Python that a candidate may use on a GPU, in a runner without one.

Profiler marks and memory reports do nothing; a default device is only remembered; generators are the CPU's; operators
registered for CUDA are the ones that compute. It does not answer where a tensor is, and does not replace `torch.cuda`'s
streams and events (`fake_cuda` does).
"""

from __future__ import annotations

import contextlib
import faulthandler
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils import _device
from torch.utils._device import DeviceContext

from kernelwright.backends.host_memory import HOST

DTYPES = {
    "FloatTensor": torch.float32,
    "DoubleTensor": torch.float64,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "ShortTensor": torch.int16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "BoolTensor": torch.bool,
}
_SILENT = (
    "reset_max_memory_allocated reset_max_memory_cached reset_accumulated_memory_stats reset_peak_host_memory_stats"
    " set_per_process_memory_fraction set_sync_debug_mode seed seed_all set_rng_state set_rng_state_all"
).split()
_ZERO = "max_memory_reserved memory_cached max_memory_cached get_sync_debug_mode utilization memory_usage".split()


@cache
def libraries() -> frozenset[str]:
    """Returns the operator namespaces from before the candidate was loaded (the zygote calls this first). A candidate
    registers its own operators in others."""
    return frozenset(name.split("::")[0] for name in torch._C._dispatch_get_all_op_names())


def default_device() -> str:
    """Returns the type of device that a candidate has made the default."""
    return _device.CURRENT_DEVICE.type if _device.CURRENT_DEVICE is not None else "cpu"


def install() -> None:
    """Patches torch (once, in a process that never goes back)."""
    _silence()
    _default_devices()
    torch.Generator = Generator  # type: ignore[misc]
    for name, dtype in DTYPES.items():
        setattr(torch.cuda, name, _legacy(name, dtype))
    torch.from_numpy = _on_host(torch.from_numpy)
    torch.library.Library.impl = _implemented(torch.library.Library.impl)  # type: ignore[method-assign]
    # Its handler would replace the one that keeps host code out of the device's memory.
    faulthandler.enable = lambda *_a, **_k: None


def _silence() -> None:
    for name in _SILENT:
        setattr(torch.cuda, name, lambda *_a, **_k: None)
    for name in _ZERO:
        setattr(torch.cuda, name, lambda *_a, **_k: 0)
    torch.cuda.initial_seed = torch.initial_seed
    torch.cuda.get_rng_state = lambda *_a, **_k: torch.get_rng_state()
    torch.cuda.memory_summary = lambda *_a, **_k: ""
    torch.cuda.memory_stats = lambda *_a, **_k: {}
    nvtx = torch.cuda.nvtx
    for name in ("range_push", "range_pop", "range_start", "range_end", "mark"):
        setattr(nvtx, name, lambda *_a, **_k: 0)
    nvtx.range = _range
    for name in ("start", "stop", "init"):
        setattr(torch.cuda.profiler, name, lambda *_a, **_k: None)
    torch.cuda.profiler.profile = _range


@contextlib.contextmanager
def _range(*_args: Any, **_kwargs: Any) -> Iterator[None]:
    yield


def _default_devices() -> None:
    """Ignores a default device of CUDA: a tensor without a named device counts as on it. torch would ask the default
    device last, after the modes that know better."""
    plain = DeviceContext.__torch_function__

    def passed(self: Any, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.device.type == "cuda":
            return func(*args, **(kwargs or {}))
        return plain(self, func, kinds, args, kwargs)

    DeviceContext.__torch_function__ = passed  # type: ignore[method-assign]
    asked = torch.get_default_device

    def get_default_device() -> torch.device:
        return torch.device("cuda", 0) if default_device() == "cuda" else _plainly(asked)

    torch.get_default_device = get_default_device


def _plainly(function: Callable[[], Any]) -> Any:
    with torch._C.DisableTorchFunction():
        return function()


class Generator(torch.Generator):
    """A random number generator that reports the device it was made for."""

    def __new__(cls, device: Any = "cpu") -> Generator:
        made: Generator = super().__new__(cls, "cpu")  # type: ignore[call-arg]
        return made

    def __init__(self, device: Any = "cpu") -> None:
        cuda = type(device) is int or str(device).split(":")[0] == "cuda"
        self._place = torch.device("cuda", 0) if cuda else torch.device("cpu")

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self._place


class _Legacy(type):
    """The class of `torch.cuda.FloatTensor` and its like: called, they make tensors."""

    dtype: torch.dtype

    def __call__(cls, *args: Any) -> torch.Tensor:
        if args and not all(isinstance(a, int) for a in args):
            given = args[0]
            if not isinstance(given, torch.Size):
                return torch.tensor(given, dtype=cls.dtype)
            args = tuple(given)
        return torch.empty(args or (0,), dtype=cls.dtype)

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, torch.Tensor) and value.dtype == cls.dtype and value.is_cuda


def _legacy(name: str, dtype: torch.dtype) -> type:
    return _Legacy(name, (), {"dtype": dtype, "__module__": "torch.cuda"})


def _on_host(plain: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Wraps a function whose results lie in Python's or numpy's memory, which no mode sees. Tensors that the runner
    itself makes with it, outside all modes, are inputs."""

    def made(*args: Any, **kwargs: Any) -> torch.Tensor:
        tensor = plain(*args, **kwargs)
        if any(not isinstance(mode, DeviceContext) for mode in _get_current_function_mode_stack()):
            HOST.add(tensor, fetched=False)
        return tensor

    made.__name__ = plain.__name__
    return made


def _implemented(plain: Callable[..., None]) -> Callable[..., None]:
    """Wraps `Library.impl`: a candidate's implementation for CUDA computes, its implementation for the CPU does not."""

    def impl(self: Any, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any) -> None:
        key = dispatch_key or self.dispatch_key
        if self.ns not in libraries() and key in ("CPU", "CUDA"):
            if key == "CPU" and "CUDA" in _keys(self, op_name):
                return
            _keys(self, op_name).add(key)
            dispatch_key = "CPU"
        plain(self, op_name, fn, dispatch_key, **options)

    return impl


_registered: dict[str, set[str]] = {}


def _keys(library: Any, name: Any) -> set[str]:
    """Returns the keys for which implementations of an operator were registered."""
    text = name if isinstance(name, str) else str(getattr(name, "_name", name))
    return _registered.setdefault(f"{library.ns}::{text.split('::')[-1]}", set())
