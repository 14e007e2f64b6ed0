"""Pooling in one to three dimensions: largest, mean, p-norm, adaptive. One thread a result, or several along a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernelwright import syntax
from kernelwright.solutions.kernels import tiles
from kernelwright.solutions.kernels import windows as win
from kernelwright.solutions.kernels.host import add_kernel, add_lines, argument
from kernelwright.solutions.kernels.stages import Epilogue, Writer, anchor, shape_rule
from kernelwright.solutions.read.declared import Shape, value_or
from kernelwright.solutions.read.reading import Node, Unreadable

_RANKS = (1, 2, 3)
MAX = tuple(f"max_pool{d}d" for d in _RANKS)
AVG = tuple(f"avg_pool{d}d" for d in _RANKS)
LP = tuple(f"lp_pool{d}d" for d in _RANKS)
ADAPTIVE = tuple(f"adaptive_{kind}_pool{d}d" for kind in ("avg", "max") for d in _RANKS)


def option(writer: Writer, node: Node, name: str, default: object = None) -> object:
    """Returns the value of a pooling option as far as the text gives it, else None."""
    if not node.text:
        text = node.option(name)
        return default if not text else value_or(syntax.expression(text), writer.facts.names(), None)
    return argument(writer, node, name, default)


@shape_rule(*MAX, *AVG, *LP)
def pooled_shape(writer: Writer, node: Node) -> Shape:
    """Returns the shape with batch and channels unchanged and one result a window."""
    rank = int(node.op[-2])
    x = writer.shape(node.args[0])
    if len(x) != rank + 2:
        raise Unreadable(f"{node.op} of {len(x)} dimensions")
    k = win.numbers(option(writer, node, "kernel_size"), rank)
    s = k if (stride := option(writer, node, "stride")) is None else win.numbers(stride, rank)
    p, d = (win.numbers(option(writer, node, n, v), rank) for n, v in (("padding", 0), ("dilation", 1)))
    if k is None or s is None or p is None or d is None:
        return (*x[:2], *(-1,) * rank)
    sizes = (win.extent(n, k[i], s[i], p[i], d[i]) if n > 0 else -1 for i, n in enumerate(x[2:]))
    return (*x[:2], *sizes)


@shape_rule(*ADAPTIVE)
def adaptive_shape(writer: Writer, node: Node) -> Shape:
    """Returns the shape with the requested extents; None keeps the input's."""
    rank = int(node.op[-2])
    x = writer.shape(node.args[0])
    if len(x) != rank + 2:
        raise Unreadable(f"{node.op} of {len(x)} dimensions")
    wanted = option(writer, node, "output_size")
    sizes = wanted if isinstance(wanted, (tuple, list)) else (wanted,) * rank
    unknown = wanted is None
    return (*x[:2], *(-1 if unknown else n if n is not None else x[2 + i] for i, n in enumerate(sizes)))


@dataclass(frozen=True)
class PoolingWindow:
    """CUDA text that reduces a window to a number; `u` is the element."""

    start: str
    step: str
    """One statement on `acc` and the element `@u`."""
    end: str = ""
    """A statement on `acc` after the loops."""
    parameters: str = ""
    arguments: str = ""


POOL_WAYS: dict[str, Callable[[Writer, Node, Epilogue, PoolingWindow, bool], str]] = {}
"""Value of `Schedule.memory` -> a function that does the work of `_pooled`; it returns "" where it cannot."""


_KERNEL = """
extern "C" __global__ void @name(@parameters) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    @split
    const float* p = x + @rest * @area;
    float acc = @start;
@loops
@deep@positions
@deepif (@inside) @step
@close
    @end
    @stored
}
"""


def _pooled(writer: Writer, node: Node, epilogue: Epilogue, window: PoolingWindow, dilated: bool) -> str:
    """Adds the kernel and its launch; options come from the module or from the call."""
    way = POOL_WAYS.get(writer.schedule.memory)
    if way and (found := way(writer, node, epilogue, window, dilated)):
        return found
    rank = int(node.op[-2])
    x = writer.tensor(node.args[0])
    declared, rest = win.split(rank, False)
    heads, deep = win.loops(rank, 4)
    area = " * ".join(win.LETTERS[rank])
    text = _KERNEL.replace("@loops", heads).replace("@close", f"{deep[4:]}}}")
    step = window.step.replace("@u", f"p[{win.plane(rank, 'i')}]")
    marks = {"positions": win.positions(rank, dilated), "inside": win.inside(rank), "step": step, "deep": deep}
    text = tiles.put(text, split=declared, rest=rest, area=area, start=window.start, end=window.end, **marks)
    groups = ("", "O", "K", "s", "p", *(("d",) if dilated else ()))
    if window.parameters:
        window_parameters = f", {window.parameters}"
    else:
        window_parameters = ""
    parameters = f"const float* x, float* y, long long total, {win.parameters(rank, *groups)}{window_parameters}"
    axes = {2 + d: name for d, name in enumerate(win.names(rank, "o"))}
    name = add_kernel(writer, node.op, tiles.fuse(text, parameters, epilogue, "i", axes))
    y, block = writer.result(), writer.schedule.block
    lines = size_lines(writer, node, rank, dilated)
    sizes = win.listed(rank, *groups)
    extra = f", {window.arguments}" if window.arguments else ""
    template = f"""
{lines}
@y = torch.empty(N, C, {win.listed(rank, "O")}, device=@x.device)
kernels.@name[(@y.numel() + {block - 1}) // {block}, {block}](@x, @y, @y.numel(), {sizes}{extra}@last)
"""
    add_lines(writer, template, x=x, y=y, name=name, last=epilogue.arguments(y))
    return y


def size_lines(writer: Writer, node: Node, rank: int, dilated: bool) -> str:
    """Returns Python lines with the sizes and options of a pooling."""
    tuple_of = win.TUPLE[rank]
    given = node.text or node.option("stride") not in ("", "None")
    if not node.text and node.option("stride") in writer.facts.names():  # an attribute may hold None
        given = option(writer, node, "stride") is not None
    stride = "stride" if given else "kernel_size"
    wanted = {"K": "kernel_size", "s": stride, "p": "padding", "d": "dilation"}
    groups = ["K", "s", "p", *(["d"] if dilated else [])]
    lines = []
    if node.text:
        lines.append(f"pool = {node.text}")
        values = [f"pool.{wanted[g]}" for g in groups]
    else:
        values = [node.option(wanted[g], "1" if g == "d" else "0") for g in groups]
    if node.op in LP:
        values[2] = "0"
        values[1] = f"{values[1]} or {values[0]}"
    lines.append(f"N, C, {win.listed(rank, '')} = @x.shape")
    left = ", ".join(win.unpacked(rank, g) for g in groups)
    lines.append(f"{left} = map({tuple_of}, ({', '.join(values)}))")
    ceil = option(writer, node, "ceil_mode", False)
    rounded = "" if ceil is False else "ceil" if ceil is True else "maybe"
    for letter in win.LETTERS[rank]:
        a = letter.lower()
        reach = f"{letter} + 2 * p{a} - " + (f"d{a} * (K{letter} - 1) - 1" if dilated else f"K{letter}")
        if rounded:
            more = f" + s{a} - 1" if rounded == "ceil" else f" + (s{a} - 1) * {_ceil(node)}"
            lines.append(f"O{letter} = ({reach}{more}) // s{a} + 1")
            lines.append(f"O{letter} -= (O{letter} - 1) * s{a} >= {letter} + p{a}")
        else:
            lines.append(f"O{letter} = ({reach}) // s{a} + 1")
    return "\n".join(lines)


def _ceil(node: Node) -> str:
    return "pool.ceil_mode" if node.text else node.option("ceil_mode")


@anchor(*MAX)
def max_pool(writer: Writer, node: Node, epilogue: Epilogue) -> str:
    """Returns the largest element of each window; NaN wins."""
    if option(writer, node, "return_indices", False) not in (False, None):
        raise Unreadable("no template for pooling that returns indices")
    return _pooled(writer, node, epilogue, PoolingWindow("-INFINITY", "acc = fmaxf(acc, @u);"), True)


@anchor(*AVG)
def avg_pool(writer: Writer, node: Node, epilogue: Epilogue) -> str:
    """Returns the mean of each window, with padding counted or not."""
    rank = int(node.op[-2])
    letters = win.LETTERS[rank]
    if option(writer, node, "divisor_override") is not None:
        raise Unreadable("no template for divisor_override")
    include = option(writer, node, "count_include_pad", True)
    ceil = option(writer, node, "ceil_mode", False)
    if include is True and ceil is False:
        end = f"acc /= {' * '.join(f'K{a}' for a in letters)};"
        return _pooled(writer, node, epilogue, PoolingWindow("0.0f", "acc += @u;", end), False)
    if include is None:
        raise Unreadable("the text does not fix count_include_pad")
    if include is False:
        window = PoolingWindow("0.0f", "acc += @u, ++count;", "acc /= count;")
        return _pooled(writer, node, epilogue, _counting(window), False)
    # Windows that reach beyond the padding count elements up to the padding's end only.
    count = " * ".join(
        f"(min(o{a.lower()} * s{a.lower()} - p{a.lower()} + K{a}, {a} + p{a.lower()}) - "
        f"(o{a.lower()} * s{a.lower()} - p{a.lower()}))"
        for a in letters
    )
    return _pooled(writer, node, epilogue, PoolingWindow("0.0f", "acc += @u;", f"acc /= {count};"), False)


def _counting(window: PoolingWindow) -> PoolingWindow:
    return PoolingWindow(f"{window.start};\n    int count = 0", window.step, window.end)


@anchor(*LP)
def lp_pool(writer: Writer, node: Node, epilogue: Epilogue) -> str:
    """Returns the p-norm of each window."""
    power = option(writer, node, "norm_type")
    p = f"{node.text}.norm_type" if node.text else node.option("norm_type")
    if power in (2, 2.0):
        return _pooled(writer, node, epilogue, PoolingWindow("0.0f", "acc += @u * @u;", "acc = sqrtf(acc);"), False)
    if power in (1, 1.0):
        return _pooled(writer, node, epilogue, PoolingWindow("0.0f", "acc += @u;"), False)
    window = PoolingWindow("0.0f", "acc += powf(@u, power);", "acc = powf(acc, 1.0f / power);", "float power", p)
    return _pooled(writer, node, epilogue, window, False)


_ADAPTIVE = """
extern "C" __global__ void @name(@parameters) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    @split
    const float* p = x + @rest * @area;
    @bounds
    float acc = @start;
@loops
        @step
    @end
    @stored
}
"""
# A block a result: its threads walk the window side by side, then a tree adds their sums.
_BLOCK = """
extern "C" __global__ void @name(@parameters) {
    __shared__ float parts[@threads];
    long long i = blockIdx.x;
    @split
    const float* p = x + @rest * @area;
    @bounds
    float acc = @start;
    for (int k = threadIdx.x; k < @window; k += @threads) {
        int @places;
        @step
    }
    parts[threadIdx.x] = acc;
    __syncthreads();
    for (int half = @threads / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) parts[threadIdx.x] = @combined;
        __syncthreads();
    }
    if (threadIdx.x > 0) return;
    acc = parts[0];
    @end
    @stored
}
"""


def _adaptive_text(rank: int, largest: bool, threads: int) -> str:
    """Returns the kernel with one thread a result, or one block of `threads` threads where that is not 0."""
    letters, small = win.LETTERS[rank], win.LETTERS[rank].lower()
    declared, rest = win.split(rank, False)
    bounds = "\n".join(
        f"int {a}0 = (long long)o{a} * {b} / O{b}, {a}1 = ((o{a} + 1LL) * {b} + O{b} - 1) / O{b};"
        for a, b in zip(small, letters, strict=True)
    )
    element = f"p[{win.plane(rank, 'i')}]"
    step = f"acc = fmaxf(acc, {element});" if largest else f"acc += {element};"
    window = " * ".join(f"({a}1 - {a}0)" for a in small)
    heads = "\n".join("    " * (d + 1) + f"for (int i{a} = {a}0; i{a} < {a}1; ++i{a})" for d, a in enumerate(small))
    places, left = [], "k"
    for a in small[::-1]:
        places.append(f"i{a} = {a}0 + {left}" + (f" % ({a}1 - {a}0)" if a != small[0] else ""))
        left += f" / ({a}1 - {a}0)"
    halves = "parts[threadIdx.x]", "parts[threadIdx.x + half]"
    combined = f"fmaxf({', '.join(halves)})" if largest else " + ".join(halves)
    text = _BLOCK if threads else _ADAPTIVE.replace("@loops\n        ", f"{heads}\n{'    ' * (rank + 1)}")
    marks = {"step": step, "end": "" if largest else f"acc /= {window};", "start": "-INFINITY" if largest else "0.0f"}
    marks |= {"bounds": bounds, "window": window, "places": ", ".join(places), "threads": str(threads)}
    return tiles.put(text, split=declared, rest=rest, area=" * ".join(letters), combined=combined, **marks)


@anchor(*ADAPTIVE)
def adaptive_pool(writer: Writer, node: Node, epilogue: Epilogue) -> str:
    """Pools windows from floor(o * size / outputs) to ceil((o + 1) * size / outputs)."""
    rank, largest = int(node.op[-2]), "max" in node.op
    x, block = writer.tensor(node.args[0]), writer.schedule.block
    by_blocks = writer.schedule.pool == "block" and block & (block - 1) == 0
    parameters = f"const float* x, float* y, long long total, {win.parameters(rank, '', 'O')}"
    axes = {2 + d: name for d, name in enumerate(win.names(rank, "o"))}
    text = _adaptive_text(rank, largest, block if by_blocks else 0)
    name = add_kernel(writer, node.op, tiles.fuse(text, parameters, epilogue, "i", axes))
    y = writer.result()
    grid = "@y.numel()" if by_blocks else f"(@y.numel() + {block - 1}) // {block}"
    template = f"""
N, C, {win.listed(rank, "")} = @x.shape
{_adaptive_sizes(writer, node, rank)}
@y = torch.empty(N, C, {win.listed(rank, "O")}, device=@x.device)
kernels.@name[{grid}, {block}](@x, @y, @y.numel(), {win.listed(rank, "", "O")}@last)
"""
    add_lines(writer, template, x=x, y=y, name=name, last=epilogue.arguments(y))
    return y


def _adaptive_sizes(writer: Writer, node: Node, rank: int) -> str:
    size = f"{node.text}.output_size" if node.text else node.option("output_size")
    wanted = option(writer, node, "output_size")
    left = win.unpacked(rank, "O").strip("()") if rank > 1 else "(OW,)"
    if isinstance(wanted, (tuple, list)) and None in wanted:
        parts = [letter if n is None else str(n) for letter, n in zip(win.LETTERS[rank], wanted, strict=True)]
        return f"{left} = {', '.join(parts)}"
    return f"{left} = {win.TUPLE[rank]}({size})"
