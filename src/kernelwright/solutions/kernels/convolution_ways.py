"""Writes faster convolutions than one thread a result: weights in shared memory, several channels a thread, products.

Each function returns the kernel (with `@name` open) and the launch's configuration. Parameters are the direct kernel's:
`x, w, b, y, total, C, O, G`, extents, strides, paddings and dilations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernelwright.solutions.kernels import tiles
from kernelwright.solutions.kernels import windows as win
from kernelwright.solutions.kernels.split.convolutions import SplitKernels
from kernelwright.solutions.kernels.stages import Epilogue


@dataclass(frozen=True)
class Way:
    """A kernel's text, and the text between the brackets of its launch (`@y`, `@groups` are marks)."""

    text: str
    launch: str
    before: str = ""
    """Lines of Python before the launch."""
    first: str = ""
    """Arguments before the convolution's own, with a comma after."""
    split: SplitKernels | None = None
    """The kernels of a way that packs its weights."""


def _reach(rank: int, transposed: bool) -> tuple[str, str]:
    """Returns the declaration of the input's coordinates for a place in the window, and the condition that they
    exist."""
    letters = win.LETTERS[rank]
    if not transposed:
        return win.positions(rank), win.inside(rank)
    declared = ", ".join(f"i{a} = o{a} + p{a} - k{a} * d{a}" for a in letters.lower())
    condition = " && ".join(f"i{a} >= 0 && i{a} % s{a} == 0 && i{a} / s{a} < {a.upper()}" for a in letters.lower())
    return f"int {declared};", condition


def _element(rank: int, transposed: bool, first: str) -> str:
    """Returns the input's element at those coordinates."""
    text = win.place(rank, first, "", "i")
    if transposed:
        for a in win.LETTERS[rank].lower():
            text = text.replace(f"i{a}", f"i{a} / s{a}")
    return f"x[{text}]"


def _weight(rank: int, transposed: bool, out: str, group: str) -> str:
    """Returns the weight for a channel `c` and an output channel `out`, both within the group."""
    first = f"(({group} * CG + c) * OG + {out})" if transposed else f"(({group} * OG + {out}) * CG + c)"
    return f"w[{win.place(rank, first, 'K', 'k')}]"


# Products ------------------------------------------------------------------------------------------------------------


def product(rank: int, transposed: bool, tiling: str, parameters: str, epilogue: Epilogue, axes: dict[int, str]) -> Way:
    """Returns a convolution as a product: pixels times weights, one product a group (blockIdx.z)."""
    letters = win.LETTERS[rank]
    declared, condition = _reach(rank, transposed)
    window, pixels = " * ".join(win.names(rank, "K")), " * ".join(win.names(rank, "O"))
    places, rest = [], "k"
    for a in letters[::-1]:
        places.append(f"k{a.lower()} = {rest} % K{a}")
        rest += f" / K{a}"
    inside, rest = [], "p"
    for a in letters[::-1]:
        inside.append(f"o{a.lower()} = {rest}" + (f" % O{a}" if a != letters[0] else ""))
        rest += f" / O{a}"
    start = f"""int CG = C / G, OG = O / G, g = blockIdx.z, N = OG, Q = {window}, K = CG * Q, P = {pixels};
long long M = total / O;
auto pixel = [&](long long m, int k) {{
    int p = m % P, {", ".join(places)}, {", ".join(inside)};
    {declared}
    return {condition} ? {_element(rank, transposed, "m / P * C + g * CG + k / Q")} : 0.0f;
}};"""
    if transposed:
        right: Callable[[str, str], str] = lambda k, n: f"w[((g * CG + {k} / Q) * OG + {n}) * Q + {k} % Q]"  # noqa: E731
    else:
        right = lambda k, n: f"w[(g * OG + {n}) * K + {k}]"  # noqa: E731
    p = tiles.Product(
        parameters=parameters,
        left=lambda m, k: f"pixel({m}, {k})",
        right=right,
        index="(m / P * O + o) * P + m % P",
        start=start,
        finish="int o = g * OG + n;\nif (b) acc += b[o];",
        a_by_rows=False,
        b_by_rows=False,
    )
    written = tiles.product(p, tiling, epilogue, {1: axes[1]})
    rows, columns = written.rows, written.columns
    grid = f"(@y.numel() // O + {rows - 1}) // {rows}, (O // @groups + {columns - 1}) // {columns}, @groups"
    return Way(written.text, f"({grid}), {written.block}")


# Several channels a thread -------------------------------------------------------------------------------------------

_CHANNELS = """
extern "C" __global__ void @name(@parameters) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    int CG = C / G, OG = O / G, T = (OG + 3) / 4;
    if (i >= total / O * G * T) return;
    @split
    int t = @rest % T * 4, g = @rest / T % G;
    long long n = @rest / T / G;
    float sums[4];
    for (int r = 0; r < 4; ++r) sums[r] = b && t + r < OG ? b[g * OG + t + r] : 0.0f;
    for (int c = 0; c < CG; ++c)
@loops
@deep@positions
@deepif (!(@inside)) continue;
@deepfloat u = @element;
@deepfor (int r = 0; r < 4; ++r)
@deep    if (t + r < OG) sums[r] += u * @weight;
@close
    for (int r = 0; r < 4 && t + r < OG; ++r) {
        int o = g * OG + t + r;
        float acc = sums[r];
        @stored
    }
}
"""


def channels(rank: int, transposed: bool, block: int, parameters: str, epilogue: Epilogue, axes: dict[int, str]) -> Way:
    """Returns a kernel with four output channels a thread: each element of the input is read once for all four."""
    declared, rest = win.split(rank, False)
    positions, inside = _reach(rank, transposed)
    heads, deep = win.loops(rank, 8)
    text = _CHANNELS.replace("@loops", heads).replace("@close", f"{deep[4:]}}}")
    text = tiles.put(
        text,
        split=declared,
        rest=rest,
        positions=positions,
        inside=inside,
        element=_element(rank, transposed, "n * C + g * CG + c"),
        weight=_weight(rank, transposed, "t + r", "g"),
        deep=deep,
    )
    index = win.place(rank, "n * O + o", "O", "o")
    text = tiles.fuse(text, parameters, epilogue, index, axes, "j")
    threads = "@y.numel() // O * @groups * ((O // @groups + 3) // 4)"
    return Way(text, f"({threads} + {block - 1}) // {block}, {block}")


# Weights in shared memory --------------------------------------------------------------------------------------------

_WEIGHTS = """
extern "C" __global__ void @name(@parameters) {
    extern __shared__ float ws[];
    int CG = C / G, OG = O / G, o = blockIdx.y, g = o / OG, P = @pixels, Q = @window;
    long long n = blockIdx.z;
    for (int k = threadIdx.x; k < CG * Q; k += blockDim.x) ws[k] = @weight;
    __syncthreads();
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= P) return;
    int @places;
    float acc = b ? b[o] : 0.0f;
    for (int c = 0; c < CG; ++c)
@loops
@deep@positions
@deepif (@inside) acc += @element * ws[@at];
@close
    @stored
}
"""


def weights(rank: int, transposed: bool, block: int, parameters: str, epilogue: Epilogue, axes: dict[int, str]) -> Way:
    """Returns a kernel whose block computes pixels of one image and one output channel, with weights in shared
    memory."""
    letters = win.LETTERS[rank]
    positions, inside = _reach(rank, transposed)
    heads, deep = win.loops(rank, 8)
    places, rest = [], "p"
    for a in letters[::-1]:
        places.append(f"o{a.lower()} = {rest}" + (f" % O{a}" if a != letters[0] else ""))
        rest += f" / O{a}"
    text = _WEIGHTS.replace("@loops", heads).replace("@close", f"{deep[4:]}}}")
    weight = "w[((g * CG + k / Q) * OG + o % OG) * Q + k % Q]" if transposed else "w[o * CG * Q + k]"
    text = tiles.put(
        text,
        pixels=" * ".join(win.names(rank, "O")),
        window=" * ".join(win.names(rank, "K")),
        weight=weight,
        places=", ".join(places),
        positions=positions,
        inside=inside,
        element=_element(rank, transposed, "n * C + g * CG + c"),
        at=win.place(rank, "c", "K", "k"),
        deep=deep,
    )
    text = tiles.fuse(text, parameters, epilogue, "(n * O + o) * P + p", axes)
    shared = f"4 * C // @groups * {' * '.join(win.names(rank, 'K'))}"
    grid = f"({' * '.join(win.names(rank, 'O'))} + {block - 1}) // {block}, O, N"
    return Way(text, f"({grid}), {block}, {shared}")
