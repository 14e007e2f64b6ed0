"""Estimates the time of ways to compute products and convolutions, so that a schedule's `auto` takes the fastest.

The estimate rests on a card's speeds (`CardCosts`): waves of blocks, each with a fixed cost and one for each
chunk of 64 k; packing and output at the speed of memory; launches. Times are in microseconds. Sizes
that the text does not give are -1, for which no estimate is made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from kernelwright.solutions.kernels.split.products import SHAPES, SplitShape


@dataclass(frozen=True)
class CardCosts:
    """A card's speeds (`docs/tile_library.md`): measured, or guessed for ways that no card has timed."""

    processors: int = 132
    bytes: float = 3.2e6
    """Bytes a microsecond that a kernel reads and writes."""
    launch: float = 3.0
    chunk: float = 0.6
    """The tensor cores' time for 64 rows by 128 columns by 64 k as three f16 products."""
    gather: float = 1.95
    """The time to gather 128 pixels by 64 channels of a split image."""
    compute: float = 4.0
    """The time to read 128 columns by 64 k in place and split them."""
    tile: float = 7.0
    """The start and the end of a block."""
    register_flops: float = 19e6
    """Operations a microsecond of the register-tiled kernels (`double64`)."""
    shared_flops: float = 7e6
    """The same for one result a thread (`shared16`)."""
    window_flops: float = 25e6
    """The same for the convolutions of `window` and the products of `skinny`: a guess."""
    vector_flops: float = 20e6
    """The same for the products of `vector`: a guess."""
    cached_bytes: float = 6e6
    """Bytes a microsecond that a kernel reads again from the second-level cache."""


H200 = CardCosts()


@dataclass(frozen=True)
class ProductSizes:
    """A product's sizes: rows, columns, summed length, products of a batch."""

    m: int
    n: int
    k: int
    batch: int = 1

    @property
    def known(self) -> bool:
        return min(self.m, self.n, self.k, self.batch) > 0


def split_time(size: ProductSizes, shape: SplitShape, copy: float = 0.0, card: CardCosts = H200) -> float:
    """Returns the time of the product kernel alone. `copy`: the time that a block's last warpgroup takes to bring 128
    columns by 64 k into shared memory; it copies while the others multiply."""
    blocks = math.ceil(size.m / shape.rows) * math.ceil(size.n / shape.columns) * shape.split * size.batch
    beside = 2 if shape.groups == 1 else 1
    waves = math.ceil(blocks / (card.processors * beside))
    width = shape.columns / 128
    chunk = max(card.chunk * beside * shape.groups * width, copy * width**0.7)
    each = math.ceil(size.k / 64 / shape.split) * chunk + card.tile * (1 + (shape.split > 1))
    return max(waves * each, 4 * size.m * size.n * size.batch / card.bytes)


def product_times(
    size: ProductSizes, along_k: bool = False, kept: bool = False, card: CardCosts = H200
) -> Mapping[str, float]:
    """Returns the estimated time of each tiling. `along_k`: neighbouring k of the right operand are adjacent. `kept`:
    the right operand is a weight, which is packed once."""
    flops = 2.0 * size.m * size.n * size.k * size.batch
    floor = 4 * size.batch * (size.m * size.k + size.k * size.n + size.m * size.n) / card.bytes
    found = {}
    for way, edge, speed in (("shared16", 16, card.shared_flops), ("double64", 64, card.register_flops)):
        blocks = math.ceil(size.m / edge) * math.ceil(size.n / edge) * size.batch
        used = min(1.0, blocks / card.processors) * min(1.0, size.m / edge) * min(1.0, size.n / edge)
        found[way] = max(flops / speed / used, floor) + card.launch
    blocks = math.ceil(size.m / 128) * math.ceil(size.n / 64) * size.batch
    used = min(1.0, blocks / (2 * card.processors)) * min(1.0, size.m / 128) * min(1.0, size.n / 64)
    found["vector"] = max(flops / card.vector_flops / used, floor * 1.1) + card.launch
    few, many = sorted((size.m, size.n))
    if few <= 32:
        along = along_k or size.n < size.m
        blocks = math.ceil(many / (4 if along else 32)) * size.batch
        used = min(1.0, blocks / card.processors) * few / (1 << (few - 1).bit_length())
        used *= min(1.0, size.k / (128 if along else 32))
        found["skinny"] = max(flops / card.window_flops, floor * 1.1) / used + card.launch
    for way, shape in SHAPES.items():
        left, right = (8 * size.batch * size.k * n / card.bytes for n in (size.m, size.n))
        if not shape.computed:
            found[way] = (
                split_time(size, shape, 0.0, card) + left + (2 * card.launch if kept else right + 3 * card.launch)
            )
        elif not along_k:
            found[way] = split_time(size, shape, card.compute, card) + left + 2 * card.launch
    return found


def best_product(size: ProductSizes, along_k: bool = False, kept: bool = False, card: CardCosts = H200) -> str:
    """Returns the tiling with the least estimated time; `double64` where a size is unknown."""
    if not size.known:
        return "double64"
    times = product_times(size, along_k, kept, card)
    return min(times, key=times.__getitem__)


@dataclass(frozen=True)
class ConvolutionSizes:
    """A convolution's sizes: output channels and input channels of a group, groups, places of the window that a result
    reads, output and input places of all images."""

    out: int
    channels: int
    groups: int
    places: int
    outputs: int
    inputs: int
    results: int = 0
    """Output channels of a thread in the way `window`; 0 where that way does not fit."""

    @property
    def known(self) -> bool:
        return min(self.out, self.channels, self.groups, self.places, self.outputs, self.inputs) > 0


def convolution_times(
    size: ConvolutionSizes, most_places: int, kept: bool = False, card: CardCosts = H200
) -> Mapping[str, float]:
    """Returns the estimated time of each way. The `read` ways tell at most `most_places` places apart. `kept`: the
    weights are packed once."""
    summed = size.channels * size.places
    flops = 2.0 * size.out * size.groups * size.outputs * summed
    moved = 4 * size.groups * (size.out * size.outputs + size.channels * size.inputs) / card.bytes
    results = size.out * size.outputs * size.groups
    found = {"weights": max(flops / 6e6 / min(1.0, results / (1024 * card.processors)), moved * 1.5) + card.launch}
    if size.results and size.groups > 1:  # other ways are measured for one group
        sides = math.ceil(size.out / size.results)
        used = min(1.0, results / (4 * 1024 * card.processors)) * size.out / (sides * size.results)
        again = 4 * size.groups * size.channels * size.inputs * (sides - 1) / card.cached_bytes
        found["window"] = max(flops / card.window_flops / used, moved * 1.1 + again) + card.launch
    for way, edge, speed in (("gemm64", 64, 14e6), ("gemm128", 128, 16e6)):
        blocks = math.ceil(size.outputs / edge) * math.ceil(size.out / edge) * size.groups
        used = min(1.0, size.out / edge) * min(1.0, size.outputs / edge)
        found[way] = max(flops / speed / used / min(1.0, blocks / card.processors), moved) + card.launch
    for way, shape in SHAPES.items():
        if shape.computed and size.places > most_places:
            continue
        chunks = math.ceil(summed / 64) if shape.computed else size.places * math.ceil(size.channels / 64)
        product = ProductSizes(size.out, size.outputs, 64 * chunks, size.groups)
        weights = 0.0 if kept else 8 * size.out * size.groups * 64 * chunks / card.bytes + card.launch
        if shape.computed:
            found[way] = split_time(product, shape, card.compute, card) + weights + 2 * card.launch
        else:
            image = (4 * size.channels + 256 * math.ceil(size.channels / 64)) * size.inputs * size.groups / card.bytes
            found[way] = split_time(product, shape, card.gather, card) + weights + image + 2 * card.launch
    return found


def best_convolution(size: ConvolutionSizes, most_places: int, kept: bool = False, card: CardCosts = H200) -> str:
    """Returns the way with the least estimated time; `gemm64` where a size is unknown."""
    if not size.known:
        return "gemm64"
    times = convolution_times(size, most_places, kept, card)
    return min(times, key=times.__getitem__)
