"""Writes convolutions as float32 products on tensor cores: weights times pixels gathered from a split image.

Three kernels (`device/kernelwright/convolution.cuh`): the first packs the weights, the second splits the input by
pixels, the third multiplies. A transposed convolution of stride s is s products a dimension: the outputs of one
remainder modulo s read the same places of the window, every s-th.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kernelwright.solutions.kernels import tiles
from kernelwright.solutions.kernels import windows as win
from kernelwright.solutions.kernels.split.products import CHUNK_BYTES, SHAPES
from kernelwright.solutions.kernels.stages import Epilogue

WAYS = tuple(SHAPES)
"""Ways to convolve that are written here. `split` ones gather from a split image; `read` ones read the input itself."""

_WEIGHTS = """
#include <kernelwright/convolution.cuh>
extern "C" __global__ void __launch_bounds__(256) @name_weights(@of_weights, void* packed) {
    int CG = C / G, OG = O / G, @sizes, phase = blockIdx.z / G, g = blockIdx.z % G;
    @window
    kw::pack<false>(packed, @k_chunks, [&](long long o, int k) {
        @k_tap
        @tap
        return o < OG && c < CG@exists ? w[@weight] : 0.0f;
    });
}
"""
_IMAGE = """
extern "C" __global__ void __launch_bounds__(256) @name_image(@of_image, void* image, float* scales) {
    int CG = C / G, chunks = (CG + 63) / 64, P = @pixels;
    kw::split_image(image, scales, pixels, G * chunks, [&](long long pixel, int chunk, int c) {
        int g = chunk / chunks;
        c += chunk % chunks * 64;
        return pixel < pixels && c < CG ? x[(pixel / P * C + g * CG + c) * P + pixel % P] : 0.0f;
    });
}
"""
# taps[k] = (offset of channel and place in the input, the place's number; 63 for none).
_TAPS = """
extern "C" __global__ void @name_taps(@of_taps, int2* taps, int count) {
    int k = blockIdx.x * 256 + threadIdx.x;
    if (k >= count) return;
    int Q = @places, CG = C / G, tap = k % Q, c = k / Q;
    @tap_window
    @tap
    int down = @tap_z * (@step_z) * @size_y + @tap_y * (@step_y), along = @tap_x * (@step_x);
    taps[k] = make_int2(c * (@pixels) + down * @size_x + along, c < CG ? tap : 63);
}
"""
_PRODUCT = """
extern "C" @cluster__global__ void __launch_bounds__(@bounds) @name(const void* left, @own_parameters, @parameters) {
    int CG = C / G, OG = O / G, @sizes, phase = blockIdx.z / G, g = blockIdx.z % G;
    @window
    @outputs
    int P = @plane;
    int M = OG, N = total / O / (@all) * P;
    int3 size{@size}, step{@steps};
    auto place = [&](int n) {
        int p = n % P;
        @first
        return make_int4(n / P, @start);
    };
    auto inside = [&](int4 at, int z, int y, int x) {
        return (unsigned)(at.y + z) < (unsigned)size.x && (unsigned)(at.z + y) < (unsigned)size.y &&
               (unsigned)(at.w + x) < (unsigned)size.z;
    };
    @right
    auto exact = [&](int m, int n) {
        int4 at = place(n);
        float acc = 0.0f;
        for (int tap = 0; tap < @places; ++tap) {
            @tap
            int z = @tap_z * step.x, y = @tap_y * step.y, u = @tap_x * step.z;
            if (!inside(at, z, y, u)@missing) continue;
            long long pixel = ((at.y + z) * size.y + at.z + y) * size.z + at.w + u;
            for (int c = 0; c < CG; ++c)
                acc += x[((long long)at.x * C + g * CG + c) * (@pixels) + pixel] * w[@exact_weight];
        }
        return acc;
    };
    auto store = [&](int n) {
        int p = n % P;
        @position
        long long plane = (long long)(n / P) * O, at = @at;
        return [=](int m, float acc) {
            int o = g * OG + m;
            if (b) acc += b[o];
            @stored
        };
    };
    kw::SplitTile<@tile>::run(left, right, M, N, @k_chunks, store, exact);
}
"""
_GATHERED = """
kw::Gathered<decltype(place)> right{image, scales, size, {@taps}, step, chunks, g * chunks, G * chunks, N, place};
"""
_COMPUTED = """
auto read = [&](int n) {
    int4 at = place(n);
    unsigned long long inside_places = 0;
    for (int tap = 0; n < N && tap < Q; ++tap) {
        @tap
        if (inside(at, @tap_z * step.x, @tap_y * step.y, @tap_x * step.z)@exists) inside_places |= 1ull << tap;
    }
    const float* from = x + ((long long)at.x * C + g * CG) * (@pixels) + (at.y * size.y + at.z) * size.z + at.w;
    return [=](int k) {
        int2 t = taps[k];
        return inside_places >> t.y & 1 ? from[t.x] : 0.0f;
    };
};
auto right = kw::computed<false>(read);
"""
MOST_PLACES = 63
"""Places of a window that the `read` ways know apart."""
_HOST = """
chunks, places, phases = (C // @groups + 63) // 64, @places, @phases
k_chunks, products = @k_chunks, phases * @groups
"""
_HOST_WEIGHTS = """
chunk_count = ((O // @groups + @above) // @rows) * @group_count * k_chunks
left = torch.empty(products * chunk_count * @bytes, dtype=torch.uint8, device=@w.device)
kernels.@name_weights[(chunk_count, 1, products), 256](@weights_arguments, left)
"""
_HOST_IMAGE = """
pixels = N * @pixels
image = torch.empty(pixels * @groups * chunks * 256, dtype=torch.uint8, device=@x.device)
scales = torch.empty(pixels * @groups * chunks, device=@x.device)
kernels.@name_image[(pixels + 63) // 64 * @groups * chunks, 256](@image_arguments, image, scales)
"""
_HOST_TAPS = """
taps = torch.empty(k_chunks * 64, 2, dtype=torch.int32, device=@x.device)
kernels.@name_taps[(k_chunks + 3) // 4, 256](@taps_arguments, taps, k_chunks * 64)
"""


@dataclass(frozen=True)
class SplitKernels:
    """The kernels of a convolution, the lines before its launch, the launch's configuration and first arguments."""

    text: str
    sizes: str
    """Lines of Python with the numbers that the others need."""
    weights: str
    """Lines that pack the weights as `left`, which may be kept."""
    before: str
    launch: str
    first: str

    def kept(self, name: str, sizes: str) -> str:
        """Returns a Python function that packs the weights of kernel `name`; `sizes` are lines that give the sizes."""
        lines = tiles.put("\n".join((self.sizes.strip("\n"), self.weights.strip("\n"))), name=name, groups="G", w="w")
        body = [*sizes.split("\n"), *lines.split("\n"), "return left"]
        return "\n".join([f"def pack_{name}(w):", *(f"    {line}" for line in body)])


def convolution(
    rank: int, transposed: bool, way: str, parameters: str, epilogue: Epilogue, axes: Mapping[int, str]
) -> SplitKernels:
    """Returns a convolution in one of `WAYS`. `parameters` are the direct kernel's; a transposed convolution has
    stride 1 or dilation 1."""
    s, marks = SHAPES[way], _marks(rank, transposed)
    if s.computed:
        own, first, second, host = "const int2* taps", "left, taps, ", _TAPS, _HOST_TAPS
        marks |= {
            "sizes": f"Q = {marks['places']}",
            "k_chunks": "(CG * Q + 63) / 64",
            "k_tap": "int tap = k % Q, c = k / Q;",
        }
    else:
        own, first, second, host = (
            "const void* image, const float* scales",
            "left, image, scales, ",
            _IMAGE,
            _HOST_IMAGE,
        )
        marks |= {"sizes": "chunks = (CG + 63) / 64", "k_chunks": f"{marks['places']} * chunks"}
        marks["k_tap"] = "int tap = k / (chunks * 64), c = k % (chunks * 64);"
    product = _PRODUCT.replace(
        "@right\n", (_COMPUTED if s.computed else _GATHERED).strip().replace("\n", "\n    ") + "\n"
    )
    kernels = [tiles.put(text, **marks) for text in (_WEIGHTS, second, product)]
    sides = ("weights", "taps" if s.computed else "image")
    named = {side: _used(text, parameters) for side, text in zip(sides, kernels, strict=False)}
    if not s.computed:
        named["image"].append("long long pixels")
    given = {f"of_{side}": ", ".join(found) for side, found in named.items()}
    text = tiles.put("".join(kernels), bounds=s.bounds, tile=s.tile, own_parameters=own, **given)
    index = f"(plane + o) * ({' * '.join(win.names(rank, 'O'))}) + at"
    text = tiles.fuse(text, parameters, epilogue, index, {d: name for d, name in axes.items() if d}, "j")
    phases = " * ".join(f"s{a}" for a in win.LETTERS[rank].lower()) if transposed else "1"
    cluster = f"__cluster_dims__({s.split}, 1, 1) " if s.split > 1 else ""
    text = text.replace("@cluster", cluster)
    filled = dict(
        places=_places(rank, transposed, "//"),
        k_chunks="(C // @groups * places + 63) // 64" if s.computed else "places * chunks",
        phases=phases,
        pixels=" * ".join(win.names(rank, "")),
        above=str(s.rows - 1),
        rows=str(s.rows),
        group_count=str(s.groups),
        bytes=str(CHUNK_BYTES),
        **{f"{side}_arguments": ", ".join(_argument(p) for p in found) for side, found in named.items()},
    )
    sizes, packed, before = (tiles.put(text, **filled) for text in (_HOST, _HOST_WEIGHTS, host))
    plane = " * ".join(f"((O{a} + s{a.lower()} - 1) // s{a.lower()})" for a in win.LETTERS[rank])
    plane = plane if transposed else " * ".join(win.names(rank, "O"))
    tiles_m = f"((O // @groups + {s.rows - 1}) // {s.rows})"
    across = f"((N * {plane} + {s.columns - 1}) // {s.columns})" + (f" * {s.split}" if s.split > 1 else "")
    grid = f"({tiles_m} * {across}, 1, products)"
    return SplitKernels(text, sizes, packed, before, f"{grid}, {s.threads}, {s.shared}", first)


def _used(kernel: str, parameters: str) -> list[str]:
    """Returns the parameters whose names a kernel's text has."""
    body = set(re.findall(r"\w+", kernel[kernel.index("{") :]))
    return [text for text in parameters.split(", ") if text.split()[-1] in body]


def _argument(parameter: str) -> str:
    name = parameter.split()[-1]
    return {"x": "@x", "w": "@w", "b": "@b", "G": "@groups", "total": "@y.numel()"}.get(name, name)


def _places(rank: int, transposed: bool, divide: str) -> str:
    """Returns the number of places of the window that one product reads."""
    if not transposed:
        return " * ".join(win.names(rank, "K"))
    return " * ".join(f"((K{a} + s{a.lower()} - 1) {divide} s{a.lower()})" for a in win.LETTERS[rank])


def _marks(rank: int, transposed: bool) -> dict[str, str]:
    """Returns the text of what a window's places and an output's are, for a direct or a transposed convolution."""
    letters = win.LETTERS[rank]
    low = letters.lower()
    pad = ["1"] * (3 - rank), ["0"] * (3 - rank)
    taps = [f"J{a}" for a in letters] if transposed else win.names(rank, "K")
    window, outputs, rest = "", [], "phase"
    if transposed:
        counts, phases, firsts = [], [], []
        for a in letters[::-1]:
            b = a.lower()
            counts.append(f"J{a} = (K{a} + s{b} - 1) / s{b}")
            phases.append(f"r{b} = {rest} % s{b}")
            firsts.append(f"f{b} = (r{b} + p{b}) % s{b}")
            rest += f" / s{b}"
            outputs.append(f"Q{a} = (O{a} - r{b} + s{b} - 1) / s{b}")
        window = f"int {', '.join([*counts, *phases, *firsts])};"
    extents = [f"Q{a}" if transposed else f"O{a}" for a in letters]
    rest, taken = "tap", []
    for a, count in zip(letters[::-1], taps[::-1], strict=True):
        last = a == letters[0]
        place = rest if last else f"{rest} % {count}"
        taken.append(f"t{a.lower()} = {place}")
        rest += f" / {count}"
    if transposed:
        taken += [f"k{a} = f{a} + t{a} * s{a}" for a in low]
    else:
        taken = [text.replace("t", "k", 1) for text in taken]
    exists = "".join(f" && k{a.lower()} < K{a}" for a in letters) if transposed else ""
    rest, places = "p", []
    for a, extent in zip(letters[::-1], extents[::-1], strict=True):
        places.append(f"o{a.lower()} = {rest}" + ("" if a == letters[0] else f" % {extent}"))
        rest += f" / {extent}"
    if transposed:
        moved = [f"q{text[1:]}" for text in places]
        first = f"int {', '.join(moved)};"
        start = [f"q{a} + (r{a} + p{a} - f{a}) / s{a}" for a in low]
        position = f"int {', '.join([*moved, *(f'o{a} = q{a} * s{a} + r{a}' for a in low)])};"
    else:
        first = position = f"int {', '.join(places)};"
        start = [f"o{a} * s{a} - p{a}" for a in low]
    step = [f"s{a} == 1 ? -d{a} : -1" if transposed else f"d{a}" for a in low]
    tap = [("t" if transposed else "k") + a for a in low]

    def weight(out: str) -> str:
        lead = f"(g * CG + c) * OG + {out}" if transposed else f"(g * OG + {out}) * CG + c"
        return win.place(rank, lead, "K", "k")

    return {
        "window": window,
        "outputs": f"int {', '.join(outputs)};" if transposed else "",
        "places": _brackets(_places(rank, transposed, "/")),
        **{f"tap_{axis}": text for axis, text in zip("zyx", [*pad[1], *tap], strict=True)},
        "tap": f"int {', '.join(taken)};",
        "exists": exists,
        "missing": exists.replace("&&", "||").replace("<", ">="),
        "weight": weight("o"),
        "exact_weight": weight("m"),
        "pixels": " * ".join(win.names(rank, "")),
        "plane": " * ".join(extents),
        "all": " * ".join(win.names(rank, "O")),
        "first": first,
        "start": ", ".join([*pad[1], *start]),
        "size": ", ".join([*pad[0], *win.names(rank, "")]),
        "taps": ", ".join([*pad[0], *taps]),
        "steps": ", ".join([*pad[0], *step]),
        **{f"step_{axis}": text for axis, text in zip("zyx", [*pad[0], *step], strict=True)},
        **{f"size_{axis}": text for axis, text in zip("yx", [*pad[0], *win.names(rank, "")][1:], strict=True)},
        "tap_window": f"int phase = 0;\n{window}" if transposed else "",
        "position": position,
        "at": win.place(rank, "0", "O", "o").replace(f"0 * O{letters[0]} + ", ""),
    }


def _brackets(text: str) -> str:
    return f"({text})" if "*" in text else text
