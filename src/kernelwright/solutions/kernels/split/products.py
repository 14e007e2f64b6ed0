"""Writes float32 products on tensor cores: both operands packed as pairs of f16 (`device/kernelwright/product.cuh`).

Three kernels: two pack the operands, the third multiplies. The error is below that of float32 instructions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kernelwright.solutions.kernels import tiles
from kernelwright.solutions.kernels.stages import Epilogue

CHUNK_BYTES = 2 * 64 * 64 * 2 + 64 * 4
"""Bytes of a packed chunk of 64 rows by 64 k (`kw::CHUNK_BYTES`)."""


@dataclass(frozen=True)
class SplitShape:
    """A block's tile (64 times `groups` rows, `columns`), its pipeline stages, and the blocks that share a tile's k."""

    groups: int
    columns: int
    stages: int
    split: int = 1
    computed: bool = False
    """True where the right operand is read in place, and not packed before."""

    @property
    def rows(self) -> int:
        return 64 * self.groups

    @property
    def threads(self) -> int:
        return 128 * (self.groups + 1)

    @property
    def bounds(self) -> str:
        """The arguments of `__launch_bounds__`: two blocks of one group share a multiprocessor."""
        return f"{self.threads}, {2 if self.groups == 1 else 1}"

    @property
    def tile(self) -> str:
        """The arguments of `kw::SplitTile`."""
        numbers = (self.groups, self.columns, self.stages, *([self.split] if self.split > 1 else []))
        return ", ".join(map(str, numbers))

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory (`kw::SplitTile::BYTES`)."""
        return self.stages * (self.groups + self.columns // 64) * CHUNK_BYTES + 1024


SHAPES = {
    "split1": SplitShape(1, 128, 2),
    "split64": SplitShape(2, 64, 4),
    "split128": SplitShape(2, 128, 3),
    "split192": SplitShape(3, 128, 2),
    "deep2": SplitShape(2, 64, 4, 2),
    "deep4": SplitShape(2, 64, 4, 4),
    "deep8": SplitShape(2, 64, 4, 8),
    "read1": SplitShape(1, 128, 2, computed=True),
    "read64": SplitShape(2, 64, 4, computed=True),
    "read128": SplitShape(2, 128, 3, computed=True),
    "readdeep4": SplitShape(2, 64, 4, 4, computed=True),
}
"""Tilings of `schedule.SPLITS`; `deep` ones split k, `read` ones pack the left operand alone."""

_PACK = """
#include <kernelwright/product.cuh>
extern "C" __global__ void __launch_bounds__(256) @name_@side(@parameters, void* packed, int k_chunks) {
    @start
    kw::pack<@along>(packed, k_chunks, [&](long long @row, int k) {
        return @row < @rows && k < K ? @read : 0.0f;
    });
}
"""
_PRODUCT = """
extern "C" @cluster__global__ void __launch_bounds__(@bounds) @name(@packed, @parameters) {
    @start
    auto exact = [&](long long m, long long n) {
        float acc = 0.0f;
        for (int k = 0; k < K; ++k) acc += @left[m|k] * @right[k|n];
        return acc;
    };
    auto store = [&](long long n) {
        return [=](long long m, float acc) {
            @finish
            @stored
        };
    };
    @read_right
    kw::SplitTile<@tile>::run(left, @right_operand, M, N, k_chunks, store, exact);
}
"""
_HOST = """
k_chunks = (K + 63) // 64
left = torch.empty(@batch((M + @above) // @rows) * @groups * k_chunks * @bytes, dtype=torch.uint8, device=@y.device)
kernels.@name_left[@left_grid, 256](@left_arguments, left, k_chunks)
"""
_RIGHT = """
right = torch.empty(@batch((N + @beyond) // @columns) * @chunks * k_chunks * @bytes, dtype=torch.uint8, device=@device)
kernels.@name_right[@right_grid, 256](@right_arguments, right, k_chunks)
"""


def product(p: tiles.Product, tiling: str, epilogue: Epilogue, axes: Mapping[int, str]) -> tiles.Written:
    """Returns the three kernels of a product in one of `SHAPES`, and the lines that pack its operands."""
    s = SHAPES[tiling]
    left, left_arguments = _pack(p, "left")
    right, right_arguments = _pack(p, "right")
    cluster = f"__cluster_dims__({s.split}, 1, 1) " if s.split > 1 else ""
    operand = {
        "read_right": "",
        "right_operand": "kw::Packed{right}",
        "packed": "const void* left, const void* right, int k_chunks",
    }
    if s.computed:
        operand = {
            "read_right": _READ,
            "right_operand": f"kw::computed<{_along(p, False)}>(read)",
            "packed": "const void* left, int k_chunks",
        }
        operand["read_right"] = tiles.put(_READ, read=p.right("k", "n"))
    text = tiles.rendered(_PRODUCT, p, epilogue, axes, tile=s.tile, bounds=s.bounds, cluster=cluster, **operand)
    numbers = {"rows": s.rows, "above": s.rows - 1, "groups": s.groups, "columns": s.columns, "beyond": s.columns - 1}
    chunks = f"{{}}.numel() // {CHUNK_BYTES}"
    grid = f"({chunks} // Z, 1, Z)" if p.batched else chunks
    marks = dict(
        left_grid=grid.format("left"),
        right_grid=grid.format("right"),
        left_arguments=left_arguments,
        right_arguments=right_arguments,
        batch="Z * " if p.batched else "",
        bytes=str(CHUNK_BYTES),
        chunks=str(s.columns // 64),
        **{name: str(value) for name, value in numbers.items()},
    )
    before, after = tiles.put(_HOST, **marks), "" if s.computed else tiles.put(_RIGHT, **marks)
    block = f"{s.threads}, {s.shared}"
    first = "left, k_chunks, " if s.computed else "left, right, k_chunks, "
    packs = left if s.computed else left + right
    return tiles.Written(packs + text, s.rows, s.columns, block, s.split, before, first, p.batched, after)


def kept_right(written: tiles.Written, name: str) -> str:
    """Returns a Python function that packs a weight [N, K], the right operand of kernel `name`."""
    lines = tiles.put(written.right.strip("\n"), name=name, device="w.device", w="w").split("\n")
    body = ["N, K = w.shape", "k_chunks = (K + 63) // 64", *lines, "return right"]
    return "\n".join([f"def pack_{name}(w):", *(f"    {line}" for line in body)])


_READ = """
auto read = [&](long long n) {
    return [=](int k) { return n < N && k < K ? @read : 0.0f; };
};
"""


def _along(p: tiles.Product, left: bool) -> str:
    """Returns the C truth value of: neighbouring k are adjacent in memory."""
    return "true" if (p.a_by_rows if left else not p.b_by_rows) else "false"


def _pack(p: tiles.Product, side: str) -> tuple[str, str]:
    """Returns the kernel that packs an operand, and its arguments in Python."""
    is_left = side == "left"
    read = p.left("m", "k") if is_left else p.right("k", "n")
    used = set(re.findall(r"\w+", f"{read} {p.start} K {'M' if is_left else 'N'}"))
    given = [text for text in p.parameters.split(", ") if text.split()[-1] in used]
    marks = {
        "side": side,
        "parameters": ", ".join(given),
        "start": p.start,
        "along": _along(p, is_left),
        "row": "m" if is_left else "n",
        "rows": "M" if is_left else "N",
        "read": read,
    }
    text = _PACK if is_left else _PACK.replace("#include <kernelwright/product.cuh>\n", "")
    return tiles.put(text, **marks), ", ".join(p.arguments[text.split()[-1]] for text in given)
