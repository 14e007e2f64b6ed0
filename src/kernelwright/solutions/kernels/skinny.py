"""Writes products whose operands are read where they are, 16 bytes at a time.

One way suits a large matrix and a few rows or columns (`device/kernelwright/skinny.cuh`), the other short sums and many
small products (`device/kernelwright/matrix.cuh`).
"""

from __future__ import annotations

from collections.abc import Mapping

from kernelwright.solutions.kernels import tiles
from kernelwright.solutions.kernels.cost import ProductSizes
from kernelwright.solutions.kernels.stages import Epilogue

MOST_ROWS = 32
"""Rows of the small matrix that a block takes."""
_KERNEL = """
#include <kernelwright/skinny.cuh>
extern "C" __global__ void __launch_bounds__(@threads) @name(@parameters) {
    @start
    auto store = [&](@order, float acc) {
        @finish
        @stored
    };
    kw::Skinny<@along, @rows, @warps>::run({@small}, {@large}, @bounds, K, store);
}
"""


def product(p: tiles.Product, size: ProductSizes, epilogue: Epilogue, axes: Mapping[int, str]) -> tiles.Written:
    """Returns the kernel; the operand with fewer rows or columns is the small one."""
    left, right = p.matrices
    swapped = size.known and size.n < size.m
    few = min(size.m, size.n) if size.known else MOST_ROWS // 4
    rows = min(MOST_ROWS, 1 << (few - 1).bit_length())
    along = p.a_by_rows if swapped else not p.b_by_rows
    warps = min(8, 1 << (max(1, size.k // (128 if along else 16)) - 1).bit_length()) if size.known else 8
    marks = {
        "threads": str(32 * warps),
        "warps": str(warps),
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
    return tiles.Written(text, *tile, str(32 * warps), 1, batched=p.batched)


_VECTOR = """
#include <kernelwright/matrix.cuh>
extern "C" __global__ void __launch_bounds__(128) @name(@parameters) {
    @start
    auto finish = [&](long long m, long long n, float& result) {
        float acc = result;
        kw::Result y{result};
        @finish
        @stored
    };
    kw::VectorTile<@layouts>::run({@left}, {@right}, @output, M, N, K, finish);
}
"""


def vector(p: tiles.Product, epilogue: Epilogue, axes: Mapping[int, str]) -> tiles.Written:
    """Returns a kernel whose threads compute 8 by 8 results from registers."""
    along = (p.a_by_rows, not p.b_by_rows)
    marks = {
        "layouts": ", ".join("true" if side else "false" for side in along),
        "left": p.matrices[0],
        "right": p.matrices[1],
        "output": "y + blockIdx.z * (long long)M * N" if p.batched else "y",
    }
    text = tiles.rendered(_VECTOR, p, epilogue, axes, **marks)
    return tiles.Written(text, 128, 64, "128", 1, batched=p.batched)
