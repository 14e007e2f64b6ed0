"""Writes products of a large matrix and a few rows or columns (`device/kernelwright/skinny.cuh`)."""

from __future__ import annotations

from collections.abc import Mapping

from kernelwright.solutions.kernels import tiles
from kernelwright.solutions.kernels.cost import ProductSizes
from kernelwright.solutions.kernels.stages import Epilogue

MOST_ROWS = 32
"""Rows of the small matrix that a block takes."""
_KERNEL = """
#include <kernelwright/skinny.cuh>
extern "C" __global__ void __launch_bounds__(256) @name(@parameters) {
    @start
    auto store = [&](@order, float acc) {
        @finish
        @stored
    };
    kw::Skinny<@along, @rows>::run({@small}, {@large}, @bounds, K, store);
}
"""


def product(p: tiles.Product, size: ProductSizes, epilogue: Epilogue, axes: Mapping[int, str]) -> tiles.Written:
    """Returns the kernel; the operand with fewer rows or columns is the small one."""
    left, right = p.matrices
    swapped = size.known and size.n < size.m
    few = min(size.m, size.n) if size.known else MOST_ROWS // 4
    rows = min(MOST_ROWS, 1 << (few - 1).bit_length())
    along = p.a_by_rows if swapped else not p.b_by_rows
    marks = {
        "order": "long long n, long long m" if swapped else "long long m, long long n",
        "along": "true" if along else "false",
        "rows": str(rows),
        "small": right if swapped else left,
        "large": left if swapped else right,
        "bounds": "N, M" if swapped else "M, N",
    }
    text = tiles.rendered(_KERNEL, p, epilogue, axes, **marks)
    columns = 4 if along else 32
    tile = (columns, rows) if swapped else (rows, columns)
    return tiles.Written(text, *tile, "256", 1, batched=p.batched)
