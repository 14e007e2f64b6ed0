"""Launches on a real GPU through NVIDIA's driver: a loaded cubin, and kernels with arguments as bytes.

The counterpart of `Program` where there is a device. It uses the CUDA context that torch has made current, and checks
nothing that the driver does not.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache

from kernelwright.errors import MachineError

_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_UNASKED_SHARED = 48 << 10


@cache
def _driver() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise MachineError(f"the CUDA driver cannot be loaded: {error}", hint="install NVIDIA's driver") from None


def _check(status: int) -> None:
    if status:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(status, ctypes.byref(text))
        raise RuntimeError(f"CUDA error: {(text.value or b'unknown error').decode()}")


class DeviceProgram:
    """A cubin in the current context. Raises RuntimeError ("CUDA error: ...") for what the driver refuses."""

    def __init__(self, cubin: bytes) -> None:
        self._module = ctypes.c_void_p()
        _check(_driver().cuModuleLoadData(ctypes.byref(self._module), cubin))

    def launch(
        self,
        entry: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        args: Sequence[bytes],
        stream: int,
    ) -> None:
        """Starts a kernel on a stream and does not wait for it; `args` holds the bytes of each parameter."""
        function = ctypes.c_void_p()
        _check(_driver().cuModuleGetFunction(ctypes.byref(function), self._module, entry.encode()))
        if shared_bytes > _UNASKED_SHARED:
            _check(_driver().cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED, shared_bytes))
        values = [ctypes.create_string_buffer(value, len(value)) for value in args]
        pointers = (ctypes.c_void_p * max(len(values), 1))(*[ctypes.addressof(v) for v in values])
        sizes = [ctypes.c_uint(size) for size in (*grid, *block, shared_bytes)]
        _check(_driver().cuLaunchKernel(function, *sizes, ctypes.c_void_p(stream), pointers, None))
