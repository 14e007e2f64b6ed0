"""The module object that `load_inline` returns to a candidate: compiled host functions, called in the runner.

Loads the builder's shared object, installs the callbacks by which compiled code launches kernels and computes with
tensors, and converts arguments and results. Runs only inside the sandboxed runner, where torch is imported.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernelwright.backends import operators, values
from kernelwright.backends.bridge import Bridge, Unforwardable
from kernelwright.backends.host_memory import HOST, address_of
from kernelwright.backends.python_fence import FENCE
from kernelwright.backends.values import Config, Handles, Value
from kernelwright.builds import BuildRequest, BuildResult
from kernelwright.errors import DeviceError
from kernelwright.machine import Fault, LaunchAttributes, driver

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
_FETCHED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)


class _Callbacks(ctypes.Structure):
    _fields_ = [
        ("op", _OP),
        ("retain", _COUNT),
        ("release", _COUNT),
        ("launch", _LAUNCH),
        ("symbol", _SYMBOL),
        ("allocate", _ALLOCATE),
        ("deallocate", _FREE),
        ("fetched", _FETCHED),
    ]


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
        self.library.kw_is_fenced.argtypes = [ctypes.c_uint64]
        self.library.kw_touched_address.restype = ctypes.c_uint64
        self.library.kw_gpu_launches.restype = ctypes.c_long
        for name in ("kw_function_name", "kw_function_doc", "kw_error_text"):
            getattr(self.library, name).restype = ctypes.c_char_p
        self.library.kw_demangle.restype = ctypes.c_char_p
        self.handles = Handles()
        self.bridge = Bridge(self.handles, self._record)
        self.bridge.inside = self._inside
        self.bridge.quietly = self._quietly
        self.running: list[Extension] = []
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
            _FETCHED(self._fetched),
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

    def _record(self, name: str, numel: int) -> None:
        operations = getattr(self.running[-1].runtime, "library_ops", None)
        if operations is not None:
            operations.append((name, numel))

    def _quietly(self) -> contextlib.AbstractContextManager[Any]:
        made = getattr(self.running[-1].runtime, "quietly", None) if self.running else None
        return made() if made is not None else contextlib.nullcontext()

    def _inside(self, address: int, nbytes: int) -> bool:
        table = self.running[-1].runtime.allocations() if self.running else []
        return any(a.address <= address and address + nbytes <= a.address + a.nbytes for a in table)

    def _fetched(self, to: int | None, source: int | None, nbytes: int) -> None:
        """Records copies to the host like operators: after a large one, host code could do a kernel's work."""
        if not self.running:
            return
        runtime = self.running[-1].runtime
        if not values.real_cuda:
            if not hasattr(runtime, "allocations"):
                return
            if not source:  # a fill
                return runtime.shadows.wrote_range(to or 0, nbytes)
            if runtime.copied_to(to or 0, nbytes, source):
                return
            if not _within(runtime.allocations(), source):
                return
        self.to_host(nbytes)

    def to_host(self, nbytes: int) -> None:
        """Adds a copy to the call's total, which is recorded as one operator."""
        operations = getattr(self.running[-1].runtime, "library_ops", None) if self.running else None
        if operations is None:
            return
        before = [op for op in operations if op[0] == TO_HOST]
        operations[:] = [op for op in operations if op[0] != TO_HOST]
        operations.append((TO_HOST, nbytes // 4 + sum(numel for _, numel in before)))

    def register(self, tensor: torch.Tensor, cuda: bool) -> None:
        """Makes a CUDA tensor's memory accessible to kernels; ignores host tensors."""
        if cuda and self.running and tensor not in HOST:
            self.running[-1].runtime.register(tensor)

    def _op(self, name: bytes, args: Any, count: int, results: Any, result_count: Any) -> None:
        operator = name.decode()
        from_cuda = self._any_cuda(args, count)
        plain = [values.read(args[k], self.handles) for k in range(count)]
        try:
            made, cuda = self.bridge.run(operator, plain, from_cuda)
        except Unforwardable as error:
            self.running[-1].runtime.unsupported.append(error.name)
            raise
        items = list(made) if isinstance(made, (tuple, list)) else [made]
        out = (Value * max(1, len(items)))()
        self._kept = [out]
        for k, item in enumerate(items):
            if isinstance(item, torch.Tensor) and not cuda:
                item = self._host_memory(item)
                self._note_host(item, plain, operator, from_cuda)
            elif isinstance(item, torch.Tensor) and operator.startswith(("new:", "like:")):
                HOST.discard(item)  # allocated in this process's memory, but a device tensor
            values.write(out[k], item, self.handles, self._kept, cuda)
            if isinstance(item, torch.Tensor):
                self.register(item, cuda)
                if operator == "new:from_blob" and cuda and self._inside(address_of(item), item.nbytes):
                    self.running[-1].runtime.adopt(item)
        results[0] = ctypes.addressof(out)
        result_count[0] = len(items)

    def _host_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns a tensor that host code may read: a copy if it shares device memory, as `x.cpu()` does here."""
        if values.real_cuda or not tensor.numel() or not self.library.kw_is_fenced(address_of(tensor)):
            return tensor
        self.library.kw_plain_memory(1)
        try:
            return tensor.clone()
        finally:
            self.library.kw_plain_memory(0)

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
        if not HOST.used or values.real_cuda:
            return
        here = tensor in HOST
        self.library.kw_host_memory(ctypes.c_uint64(address_of(tensor)), int(here))
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
        if values.real_cuda:
            block = torch.empty(max(1, count), dtype=torch.uint8, device="cuda")
        else:
            block = torch.empty(max(1, count), dtype=torch.uint8)
        self._blocks[block.data_ptr()] = block
        self.register(block, True)
        address[0] = block.data_ptr()

    def _deallocate(self, address: int) -> None:
        if self._blocks.pop(address, None) is None:
            raise DeviceError("CUDA error: invalid argument (cudaFree of an address that cudaMalloc did not give)")


class Extension:
    """Bound functions of one built extension, as attributes.

    `result` must be an `ok` result with a library. Calling a function raises `TypeError` for arguments that pybind11
    would not convert, and `RuntimeError` with the message of a C++ exception.
    """

    _made = 0

    def __init__(self, result: BuildResult, runtime: Any, python_module: bool = True) -> None:
        """`python_module` is load_inline's `is_python_module`: False when loaded only to register operators."""
        if result.library is None:
            raise RuntimeError("the build made no library to load")
        self.runtime = runtime
        self.number = Extension._made = Extension._made + 1
        self._result = result
        self._programs: list[tuple[Any, dict[str, str]]] = []
        self._writes: dict[tuple[str, int, int], bytes] = {}
        """The last data copied to device variables, by name, offset and size; applied to instances built later."""
        library = ctypes.CDLL(result.library)
        host = Host.get()
        if values.real_cuda:
            runtime.launch_counts = host.launch_counts
        self.fenced = not values.real_cuda and runtime.device == "cuda" and bool(host.library.kw_fence())
        host.library.kw_begin_module()
        self._library = library
        if result.ptx:
            self._add_program(result)  # raises here for unsupported PTX, as a failed build
        registered = operators.register(
            host.library, runtime.device == "cuda", lambda index, name: _bound(self, host, index, name)
        )
        first = host.library.kw_function_count()
        entry = next((name for name in _module_entries(library)), None)
        if entry is not None:
            getattr(library, entry)()
        elif python_module or not registered:
            raise ImportError("dynamic module does not define module export function")
        self._set_attributes(host)
        for index in range(first, host.library.kw_function_count()):
            name = host.library.kw_function_name(index).decode()
            self.__dict__.setdefault(name, _bound(self, host, index, name))

    def _set_attributes(self, host: Host) -> None:
        """Sets the attributes that the module defined by `m.attr(...)`."""
        name, index = ctypes.c_char_p(), 0
        while value := host.library.kw_attribute(index, ctypes.byref(name)):
            self.__dict__.setdefault((name.value or b"").decode(), values.read(value[0], host.handles))
            index += 1

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
        """Runs one kernel; builds its template instance if the first build lacks it."""
        program, entry = self._entry(kernel, expression, [len(a) for a in args])
        self.runtime.launch(program, entry, grid, block, shared, args, attributes=attributes)

    def function(self, kernel: str, expression: str) -> int:
        """Returns the CUfunction of a kernel, on a real GPU."""
        program, entry = self._entry(kernel, expression, [])
        return int(program.function(entry))

    def _entry(self, kernel: str, expression: str, sizes: list[int]) -> tuple[Any, str]:
        wanted = normalised(expression or kernel)
        if not self._programs:
            self._add_program(self._result)
        for program, names in self._programs:
            found = [entry for entry, name in names.items() if name == wanted]
            if len(found) > 1:
                found = [e for e in found if [size for size, _ in program.kernels[e].params] == sizes]
                if len(found) != 1:
                    raise self._unsupported(f"overloaded kernel {kernel}")
            if found:
                return program, found[0]
        if not expression or "?" in expression:
            raise self._unsupported(f"kernel {expression or kernel}")
        # NVRTC's int64_t is `long long`, the host's is `long`: keep it an int64_t.
        expression = re.sub(r"\b(?:long )?long (unsigned )?int\b", r"\1long long", expression)
        request = BuildRequest("instances", cuda_source=self._result.device_source or "", expressions=(expression,))
        result = self.runtime.compile(request)
        if result.status == "compile_error" and "__nv_name_map" not in result.log:
            raise RuntimeError(f"error building {expression}: {result.log}")  # nvcc reports this at build time
        if result.status != "ok":
            raise self._unsupported(f"template instance {expression}", result.log)
        program, names = self._add_program(result)
        entry = result.lowered.get(expression) or next((e for e, n in names.items() if n == wanted), "")
        if entry not in names:
            raise self._unsupported(f"template instance {expression}")
        return program, entry

    def _unsupported(self, name: str, log: str = "") -> RuntimeError:
        self.runtime.unsupported.append(name)
        return RuntimeError(f"{name} cannot be launched here. {log}".strip())

    def _add_program(self, result: BuildResult) -> tuple[Any, dict[str, str]]:
        program = self.runtime.program(result)
        demangle = Host.get().library.kw_demangle
        names = {entry: normalised(demangle(entry.encode()).decode()) for entry in program.kernels}
        self._programs.append((program, names))
        for (name, offset, _), data in self._writes.items():
            self._store(program, name, offset, data)
        return program, names

    def _store(self, program: Any, name: str, offset: int, data: bytes) -> bool:
        place = _symbol_place(program, name)
        if place is None or offset + len(data) > place[1]:
            return False
        if values.real_cuda:
            kept = ctypes.create_string_buffer(data, len(data))
            driver.copy(place[0] + offset, ctypes.addressof(kept), len(data))
        else:
            ctypes.memmove(place[0] + offset, data, len(data))
        return True

    def copy_symbol(self, name: str, address: int, count: int, offset: int, to_device: bool) -> None:
        """Runs `cudaMemcpyToSymbol` or `cudaMemcpyFromSymbol`. Raises `RuntimeError` for an unknown symbol."""
        if not self._programs:
            self._add_program(self._result)
        if offset == _ADDRESS_WANTED:
            self._symbol_address(name, address)
            return
        if to_device:
            data = _bytes_at(address, count)
            self._writes.pop((name, offset, count), None)  # moves the entry to the end
            self._writes[name, offset, count] = data
            if not any([self._store(program, name, offset, data) for program, _ in self._programs]):
                raise DeviceError(f"CUDA error: invalid device symbol ({name}, {count} bytes at offset {offset})")
            return
        Host.get().to_host(count)
        for program, _ in self._programs:
            place = _symbol_place(program, name)
            if place is not None and offset + count <= place[1]:
                if values.real_cuda:
                    driver.copy(address, place[0] + offset, count)
                else:
                    ctypes.memmove(address, place[0] + offset, count)
                return
        raise DeviceError(f"CUDA error: invalid device symbol ({name})")

    def _symbol_address(self, name: str, address: int) -> None:
        """Runs `cudaGetSymbolAddress`: stores the variable's address in the only program at `address`."""
        if len(self._programs) > 1:
            raise self._unsupported(f"cudaGetSymbolAddress({name}) with several instances")
        place = _symbol_place(self._programs[0][0], name)
        if place is None:
            raise DeviceError(f"CUDA error: invalid device symbol ({name})")
        ctypes.c_uint64.from_address(address).value = place[0]


_ADDRESS_WANTED = 2**64 - 1


def _within(table: Sequence[Any], address: int | None) -> bool:
    """Tells whether an address lies in device-accessible memory."""
    return any(a.address <= (address or 0) < a.address + a.nbytes for a in table)


def _bytes_at(address: int, count: int) -> bytes:
    """Copies memory, which on a real GPU may be device memory (`cudaMemcpyDeviceToDevice`)."""
    if not values.real_cuda:
        return ctypes.string_at(address, count)
    kept = ctypes.create_string_buffer(max(1, count))
    driver.copy(ctypes.addressof(kept), address, count)
    return kept.raw[:count]


def _symbol_place(program: Any, name: str) -> tuple[int, int] | None:
    """Returns address and bytes of a device variable by its name in host code; None if unknown."""
    plain = name.strip().lstrip("&").strip().split("::")[-1]
    try:
        address, nbytes = program.global_symbol(plain)
    except (KeyError, ValueError):
        return None
    return address, nbytes


def _module_entries(library: ctypes.CDLL) -> list[str]:
    return [name for name in ("PyInit_kw_extension",) if hasattr(library, name)]


def _bound(extension: Extension, host: Host, index: int, name: str) -> Callable[..., Any]:
    """Returns a Python function that calls bound function `index` of the host library."""

    def function(*args: Any, **named: Any) -> Any:
        return _call(extension, host, index, args, named)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = host.library.kw_function_doc(index).decode(errors="replace")
    return function


def _call(extension: Extension, host: Host, index: int, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    with FENCE.reachable():  # compiled code has its own fence
        return _called(extension, host, index, args, named)


def _called(extension: Extension, host: Host, index: int, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    runtime = extension.runtime
    runtime.own_calls += 1
    count = len(args) + len(named)
    block, names, keep = (Value * max(1, count))(), (ctypes.c_char_p * max(1, count))(), []  # type: ignore[var-annotated]
    host.running.append(extension)
    host.library.kw_gpu_module(extension.number)
    host.library.kw_fence_wanted(int(extension.fenced))
    if values.real_cuda:
        host.library.kw_gpu_stream(ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
    try:
        for k, item in enumerate([*args, *named.values()]):
            values.write(block[k], item, host.handles, keep)
        for k, name in enumerate(named):
            names[len(args) + k] = name.encode()
        _register_all(host, [*args, *named.values()])
        host.error = None
        result = host.library.kw_call(index, block, names, count)
        if not result:
            _raise(host, runtime, name_of(host, index))
        return values.read(result[0], host.handles)
    finally:
        host.library.kw_forget_result()
        _release_all(host, block, count)
        host.running.pop()
        if host.running:
            host.library.kw_gpu_module(host.running[-1].number)


def _register_all(host: Host, items: list[Any]) -> None:
    for item in items:
        if isinstance(item, torch.Tensor):
            host.take(item)
            host.register(item, True)
        elif isinstance(item, (list, tuple)):
            _register_all(host, list(item))


def _release_all(host: Host, block: Any, count: int) -> None:
    for k in range(count):
        if block[k].tag == values.TENSOR:
            host.handles.release(block[k].i)
        elif block[k].tag in (values.LIST, values.TUPLE) and block[k].i:
            _release_all(host, (Value * block[k].i).from_address(block[k].p), block[k].i)


def name_of(host: Host, index: int) -> str:
    """Returns the name of bound function `index`."""
    return str(host.library.kw_function_name(index).decode(errors="replace"))


def _raise(host: Host, runtime: Any, function: str) -> None:
    kind = host.library.kw_error_kind()
    message = host.library.kw_error_text().decode(errors="replace")
    if kind == 4:
        _note_touched(host, runtime, function)
    if kind == 3 and host.error is not None:
        error, host.error = host.error, None
        raise error
    if kind == 1:
        raise TypeError(message)
    if kind == 5:
        raise DeviceError(message)
    raise RuntimeError(message)


def _note_touched(host: Host, runtime: Any, function: str) -> None:
    """Records the fault of host code that dereferenced a device pointer, a segmentation fault on a GPU."""
    address = host.library.kw_touched_address()
    where = next((a for a in runtime.allocations() if a.address <= address < a.address + a.nbytes), None)
    what = f"byte {address - where.address} of device memory of shape {where.name}" if where else "device memory"
    text = f"host code of {function}() reads or writes {what} through a pointer: a segmentation fault on a GPU"
    runtime.faults.append(Fault("host-access", text, function))
    runtime.findings.append(
        {"rule": "host-access", "evidence": text, "severity": "fault", "kernel": function, "line": None}
    )


_INTEGERS = (
    (r"\blong long unsigned int\b", "unsigned long long"),
    (r"\blong unsigned int\b", "unsigned long"),
    (r"\bshort unsigned int\b", "unsigned short"),
    (r"\blong long int\b", "long long"),
    (r"\blong int\b", "long"),
    (r"\blong long\b", "long"),
    (r"\bshort int\b", "short"),
    (r"\bunsigned\b(?!\s+(?:int|long|short|char))", "unsigned int"),
    (r"(?<=\d)[uUlL]+\b", ""),
)


def normalised(name: str) -> str:
    """Normalises a demangled kernel name or a name expression: no return type, parameters or blanks."""
    text = name.replace("(anonymous namespace)::", "").replace("{anonymous}::", "")
    for pattern, replacement in _INTEGERS:
        text = re.sub(pattern, replacement, text)
    depth, stop = 0, len(text)
    for k, character in enumerate(text):
        depth += {"<": 1, ">": -1}.get(character, 0)
        if character == "(" and depth == 0:
            stop = k
            break
    text = text[:stop]
    text = text.split("<", 1)[0].split(" ")[-1] + ("<" + text.split("<", 1)[1] if "<" in text else "")
    return re.sub(r"\s+", "", text).removeprefix("::")
