"""Writes convolutions whose threads compute neighbouring outputs from registers (`device/kernelwright/window.cuh`).

The way suits groups of few channels, depthwise ones above all, where a product of matrices has nothing to multiply.
The window's height and width, strides, dilations and the padding along rows are constants of the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from kernelwright.solutions.kernels import tiles
from kernelwright.solutions.kernels import windows as win
from kernelwright.solutions.kernels.convolution_ways import Way
from kernelwright.solutions.kernels.stages import Epilogue

MOST_SHARED = 48 * 1024
"""Bytes of shared memory for the weights of a block's channels."""
MOST_REGISTERS = 64
"""Elements of an input's row that a thread holds."""
MOST_UNROLLED = 2048
"""Multiplications in the text of a kernel's innermost loops."""


@dataclass(frozen=True)
class Window:
    """A convolution's constants: output and input channels of a group, and numbers by dimension."""

    transposed: bool
    out: int
    channels: int
    size: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    padding: tuple[int, ...]

    @property
    def results(self) -> int:
        """Output channels of a thread."""
        return min(8, 1 << (self.out - 1).bit_length())

    @property
    def columns(self) -> int:
        """Neighbouring columns of a thread: a transposed convolution's stride divides them."""
        stride = self.strides[-1]
        if not self.transposed:
            return 4
        return 4 * stride if stride <= 2 else stride * -(-4 // stride)

    @property
    def rows(self) -> int:
        """Neighbouring rows of a thread: more than one where they share rows of the input and the weights are few."""
        if len(self.size) < 2 or self.transposed or self.results > 1 or math.prod(self.size[-2:]) > 49:
            return 1
        return 4 if self.strides[-2] == 1 else 2

    @property
    def fits(self) -> bool:
        """True where a thread's registers and a block's shared memory hold what they have to."""
        (high, wide), (_, dilation) = self._flat(self.size), self._flat(self.dilations)
        row = (self.columns - 1) * self.strides[-1] + (wide - 1) * dilation + 1
        unrolled = self.columns * wide * self.results * (self.rows * high if self.rows > 1 else 1)
        shared = 4 * self.results * self.channels * math.prod(self.size)
        return row <= MOST_REGISTERS and unrolled <= MOST_UNROLLED and shared <= MOST_SHARED

    @property
    def arguments(self) -> str:
        """The arguments of `kw::WindowTile`."""
        numbers = [self.results, self.rows, self.columns]
        numbers += [*self._flat(self.size), *self._flat(self.strides), *self._flat(self.dilations), self.padding[-1]]
        return ", ".join(["true" if self.transposed else "false", *map(str, numbers)])

    @staticmethod
    def _flat(numbers: tuple[int, ...]) -> tuple[int, int]:
        """Returns the numbers for height and width."""
        return (numbers[-2] if len(numbers) > 1 else 1), numbers[-1]


_KERNEL = """
#include <kernelwright/window.cuh>
extern "C" __global__ void __launch_bounds__(128) @name(@parameters) {
    auto finish = [&](long long n, int o, int od, int oh, int ow, float& result) {
        float acc = b ? result + b[o] : result;
        kw::Result y{result};
        @stored
    };
    kw::WindowSizes sizes{@sizes};
    kw::WindowTile<@arguments>::run(x, w, y, sizes, finish);
}
"""


def convolution(window: Window, parameters: str, epilogue: Epilogue, axes: Mapping[int, str]) -> Way:
    """Returns the kernel of a convolution whose constants fit. `parameters` are the direct kernel's."""
    rank = len(window.size)
    sizes = ["total", "C", "O", "G"]
    for prefix in ("", "O"):
        sizes += ["1"] * (3 - rank) + win.names(rank, prefix)
    deep = {"KD": "1", "sd": "1", "pd": "0", "dd": "1"}
    sizes += [name if rank == 3 else flat for name, flat in deep.items()] + ["ph" if rank > 1 else "0"]
    text = tiles.put(_KERNEL, sizes=", ".join(sizes), arguments=window.arguments)
    text = tiles.fuse(text, parameters, epilogue, win.place(rank, "n * O + o", "O", "o"), axes, "j")
    rows = f"((OH + {window.rows - 1}) // {window.rows})" if rank > 1 else "1"
    depth = "OD * " if rank == 3 else ""
    places = f"N * {depth}{rows} * ((OW + {window.columns - 1}) // {window.columns})"
    sides = f"@groups * ((O // @groups + {window.results - 1}) // {window.results})"
    shared = f"{4 * window.results} * (C // @groups) * {' * '.join(win.names(rank, 'K'))}"
    return Way(text, f"({places} + 127) // 128 * ({sides}), 128, {shared}")
