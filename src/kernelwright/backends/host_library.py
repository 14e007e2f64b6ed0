"""Loads the library that compiled host code calls (`kwhost.so`), and answers its calls by this process's runtime.

Runs only inside the sandboxed runner, where torch is imported.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch

from kernelwright.backends import values
from kernelwright.backends.bridge import Bridge, Unforwardable
from kernelwright.backends.host_memory import HOST, address_of
from kernelwright.backends.values import Config, Handles, Options, Value
from kernelwright.errors import DeviceError
from kernelwright.machine import LaunchAttributes

_P = ctypes.POINTER
_OP = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, _P(Value), ctypes.c_int, _P(ctypes.c_void_p), _P(ctypes.c_int))
_COUNT = ctypes.CFUNCTYPE(None, ctypes.c_int64)
_LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, _P(Config), _P(ctypes.c_void_p), _P(ctypes.c_uint), ctypes.c_int
)
_SYMBOL = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int
)
_ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, _P(ctypes.c_void_p))
_FREE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
TO_HOST = "host code (after a copy to the host)"
_COPY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int)
_FILL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64)
_SYNCHRONIZE = ctypes.CFUNCTYPE(ctypes.c_int)


_INVALID_VALUE, _INVALID_DIRECTION, _ILLEGAL_ADDRESS = 1, 21, 700
"""Numbers of cudaError."""
_DIRECTIONS = {0: (False, False), 1: (True, False), 2: (False, True), 3: (True, True), 4: (False, False)}
"""By cudaMemcpyKind: whether the target and the source must be device memory. What need not be may be, since addresses
are unified."""


class _Callbacks(ctypes.Structure):
    _fields_ = [
        ("op", _OP),
        ("retain", _COUNT),
        ("release", _COUNT),
        ("launch", _LAUNCH),
        ("symbol", _SYMBOL),
        ("allocate", _ALLOCATE),
        ("deallocate", _FREE),
        ("copy", _COPY),
        ("fill", _FILL),
        ("synchronize", _SYNCHRONIZE),
    ]


class Caller(Protocol):
    """An extension whose code runs."""

    runtime: Any
    number: int
    handles: bool

    def launch(
        self,
        kernel: str,
        expression: str,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        shared: int,
        args: list[bytes],
        attributes: LaunchAttributes,
    ) -> None:
        """Runs one kernel."""

    def function(self, kernel: str, expression: str) -> int:
        """Returns the CUfunction of a kernel, on a real GPU."""

    def copy_symbol(self, name: str, address: int, count: int, offset: int, to_device: bool) -> None:
        """Copies to or from a device variable, or stores its address."""


class Host:
    """The process's host library with its callbacks, shared by all extensions and created by the first."""

    _only: Host | None = None

    @classmethod
    def get(cls) -> Host:
        if cls._only is None:
            cls._only = cls()
        return cls._only

    def __init__(self) -> None:
        self.library = ctypes.CDLL("kwhost.so")  # already loaded, as a dependency of the first extension
        self.library.kw_call.restype = _P(Value)
        self.library.kw_call.argtypes = [ctypes.c_int, _P(Value), _P(ctypes.c_char_p), ctypes.c_int]
        self.library.kw_attribute.restype = _P(Value)
        self.library.kw_pin.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
        self.library.kw_touched_address.restype = ctypes.c_uint64
        self.library.kw_gpu_launches.restype = ctypes.c_long
        for name in ("kw_function_name", "kw_function_doc", "kw_error_text"):
            getattr(self.library, name).restype = ctypes.c_char_p
        self.library.kw_demangle.restype = ctypes.c_char_p
        self.handles = Handles()
        self.bridge = Bridge(self.handles, self._record)
        self.bridge.inside = self._inside
        self.bridge.standing_for = self._standing_for
        self._turn = threading.RLock()
        """Held while an extension's code runs, as pybind11 holds the interpreter's lock."""
        self.running: list[Caller] = []
        self._threads: list[int] = []
        """The threads in which Python called the extensions that run."""
        self.error: BaseException | None = None
        self._blocks: dict[int, torch.Tensor] = {}
        self._kept: list[Any] = []
        self._callbacks = _Callbacks(
            _OP(self._guarded(self._op)),
            _COUNT(self.handles.retain),
            _COUNT(self.handles.release),
            _LAUNCH(self._guarded(self._launch)),
            _SYMBOL(self._guarded(self._symbol)),
            _ALLOCATE(self._guarded(self._allocate)),
            _FREE(self._guarded(self._deallocate)),
            _COPY(self._answering(self._copy)),
            _FILL(self._answering(self._fill)),
            _SYNCHRONIZE(self._answering(self._synchronize)),
        )
        self.library.kw_install(ctypes.byref(self._callbacks))
        if values.real_cuda and (lacking := self.library.kw_gpu_enable()):
            raise DeviceError(f"the CUDA driver cannot be used (function {lacking})")
        atexit.register(self.library.kw_shut_down)

    def _guarded(self, function: Callable[..., None]) -> Callable[..., int]:
        """Wraps a callback: stores its exception for the Python caller and returns an error status to C++."""

        def call(*args: Any) -> int:
            try:
                function(*args)
                return 0
            except BaseException as error:
                self.error = error
                self.library.kw_set_error(str(error).encode(errors="replace"))
                return 1

        return call

    def _answering(self, function: Callable[..., int | None]) -> Callable[..., int]:
        """Wraps a callback that returns a cudaError: one for the device's errors, and -1 for any other exception."""

        def call(*args: Any) -> int:
            try:
                return function(*args) or 0
            except DeviceError:
                return _ILLEGAL_ADDRESS
            except BaseException as error:
                self.error = error
                self.library.kw_set_error(str(error).encode(errors="replace"))
                return -1

        return call

    @contextlib.contextmanager
    def entered(self, extension: Caller) -> Iterator[None]:
        """A context in which code of an extension runs."""
        with self._turn:
            before = values.handle_runtime
            self.running.append(extension)
            self._threads.append(threading.get_ident())
            values.handle_runtime = extension.runtime if extension.handles else None
            self.library.kw_gpu_module(extension.number)
            try:
                yield
            finally:
                self.running.pop()
                self._threads.pop()
                values.handle_runtime = before
                if self.running:
                    self.library.kw_gpu_module(self.running[-1].number)

    def _record(self, name: str, numel: int) -> None:
        operations = getattr(self.running[-1].runtime, "library_ops", None)
        if operations is not None:
            operations.append((name, numel))

    def _watched(self) -> contextlib.AbstractContextManager[Any]:
        """A context in which operators are recorded, also in a thread that compiled code started."""
        runtime = values.handle_runtime
        if runtime is None or threading.get_ident() in self._threads:
            return contextlib.nullcontext()
        return runtime.watched()  # type: ignore[no-any-return]

    def _standing_for(self, routine: str) -> contextlib.AbstractContextManager[Any]:
        runtime = self.running[-1].runtime
        if values.handle_runtime is not None:
            return runtime.standing_for(routine)  # type: ignore[no-any-return]
        return runtime.quietly() if hasattr(runtime, "quietly") else contextlib.nullcontext()

    def _inside(self, address: int, nbytes: int) -> bool:
        table = self.running[-1].runtime.allocations() if self.running else []
        return any(a.address <= address and address + nbytes <= a.address + a.nbytes for a in table)

    def _copy(self, to: int, source: int, nbytes: int, kind: int) -> int | None:
        """Runs cudaMemcpy. On a real GPU compiled code copies, and only tells of copies to the host."""
        runtime = self.running[-1].runtime
        if values.real_cuda:
            self.to_host(nbytes)
        elif values.handle_runtime is None:
            self._fetched(runtime, to, source, nbytes)
            ctypes.memmove(to, source, nbytes)
        else:
            there = runtime.is_device(to), runtime.is_device(source)
            if kind not in _DIRECTIONS:
                return _INVALID_DIRECTION
            if any(d and not is_there for d, is_there in zip(_DIRECTIONS[kind], there, strict=True)):
                return _INVALID_VALUE
            if any(there):
                runtime.copy(to, source, nbytes)
            else:
                ctypes.memmove(to, source, nbytes)
        return None

    def _fetched(self, runtime: Any, to: int, source: int, nbytes: int) -> None:
        """Records copies to the host like operators: after a large one, host code could do a kernel's work."""
        if not hasattr(runtime, "allocations") or runtime.copied_to(to, nbytes, source):
            return
        if _within(runtime.allocations(), source):
            self.to_host(nbytes)

    def _fill(self, address: int, value: int, nbytes: int) -> int | None:
        runtime = self.running[-1].runtime
        if values.handle_runtime is None:
            if hasattr(runtime, "shadows"):
                runtime.shadows.wrote_range(address, nbytes)
            ctypes.memset(address, value, nbytes)
        elif not runtime.is_device(address):
            return _INVALID_VALUE
        else:
            runtime.fill(address, value, nbytes)
        return None

    def _synchronize(self) -> None:
        if values.handle_runtime is not None:
            values.handle_runtime.synchronize()

    def to_host(self, nbytes: int) -> None:
        """Adds a copy to the call's total, which is recorded as one operator."""
        operations = getattr(self.running[-1].runtime, "library_ops", None) if self.running else None
        if operations is None or values.handle_runtime is not None:  # a download is a record
            return
        before = [op for op in operations if op[0] == TO_HOST]
        operations[:] = [op for op in operations if op[0] != TO_HOST]
        operations.append((TO_HOST, nbytes // 4 + sum(numel for _, numel in before)))

    def register(self, tensor: torch.Tensor, cuda: bool) -> None:
        """Makes a CUDA tensor's memory accessible to kernels; ignores host tensors."""
        if cuda and self.running and values.handle_runtime is None and tensor not in HOST:
            self.running[-1].runtime.register(tensor)

    def _op(self, name: bytes, args: Any, count: int, results: Any, result_count: Any) -> None:
        operator = name.decode()
        from_cuda = self._any_cuda(args, count)
        plain = [values.read(args[k], self.handles) for k in range(count)]
        try:
            with self._watched():
                made, cuda = self.bridge.run(operator, plain, from_cuda)
        except Unforwardable as error:
            self.running[-1].runtime.unsupported.append(error.name)
            raise
        items = list(made) if isinstance(made, (tuple, list)) else [made]
        out = (Value * max(1, len(items)))()
        self._kept = [out]
        for k, item in enumerate(items):
            if isinstance(item, torch.Tensor) and values.handle_runtime is None:
                self._note_place(item, plain, operator, (from_cuda, cuda))
            values.write(out[k], item, self.handles, self._kept, cuda)
            if isinstance(item, torch.Tensor) and values.handle_runtime is not None:
                self._note_pinned(item, plain)
        results[0] = ctypes.addressof(out)
        result_count[0] = len(items)

    def _note_pinned(self, made: torch.Tensor, given: list[Any]) -> None:
        """Notes host memory that a kernel could access on a GPU."""
        pinned = any(isinstance(item, Options) and item.pinned for item in given)
        if pinned and made.numel() and not values.on_cuda(made, False):
            self.library.kw_pin(values.address(made), made.nbytes)

    def _note_place(self, made: torch.Tensor, given: list[Any], operator: str, cuda: tuple[bool, bool]) -> None:
        """Marks a result as memory of the host or of the device, where both are in this process; `cuda`: whether an
        argument and the result are CUDA tensors."""
        if not cuda[1]:
            self._note_host(made, given, operator, cuda[0])
            return
        if operator.startswith(("new:", "like:")):
            HOST.discard(made)  # allocated in this process's memory, but a device tensor
        self.register(made, True)
        if operator == "new:from_blob" and self._inside(address_of(made), made.nbytes):
            self.running[-1].runtime.adopt(made)

    def _note_host(self, made: torch.Tensor, given: list[Any], operator: str, from_cuda: bool) -> None:
        """Marks a result as host memory; counts a transfer from the device as a copy to the host."""
        if values.real_cuda or not self.running or self.running[-1].runtime.device != "cuda":
            return
        fetched = any(HOST.fetched(t) for t in given if isinstance(t, torch.Tensor))
        if operator == "to" and from_cuda:
            self.to_host(made.nbytes)
            fetched = True
        HOST.add(made, fetched)

    def take(self, tensor: torch.Tensor) -> None:
        """Prepares a tensor for compiled code, which may read and write it if it is host memory."""
        if not HOST.used or values.real_cuda or values.handle_runtime is not None:
            return
        if HOST.fetched(tensor):
            self.to_host(tensor.nbytes)

    def _any_cuda(self, args: Any, count: int) -> bool:
        for k in range(count):
            if args[k].tag == values.TENSOR and self.handles.is_cuda(args[k].i):
                return True
            if args[k].tag == values.TENSORS and args[k].i:
                numbers = (ctypes.c_int64 * args[k].i).from_address(args[k].p)
                if any(n and self.handles.is_cuda(n) for n in numbers):
                    return True
        return False

    def _launch(self, kernel: bytes, expression: bytes, config: Any, args: Any, sizes: Any, count: int) -> None:
        if values.real_cuda:  # compiled code launches by itself and asks only for unknown functions
            extension = self.running[-1]
            function = extension.function(kernel.decode(), expression.decode())
            self.library.kw_gpu_add(expression or kernel, ctypes.c_void_p(function))
            return
        data = [ctypes.string_at(args[k], sizes[k]) for k in range(count)]
        c = config[0]
        cluster = tuple(c.cluster) if any(c.cluster) else None
        self.running[-1].launch(
            kernel.decode(),
            expression.decode(),
            tuple(c.grid),
            tuple(c.block),
            c.shared,
            data,
            LaunchAttributes(bool(c.cooperative), cluster),
        )

    def _symbol(self, name: bytes, address: int, count: int, offset: int, to_device: int) -> None:
        self.running[-1].copy_symbol(name.decode(), address, count, offset, bool(to_device))

    def launch_counts(self) -> dict[str, int]:
        """Returns launches on a real GPU by kernel, since the previous call."""
        counts: dict[str, int] = {}
        key, index = ctypes.c_char_p(), 0
        while (launches := self.library.kw_gpu_launches(index, ctypes.byref(key))) >= 0:
            name = (key.value or b"?").decode(errors="replace")
            counts[name] = counts.get(name, 0) + launches
            index += 1
        return counts

    def _allocate(self, count: int, address: Any) -> None:
        if values.handle_runtime is not None:
            address[0] = values.handle_runtime.allocate(max(1, count))
            return
        if values.real_cuda:
            block = torch.empty(max(1, count), dtype=torch.uint8, device="cuda")
        else:
            block = torch.empty(max(1, count), dtype=torch.uint8)
        self._blocks[block.data_ptr()] = block
        self.register(block, True)
        address[0] = block.data_ptr()

    def _deallocate(self, address: int) -> None:
        if values.handle_runtime is not None:
            known = values.handle_runtime.free(address)
        else:
            known = self._blocks.pop(address, None) is not None
        if not known:
            raise DeviceError("CUDA error: invalid argument (cudaFree of an address that cudaMalloc did not give)")


def _within(table: Sequence[Any], address: int | None) -> bool:
    """Tells whether an address lies in device-accessible memory."""
    return any(a.address <= (address or 0) < a.address + a.nbytes for a in table)
