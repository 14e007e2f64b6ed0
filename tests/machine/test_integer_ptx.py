"""Integer instructions that CUDA code reaches by intrinsics or inline PTX, against Python's integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from machine_launch import launch, program
from ptx_cases import HEAD, run

from kernelwright.machine import Allocation, MachineFault, Program

N = 256


def words(seed: int, count: int = 4) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    corners = np.array([0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF], np.uint64)
    arrays = []
    for _ in range(count):
        values = rng.integers(0, 2**32, N, dtype=np.uint64)
        arrays.append(np.where(rng.random(N) < 0.3, rng.choice(corners, N), values).astype(np.uint32))
    return arrays


def signed(v: int, bits: int = 32) -> int:
    v &= (1 << bits) - 1
    return v - (1 << bits) if v >> (bits - 1) else v


def part(v: int, selector: str, sign: bool) -> int:
    bits = {"": 32, "b": 8, "h": 16}[selector[:1]]
    v >>= bits * int(selector[1:] or 0)
    return signed(v, bits) if sign else v & ((1 << bits) - 1)


def clamped(v: int, bits: int, sign: bool) -> int:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if sign else (0, (1 << bits) - 1)
    return min(max(v, low), high)


def average(a: int, b: int) -> int:
    return (a + b + (1 if a + b >= 0 else 0)) >> 1


BINARY: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "absdiff": lambda a, b: abs(a - b),
    "min": min,
    "max": max,
    "avrg": average,
}
SCALAR = [
    # opcode, signs of d, a, b, sat, second operation, selectors of d, a, b
    ("vadd.s32.u32.s32", "add", "sus", False, "", ("", "", "")),
    ("vadd.s32.s32.s32.sat", "add", "sss", True, "", ("b2", "b1", "h0")),
    ("vadd.u32.s32.s32.add", "add", "uss", False, "add", ("", "b3", "h1")),
    ("vsub.s32.u32.u32.sat", "sub", "suu", True, "", ("", "", "")),
    ("vsub.u32.u32.u32.sat.min", "sub", "uuu", True, "min", ("", "", "b0")),
    ("vabsdiff.u32.s32.s32.add", "absdiff", "uss", False, "add", ("", "", "")),
    ("vmin.s32.s32.u32.max", "min", "ssu", False, "max", ("", "h1", "")),
    ("vmax.u32.u32.u32", "max", "uuu", False, "", ("h1", "h0", "h1")),
]


def selected(registers: tuple[str, ...], selectors: tuple[str, ...]) -> str:
    return ", ".join(r + ("." + s if s else "") for r, s in zip(registers, selectors, strict=False))


def merged(t: int, c: int, selector: str) -> int:
    if not selector:
        return t & 0xFFFFFFFF
    bits = 8 if selector[0] == "b" else 16
    shift = bits * int(selector[1])
    mask = ((1 << bits) - 1) << shift
    return (c & ~mask) | (t << shift & mask)


def compared(op: str, t: int, c: int, d_signed: bool) -> tuple[int, int]:
    """Returns the values that an H200 compares for a result and a third operand; see docs/machine.md."""
    if d_signed:
        return t if op == "absdiff" else signed(t), signed(c)
    return t, min(c, 1 << 31) if op in ("add", "sub") else c


def test_scalar_video() -> None:
    arrays = words(1, 3)
    cases = []
    for opcode, _, _, _, second, selectors in SCALAR:
        third = ", {c}" if second or selectors[0] else ""
        text = f"{opcode} " + selected(("{d}", "{a}", "{b}"), selectors) + third
        cases.append((text, [4, 4, 4, 4]))
    for (opcode, op, signs, sat, second, (ds, a_s, bs)), found in zip(
        SCALAR, run(cases, [arrays] * len(cases)), strict=True
    ):
        for a, b, c, result in zip(*(x.tolist() for x in arrays), found, strict=True):
            t = BINARY[op](part(a, a_s, signs[1] == "s"), part(b, bs, signs[2] == "s"))
            d_signed = signs[0] == "s"
            if sat:  # an unsigned word is only held at zero, as on a GPU
                whole = not ds and not d_signed
                t = max(t, 0) if whole else clamped(t, {"": 32, "b": 8, "h": 16}[ds[:1]], d_signed)
            if second == "add":
                wanted = (t + c) & 0xFFFFFFFF
            elif second:
                left, right = compared(op, t & 0xFFFFFFFF, c, d_signed)
                wanted = t & 0xFFFFFFFF if (left < right) == (second == "min") else c
            else:
                wanted = merged(t, c, ds)
            assert result == wanted, (opcode, hex(a), hex(b), hex(c))


def test_video_shifts_products_and_comparisons() -> None:
    arrays = words(2, 3)
    cases = [
        ("vshl.u32.u32.u32.wrap {d}, {a}, {b}", [4, 4, 4, 4]),
        ("vshr.s32.s32.u32.clamp.add {d}, {a}, {b}.b0, {c}", [4, 4, 4, 4]),
        ("vmad.s32.s32.u32.shr7 {d}, {a}.h1, {b}.b2, {c}", [4, 4, 4, 4]),
        ("vmad.u32.u32.u32.po {d}, {a}, {b}, {c}", [4, 4, 4, 4]),
        ("vset.s32.u32.lt {d}, {a}, {b}.h0", [4, 4, 4, 4]),
        ("vset.u32.u32.ge.add {d}, {a}, {b}, {c}", [4, 4, 4, 4]),
    ]
    results = run(cases, [arrays] * len(cases))
    for a, b, c, *found in zip(*(x.tolist() for x in arrays), *results, strict=True):
        wanted = [
            a << (b & 31),
            (signed(a) >> min(b & 255, 32)) + c,
            (signed(a >> 16, 16) * (b >> 16 & 255) + signed(c)) >> 7,
            a * b + c + 1,
            int(signed(a) < (b & 0xFFFF)),
            int(a >= b) + c,
        ]
        assert found == [w & 0xFFFFFFFF for w in wanted]


def test_simd_video() -> None:
    arrays = words(3, 3)
    forms = [
        (op, ways, signs, flag)
        for op in BINARY
        for ways in (2, 4)
        for signs in ("u", "s")
        for flag in ("", ".sat", ".add")
    ]
    cases = [
        (f"v{op}{ways}." + ".".join([s + "32"] * 3) + flag + " {d}, {a}, {b}, {c}", [4, 4, 4, 4])
        for op, ways, s, flag in forms
    ]
    for (op, ways, s, flag), found in zip(forms, run(cases, [arrays] * len(cases)), strict=True):
        bits = 32 // ways
        letter = "h" if ways == 2 else "b"
        for a, b, c, result in zip(*(x.tolist() for x in arrays), found, strict=True):
            lanes = [
                BINARY[op](part(a, letter + str(i), s == "s"), part(b, letter + str(i), s == "s")) for i in range(ways)
            ]
            if flag == ".sat":
                lanes = [clamped(t, bits, s == "s") for t in lanes]
            packed = sum((t & ((1 << bits) - 1)) << (bits * i) for i, t in enumerate(lanes))
            wanted = (c + sum(lanes)) & 0xFFFFFFFF if flag == ".add" else packed
            assert result == wanted, (op, ways, s, flag, hex(a), hex(b), hex(c))
    picked = [
        ("vadd2.u32.u32.u32 {d}.h1, {a}.h20, {b}.h13, {c}", [4] * 4),
        ("vmax4.u32.u32.u32 {d}.b31, {a}.b7016, {b}.b0123, {c}", [4] * 4),
        ("vset4.u32.u32.ne.add {d}, {a}, {b}, {c}", [4] * 4),
    ]
    results = run(picked, [arrays] * 3)
    for a, b, c, *found in zip(*(x.tolist() for x in arrays), *results, strict=True):
        halves = [a & 0xFFFF, a >> 16, b & 0xFFFF, b >> 16]
        every = [(b << 32 | a) >> (8 * i) & 255 for i in range(8)]
        largest = [max(every[x], every[y]) for x, y in zip((6, 1, 0, 7), (3, 2, 1, 0), strict=True)]
        assert found[0] == ((halves[2] + halves[1]) & 0xFFFF) << 16 | c & 0xFFFF
        assert found[1] == (c & 0x00FF00FF) | largest[1] << 8 | largest[3] << 24
        assert found[2] == (c + sum(every[i] != every[i + 4] for i in range(4))) & 0xFFFFFFFF


def test_the_intrinsics_of_cuda() -> None:
    source = r"""extern "C" __global__ void k(const unsigned* a, const unsigned* b, unsigned* y) {
      unsigned i = blockIdx.x * 64 + threadIdx.x, p = a[i], q = b[i], *o = y + i * 8;
      o[0] = __vaddus4(p, q); o[1] = __vabsdiffs2(p, q); o[2] = __vavgu4(p, q); o[3] = __vmins2(p, q);
      o[4] = __dp4a((int)p, (int)q, 7); o[5] = __vsadu4(p, q); o[6] = __vcmpgts4(p, q);
      o[7] = __byte_perm(p, q, 0x6240);
    }"""
    a, b = words(4, 2)
    y = np.zeros((N, 8), np.uint32)
    launch(program(source), "k", N // 64, 64, [a, b, y])
    for p, q, row in zip(a.tolist(), b.tolist(), y.tolist(), strict=True):
        u = [(p >> s & 255, q >> s & 255) for s in (0, 8, 16, 24)]
        h = [(signed(p >> s, 16), signed(q >> s, 16)) for s in (0, 16)]
        pack = lambda lanes, bits: sum((v & ((1 << bits) - 1)) << (bits * i) for i, v in enumerate(lanes))  # noqa: E731
        assert row == [
            pack([min(v + w, 255) for v, w in u], 8),
            pack([abs(v - w) for v, w in h], 16),
            pack([(v + w + 1) >> 1 for v, w in u], 8),
            pack([min(v, w) for v, w in h], 16),
            (sum(signed(v, 8) * signed(w, 8) for v, w in u) + 7) & 0xFFFFFFFF,
            sum(abs(v - w) for v, w in u),
            pack([255 if signed(v, 8) > signed(w, 8) else 0 for v, w in u], 8),
            pack([u[0][0], u[0][1], u[2][0], u[2][1]], 8),
        ]


def test_small_leftovers() -> None:
    arrays = words(5, 3)
    cases = [
        ("mad24.hi.s32 {d}, {a}, {b}, {c}", [4] * 4),
        ("mad24.hi.sat.s32 {d}, {a}, {b}, {c}", [4] * 4),
        ("min.relu.s16x2 {d}, {a}, {b}", [4] * 4),
        ("cvt.pack.sat.u8.s32.b32 {d}, {a}, {b}, {c}", [4] * 4),
        ("cvt.pack.sat.s16.s32 {d}, {a}, {b}", [4] * 4),
        ("{{ .reg .pred %q; lop3.or.b32 {d}|%q, {a}, {b}, {c}, 0x96, 0; @!%q mov.b32 {d}, 5; }}", [4] * 4),
        ("neg.ftz.f16x2 {d}, {a}", [4] * 4),
    ]
    results = run(cases, [arrays] * len(cases))
    for a, b, c, *found in zip(*(x.tolist() for x in arrays), *results, strict=True):
        high = (signed(a, 24) * signed(b, 24)) >> 16
        halves = [max(min(signed(a >> s, 16), signed(b >> s, 16)), 0) for s in (0, 16)]
        flushed = [((a >> s & 0xFFFF) if a >> s & 0x7C00 else a >> s & 0x8000) ^ 0x8000 for s in (0, 16)]
        assert found == [
            (high + c) & 0xFFFFFFFF,
            clamped(signed(high) + signed(c), 32, True) & 0xFFFFFFFF,
            halves[0] | halves[1] << 16,
            clamped(signed(b), 8, False) | clamped(signed(a), 8, False) << 8 | (c & 0xFFFF) << 16,
            (clamped(signed(b), 16, True) & 0xFFFF) | (clamped(signed(a), 16, True) & 0xFFFF) << 16,
            (a ^ b ^ c) or 5,
            flushed[0] | flushed[1] << 16,
        ]


ATOMICS = (
    HEAD
    + """
.visible .entry vectors(.param .u64 p0, .param .u64 p1) {
  .reg .b64 %rd<4>; .reg .f32 %f<9>; .reg .b32 %r<9>; .reg .b128 %q<4>; .reg .b16 %h<9>;
  ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1];
  mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0f40000000;
  atom.global.add.v2.f32 {%f3, %f4}, [%rd1], {%f1, %f2};
  red.global.add.v4.f32 [%rd1+16], {%f1, %f2, %f1, %f2};
  mov.b32 %r1, 0x3C004000;
  red.global.add.noftz.v2.f16x2 [%rd1+32], {%r1, %r1};
  mov.b64 %rd3, 7; mov.b128 %q1, {%rd3, %rd2};
  atom.global.exch.b128 %q2, [%rd1+48], %q1;
  atom.global.cas.b128 %q3, [%rd1+48], %q1, %q2;
  ret; }
.visible .entry tiny(.param .u64 p0) {
  .reg .b64 %rd<4>; .reg .f32 %f<4>; .shared .f32 s;
  ld.param.u64 %rd1, [p0]; mov.f32 %f1, 0f00000001; mov.f32 %f2, 0f00000000;
  st.shared.f32 [s], %f2; atom.shared.add.f32 %f3, [s], %f1; ld.shared.f32 %f3, [s];
  red.global.add.f32 [%rd1], %f1; st.global.f32 [%rd1+4], %f3;
  ret; }
"""
)


def test_vector_and_wide_atomics() -> None:
    loaded = Program.load(ATOMICS)
    memory = np.zeros(16, np.uint32)
    memory[12:16] = [1, 2, 3, 4]
    launch(loaded, "vectors", 1, 32, [memory, 9])
    floats = memory.view(np.float32)
    assert floats[:2].tolist() == [32, 64] and floats[4:8].tolist() == [32, 64, 32, 64]
    assert memory.view(np.float16)[16:20].tolist() == [64, 32, 64, 32]
    assert memory[12:16].tolist() == [1, 2, 3, 4]
    with pytest.raises(MachineFault, match="misaligned"):
        address = memory.ctypes.data
        args = [(address + 4).to_bytes(8, "little")] * 2
        loaded.launch("vectors", (1, 1, 1), (32, 1, 1), args, 0, [Allocation(address, 64, "memory")])


def test_float_atomics_flush_in_global_memory_only() -> None:
    memory = np.zeros(2, np.uint32)
    launch(Program.load(ATOMICS), "tiny", 1, 1, [memory])
    assert memory.tolist() == [0, 1]
