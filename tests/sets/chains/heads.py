"""Opens chains: products and convolutions, each with its sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from sets.chains.draft import Draft

Head = Callable[[Draft], None]

FEATURES = (96, 200, 256, 384, 500, 512, 768, 1000, 1024, 1536, 2048, 3000, 3072, 4096, 6144, 8192)
ROWS = (16, 64, 100, 128, 256, 500, 512, 1024, 2048, 3000, 4096)
CHANNELS = (3, 8, 16, 24, 32, 48, 64, 96, 128)
FILTERS = (16, 24, 32, 48, 64, 96, 128, 192, 256)
EXTENTS = {
    1: (200, 512, 1000, 1024, 4096, 10000),
    2: (28, 32, 48, 56, 64, 100, 112, 128, 160, 224),
    3: (8, 12, 16, 20, 24, 32),
}
EXTENT_NAMES = {1: ("length",), 2: ("height", "width"), 3: ("depth", "height", "width")}


def linear(d: Draft) -> None:
    """A linear layer on rows."""
    rows, inner, outer = _product_sizes(d)
    d.input(d.variable, [rows, inner])
    name = d.word("linear", "fc", "proj", "gemm")
    layer = d.module(name, f"nn.Linear({inner}, {outer}{d.word('', '', ', bias=False')})")
    d.lines.append(f"{d.variable} = {layer}({d.variable})")
    _product(d, [rows], inner, outer)


def tokens(d: Draft) -> None:
    """A linear layer on sequences of rows."""
    batch = d.constant("batch_size", d.size(2, 4, 8, 16, 32), argument=False)
    length = d.constant(d.word("tokens", "seq_len", "steps"), d.size(50, 64, 128, 197, 256, 512), argument=False)
    inner = d.constant(d.word("in_features", "d_model", "hidden"), d.size(*FEATURES))
    outer = d.constant(d.word("out_features", "d_ff", "width"), d.size(*FEATURES))
    d.input(d.variable, [batch, length, inner])
    layer = d.module(d.word("linear", "proj", "up"), f"nn.Linear({inner}, {outer})")
    d.lines.append(f"{d.variable} = {layer}({d.variable})")
    _product(d, [batch, length], inner, outer)


def matmul(d: Draft) -> None:
    """A product with a parameter, in one of four spellings."""
    rows, inner, outer = _product_sizes(d)
    d.input(d.variable, [rows, inner])
    spelling = d.word("torch.matmul({0}, {1})", "{0} @ {1}", "torch.mm({0}, {1}.t())", "F.linear({0}, {1})")
    turned = "linear" in spelling or ".t()" in spelling
    extents = f"{outer}, {inner}" if turned else f"{inner}, {outer}"
    weight = d.module(d.word("weight", "w", "kernel"), f"nn.Parameter(torch.randn({extents}) * {inner} ** -0.5)")
    d.lines.append(f"{d.variable} = {spelling.format(d.variable, weight)}")
    _product(d, [rows], inner, outer)


def batched(d: Draft) -> None:
    """A product of two batched inputs."""
    batch = d.constant("batch_size", d.size(4, 8, 16, 32, 64), argument=False)
    rows = d.constant("rows", d.size(64, 100, 128, 256, 500, 512, 1024), argument=False)
    inner = d.constant("inner", d.size(32, 64, 100, 128, 256, 512), argument=False)
    outer = d.constant("cols", d.size(64, 128, 200, 256, 512, 1024))
    d.input(d.variable, [batch, rows, inner])
    turned = d.chance(0.4)
    d.input("other", [batch, outer, inner] if turned else [batch, inner, outer])
    other = "other.transpose(1, 2)" if turned else "other"
    d.lines.append(f"{d.variable} = {d.word('torch.bmm', 'torch.matmul')}({d.variable}, {other})")
    _product(d, [batch, rows], inner, outer, weights=False)


def convolution(d: Draft, rank: int) -> None:
    """A plain convolution, sometimes strided or dilated."""
    _convolution(d, rank, "plain")


def transposed(d: Draft, rank: int) -> None:
    """A transposed convolution."""
    batch, inner, filters, extents = _map_sizes(d, rank, smaller=True)
    kernel, stride = d.size(2, 3, 4, 5) if rank < 3 else d.size(2, 3), d.size(1, 2, 2, 3) if rank < 3 else d.size(1, 2)
    padding = d.size(0, 1) if kernel > 2 else 0
    extra = 1 if stride > 1 and d.chance(0.3) else 0
    named = d.constant("kernel_size", kernel)
    words = [f"stride={stride}"] * (stride > 1) + [f"padding={padding}"] * (padding > 0)
    words += [f"output_padding={extra}"] * (extra > 0)
    _layer(d, f"nn.ConvTranspose{rank}d", inner, filters, named, words)
    out = [(e - 1) * stride - 2 * padding + kernel + extra for e in d.shape[2:]]
    d.flops = 2 * prod(d.shape) * d.extent(filters) * kernel**rank
    _mapped(d, filters, out, d.extent(inner), kernel**rank)


def grouped(d: Draft, rank: int) -> None:
    """A convolution in groups."""
    _convolution(d, rank, "grouped")


def depthwise(d: Draft, rank: int) -> None:
    """A convolution of each channel by itself, sometimes before a pointwise one."""
    _convolution(d, rank, "depthwise")
    if d.chance(0.4):
        inner, filters = d.channels, d.constant("out_channels", d.size(*FILTERS))
        layer = d.module("pointwise", f"nn.Conv{rank}d({inner}, {filters}, 1)")
        d.lines.append(f"{d.variable} = {layer}({d.variable})")
        d.flops += 2 * prod(d.shape) * d.extent(filters)
        _mapped(d, filters, d.shape[2:], d.extent(inner), 1)


def _product_sizes(d: Draft) -> tuple[str, str, str]:
    rows = d.constant(d.word("batch_size", "batch", "rows"), d.size(*ROWS), argument=False)
    inner = d.constant(d.word("in_features", "input_size", "dim"), d.size(*FEATURES))
    outer = d.constant(d.word("out_features", "hidden_size", "units"), d.size(*FEATURES))
    return rows, inner, outer


def _product(d: Draft, leading: list[str], inner: str, outer: str, weights: bool = True) -> None:
    """Notes what a product leaves: rows of `outer` features."""
    k = d.extent(inner)
    d.shape, d.channel_axis, d.channels = (*map(d.extent, leading), d.extent(outer)), -1, outer
    d.flops = 2 * prod(d.shape) * k
    d.elements += prod(d.shape)
    d.weights += k * d.shape[-1] if weights else 0


def _map_sizes(d: Draft, rank: int, smaller: bool = False) -> tuple[str, str, str, list[str]]:
    batch = d.constant("batch_size", d.size(1, 4, 8, 16, 32, 64, 128), argument=False)
    inner = d.constant("in_channels", d.size(*CHANNELS[2 if smaller else 0 :]))
    filters = d.constant("out_channels", d.size(*FILTERS[: 6 if smaller else None]))
    choices = EXTENTS[rank][: 5 if smaller else None]
    square = d.size(*choices)
    names = [
        d.constant(name, square if d.chance(0.7) else d.size(*choices), argument=False) for name in EXTENT_NAMES[rank]
    ]
    d.input(d.variable, [batch, inner, *names])
    d.shape = tuple(d.extent(n) for n in [batch, inner, *names])
    return batch, inner, filters, names


def _convolution(d: Draft, rank: int, kind: str) -> None:
    """A convolution of a kind: `plain`, `grouped` or `depthwise`."""
    _batch, inner, filters, _extents = _map_sizes(d, rank)
    count, wanted = d.extent(inner), d.extent(filters)
    kernel = d.size(1, 3, 3, 3, 5, 7) if rank < 3 else d.size(1, 3, 3)
    stride, dilation = d.size(1, 1, 1, 2), d.size(1, 1, 1, 2)
    padding = d.size(0, (kernel - 1) * dilation // 2)
    groups = 1
    if kind == "depthwise":
        groups = wanted = count
        del d.constants[filters]
        d.arguments.remove(filters)
        filters = inner
    elif kind == "grouped":
        groups = d.random.choice([g for g in (2, 4, 8, 3, 1) if count % g == 0 and wanted % g == 0])
    named = d.constant("kernel_size", kernel)
    words = [f"stride={stride}"] * (stride > 1) + [f"padding={padding}"] * (padding > 0)
    words += [f"dilation={dilation}"] * (dilation > 1)
    words += [f"groups={inner if kind == 'depthwise' else groups}"] * (groups > 1)
    _layer(d, f"nn.Conv{rank}d", inner, filters, named, words)
    out = [(e + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1 for e in d.shape[2:]]
    if min(out) < 1:
        raise Misfit("the kernel is larger than the map")
    d.flops = 2 * d.shape[0] * wanted * prod(out) * (count // groups) * kernel**rank
    _mapped(d, filters, out, count // groups, kernel**rank)


def _layer(d: Draft, kind: str, inner: str, filters: str, kernel: str, words: list[str]) -> None:
    words += ["bias=False"] * (d.chance(0.2))
    layer = d.module(d.word("conv", "conv", "layer"), f"{kind}({', '.join([inner, filters, kernel, *words])})")
    d.lines.append(f"{d.variable} = {layer}({d.variable})")


def _mapped(d: Draft, filters: str, extents: Sequence[int], inner: int, taps: int) -> None:
    """Notes what a convolution leaves: maps of `filters` channels."""
    wanted = d.extent(filters)
    d.shape = (d.shape[0], wanted, *extents)
    d.channel_axis, d.channels = 1, filters
    d.elements += prod(d.shape)
    d.weights += inner * taps * wanted


class Misfit(Exception):
    """Signals that sizes were drawn that do not go together."""


def _of(head: Callable[[Draft, int], None], rank: int) -> Head:
    return lambda d: head(d, rank)


HEADS: dict[str, tuple[str, float, Head]] = {
    "linear": ("product", 5, linear),
    "tokens": ("product", 3, tokens),
    "matmul": ("product", 4, matmul),
    "bmm": ("batched product", 2.5, batched),
    "conv1d": ("convolution", 1.5, _of(convolution, 1)),
    "conv2d": ("convolution", 6, _of(convolution, 2)),
    "conv3d": ("convolution", 3, _of(convolution, 3)),
    "conv_transpose1d": ("transposed convolution", 1, _of(transposed, 1)),
    "conv_transpose2d": ("transposed convolution", 3, _of(transposed, 2)),
    "conv_transpose3d": ("transposed convolution", 2.5, _of(transposed, 3)),
    "grouped2d": ("grouped convolution", 1.5, _of(grouped, 2)),
    "depthwise1d": ("grouped convolution", 0.7, _of(depthwise, 1)),
    "depthwise2d": ("grouped convolution", 2, _of(depthwise, 2)),
}
"""The family, the weight and the writer of each head."""
