"""A small stand-in for the road on which a candidate's CUDA tensors are handles, for tests of compiled host code.

Device memory is a table of blocks by device address. No handle leads to them: operators on handles run on the blocks,
and launches run on the functional machine with translated pointers.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelwright.backends.build import build
from kernelwright.backends.device_addresses import LOW, is_device
from kernelwright.builds import BuildRequest, BuildResult
from kernelwright.errors import DeviceError
from kernelwright.machine import LaunchAttributes
from kernelwright.machine.runtime import Runtime

_EMPTY = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted")


class HandleRuntime:
    """What `RecordingRuntime` offers to host code. `calls` lists the copies, fills, operators and launches."""

    handles = True
    device = "cuda"

    def __init__(self, cache: Path) -> None:
        self.machine = Runtime(lambda request: build(request, cache))
        self.findings, self.faults = self.machine.findings, self.machine.faults
        self.unsupported = self.machine.unsupported
        self.library_ops: list[tuple[str, int]] = []
        self.calls: list[tuple[Any, ...]] = []
        self.own_calls = 0
        self.blocks: dict[int, torch.Tensor] = {}
        self._next = LOW
        self._storages: dict[int, tuple[Any, int]] = {}
        self._symbols: list[tuple[int, int]] = []
        self._pending: DeviceError | None = None
        self.routine = ""

    def compile(self, request: BuildRequest) -> BuildResult:
        return self.machine.compile(request)

    def program(self, result: BuildResult) -> _Module:
        return _Module(self.machine.program(result), self._symbols)

    def launch(
        self,
        program: _Module,
        kernel: str,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        shared: int,
        args: Sequence[bytes],
        *,
        own_shared: bool = True,
        attributes: LaunchAttributes,
    ) -> None:
        self.calls.append(("launch", kernel))
        data = [self._translated(a) for a in args]
        try:
            self.machine.launch(program.loaded, kernel, grid, block, shared, data, attributes=attributes)
        except DeviceError as error:  # reported where the candidate waits
            self._pending = error

    def _translated(self, argument: bytes) -> bytes:
        words = [argument[k : k + 8] for k in range(0, len(argument), 8)]
        return b"".join(
            self._real(n).to_bytes(8, "little") if len(w) == 8 and is_device(n := int.from_bytes(w, "little")) else w
            for w in words
        )

    def _real(self, address: int) -> int:
        """Returns where this process keeps the byte at a device address; another address has no meaning here."""
        for start, block in self.blocks.items():
            if start <= address < start + block.nbytes:
                return block.data_ptr() + address - start
        return address

    def allocate(self, nbytes: int) -> int:
        address, self._next = self._next, self._next + (nbytes + 8191) // 4096 * 4096
        self.blocks[address] = torch.full((nbytes,), 0xFF, dtype=torch.uint8)
        self.machine.register(self.blocks[address])
        return address

    def free(self, address: int) -> bool:
        return self.blocks.pop(address, None) is not None

    def copy(self, to: int, source: int, nbytes: int) -> None:
        there = self.is_device(to), self.is_device(source)
        assert any(there)
        self.calls.append(("copy" if all(there) else "upload" if there[0] else "download", nbytes))
        if not there[0]:
            self.synchronize()
        ctypes.memmove(self._real(to), self._real(source), nbytes)

    def fill(self, address: int, value: int, nbytes: int) -> None:
        self.calls.append(("fill", value, nbytes))
        ctypes.memset(self._real(address), value, nbytes)

    def synchronize(self) -> None:
        if self._pending is not None:
            raise self._pending

    def is_device(self, address: int) -> bool:
        return is_device(address) or any(start <= address < start + nbytes for start, nbytes in self._symbols)

    def address_of(self, tensor: torch.Tensor) -> int:
        if not tensor.is_meta:
            return tensor.data_ptr()
        return self._storage(tensor) + tensor.storage_offset() * tensor.element_size()

    def _storage(self, tensor: torch.Tensor) -> int:
        storage = tensor.untyped_storage()
        _, address = self._storages.get(storage._cdata, (None, 0))
        if not address or self.blocks[address].nbytes < storage.nbytes():
            grown = self.allocate(storage.nbytes())
            if address:
                self.blocks[grown][: self.blocks[address].nbytes] = self.blocks[address]
            self._storages[storage._cdata] = storage, grown  # kept, so that no number is used twice
            return grown
        return address

    def tensor_at(self, address: int, dtype: torch.dtype, sizes: Sequence[int], strides: Sequence[int]) -> torch.Tensor:
        start = next(s for s, block in self.blocks.items() if s <= address < s + block.nbytes)
        storage = next((kept for kept, at in self._storages.values() if at == start), None)
        if storage is None:
            storage = torch.empty(self.blocks[start].nbytes, dtype=torch.uint8, device="meta").untyped_storage()
            self._storages[storage._cdata] = storage, start
        extent = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
        if address - start + extent * dtype.itemsize > self.blocks[start].nbytes:
            raise DeviceError("CUDA error: an illegal memory access was encountered")
        made = torch.empty(0, dtype=dtype, device="meta")
        return made.set_(storage, (address - start) // dtype.itemsize, tuple(sizes), tuple(strides))  # type: ignore[call-overload,no-any-return]

    @contextlib.contextmanager
    def standing_for(self, routine: str) -> Iterator[None]:
        self.routine = routine
        yield
        self.routine = ""

    def contents(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns the values of a handle, in the memory of its block."""
        if not tensor.numel():
            return torch.empty(tensor.shape, dtype=tensor.dtype)
        block = self.blocks[self._storage(tensor)]
        whole = block[: block.nbytes // tensor.element_size() * tensor.element_size()].view(tensor.dtype)
        return whole.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    def handle(self, values: torch.Tensor) -> torch.Tensor:
        """Returns a new handle with these values."""
        made = torch.empty_strided(values.shape, values.stride(), dtype=values.dtype, device="meta")
        if values.numel():
            self.contents(made).copy_(values)
        return made


class _Module:
    def __init__(self, loaded: Any, symbols: list[tuple[int, int]]) -> None:
        self.loaded, self.kernels, self._symbols = loaded, loaded.kernels, symbols

    def global_symbol(self, name: str) -> tuple[int, int]:
        address, nbytes = self.loaded.global_symbol(name)
        self._symbols.append((address, nbytes))
        return address, nbytes


class DeviceOperators(TorchDispatchMode):
    """Runs operators on handles on the blocks of a `HandleRuntime`."""

    def __init__(self, runtime: HandleRuntime) -> None:
        super().__init__()
        self.runtime = runtime

    def __torch_dispatch__(self, func: Any, types_: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = func.overloadpacket.__name__
        given = _tensors([args, list(kwargs.values())])
        device = kwargs.get("device")
        if func.namespace not in ("aten", "prims"):
            key = "Meta" if any(t.is_meta for t in given) else "CPU"
            with self:
                return func.redispatch(torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key)), *args, **kwargs)
        to_device = device is not None and torch.device(device).type == "meta"
        if not to_device and not any(t.is_meta for t in given):
            return func(*args, **kwargs)
        if func.is_view or name in (*_EMPTY, "detach", "set_", "resize_", "_unsafe_view", "alias"):
            return func(*args, **kwargs)
        self.runtime.calls.append(("operator", name, self.runtime.routine))
        known: list[tuple[torch.Tensor, torch.Tensor]] = []
        if device is not None:
            kwargs["device"] = "cpu"
        made = func(*self._real(args, known), **self._real(kwargs, known))
        if torch.device(device or "meta").type == "cpu":
            return made

        def handle(made: torch.Tensor) -> torch.Tensor:
            same = next((handle for handle, contents in known if contents is made), None)
            if same is not None and same.shape != made.shape:  # an `out` argument
                self.runtime.contents(same.resize_(made.shape)).copy_(made)
            return self.runtime.handle(made) if same is None else same

        return _each(made, handle)

    def _real(self, value: Any, known: list[tuple[torch.Tensor, torch.Tensor]]) -> Any:
        def real(tensor: torch.Tensor) -> torch.Tensor:
            if not tensor.is_meta:
                return tensor
            if not any(handle is tensor for handle, _ in known):
                known.append((tensor, self.runtime.contents(tensor)))
            return next(contents for handle, contents in known if handle is tensor)

        return _each(value, real)


def _each(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {k: _each(v, change) for k, v in value.items()}
    return type(value)(_each(v, change) for v in value) if type(value) in (list, tuple) else value


def _tensors(value: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    _each(value, found.append)
    return found


class OnHandles:
    """Calls an extension's functions with handles for its tensors, and returns their values.

    A tensor that the function returns or changes in place is the caller's own again.
    """

    def __init__(self, extension: Any, runtime: HandleRuntime) -> None:
        self._extension, self._runtime = extension, runtime

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._extension, name)

        def call(*args: Any, **named: Any) -> Any:
            pairs: list[tuple[torch.Tensor, torch.Tensor]] = []

            def up(tensor: torch.Tensor) -> torch.Tensor:
                pairs.append((tensor, self._runtime.handle(tensor)))
                return pairs[-1][1]

            def down(tensor: torch.Tensor) -> torch.Tensor:
                own = next((mine for mine, handle in pairs if handle is tensor), None)
                return own if own is not None else self._runtime.contents(tensor).clone() if tensor.is_meta else tensor

            with DeviceOperators(self._runtime):
                made = function(*_each(args, up), **_each(named, up))
            self._runtime.synchronize()
            for mine, handle in pairs:
                mine.resize_(handle.shape).copy_(self._runtime.contents(handle))
            return _each(made, down)

        return call if callable(function) else function
