"""Every rounding mode, .ftz, .sat, .relu and .satfinite against exact rationals."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from exact_floats import BF16, F16, F32, F64, NAN, OPERATIONS, TF32, Format, Value, clamp_bits, decode, encode
from hypothesis import given, settings
from hypothesis import strategies as st
from ptx_cases import run

MODES = ("rn", "rz", "rm", "rp")
NAMES = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64, "tf32": TF32}
N = 192


def patterns(f: Format, rng: np.random.Generator, count: int = N) -> np.ndarray:
    """Returns bit patterns of the corners: zeros, subnormals, ones, the largest, infinities, NaNs, near neighbours."""
    unsigned = f"u{f.bits // 8}"
    top = 1 << (f.bits - 1)
    infinity = (2 ** (f.bits - 1 - f.field) - 1) << f.field
    one = encode((0, Fraction(1)), f, "rn")
    corners = [0, 1, 2, (1 << f.field) - 1, 1 << f.field, (1 << f.field) + 1, one - 1, one, one + 1, infinity - 1]
    corners += [infinity, infinity + 1, infinity | 1 << (f.field - 1), one + (1 << f.field), one - (3 << f.field)]
    corners = [c | s for c in corners for s in (0, top)]
    middle = rng.integers(one - (20 << f.field) if f.bits > 16 else 1, one + (9 << f.field), count, dtype=np.uint64)
    middle |= rng.integers(0, 2, count, dtype=np.uint64) << np.uint64(f.bits - 1)
    any_bits = rng.integers(0, 2**f.bits, count, dtype=np.uint64, endpoint=False) if f.bits < 64 else None
    if any_bits is None:
        any_bits = rng.integers(0, 2**64 - 1, count, dtype=np.uint64)
    pick = rng.integers(0, 3, count)
    values = np.where(pick == 0, rng.choice(np.array(corners, np.uint64), count), np.where(pick == 1, any_bits, middle))
    return values.astype(unsigned)


def same(found: int, expected: int, f: Format) -> bool:
    if f is F64 and decode(expected, f) == NAN:
        return decode(found, f) == NAN
    return found == expected


def expected(op: str, mode: str, words: tuple[int, ...], f: Format, ftz: bool, sat: bool) -> int:
    values = [decode(word, f, ftz) for word in words]
    word = encode(OPERATIONS[op][1](*values, mode), f, mode, ftz)
    return clamp_bits(word, f) if sat else word


@pytest.mark.parametrize("name", ["f32", "f64"])
@pytest.mark.parametrize("op", sorted(OPERATIONS))
def test_arithmetic_in_every_mode(op: str, name: str) -> None:
    rng, f = np.random.default_rng(11), NAMES[name]
    sources = OPERATIONS[op][0]
    flags = [(mode, ftz, sat) for mode, ftz, sat in product(MODES, (False, True), (False, True))]
    if name == "f64":
        flags = [flag for flag in flags if not flag[1] and not flag[2]]
    if op in ("div", "rcp", "sqrt"):
        flags = [flag for flag in flags if not flag[2]]
    cases, inputs = [], []
    for mode, ftz, sat in flags:
        opcode = f"{op}.{mode}{'.ftz' if ftz else ''}{'.sat' if sat else ''}.{name}"
        cases.append((f"{opcode} {{d}}, " + ", ".join(["{a}", "{b}", "{c}"][:sources]), [f.bits // 8] * (sources + 1)))
        inputs.append([patterns(f, rng) for _ in range(sources)])
    for (mode, ftz, sat), arrays, found in zip(flags, inputs, run(cases, inputs), strict=True):
        for i, words in enumerate(zip(*(a.tolist() for a in arrays), strict=True)):
            wanted = expected(op, mode, words, f, ftz, sat)
            assert same(found[i], wanted, f), (op, mode, ftz, sat, [hex(w) for w in words], hex(found[i]), hex(wanted))


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_half_arithmetic(name: str) -> None:
    rng, f = np.random.default_rng(12), NAMES[name]
    flags = [("add", ""), ("sub", ""), ("mul", ""), ("fma", ""), ("fma", "relu")]
    if name == "f16":
        flags += [(op, flag) for op in ("add", "sub", "mul", "fma") for flag in ("sat", "ftz", "ftz.sat")]
    cases, inputs = [], []
    for op, flag in flags:
        sources = OPERATIONS[op][0]
        opcode = f"{op}.rn.{flag}.{name}".replace("..", ".")
        cases.append((f"{opcode} {{d}}, " + ", ".join(["{a}", "{b}", "{c}"][:sources]), [2] * (sources + 1)))
        inputs.append([patterns(f, rng) for _ in range(sources)])
    for (op, flag), arrays, found in zip(flags, inputs, run(cases, inputs), strict=True):
        for i, words in enumerate(zip(*(a.tolist() for a in arrays), strict=True)):
            wanted = expected(op, "rn", words, f, "ftz" in flag, "sat" in flag)
            if flag == "relu" and wanted >> 15 and decode(wanted, f) != NAN:
                wanted = 0
            assert found[i] == wanted, (op, flag, [hex(w) for w in words], hex(found[i]), hex(wanted))


CONVERSIONS = [(mode, to, source) for mode in MODES for to, source in (("f16", "f32"), ("f16", "f64"), ("f32", "f64"))]
CONVERSIONS += [(mode, to, "f32") for mode in ("rn", "rz") for to in ("bf16", "tf32")] + [("rna", "tf32", "f32")]
CONVERSIONS += [("", "f32", "f16"), ("", "f32", "bf16"), ("", "f64", "f32"), ("", "f64", "f16")]


def rounded_away(word: int) -> int:
    """Rounds as `cvt.rna.tf32` does on a GPU, by adding integers; an overflow into the sign stays a NaN."""
    magnitude = word & 0x7FFFFFFF
    return word & 0x80000000 | (min(magnitude + 0x1000, 0x7FFFFFFF) & ~0x1FFF)


def test_conversions_between_floats() -> None:
    rng = np.random.default_rng(13)
    cases, inputs, meant = [], [], []
    for mode, to, source in CONVERSIONS:
        flags = ["", "ftz"] if "f32" in (to, source) and "bf16" not in (to, source) and to != "tf32" else [""]
        flags += ["relu"] if mode in ("rn", "rz") and source == "f32" and to != "f32" else []
        flags += ["sat"] if to in ("f16", "f32") and mode else []
        for flag in flags:
            opcode = ".".join(part for part in ("cvt", mode, flag, to, source) if part)
            cases.append((opcode + " {d}, {a}", [NAMES[to].bits // 8, NAMES[source].bits // 8]))
            inputs.append([patterns(NAMES[source], rng)])
            meant.append((mode or "rn", flag, to, source))
    for (mode, flag, to, source), (array,), found in zip(meant, inputs, run(cases, inputs), strict=True):
        f, g = NAMES[to], NAMES[source]
        for word, result in zip(array.tolist(), found, strict=True):
            value = decode(word, g, flag == "ftz" and source == "f32" and to != "f16")
            wanted = encode(value, f, mode, flag == "ftz" and to == "f32")
            if flag == "relu" and value != NAN and value[0]:
                wanted = 0
            wanted = clamp_bits(wanted, f) if flag == "sat" else wanted
            if value == NAN and NAMES[to].bits > NAMES[source].bits:
                assert decode(result, f) == NAN  # with the payload that came in
                continue
            if value == NAN and to == "tf32":
                assert result == (0x7FFFE000 if mode != "rna" else rounded_away(word)), (mode, hex(word), hex(result))
                continue
            assert same(result, wanted, f), (mode, flag, to, source, hex(word), hex(result), hex(wanted))


def as_integer(value: Value, mode: str, low: int, high: int) -> int:
    if isinstance(value, str):
        return 0
    sign, magnitude = value
    if magnitude is None:
        return low if sign else high
    whole = int(magnitude)
    rest = magnitude - whole
    up = {
        "rni": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1),
        "rzi": False,
        "rmi": rest > 0 and bool(sign),
        "rpi": rest > 0 and not sign,
    }[mode]
    whole += up
    return min(max(-whole if sign else whole, low), high)


def test_conversions_to_and_from_integers() -> None:
    rng = np.random.default_rng(14)
    types = {"s16": 16, "u16": 16, "s32": 32, "u32": 32, "s64": 64, "u64": 64}
    cases, inputs, meant = [], [], []
    for name, width in types.items():
        for source, mode in product(("f16", "f32", "f64"), ("rni", "rzi", "rmi", "rpi")):
            cases.append((f"cvt.{mode}.{name}.{source} {{d}}, {{a}}", [width // 8, NAMES[source].bits // 8]))
            inputs.append([patterns(NAMES[source], rng)])
            meant.append((name, width, source, mode))
        for to, mode in product(("f16", "f32", "f64"), MODES):
            cases.append((f"cvt.{mode}.{to}.{name} {{d}}, {{a}}", [NAMES[to].bits // 8, width // 8]))
            shift = rng.integers(0, width, N, dtype=np.uint64)
            inputs.append(
                [(rng.integers(0, 2**64 - 1, N, dtype=np.uint64) >> (shift + 64 - width)).astype(f"u{width // 8}")]
            )
            meant.append((to, width, name, mode))
    for (to, width, source, mode), (array,), found in zip(meant, inputs, run(cases, inputs), strict=True):
        for word, result in zip(array.tolist(), found, strict=True):
            if source in types:
                number = word - (1 << width) if source[0] == "s" and word >> (width - 1) else word
                assert result == encode((int(number < 0), Fraction(abs(number))), NAMES[to], mode), (
                    to,
                    source,
                    mode,
                    word,
                )
                continue
            value = decode(word, NAMES[source])
            if value == NAN:
                continue  # the result of a NaN depends on the types; see docs/machine.md
            low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if to[0] == "s" else (0, (1 << width) - 1)
            wanted = as_integer(value, mode, low, high) % (1 << width)
            assert result == wanted, (to, source, mode, hex(word), hex(result), hex(wanted))


def test_minimum_and_maximum() -> None:
    rng = np.random.default_rng(15)
    forms = [
        (o, n, nan, xs, ftz)
        for o in ("min", "max")
        for n in ("f32", "f16", "bf16")
        for nan, xs, ftz in product((False, True), (False, True), (False, True))
        if not (n == "bf16" and ftz)
    ]
    cases, inputs = [], []
    for op, name, nan, xs, ftz in forms:
        opcode = op + (".ftz" if ftz else "") + (".NaN" if nan else "") + (".xorsign.abs" if xs else "") + "." + name
        cases.append((opcode + " {d}, {a}, {b}", [NAMES[name].bits // 8] * 3))
        inputs.append([patterns(NAMES[name], rng), patterns(NAMES[name], rng)])
    for (op, name, nan, xs, ftz), arrays, found in zip(forms, inputs, run(cases, inputs), strict=True):
        f = NAMES[name]
        for a, b, result in zip(*(x.tolist() for x in arrays), found, strict=True):
            wanted = minimum(a, b, f, op, nan, xs, ftz)
            assert result == wanted, (op, name, nan, xs, ftz, hex(a), hex(b), hex(result), hex(wanted))


def minimum(a: int, b: int, f: Format, op: str, nan: bool, xorsign: bool, ftz: bool) -> int:
    top = 1 << (f.bits - 1)
    sign = (a ^ b) & top
    words = [w & ~top if xorsign else w for w in (a, b)]
    if ftz:
        words = [w & top if decode(w, f) != NAN and w & ~top < 1 << f.field else w for w in words]
    real = [w for w in words if decode(w, f) != NAN]
    if len(real) < 2 and (nan or not real):
        return f.nan
    ordered = sorted(real, key=lambda w: -(w & ~top) - 0.5 if w & top else w)
    best = ordered[0] if op == "min" else ordered[-1]
    return (best & ~top) | sign if xorsign else best


def test_selection_by_sign() -> None:
    rng = np.random.default_rng(16)
    arrays = [rng.integers(0, 2**32, N, dtype=np.uint64).astype(np.uint32) for _ in range(2)] + [patterns(F32, rng)]
    cases = [(f"slct{ftz}.u32.f32 {{d}}, {{a}}, {{b}}, {{c}}", [4] * 4) for ftz in ("", ".ftz")]
    for ftz, found in zip((False, True), run(cases, [arrays] * 2), strict=True):
        for a, b, c, result in zip(*(x.tolist() for x in arrays), found, strict=True):
            value = decode(c, F32, ftz)
            first = value != NAN and (value[1] == 0 or not value[0])
            assert result == (a if first else b), (ftz, hex(c))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 2**32 - 1)] * 3), min_size=64, max_size=64), st.sampled_from(MODES))
def test_any_fused_product_is_exact(words: list[tuple[int, int, int]], mode: str) -> None:
    arrays = [np.array(column, np.uint32) for column in zip(*words, strict=True)]
    (found,) = run([(f"fma.{mode}.f32 {{d}}, {{a}}, {{b}}, {{c}}", [4] * 4)], [arrays])
    assert found == [expected("fma", mode, row, F32, False, False) for row in words]
