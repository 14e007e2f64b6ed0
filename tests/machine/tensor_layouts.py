"""Number formats and fragment layouts of the PTX ISA in numpy, for the tests of matrix instructions.

A matrix is an array of codes (the bits of its elements); a fragment is an array of registers, [register][lane].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Place = Callable[[int, int], tuple[int, int]]
"""Lane and element number to row and column."""


@dataclass(frozen=True)
class Format:
    """One element type: its width, its numbers, and the codes of numbers."""

    bits: int
    decode: Callable[[np.ndarray], np.ndarray]
    encode: Callable[[np.ndarray], np.ndarray]


def _small_float(exponent: int, mantissa: int, bias: int) -> np.ndarray:
    """Returns all 256 numbers of an 8-bit float; NaN where the format has NaN, or an infinity that is not wanted."""
    table = np.zeros(256)
    for code in range(256):
        e, f = code >> mantissa & ((1 << exponent) - 1), code & ((1 << mantissa) - 1)
        value = (1 + f / (1 << mantissa)) * 2.0 ** (e - bias) if e else f / (1 << mantissa) * 2.0 ** (1 - bias)
        table[code] = -value if code & 0x80 else value
    return table


E4M3, E5M2 = _small_float(4, 3, 7), _small_float(5, 2, 15)
E4M3[[0x7F, 0xFF]] = np.nan
for sign in (0, 0x80):
    E5M2[sign | 0x7C] = -np.inf if sign else np.inf
    E5M2[sign | 0x7D : (sign | 0x7F) + 1] = np.nan


def _nearest(table: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    finite = np.flatnonzero(np.isfinite(table))
    order = finite[np.argsort(table[finite], kind="stable")]
    middles = (table[order][1:] + table[order][:-1]) / 2
    return lambda x: order[np.searchsorted(middles, np.asarray(x, np.float64))].astype(np.uint64)


def _bf16(x: np.ndarray) -> np.ndarray:
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def _integer(bits: int, signed: bool) -> Format:
    top = 1 << bits

    def decode(codes: np.ndarray) -> np.ndarray:
        value = codes.astype(np.int64)
        return (np.where(value >= top // 2, value - top, value) if signed else value).astype(np.float64)

    return Format(bits, decode, lambda x: (np.asarray(x).astype(np.int64) & (top - 1)).astype(np.uint64))


def _table(values: np.ndarray) -> Format:
    return Format(8, lambda codes: values[codes.astype(np.int64)], _nearest(values))


def _float32(codes: np.ndarray) -> np.ndarray:
    return codes.astype(np.uint32).view(np.float32).astype(np.float64)


FORMATS = {
    "f16": Format(
        16,
        lambda c: c.astype(np.uint16).view(np.float16).astype(np.float64),
        lambda x: np.asarray(x, np.float16).view(np.uint16).astype(np.uint64),
    ),
    "bf16": Format(16, lambda c: _float32(c.astype(np.uint64) << np.uint64(16)), _bf16),
    "tf32": Format(
        32,
        lambda c: _float32(c.astype(np.uint64) & np.uint64(0xFFFFE000)),
        lambda x: np.asarray(x, np.float32).view(np.uint32).astype(np.uint64),
    ),
    "f32": Format(32, _float32, lambda x: np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)),
    "f64": Format(
        64,
        lambda c: c.astype(np.uint64).view(np.float64),
        lambda x: np.asarray(x, np.float64).view(np.uint64).astype(np.uint64),
    ),
    "e4m3": _table(E4M3),
    "e5m2": _table(E5M2),
    "s8": _integer(8, True),
    "u8": _integer(8, False),
    "s4": _integer(4, True),
    "u4": _integer(4, False),
    "b1": _integer(1, False),
    "s32": _integer(32, True),
}


def pack_words(codes: np.ndarray, bits: int) -> np.ndarray:
    """Packs elements along the last axis into 32-bit words (64-bit for f64), the first in the lowest bits."""
    if bits >= 32:
        return codes.astype(np.uint64 if bits == 64 else np.uint32)
    per = 32 // bits
    parts = codes.astype(np.uint64).reshape(*codes.shape[:-1], -1, per)
    return (parts << (np.arange(per, dtype=np.uint64) * np.uint64(bits))).sum(-1, dtype=np.uint64).astype(np.uint32)


def unpack_words(words: np.ndarray, bits: int) -> np.ndarray:
    if bits >= 32:
        return words.astype(np.uint64)
    per = 32 // bits
    shifts = np.arange(per, dtype=np.uint64) * np.uint64(bits)
    parts = words.astype(np.uint64)[..., None] >> shifts & np.uint64((1 << bits) - 1)
    return parts.reshape(*words.shape[:-1], -1)


def places(place: Place, count: int, lanes: int = 32) -> tuple[np.ndarray, np.ndarray]:
    """Returns rows and columns of all elements, as [lane][element]."""
    table = np.array([[place(lane, i) for i in range(count)] for lane in range(lanes)])
    return table[..., 0], table[..., 1]


def to_fragment(codes: np.ndarray, bits: int, place: Place, count: int, lanes: int = 32) -> np.ndarray:
    """Returns the registers that hold a matrix, `count` elements per lane."""
    rows, columns = places(place, count, lanes)
    return np.ascontiguousarray(pack_words(codes[rows, columns], bits).T)


def from_fragment(registers: np.ndarray, bits: int, place: Place, shape: tuple[int, int]) -> np.ndarray:
    codes = unpack_words(np.ascontiguousarray(registers.T), bits)
    rows, columns = places(place, codes.shape[1], codes.shape[0])
    matrix = np.zeros(shape, np.uint64)
    matrix[rows, columns] = codes
    return matrix


# --- the layouts of mma (PTX ISA, "Matrix fragments for mma.mMnNkK") ------------------------------------------------


def place_a(bits: int, m: int) -> Place:
    """Returns A's place for mma.m8n8kK and m16n8kK: along k, then the row eight below, then further columns."""
    per = max(32 // bits, 1)

    def place(lane: int, i: int) -> tuple[int, int]:
        register, within = divmod(i, per)
        block, lower = divmod(register, m // 8)
        return lane // 4 + 8 * lower, lane % 4 * per + within + 4 * per * block

    return place


def place_b(bits: int) -> Place:
    per = max(32 // bits, 1)

    def place(lane: int, i: int) -> tuple[int, int]:
        register, within = divmod(i, per)
        return lane % 4 * per + within + 4 * per * register, lane // 4

    return place


def place_c(lane: int, i: int) -> tuple[int, int]:
    """Returns the place of C and D for m8n8 and m16n8; for wgmma the columns continue in steps of eight."""
    return lane // 4 + 8 * (i // 2 % 2), lane % 4 * 2 + i % 2 + 8 * (i // 4)


def place_wgmma_c(lane: int, i: int) -> tuple[int, int]:
    """Returns wgmma's place of D for the 128 threads of a warpgroup."""
    row, column = place_c(lane % 32, i)
    return lane // 32 * 16 + row, column


def place_wgmma_a(bits: int) -> Place:
    inner = place_a(bits, 16)

    def place(lane: int, i: int) -> tuple[int, int]:
        row, column = inner(lane % 32, i)
        return lane // 32 * 16 + row, column

    return place


# --- m8n8k4 of f16: four products ("quad pairs"), each of eight lanes ------------------------------------------------


def _upper(lane: int) -> int:
    return 4 if lane >= 16 else 0


def volta_a(layout: str) -> Place:
    if layout == "row":
        return lambda lane, i: (lane % 4 + _upper(lane), i)
    return lambda lane, i: (i % 4 + _upper(lane), lane % 4)


def volta_b(layout: str) -> Place:
    if layout == "row":
        return lambda lane, i: (lane % 4, i + _upper(lane))
    return lambda lane, i: (i, lane % 4 + _upper(lane))


def volta_c(kind: str) -> Place:
    if kind == "f16":
        return lambda lane, i: (lane % 4 + _upper(lane), i)
    return lambda lane, i: ((lane & 1) + (i & 2) + _upper(lane), (i & 4) + (lane & 2) + (i & 1))


def quad_pair(lane: int) -> int:
    return lane % 16 // 4


# --- sparse A: 2 of 4 (f16, bf16, 8 bits), 1 of 2 (tf32), pairs of 4 of 8 (4 bits) -----------------------------------


@dataclass(frozen=True)
class Sparse:
    """A sparse matrix: its stored codes, the full matrix, and the metadata of each lane."""

    stored: np.ndarray
    full: np.ndarray
    metadata: np.ndarray


def sparse_matrix(rng: np.random.Generator, codes: np.ndarray, bits: int, selector: int, ordered: bool) -> Sparse:
    """Spreads the stored `codes` (16 x k/2) over k columns at random places."""
    rows, half = codes.shape
    k = 2 * half
    span, unit = {32: (2, 1), 16: (4, 1), 8: (4, 1), 4: (8, 2)}[bits]
    chunks = k // span
    full, metadata = np.zeros((rows, k), np.uint64), np.zeros(32, np.uint64)
    for row in range(rows):
        for q in range(chunks):
            part = codes[row, q * span // 2 : (q + 1) * span // 2]
            if bits == 32:
                at = int(rng.integers(2))
                nibble, full[row, q * 2 + at] = (14 if at else 4), part[0]
            else:
                low, high = (int(v) for v in rng.permutation(4)[:2])
                if ordered and low > high:
                    low, high = high, low
                nibble = low | high << 2
                full[row, q * span + low * unit : q * span + low * unit + unit] = part[:unit]
                full[row, q * span + high * unit : q * span + high * unit + unit] = part[unit:]
            lane, bit = _metadata_place(bits, selector, row, q, chunks)
            metadata[lane] |= np.uint64(nibble << bit)
    return Sparse(codes, full, metadata.astype(np.uint32))


def _metadata_place(bits: int, selector: int, row: int, q: int, chunks: int) -> tuple[int, int]:
    """Returns lane and lowest bit of a chunk's two indices (PTX ISA, figures "Sparse MMA metadata layout")."""
    group, lower = row % 8, row // 8
    if bits >= 16 and chunks == 4:
        return 4 * group + selector, 16 * lower + 4 * q
    if bits >= 16:
        return 4 * group + 2 * selector + q // 4, 16 * lower + 4 * (q % 4)
    if chunks == 8:
        return 4 * group + 2 * selector + lower, 4 * q
    return 4 * group + 2 * (q // 8) + lower, 4 * (q % 8)


# --- shared memory of wgmma ------------------------------------------------------------------------------------------

SWIZZLES = {"none": 0, "128": 1, "64": 2, "32": 3}


@dataclass(frozen=True)
class SharedMatrix:
    """The memory layout of a matrix of rows x k elements: the PTX ISA's canonical layouts (CuTe notation)."""

    bits: int
    swizzle: str
    k_major: bool
    leading: int
    stride: int
    start: int = 0
    base: int = 0

    def descriptor(self) -> int:
        return (
            (self.start & 0x3FFFF) >> 4
            | (self.leading & 0x3FFFF) >> 4 << 16
            | (self.stride & 0x3FFFF) >> 4 << 32
            | self.base << 49
            | SWIZZLES[self.swizzle] << 62
        )

    def address(self, row: np.ndarray, k: np.ndarray) -> np.ndarray:
        """Returns the bit addresses of elements."""
        t = 128 // self.bits  # elements of 128 bits
        wide = 1 if self.swizzle == "none" else int(self.swizzle) // 16
        leading, stride = self.leading * 8 // self.bits, self.stride * 8 // self.bits
        if self.k_major:
            across = leading if wide == 1 else t
            at = row % 8 * wide * t + row // 8 * stride + k % t + k // t * across
        elif wide == 1:
            at = row % t + row // t * stride + k % 8 * t + k // 8 * leading
        else:
            at = row % t + row // t % wide * t + row // (t * wide) * leading + k % 8 * wide * t + k // 8 * stride
        byte = self.start + at * self.bits // 8
        phase = (byte // 128 - self.base) % wide
        return (byte ^ phase * 16) * 8 + at * self.bits % 8

    def store(self, image: np.ndarray, codes: np.ndarray) -> None:
        """Writes a matrix of codes into an image of shared memory (bytes)."""
        rows, columns = np.indices(codes.shape)
        at = self.address(rows, columns)
        if self.bits >= 8:
            for byte in range(self.bits // 8):
                image[at // 8 + byte] = (codes >> np.uint64(8 * byte) & np.uint64(255)).astype(np.uint8)
        else:
            np.bitwise_or.at(image, at // 8, (codes << (at % 8).astype(np.uint64)).astype(np.uint8))
