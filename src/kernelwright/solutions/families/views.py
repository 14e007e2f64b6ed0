"""Operators that compute nothing: dimensions exchanged, added, dropped or merged. They stay views on the host.

What lies in another order than before is copied where a kernel needs it in one piece; products take it as it lies.
"""

from __future__ import annotations

import ast
import math
from typing import Any

from kernelwright.solutions.facts import Shape, value_or
from kernelwright.solutions.reading import Node, Unreadable
from kernelwright.solutions.stages import Epilogue, Writer, anchor, shape_rule


def arguments(writer: Writer, node: Node) -> tuple[list[Any], dict[str, Any]]:
    """A view's arguments as values, None for those that the text does not fix."""
    text = node.option("args") or (node.option("dims") and f"dims={node.option('dims')}")
    call = ast.parse(f"f({text})", mode="eval").body
    assert isinstance(call, ast.Call)
    names = writer.facts.names()
    values: list[Any] = [value_or(a, names, None) for a in call.args]
    if len(values) == 1 and isinstance(values[0], (tuple, list)):
        values = list(values[0])
    return values, {k.arg or "": value_or(k.value, names, None) for k in call.keywords}


def _one(writer: Writer, node: Node, name: str, position: int, default: Any = None) -> Any:
    values, keywords = arguments(writer, node)
    if name in keywords:
        return keywords[name]
    return values[position] if position < len(values) else default


def order(writer: Writer, node: Node) -> tuple[int, ...]:
    """Which dimension of the operand each dimension of a transposed or permuted result is."""
    rank = len(writer.shape(node.args[0]))
    values, keywords = arguments(writer, node)
    if node.op == "permute":
        dims = list(keywords.get("dims", values))
    else:
        dims = list(range(rank))
        if rank < 2:
            return tuple(dims)
        a, b = (*values, *keywords.values()) if (values or keywords) else (-2, -1)
        if isinstance(a, int) and isinstance(b, int):
            dims[a], dims[b] = dims[b], dims[a]
    if not all(isinstance(d, int) for d in dims) or sorted(d % rank for d in dims) != list(range(rank)):
        raise Unreadable(f"no template for {node.op}({node.option('args')}) of {rank} dimensions")
    return tuple(d % rank for d in dims)


@shape_rule("transpose", "permute")
def exchanged_shape(writer: Writer, node: Node) -> Shape:
    """The operand's sizes in another order."""
    shape = writer.shape(node.args[0])
    return tuple(shape[d] for d in order(writer, node))


@shape_rule("unsqueeze")
def unsqueezed_shape(writer: Writer, node: Node) -> Shape:
    """One dimension more, of size one."""
    shape = writer.shape(node.args[0])
    at = int(node.option("dim")) if node.option("dim") else _one(writer, node, "dim", 0)
    if not isinstance(at, int):
        raise Unreadable("the text does not fix the dimension of unsqueeze")
    at %= len(shape) + 1
    return (*shape[:at], 1, *shape[at:])


@shape_rule("squeeze")
def squeezed_shape(writer: Writer, node: Node) -> Shape:
    """Without a dimension of size one."""
    shape = writer.shape(node.args[0])
    dim = _one(writer, node, "dim", 0)
    if dim is None and node.option("args"):
        raise Unreadable("the text does not fix the dimension of squeeze")
    drop = range(len(shape)) if dim is None else [dim % len(shape)]
    return tuple(s for d, s in enumerate(shape) if d not in drop or s != 1)


@shape_rule("flatten")
def flattened_shape(writer: Writer, node: Node) -> Shape:
    """Neighbouring dimensions as one."""
    shape = writer.shape(node.args[0])
    low, high = (_one(writer, node, n, i, d) for i, (n, d) in enumerate((("start_dim", 0), ("end_dim", -1))))
    if not isinstance(low, int) or not isinstance(high, int):
        raise Unreadable("the text does not fix the dimensions of flatten")
    if not shape:
        return (1,)
    low, high = low % len(shape), high % len(shape)
    merged = shape[low : high + 1]
    return (*shape[:low], -1 if min(merged) < 0 else math.prod(merged), *shape[high + 1 :])


@shape_rule("reshape", "view")
def reshaped_shape(writer: Writer, node: Node) -> Shape:
    """The sizes that are asked for; what the text does not fix is unknown, but taken not to be one."""
    values, keywords = arguments(writer, node)
    if "shape" in keywords:
        values = list(keywords["shape"] or [])
    if not values:
        raise Unreadable("the text does not give the rank of a view")
    shape = writer.shape(node.args[0])
    found = [v if isinstance(v, int) else -1 for v in values]
    if found.count(-1) == 1 and min(shape, default=1) > 0 and None not in values:
        rest = math.prod(v for v in found if v != -1)
        found[found.index(-1)] = math.prod(shape) // max(rest, 1)
    return tuple(found)


@shape_rule("expand")
def expanded_shape(writer: Writer, node: Node) -> Shape:
    """Sizes of one repeated."""
    values, _ = arguments(writer, node)
    shape = writer.shape(node.args[0])
    wide = (1,) * (len(values) - len(shape)) + tuple(shape)
    return tuple(w if v in (-1, None) else v for v, w in zip(values, wide, strict=True))


@anchor("unsqueeze", "squeeze", "flatten", "reshape", "view", fuses=False)
def in_place(writer: Writer, node: Node, epilogue: Epilogue) -> str:
    """Views that leave the elements in their order."""
    inner = writer.tensor(node.args[0])
    writer.shape(node)
    args = node.option("args") or node.option("dim")
    return f"{inner}.{'view' if node.op == 'reshape' else node.op}({args})"


@anchor("transpose", "permute", "expand", fuses=False)
def copied(writer: Writer, node: Node, epilogue: Epilogue) -> str:
    """Views that a kernel cannot read as they lie."""
    inner = writer.tensor(node.args[0])
    if node.op == "transpose" and not node.option("args"):
        return f"{inner}.mT.contiguous()" if len(writer.shape(node)) != 2 else f"{inner}.T.contiguous()"
    args = node.option("args") or node.option("dims").strip("()")
    return f"{inner}.{node.op}({args}).contiguous()"
