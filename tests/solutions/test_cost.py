"""The estimated times by which a schedule's `auto` chooses."""

from __future__ import annotations

import pytest

from kernelwright.solutions.kernels.cost import (
    CardCosts,
    ConvolutionSizes,
    ProductSizes,
    best_convolution,
    best_product,
    convolution_times,
    product_times,
)
from kernelwright.solutions.kernels.split.products import SHAPES

LARGE = ProductSizes(4096, 4096, 4096)


def test_large_products_use_tensor_cores() -> None:
    assert best_product(LARGE) in SHAPES
    assert product_times(LARGE)[best_product(LARGE)] * 3 < product_times(LARGE)["double64"]


@pytest.mark.parametrize("size", [ProductSizes(8, 8, 8), ProductSizes(64, 64, 32), ProductSizes(2, 4096, 4)])
def test_small_products_need_one_launch(size: ProductSizes) -> None:
    assert best_product(size) not in SHAPES


def test_a_long_sum_with_few_results_is_shared_by_blocks() -> None:
    assert SHAPES[best_product(ProductSizes(256, 256, 65536))].split > 1


def test_an_unknown_size_takes_a_way_that_suits_all() -> None:
    assert best_product(ProductSizes(-1, 4096, 4096)) == "double64"
    assert best_convolution(ConvolutionSizes(-1, 64, 1, 9, 100, 100), 63) == "gemm64"


def test_more_work_never_takes_less_time() -> None:
    for way, time in product_times(LARGE).items():
        assert product_times(ProductSizes(8192, 4096, 4096))[way] >= time
        assert product_times(ProductSizes(4096, 4096, 8192))[way] >= time


def test_few_channels_are_read_in_place() -> None:
    assert SHAPES[best_convolution(ConvolutionSizes(64, 3, 1, 49, 64 * 112 * 112, 64 * 224 * 224), 63)].computed
    assert not SHAPES[best_convolution(ConvolutionSizes(256, 128, 1, 9, 32 * 56 * 56, 32 * 56 * 56), 63)].computed


def test_a_depthwise_convolution_multiplies_no_matrices() -> None:
    assert best_convolution(ConvolutionSizes(1, 1, 256, 9, 64 * 56 * 56, 64 * 56 * 56), 63) not in SHAPES


def test_a_window_of_many_places_is_not_read_in_place() -> None:
    times = convolution_times(ConvolutionSizes(64, 16, 1, 125, 10_000, 10_000), 63)
    assert not any(SHAPES[way].computed for way in times if way in SHAPES)


def test_a_faster_memory_makes_nothing_slower() -> None:
    fast = CardCosts(bytes=CardCosts().bytes * 2)
    assert all(product_times(LARGE, card=fast)[way] <= time for way, time in product_times(LARGE).items())


def test_a_depthwise_convolution_is_read_once() -> None:
    size = ConvolutionSizes(1, 1, 128, 9, 64 * 112 * 112, 64 * 112 * 112, results=1)
    assert best_convolution(size, 63) == "window"
