"""Writes kernels for products of matrices, from one thread a result to register tiles and tensor cores.

Each is a text with marks (`@name`). The caller, which knows the operands, fills in `@left[m|k]` and the like
(`products` for matrices, `convolution` for convolutions as products). m, n and k are the row, the column and the summed
index, M, N and K their bounds. Sums are float32 in the order of k; tails are guarded. The grid is (row tiles, column
tiles, batch).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kernelwright.solutions.kernels.stages import Epilogue

NAIVE = """
extern "C" __global__ void @name(@parameters) {
    long long m = blockIdx.x * 16LL + threadIdx.y, n = blockIdx.y * 16LL + threadIdx.x;
    @start
    if (m >= M || n >= N) return;
    float acc = 0.0f;
    for (int k = 0; k < K; ++k) acc += @left[m|k] * @right[k|n];
    @finish
    @stored
}
"""

SHARED = """
extern "C" __global__ void @name(@parameters) {
    __shared__ float ta[@T][@T], tb[@T][@T];
    int tx = threadIdx.x, ty = threadIdx.y;
    long long m = blockIdx.x * @TLL + ty, n = blockIdx.y * @TLL + tx;
    @start
    float acc = 0.0f;
    for (int k0 = 0; k0 < K; k0 += @T) {
        ta[ty][tx] = m < M && k0 + tx < K ? @left[m|(k0 + tx)] : 0.0f;
        tb[ty][tx] = k0 + ty < K && n < N ? @right[(k0 + ty)|n] : 0.0f;
        __syncthreads();
        for (int k = 0; k < @T; ++k) acc += ta[ty][k] * tb[k][tx];
        __syncthreads();
    }
    if (m >= M || n >= N) return;
    @finish
    @stored
}
"""

# Both operands lie by rows along k, so that both tiles are loaded by rows.
ROWS = """
extern "C" __global__ void @name(@parameters) {
    __shared__ float sx[16][16], sw[16][17];
    int tx = threadIdx.x, ty = threadIdx.y;
    long long m = blockIdx.x * 16LL + ty, n = blockIdx.y * 16LL + tx, r = blockIdx.y * 16LL + ty;
    float acc = 0.0f;
    for (int k = tx; k - tx < K; k += 16) {
        sx[ty][tx] = m < M && k < K ? @left[m|k] : 0.0f;
        sw[ty][tx] = r < N && k < K ? @right[k|r] : 0.0f;
        __syncthreads();
        for (int j = 0; j < 16; ++j) acc += sx[ty][j] * sw[tx][j];
        __syncthreads();
    }
    if (m >= M || n >= N) return;
    @finish
    @stored
}
"""

# Each of `threads` threads computes TM neighbouring rows and TN columns that lie a stride apart (no bank conflicts).
_REGISTERS = """
for (int k = 0; k < @BK; ++k) {
    float fa[@TM], fb[@TN];
#pragma unroll
    for (int i = 0; i < @TM; ++i) fa[i] = ta@now[k][row + i];
#pragma unroll
    for (int j = 0; j < @TN; ++j) fb[j] = tb@now[k][column + j * @CT];
#pragma unroll
    for (int i = 0; i < @TM; ++i)
#pragma unroll
        for (int j = 0; j < @TN; ++j) sums[i][j] += fa[i] * fb[j];
}
"""
_RESULTS = """
for (int j = 0; j < @TM * @TN; ++j) {
    long long m = m0 + row + j / @TN, n = n0 + column + j % @TN * @CT;
    if (m >= M || n >= N) continue;
    float acc = sums[j / @TN][j % @TN];
    @finish
    @stored
}
"""
REGISTER = """
extern "C" __global__ void __launch_bounds__(@threads) @name(@parameters) {
    __shared__ float ta[@BK][@BM + 4], tb[@BK][@BN];
    int t = threadIdx.x, row = t / @CT * @TM, column = t % @CT;
    long long m0 = blockIdx.x * @BMLL, n0 = blockIdx.y * @BNLL;
    @start
    float sums[@TM][@TN] = {};
    for (int k0 = 0; k0 < K; k0 += @BK) {
        for (int i = t; i < @BM * @BK; i += @threads) {
            int k = k0 + @ak;
            long long m = m0 + @am;
            ta[k - k0][m - m0] = m < M && k < K ? @left[m|k] : 0.0f;
        }
        for (int i = t; i < @BK * @BN; i += @threads) {
            int k = k0 + @bk;
            long long n = n0 + @bn;
            tb[k - k0][n - n0] = k < K && n < N ? @right[k|n] : 0.0f;
        }
        __syncthreads();
        @multiply
        __syncthreads();
    }
#pragma unroll
    @results
}
"""
DOUBLE = """
extern "C" __global__ void __launch_bounds__(@threads) @name(@parameters) {
    __shared__ float ta[2][@BK][@BM + 4], tb[2][@BK][@BN];
    int t = threadIdx.x, row = t / @CT * @TM, column = t % @CT;
    long long m0 = blockIdx.x * @BMLL, n0 = blockIdx.y * @BNLL;
    @start
    float sums[@TM][@TN] = {}, next_a[@LA], next_b[@LB];
    for (int k0 = -@BK; k0 < K; k0 += @BK) {
        int now = k0 / @BK & 1;
#pragma unroll
        for (int s = 0; s < @LA; ++s) {
            int i = t + s * @threads, k = k0 + @BK + @ak;
            long long m = m0 + @am;
            next_a[s] = m < M && k < K ? @left[m|k] : 0.0f;
        }
#pragma unroll
        for (int s = 0; s < @LB; ++s) {
            int i = t + s * @threads, k = k0 + @BK + @bk;
            long long n = n0 + @bn;
            next_b[s] = k < K && n < N ? @right[k|n] : 0.0f;
        }
        if (k0 >= 0) {
            @multiply
        }
#pragma unroll
        for (int s = 0; s < @LA; ++s) {
            int i = t + s * @threads;
            ta[now ^ 1][@ak][@am] = next_a[s];
        }
#pragma unroll
        for (int s = 0; s < @LB; ++s) {
            int i = t + s * @threads;
            tb[now ^ 1][@bk][@bn] = next_b[s];
        }
        __syncthreads();
    }
#pragma unroll
    @results
}
"""
TENSOR = """
#include <@header>
#include <mma.h>
extern "C" __global__ void __launch_bounds__(256) @name(@parameters) {
    using namespace nvcuda::wmma;
    __shared__ @type ta[64][40], tb[32][72];
    __shared__ float out[64][68];
    int t = threadIdx.x, warp = t / 32, row = warp / 2 * 16, column = warp % 2 * 32;
    long long m0 = blockIdx.x * 64LL, n0 = blockIdx.y * 64LL;
    @start
    fragment<accumulator, 16, 16, 16, float> sums[2];
    fill_fragment(sums[0], 0.0f);
    fill_fragment(sums[1], 0.0f);
    for (int k0 = 0; k0 < K; k0 += 32) {
        for (int i = t; i < 64 * 32; i += 256) {
            long long m = m0 + i / 32, n = n0 + i % 64;
            int k = k0 + i % 32;
            ta[i / 32][i % 32] = m < M && k < K ? @left[m|k] : @type(0.0f);
            k = k0 + i / 64;
            tb[i / 64][i % 64] = k < K && n < N ? @right[k|n] : @type(0.0f);
        }
        __syncthreads();
        for (int k = 0; k < 32; k += 16) {
            fragment<matrix_a, 16, 16, 16, @type, row_major> fa;
            load_matrix_sync(fa, &ta[row][k], 40);
            for (int j = 0; j < 2; ++j) {
                fragment<matrix_b, 16, 16, 16, @type, row_major> fb;
                load_matrix_sync(fb, &tb[k][column + j * 16], 72);
                mma_sync(sums[j], fa, fb, sums[j]);
            }
        }
        __syncthreads();
    }
    for (int j = 0; j < 2; ++j) store_matrix_sync(&out[row][column + j * 16], sums[j], 68, mem_row_major);
    __syncthreads();
    for (int j = t; j < 64 * 64; j += 256) {
        long long m = m0 + j / 64, n = n0 + j % 64;
        if (m >= M || n >= N) continue;
        float acc = out[j / 64][j % 64];
        @finish
        @stored
    }
}
"""


@dataclass(frozen=True)
class Product:
    """The operands and the output of a product, as CUDA text."""

    parameters: str
    """The kernel's parameters; the epilogue's are appended."""
    left: Callable[[str, str], str]
    """Returns the left operand at (m, k); used inside the bounds only."""
    right: Callable[[str, str], str]
    """Returns the right operand at (k, n)."""
    index: str
    """The linear index of a result in the output, from m and n."""
    start: str = ""
    """The first statements of the kernel, e.g. the offsets of this batch's operands."""
    finish: str = ""
    """A statement that adds to `acc` before the epilogue, e.g. a bias."""
    type: str = "float"
    """C type of the operands where tensor cores take them: __half or __nv_bfloat16."""
    a_by_rows: bool = True
    """True where neighbouring k of the left operand are adjacent in memory, False where neighbouring m are."""
    b_by_rows: bool = True
    """True where neighbouring n of the right operand are adjacent in memory, False where neighbouring k are."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Python text of each parameter, for further kernels that take some of them."""
    batched: bool = False
    """True where blockIdx.z counts `Z` products."""
    matrices: tuple[str, str] = ("", "")
    """C text of both operands for `kw::Matrix`: the pointer, the steps of a row (or column) and of k."""


@dataclass(frozen=True)
class TileShape:
    """A block's tile (rows, columns, depth in elements) and the results of a thread along rows and columns."""

    bm: int
    bn: int
    bk: int
    tm: int
    tn: int

    @property
    def threads(self) -> int:
        return self.bm // self.tm * (self.bn // self.tn)


SHAPES = {
    "register32": TileShape(32, 32, 16, 2, 2),
    "register64": TileShape(64, 64, 16, 4, 4),
    "register128": TileShape(128, 128, 8, 8, 8),
    "wide": TileShape(32, 128, 16, 4, 4),
    "double64": TileShape(64, 64, 16, 4, 4),
    "double128": TileShape(128, 128, 8, 8, 8),
}


@dataclass(frozen=True)
class Written:
    """Kernels as text with `@name` still open, and the launch of the last: a block's tile, its threads as Python
    text."""

    text: str
    rows: int
    columns: int
    block: str
    """With a comma and the bytes of dynamic shared memory where the kernel needs any."""
    split: int = 0
    """Blocks that share a tile in a grid of one dimension; 0 for a grid over row tiles and column tiles."""
    before: str = ""
    """Lines of Python before the launch, with marks."""
    first: str = ""
    """Arguments before the product's own, with a comma after."""
    batched: bool = False
    """True where the grid's third size is a batch."""
    right: str = ""
    """Further lines that pack the right operand, which may be kept where it is a weight; `@device` bears its device."""

    @property
    def grid(self) -> str:
        """Python text of the grid over M and N, without brackets; a batch follows as the third size."""
        down, across = (f"(X + {n - 1}) // {n}" for n in (self.rows, self.columns))
        down, across = down.replace("X", "M"), across.replace("X", "N")
        if not self.split:
            return f"{down}, {across}"
        line = f"{down} * ({across})" + (f" * {self.split}" if self.split > 1 else "")
        return f"{line}, 1" if self.batched else line


def product(p: Product, tiling: str, epilogue: Epilogue, axes: Mapping[int, str]) -> Written:
    """Returns the kernel of a product in one of `schedule.PRODUCTS`, or `rows`: both operands lie by rows along k."""
    if tiling in ("naive", "rows"):
        text = NAIVE if tiling == "naive" else ROWS
        return Written(rendered(text, p, epilogue, axes), 16, 16, "(16, 16)")
    if tiling.startswith("shared"):
        edge = int(tiling.removeprefix("shared"))
        return Written(rendered(SHARED, p, epilogue, axes, T=str(edge)), edge, edge, f"({edge}, {edge})")
    if tiling == "tensor":
        header = "cuda_fp16.h" if p.type == "__half" else "cuda_bf16.h"
        return Written(rendered(TENSOR, p, epilogue, axes, header=header, type=p.type), 64, 64, "256")
    s = SHAPES[tiling]
    double = tiling.startswith("double")
    marks = {
        **{"BM": str(s.bm), "BN": str(s.bn), "BK": str(s.bk), "TM": str(s.tm), "TN": str(s.tn)},
        **{"CT": str(s.bn // s.tn), "threads": str(s.threads), "now": "[now]" if double else ""},
        **{"LA": str(s.bm * s.bk // s.threads), "LB": str(s.bk * s.bn // s.threads)},
        "am": f"i / {s.bk}" if p.a_by_rows else f"i % {s.bm}",
        "ak": f"i % {s.bk}" if p.a_by_rows else f"i / {s.bm}",
        "bk": f"i / {s.bn}" if p.b_by_rows else f"i % {s.bk}",
        "bn": f"i % {s.bn}" if p.b_by_rows else f"i / {s.bk}",
    }
    text = put(DOUBLE if double else REGISTER, multiply=_REGISTERS, results=_RESULTS)
    return Written(rendered(text, p, epilogue, axes, **marks), s.bm, s.bn, str(s.threads))


def rendered(text: str, p: Product, epilogue: Epilogue, axes: Mapping[int, str], **marks: str) -> str:
    """Fills in a kernel's operands, its epilogue and other marks; `@name` stays open."""
    text = re.sub(r"@left\[(.*?)\|(.*?)\]", lambda m: p.left(m[1], m[2]), text)
    text = re.sub(r"@right\[(.*?)\|(.*?)\]", lambda m: p.right(m[1], m[2]), text)
    marks = {"start": p.start, "finish": p.finish, **marks}
    return fuse(put(text, **marks), p.parameters, epilogue, p.index, axes)


def put(text: str, **marks: str) -> str:
    """Fills in `@name` marks. A mark on a line of its own takes that line's indent; an empty one removes the line."""
    for name in sorted(marks, key=len, reverse=True):
        value = marks[name].strip("\n").split("\n")

        def lines(own: re.Match[str], value: list[str] = value) -> str:
            return "".join(line + "\n" if line.startswith("#") else own[1] + line + "\n" for line in value if line)

        text = re.sub(rf"^( *)@{name}\n", lines, text, flags=re.MULTILINE)
        text = text.replace(f"@{name}", marks[name])
    return text


def fuse(
    text: str, parameters: str, epilogue: Epilogue, index: str, axes: Mapping[int, str], variable: str = "i"
) -> str:
    """Fills in `@stored`, a line of its own, with the epilogue's statements for `acc`, and `@parameters`.

    `index` is the C text of the result's linear index; a variable holds it unless it is an identifier.
    """
    before, after = text.split("@stored\n")
    indent = " " * (len(before) - len(before.rstrip(" ")))
    before = before.rstrip(" ")
    taken = tuple(set(re.findall(r"[A-Za-z_]\w*", text + parameters + index)))
    if not index.isidentifier():
        before += f"{indent}long long {variable} = {index};\n"
        index = variable
    stored = epilogue.store("y", "acc", index, indent, axes, taken)
    return before.replace("@parameters", parameters + epilogue.parameters) + stored + "\n" + after
