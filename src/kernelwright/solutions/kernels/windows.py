"""Writes CUDA and Python text about windows over one to three spatial dimensions: letters, index arithmetic, loops.

Letters: W alone, H W, or D H W. Input extents are D H W, output extents OD OH OW, window extents KD KH KW. The
lower-case ones are sh (stride), ph (padding), dh (dilation), oh (index in the output), kh (in the window), ih (in the
input).
"""

from __future__ import annotations

LETTERS = {1: "W", 2: "HW", 3: "DHW"}
TUPLE = {1: "_single", 2: "_pair", 3: "_triple"}
"""Functions of torch.nn.modules.utils that turn a number or a tuple into a tuple."""


def names(rank: int, prefix: str) -> list[str]:
    """Returns `["OH", "OW"]` for a capital or empty prefix, `["sh", "sw"]` for a lower-case one."""
    letters = LETTERS[rank]
    return [prefix + (a.lower() if prefix.islower() else a) for a in letters]


def listed(rank: int, *prefixes: str) -> str:
    """Returns `H, W, OH, OW`."""
    return ", ".join(name for prefix in prefixes for name in names(rank, prefix))


def parameters(rank: int, *prefixes: str) -> str:
    """Returns `int H, int W, int OH, int OW`."""
    return ", ".join(f"int {name}" for prefix in prefixes for name in names(rank, prefix))


def unpacked(rank: int, prefix: str) -> str:
    """Returns `(sh, sw)`, or `(sw,)` in one dimension."""
    return f"({listed(rank, prefix)}{',' if rank == 1 else ''})"


def split(rank: int, channels: bool) -> tuple[str, str]:
    """Returns declarations of the output's coordinates (ow, oh, …, and o) from the linear index i, and the rest of
    i."""
    parts, rest = [], "i"
    for letter in LETTERS[rank][::-1]:
        parts.append(f"o{letter.lower()} = {rest} % O{letter}")
        rest += f" / O{letter}"
    if channels:
        parts.append(f"o = {rest} % O")
        rest += " / O"
    return f"int {', '.join(parts)};", rest


def place(rank: int, first: str, size: str, index: str) -> str:
    """Returns a linear index: `((first) * H + ih) * W + iw` for size "" and index "i"."""
    text = first
    for letter in LETTERS[rank]:
        text = f"({text})" if " " in text else text
        text = f"{text} * {size}{letter} + {index}{letter.lower()}"
    return text


def plane(rank: int, index: str) -> str:
    """Returns a linear index within one plane: `ih * W + iw`."""
    letters = LETTERS[rank]
    text = f"{index}{letters[0].lower()}"
    for letter in letters[1:]:
        text = f"({text})" if " " in text else text
        text = f"{text} * {letter} + {index}{letter.lower()}"
    return text


def loops(rank: int, indent: int) -> tuple[str, str]:
    """Returns the heads of loops over the window, the last one with a brace, and the indent of their body."""
    lines = []
    for letter in LETTERS[rank]:
        k = f"k{letter.lower()}"
        lines.append(" " * indent + f"for (int {k} = 0; {k} < K{letter}; ++{k})")
        indent += 4
    return "\n".join(lines) + " {", " " * indent


def positions(rank: int, dilated: bool = True) -> str:
    """Returns the input's coordinates from those of output and window: `int ih = oh * sh - ph + kh * dh, iw = …;`."""
    parts = [f"i{a} = o{a} * s{a} - p{a} + k{a}" + (f" * d{a}" if dilated else "") for a in LETTERS[rank].lower()]
    return f"int {', '.join(parts)};"


def inside(rank: int) -> str:
    """Returns the condition that the input's coordinates lie inside it."""
    return " && ".join(f"i{a.lower()} >= 0 && i{a.lower()} < {a}" for a in LETTERS[rank])


def axes(rank: int) -> dict[int, str]:
    """Returns the C variables by dimension of an output (N, O, OH, OW)."""
    return {1: "o", **{2 + d: name for d, name in enumerate(names(rank, "o"))}}


def extent(size: int, window: int, stride: int, padding: int, dilation: int) -> int:
    """Returns the number of windows along a dimension."""
    return (size + 2 * padding - dilation * (window - 1) - 1) // stride + 1


def numbers(value: object, rank: int) -> tuple[int, ...] | None:
    """Returns a number or a tuple as one number a dimension; None for anything else."""
    if isinstance(value, int):
        return (value,) * rank
    if isinstance(value, (tuple, list)) and len(value) == 1:
        return (value[0],) * rank
    return tuple(value) if isinstance(value, (tuple, list)) and len(value) == rank else None
