"""Writes products of 16-bit operands on tensor cores, read where they are (`device/kernelwright/halves.cuh`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from kernelwright.solutions.kernels import tiles
from kernelwright.solutions.kernels.cost import H200, CardCosts, ProductSizes
from kernelwright.solutions.kernels.stages import Epilogue

TYPES = {"half": "__half", "bfloat16": "__nv_bfloat16"}
"""The C type of 16-bit elements, by dtype."""


@dataclass(frozen=True)
class HalfShape:
    """A block's tile (128 times `groups` rows, `columns`), and its pipeline stages."""

    groups: int
    columns: int
    stages: int
    chunk: float
    """Microseconds that a block takes for 64 k."""

    @property
    def rows(self) -> int:
        return 128 * self.groups

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory (`kw::HalfTile::BYTES`)."""
        return self.stages * (self.rows + self.columns) * 128 + 1024


SHAPES = {
    "half256": HalfShape(1, 256, 4, 0.78),
    "halftall": HalfShape(2, 128, 4, 0.8),
    "half128": HalfShape(1, 128, 6, 0.45),
    "half64": HalfShape(1, 64, 6, 0.36),
}
"""Tilings of `schedule.HALVES`."""

_PRODUCT = """
#include <kernelwright/halves.cuh>
extern "C" __global__ void __launch_bounds__(384, 1) @name(@parameters) {
    @start
    auto store = [&](long long n) {
        return [=](long long m, float acc) {
            @finish
            @stored
        };
    };
    kw::HalfTile<@kind, @tile>::run({@matrix_a}, {@matrix_b}, M, N, K, store);
}
"""


def product(p: tiles.Product, tiling: str, epilogue: Epilogue, axes: Mapping[int, str]) -> tiles.Written:
    """Returns the kernel of a product in one of `SHAPES`; `p.matrices` say where its operands lie."""
    s = SHAPES[tiling]
    along = ", ".join("true" if x else "false" for x in (p.a_by_rows, not p.b_by_rows))
    marks = {"kind": p.type, "tile": f"{along}, {s.groups}, {s.columns}, {s.stages}"}
    left, right = p.matrices
    text = tiles.rendered(_PRODUCT, p, epilogue, axes, matrix_a=left, matrix_b=right, **marks)
    return tiles.Written(text, s.rows, s.columns, f"384, {s.shared}", 1, batched=p.batched)


def times(size: ProductSizes, card: CardCosts = H200) -> Mapping[str, float]:
    """Returns the estimated time of each tiling, in microseconds."""
    moved = 2 * size.batch * (size.m * size.k + size.k * size.n + size.m * size.n) / card.bytes
    found = {}
    for way, s in SHAPES.items():
        blocks = math.ceil(size.m / s.rows) * math.ceil(size.n / s.columns) * size.batch
        each = math.ceil(size.k / 64) * s.chunk + card.tile
        found[way] = max(math.ceil(blocks / card.processors) * each, moved) + card.launch
    return found


def best(size: ProductSizes, card: CardCosts = H200) -> str:
    """Returns the tiling with the least estimated time; `half128` where a size is unknown."""
    if not size.known:
        return "half128"
    estimated = times(size, card)
    return min(estimated, key=estimated.__getitem__)
