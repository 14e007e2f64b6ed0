"""Tensors of any size that take memory only where they are touched, and a torch mode that gives them to candidates.

A float32 tensor of 4096 x 393216 costs nothing until a kernel's block reads or writes some of it. Under
`SparseOperators` factories return sparse tensors, views work as usual, and small operators compute. An operator on more
than `SMALL` elements is skipped: its result has the right shape, strides and dtype, and zeros.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import os
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from kernelwright.evaluation.candidate import fake_cuda

SMALL = 1 << 20
"""The number of elements up to which tensors are plain and operators compute."""
_TILE = 2 << 20
_MAX_MAPPINGS = 4096
_NORESERVE = 0x4000
_FIXED = 0x10


class Undecided(RuntimeError):
    """The candidate needs a value that cannot be known without running it at this size."""


def zeros(shape: Sequence[int], dtype: torch.dtype, strides: Sequence[int] | None = None) -> torch.Tensor:
    """Returns a tensor of zeros in memory that is allocated on touch. Raises `Undecided` if not even addresses are
    left."""
    strides = _row_major(shape) if strides is None else strides
    count = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) if all(shape) else 0
    if not count:
        return torch.empty(tuple(shape), dtype=dtype)
    flat = torch.frombuffer(_reserve(count * dtype.itemsize), dtype=torch.uint8)[: count * dtype.itemsize]
    return flat.view(dtype).as_strided(tuple(shape), tuple(strides))


def filled(sample: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Returns a tensor that repeats the values of a sample of at least one element, in row-major order.

    A large one is one file mapped repeatedly, copied on write: reading all of it takes no memory.
    """
    count, values = math.prod(shape), sample.reshape(-1)
    if count <= SMALL:
        return _repeated(values, count).reshape(tuple(shape))
    nbytes = count * values.element_size()
    room = _TILE * max(1, -(-nbytes // (_TILE * _MAX_MAPPINGS)))
    buffer = _reserve(nbytes)
    tile = _repeated(values, room // values.element_size())
    with _unnamed_file() as file:
        for start in range(0, tile.numel(), SMALL):
            os.write(file, tile[start : start + SMALL].contiguous().view(torch.uint8).numpy().tobytes())
        base = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
        for offset in range(0, len(buffer), room):
            _map(base + offset, min(room, len(buffer) - offset), file)
    return torch.frombuffer(buffer, dtype=torch.uint8)[:nbytes].view(values.dtype).reshape(tuple(shape))


def _repeated(values: torch.Tensor, count: int) -> torch.Tensor:
    return values.repeat(-(-count // values.numel()))[:count].clone()


def _row_major(shape: Sequence[int]) -> list[int]:
    strides = [1] * len(shape)
    for k in range(len(shape) - 2, -1, -1):
        strides[k] = strides[k + 1] * max(1, shape[k + 1])
    return strides


def _reserve(nbytes: int) -> mmap.mmap:
    """Reserves whole pages of zeros without memory behind them yet."""
    rounded = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    try:
        made = mmap.mmap(-1, rounded, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE)
    except OSError as error:
        raise Undecided(f"{nbytes} bytes cannot even be reserved: {error.strerror}") from None
    with contextlib.suppress(OSError):
        made.madvise(mmap.MADV_NOHUGEPAGE)  # touching one byte then takes 4 KB and not 2 MB
    return made


@contextlib.contextmanager
def _unnamed_file() -> Any:
    name = f"tile-{os.getpid()}"
    file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.unlink(name)
        yield file
    finally:
        os.close(file)


@cache
def _libc_mmap() -> Any:
    function = ctypes.CDLL(None, use_errno=True).mmap
    function.restype = ctypes.c_void_p
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    return function


def _map(address: int, nbytes: int, file: int) -> None:
    """Maps the beginning of a file at an address that we have reserved."""
    flags = mmap.MAP_PRIVATE | _NORESERVE | _FIXED
    if _libc_mmap()(address, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, flags, file, 0) != address:
        raise Undecided(f"memory cannot be mapped (error {ctypes.get_errno()})")


class SparseOperators(fake_cuda.OperatorLog):
    """Operators over tensors that mostly have no memory.

    `doubtful` is true once values are not those of a whole call. An operator that then asks for a value, to decide by
    it, raises `Undecided` and sets `asked`, since everything after it would rest on a wrong value.
    """

    def __init__(self) -> None:
        super().__init__()
        self.doubtful = False
        self.asked = False

    def compute(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Runs an operator as torch does, up to `SMALL` elements and for views; beyond, returns the result's shape
        without values."""
        tensors = list(fake_cuda.tensors_in([*args, *kwargs.values()]))
        if tensors and _tells_values(func) and (self.doubtful or any(t.numel() > SMALL for t in tensors)):
            self.asked = True
            raise Undecided(f"{func} asks for values that are not there")
        if func.is_view or not _makes_tensors(func):
            return func(*args, **kwargs)
        large = any(t.numel() > SMALL for t in tensors)
        if large and func._schema.is_mutable:
            self.doubtful = True
            return _unchanged(func, args, kwargs)
        made = None if tensors and not large and not _may_grow(tensors, args) else shapes(func, args, kwargs)
        if made is None and large:
            self.asked = True
            raise Undecided(f"{func} of a tensor that is too large to compute with")
        if made is None or (not large and all(t.numel() <= SMALL for t in fake_cuda.tensors_in(made))):
            return func(*args, **kwargs)
        self.doubtful = True
        return _sparse(made)


def _tells_values(func: Any) -> bool:
    """Tells whether a result that is no tensor, or a result's shape, depends on values."""
    tags = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
    return bool(tags & set(func.tags)) or bool(func._schema.returns and not _makes_tensors(func))


def _may_grow(tensors: Sequence[torch.Tensor], args: Sequence[Any]) -> bool:
    """Tells whether a result could have more than `SMALL` elements although no input tensor has."""
    return math.prod(max(1, t.numel()) for t in tensors) > SMALL or any(isinstance(a, (list, tuple)) for a in args)


def _makes_tensors(func: Any) -> bool:
    return any("Tensor" in str(r.type) for r in func._schema.returns)


def _unchanged(func: Any, args: Any, kwargs: Any) -> Any:
    """Returns the result of an operator that writes into large tensors, without writing."""
    schema = func._schema
    written = [
        (i, a.name) for i, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write
    ]
    given = [args[i] if i < len(args) else kwargs[name] for i, name in written]
    if not schema.returns:
        return None
    return given[0] if len(schema.returns) == 1 else tuple(given)


def shapes(func: Any, args: Any, kwargs: Any) -> Any:
    """Returns an operator's result on tensors without memory; None if it cannot be known that way."""
    swapped = {k: _to_meta(v) for k, v in kwargs.items() if k != "generator"}
    if any(a.name == "device" for a in func._schema.arguments):
        swapped["device"] = torch.device("meta")
    try:
        return func(*(_to_meta(a) for a in args), **swapped)
    except Exception:
        return None


def _to_meta(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    if isinstance(value, (list, tuple)):
        return type(value)(_to_meta(v) for v in value)
    return value


def _sparse(value: Any) -> Any:
    """Returns the same nest with memory that is allocated on touch in place of none."""
    if isinstance(value, torch.Tensor):
        return zeros(value.shape, value.dtype, value.stride())
    if isinstance(value, (list, tuple)):
        return type(value)(_sparse(v) for v in value)
    return value
