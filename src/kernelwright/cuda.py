"""The plain form of a candidate: CUDA text and a launch from Python, no C++ compiler and no torch header.

    from kernelwright.cuda import Module
    module = Module(text)                                   # extern "C" or plain __global__ kernels
    module.scale[grid, block](x, y, x.numel())              # module.scale[grid, block, shared_bytes](...)
    module.get("scale<float, 256>")[grid, block](x, y, n)   # an instance of a template

Inside a runner this launches on the functional machine; elsewhere on the GPU, from the same text by the same compiler.
Arguments are tensors (their address), ints, floats and bools, each converted to the type of the kernel's parameter.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kernelwright.builds import BuildRequest, KernelBuildFailed
from kernelwright.errors import DeviceError, UsageError

_MOST_KNOWN = 256
"""The launch configurations that a kernel keeps."""
Size = int | Sequence[int]
Triple = tuple[int, int, int]

# Compiled when the warm parent imports this: patterns that are first used in a candidate's process are compiled there.
_KERNEL = re.compile(r"__global__[^;{(]*?\b(\w+)\s*\(")
_BOUNDS = re.compile(r"__(?:launch_bounds|cluster_dims|maxnreg)__\s*\([^)]*\)")
_ENTRY = re.compile(r"\.entry\s+([^\s(]++)")
_SIGNATURE = re.compile(r"\.entry\s+([^\s({]++)\s*(?:\((.*?)\))?\s*(?:\.\w+[^{]*)?\{", re.DOTALL)
_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+\d+\s+)?\.([a-z]+)(\d+)\b[^\[]*(?:\[(\d+)\])?")


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel in PTX: its size in bytes; `real` for float and double."""

    size: int
    real: bool


@dataclass(frozen=True)
class Entry:
    """A kernel ready to launch by `start(grid, block, shared_bytes, arguments as bytes)`, with its parameters."""

    name: str
    parameters: tuple[Parameter, ...]
    start: Callable[[Triple, Triple, int, Sequence[bytes]], None]
    quick: Callable[[Triple, Triple, int, tuple[Any, ...]], bool] | None = None
    """Launches with plain arguments as they are given; returns False where it cannot, and has then done nothing."""


_CODES = {
    **{Parameter(size, False): code for size, code in ((1, "b"), (2, "h"), (4, "i"), (8, "q"))},
    Parameter(4, True): "f",
    Parameter(8, True): "d",
}
"""Formats of `struct` for parameters that are numbers or pointers."""


class Kernel:
    """One kernel of a module: `kernel[grid, block](*args)`, or `kernel[grid, block, shared_bytes](*args)`.

    A fourth item, the stream, is accepted and has no effect: launches run in order on the current stream.
    """

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self._known: dict[tuple[Any, ...], Callable[..., None]] = {}
        """The launches by grid, block and bytes of shared memory, as they are written."""

    def __getitem__(self, config: tuple[Any, ...]) -> Callable[..., None]:
        try:
            return self._known[config]
        except (KeyError, TypeError):  # a list cannot be looked up
            pass
        found = self._configured(config)
        with contextlib.suppress(TypeError):
            if len(self._known) < _MOST_KNOWN:
                self._known[config] = found
        return found

    def _configured(self, config: tuple[Any, ...]) -> Callable[..., None]:
        name = self._entry.name
        if not isinstance(config, tuple) or not 2 <= len(config) <= 4:
            raise TypeError(f"{name}[grid, block] or {name}[grid, block, shared_bytes] is needed")
        grid, block = _size(config[0]), _size(config[1])
        shared = int(config[2]) if len(config) > 2 else 0
        return lambda *args: self._launch(grid, block, shared, args)

    def _launch(self, grid: Triple, block: Triple, shared: int, args: tuple[Any, ...]) -> None:
        entry = self._entry
        if entry.quick is not None and entry.quick(grid, block, shared, args):
            return
        if len(args) != len(entry.parameters):
            raise TypeError(f"{entry.name} takes {len(entry.parameters)} arguments, {len(args)} were given")
        packed = [
            _pack(value, parameter, f"argument {i} of {entry.name}")
            for i, (value, parameter) in enumerate(zip(args, entry.parameters, strict=True))
        ]
        entry.start(grid, block, shared, packed)


class Module:
    """Compiled device code; its kernels are attributes. Raises RuntimeError with the compiler's output.

    `flags` are nvcc's; flags that do not change the meaning of device code are ignored.
    """

    def __init__(self, source: str, flags: Sequence[str] = ()) -> None:
        self.source = source
        self._flags = tuple(flags)
        self._kernels: dict[str, Kernel] = {}
        self._names = _KERNEL.findall(_BOUNDS.sub("", source))
        if not self._names:
            raise ValueError("the CUDA text has no __global__ function")
        self._built = _build(source, self._flags, ()) if _runtime() is not None else None

    def __getattr__(self, name: str) -> Kernel:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.get(name)

    def get(self, name: str) -> Kernel:
        """Returns a kernel by name; `name<...>` is an instance of a template."""
        if name not in self._kernels:
            if name.split("<")[0].split("::")[-1].strip() not in self._names:
                raise AttributeError(f"the module has no kernel {name!r}; it has {', '.join(self._names)}")
            self._kernels[name] = Kernel(self.entry(name))
            if not hasattr(type(self), name):
                self.__dict__.setdefault(name, self._kernels[name])  # found at once from now on
        return self._kernels[name]

    def entry(self, name: str) -> Entry:
        """Returns the kernel as an `Entry`, whose arguments are bytes."""
        if self._built is None:
            return _on_gpu(self.source, self._flags, name)
        if name in _ENTRY.findall(self._built.ptx):  # extern "C"
            return _on_machine(self._built, name)
        return _on_machine(_build(self.source, self._flags, (name,)), name)


class TorchKernel:
    """The result of `torch.cuda._compile_kernel`; as in torch, ints are passed as C ints, floats as C doubles."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self._shared = 0

    def __call__(
        self,
        grid: Sequence[int] = (1, 1, 1),
        block: Sequence[int] = (1, 1, 1),
        args: Sequence[Any] | None = None,
        shared_mem: int = 0,
        stream: Any = None,
    ) -> None:
        parameters = self._entry.parameters
        given = list(args or ())
        if len(given) < len(parameters):
            raise DeviceError("CUDA error: invalid argument")
        packed = [_pack_as_torch(value, p.size) for value, p in zip(given, parameters, strict=False)]
        if shared_mem >= 48 << 10 and shared_mem > self._shared:
            raise RuntimeError(
                f"Kernel requires {shared_mem} bytes of shared memory (>= 48KB). "
                "Call kernel.set_shared_memory_config(shared_mem) after compilation and before launching the kernel."
            )
        self._entry.start((grid[0], grid[1], grid[2]), (block[0], block[1], block[2]), shared_mem, packed)

    def set_shared_memory_config(self, shared_mem_bytes: int) -> None:
        """Allows launches with this many bytes of dynamic shared memory."""
        self._shared = shared_mem_bytes


def compile_kernel(
    kernel_source: str,
    kernel_name: str,
    compute_capability: str | None = None,
    cuda_include_dirs: Sequence[str] | None = None,
    nvcc_options: Sequence[str] | None = None,
) -> TorchKernel:
    """Replaces `torch.cuda._compile_kernel` inside a runner."""
    return TorchKernel(Module(kernel_source, tuple(nvcc_options or ())).entry(kernel_name))


_current: Any = None
"""The runner's runtime; None outside a runner."""


def set_runtime(runtime: Any) -> None:
    """Sets the runtime that builds and launches in this process, a runner."""
    global _current
    _current = runtime


def _runtime() -> Any:
    return _current


def _build(source: str, flags: tuple[str, ...], expressions: tuple[str, ...]) -> Any:
    """Builds by the runner's builder and loads the result; raises `KernelBuildFailed`."""
    request = BuildRequest("device", cuda_source=source, cuda_flags=flags, expressions=expressions)
    result = _runtime().compile(request)
    if result.status != "ok":
        raise KernelBuildFailed(f"the CUDA text does not compile:\n{result.log}")
    _runtime().program(result)
    return result


def _on_machine(result: Any, name: str) -> Entry:
    runtime = _runtime()
    program = runtime.program(result)
    lowered = result.lowered.get(name) or name

    def start(grid: Triple, block: Triple, shared: int, args: Sequence[bytes]) -> None:
        runtime.launch(program, lowered, grid, block, shared, args)

    return Entry(name, parameters(result.ptx, lowered), start)


def _on_gpu(source: str, flags: tuple[str, ...], name: str) -> Entry:
    import torch

    if not torch.cuda.is_available():
        raise UsageError(
            "kernelwright.cuda.Module needs a GPU outside of an evaluation",
            hint="judge the file with `kernelwright eval TASK CANDIDATE`, which runs it without one",
        )
    torch.cuda.synchronize()  # makes torch's context current
    major, minor = torch.cuda.get_device_capability()
    arch = f"sm_{major}{minor}" + ("a" if major in (9, 10, 12) else "")  # with architecture-specific instructions
    ptx, lowered, program = _loaded(source, flags, name, arch, torch.cuda.current_device())
    return _entry_of(program, name, lowered, parameters(ptx, lowered))


@functools.lru_cache(maxsize=64)
def _compiled(
    source: str, flags: tuple[str, ...], expressions: tuple[str, ...], arch: str, card: int
) -> tuple[Any, Any]:
    """Returns NVRTC's result and the program loaded on a card. Raises RuntimeError with the compiler's output."""
    from kernelwright.machine.driver import DeviceProgram
    from kernelwright.machine.nvrtc import compile_ptx

    result = compile_ptx(source, arch=arch, flags=flags, expressions=expressions)
    if not result.ok:
        raise RuntimeError(f"the CUDA text does not compile:\n{result.log}")
    return result, DeviceProgram(result.cubin)


def _loaded(source: str, flags: tuple[str, ...], name: str, arch: str, card: int) -> tuple[str, str, Any]:
    """Returns the PTX with a kernel, the kernel's name there, and the loaded program. All kernels that are declared
    `extern "C"` are compiled together."""
    if re.search(r'extern\s+"C"', source) and name.isidentifier():
        result, program = _compiled(source, flags, (), arch, card)
        if name in _ENTRY.findall(result.ptx):
            return result.ptx, name, program
    result, program = _compiled(source, flags, (name,), arch, card)
    return result.ptx, result.lowered[name], program


def _entry_of(program: Any, name: str, lowered: str, known: tuple[Parameter, ...]) -> Entry:
    """Returns an entry of a program that is loaded on the GPU."""
    import torch

    from kernelwright.machine.driver import PreparedLaunch

    def start(grid: Triple, block: Triple, shared: int, args: Sequence[bytes]) -> None:
        program.launch(lowered, grid, block, shared, args, torch.cuda.current_stream().cuda_stream)

    codes = [_CODES.get(parameter, "") for parameter in known]
    if not all(codes):
        return Entry(name, known, start)
    prepared = PreparedLaunch(program, lowered, codes)
    current, raw_stream = torch._C._cuda_getDevice, torch._C._cuda_getCurrentRawStream
    tensor, reals = torch.Tensor, [parameter.real for parameter in known]

    def quick(grid: Triple, block: Triple, shared: int, args: tuple[Any, ...]) -> bool:
        if len(args) != len(reals):
            return False
        values = []
        for value, real in zip(args, reals, strict=False):
            if isinstance(value, tensor):
                if real or not value.is_cuda:
                    return False
                values.append(value.data_ptr())
            else:
                values.append(value)
        try:
            prepared((*grid, *block), shared, values, raw_stream(current()))
        except (struct.error, OverflowError):  # None, numbers that do not fit, other objects
            return False
        return True

    return Entry(name, known, start, quick)


def parameters(ptx: str, entry: str) -> tuple[Parameter, ...]:
    """Reads a kernel's parameters from its signature in PTX; raises AttributeError for an unknown kernel."""
    match = next((found for found in _SIGNATURE.finditer(ptx) if found[1] == entry), None)
    if match is None:
        raise AttributeError(f"the compiled module has no kernel {entry!r}")
    found = []
    for line in (match[2] or "").split(","):
        words = _PARAMETER.search(line)
        if words is not None:
            kind, bits, count = words.groups()
            found.append(Parameter(int(bits) // 8 * int(count or 1), kind == "f" and count is None))
    return tuple(found)


def _address(tensor: Any) -> bytes:
    runtime = _runtime()
    return struct.pack("<Q", tensor.data_ptr() if runtime is None else runtime.address_of(tensor))


def _on_host(tensor: Any) -> bool:
    """Tells whether a tensor is in host memory; without a GPU, whether the candidate put it there."""
    runtime = _runtime()
    return bool(runtime.on_host(tensor)) if runtime is not None else not tensor.is_cuda


def _pack(value: Any, parameter: Parameter, what: str) -> bytes:
    """Packs one argument into a parameter's bytes."""
    import torch

    size = parameter.size
    if isinstance(value, torch.Tensor):
        if size != 8 or parameter.real:
            raise TypeError(f"{what} is a tensor, but the parameter is no pointer")
        if _on_host(value):
            raise ValueError(f"{what} is a tensor on the host, and not on the GPU")
        return _address(value)
    if value is None and size == 8 and not parameter.real:
        return bytes(size)
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        value = value.item()
    if not isinstance(value, (bool, int, float)):
        raise TypeError(f"{what} is a {type(value).__name__}; use tensors and numbers")
    if parameter.real:
        # Through ctypes, so that a double too large for a float becomes infinite, as in C.
        return bytes(ctypes.c_double(value) if size == 8 else ctypes.c_float(value))
    if isinstance(value, float):
        raise TypeError(f"{what} is a float, but the parameter is not; let kernels take float and convert inside")
    if size > 8:
        raise TypeError(f"{what} is a number, but the parameter is a struct of {size} bytes")
    if not -(1 << (8 * size - 1)) <= value < 1 << (8 * size):
        raise OverflowError(f"{what} is {value}, which does not fit into the parameter's {size} bytes")
    # Signed and unsigned share the same encoding.
    return (int(value) & ((1 << (8 * size)) - 1)).to_bytes(size, "little")


def _pack_as_torch(value: Any, size: int) -> bytes:
    """Packs a value as torch does, as a pointer, a C int or a C double, cut or padded to `size` bytes."""
    import torch

    if isinstance(value, torch.Tensor):
        if _on_host(value) and not value.is_pinned():
            raise ValueError("All tensor arguments must be CUDA tensors or pinned CPU tensors")
        data = _address(value)
    elif isinstance(value, int):
        data = bytes(ctypes.c_int(value))
    elif isinstance(value, float):
        data = bytes(ctypes.c_double(value))
    else:
        raise TypeError(f"Unsupported argument type: {type(value)}")
    return data[:size].ljust(size, b"\0")


def _size(value: Size) -> Triple:
    """Pads one to three dimensions with ones."""
    given = (value,) if isinstance(value, int) else tuple(int(v) for v in value)
    if not 1 <= len(given) <= 3:
        raise TypeError(f"a grid or block has one to three dimensions, not {value!r}")
    return (*given, 1, 1)[:3]  # type: ignore[return-value]
