"""The plain form of a candidate: CUDA text and a launch from Python, no C++ compiler and no torch header.

    from kernelwright.cuda import Module
    module = Module(text)                                   # extern "C" or plain __global__ kernels
    module.scale[grid, block](x, y, x.numel())              # module.scale[grid, block, shared_bytes](...)
    module.get("scale<float, 256>")[grid, block](x, y, n)   # an instance of a template

Inside a runner this launches on the functional machine; elsewhere on the GPU, through torch's own run-time compiler.
Arguments are tensors (their address), ints, floats and bools, each converted to the size of the kernel's parameter.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

from kernelwright.builds import BuildRequest
from kernelwright.errors import UsageError

Size = int | Sequence[int]


class Kernel:
    """One kernel of a module: `kernel[grid, block](*args)`, or `kernel[grid, block, shared_bytes](*args)`."""

    def __init__(self, name: str, launch: Callable[..., None]) -> None:
        self.name = name
        self._launch = launch

    def __getitem__(self, config: tuple[Any, ...]) -> Callable[..., None]:
        if not isinstance(config, tuple) or not 2 <= len(config) <= 4:
            raise TypeError(f"{self.name}[grid, block] or {self.name}[grid, block, shared_bytes] is needed")
        grid, block = _size(config[0]), _size(config[1])
        shared = int(config[2]) if len(config) > 2 else 0
        return lambda *args: self._launch(grid, block, shared, args)

    def __call__(self, grid: Size, block: Size, args: Sequence[Any], shared_mem: int = 0, stream: Any = None) -> None:
        """The calling convention of `torch.cuda._compile_kernel`."""
        self._launch(_size(grid), _size(block), int(shared_mem), tuple(args))


class Module:
    """Compiled device code; its kernels are attributes. Raises RuntimeError with the compiler's output."""

    def __init__(self, source: str, flags: Sequence[str] = ()) -> None:
        self.source = source
        self._flags = tuple(flags)
        self._kernels: dict[str, Kernel] = {}
        self._names = re.findall(
            r"__global__[^;{(]*?\b(\w+)\s*\(", re.sub(r"__launch_bounds__\s*\([^)]*\)", "", source)
        )
        if not self._names:
            raise ValueError("the CUDA text has no __global__ function")
        if _runtime() is not None:
            self._compile(())

    def __getattr__(self, name: str) -> Kernel:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.get(name)

    def get(self, name: str) -> Kernel:
        """A kernel by name; `name<...>` is an instance of a template."""
        if name not in self._kernels:
            if name.split("<")[0] not in self._names:
                raise AttributeError(f"the module has no kernel {name!r}; it has {', '.join(self._names)}")
            self._kernels[name] = self._make(name)
        return self._kernels[name]

    def _make(self, name: str) -> Kernel:
        if _runtime() is None:
            return _on_gpu(self.source, name)
        program, entry, ptx = self._compile((name,))
        return Kernel(name, _launcher(program, entry, name, ptx))

    def _compile(self, expressions: tuple[str, ...]) -> tuple[Any, str, str]:
        runtime = _runtime()
        request = BuildRequest("device", cuda_source=self.source, cuda_flags=self._flags, expressions=expressions)
        result = runtime.compile(request)
        if result.status != "ok":
            from kernelwright.machine.runtime import KernelBuildFailed

            raise KernelBuildFailed(f"the CUDA text does not compile:\n{result.log}")
        program = runtime.program(result)
        entry = result.lowered.get(expressions[0], expressions[0]) if expressions else ""
        return program, entry, result.ptx or ""


def compile_kernel(
    kernel_source: str,
    kernel_name: str,
    compute_capability: str | None = None,
    cuda_include_dirs: Any = None,
    nvcc_options: Sequence[str] | None = None,
    **_ignored: Any,
) -> Kernel:
    """Stands in for `torch.cuda._compile_kernel` inside a runner."""
    return Module(kernel_source, tuple(nvcc_options or ())).get(kernel_name)


def _runtime() -> Any:
    """The runner's runtime, or None outside of one. Imported late: it needs the machine."""
    import sys

    found = sys.modules.get("kernelwright.machine.runtime")
    return found.current() if found is not None else None


def _launcher(program: Any, entry: str, name: str, ptx: str) -> Callable[..., None]:
    if entry not in program.kernels:
        near = [k for k in program.kernels if name in k]
        if not near:
            raise AttributeError(f"the compiled module has no kernel {name!r}")
        entry = near[0]
    sizes = [size for size, _align in program.kernels[entry].params]
    floats = _float_parameters(ptx, entry, len(sizes))

    def launch(grid: tuple[int, ...], block: tuple[int, ...], shared: int, args: tuple[Any, ...]) -> None:
        if len(args) != len(sizes):
            raise TypeError(f"{name} takes {len(sizes)} arguments, {len(args)} were given")
        runtime = _runtime()
        packed = [
            _pack(runtime, value, size, real, f"argument {i} of {name}")
            for i, (value, size, real) in enumerate(zip(args, sizes, floats, strict=True))
        ]
        runtime.launch(program, entry, grid, block, shared, packed)

    return launch


def _float_parameters(ptx: str, entry: str, count: int) -> list[bool]:
    """Which of a kernel's parameters are floating, from its PTX signature."""
    match = re.search(rf"\.entry\s+{re.escape(entry)}\s*\((.*?)\)", ptx, re.DOTALL)
    kinds = re.findall(r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)", match[1]) if match else []
    return [k in ("f32", "f64") for k in kinds] if len(kinds) == count else [False] * count


def _pack(runtime: Any, value: Any, size: int, real: bool, what: str) -> bytes:
    """One argument as the bytes of a parameter of `size` bytes; `real` where the parameter is a float or a double."""
    import torch

    if isinstance(value, torch.Tensor):
        if size != 8 or real:
            raise TypeError(f"{what} is a tensor, but the parameter is no pointer")
        runtime.register(value)
        return struct.pack("<Q", value.data_ptr())
    if value is None:
        return bytes(size)
    if hasattr(value, "item"):
        value = value.item()
    if not isinstance(value, (bool, int, float)):
        raise TypeError(f"{what} is a {type(value).__name__}; use tensors and numbers")
    if real:
        return struct.pack("<d" if size == 8 else "<f", float(value))
    if isinstance(value, float):
        if size != 2:
            raise TypeError(f"{what} is a float, but the parameter is an integer")
        return struct.pack("<e", value)
    # Unsigned and signed have the same bytes; masking lets both ranges through.
    return (int(value) & ((1 << (8 * size)) - 1)).to_bytes(size, "little")


def _on_gpu(source: str, name: str) -> Kernel:
    import torch

    if not torch.cuda.is_available():
        raise UsageError(
            "kernelwright.cuda.Module needs a GPU outside of an evaluation",
            hint="judge the file with `kernelwright eval TASK CANDIDATE`, which runs it without one",
        )
    compiled: Any = torch.cuda._compile_kernel(source, name)  # type: ignore[attr-defined]

    def launch(grid: tuple[int, ...], block: tuple[int, ...], shared: int, args: tuple[Any, ...]) -> None:
        compiled(grid=grid, block=block, args=list(args), shared_mem=shared)

    return Kernel(name, launch)


def _size(value: Size) -> tuple[int, int, int]:
    """One to three dimensions, filled up with ones."""
    given = (value,) if isinstance(value, int) else tuple(int(v) for v in value)
    if not 1 <= len(given) <= 3:
        raise TypeError(f"a grid or block has one to three dimensions, not {value!r}")
    return (*given, 1, 1)[:3]  # type: ignore[return-value]
