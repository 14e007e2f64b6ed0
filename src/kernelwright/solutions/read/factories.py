"""Reads tensors that forward makes from numbers: zeros, ones, ranges, identities, and scattered values."""

from __future__ import annotations

import ast
from typing import Any

from kernelwright.solutions.read.interface import Expressions
from kernelwright.solutions.read.reading import Node, Unreadable

FILLED = {"zeros": "0.0", "ones": "1.0", "full": "", "empty": "0.0"}
"""Functions that fill a tensor -> the value that the name implies. `empty` counts as zeros: forward writes to it
later."""
FACTORIES = frozenset((*FILLED, "arange", "eye"))
LIKE = frozenset(f"{name}_like" for name in FILLED)
NEW = frozenset(f"new_{name}" for name in FILLED)


def made(reader: Expressions, name: str, node: ast.Call, values: dict[str, Any]) -> Node:
    """Returns the value of a call of a function of `FACTORIES`."""
    texts = [reader.text(a, values) for a in node.args]
    keywords = {str(k.arg): reader.text(k.value, values) for k in node.keywords if k.arg not in ("device", "dtype")}
    if name == "arange":
        start, end = ("0", texts[0]) if len(texts) == 1 else (texts[0], texts[1])
        return _range(start, end, texts[2] if len(texts) > 2 else "1")
    if name == "eye":
        n = keywords.get("n") or texts[0]
        pair = (_range("0", n, "1", 0, 2), _range("0", texts[1] if len(texts) > 1 else n, "1", 1, 2))
        true = any(k.arg == "dtype" and ast.unparse(k.value) in ("torch.bool", "bool") for k in node.keywords)
        same = Node("eq", pair)
        return same if true else Node("where", (same, Node("number", text="1.0"), Node("number", text="0.0")))
    return _filled(name, texts, keywords)


def new(reader: Expressions, name: str, node: ast.Call, values: dict[str, Any]) -> Node:
    """Returns the value of a call of a method of `NEW`: `x.new_zeros(2, 3)`."""
    texts = [reader.text(a, values) for a in node.args]
    keywords = {str(k.arg): reader.text(k.value, values) for k in node.keywords if k.arg not in ("device", "dtype")}
    return _filled(name.removeprefix("new_"), texts, keywords)


def like(reader: Expressions, name: str, node: ast.Call, values: dict[str, Any]) -> Node:
    """Returns the value of a call of a function of `LIKE`."""
    value = FILLED[name.removesuffix("_like")] or reader.text(node.args[1], values)
    return Node("constant", (reader.tensor(node.args[0], values),), text=value)


def _range(start: str, end: str, step: str, at: int = 0, rank: int = 1) -> Node:
    """Returns a range along dimension `at` of `rank` dimensions."""
    options = (("end", end), ("start", start), ("step", step))
    return Node("arange", options=options if rank == 1 else placed(options, at, rank))


def placed(options: tuple[tuple[str, str], ...], at: int, rank: int) -> tuple[tuple[str, str], ...]:
    """Returns the options of a range along dimension `at` of `rank`."""
    return tuple(sorted({**dict(options), "at": str(at), "rank": str(rank)}.items()))


def _filled(name: str, texts: list[str], keywords: dict[str, str]) -> Node:
    value = FILLED[name] or keywords.pop("fill_value", "") or texts.pop()
    shape = keywords.get("size") or (texts[0] if len(texts) == 1 else f"({', '.join(texts)})")
    return Node("constant", text=value, options=(("shape", shape),))


def scattered(reader: Expressions, operands: list[Node], dim: str) -> Node:
    """Returns `x.scatter(dim, index, value)`, for an index with one number a row: that place gets the value."""
    if len(operands) != 3:
        raise Unreadable("no template for this scatter")
    base = operands[0]
    shaped = base.args[0] if base.op == "constant" and base.args else base
    end = base.option("shape") if base.op == "constant" and not base.args else f"{reader.shape_name(shaped)}.shape"
    return Node("scatter", tuple(operands), options=(("dim", dim), ("sizes", end)))
