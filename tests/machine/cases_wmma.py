"""Conformance cases of wmma (through mma.h) and wgmma; they join `CASES_TENSOR`."""

from __future__ import annotations

import numpy as np
import tensor_layouts as layouts
from cases_tensor import (
    AMPERE,
    CASES_TENSOR,
    ERROR,
    HARDWARE_ERROR,
    HOPPER,
    INTEGERS,
    TensorCase,
    codes_of,
    matrix,
    product,
    result,
    typed,
)
from conformance import Run
from tensor_layouts import FORMATS, SharedMatrix

# --- wmma ------------------------------------------------------------------------------------------------------------

FRAGMENT_TYPES = {
    "f16": "half",
    "bf16": "__nv_bfloat16",
    "tf32": "wmma::precision::tf32",
    "f64": "double",
    "s8": "signed char",
    "u8": "unsigned char",
    "s4": "wmma::experimental::precision::s4",
    "u4": "wmma::experimental::precision::u4",
    "b1": "wmma::experimental::precision::b1",
    "f32": "float",
    "s32": "int",
}
MEMORY_TYPES = {"tf32": "float", "s4": "int", "u4": "int", "b1": "int"}
ARRAY_TYPES = {"half": np.uint16, "__nv_bfloat16": np.uint16, "signed char": np.int8, "unsigned char": np.uint8}


def _memory(codes: np.ndarray, kind: str, by_columns: bool, padding: int) -> tuple[np.ndarray, int]:
    """Returns a matrix in memory whose lines have `padding` extra elements, and its leading dimension."""
    lines = codes.T if by_columns else codes
    padded = np.zeros((lines.shape[0], lines.shape[1] + padding), np.uint64)
    padded[:, : lines.shape[1]] = lines
    bits = FORMATS[kind].bits
    if bits < 8:
        return layouts.pack_words(padded, bits), padded.shape[1]
    return padded.astype({8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}[bits]), padded.shape[1]


def wmma_source(
    shape: tuple[int, int, int], kinds: tuple[str, str, str], columns: tuple[bool, bool, bool], extra: str, shared: bool
) -> str:
    a, c, d = kinds
    sizes = ", ".join(str(v) for v in shape)
    layout = ["wmma::col_major" if by_columns else "wmma::row_major" for by_columns in columns]
    memory = [MEMORY_TYPES.get(kind, FRAGMENT_TYPES[kind]) for kind in kinds]
    where = "wmma::mem_col_major" if columns[2] else "wmma::mem_row_major"
    stage = ""
    if shared:
        stage = f"""__shared__ __align__(32) {memory[0]} s[2048];
  for (unsigned i = threadIdx.x; i < na; i += 32) s[i] = a[i];
  __syncwarp();
  a = s;"""
    return f"""#include <mma.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
using namespace nvcuda;
extern "C" __global__ void k(const {memory[0]}* a, const {memory[0]}* b, const {memory[1]}* c, {memory[2]}* d,
                             unsigned la, unsigned lb, unsigned lc, unsigned ld, unsigned na) {{
  {stage}
  wmma::fragment<wmma::matrix_a, {sizes}, {FRAGMENT_TYPES[a]}, {layout[0]}> fa;
  wmma::fragment<wmma::matrix_b, {sizes}, {FRAGMENT_TYPES[a]}, {layout[1]}> fb;
  wmma::fragment<wmma::accumulator, {sizes}, {FRAGMENT_TYPES[c]}> fc;
  wmma::fragment<wmma::accumulator, {sizes}, {FRAGMENT_TYPES[d]}> fd;
  wmma::load_matrix_sync(fa, a, la);
  wmma::load_matrix_sync(fb, b, lb);
  wmma::load_matrix_sync(fc, c, lc, {where});
  wmma::{"bmma_sync" if a == "b1" else "mma_sync"}(fd, fa, fb, fc{extra});
  wmma::store_matrix_sync(d, fd, ld, {where});
}}"""


def add_wmma(
    shape: tuple[int, int, int],
    kinds: tuple[str, str, str],
    columns: tuple[bool, bool, bool] = (False, True, False),
    operation: str = "",
    shared: bool = False,
) -> None:
    """Adds a case; `kinds` of A and B, C, D; `operation`: satfinite, xor or and."""
    m, n, k = shape
    a, c, d = kinds
    clamp = operation == "satfinite"
    extra = {"": "", "satfinite": ", true", "xor": "", "and": ", wmma::experimental::bmmaBitOpAND"}[operation]
    padding = {4: 32, 1: 128}.get(FORMATS[a].bits, 16)

    def make(rng: np.random.Generator) -> list[Run]:
        runs = []
        for whole in (True, False)[: 1 if a in INTEGERS else 2]:
            codes = [matrix(rng, kind, size, whole) for kind, size in ((a, (m, k)), (a, (k, n)), (c, (m, n)))]
            va, vb, vc = (FORMATS[kind].decode(x) for kind, x in zip((a, a, c), codes, strict=True))
            exact = codes_of(d, result(d, product(va, vb, operation) + vc, clamp))
            empty = np.zeros_like(exact)
            parts = [
                _memory(part, kind, by_columns, pad)
                for part, kind, by_columns, pad in (
                    (codes[0], a, columns[0], padding),
                    (codes[1], a, columns[1], padding),
                    (codes[2], c, columns[2], 8),
                    (empty, d, columns[2], 8),
                    (exact, d, columns[2], 8),
                )
            ]
            view = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "s32": np.int32}[d]
            size = parts[0][0].size
            args = [p.reshape(-1) for p, _ in parts[:3]] + [parts[3][0].view(view)] + [ld for _, ld in parts[:4]]
            wanted = parts[4][0].view(view)
            runs.append(Run("k", 1, 32, [*args, size], {3: wanted}, error=0.0 if whole else ERROR[d]))
        return runs

    letters = "".join("c" if by_columns else "r" for by_columns in columns)
    name = f"wmma_m{m}n{n}k{k}_{a}_{c}_{d}_{letters}{operation}{'_shared' if shared else ''}"
    arch = "compute_80" if a != "f64" else AMPERE
    source = wmma_source(shape, kinds, columns, extra, shared)
    CASES_TENSOR.append(TensorCase(name, source, arch, make, HARDWARE_ERROR[d]))


def _wmma() -> None:
    for index, shape in enumerate(((16, 16, 16), (32, 8, 16), (8, 32, 16))):
        for bits in range(8):
            columns = (bool(bits & 1), bool(bits & 2), bool(bits & 4))
            accumulators = ("f32", "f32") if (bits + index) % 2 else ("f16", "f16")
            add_wmma(shape, ("f16", *accumulators), columns, shared=bits % 3 == 0)
        add_wmma(shape, ("bf16", "f32", "f32"), (bool(index % 2), index == 0, False), shared=True)
        add_wmma(shape, ("s8", "s32", "s32"), (index == 1, index != 2, index == 2), "satfinite")
        add_wmma(shape, ("u8", "s32", "s32"), (index == 0, index == 1, index == 1))
    add_wmma((16, 16, 16), ("f16", "f16", "f32"))
    add_wmma((16, 16, 16), ("f16", "f32", "f16"))
    for bits in range(4):
        columns = (bool(bits & 1), bool(bits & 2), bits == 1)
        add_wmma((16, 16, 8), ("tf32", "f32", "f32"), columns, shared=bits == 2)
        add_wmma((8, 8, 4), ("f64", "f64", "f64"), columns)
    add_wmma((8, 8, 32), ("s4", "s32", "s32"))
    add_wmma((8, 8, 32), ("u4", "s32", "s32"), (False, True, True), "satfinite", shared=True)
    add_wmma((8, 8, 128), ("b1", "s32", "s32"), operation="xor")
    add_wmma((8, 8, 128), ("b1", "s32", "s32"), (False, True, True), operation="and")


# --- wgmma -----------------------------------------------------------------------------------------------------------


def wgmma_source(opcode: str, count_d: int, kind_d: str, count_a: int, immediates: str, selector: int = -1) -> str:
    """Returns a warpgroup's kernel: a shared memory image, relative descriptors, A's registers if any, D in and out."""
    kind, letter = ("float", "f") if kind_d == "f32" else ("unsigned", "r")
    r = ", ".join(f"%{i}" for i in range(count_d))
    at = count_d
    if count_a:
        a_text = "{" + ", ".join(f"%{at + i}" for i in range(count_a)) + "}"
        a_inputs = ", ".join(f'"r"(a[{i} * 128 + t])' for i in range(count_a))
    else:
        a_text, a_inputs = f"%{at}", '"l"(da)'
    at += count_a or 1
    sparse = f", %{at + 2}, {selector}" if selector >= 0 else ""
    metadata = ', "r"(e[t])' if sparse else ""
    loads = " ".join(f"r[{i}] = d[{i} * 128 + t];" for i in range(count_d))
    stores = " ".join(f"d[{i} * 128 + t] = r[{i}];" for i in range(count_d))
    inputs = f'{a_inputs}, "l"(db), "r"(keep){metadata}'
    return f"""extern "C" __global__ void k(const unsigned* image, unsigned words, unsigned long long da,
                              unsigned long long db, const unsigned* a, {kind}* d, int keep,
                              const unsigned* e) {{
  extern __shared__ __align__(1024) unsigned s[];
  unsigned t = threadIdx.x;
  for (unsigned i = t; i < words; i += 128) s[i] = image[i];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  unsigned long long base = (unsigned)__cvta_generic_to_shared(s) >> 4;
  da += base; db += base;
  {kind} r[{count_d}];
  {loads}
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("{{.reg .pred p; setp.ne.b32 p, %{at + 1}, 0; "
               "{opcode} {{{r}}}, {a_text}, %{at}{sparse}, p{immediates}; }}"
               : {", ".join(f'"+{letter}"(r[{i}])' for i in range(count_d))} : {inputs});
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  {stores}
}}"""


def shared_matrix(
    bits: int, rows: int, swizzle: str, k_major: bool, start: int, spread: int, base: int = 0, steps: int = 1
) -> tuple[SharedMatrix, int]:
    """Returns a canonical layout for `rows` rows of `steps` times 32 bytes of k, and its bytes. `spread` adds gaps."""
    wide = 16 if swizzle == "none" else int(swizzle)
    atom = 8 * wide  # eight rows (or eight k) of the swizzle's width
    if k_major and wide == 16:
        stride, leading = 128 + spread, (rows // 8) * (128 + spread) + spread
        used = (2 * steps - 1) * leading + rows // 8 * stride
    elif k_major:
        stride, leading = atom + spread * 8, 16
        used = rows // 8 * stride
    elif wide == 16:
        stride, leading = 128 + spread, (rows // 8) * (128 + spread)
        used = 2 * steps * leading
    else:
        blocks = -(-rows * 2 // wide)
        leading, stride = atom + spread * 8, blocks * (atom + spread * 8)
        used = 2 * steps * stride
    # A pattern that starts `base` rows of 128 bytes behind its boundary.
    return SharedMatrix(bits, swizzle, k_major, leading, stride, start + base * 128, base), used + base * 128


def add_wgmma(
    n: int,
    kinds: tuple[str, str, str],
    layout_a: tuple[str, bool] | None = ("128", True),
    layout_b: tuple[str, bool] = ("128", True),
    scales: tuple[int, int] = (1, 1),
    suffix: str = "",
    keep: bool = True,
    spread: int = 0,
    base: int = 0,
    selector: int = -1,
) -> None:
    """Adds a case; `kinds` of D, A, B. A layout is a swizzle, and whether k is contiguous.

    Without a layout, A is in registers. With a `selector` A is sparse.
    """
    sparse = selector >= 0
    d, a, b = kinds
    bits = FORMATS[a].bits
    stored_k = 256 // bits
    k = stored_k * (2 if sparse else 1)
    variant = "mma_async.sp" if sparse else "mma_async"
    opcode = f"wgmma.{variant}.sync.aligned.m64n{n}k{k}.{d}.{a}.{b}" + (f".{suffix}" if suffix else "")
    immediates = "" if d == "s32" else f", {scales[0]}, {scales[1]}"
    if bits == 16:
        immediates += f", {int(not layout_a[1])}" if layout_a else ""
        immediates += f", {int(not layout_b[1])}"

    def make(rng: np.random.Generator) -> list[Run]:
        codes_a, codes_b = matrix(rng, a, (64, stored_k), True), matrix(rng, b, (k, n), True)
        full_a, metadata = codes_a, np.zeros(128, np.uint32)
        if sparse:
            parts = [layouts.sparse_matrix(rng, rows, bits, selector, True) for rows in np.split(codes_a, 4)]
            full_a = np.concatenate([part.full for part in parts])
            metadata = np.concatenate([part.metadata for part in parts])
        start = matrix(rng, d, (64, n), True)
        sign = scales[0] * scales[1]
        sums = sign * product(FORMATS[a].decode(full_a), FORMATS[b].decode(codes_b))
        exact = result(d, sums + FORMATS[d].decode(start) * keep, suffix == "satfinite")
        begin, image = 0, np.zeros(1 << 17, np.uint8)
        registers = np.zeros((4, 128), np.uint32)
        desc_a = 0
        if layout_a:
            place, begin = shared_matrix(bits, 64, *layout_a, 0, spread)
            place.store(image, codes_a)
            desc_a, begin = place.descriptor(), -(-begin // 1024) * 1024
        else:
            registers = layouts.to_fragment(codes_a, bits, layouts.place_wgmma_a(bits), stored_k // 2, 128)
        place, size = shared_matrix(bits, n, *layout_b, begin, spread, base, 2 if sparse else 1)
        place.store(image, codes_b.T)
        used = begin + -(-size // 1024) * 1024
        bits_d = FORMATS[d].bits
        before = layouts.to_fragment(start, bits_d, layouts.place_wgmma_c, n // 2, 128)
        after = layouts.to_fragment(codes_of(d, exact), bits_d, layouts.place_wgmma_c, n // 2, 128)
        args = [
            image[:used].view(np.uint32),
            used // 4,
            desc_a,
            place.descriptor(),
            registers,
            typed(before, d),
            keep,
            metadata,
        ]
        return [Run("k", 1, 128, args, {5: typed(after, d)}, shared=used, error=0)]

    name = f"wgmma_m64n{n}k{k}_{d}_{a}_{b}_{_layout_name(layout_a)}_{_layout_name(layout_b)}"
    name += ("_" + suffix if suffix else "") + ("" if keep else "_zero") + (f"_spread{spread}" if spread else "")
    name += f"_base{base}" if base else ""
    name += f"_sparse{selector}" if sparse else ""
    name += "_negated" if scales != (1, 1) else ""
    count_d = n // 4 if d == "f16" else n // 2
    source = wgmma_source(opcode, count_d, d, 0 if layout_a else 4, immediates, selector)
    CASES_TENSOR.append(TensorCase(name, source, HOPPER, make, 2e-3 if a.startswith("e") else HARDWARE_ERROR[d]))


def _layout_name(layout: tuple[str, bool] | None) -> str:
    return f"{'k' if layout[1] else 'mn'}{layout[0]}" if layout else "registers"


def _wgmma() -> None:
    swizzles = ("none", "32", "64", "128")
    for index, swizzle in enumerate(swizzles):
        for k_major in (True, False):
            # One of A and B takes the layout, the other a fixed one, so that an error names its operand.
            add_wgmma(16, ("f32", "f16", "f16"), (swizzle, k_major), ("none", True), spread=128)
            add_wgmma(64 if k_major else 128, ("f32", "bf16", "bf16"), ("128", True), (swizzle, k_major))
        other = swizzles[(index + 1) % 4]
        add_wgmma(24, ("f32", "tf32", "tf32"), (swizzle, True), (other, True))
        add_wgmma(48, ("s32", "s8", "u8"), (swizzle, True), (other, True), suffix="satfinite" if index == 1 else "")
        add_wgmma(40, ("f32", "e4m3", "e5m2"), (swizzle, True), (other, True))
    for n in (8, 72, 136, 200, 256):
        add_wgmma(n, ("f32", "f16", "f16"), keep=n != 72)
    add_wgmma(32, ("f16", "f16", "f16"), None, ("64", False))
    add_wgmma(256, ("f16", "f16", "f16"), ("64", False), ("128", False), keep=False)
    add_wgmma(64, ("f32", "bf16", "bf16"), None, ("128", True), scales=(-1, 1))
    add_wgmma(8, ("f32", "f16", "f16"), scales=(-1, -1))
    add_wgmma(24, ("f32", "f16", "f16"), layout_b=("128", True), base=3)
    add_wgmma(64, ("f32", "f16", "f16"), layout_b=("64", False), base=5)
    add_wgmma(80, ("f32", "f16", "f16"), scales=(1, -1), keep=False)
    add_wgmma(96, ("f32", "tf32", "tf32"), None)
    add_wgmma(16, ("f16", "e5m2", "e4m3"), None)
    add_wgmma(112, ("f16", "e4m3", "e4m3"))
    add_wgmma(32, ("s32", "u8", "s8"), None)
    add_wgmma(16, ("s32", "b1", "b1"), suffix="and.popc")
    add_wgmma(64, ("s32", "b1", "b1"), None, ("32", True), suffix="and.popc")


def _sparse() -> None:
    add_wgmma(8, ("f32", "f16", "f16"), selector=0)
    add_wgmma(64, ("f32", "bf16", "bf16"), ("32", True), ("64", True), selector=1)
    add_wgmma(128, ("f16", "f16", "f16"), None, ("128", False), selector=1)
    add_wgmma(32, ("f32", "tf32", "tf32"), None, ("none", True), selector=1)
    add_wgmma(48, ("s32", "s8", "u8"), ("64", True), ("128", True), selector=0, suffix="satfinite")
    add_wgmma(24, ("f32", "e5m2", "e4m3"), None, ("64", True), selector=0)


_wmma()
_wgmma()
_sparse()
