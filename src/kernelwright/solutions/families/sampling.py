"""Results that pick or blend elements of the input: embedding, upsampling, pixel and channel shuffle.

One thread computes a result: its coordinates determine the elements that it reads.
"""

from __future__ import annotations

from kernelwright.solutions.kernels import tiles
from kernelwright.solutions.kernels import windows as win
from kernelwright.solutions.kernels.host import add_kernel, add_lines, argument
from kernelwright.solutions.kernels.stages import Epilogue, Writer, anchor, shape_rule
from kernelwright.solutions.read.declared import Shape
from kernelwright.solutions.read.reading import Node, Unreadable

_KERNEL = """
extern "C" __global__ void @name(@parameters) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    @body
    @stored
}
"""


def sampled(writer: Writer, op: str, body: str, parameters: str, epilogue: Epilogue, axes: dict[int, str]) -> str:
    """Adds the kernel; returns its name."""
    return add_kernel(writer, op, tiles.fuse(tiles.put(_KERNEL, body=body), parameters, epilogue, "i", axes))


def _known(writer: Writer, node: Node, name: str, default: object = None) -> object:
    """Returns an option of a module or function as far as the text fixes it."""
    if node.text:
        return argument(writer, node, name, default)
    try:
        return writer.option(node, name, repr(default))
    except Unreadable:
        return None


_ORDER = {
    "pixel_shuffle": ("upscale_factor",),
    "pixel_unshuffle": ("downscale_factor",),
    "channel_shuffle": ("groups",),
    "interpolate": ("size", "scale_factor", "mode", "align_corners"),
}


def grid(y: str, block: int) -> str:
    return f"({y}.numel() + {block - 1}) // {block}, {block}"


# Embedding -----------------------------------------------------------------------------------------------------------


@shape_rule("embedding")
def embedding_shape(writer: Writer, node: Node) -> Shape:
    """Returns the indices' shape followed by one row of the table."""
    shape = writer.shape(node.args[0])
    if node.text:
        return (*shape, argument(writer, node, "embedding_dim", -1))
    return (*shape, writer.shape(node.args[1])[1])


@anchor("embedding")
def embedding(writer: Writer, node: Node, epilogue: Epilogue) -> str:
    """Returns rows of a table by their indices."""
    index = writer.tensor(node.args[0])
    kind = writer.kind(node.args[0])
    weight = writer.weight(node, "weight") if node.text else writer.tensor(node.args[1])
    if node.text and argument(writer, node, "max_norm") is not None:
        raise Unreadable("no template for max_norm")
    ctype = {"long": "long long", "int": "int"}.get(kind, "float")
    row = "x[i / D]" if ctype != "float" else "(long long)x[i / D]"  # indices that a kernel computed are floats
    rank = len(writer.shape(node))
    name = sampled(
        writer,
        "embedding",
        f"int d = i % D;\nfloat acc = w[{row} * (long long)D + d];",
        f"const {ctype}* x, const float* w, float* y, long long total, int D",
        epilogue,
        {rank - 1: "d"},
    )
    y = writer.result()
    template = f"""
D = @w.shape[1]
@y = torch.empty(*@x.shape, D, device=@w.device)
kernels.@name[{grid("@y", writer.schedule.block)}](@x, @w, @y, @y.numel(), D@last)
"""
    add_lines(writer, template, x=index, w=weight, y=y, name=name, last=epilogue.arguments(y))
    return y


# Upsampling ----------------------------------------------------------------------------------------------------------


@shape_rule("interpolate")
def interpolated_shape(writer: Writer, node: Node) -> Shape:
    """Returns the extents by size or by factor."""
    x = writer.shape(node.args[0])
    rank = len(x) - 2
    size, factor = _known(writer, node, "size"), _known(writer, node, "scale_factor")
    if (sizes := win.numbers(size, rank)) is not None:
        return (*x[:2], *sizes)
    if isinstance(factor, (int, float)):
        factor = (factor,) * rank
    if isinstance(factor, (tuple, list)) and len(factor) == rank:
        return (*x[:2], *(int(n * f) if n > 0 else -1 for n, f in zip(x[2:], factor, strict=True)))
    return (*x[:2], *(-1,) * rank)


def _text(node: Node, name: str) -> str:
    return f"{node.text}.{name}" if node.text else node.option(name, "None")


@anchor("interpolate")
def interpolate(writer: Writer, node: Node, epilogue: Epilogue) -> str:
    """Interpolates: nearest, linear, bilinear and trilinear, with corners aligned or not."""
    shape = writer.shape(node.args[0])
    rank = len(shape) - 2
    if rank not in (1, 2, 3):
        raise Unreadable(f"no template for interpolation of {len(shape)} dimensions")
    mode = _known(writer, node, "mode", "nearest")
    if node.option("recompute_scale_factor", "None") not in ("None", "False") or node.option("antialias"):
        raise Unreadable("no template for these options of interpolate")
    sized = _known(writer, node, "size") is not None
    if mode == "nearest":
        body, more, passed = _nearest(rank, sized)
    elif mode in ("linear", "bilinear", "trilinear"):
        body, more, passed = _linear(rank, sized, _known(writer, node, "align_corners", False) is True)
    else:
        raise Unreadable(f"no template for interpolation of mode {mode}")
    x = writer.tensor(node.args[0])
    axes = {2 + d: name for d, name in enumerate(win.names(rank, "o"))}
    parameters = f"const float* x, float* y, long long total, {win.parameters(rank, '', 'O')}{more}"
    op = f"upsample_{mode}{rank}d" if mode == "nearest" else f"upsample_{mode}"
    name = sampled(writer, op, body, parameters, epilogue, axes)
    y = writer.result()
    lines = [f"N, C, {win.listed(rank, '')} = @x.shape"]
    left = ", ".join(win.names(rank, "O")) + ("," if rank == 1 else "")
    if sized:
        lines.append(f"{left} = {win.TUPLE[rank]}({_text(node, 'size')})")
    else:
        scales = ", ".join(win.names(rank, "s")) + ("," if rank == 1 else "")
        lines.append(f"{scales} = {win.TUPLE[rank]}({_text(node, 'scale_factor')})")
        scaled = ", ".join(f"int({a} * s{a.lower()})" for a in win.LETTERS[rank])
        lines.append(f"{left} = {scaled}{',' if rank == 1 else ''}")
    lines.append(f"@y = torch.empty(N, C, {win.listed(rank, 'O')}, device=@x.device)")
    sizes = win.listed(rank, "", "O")
    lines.append(f"kernels.@name[{grid('@y', writer.schedule.block)}](@x, @y, @y.numel(), {sizes}{passed}@last)")
    add_lines(writer, "\n".join(lines), x=x, y=y, name=name, last=epilogue.arguments(y))
    return y


def _steps(rank: int, sized: bool) -> tuple[str, str, list[str]]:
    """Returns parameters and arguments for the scales, and C text of the input's step for one step of the output."""
    letters = win.LETTERS[rank]
    if sized:
        return "", "", [f"((float){a} / O{a})" for a in letters]
    names = win.names(rank, "s")
    return "".join(f", float {n}" for n in names), f", {', '.join(names)}", [f"(1.0f / {n})" for n in names]


def _nearest(rank: int, sized: bool) -> tuple[str, str, str]:
    declared, rest = win.split(rank, False)
    more, passed, steps = _steps(rank, sized)
    parts = [
        f"i{a.lower()} = min((int)(o{a.lower()} * {step}), {a} - 1)"
        for a, step in zip(win.LETTERS[rank], steps, strict=True)
    ]
    return f"{declared}\nint {', '.join(parts)};\nfloat acc = x[{win.place(rank, rest, '', 'i')}];", more, passed


def _linear(rank: int, sized: bool, aligned: bool) -> tuple[str, str, str]:
    """Blends the two neighbours along every dimension, one dimension after the other."""
    declared, rest = win.split(rank, False)
    more, passed, steps = ("", "", []) if aligned else _steps(rank, sized)
    lines = [declared, f"const float* p = x + {rest} * {' * '.join(win.LETTERS[rank])};", "float acc = 0.0f;"]
    for d, letter in enumerate(win.LETTERS[rank]):
        a = letter.lower()
        if aligned:
            at = f"O{letter} > 1 ? o{a} * ((float)({letter} - 1) / (O{letter} - 1)) : 0.0f"
        else:
            at = f"fmaxf((o{a} + 0.5f) * {steps[d]} - 0.5f, 0.0f)"
        lines.append(f"float f{a} = {at};")
        lines.append(f"int {a}0 = min((int)f{a}, {letter} - 1), {a}1 = min({a}0 + 1, {letter} - 1);")
        lines.append(f"f{a} -= {a}0;")
    letters = win.LETTERS[rank].lower()
    for corner in range(2**rank):
        bits = [corner >> (rank - 1 - d) & 1 for d in range(rank)]
        weight = " * ".join(f"f{a}" if b else f"(1.0f - f{a})" for a, b in zip(letters, bits, strict=True))
        place = f"{letters[0]}{bits[0]}"
        for a, b in zip(letters[1:], bits[1:], strict=True):
            place = f"({place})" if " " in place else place
            place = f"{place} * {a.upper()} + {a}{b}"
        lines.append(f"acc += {weight} * p[{place}];")
    return "\n".join(lines), more, passed


# Shuffles ------------------------------------------------------------------------------------------------------------


@shape_rule("pixel_shuffle", "pixel_unshuffle")
def shuffled_shape(writer: Writer, node: Node) -> Shape:
    """Returns the shape with channels turned into pixels, or pixels into channels."""
    x = writer.shape(node.args[0])
    r = _known(writer, node, _ORDER[node.op][0])
    if len(x) != 4:
        raise Unreadable(f"no template for {node.op} of {len(x)} dimensions")
    if not isinstance(r, int) or min(x) < 0:
        return (x[0], -1, -1, -1)
    if node.op == "pixel_shuffle":
        return (x[0], x[1] // (r * r), x[2] * r, x[3] * r)
    return (x[0], x[1] * r * r, x[2] // r, x[3] // r)


@anchor("pixel_shuffle", "pixel_unshuffle", "channel_shuffle")
def shuffle(writer: Writer, node: Node, epilogue: Epilogue) -> str:
    """Rearranges pixels and channels."""
    x = writer.tensor(node.args[0])
    r = _text(node, _ORDER[node.op][0])
    if node.op == "channel_shuffle":
        return _channels(writer, node, epilogue, x, r)
    up = node.op == "pixel_shuffle"
    if up:
        body = "int ow = i % (W * r), oh = i / (W * r) % (H * r), o = i / (W * r) / (H * r) % (C / r / r);\n"
        body += "long long n = i / (W * r) / (H * r) / (C / r / r);\n"
        body += "float acc = x[((n * C + (o * r + oh % r) * r + ow % r) * H + oh / r) * W + ow / r];"
        shape = "N, C // r**2, H * r, W * r"
    else:
        body = "int ow = i % (W / r), oh = i / (W / r) % (H / r), o = i / (W / r) / (H / r) % (C * r * r);\n"
        body += "long long n = i / (W / r) / (H / r) / (C * r * r);\n"
        body += "float acc = x[((n * C + o / r / r) * H + oh * r + o / r % r) * W + ow * r + o % r];"
        shape = "N, C * r**2, H // r, W // r"
    parameters = "const float* x, float* y, long long total, int C, int H, int W, int r"
    name = sampled(writer, node.op, body, parameters, epilogue, {0: "n", **win.axes(2)})
    y = writer.result()
    template = f"""
(N, C, H, W), r = @x.shape, @r
@y = torch.empty({shape}, device=@x.device)
kernels.@name[{grid("@y", writer.schedule.block)}](@x, @y, @y.numel(), C, H, W, r@last)
"""
    add_lines(writer, template, x=x, y=y, name=name, r=r, last=epilogue.arguments(y))
    return y


def _channels(writer: Writer, node: Node, epilogue: Epilogue, x: str, groups: str) -> str:
    body = "int o = i / P % C;\nlong long n = i / P / C;\n"
    body += "float acc = x[(n * C + o % G * (C / G) + o / G) * P + i % P];"
    parameters = "const float* x, float* y, long long total, int C, int P, int G"
    name = sampled(writer, node.op, body, parameters, epilogue, {0: "n", 1: "o"})
    y = writer.result()
    template = f"""
C, P = @x.shape[1], @x[0, 0].numel()
@y = torch.empty_like(@x)
kernels.@name[{grid("@y", writer.schedule.block)}](@x, @y, @y.numel(), C, P, @r@last)
"""
    add_lines(writer, template, x=x, y=y, name=name, r=groups, last=epilogue.arguments(y))
    return y
