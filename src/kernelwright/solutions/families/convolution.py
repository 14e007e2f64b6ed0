"""Convolutions and transposed convolutions in one to three dimensions: stride, padding, dilation, groups, bias.

Depthwise, grouped, pointwise and asymmetric ones share one kernel: the number of groups is a parameter. Each thread
computes a result (`direct`), or a convolution is a product of matrices whose left operand is gathered (`gemm...`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernelwright.solutions.kernels import convolution_ways as ways
from kernelwright.solutions.kernels import tiles, window_tiles
from kernelwright.solutions.kernels import windows as win
from kernelwright.solutions.kernels.cost import ConvolutionSizes, best_convolution
from kernelwright.solutions.kernels.host import add_kernel, add_lines, argument
from kernelwright.solutions.kernels.prepacked import is_attribute, packed_once
from kernelwright.solutions.kernels.schedule import AUTO, WINDOW
from kernelwright.solutions.kernels.split import convolutions as split_convolutions
from kernelwright.solutions.kernels.stages import Epilogue, Writer, anchor, shape_rule
from kernelwright.solutions.read.declared import Shape
from kernelwright.solutions.read.reading import Node, Unreadable

TILINGS = {"gemm16": "shared16", "gemm32": "register32", "gemm64": "register64", "gemm128": "register128"}
TILINGS["double64"] = "double64"
"""Ways to convolve by products -> the tiling of the product."""
_OPERATORS = ("conv", "convtranspose", *(f"conv{kind}{d}d" for kind in ("", "_transpose") for d in (1, 2, 3)))
"""Modules, and functions by their dimensions."""


@dataclass(frozen=True)
class Convolution:
    """One convolution as text: its parts as Python expressions of the host."""

    rank: int
    transposed: bool
    x: str
    weight: str
    bias: str
    groups: str
    stride: str
    padding: str
    dilation: str
    output_padding: str
    before: str = ""
    """Lines of Python before the others."""
    same: bool = False
    """True for the padding "same"."""

    @property
    def name(self) -> str:
        return f"conv{'_transpose' if self.transposed else ''}{self.rank}d"


def read_convolution(writer: Writer, node: Node) -> Convolution:
    """Returns the parts of a module's call or of a function's."""
    transposed = "transpose" in node.op
    if node.text:
        return _of_module(writer, node, transposed)
    x = writer.tensor(node.args[0])
    rank = int(node.op[-2])
    w = writer.tensor(node.args[1])
    b = (
        writer.tensor(node.args[2])
        if len(node.args) > 2 and node.args[2].text != "None"
        else node.option("bias", "None")
    )
    tuple_of = f"{win.TUPLE[rank]}(%s)"
    stride, dilation = (tuple_of % node.option(name, "1") for name in ("stride", "dilation"))
    padding, more = (tuple_of % node.option(name, "0") for name in ("padding", "output_padding"))
    same = node.option("padding").strip("'\"") == "same"
    if node.option("padding").strip("'\"") == "valid":
        padding = tuple_of % "0"
    return Convolution(
        rank, transposed, x, w, b, node.option("groups", "1"), stride, padding, dilation, more, same=same
    )


def _of_module(writer: Writer, node: Node, transposed: bool) -> Convolution:
    kind = writer.reference.modules[node.text.removeprefix("self.")][0]
    rank = int(kind[-2])
    padding, mode = argument(writer, node, "padding", 0), argument(writer, node, "padding_mode", "zeros")
    inside = node.args[0]
    if mode != "zeros":  # pad first, then convolve without padding
        if transposed or isinstance(padding, str):
            raise Unreadable(f"no template for padding={padding!r} with padding_mode={mode!r}")
        amounts = ", ".join(f"{node.text}.padding[{d}]" for d in range(rank)[::-1] for _ in range(2))
        inside = Node("pad", (inside,), options=(("mode", repr(mode)), ("pad", f"({amounts})")))
        padding = "valid"
    x = writer.tensor(inside)
    return Convolution(
        rank=rank,
        transposed=transposed,
        x=x,
        weight=writer.weight(node, "weight", "conv.weight"),
        bias=writer.weight(node, "bias", "conv.bias"),
        groups="conv.groups",
        stride="conv.stride",
        padding=f"{win.TUPLE[rank]}(0)" if padding == "valid" else "conv.padding",
        dilation="conv.dilation",
        output_padding="conv.output_padding",
        before=f"conv = {node.text}",
        same=padding == "same",
    )


def _sizes(c: Convolution) -> str:
    """Returns Python lines with every size and option that the kernel takes."""
    r, letters = c.rank, win.LETTERS[c.rank]
    options = [(p, t) for p, t in (("s", c.stride), ("p", c.padding), ("d", c.dilation)) if p != "p" or not c.same]
    first = "_, OG" if c.transposed else "O, _"
    lines = [
        c.before,
        f"(N, C, {win.listed(r, '')}), ({first}, {win.listed(r, 'K')}) = @x.shape, @w.shape",
        f"{', '.join(win.unpacked(r, p) for p, _ in options)} = {', '.join(t for _, t in options)}",
    ]
    if c.transposed:
        lines.append("O = OG * @groups")
        lines += [
            f"O{a} = ({a} - 1) * s{a.lower()} - 2 * p{a.lower()} + d{a.lower()} * (K{a} - 1) + @more[{i}] + 1"
            for i, a in enumerate(letters)
        ]
    elif c.same:
        lines += [f"O{a}, p{a.lower()} = {a}, d{a.lower()} * (K{a} - 1) // 2" for a in letters]
    else:
        lines += [
            f"O{a} = ({a} + 2 * p{a.lower()} - d{a.lower()} * (K{a} - 1) - 1) // s{a.lower()} + 1" for a in letters
        ]
    return "\n".join(lines)


_DIRECT = """
extern "C" __global__ void @name(@parameters) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    @split
    long long n = @rest;
    int CG = C / G, c0 = o / (O / G) * CG;
    float acc = b ? b[o] : 0.0f;
    for (int c = 0; c < CG; ++c)
@loops
@deep@positions
@deepif (@inside)
@deep    acc += x[@from] * w[@weight];
        }
    @stored
}
"""
_TRANSPOSED = """
extern "C" __global__ void @name(@parameters) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    @split
    long long n = @rest;
    int CG = C / G, OG = O / G, c0 = o / OG * CG;
    float acc = b ? b[o] : 0.0f;
@gather
    @stored
}
"""


def _direct(c: Convolution) -> str:
    """Returns a kernel with one thread a result."""
    declared, rest = win.split(c.rank, True)
    marks = {"split": declared, "rest": rest, "from": win.place(c.rank, "n * C + c0 + c", "", "i")}
    if c.transposed:
        return tiles.put(_TRANSPOSED, gather="\n" + _gather(c, 4, "acc"), **marks)
    heads, deep = win.loops(c.rank, 8)
    end = deep[4:] + "}"
    text = _DIRECT.replace("@loops", heads).replace("        }\n    @stored", f"{end}\n    @stored")
    marks |= {"positions": win.positions(c.rank), "inside": win.inside(c.rank), "deep": deep}
    return tiles.put(text, weight=win.place(c.rank, "o * CG + c", "K", "k"), **marks)


def _gather(c: Convolution, indent: int, acc: str) -> str:
    """Returns loops over the window that skip places outside the input, then over channels."""
    lines = []
    for letter in win.LETTERS[c.rank]:
        a, pad = letter.lower(), " " * indent
        lines.append(f"{pad}for (int k{a} = 0; k{a} < K{letter}; ++k{a}) {{")
        lines.append(f"{pad}    int i{a} = o{a} + p{a} - k{a} * d{a};")
        lines.append(f"{pad}    if (i{a} < 0 || i{a} % s{a} || (i{a} /= s{a}) >= {letter}) continue;")
        indent += 4
    x, w = win.place(c.rank, "n * C + c0 + c", "", "i"), win.place(c.rank, "(c0 + c) * OG + o % OG", "K", "k")
    lines.append(" " * indent + "for (int c = 0; c < CG; ++c)")
    lines.append(" " * indent + f"    {acc} += x[{x}] * w[{w}];")
    lines += [" " * (indent - 4 * (d + 1)) + "}" for d in range(c.rank)]
    return "\n".join(lines)


@shape_rule(*_OPERATORS)
def convolution_shape(writer: Writer, node: Node) -> Shape:
    """Returns batch, channels and extents as far as the text gives them."""
    x = writer.shape(node.args[0])
    rank, transposed = len(x) - 2, "transpose" in node.op
    if node.text:
        values = [argument(writer, node, "kernel_size"), argument(writer, node, "stride", 1)]
        values += [argument(writer, node, "padding", 0)]
        values += [argument(writer, node, "dilation", 1)]
        more = argument(writer, node, "output_padding", 0) if transposed else 0
        channels = argument(writer, node, "out_channels", -1)
    else:
        w = writer.shape(node.args[1])
        values = [tuple(w[2:])]
        for name, default in (("stride", "1"), ("padding", "0"), ("dilation", "1")):
            values.append(_known(writer, node.option(name, default)))
        more = _known(writer, node.option("output_padding", "0"))
        groups = _known(writer, node.option("groups", "1"))
        channels = w[0] if not transposed else w[1] * groups if isinstance(groups, int) else -1
    return (x[0], channels, *_extents(x[2:], rank, values, more, transposed))


def _known(writer: Writer, text: str) -> object:
    try:
        return writer.facts.value(text)
    except Unreadable:
        return None


def _extents(sizes: Shape, rank: int, values: list[object], more: object, transposed: bool) -> Shape:
    if values[2] == "same":
        return sizes
    if values[2] == "valid":
        values[2] = 0
    k, s, p, d = (win.numbers(v, rank) for v in values)
    o = win.numbers(more, rank)
    if k is None or s is None or p is None or d is None or o is None:
        return (-1,) * rank
    if transposed:
        return tuple(
            (n - 1) * s[i] - 2 * p[i] + d[i] * (k[i] - 1) + o[i] + 1 if n > 0 else -1 for i, n in enumerate(sizes)
        )
    return tuple(win.extent(n, k[i], s[i], p[i], d[i]) if n > 0 else -1 for i, n in enumerate(sizes))


def _chosen(writer: Writer, node: Node) -> str:
    """Returns the way that the schedule names, or the one that suits the layer."""
    way, transposed = writer.schedule.conv, "transpose" in node.op
    kept = bool(node.text)
    if way == AUTO:
        windows = _windows(writer, node)
        if not transposed:
            return best_convolution(windows, split_convolutions.MOST_PLACES, kept)
        way = best_convolution(windows, split_convolutions.MOST_PLACES, kept) if windows.known else "direct"
        way = way if way in (*split_convolutions.WAYS, WINDOW) else "direct"
    if transposed and way in split_convolutions.WAYS and not _steps_alike(writer, node):
        return "direct"
    if way == WINDOW and not _window(writer, node):
        return "direct"
    return way


def _window(writer: Writer, node: Node) -> window_tiles.Window | None:
    """Returns the constants of a convolution in the way `window`; None where the text does not give them, or where they
    do not fit."""
    x, y = writer.shape(node.args[0]), writer.shape(node)
    rank, transposed = len(x) - 2, "transpose" in node.op
    groups = _option(writer, node, "groups", 1)
    size = argument(writer, node, "kernel_size") if node.text else tuple(writer.shape(node.args[1])[2:])
    padding = _option(writer, node, "padding", 0) if node.text else node.option("padding", "0").strip("'\"")
    if padding == "valid" or (node.text and argument(writer, node, "padding_mode", "zeros") != "zeros"):
        padding = 0  # other modes pad before
    elif not node.text and padding != "same":
        padding = _known(writer, str(padding))
    window, strides, dilations = (
        win.numbers(value, rank)
        for value in (size, _option(writer, node, "stride", 1), _option(writer, node, "dilation", 1))
    )
    if window is None or strides is None or dilations is None or not isinstance(groups, int):
        return None
    if padding == "same":
        padding = tuple(d * (k - 1) // 2 for k, d in zip(window, dilations, strict=True))
    padded = win.numbers(padding, rank)
    if padded is None or min(x[1], y[1], groups, *window) < 1:
        return None
    found = window_tiles.Window(transposed, y[1] // groups, x[1] // groups, window, strides, dilations, padded)
    return found if found.fits else None


def _option(writer: Writer, node: Node, name: str, default: int) -> object:
    """Returns an option of a module or of a function's call; None where the text does not give it."""
    return argument(writer, node, name, default) if node.text else _known(writer, node.option(name, str(default)))


def _steps_alike(writer: Writer, node: Node) -> bool:
    """Tells whether a transposed convolution has stride 1 or dilation 1 in each dimension."""
    rank = len(writer.shape(node)) - 2
    strides, dilations = (win.numbers(_option(writer, node, name, 1), rank) for name in ("stride", "dilation"))
    if strides is None or dilations is None:
        return False
    return all(1 in pair for pair in zip(strides, dilations, strict=True))


def _windows(writer: Writer, node: Node) -> ConvolutionSizes:
    """Returns the sizes of a convolution as far as the text gives them."""
    x, y = writer.shape(node.args[0]), writer.shape(node)
    rank, transposed = len(x) - 2, "transpose" in node.op
    groups = _option(writer, node, "groups", 1)
    size = argument(writer, node, "kernel_size") if node.text else tuple(writer.shape(node.args[1])[2:])
    window, strides = win.numbers(size, rank), win.numbers(_option(writer, node, "stride", 1), rank)
    if not isinstance(groups, int) or window is None or strides is None or min(*x, *y, groups) < 1:
        return ConvolutionSizes(-1, -1, -1, -1, -1, -1)
    places = math.prod(-(-k // s) for k, s in zip(window, strides, strict=True)) if transposed else math.prod(window)
    outputs, inputs = (math.prod((shape[0], *shape[2:])) for shape in (y, x))
    thin = _window(writer, node)
    results = thin.results if thin else 0
    return ConvolutionSizes(y[1] // groups, x[1] // groups, groups, places, outputs, inputs, results)


def _way(writer: Writer, node: Node, c: Convolution, parameters: str, epilogue: Epilogue) -> ways.Way:
    """Returns the kernel of a way to convolve."""
    axes, conv, block = {0: "n", **win.axes(c.rank)}, _chosen(writer, node), writer.schedule.block
    if conv == WINDOW and (window := _window(writer, node)):
        return window_tiles.convolution(window, parameters, epilogue, axes)
    if conv == "channels":
        return ways.channels(c.rank, c.transposed, block, parameters, epilogue, axes)
    if conv == "weights":
        return ways.weights(c.rank, c.transposed, block, parameters, epilogue, axes)
    if conv in split_convolutions.WAYS:
        split = split_convolutions.convolution(c.rank, c.transposed, conv, parameters, epilogue, axes)
        return ways.Way(split.text, split.launch, split.before, split.first, split)
    if conv in TILINGS:
        return ways.product(c.rank, c.transposed, TILINGS[conv], parameters, epilogue, axes)
    text = tiles.fuse(_direct(c), parameters, epilogue, "i", axes)
    return ways.Way(text, f"(@y.numel() + {block - 1}) // {block}, {block}")


def _attribute(node: Node, c: Convolution) -> str:
    """Returns the weights as an attribute of the module; other text where they are none."""
    return f"{node.text}.weight" if node.text and c.weight == "conv.weight" else c.weight


def _kept_sizes(writer: Writer, node: Node, c: Convolution) -> str:
    """Returns the lines that give a function of the weights `w` the convolution's sizes; empty where the weights cannot
    be packed once."""
    groups = _option(writer, node, "groups", 1)
    if not is_attribute(_attribute(node, c)) or not isinstance(groups, int):
        return ""
    lead = "C, OG" if c.transposed else "O, CG"
    lines = [f"({lead}, {win.listed(c.rank, 'K')}), G = w.shape, {groups}"]
    lines.append("O = OG * G" if c.transposed else "C = CG * G")
    for prefix, name, default in (("s", "stride", 1), ("p", "padding", 0)) if c.transposed else ():
        numbers = win.numbers(_option(writer, node, name, default), c.rank)
        if numbers is None:
            return ""
        lines.append(f"{win.listed(c.rank, prefix)} = {', '.join(map(str, numbers))}")
    return "\n".join(lines)


@anchor(*_OPERATORS)
def convolution(writer: Writer, node: Node, epilogue: Epilogue) -> str:
    """Lowers nn.Conv1d to 3d, nn.ConvTranspose1d to 3d, and their functions."""
    if len(writer.shape(node.args[0])) < 3:
        raise Unreadable("a convolution of an input without batch")
    c = read_convolution(writer, node)
    r, y = c.rank, writer.result()
    sizes = win.parameters(r, "", "O", "K", "s", "p", "d")
    parameters = (
        f"const float* x, const float* w, const float* b, float* y, long long total, int C, int O, int G, {sizes}"
    )
    way = _way(writer, node, c, parameters, epilogue)
    name = add_kernel(writer, c.name, way.text)
    first, before = way.first, way.before.strip()
    if way.split:
        weights, kept = way.split.weights, _kept_sizes(writer, node, c)
        if kept:
            left = packed_once(writer, _attribute(node, c), way.split.kept(name, kept), "left")
            first, weights = first.replace("left", left, 1), ""
        before = "\n".join(part.strip("\n") for part in (way.split.sizes, weights, way.before) if part)
    template = f"""
{_sizes(c)}
@y = torch.empty(N, O, {win.listed(r, "O")}, device=@x.device)
{before}
kernels.@name[{way.launch}]({first}@x, @w, @b, @y, @y.numel(), C, O, @groups, \
{win.listed(r, "", "O", "K", "s", "p", "d")}@last)
"""
    marks = {"x": c.x, "w": c.weight, "b": c.bias, "groups": c.groups, "more": c.output_padding}
    add_lines(writer, template, y=y, name=name, last=epilogue.arguments(y), **marks)
    return y
