"""Executes cuBLAS calls of compiled host code by torch, on the caller's addresses.

Matrices are column-major, as in cuBLAS: element (i, j) lies at `address + (i + j * leading) * itemsize`; cublasLt has
row-major ones as well. Every matrix must lie in memory of the pretended device, as on a GPU; half precision accumulates
in float32, and an epilogue is applied before the result is rounded to its type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernelwright.backends import values
from kernelwright.backends.libraries.library_memory import Memory, wide

SUCCESS, INVALID_VALUE = 0, 7


class Refused(ValueError):
    """Raised for arguments for which cuBLAS returns CUBLAS_STATUS_INVALID_VALUE."""


def _gemm(dtype: torch.dtype, args: Sequence[Any], memory: Memory) -> int:
    ta, tb, m, n, k, alpha, beta, packed, count = args
    a, b, c = packed[0:4], packed[4:8], packed[8:12]
    shapes = (((k, m) if ta else (m, k)), ((n, k) if tb else (k, n)), (m, n))
    tensors = []
    for (address, leading, step, type_), (rows, columns) in zip((a, b, c), shapes, strict=True):
        if leading < max(1, rows):
            raise Refused
        kind = values.DTYPES[type_]
        assert kind is not None
        tensors.append(memory(address, (count, rows, columns), (step, 1, leading), kind))
    left = wide(tensors[0].transpose(1, 2) if ta else tensors[0])
    right = wide(tensors[1].transpose(1, 2) if tb else tensors[1])
    product = torch.matmul(left, right) * alpha
    tensors[2].copy_(product if beta == 0 else product + wide(tensors[2]) * beta)
    return SUCCESS


_RELU, _BIAS, _GELU = 2, 4, 32
"""Bits of cublasLtEpilogue_t."""


def _lt_matrix(numbers: Sequence[int], count: int, memory: Memory) -> torch.Tensor:
    """Returns a (batch, rows, columns) tensor from: address, leading, step, type, rows, columns, order."""
    address, leading, step, type_, rows, columns, order = numbers
    if leading < max(1, columns if order else rows):
        raise Refused
    kind = values.DTYPES[type_]
    assert kind is not None
    strides = (step, leading, 1) if order else (step, 1, leading)
    return memory(address, (count, rows, columns), strides, kind)


def _lt_matmul(_dtype: torch.dtype, args: Sequence[Any], memory: Memory) -> int:
    """Computes `D = epilogue(alpha * op(A) op(B) + beta * C + bias)`, one bias per row; GELU by tanh, as cuBLAS."""
    alpha, beta, packed, count = args
    ta, tb, epilogue, bias, bias_type = packed[28:]
    a, b, c, d = (_lt_matrix(packed[7 * i : 7 * i + 7], count, memory) for i in range(4))
    left = wide(a.transpose(1, 2) if ta else a)
    right = wide(b.transpose(1, 2) if tb else b)
    if left.shape[2] != right.shape[1] or (left.shape[1], right.shape[2]) != d.shape[1:] or c.shape != d.shape:
        raise Refused
    made = torch.matmul(left, right) * alpha
    made = made if beta == 0 else made + wide(c) * beta
    if epilogue & _BIAS:
        kind = values.DTYPES[bias_type]
        assert kind is not None
        made = made + wide(memory(bias, (d.shape[1],), (1,), kind))[:, None]
    if epilogue & _RELU:
        made = made.relu()
    if epilogue & _GELU:
        made = torch.nn.functional.gelu(made, approximate="tanh")
    d.copy_(made)
    return SUCCESS


def _vector(address: int, n: int, step: int, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    if step < 1:
        raise Refused
    return memory(address, (n,), (step,), dtype)


def _gemv(dtype: torch.dtype, args: Sequence[Any], memory: Memory) -> int:
    op, m, n, alpha, beta, a, leading, x, incx, y, incy = args
    matrix = memory(a, (m, n), (1, leading), dtype)
    matrix = matrix.t() if op else matrix
    target = _vector(y, matrix.shape[0], incy, dtype, memory)
    product = matrix @ _vector(x, matrix.shape[1], incx, dtype, memory) * alpha
    target.copy_(product if beta == 0 else product + target * beta)
    return SUCCESS


def _ger(dtype: torch.dtype, args: Sequence[Any], memory: Memory) -> int:
    m, n, alpha, x, incx, y, incy, a, leading = args
    outer = torch.outer(_vector(x, m, incx, dtype, memory), _vector(y, n, incy, dtype, memory))
    memory(a, (m, n), (1, leading), dtype).add_(outer, alpha=alpha)
    return SUCCESS


def _geam(dtype: torch.dtype, args: Sequence[Any], memory: Memory) -> int:
    ta, tb, m, n, alpha, a, lda, beta, b, ldb, c, ldc = args
    target = memory(c, (m, n), (1, ldc), dtype)
    total = target.new_zeros((m, n))
    for scale, transposed, address, leading in ((alpha, ta, a, lda), (beta, tb, b, ldb)):
        if scale != 0:
            shape = (n, m) if transposed else (m, n)
            part = memory(address, shape, (1, leading), dtype)
            total += (part.t() if transposed else part) * scale
    target.copy_(total)
    return SUCCESS


def _axpy(dtype: torch.dtype, args: Sequence[Any], memory: Memory) -> int:
    n, alpha, x, incx, y, incy = args
    _vector(y, n, incy, dtype, memory).add_(_vector(x, n, incx, dtype, memory), alpha=alpha)
    return SUCCESS


def _scal(dtype: torch.dtype, args: Sequence[Any], memory: Memory) -> int:
    n, alpha, x, incx = args
    _vector(x, n, incx, dtype, memory).mul_(alpha)
    return SUCCESS


def _copy(dtype: torch.dtype, args: Sequence[Any], memory: Memory) -> int:
    n, x, incx, y, incy = args
    _vector(y, n, incy, dtype, memory).copy_(_vector(x, n, incx, dtype, memory))
    return SUCCESS


def _dot(dtype: torch.dtype, args: Sequence[Any], memory: Memory) -> float:
    n, x, incx, y, incy = args
    return float(torch.dot(_vector(x, n, incx, dtype, memory), _vector(y, n, incy, dtype, memory)))


def _nrm2(dtype: torch.dtype, args: Sequence[Any], memory: Memory) -> float:
    n, x, incx = args
    return float(_vector(x, n, incx, dtype, memory).norm())


def _asum(dtype: torch.dtype, args: Sequence[Any], memory: Memory) -> float:
    n, x, incx = args
    return float(_vector(x, n, incx, dtype, memory).abs().sum())


_ROUTINES: dict[str, Callable[[torch.dtype, Sequence[Any], Memory], int | float]] = {
    "ltmatmul": _lt_matmul,
    "gemm": _gemm,
    "gemv": _gemv,
    "ger": _ger,
    "geam": _geam,
    "axpy": _axpy,
    "scal": _scal,
    "copy": _copy,
    "dot": _dot,
    "nrm2": _nrm2,
    "asum": _asum,
}


def run(name: str, args: Sequence[Any], memory: Memory) -> tuple[int | float, int]:
    """Executes a cuBLAS routine; returns its status or number, and the count of elements that it wrote.

    `args`: the element type's number, then what `cublas.h` passes for that routine.
    """
    dtype = values.DTYPES[args[0]]
    assert dtype is not None
    routine = next(key for key in sorted(_ROUTINES, key=len, reverse=True) if key in name.lower())
    if routine == "gemm":
        made = args[3] * args[4] * args[9]
    elif routine == "ltmatmul":
        made = args[3][25] * args[3][26] * args[4]  # rows and columns of D, batches
    else:
        made = max(1, *(a for a in args[1:6] if isinstance(a, int) and 0 <= a < 2**31))
    try:
        return _ROUTINES[routine](dtype, args[1:], memory), made
    except Refused:
        return INVALID_VALUE, 0
