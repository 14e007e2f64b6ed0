"""Convolutions of few channels whose threads compute neighbouring results, judged on the functional machine."""

from __future__ import annotations

import pytest
from solutions.test_split_products import MODULE, PRODUCT, judged

from kernelwright.solutions.kernels.window_tiles import Window

CONVOLUTIONS = {
    "line": MODULE.format(layer="Conv1d(6, 6, 7, padding=3, groups=6)", shape="2, 6, 132"),
    "odd line": MODULE.format(layer="Conv1d(5, 10, 4, stride=3, dilation=2, groups=5, bias=False)", shape="3, 5, 61"),
    "depthwise": MODULE.format(layer="Conv2d(5, 5, 3, padding=1, groups=5)", shape="2, 5, 14, 20"),
    "odd depthwise": MODULE.format(layer="Conv2d(3, 3, (5, 2), padding=(2, 1), groups=3)", shape="2, 3, 13, 9"),
    "strided": MODULE.format(layer="Conv2d(4, 4, 3, stride=2, padding=1, groups=4)", shape="2, 4, 17, 24"),
    "dilated": MODULE.format(layer="Conv2d(4, 4, 3, padding=2, dilation=2, groups=4)", shape="1, 4, 15, 16"),
    "wide": MODULE.format(layer="Conv2d(2, 2, 7, padding='same', groups=2)", shape="1, 2, 16, 28"),
    "grouped": MODULE.format(layer="Conv2d(12, 33, 3, padding=1, groups=3)", shape="2, 12, 7, 12"),
    "reflected": MODULE.format(
        layer="Conv2d(4, 8, 3, padding=1, groups=2, padding_mode='reflect')", shape="2, 4, 8, 8"
    ),
    "volume": MODULE.format(layer="Conv3d(3, 10, (3, 5, 7), padding=(1, 0, 3))", shape="1, 3, 5, 9, 12"),
    "deep": MODULE.format(layer="Conv3d(4, 4, 3, stride=(2, 1, 1), padding=1, groups=4)", shape="2, 4, 6, 5, 8"),
    "transposed": MODULE.format(layer="ConvTranspose2d(4, 4, 3, padding=1, groups=4)", shape="2, 4, 9, 12"),
    "transposed by 2": MODULE.format(
        layer="ConvTranspose2d(6, 6, 4, stride=2, padding=1, output_padding=1, groups=6)", shape="2, 6, 7, 12"
    ),
    "transposed by 3": MODULE.format(
        layer="ConvTranspose3d(4, 6, (2, 3, 5), stride=(1, 2, 3), padding=(1, 0, 6), groups=2)", shape="1, 4, 3, 4, 7"
    ),
    "transposed dilated": MODULE.format(
        layer="ConvTranspose1d(8, 12, 3, stride=2, dilation=3, padding=1, groups=4)", shape="2, 8, 21"
    ),
    "function": PRODUCT.format(
        expression="torch.nn.functional.conv2d(A, B, padding=(1, 2), groups=4)", a="2, 4, 10, 16", b="4, 1, 3, 3"
    ),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_of_few_channels_are_right(name: str) -> None:
    text, verdict, reason = judged(CONVOLUTIONS[name], "conv=window")
    assert "kw::WindowTile<" in text
    assert verdict == "correct", reason


def test_a_depthwise_convolution_is_computed_by_windows() -> None:
    source = MODULE.format(layer="Conv2d(64, 64, 3, padding=1, groups=64)", shape="32, 64, 56, 56")
    assert "kw::WindowTile<" in judged(source.replace("32, 64, 56, 56", "2, 64, 8, 8"), "conv=auto")[0]


def test_weights_that_no_shared_memory_holds_are_read_directly() -> None:
    source = MODULE.format(layer="Conv1d(600, 8, 3)", shape="1, 600, 5")
    text, verdict, reason = judged(source, "conv=window")
    assert "kw::WindowTile<" not in text
    assert verdict == "correct", reason


def test_a_thread_of_a_transposed_convolution_covers_whole_strides() -> None:
    for stride in range(1, 9):
        window = Window(True, 1, 1, (3, 3), (stride, stride), (1, 1), (0, 0))
        assert window.columns % stride == 0
