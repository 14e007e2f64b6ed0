"""Operands of the conformance cases: corners of each type, then numbers of a fixed generator."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

_F32 = (
    "00000000 80000000 00000001 80000001 007fffff 807fffff 00800000 80800000 00800001 3f800000 bf800000 3f800001 "
    "3f7fffff bf7fffff 40000000 3f000000 bf000000 3fc00000 bfc00000 40200000 c0200000 40400000 3eaaaaab 40490fdb "
    "4b000000 4affffff cafffffd 4b800000 4b800001 4effffff 4f000000 cf000000 cf000001 4f7fffff 4f800000 5f000000 "
    "5effffff df000000 5f800000 7f7fffff ff7fffff 7f800000 ff800000 7fc00000 ffc00001 7f800001 477fe000 477fefff "
    "477ff000 33000000 33000001 387fe000 38800000 43e00000 43e80000 47600000 3b800000 3a800000 7f000000 00400000"
)
_F64 = (
    "0 8000000000000000 1 8000000000000001 000fffffffffffff 0010000000000000 8010000000000000 3ff0000000000000 "
    "bff0000000000000 3ff0000000000001 3fefffffffffffff 4000000000000000 3fe0000000000000 bfe0000000000000 "
    "3ff8000000000000 bff8000000000000 4004000000000000 3fd5555555555555 41dfffffffc00000 41e0000000000000 "
    "c1e0000000000000 c1e0000000200000 41efffffffe00000 43dfffffffffffff 43e0000000000000 c3e0000000000000 "
    "43f0000000000000 4330000000000001 4340000000000001 7fefffffffffffff ffefffffffffffff 7ff0000000000000 "
    "fff0000000000000 7ff8000000000000 fff8000000000001 7ff0000000000001 47efffffe0000000 47efffffefffffff "
    "47effffff0000000 36a0000000000000 3690000000000000 3690000000000001 380fffffc0000000 3810000000000000 "
    "40effc0000000000 40effe0000000000 3e60000000000000 3f0ffc0000000000 c004000000000000 3ff0000010000000 "
    "3ff0000010000001 3ff0000030000000"
)
_F16 = (
    "0000 8000 0001 8001 03ff 83ff 0400 8400 0401 3c00 bc00 3c01 3bff bbff 4000 3800 b800 3e00 be00 4100 3555 4248 "
    "6400 63ff 6401 7800 7bff fbff 7c00 fc00 7e00 fe01 7c01 5bff 5c00 1400 0200 77ff c900 5f00"
)
_BF16 = (
    "0000 8000 0001 8001 007f 807f 0080 8080 0081 3f80 bf80 3f81 3f7f bf7f 4000 3f00 bf00 3fc0 bfc0 4020 3eab 4049 "
    "4300 42ff 4f00 cf00 7f7f ff7f 7f80 ff80 7fc0 ffc1 7f81 4780 3300 0040 5f00 43e0 c300 3b80"
)
_INT = "0 1 2 3 7 8 f 10 1f 20 21 3f 40 55 7e 7f 80 81 aa fe ff"
_WIDTHS = {"8": 8, "16": 16, "32": 32, "64": 64}


def width(kind: str) -> int:
    """Returns the bits that an operand of this kind takes in memory."""
    if kind == "pred":
        return 8
    kind = kind.split(":")[0]
    if kind.endswith("x2"):
        return 32 if kind[0] in "bfus" else 16
    bits = int("".join(c for c in kind if c.isdigit()) or 32)
    return {"tf32": 32, "bf16": 16}.get(kind, max(bits, 16))


def storage(kind: str) -> np.dtype:
    return np.dtype(f"u{width(kind) // 8}")


def mixed(seed: int, count: int) -> np.ndarray:
    """Returns `count` 64-bit words of SplitMix64: the same on every machine and with every version of numpy."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _integers(bits: int) -> np.ndarray:
    low = [int(v, 16) for v in _INT.split()]
    top = 1 << bits
    wide = [top - 1, top - 2, top - 3, top // 2, top // 2 - 1, top // 2 + 1, top // 3, 2 * (top // 3)]
    if bits > 16:
        wide += [0x7FFF, 0x8000, 0xFFFF, 0x10000, top - 0x8000, top - 0x8001, top - 128, top - 129, top - 0x10000]
    if bits > 32:
        wide += [0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x100000000, top - (1 << 31), top - (1 << 31) - 1, (1 << 53) + 1]
    return np.array(sorted({v % top for v in low + wide}), np.uint64)


def corners(kind: str) -> np.ndarray:
    """Returns the values of a kind that are tried first."""
    texts = {"f32": _F32, "f64": _F64, "f16": _F16, "bf16": _BF16, "tf32": _F32}
    if kind in texts:
        return np.array([int(v, 16) for v in texts[kind].split()], np.uint64)
    return _integers(width(kind))


def _moderate(kind: str, words: np.ndarray) -> np.ndarray:
    """Returns floating-point numbers of ordinary size, or integers of few bits."""
    layout = {"f32": (23, 8, 127), "tf32": (23, 8, 127), "f64": (52, 11, 1023), "f16": (10, 5, 15), "bf16": (7, 8, 127)}
    if kind not in layout:
        few = words >> (np.uint64(64) - (words & np.uint64(15)) - np.uint64(1))
        return np.where(words & np.uint64(16), few, ~few + np.uint64(1))
    mantissa, exponent, bias = (np.uint64(v) for v in layout[kind])
    spread = np.uint64(8 if kind == "f16" else 24)
    at = bias - spread // np.uint64(2) + (words >> np.uint64(53)) % spread
    sign = (words >> np.uint64(63)) << (mantissa + exponent)
    return sign | at << mantissa | words & ((np.uint64(1) << mantissa) - np.uint64(1))


def _scalar(kind: str, count: int, seed: int) -> np.ndarray:
    choice, words, picks = mixed(seed, count), mixed(seed ^ 0xABCD, count), mixed(seed ^ 0x1234, count)
    known = corners(kind)
    special = known[(picks % np.uint64(len(known))).astype(np.int64)]
    how = choice % np.uint64(8)
    return np.where(how < 2, special, np.where(how < 4, words, _moderate(kind, words)))


def _named(kind: str, count: int, seed: int) -> np.ndarray | None:
    """Returns values of kinds that take only some values: `b32:shift`, `f32:angle`, ..."""
    words = mixed(seed, count)
    name = kind.partition(":")[2]
    if name.startswith("below"):
        return words % np.uint64(int(name.removeprefix("below")))
    if name == "shift":
        return np.where(words & np.uint64(7), words % np.uint64(70), words >> np.uint64(32))
    if name == "angle":
        return ((words >> np.uint64(40)).astype(np.float32) / 2**24 * 12.5 - 6.25).astype(np.float32).view(np.uint32)
    if name == "clamp":  # of shfl: segment mask and clamp
        return (words % np.uint64(32)) | ((words >> np.uint64(8)) % np.uint64(32)) << np.uint64(8)
    if name == "segment":  # tiles of a power of two, as __shfl_sync makes them
        size = np.uint64(1) << (words[0] % np.uint64(6))
        return np.full(count, (np.uint64(32) - size) << np.uint64(8) | np.uint64(31))
    return None


def _packed(kind: str, count: int, seed: int) -> np.ndarray | None:
    """Returns small whole numbers in the formats of matrix operands, whose sums of products are exact."""
    name = kind.partition(":")[2]
    if not name.startswith("whole-"):
        return None
    form = name.removeprefix("whole-")
    bits = {"f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "f64": 64, "e4m3": 8, "e5m2": 8}[form]
    total = width(kind)
    out = np.zeros(count, np.uint64)
    for lane in range(total // bits):
        small = (mixed(seed + 77 * lane, count) % np.uint64(9)).astype(np.int64) - 4
        out |= _encode(small.astype(np.float64), form) << np.uint64(bits * lane)
    return out


def _encode(values: np.ndarray, form: str) -> np.ndarray:
    """Returns the bits of small whole numbers."""
    if form == "f64":
        return values.view(np.uint64)
    if form in ("f32", "tf32"):
        return values.astype(np.float32).view(np.uint32).astype(np.uint64)
    if form == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint64)
    half = values.astype(np.float16).view(np.uint16).astype(np.uint64)
    if form == "f16":
        return half
    if form == "e5m2":
        return half >> np.uint64(8)
    magnitude = half & np.uint64(0x7FFF)
    shifted = np.where(magnitude > 0, (magnitude >> np.uint64(7)) - np.uint64(8 << 3), magnitude)
    return (half >> np.uint64(15)) << np.uint64(7) | shifted


def _one(kind: str, count: int, seed: int) -> np.ndarray:
    base, _, name = kind.partition(":")
    found = _named(kind, count, seed) if name else None
    if found is None and name:
        found = _packed(kind, count, seed)
    if found is None and name:
        raise ValueError(f"unknown operands {kind!r}")
    if found is None and base in ("f16x2", "bf16x2"):
        low, high = (_scalar(base[:-2], count, seed + k) for k in (0, 1))
        mask = np.uint64(0xFFFF)
        found = (low & mask) | (high & mask) << np.uint64(16)
    if found is None and base in ("u16x2", "s16x2"):
        low, high = (_scalar("u16", count, seed + k) for k in (0, 1))
        found = (low & np.uint64(0xFFFF)) | (high & np.uint64(0xFFFF)) << np.uint64(16)
    if found is None and base == "pred":
        found = mixed(seed, count) & np.uint64(1)
    if found is None:
        found = _scalar(base, count, seed)
    return found.astype(np.uint64)


_FLOATS = {"f32": np.float32, "f64": np.float64, "f16": np.float16}


def _relate(kinds: Sequence[str], columns: list[np.ndarray], count: int) -> None:
    """Makes some tuples cancel: b near -a, and c near -a * b."""
    if len(kinds) not in (2, 3) or kinds[0] not in _FLOATS or len(set(kinds)) > 1:
        return
    real, unsigned = _FLOATS[kinds[0]], storage(kinds[0])
    rows = np.arange(count) % 8 == 5
    a, b = (c.astype(unsigned).view(real) for c in columns[:2])
    with np.errstate(all="ignore"):
        last = -a if len(kinds) == 2 else (-(a.astype(np.float64) * b)).astype(real)
    bits = np.ascontiguousarray(last).view(unsigned).astype(np.uint64) ^ (np.arange(count, dtype=np.uint64) >> 3) % 4
    columns[-1][rows] = bits[rows]


def operands(kinds: Sequence[str], count: int) -> list[np.ndarray]:
    """Returns `count` values for each kind: first all pairs of corners (as far as they go), then drawn ones."""
    columns = [_one(kind, count, zlib.crc32(f"{kind} {k}".encode())) for k, kind in enumerate(kinds)]
    plain = [k for k, kind in enumerate(kinds) if ":" not in kind and "x2" not in kind and kind != "pred"]
    if plain:
        first = corners(kinds[plain[0]])
        n = min(len(first), count)
        columns[plain[0]][:n] = first[:n]
    if len(plain) > 1:
        _relate(kinds, columns, count)
        second = corners(kinds[plain[1]])
        pairs = [(a, b) for a in first for b in second]
        keep = count // 2
        step = max(1, -(-len(pairs) // keep))
        chosen = pairs[::step][:keep]
        columns[plain[0]][: len(chosen)] = [a for a, _ in chosen]
        columns[plain[1]][: len(chosen)] = [b for _, b in chosen]
    return [c.astype(storage(kind)) for c, kind in zip(columns, kinds, strict=True)]
