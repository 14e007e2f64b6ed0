"""Changes the parts of torch that no mode sees, for a process in which tensors of device `meta` stand for the GPU's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._device import DeviceContext

from kernelwright.evaluation.candidate import fake_cuda, fake_torch
from kernelwright.evaluation.candidate.device_functions import META
from kernelwright.evaluation.candidate.recording_runtime import RecordingRuntime

_module_cuda = torch.nn.Module.cuda
_from_numpy = torch.from_numpy
_library_impl = torch.library.Library.impl
_context = DeviceContext.__torch_function__


def install(runtime: RecordingRuntime) -> None:
    """Patches torch, once, in a process that never goes back."""
    fake_cuda.install(runtime.unsupported)
    torch.nn.Module.cuda = _module_cuda  # type: ignore[method-assign]
    torch.from_numpy = _from_numpy
    torch.library.Library.impl = _library_impl  # type: ignore[method-assign]
    DeviceContext.__torch_function__ = _in_context  # type: ignore[method-assign]
    torch.manual_seed = torch.random.manual_seed = _seeding(runtime)  # type: ignore[assignment]
    for name in ("manual_seed", "manual_seed_all"):
        setattr(torch.cuda, name, _device_seeding(runtime))
    torch.cuda.synchronize = lambda *_a, **_k: runtime.synchronize()
    if runtime.card_code:  # its times decide what the candidate launches
        torch.cuda.Event = _event_of(runtime)  # type: ignore[misc,assignment]
    for name, dtype in fake_torch.DTYPES.items():
        setattr(torch.cuda, name, _legacy(name, dtype))


def _in_context(self: Any, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
    """Makes tensors under a default device of CUDA handles."""
    if self.device.type == "cuda":
        context = DeviceContext(META)
        return _context(context, func, kinds, args, kwargs)
    return _context(self, func, kinds, args, kwargs)


def _event_of(runtime: RecordingRuntime) -> type:
    """Returns a class of events that the device records, and whose times it tells."""

    class DeviceEvent:
        """A point of the device's work. All work is on one stream."""

        def __init__(self, *_args: Any, **_options: Any) -> None:
            self.number = -1

        def record(self, _stream: Any = None) -> None:
            self.number = runtime.mark()

        def synchronize(self) -> None:
            runtime.synchronize()

        def wait(self, _stream: Any = None) -> None:
            """Waits for nothing: what follows on the one stream comes after."""

        def query(self) -> bool:
            runtime.synchronize()
            return True

        def elapsed_time(self, other: DeviceEvent) -> float:
            return runtime.elapsed(self.number, other.number)

    return DeviceEvent


def _seeding(runtime: RecordingRuntime) -> Callable[[int], torch.Generator]:
    """Seeds the device's generator with the host's."""

    def manual_seed(seed: int) -> torch.Generator:
        runtime.stream.write("seed", int(seed))
        return torch.default_generator.manual_seed(int(seed))  # torch's own formats a traceback for each device

    return manual_seed


def _device_seeding(runtime: RecordingRuntime) -> Callable[[int], None]:
    def manual_seed(seed: int) -> None:
        runtime.stream.write("seed", int(seed))

    return manual_seed


class _HandleType(type):
    """The class of `torch.cuda.FloatTensor` and its like: called, they make handles."""

    dtype: torch.dtype

    def __call__(cls, *args: Any) -> torch.Tensor:
        if args and not all(isinstance(a, int) for a in args) and not isinstance(args[0], torch.Size):
            return torch.tensor(args[0], dtype=cls.dtype).to(META)
        sizes = tuple(args[0]) if args and isinstance(args[0], torch.Size) else args
        return torch.empty(sizes or (0,), dtype=cls.dtype, device=META)

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, torch.Tensor) and value.dtype == cls.dtype and value.is_cuda


def _legacy(name: str, dtype: torch.dtype) -> type:
    return _HandleType(name, (), {"dtype": dtype, "__module__": "torch.cuda"})
