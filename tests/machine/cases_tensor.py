"""Conformance cases of matrix instructions: mma.sync, mma.sp, wmma, ldmatrix and related ones, wgmma.

Each case is a kernel that loads fragments, runs one instruction and stores its result; its runs hold inputs and the
whole result by numpy. `CASES_TENSOR` lists them; they need no file in `kernels/`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import tensor_layouts as layouts
from conformance import Run
from tensor_layouts import FORMATS

AMPERE, HOPPER = "compute_80", "compute_90a"


@dataclass(frozen=True)
class TensorCase:
    """A case. `hardware_error` is a GPU's error bound where it exceeds the machine's `Run.error`."""

    name: str
    source: str
    arch: str
    make: Callable[[np.random.Generator], list[Run]] = field(repr=False)
    hardware_error: float = 0.0

    def runs(self) -> list[Run]:
        return self.make(np.random.default_rng(zlib.crc32(self.name.encode())))


CASES_TENSOR: list[TensorCase] = []

ERROR = {"f32": 1e-6, "f16": 1e-3, "f64": 1e-15, "s32": 0.0}
HARDWARE_ERROR = {"f16": 5e-3, "f32": 1e-5, "f64": 1e-14, "s32": 0.0}
INTEGERS = ("s8", "u8", "s4", "u4", "b1")


def matrix(rng: np.random.Generator, kind: str, shape: tuple[int, ...], whole: bool) -> np.ndarray:
    """Returns codes of small whole numbers, or of arbitrary numbers."""
    form = FORMATS[kind]
    if kind in INTEGERS:
        return rng.integers(0, 1 << form.bits, shape).astype(np.uint64)
    if kind == "s32":
        edge = rng.choice([-(2**31), 2**31 - 1, 0], shape) + rng.integers(-3000, 3000, shape)
        return form.encode(np.clip(edge, -(2**31), 2**31 - 1))
    return form.encode(rng.integers(-4, 5, shape) if whole else rng.standard_normal(shape))


def result(kind: str, exact: np.ndarray, clamp: bool = False) -> np.ndarray:
    """Returns the result in the accumulators' type: whole numbers wrap or saturate, the others round once."""
    if kind == "s32":
        whole = exact.astype(np.int64)
        return (np.clip(whole, -(2**31), 2**31 - 1) if clamp else (whole + 2**31) % 2**32 - 2**31).astype(np.int32)
    if clamp:
        most = 65504.0 if kind == "f16" else float(np.finfo(np.float32).max)
        exact = np.clip(np.nan_to_num(exact, nan=0.0), -most, most)
    return exact.astype({"f16": np.float16, "f32": np.float32, "f64": np.float64}[kind])


def codes_of(kind: str, values: np.ndarray) -> np.ndarray:
    return FORMATS[kind].encode(values.astype(np.float64) if kind != "s32" else values.astype(np.int64))


def product(a: np.ndarray, b: np.ndarray, operation: str = "") -> np.ndarray:
    if operation == "xor":
        return (a[:, :, None] != b[None]).sum(1).astype(np.float64)
    return a @ b


def registers(shape: tuple[int, int], kind: str) -> int:
    return shape[0] * shape[1] * FORMATS[kind].bits // 32 // (64 if kind == "f64" else 32)


# --- kernels ---------------------------------------------------------------------------------------------------------


def _operands(first: int, count: int) -> str:
    return "{" + ", ".join(f"%{first + i}" for i in range(count)) + "}"


C_TYPES = {"f64": ("double", "d"), "f32": ("float", "f")}


def mma_source(opcode: str, kinds: tuple[str, str, str, str], counts: tuple[int, int, int, int], selector: int) -> str:
    """Returns a warp's kernel: register r of lane l lies at [r * 32 + l]. `kinds` and `counts` are of D, A, B and C."""
    types = [C_TYPES.get(kind, ("unsigned", "r")) for kind in kinds]
    nd, na, nb, nc = counts
    text = _operands(0, nd) + ", " + _operands(nd, na) + ", " + _operands(nd + na, nb) + ", "
    text += _operands(nd + na + nb, nc)
    inputs = [
        f'"{types[which][1]}"({name}[{i} * 32 + l])'
        for which, name in ((1, "a"), (2, "b"), (3, "c"))
        for i in range(counts[which])
    ]
    parameters = ", ".join(f"const {types[which][0]}* {name}" for which, name in ((1, "a"), (2, "b"), (3, "c")))
    if selector >= 0:
        text += f", %{sum(counts)}, 0x{selector:x}"
        parameters += ", const unsigned* e"
        inputs.append('"r"(e[l])')
    outputs = ", ".join(f'"={types[0][1]}"(r[{i}])' for i in range(nd))
    stores = " ".join(f"d[{i} * 32 + l] = r[{i}];" for i in range(nd))
    return f"""extern "C" __global__ void k({parameters}, {types[0][0]}* d) {{
  unsigned l = threadIdx.x;
  {types[0][0]} r[{nd}];
  asm volatile("{opcode} {text};" : {outputs} : {", ".join(inputs)});
  {stores}
}}"""


def typed(words: np.ndarray, kind: str) -> np.ndarray:
    """Returns registers as the array type of the kernel's parameter."""
    return np.ascontiguousarray(words).view({"f64": np.float64, "f32": np.float32}.get(kind, np.uint32))


# --- mma.sync and mma.sp ---------------------------------------------------------------------------------------------


def add_mma(
    shape: tuple[int, int, int], kinds: tuple[str, str, str, str], suffix: str = "", arch: str = AMPERE
) -> None:
    """Adds a case; `kinds` as the opcode names them: D, A, B, C. `suffix`: satfinite, or the operation of b1."""
    m, n, k = shape
    d, a, b, c = kinds
    clamp, operation = suffix == "satfinite", suffix.removesuffix(".popc")
    opcode = f"mma.sync.aligned.m{m}n{n}k{k}.row.col" + (".satfinite" if clamp else "") + f".{d}.{a}.{b}.{c}"
    opcode += f".{suffix}" if operation in ("xor", "and") else ""
    counts = (registers((m, n), d), registers((m, k), a), registers((k, n), b), registers((m, n), c))

    def make(rng: np.random.Generator) -> list[Run]:
        runs = []
        for whole in (True, False)[: 1 if a in INTEGERS else 2]:
            codes = [matrix(rng, kind, size, whole) for kind, size in ((a, (m, k)), (b, (k, n)), (c, (m, n)))]
            va, vb, vc = (FORMATS[kind].decode(x) for kind, x in zip((a, b, c), codes, strict=True))
            exact = result(d, product(va, vb, operation) + vc, clamp)
            args = [
                typed(
                    layouts.to_fragment(codes[0], FORMATS[a].bits, layouts.place_a(FORMATS[a].bits, m), m * k // 32), a
                ),
                typed(layouts.to_fragment(codes[1], FORMATS[b].bits, layouts.place_b(FORMATS[b].bits), n * k // 32), b),
                typed(layouts.to_fragment(codes[2], FORMATS[c].bits, layouts.place_c, m * n // 32), c),
            ]
            wanted = layouts.to_fragment(codes_of(d, exact), FORMATS[d].bits, layouts.place_c, m * n // 32)
            runs.append(_run(args, d, wanted, 0.0 if whole else ERROR[d]))
        return runs

    name = opcode.replace("mma.sync.aligned.", "mma_")
    _add(name, mma_source(opcode, kinds, counts, -1), arch, make, d)


def _run(args: list[np.ndarray], kind: str, wanted: np.ndarray, error: float, block: int = 32) -> Run:
    """Returns a run whose result is the last argument. Halves are compared as numbers, two per register."""
    view = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "s32": np.int32}[kind]
    empty = np.full(wanted.shape, 0xDEADBEEF, wanted.dtype)
    return Run("k", 1, block, [*args, empty.view(view)], {len(args): wanted.view(view)}, error=error)


def _add(
    name: str, source: str, arch: str, make: Callable[[np.random.Generator], list[Run]], kind: str, fp8: bool = False
) -> None:
    loose = 2e-3 if fp8 else HARDWARE_ERROR[kind]  # Hopper sums products of fp8 with few bits
    CASES_TENSOR.append(TensorCase(name, source, arch, make, loose))


def add_volta(layout_a: str, layout_b: str, d: str, c: str) -> None:
    opcode = f"mma.sync.aligned.m8n8k4.{layout_a}.{layout_b}.{d}.f16.f16.{c}"

    def make(rng: np.random.Generator) -> list[Run]:
        a, b = matrix(rng, "f16", (4, 8, 4), True), matrix(rng, "f16", (4, 4, 8), True)
        start = matrix(rng, c, (4, 8, 8), True)
        exact = result(d, FORMATS["f16"].decode(a) @ FORMATS["f16"].decode(b) + FORMATS[c].decode(start))
        args = [
            _quads(a, 16, layouts.volta_a(layout_a), 4),
            _quads(b, 16, layouts.volta_b(layout_b), 4),
            typed(_quads(start, FORMATS[c].bits, layouts.volta_c(c), 8), c),
        ]
        return [_run(args, d, _quads(codes_of(d, exact), FORMATS[d].bits, layouts.volta_c(d), 8), 0.0)]

    counts = (4 if d == "f16" else 8, 2, 2, 4 if c == "f16" else 8)
    source = mma_source(opcode, (d, "f16", "f16", c), counts, -1)
    _add(opcode.replace("mma.sync.aligned.", "mma_"), source, "compute_75", make, d)


def _quads(codes: np.ndarray, bits: int, place: layouts.Place, count: int) -> np.ndarray:
    """Returns fragments of four matrices, one per quad pair."""
    all_four = [layouts.to_fragment(matrix, bits, place, count) for matrix in codes]
    lanes = np.array([layouts.quad_pair(lane) for lane in range(32)])
    return np.ascontiguousarray(np.stack(all_four)[lanes, :, np.arange(32)].T)


def add_sparse(
    shape: tuple[int, int, int], kinds: tuple[str, str, str, str], selector: int, ordered: bool, clamp: bool = False
) -> None:
    m, n, k = shape
    d, a, b, c = kinds
    variant = "sp::ordered_metadata" if ordered else "sp"
    opcode = f"mma.{variant}.sync.aligned.m{m}n{n}k{k}.row.col" + (".satfinite" if clamp else "") + f".{d}.{a}.{b}.{c}"
    counts = (registers((m, n), d), registers((m, k // 2), a), registers((k, n), b), registers((m, n), c))

    def make(rng: np.random.Generator) -> list[Run]:
        bits = FORMATS[a].bits
        sparse = layouts.sparse_matrix(rng, matrix(rng, a, (m, k // 2), True), bits, selector, ordered)
        codes_b, start = matrix(rng, b, (k, n), True), matrix(rng, c, (m, n), True)
        # A zero of the full matrix is no code of zero that was stored: both count as nothing.
        va = FORMATS[a].decode(sparse.full)
        exact = result(d, va @ FORMATS[b].decode(codes_b) + FORMATS[c].decode(start), clamp)
        args = [
            layouts.to_fragment(sparse.stored, bits, layouts.place_a(bits, m), m * k // 64),
            layouts.to_fragment(codes_b, FORMATS[b].bits, layouts.place_b(FORMATS[b].bits), n * k // 32),
            typed(layouts.to_fragment(start, FORMATS[c].bits, layouts.place_c, m * n // 32), c),
            sparse.metadata,
        ]
        wanted = layouts.to_fragment(codes_of(d, exact), FORMATS[d].bits, layouts.place_c, m * n // 32)
        return [_run(args, d, wanted, 0.0)]

    name = f"{opcode.replace('.sync.aligned.', '_')}_selector{selector}"
    arch = HOPPER if a.startswith("e") else AMPERE
    _add(name, mma_source(opcode, kinds, counts, selector), arch, make, d)


# --- ldmatrix, stmatrix, movmatrix -----------------------------------------------------------------------------------


def add_moves(count: int, transposed: bool) -> None:
    trans = ".trans" if transposed else ""
    regs = ", ".join(f"%{i}" for i in range(count))
    outs = ", ".join(f'"=r"(r[{i}])' for i in range(count))
    ins = ", ".join(f'"r"(x[{i} * 32 + l])' for i in range(count))
    load = f"""extern "C" __global__ void k(const unsigned* x, const unsigned* rows, unsigned* y) {{
  __shared__ __align__(16) unsigned s[{count} * 32 + 4];
  unsigned l = threadIdx.x, r[{count}];
  for (unsigned i = l; i < {count} * 32; i += 32) s[i] = x[i];
  __syncwarp();
  unsigned at = (unsigned)__cvta_generic_to_shared(s) + rows[l] * 16;
  asm volatile("ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{regs}}}, [%{count}];" : {outs} : "r"(at));
  {" ".join(f"y[{i} * 32 + l] = r[{i}];" for i in range(count))}
}}"""
    regs = ", ".join(f"%{i + 1}" for i in range(count))
    store = f"""extern "C" __global__ void k(const unsigned* x, const unsigned* rows, unsigned* y) {{
  __shared__ __align__(16) unsigned s[{count} * 32 + 4];
  unsigned l = threadIdx.x;
  unsigned at = (unsigned)__cvta_generic_to_shared(s) + rows[l] * 16;
  asm volatile("stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%0], {{{regs}}};"
               :: "r"(at), {ins} : "memory");
  __syncwarp();
  for (unsigned i = l; i < {count} * 32; i += 32) y[i] = s[i];
}}"""

    def make(rng: np.random.Generator, store: bool) -> list[Run]:
        halves = rng.permutation(count * 64).astype(np.uint64).reshape(count * 8, 8)
        order = rng.permutation(count * 8).astype(np.uint32)
        rows = np.concatenate([order, order])[np.arange(32) % (count * 8)]
        matrices = halves[order].reshape(count, 8, 8)  # as ldmatrix reads them
        fragment = layouts.pack_words(matrices.transpose(0, 2, 1) if transposed else matrices, 16).reshape(count, 32)
        memory = layouts.pack_words(halves, 16).reshape(count, 32)
        before, after = (fragment, memory) if store else (memory, fragment)
        return [Run("k", 1, 32, [before, rows, np.zeros_like(after)], {2: after}, error=0)]

    CASES_TENSOR.append(TensorCase(f"ldmatrix_x{count}{trans}", load, AMPERE, lambda rng: make(rng, False)))
    CASES_TENSOR.append(TensorCase(f"stmatrix_x{count}{trans}", store, HOPPER, lambda rng: make(rng, True)))


def add_movmatrix() -> None:
    source = """extern "C" __global__ void k(const unsigned* x, unsigned* y) {
  unsigned r;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(x[threadIdx.x]));
  y[threadIdx.x] = r;
}"""

    def make(rng: np.random.Generator) -> list[Run]:
        halves = rng.integers(0, 1 << 16, (8, 8)).astype(np.uint64)
        before, after = (np.ascontiguousarray(layouts.pack_words(x, 16).reshape(32)) for x in (halves, halves.T))
        return [Run("k", 1, 32, [before, np.zeros(32, np.uint32)], {1: after}, error=0)]

    CASES_TENSOR.append(TensorCase("movmatrix", source, AMPERE, make))


# --- the list --------------------------------------------------------------------------------------------------------


def _dense() -> None:
    for size in ((16, 8, 8), (16, 8, 16)):
        add_mma(size, ("f32", "f16", "f16", "f32"))
        add_mma(size, ("f16", "f16", "f16", "f16"))
        add_mma(size, ("f32", "bf16", "bf16", "f32"))
    for k in (4, 8):
        add_mma((16, 8, k), ("f32", "tf32", "tf32", "f32"))
    add_mma((8, 8, 4), ("f64",) * 4)
    for k in (4, 8, 16):
        add_mma((16, 8, k), ("f64",) * 4, arch=HOPPER)
    for kind, sizes in (("8", ((8, 8, 16), (16, 8, 16), (16, 8, 32))), ("4", ((8, 8, 32), (16, 8, 32), (16, 8, 64)))):
        for size in sizes:
            for a, b, suffix in (("s", "s", ""), ("u", "u", ""), ("s", "u", "satfinite"), ("u", "s", "")):
                add_mma(size, ("s32", a + kind, b + kind, "s32"), suffix)
    for size in ((8, 8, 128), (16, 8, 128), (16, 8, 256)):
        for suffix in ("xor.popc", "and.popc"):
            add_mma(size, ("s32", "b1", "b1", "s32"), suffix)
    for k in (16, 32):
        for a, b, d in (
            ("e4m3", "e4m3", "f32"),
            ("e5m2", "e4m3", "f32"),
            ("e4m3", "e5m2", "f16"),
            ("e5m2", "e5m2", "f16"),
        ):
            add_mma((16, 8, k), (d, a, b, d), arch=HOPPER)


def _sparse() -> None:
    for d in ("f32", "f16"):
        add_sparse((16, 8, 16), (d, "f16", "f16", d), 3, False)
        add_sparse((16, 8, 32), (d, "f16", "f16", d), 1, True)
        add_sparse((16, 8, 64), (d, "e4m3", "e5m2", d), 0, True)
    for k, selector in ((16, 1), (32, 0)):
        add_sparse((16, 8, k), ("f32", "bf16", "bf16", "f32"), selector, True)
        add_sparse((16, 8, k // 2), ("f32", "tf32", "tf32", "f32"), selector, False)
    for kind, narrow in (("8", 32), ("4", 64)):
        add_sparse((16, 8, narrow), ("s32", "s" + kind, "u" + kind, "s32"), 1, False)
        add_sparse((16, 8, 2 * narrow), ("s32", "u" + kind, "s" + kind, "s32"), 0, True, clamp=True)


def _all() -> None:
    _dense()
    for layout_a in ("row", "col"):
        for layout_b in ("row", "col"):
            add_volta(layout_a, layout_b, "f32", "f32")
    add_volta("row", "col", "f16", "f16")
    add_volta("col", "row", "f32", "f16")
    _sparse()
    for count in (1, 2, 4):
        add_moves(count, False)
        add_moves(count, True)
    add_movmatrix()


_all()
