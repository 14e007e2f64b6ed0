"""Convolutions of every kind in one, two and three dimensions: standard, transposed, depthwise, grouped, dilated, …"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from kernelwright.generate import sizes
from kernelwright.generate.draft import Dim, Draft, DraftTensor, Option, Param, size_of
from kernelwright.generate.registry import Family, rows

Axes = tuple[int, ...]
SPATIAL = {1: ("length",), 2: ("height", "width"), 3: ("depth", "height", "width")}
INPUT_ROLE = {1: "sequence", 2: "image", 3: "volume"}
LETTERS = {1: ("",), 2: ("_h", "_w"), 3: ("_d", "_h", "_w")}


@dataclass(frozen=True)
class ConvWindow:
    """A convolution's kernel, stride, padding and dilation; tuples have one number per axis."""

    kernel: Axes
    stride: Axes
    padding: Axes
    dilation: Axes
    output_padding: Axes
    transpose: bool = False

    def output(self, spatial: Axes) -> Axes:
        """Returns extents of the output for those of the input."""
        found = []
        for i, extent in enumerate(spatial):
            reach = self.dilation[i] * (self.kernel[i] - 1)
            if self.transpose:
                grown = (extent - 1) * self.stride[i] - 2 * self.padding[i] + reach + self.output_padding[i] + 1
                found.append(grown)
            else:
                found.append((extent + 2 * self.padding[i] - reach - 1) // self.stride[i] + 1)
        return tuple(found)


def _axes(t: Draft, rank: int, choices: tuple[int, ...], uneven: float) -> Axes:
    """Draws one number for all axes, or one per axis."""
    if rank > 1 and t.chance(uneven):
        return tuple(t.random.choice(choices) for _ in range(rank))
    return (t.random.choice(choices),) * rank


def window(
    t: Draft, rank: int, *, transpose: bool = False, pointwise: bool = False, dilated: bool = False
) -> ConvWindow:
    """Draws kernel, stride, padding and dilation as people choose them."""
    if pointwise:
        ones, zeros = (1,) * rank, (0,) * rank
        stride = ones if t.chance(0.85) else (2,) * rank
        return ConvWindow(ones, stride, zeros, ones, zeros)
    uneven = t.random.choice((0.0, 0.0, 0.0, 0.4, 0.9))
    kernel = _axes(t, rank, (3, 3, 3, 5, 7, 2, 4, 1) if rank < 3 else (3, 3, 3, 5, 2, 1), uneven)
    if max(kernel) == 1:
        kernel = (3,) * rank
    if rank > 1 and uneven and t.chance(0.3):
        kernel = (kernel[0] if kernel[0] > 1 else 3, *(1,) * (rank - 1))
    dilation = _axes(t, rank, (2, 2, 3, 4) if dilated else (1, 1, 1, 1, 1, 2, 3), uneven * 0.5)
    stride = _axes(t, rank, (1, 1, 1, 2, 2, 3), uneven * 0.5)
    if t.chance(0.5):
        padding = tuple(d * (k - 1) // 2 for d, k in zip(dilation, kernel, strict=True))
    else:
        padding = _axes(t, rank, (0, 0, 0, 1, 2), uneven * 0.5)
    output_padding = (0,) * rank
    if transpose:
        padding = tuple(min(p, d * (k - 1)) for p, d, k in zip(padding, dilation, kernel, strict=True))
        if min(max(s, d) for s, d in zip(stride, dilation, strict=True)) > 1 and t.chance(0.3):
            output_padding = (1,) * rank
    return ConvWindow(kernel, stride, padding, dilation, output_padding, transpose)


def image_input(t: Draft, rank: int, channels: Dim, total: float, low: int = 4) -> DraftTensor:
    """Drafts an input (batch, channels, *spatial) with roughly `total` elements; `low` is the least spatial extent."""
    batch, _, *spatial = sizes.image(t.random, rank, total, channels.value)
    spatial = [max(low, s) for s in spatial]
    while batch > 1 and batch * channels.value * math.prod(spatial) > 3 * total:
        batch //= 2
    lead = t.dim("batch", max(1, batch))
    if rank > 1 and len(set(spatial)) == 1 and t.chance(0.2):
        dims = [t.dim(t.pick("square", "height", "width"), spatial[0])] * rank
    else:
        dims = [t.dim(role, s) for role, s in zip(SPATIAL[rank], spatial, strict=True)]
    return t.input(INPUT_ROLE[rank], (lead, channels, *dims))


def axis_text(t: Draft, name: str, value: Axes, default: int, shown: float, where: str = "init") -> str | None:
    """Returns an argument such as stride: left out, one number, a tuple, or put together from arguments of its own.

    `shown` is the chance that a value equal to the default is written.
    """
    rank, same = len(value), len(set(value)) == 1
    if value == (default,) * rank and not t.chance(shown):
        return None
    if not same and rank > 1 and t.chance(0.35 * t.style.expose):
        parts = [
            t.option(name + s, v, default=default, where=where, expose=1)
            for s, v in zip(LETTERS[rank], value, strict=True)
        ]
        return f"({', '.join(parts)})"
    if same and rank > 1 and t.chance(0.1):
        part = t.option(name, value[0], default=default, where=where)
        return f"({', '.join([part] * rank)})"
    if same:
        return t.option(name, value[0] if rank == 1 or t.chance(0.9) else value, default=default, where=where)
    if value[1:] == (1,) * (rank - 1) and t.chance(0.5):
        return f"({t.option(name, value[0], where='init')}{', 1' * (rank - 1)})"
    return t.option(name, value, default=(default,) * rank, where=where)


def convolve(
    t: Draft,
    x: DraftTensor,
    channels: Dim | int,
    out: Dim | int,
    win: ConvWindow,
    groups: int = 1,
    *,
    name: str = "",
    pool: str = "",
) -> DraftTensor:
    """Drafts a convolution module on x; `groups` of -1 means depthwise. Returns its output."""
    rank = x.rank - 2
    depthwise = groups == -1
    cls = f"{'ConvTranspose' if win.transpose else 'Conv'}{rank}d"
    inside = t.argument(channels, always=win.transpose)
    outside = inside if out is channels else t.argument(out)
    full = t.style.expose == 1.0 and t.chance(0.5)
    shown = 1.0 if full else 0.08
    arguments: list[tuple[str, str | None]] = [("in_channels", inside), ("out_channels", outside)]
    arguments.append(("kernel_size", axis_text(t, "kernel_size", win.kernel, t.random.choice((3, 5, 3)), 1.0)))
    arguments.append(("stride", axis_text(t, "stride", win.stride, 1, shown)))
    arguments.append(("padding", axis_text(t, "padding", win.padding, 0, shown)))
    if win.transpose:
        arguments.append(("output_padding", axis_text(t, "output_padding", win.output_padding, 0, shown * 0.5)))
        arguments.append(("groups", _groups_text(t, groups, inside, shown)))
        arguments.append(("bias", _bias_text(t, shown)))
        arguments.append(("dilation", axis_text(t, "dilation", win.dilation, 1, shown)))
    else:
        arguments.append(("dilation", axis_text(t, "dilation", win.dilation, 1, shown)))
        arguments.append(("groups", _groups_text(t, groups, inside, shown)))
        arguments.append(("bias", _bias_text(t, shown)))
    if depthwise and t.chance(0.25 * t.style.expose):
        _unused(t, channels)
    layer = t.module(pool or ("ConvTranspose" if win.transpose else "Conv"), cls, arguments)
    spatial = win.output(x.shape[2:])
    c_in, c_out = size_of(channels), size_of(out)
    shape = (x.shape[0], c_out, *spatial)
    per = c_in if depthwise else groups
    flops = (
        2.0
        * math.prod(x.shape if win.transpose else shape)
        * math.prod(win.kernel)
        * (c_out if win.transpose else c_in)
        / per
    )
    t.mark(
        name or cls.lower().replace("transpose", "_transpose"), kernel=short(win.kernel), stride=short(win.stride, 1),
        padding=short(win.padding, 0),
        dilation=short(win.dilation, 1), output_padding=short(win.output_padding, 0),
        groups="depthwise" if depthwise else groups if groups > 1 else None, bias=arguments_have(arguments, "bias"),
    )  # fmt: skip
    return t.step(f"{layer}({x})", shape, "conv", flops=flops)


def arguments_have(arguments: list[tuple[str, str | None]], name: str) -> str | None:
    """Returns the signature's entry for `bias`, which shows only that it was given."""
    return dict(arguments).get(name) and "given"


def short(value: Axes, default: int | None = None) -> Option:
    """Returns a per-axis value for the signature: one number where all are equal, None where all are the default."""
    if default is not None and value == (default,) * len(value):
        return None
    return value[0] if len(set(value)) == 1 else value


def _unused(t: Draft, channels: Dim | int) -> None:
    """Drafts arguments that a depthwise convolution does not need, but that classes often take."""
    for role in ("out_channels", "groups")[: t.random.choice((1, 2))]:
        name = t.name((role,))
        if name == role:
            number = str(size_of(channels))
            t.params.append(Param(name, number, None if t.chance(0.6) else number, "int", name.replace("_", " ")))


def _groups_text(t: Draft, groups: int, inside: str, shown: float) -> str | None:
    if groups == -1:
        return inside
    if groups == 1 and not t.chance(shown * 0.5):
        return None
    return t.option("groups", groups, default=1, where="init")


def _bias_text(t: Draft, shown: float) -> str | None:
    if not t.chance(max(shown, 0.25)):
        return None
    return t.option("bias", t.chance(0.4), default=False, where="init")


def affordable(t: Draft, x: tuple[int, ...], out: int, win: ConvWindow, per: int) -> bool:
    """Tells whether a convolution of an input of this shape stays within the largest FLOPs and tensors."""
    spatial = win.output(x[2:])
    if min(spatial) < 1:
        return False
    shape = (x[0], out, *spatial)
    positions = math.prod(x) * out if win.transpose else math.prod(shape) * x[1]
    small = math.prod(shape) <= sizes.LARGEST_TENSOR and math.prod(x) <= sizes.LARGEST_TENSOR
    return small and 2.0 * positions * math.prod(win.kernel) / per <= sizes.LARGEST_FLOPS


def _family(kind: str, rank: int) -> tuple[str, Callable[[Draft], None]]:
    transpose = "transpose" in kind
    name = f"{kind}{rank}d"

    def make(t: Draft) -> None:
        random = t.random
        channels = random.choice(
            (16, 32, 32, 64, 64, 128, 256, 96, 48)
            if kind not in ("conv", "conv_dilated")
            else (3, 3, 1, 4, 8, 16, 32, 64, 128)
        )
        out = random.choice((8, 16, 32, 32, 64, 64, 128, 256, 48, 96))
        groups = 1
        if kind in ("conv_depthwise", "conv_transpose_depthwise"):
            groups, out = -1, channels
            channels = out = random.choice((3, 8, 16, 32, 64, 128, 256))
        elif "grouped" in kind:
            groups = random.choice([g for g in (2, 4, 8, 16) if channels % g == 0 and out % g == 0])
        win = window(t, rank, transpose=transpose, pointwise=kind == "conv_pointwise", dilated="dilated" in kind)
        low = max((k - 1) * d + 2 for k, d in zip(win.kernel, win.dilation, strict=True))
        total = sizes.log_uniform(random, 3e5, 4e7)
        shape = sizes.image(random, rank, total, channels)
        while not affordable(
            t,
            tuple(max(low, s) if i > 1 else s for i, s in enumerate(shape)),
            out,
            win,
            abs(groups) if groups > 0 else channels,
        ):
            total /= 2
            shape = sizes.image(random, rank, total, channels)
            if total < 100:
                shape[0] = 1
                break
        lead = t.dim("batch", shape[0])
        inside = t.dim("in_channels" if groups != -1 else t.pick("in_channels", "channels"), channels)
        dims = [t.dim(r, max(low, s)) for r, s in zip(SPATIAL[rank], shape[2:], strict=True)]
        x = t.input(INPUT_ROLE[rank], (lead, inside, *dims))
        t.say(phrase(kind, rank))
        outside = inside if groups == -1 else t.dim("out_channels", out)
        if kind == "conv_separable":
            mid = convolve(t, x, inside, inside, win, -1, name=f"conv_depthwise{rank}d")
            ones, zeros = (1,) * rank, (0,) * rank
            win = ConvWindow(ones, ones, zeros, ones, zeros)
            t.finish(convolve(t, mid, inside, outside, win, name=f"conv_pointwise{rank}d"))
        else:
            t.finish(convolve(t, x, inside, outside, win, groups, name=name))

    return name, make


def phrase(kind: str, rank: int) -> str:
    """Returns a convolution in words."""
    words = kind.replace("conv", "").replace("_", " ").replace("transpose", "transposed").strip()
    words = words.replace("separable", "depthwise-separable")
    return f"a {rank}D {words} convolution".replace("  ", " ")


KINDS = ("conv", "conv_transpose", "conv_depthwise", "conv_grouped", "conv_dilated", "conv_pointwise", "conv_separable",
         "conv_transpose_grouped", "conv_transpose_dilated", "conv_transpose_depthwise")  # fmt: skip


def families() -> list[Family]:
    """Returns every kind of convolution in every number of dimensions."""
    common = [_family(kind, rank) for kind in KINDS[:2] for rank in (1, 2, 3)]
    other = [_family(kind, rank) for kind in KINDS[2:] for rank in (1, 2, 3)]
    return rows("convolution", 16.0, common) + rows("convolution", 22.0, other)
