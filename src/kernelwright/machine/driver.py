"""Binds NVIDIA's driver by ctypes: loads and launches cubins, shares memory between processes, resets L2. No torch.

`DeviceProgram` is the counterpart of `Program` on a GPU. It works in the current CUDA context (torch's) and adds no
checks to the driver's. Failures raise `DeviceError`.
"""

from __future__ import annotations

import contextlib
import ctypes
import struct
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any

from kernelwright.errors import DeviceError, MachineError
from kernelwright.machine import LaunchAttributes, Variable, tensor_map
from kernelwright.machine.ptx_signatures import signatures, variables

_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_UNASKED_SHARED = 48 << 10
_ANY_CLUSTER, _PORTABLE_CLUSTER = 14, 8  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
_PROMOTE_128_BYTES = 2  # CU_TENSOR_MAP_L2_PROMOTION_L2_128B
_CLUSTER, _COOPERATIVE = 4, 2  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, _COOPERATIVE
_LAZY_PEER_ACCESS = 1  # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS


@cache
def load() -> ctypes.CDLL:
    """Loads libcuda; raises `MachineError` if it is missing."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise MachineError(f"the CUDA driver cannot be loaded: {error}", hint="install NVIDIA's driver") from None


def check(status: int) -> None:
    """Raises `DeviceError` with the driver's message if `status` is an error."""
    if status:
        text = ctypes.c_char_p()
        load().cuGetErrorString(status, ctypes.byref(text))
        raise DeviceError(f"CUDA error: {(text.value or b'unknown error').decode()}")


class IpcHandle(ctypes.Structure):
    """An IPC handle: names a device allocation so that another process can open it."""

    _fields_ = [("reserved", ctypes.c_char * 64)]

    def hex(self) -> str:
        return bytes(self).hex()


def allocate(nbytes: int) -> int:
    """Allocates `nbytes` of device memory and returns the address."""
    address = ctypes.c_uint64()
    check(load().cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(nbytes)))
    return address.value


def free(address: int) -> None:
    check(load().cuMemFree_v2(ctypes.c_uint64(address)))


def export(address: int) -> str:
    """Returns the allocation's IPC handle in hex."""
    handle = IpcHandle()
    check(load().cuIpcGetMemHandle(ctypes.byref(handle), ctypes.c_uint64(address)))
    return handle.hex()


def open_shared(handle: str) -> int:
    """Opens memory exported by another process and returns its address in this one."""
    address = ctypes.c_uint64()
    known = IpcHandle.from_buffer_copy(bytes.fromhex(handle))
    check(load().cuIpcOpenMemHandle_v2(ctypes.byref(address), known, _LAZY_PEER_ACCESS))
    return address.value


def close_shared(address: int) -> None:
    check(load().cuIpcCloseMemHandle(ctypes.c_uint64(address)))


def reset_persisting_l2() -> None:
    """Resets all persisting L2 cache lines to normal."""
    load().cuCtxResetPersistingL2Cache()


class DeviceProgram:
    """A cubin in the current context."""

    def __init__(self, cubin: bytes) -> None:
        self._module = ctypes.c_void_p()
        check(load().cuModuleLoadData(ctypes.byref(self._module), cubin))

    def launch(
        self,
        entry: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        args: Sequence[bytes],
        stream: int,
    ) -> None:
        """Launches a kernel on a stream without waiting; `args` holds the bytes of each parameter."""
        launch(self.function(entry), grid, block, shared_bytes, args, stream)

    def function(self, entry: str) -> int:
        """Returns the CUfunction of a kernel."""
        function = ctypes.c_void_p()
        check(load().cuModuleGetFunction(ctypes.byref(function), self._module, entry.encode()))
        return function.value or 0


class PreparedLaunch:
    """A kernel whose parameters are written into one buffer by one format, so that a launch costs little Python.

    `codes` are the formats of `struct` for each parameter (`q`, `f`); a parameter that no format fits has none and
    cannot be prepared.
    """

    def __init__(self, program: DeviceProgram, entry: str, codes: Sequence[str]) -> None:
        self._function = ctypes.c_void_p(program.function(entry))
        places = [8 * k for k in range(len(codes))]
        packed = "".join(f"{code}{8 - struct.calcsize(code)}x" for code in codes)
        self._format = struct.Struct(f"<{packed}")
        self._buffer = ctypes.create_string_buffer(max(8 * len(codes), 8))
        start = ctypes.addressof(self._buffer)
        self._pointers = (ctypes.c_void_p * max(len(codes), 1))(*(start + place for place in places))
        self._lock = threading.Lock()
        self._shared = _UNASKED_SHARED
        self._start = load().cuLaunchKernel
        pointer, size = ctypes.c_void_p, ctypes.c_uint
        self._start.argtypes = (pointer, *[size] * 7, pointer, pointer, pointer)

    def __call__(self, sizes: Sequence[int], shared_bytes: int, values: Sequence[int | float], stream: int) -> None:
        """Launches on a stream without waiting. `sizes`: three of the grid, three of the block.

        Raises `struct.error` or `OverflowError` for a value that does not fit its parameter.
        """
        if shared_bytes > self._shared:
            check(load().cuFuncSetAttribute(self._function, _MAX_DYNAMIC_SHARED, shared_bytes))
            self._shared = shared_bytes
        with self._lock:  # the driver copies the parameters before it returns
            self._format.pack_into(self._buffer, 0, *values)
            status = self._start(self._function, *sizes, shared_bytes, stream, self._pointers, None)
        if status:
            check(status)


def launch(
    function: int,
    grid: Sequence[int],
    block: Sequence[int],
    shared_bytes: int,
    args: Sequence[bytes],
    stream: int,
    attributes: LaunchAttributes | None = None,
) -> None:
    """Launches a CUfunction on a stream; missing dimensions of `grid` and `block` are 1."""
    if shared_bytes > _UNASKED_SHARED:
        check(load().cuFuncSetAttribute(ctypes.c_void_p(function), _MAX_DYNAMIC_SHARED, shared_bytes))
    values = [ctypes.create_string_buffer(value, len(value)) for value in args]
    pointers = (ctypes.c_void_p * max(len(values), 1))(*[ctypes.addressof(v) for v in values])
    three = [(*size, 1, 1)[:3] for size in (grid, block)]
    numbers = [int(n) for n in (*three[0], *three[1], shared_bytes)]
    if attributes is not None and attributes.cluster:
        _launch_clusters(function, numbers, pointers, stream, attributes)
        return
    sizes = [ctypes.c_uint(n) for n in numbers]
    if attributes is not None and attributes.cooperative:
        check(load().cuLaunchCooperativeKernel(ctypes.c_void_p(function), *sizes, ctypes.c_void_p(stream), pointers))
        return
    check(load().cuLaunchKernel(ctypes.c_void_p(function), *sizes, ctypes.c_void_p(stream), pointers, None))


class _LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute: its value is a union of 64 bytes."""

    _fields_ = [("number", ctypes.c_int), ("padding", ctypes.c_int), ("value", ctypes.c_uint * 16)]


class _LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        ("sizes", ctypes.c_uint * 7),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_LaunchAttribute)),
        ("count", ctypes.c_uint),
    ]


def _launch_clusters(
    function: int, sizes: Sequence[int], pointers: Any, stream: int, attributes: LaunchAttributes
) -> None:
    """Launches with a cluster's size, for which the driver has the extended launch alone. `sizes` are those of grid and
    block, and the bytes of shared memory."""
    cluster = attributes.cluster or (1, 1, 1)
    made = [_LaunchAttribute(_CLUSTER, 0, (ctypes.c_uint * 16)(*cluster))]
    if attributes.cooperative:
        made.append(_LaunchAttribute(_COOPERATIVE, 0, (ctypes.c_uint * 16)(1)))
    if cluster[0] * cluster[1] * cluster[2] > _PORTABLE_CLUSTER:
        check(load().cuFuncSetAttribute(ctypes.c_void_p(function), _ANY_CLUSTER, 1))
    array = (_LaunchAttribute * len(made))(*made)
    config = _LaunchConfig((ctypes.c_uint * 7)(*sizes), stream, array, len(made))
    check(load().cuLaunchKernelEx(ctypes.byref(config), ctypes.c_void_p(function), pointers, None))


def with_tensor_maps(data: bytes) -> bytes:
    """Returns a parameter's bytes with tensor maps of the machine's format encoded for this GPU. Raises `DeviceError`
    for a map that the driver refuses."""
    for at, one in tensor_map.found(data):
        memory = ctypes.create_string_buffer(tensor_map.SIZE + 64)
        place = ctypes.addressof(memory) + -ctypes.addressof(memory) % 64
        rank = one.rank
        wide, narrow = ctypes.c_uint64 * 5, ctypes.c_uint32 * 5
        check(
            load().cuTensorMapEncodeTiled(
                ctypes.c_void_p(place),
                one.type,
                ctypes.c_uint32(rank),
                ctypes.c_uint64(one.address),
                wide(*(last + 1 for last in one.last[:rank])),
                wide(*one.stride[: rank - 1]),
                narrow(*one.box[:rank]),
                narrow(*one.element_stride[:rank]),
                0,
                one.swizzle,
                _PROMOTE_128_BYTES,
                one.fill_nan,
            )
        )
        data = data[:at] + ctypes.string_at(place, tensor_map.SIZE) + data[at + tensor_map.SIZE :]
    return data


class LoadedModule:
    """Device code of one build. Kernel signatures are read from the PTX that accompanies the cubin."""

    def __init__(self, ptx: str, cubin: bytes) -> None:
        self._module = ctypes.c_void_p()
        check(load().cuModuleLoadData(ctypes.byref(self._module), cubin or ptx.encode() + b"\0"))
        self.kernels = signatures(ptx)
        self._names = variables(ptx)
        self._variables: dict[str, Variable] | None = None
        self._functions: dict[str, int] = {}

    def function(self, entry: str) -> int:
        """Returns the CUfunction of an entry, as an integer."""
        if entry not in self._functions:
            found = ctypes.c_void_p()
            check(load().cuModuleGetFunction(ctypes.byref(found), self._module, entry.encode()))
            self._functions[entry] = found.value or 0
        return self._functions[entry]

    def unload(self) -> None:
        """Unloads the module and frees its memory; its functions become invalid."""
        check(load().cuModuleUnload(self._module))

    def variables(self) -> dict[str, Variable]:
        """Returns each device variable that the code has, by name."""
        if self._variables is None:
            self._variables = {}
            for name, constant in self._names.items():
                with contextlib.suppress(KeyError):  # the assembler has dropped it
                    self._variables[name] = Variable(*self.global_symbol(name), constant)
        return self._variables

    def global_symbol(self, name: str) -> tuple[int, int]:
        """Returns address and size in bytes of a device variable; raises `KeyError`."""
        address, size = ctypes.c_uint64(), ctypes.c_size_t()
        if load().cuModuleGetGlobal_v2(ctypes.byref(address), ctypes.byref(size), self._module, name.encode()):
            raise KeyError(name)
        return address.value, size.value


def copy(target: int, source: int, nbytes: int) -> None:
    """Copies `nbytes` between two addresses, host or device, and waits."""
    check(load().cuMemcpy(ctypes.c_uint64(target), ctypes.c_uint64(source), ctypes.c_size_t(nbytes)))


def copy_on_device(target: int, source: int, nbytes: int, stream: int) -> None:
    """Copies `nbytes` between two device addresses on a stream, without waiting."""
    ends = ctypes.c_uint64(target), ctypes.c_uint64(source)
    check(load().cuMemcpyDtoDAsync_v2(*ends, ctypes.c_size_t(nbytes), ctypes.c_void_p(stream)))
