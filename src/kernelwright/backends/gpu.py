"""The CUDA runtime of a runner on a real GPU: the functional machine's interface, carried out by the driver.

Compiled host code launches an extension's kernels (`host_include/kw/kwhost/gpu.cpp`). It asks here only for functions
that it does not know yet. The runtime makes no checks beyond the driver's.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from kernelwright.builds import BuildRequest, BuildResult
from kernelwright.machine import LaunchAttributes, driver
from kernelwright.machine.runtime import CallFacts, LaunchRecord

_PLAIN = LaunchAttributes()


def architecture() -> str:
    """Returns NVRTC's name for the current device, including architecture-specific instructions (`sm_90a`)."""
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}" + ("a" if major in (9, 10, 12) else "")


class GpuRuntime:
    """Builds, loaded modules and launches of one runner. `build` sends a request to the builder."""

    def __init__(self, build: Callable[[BuildRequest], BuildResult]) -> None:
        torch.zeros(1, device="cuda")  # makes torch's context the driver's current one
        self._build = build
        self.device = "cuda"
        self.builds: list[BuildResult] = []
        self.findings: list[dict[str, Any]] = []
        self.faults: list[Any] = []
        self.unsupported: list[str] = []
        self.compile_errors: list[dict[str, Any]] = []
        self.library_ops: list[tuple[str, int]] = []
        self.own_calls = 0
        self.printed: list[str] = []
        """Nothing: device printf writes to the process's own output."""
        self.adopt: Callable[[Any], None] = lambda _tensor: None
        self.launch_counts: Callable[[], dict[str, int]] = dict
        """Returns launches by compiled host code since its previous call, by kernel; set by the first extension."""
        self._direct: dict[str, int] = {}
        self._modules: dict[str, driver.LoadedModule] = {}

    def compile(self, request: BuildRequest) -> BuildResult:
        """Builds for this device; records the result even if the candidate ignores it."""
        result = self._build(dataclasses.replace(request, arch=architecture()))
        self.builds.append(result)
        return result

    def program(self, result: BuildResult) -> driver.LoadedModule:
        """Returns the loaded device code of a build."""
        key = result.cubin or result.ptx or ""
        if key not in self._modules:
            cubin = base64.b64decode(result.cubin) if result.cubin else b""
            self._modules[key] = driver.LoadedModule(result.ptx or "", cubin)
        return self._modules[key]

    def on_host(self, tensor: torch.Tensor) -> bool:
        """Tells whether a tensor is in host memory, which device code cannot access."""
        return not tensor.is_cuda

    def given(self, inputs: Iterable[torch.Tensor], weights: Iterable[torch.Tensor]) -> None:
        """Does nothing, as `register`."""

    def address_of(self, tensor: torch.Tensor) -> int:
        """Returns the address of a tensor's first element."""
        return int(tensor.data_ptr())

    def register(self, tensor: torch.Tensor) -> None:
        """Does nothing: device code may access all device memory."""

    def launch(
        self,
        program: driver.LoadedModule,
        kernel: str,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        shared_bytes: int,
        args: Sequence[bytes],
        *,
        own_shared: bool = True,
        attributes: LaunchAttributes = _PLAIN,
    ) -> None:
        """Launches a kernel on the current stream. Raises `DeviceError`."""
        self.prepared(program, kernel, grid, block, shared_bytes, args, attributes=attributes)()
        self._direct[kernel] = self._direct.get(kernel, 0) + 1

    def prepared(
        self,
        program: driver.LoadedModule,
        kernel: str,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        shared_bytes: int,
        args: Sequence[bytes],
        *,
        own_shared: bool = True,
        attributes: LaunchAttributes = _PLAIN,
    ) -> Callable[[], None]:
        """Returns a function that launches a kernel on the present stream, and does not count it. Raises
        `DeviceError`, as the function does."""
        stream = torch.cuda.current_stream().cuda_stream
        function, data = program.function(kernel), [driver.with_tensor_maps(value) for value in args]
        return functools.partial(driver.launch, function, grid, block, shared_bytes, data, stream, attributes)

    def begin_call(self, seed: int = 0) -> None:
        """Begins to count launches; no schedule of the GPU follows from `seed`."""
        self.launch_counts()
        self._direct = {}
        self.library_ops = []
        self.own_calls = 0

    def end_call(self) -> CallFacts:
        """Returns the launches since `begin_call`. Bytes written are not measured on a GPU."""
        counts = {**self._direct, **self.launch_counts()}
        launches = [LaunchRecord(kernel, count) for kernel, count in counts.items() if count]
        return CallFacts(launches, self.own_calls, {0: 1} if launches else {})
