"""The devices that run a case: the functional machine, or a GPU through the driver. Outputs are bytes."""

from __future__ import annotations

import ctypes
import struct
from typing import Protocol

import numpy as np

from kernelwright.machine import Allocation, LaunchOptions, Program
from kernelwright.machine import driver as gpu

from .case import THREADS, VERSION, Case


class Refused(Exception):
    """The device rejects this kernel; the message gives the reason."""


class Device(Protocol):
    name: str

    def run(self, case: Case, inputs: list[np.ndarray]) -> list[np.ndarray]: ...


class Machine:
    """The functional machine."""

    name = "machine"

    def run(self, case: Case, inputs: list[np.ndarray]) -> list[np.ndarray]:
        """The outputs; raises `UnsupportedPTX` for what the machine does not know."""
        arrays = [*(a.copy() for a in inputs), *case.memory(inputs)]
        table = [Allocation(a.ctypes.data, a.nbytes, f"array {k}") for k, a in enumerate(arrays)]
        args = [struct.pack("<Q", a.ctypes.data) for a in arrays]
        grid = (case.count // THREADS, 1, 1)
        options = LaunchOptions(detect_races=False)
        Program.load(case.ptx()).launch("k", grid, (THREADS, 1, 1), args, 0, table, options)
        return arrays[len(inputs) :]


_ERROR_LOG, _ERROR_LOG_BYTES = 5, 6  # CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES
_ROOM = 1 << 20


class Graphics:
    """The first GPU, with memory for one case at a time."""

    name = "gpu"

    def __init__(self) -> None:
        library, device, context = gpu.load(), ctypes.c_int(), ctypes.c_void_p()
        gpu.check(library.cuInit(0))
        gpu.check(library.cuDeviceGet(ctypes.byref(device), 0))
        gpu.check(library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
        gpu.check(library.cuCtxSetCurrent(context))
        self._memory = gpu.allocate(_ROOM)
        title, version = ctypes.create_string_buffer(100), ctypes.c_int()
        gpu.check(library.cuDeviceGetName(title, 100, device))
        gpu.check(library.cuDriverGetVersion(ctypes.byref(version)))
        self.name = f"{title.value.decode()}, driver for CUDA {version.value // 1000}.{version.value % 1000 // 10}"
        self.version = self._highest()

    def _highest(self) -> str:
        """Returns the newest PTX version that the driver accepts, at most ours."""
        plain = Case("probe", ("b32",), ("b32",), "mov.b32 d0, a0;")
        for version in (VERSION, "8.5", "8.4", "8.3", "8.0"):
            try:
                self._unload(self._load(plain.ptx(version)))
                return version
            except Refused as refused:
                problem = str(refused)
        raise RuntimeError(f"the driver takes no PTX: {problem}")

    def _load(self, ptx: str) -> ctypes.c_void_p:
        module, log = ctypes.c_void_p(), ctypes.create_string_buffer(4000)
        options = (ctypes.c_int * 2)(_ERROR_LOG, _ERROR_LOG_BYTES)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), len(log))
        if status := gpu.load().cuModuleLoadDataEx(ctypes.byref(module), ptx.encode() + b"\0", 2, options, values):
            words = " ".join(log.value.decode(errors="replace").split())
            raise Refused(f"status {status}: {words[:200]}")
        return module

    def _unload(self, module: ctypes.c_void_p) -> None:
        gpu.check(gpu.load().cuModuleUnload(module))

    def run(self, case: Case, inputs: list[np.ndarray]) -> list[np.ndarray]:
        """The outputs; raises `Refused` when the driver does not take the kernel."""
        module = self._load(case.ptx(self.version))
        arrays = [np.ascontiguousarray(a) for a in (*inputs, *case.memory(inputs))]
        places, at = [], self._memory
        for array in arrays:
            places.append(at)
            at += -(-array.nbytes // 256) * 256
            gpu.check(gpu.load().cuMemcpyHtoD_v2(ctypes.c_uint64(places[-1]), array.ctypes.data_as(ctypes.c_void_p),
                                                 ctypes.c_size_t(array.nbytes)))  # fmt: skip
        function = ctypes.c_void_p()
        gpu.check(gpu.load().cuModuleGetFunction(ctypes.byref(function), module, b"k"))
        args = [struct.pack("<Q", place) for place in places]
        gpu.launch(function.value or 0, (case.count // THREADS,), (THREADS,), 0, args, 0)
        gpu.check(gpu.load().cuCtxSynchronize())
        outputs = []
        for array, place in list(zip(arrays, places, strict=True))[len(inputs) :]:
            made = np.empty_like(array)
            gpu.check(gpu.load().cuMemcpyDtoH_v2(made.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint64(place),
                                                 ctypes.c_size_t(made.nbytes)))  # fmt: skip
            outputs.append(made)
        self._unload(module)
        return outputs
