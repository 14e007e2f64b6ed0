"""The module object that `load_inline` returns to a candidate: compiled host functions, called in the runner.

Loads the builder's shared object, launches its kernels, and converts arguments and results. Runs only inside the
sandboxed runner, where torch is imported.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from typing import Any

import torch

from kernelwright.backends import operators, values
from kernelwright.backends.host_library import Host
from kernelwright.backends.values import Value
from kernelwright.builds import BuildRequest, BuildResult
from kernelwright.errors import DeviceError
from kernelwright.machine import Fault, LaunchAttributes, driver, ptx_signatures


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
        self._variables: dict[int, dict[str, str]] = {}
        """The variables of each program, by its `id`: their names in the PTX by those in the source."""
        self._written: dict[tuple[str, int, int], Any] = {}
        """The parts of device variables that host code wrote, by name, offset and size, with a program that has them.
        Instances that are built later get copies."""
        self.handles = bool(getattr(runtime, "handles", False))
        library = ctypes.CDLL(result.library)
        host = Host.get()
        if values.real_cuda:
            runtime.launch_counts = host.launch_counts
        if self.handles:
            host.library.kw_guard()
        host.library.kw_begin_module()
        self._library = library
        if result.ptx:
            self._add_program(result)  # raises here for unsupported PTX, as a failed build
        with host.entered(self):
            registered = operators.register(
                host.library, self._pretended(), lambda index, name: _bound(self, host, index, name)
            )
            first = host.library.kw_function_count()
            entry = _module_entry(library, result.module)
            if entry is not None:
                getattr(library, entry)()
            elif python_module or not registered:
                raise ImportError("dynamic module does not define module export function")
            self._set_attributes(host)
        for index in range(first, host.library.kw_function_count()):
            name = host.library.kw_function_name(index).decode()
            self.__dict__.setdefault(name, _bound(self, host, index, name))

    def _pretended(self) -> str:
        """Returns the dispatch key of the tensors that stand for CUDA tensors, empty if none do."""
        if self.runtime.device != "cuda":
            return ""
        return "Meta" if self.handles else "CPU"

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
        # Without `_Z` the library reads a type's code: the extern "C" kernel `f` would be called float.
        mangled = {e: demangle(e.encode()).decode() if e.startswith("_Z") else e for e in program.kernels}
        names = {entry: normalised(name) for entry, name in mangled.items()}
        self._programs.append((program, names))
        variables = ptx_signatures.variables(result.ptx or "")
        self._variables[id(program)] = {normalised(demangle(v.encode()).decode()): v for v in variables}
        for (name, offset, count), source in self._written.items():
            place = self._symbol_part(source, name, offset, count)
            if place is not None:
                self._store(program, name, offset, place, count)
        return program, names

    def _store(self, program: Any, name: str, offset: int, source: int, count: int) -> bool:
        place = self._symbol_part(program, name, offset, count)
        if place is not None:
            self._move(place, source, count)
        return place is not None

    def _move(self, to: int, source: int, count: int) -> None:
        """Copies between a device variable and host or device memory."""
        if values.real_cuda:
            driver.copy(to, source, count)
        elif self.handles:
            self.runtime.copy(to, source, count)
        else:
            ctypes.memmove(to, source, count)

    def copy_symbol(self, name: str, address: int, count: int, offset: int, to_device: bool) -> None:
        """Runs `cudaMemcpyToSymbol` or `cudaMemcpyFromSymbol`. Raises `RuntimeError` for an unknown symbol."""
        if not self._programs:
            self._add_program(self._result)
        if offset == _ADDRESS_WANTED:
            self._symbol_address(name, address)
            return
        if to_device:
            having = [p for p, _ in self._programs if self._store(p, name, offset, address, count)]
            if not having:
                raise DeviceError(f"CUDA error: invalid device symbol ({name}, {count} bytes at offset {offset})")
            self._written[name, offset, count] = having[0]
            return
        Host.get().to_host(count)
        for program, _ in self._programs:
            place = self._symbol_part(program, name, offset, count)
            if place is not None:
                self._move(address, place, count)
                return
        raise DeviceError(f"CUDA error: invalid device symbol ({name})")

    def _symbol_address(self, name: str, address: int) -> None:
        """Runs `cudaGetSymbolAddress`: stores the variable's address in the only program at `address`."""
        if len(self._programs) > 1:
            raise self._unsupported(f"cudaGetSymbolAddress({name}) with several instances")
        place = self._symbol_place(self._programs[0][0], name)
        if place is None:
            raise DeviceError(f"CUDA error: invalid device symbol ({name})")
        ctypes.c_uint64.from_address(address).value = place[0]

    def _symbol_place(self, program: Any, name: str) -> tuple[int, int] | None:
        """Returns address and bytes of a device variable by its name in host code; None if unknown. The code may name
        it from within its namespace."""
        wanted = re.sub(r"\s+", "", name).lstrip("&").removeprefix("::")
        known = self._variables[id(program)]
        within = [full for full in known if f"::{full}".endswith(f"::{wanted}")]
        full = wanted if wanted in known else within[0] if len(within) == 1 else ""
        try:
            address, nbytes = program.global_symbol(known.get(full, wanted.split("::")[-1]))
        except (KeyError, ValueError):
            return None
        return address, nbytes

    def _symbol_part(self, program: Any, name: str, offset: int, count: int) -> int | None:
        """Returns the address of a part of a device variable; None if the program has no such part."""
        place = self._symbol_place(program, name)
        return place[0] + offset if place is not None and offset + count <= place[1] else None


_ADDRESS_WANTED = 2**64 - 1


def _module_entry(library: ctypes.CDLL, name: str) -> str | None:
    """Returns the library's function that fills the module `name`, as Python's import would call it."""
    return next((entry for entry in (f"PyInit_{name}", "PyInit_kw_extension") if hasattr(library, entry)), None)


def _bound(extension: Extension, host: Host, index: int, name: str) -> Callable[..., Any]:
    """Returns a Python function that calls bound function `index` of the host library."""

    def function(*args: Any, **named: Any) -> Any:
        return _call(extension, host, index, args, named)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = host.library.kw_function_doc(index).decode(errors="replace")
    return function


def _call(extension: Extension, host: Host, index: int, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    runtime = extension.runtime
    if not extension.handles or runtime.device != "cuda":  # with handles no host function is a kernel
        runtime.own_calls += 1
    count = len(args) + len(named)
    block, names, keep = (Value * max(1, count))(), (ctypes.c_char_p * max(1, count))(), []  # type: ignore[var-annotated]
    if values.real_cuda:
        host.library.kw_gpu_stream(ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
    with host.entered(extension):
        try:
            for k, item in enumerate([*args, *named.values()]):
                values.write(block[k], item, host.handles, keep)
            for k, name in enumerate(named):
                names[len(args) + k] = name.encode()
            if values.handle_runtime is None:
                _register_all(host, [*args, *named.values()])
            host.error = None
            result = host.library.kw_call(index, block, names, count)
            if not result:
                _raise(host, runtime, name_of(host, index))
            return values.read(result[0], host.handles)
        finally:
            host.library.kw_forget_result()
            _release_all(host, block, count)


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
    what = f"device memory through a pointer ({address:#x})"
    text = f"host code of {function}() reads or writes {what}: a segmentation fault on a GPU"
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
