"""Converts between Python values and the C structures of `host_include/kw/value.h`. Runs in the runner only."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import torch

from kernelwright.backends.host_memory import HOST

ABSENT, NONE, TENSOR, INT, DOUBLE, BOOL, STR, INTS, DOUBLES, TENSORS, DTYPE, DEVICE, OPTIONS, LAYOUT = range(14)
MEMORY_FORMAT, LIST, TUPLE, SLICE, ELLIPSIS, DICT = range(14, 20)

_DTYPE_NAMES = (
    "uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool qint8 quint8 qint32"
    " bfloat16 quint4x2 quint2x4 bits1x8 bits2x4 bits4x2 bits8 bits16 float8_e5m2 float8_e4m3fn"
    " float8_e5m2fnuz float8_e4m3fnuz uint16 uint32 uint64"
).split()
DTYPES: tuple[torch.dtype | None, ...] = tuple(getattr(torch, name, None) for name in _DTYPE_NAMES)
DTYPE_NUMBERS = {dtype: number for number, dtype in enumerate(DTYPES) if dtype is not None}
MEMORY_FORMATS = (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)


class Value(ctypes.Structure):
    """One tagged value; `value.h` documents the fields that each tag uses."""

    _fields_ = [
        ("tag", ctypes.c_int32),
        ("aux", ctypes.c_int32),
        ("i", ctypes.c_int64),
        ("d", ctypes.c_double),
        ("p", ctypes.c_void_p),
    ]


class Meta(ctypes.Structure):
    """A tensor's metadata, cached by compiled code."""

    _fields_ = [
        ("handle", ctypes.c_int64),
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("dim", ctypes.c_int32),
        ("flags", ctypes.c_int32),
        ("element_size", ctypes.c_int32),
        ("numel", ctypes.c_int64),
        ("storage_offset", ctypes.c_int64),
        ("sizes", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
    ]


class Config(ctypes.Structure):
    """A launch configuration; `shared` in bytes, `cluster` all zeros if the launch sets none."""

    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint64),
        ("cluster", ctypes.c_uint * 3),
        ("cooperative", ctypes.c_uint),
    ]


class Options(NamedTuple):
    """`torch::TensorOptions` as compiled code built it."""

    dtype: torch.dtype | None
    cuda: bool
    device_given: bool
    requires_grad: bool
    format: torch.memory_format | None = None
    pinned: bool = False


real_cuda = False
"""Tells whether tensors are on a real GPU."""
handle_runtime: Any = None
"""The runtime of the running call if its CUDA tensors are handles: of device `meta`, with an address and no bytes here.

Without it and without a real GPU, all tensors are in host memory, and CUDA tensors are only marked so.
"""


_without_functions: Any = torch._C.DisableTorchFunction
"""Captured at import, before a candidate can patch it."""


def on_cuda(tensor: torch.Tensor, marked: bool) -> bool:
    """Tells whether a tensor counts as a CUDA tensor; `marked` is the answer where only a mark tells."""
    if real_cuda:
        return tensor.is_cuda
    if handle_runtime is None:
        return marked
    with _without_functions():  # torch's modes answer for the device that a handle stands for
        return tensor.is_meta


class DeviceValue(NamedTuple):
    """`torch::Device`."""

    cuda: bool


class Handles:
    """Tensors held by compiled code, by handle, with a reference count and the simulated device."""

    def __init__(self) -> None:
        self._tensors: dict[int, tuple[torch.Tensor, bool]] = {}
        self._counts: dict[int, int] = {}
        self._next = 1

    def add(self, tensor: torch.Tensor, cuda: bool) -> int:
        """Returns a new handle with a reference count of one."""
        handle, self._next = self._next, self._next + 1
        self._tensors[handle] = (tensor, on_cuda(tensor, cuda))
        self._counts[handle] = 1
        return handle

    def retain(self, handle: int) -> None:
        self._counts[handle] += 1

    def release(self, handle: int) -> None:
        count = self._counts.get(handle, 0) - 1
        if count > 0:
            self._counts[handle] = count
        else:
            self._counts.pop(handle, None)
            self._tensors.pop(handle, None)

    def tensor(self, handle: int) -> torch.Tensor:
        return self._tensors[handle][0]

    def is_cuda(self, handle: int) -> bool:
        return self._tensors[handle][1]

    def __len__(self) -> int:
        return len(self._tensors)

    def meta(self, handle: int, keep: list[Any]) -> Meta:
        """Returns a handle's metadata; appends the memory that it points to to `keep`."""
        tensor, cuda = self._tensors[handle]
        with _without_functions():
            return _meta(handle, tensor, cuda, keep)


def _meta(handle: int, tensor: torch.Tensor, cuda: bool, keep: list[Any]) -> Meta:
    sizes = (ctypes.c_int64 * tensor.dim())(*tensor.shape)
    strides = (ctypes.c_int64 * tensor.dim())(*tensor.stride())
    flags = int(cuda) | (2 if tensor.requires_grad else 0) | (4 if tensor.is_contiguous() else 0)
    if tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last):
        flags |= 8
    elif tensor.dim() == 5 and tensor.is_contiguous(memory_format=torch.channels_last_3d):
        flags |= 8
    meta = Meta(
        handle,
        address(tensor) or None,
        DTYPE_NUMBERS[tensor.dtype],
        tensor.dim(),
        flags,
        tensor.element_size(),
        tensor.numel(),
        tensor.storage_offset(),
        sizes,
        strides,
    )
    keep += [sizes, strides, meta]
    return meta


def address(tensor: torch.Tensor) -> int:
    """Returns the address of a tensor's first element, 0 for an empty tensor."""
    if not tensor.numel() or handle_runtime is None:
        return tensor.data_ptr()
    return int(handle_runtime.address_of(tensor))


def read(value: Value, handles: Handles) -> Any:
    """Returns the Python value of one argument from compiled code."""
    tag = value.tag
    if tag in (ABSENT, NONE):
        return None
    if tag == TENSOR:
        return handles.tensor(value.i)
    if tag == INT:
        return value.i
    if tag == DOUBLE:
        return value.d
    if tag == BOOL:
        return bool(value.i)
    if tag == DTYPE:
        return DTYPES[value.i]
    if tag == STR:
        return ctypes.string_at(value.p, value.i).decode(errors="replace")
    if tag == DEVICE:
        return DeviceValue(bool(value.i))
    if tag == OPTIONS:
        dtype = DTYPES[value.i] if value.i >= 0 else None
        format_ = MEMORY_FORMATS[(value.aux >> 4) - 1] if value.aux >> 4 else None
        cuda, requires_grad, device_given, pinned = (bool(value.aux >> k & 1) for k in range(4))
        return Options(dtype, cuda, device_given, requires_grad, format_, pinned)
    if tag == MEMORY_FORMAT:
        return MEMORY_FORMATS[value.i]
    if tag == LAYOUT:
        return torch.strided
    if tag == ELLIPSIS:
        return ...
    return _read_list(value, handles)


def _read_list(value: Value, handles: Handles) -> Any:
    count = value.i
    if value.tag == INTS:
        return list((ctypes.c_int64 * count).from_address(value.p)) if count else []
    if value.tag == DOUBLES:
        return list((ctypes.c_double * count).from_address(value.p)) if count else []
    if value.tag == TENSORS:
        numbers = (ctypes.c_int64 * count).from_address(value.p) if count else []
        return [handles.tensor(n) if n else None for n in numbers]
    if value.tag == SLICE:
        parts = (ctypes.c_int64 * 3).from_address(value.p)
        return slice(*(None if value.aux >> k & 1 else parts[k] for k in range(3)))
    items = (Value * count).from_address(value.p) if count else []
    out = [read(item, handles) for item in items]
    if value.tag == DICT:
        return dict(zip(out[::2], out[1::2], strict=True))
    return tuple(out) if value.tag == TUPLE else out


def write(value: Value, item: Any, handles: Handles, keep: list[Any], cuda: bool = True) -> None:
    """Stores a Python value into `value`. Raises `TypeError` for types that compiled code cannot take.

    `keep` must outlive the use of `value`. A tensor gets a new handle whose single reference belongs to the caller.
    """
    if isinstance(item, torch.Tensor):
        handle = handles.add(item, cuda and item not in HOST)
        value.tag, value.i = TENSOR, handle
        value.p = ctypes.addressof(handles.meta(handle, keep))
    elif item is None:
        value.tag = NONE
    elif isinstance(item, bool):
        value.tag, value.i = BOOL, int(item)
    elif isinstance(item, int):
        if not -(2**63) <= item < 2**64:
            raise TypeError(f"the int {item} does not fit 64 bits")
        value.tag, value.i = INT, item if item < 2**63 else item - 2**64
    elif isinstance(item, float):
        value.tag, value.d = DOUBLE, item
    elif isinstance(item, str):
        text = item.encode()
        keep.append(ctypes.create_string_buffer(text))
        value.tag, value.i, value.p = STR, len(text), ctypes.addressof(keep[-1])
    elif isinstance(item, torch.dtype):
        value.tag, value.i = DTYPE, DTYPE_NUMBERS[item]
    elif isinstance(item, torch.device):
        value.tag, value.i = DEVICE, int(item.type in ("cuda", "meta"))  # a handle's device is `meta`
        value.aux = -1 if item.index is None else item.index
    elif isinstance(item, (list, tuple, dict)):
        items = [part for pair in item.items() for part in pair] if isinstance(item, dict) else item
        values = (Value * max(1, len(items)))()
        keep.append(values)
        for k, one in enumerate(items):
            write(values[k], one, handles, keep, cuda)
        value.tag = DICT if isinstance(item, dict) else TUPLE if isinstance(item, tuple) else LIST
        value.i, value.p = len(items), ctypes.addressof(values)
    elif hasattr(item, "item") and getattr(item, "ndim", None) == 0:
        write(value, item.item(), handles, keep, cuda)  # a numpy scalar
    else:
        raise TypeError(f"a {type(item).__name__} cannot be passed to a C++ function")
