"""Binary floating point by exact rationals: the expected bits of every rounding mode, .ftz and .sat."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

NAN = "nan"
Value = tuple[int, Fraction | None] | str
"""(sign, magnitude), magnitude None for infinity; or NAN."""


@dataclass(frozen=True)
class Format:
    bits: int
    mant: int
    low: int  # smallest normal exponent
    high: int
    nan: int
    stored: int = 0  # mantissa bits of the encoding, where they are more than the precision (tf32)

    @property
    def field(self) -> int:
        return self.stored or self.mant

    @property
    def largest(self) -> Fraction:
        return (2 - Fraction(1, 2**self.mant)) * Fraction(2) ** self.high


F16 = Format(16, 10, -14, 15, 0x7FFF)
BF16 = Format(16, 7, -126, 127, 0x7FFF)
TF32 = Format(32, 10, -126, 127, 0x7FFFFFFF, stored=23)
F32 = Format(32, 23, -126, 127, 0x7FFFFFFF)
F64 = Format(64, 52, -1022, 1023, 0x7FFFFFFFFFFFFFFF)


def decode(word: int, f: Format, ftz: bool = False) -> Value:
    sign = word >> (f.bits - 1)
    exponent = word >> f.field & (2 ** (f.bits - 1 - f.field) - 1)
    fraction = word & (2**f.field - 1)
    if exponent == 2 ** (f.bits - 1 - f.field) - 1:
        return NAN if fraction else (sign, None)
    if exponent == 0:
        return sign, Fraction(0) if ftz else Fraction(fraction, 2**f.field) * Fraction(2) ** f.low
    return sign, (1 + Fraction(fraction, 2**f.field)) * Fraction(2) ** (exponent + f.low - 1)


def floor_log2(x: Fraction) -> int:
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if Fraction(2) ** e <= x else e - 1


def away(quotient: int, rest: Fraction, sign: int, mode: str) -> bool:
    """Tells whether a magnitude of `quotient` units and `rest` of one rounds to the next unit."""
    if mode == "rn":
        return rest > Fraction(1, 2) or (rest == Fraction(1, 2) and quotient % 2 == 1)
    if mode == "rna":
        return rest >= Fraction(1, 2)
    return rest > 0 and ((mode == "rp" and not sign) or (mode == "rm" and bool(sign)))


def encode(value: Value, f: Format, mode: str, ftz: bool = False) -> int:
    if isinstance(value, str):
        return f.nan
    sign, magnitude = value
    top = sign << (f.bits - 1)
    infinity = (2 ** (f.bits - 1 - f.field) - 1) << f.field
    if magnitude is None:
        return top | infinity
    if magnitude == 0:
        return top
    unit = Fraction(2) ** (max(floor_log2(magnitude), f.low) - f.mant)
    quotient = int(magnitude / unit)
    quotient += away(quotient, magnitude / unit - quotient, sign, mode)
    rounded = quotient * unit
    if rounded > f.largest:
        outward = mode in ("rn", "rna") or (mode == "rp" and not sign) or (mode == "rm" and bool(sign))
        return top | infinity if outward else encode((sign, f.largest), f, mode)
    if rounded == 0:
        return top
    e = floor_log2(rounded)
    if e < f.low:
        return top if ftz else top | int(rounded / Fraction(2) ** (f.low - f.field))
    return top | (e - f.low + 1) << f.field | int((rounded / Fraction(2) ** e - 1) * 2**f.field)


def clamp_bits(word: int, f: Format) -> int:
    """Applies .sat: clamps to [0, 1], and turns a NaN into zero."""
    value = decode(word, f)
    if isinstance(value, str) or value[0]:
        return 0
    return encode((0, Fraction(1)), f, "rn") if value[1] is None or value[1] > 1 else word


def multiply(a: Value, b: Value, _mode: str) -> Value:
    if isinstance(a, str) or isinstance(b, str):
        return NAN
    (s, x), (t, y) = a, b
    if x is None or y is None:
        return NAN if x == 0 or y == 0 else (s ^ t, None)
    return s ^ t, x * y


def add(a: Value, b: Value, mode: str) -> Value:
    if isinstance(a, str) or isinstance(b, str):
        return NAN
    (s, x), (t, y) = a, b
    if x is None or y is None:
        return NAN if x is None and y is None and s != t else (s if x is None else t, None)
    total = (-x if s else x) + (-y if t else y)
    if total == 0:
        return (s if s == t else int(mode == "rm")), Fraction(0)
    return int(total < 0), abs(total)


def subtract(a: Value, b: Value, mode: str) -> Value:
    return NAN if isinstance(b, str) else add(a, (1 - b[0], b[1]), mode)


def divide(a: Value, b: Value, _mode: str) -> Value:
    if isinstance(a, str) or isinstance(b, str):
        return NAN
    (s, x), (t, y) = a, b
    if (x is None and y is None) or (x == 0 and y == 0):
        return NAN
    if x is None or y == 0:
        return s ^ t, None
    return s ^ t, Fraction(0) if y is None else x / y


def fused(a: Value, b: Value, c: Value, mode: str) -> Value:
    return add(multiply(a, b, mode), c, mode)


def reciprocal(a: Value, mode: str) -> Value:
    return divide((0, Fraction(1)), a, mode)


def root(a: Value, _mode: str) -> Value:
    if isinstance(a, str):
        return NAN
    sign, x = a
    if x == 0:
        return a
    if sign:
        return NAN
    if x is None:
        return 0, None
    shift = 600  # far more digits than any format has, then a sticky half
    scaled = x * 4**shift
    r = isqrt(int(scaled))
    exact = Fraction(r * r) == scaled
    return 0, (Fraction(r) + (0 if exact else Fraction(1, 2))) / 2**shift


OPERATIONS: dict[str, tuple[int, Callable[..., Value]]] = {
    "add": (2, add),
    "sub": (2, subtract),
    "mul": (2, multiply),
    "div": (2, divide),
    "fma": (3, fused),
    "rcp": (1, reciprocal),
    "sqrt": (1, root),
}
