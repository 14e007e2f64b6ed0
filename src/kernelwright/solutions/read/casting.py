"""Reads changes of dtype in forward. Kernels compute in float32, so among floating types only the rounding of the
result is left."""

from __future__ import annotations

import ast
from typing import Any

from kernelwright.solutions.kernels.fusion import READERS
from kernelwright.solutions.kernels.operators import COMPARISONS, LOGIC
from kernelwright.solutions.read.interface import Expressions
from kernelwright.solutions.read.reading import Node, Unreadable, nodes
from kernelwright.solutions.read.wholes import MOVING

_WHOLE = frozenset("sum prod argmax argmin count_nonzero any all isnan isinf isfinite".split())
"""Operators whose results are integers or booleans, of some operands or of all."""


def cast(reader: Expressions, name: str, inner: Node, node: ast.Call, values: dict[str, Any]) -> Node:
    """Returns the value of a change of dtype: among floating types a `cast` node, which rounds the result only."""
    given = [*node.args, *(k.value for k in node.keywords if k.arg in ("dtype", "other"))]
    kind = name
    if name in ("to", "type_as"):
        if not given:
            return inner
        text = ast.unparse(given[0])
        if name == "type_as" and text.startswith("self."):
            weight = reader.tensor(given[0], values)
            return Node("cast", (inner, weight)) if _mixed(reader) or _unlike(reader, inner) else inner
        if text.endswith((".dtype", ".device")) or isinstance(given[0], ast.Name):
            other = values.get(text.split(".")[0])
            if text.endswith(".device") or not isinstance(other, Node):
                return inner
            if _unlike(reader, other):
                raise Unreadable("no template for a change to whole numbers")
            return Node("cast", (inner, other)) if _mixed(reader) or _unlike(reader, inner) else inner
        kind = text.removeprefix("torch.")
    kind = {"float32": "float", "float16": "half", "float64": "double"}.get(kind, kind)
    if kind == "bool":
        return Node("ne", (inner, Node("number", text="0.0")))
    if kind not in ("float", "half", "bfloat16"):
        raise Unreadable(f"no template for a change to {kind}")
    return Node("cast", (inner,), kind) if kind != "float" else _in_float32(reader, inner, ast.unparse(node))


def accumulated(reader: Expressions, op: str, x: Node, dtype: str, values: dict[str, Any]) -> Node:
    """Returns the operand of an operator with the option `dtype`: torch converts it first, and the result has that
    type. Raises `Unreadable` for types that no template stores."""
    kind = dtype.removeprefix("torch.")
    if kind == "None" or dtype.endswith(".dtype") and values.get(dtype.removesuffix(".dtype")) == x:
        return x
    if kind in ("int64", "long") and op in ("sum", "prod") and _unlike(reader, x):
        return x
    if kind not in ("float32", "float") and not (dtype.endswith(".dtype") and not _mixed(reader)):
        raise Unreadable(f"no template for {op} in {dtype}")
    return _in_float32(reader, x, dtype)


def _in_float32(reader: Expressions, x: Node, text: str) -> Node:
    """Returns a value as float32. Raises `Unreadable` for values that were rounded to a narrower type before."""
    if any(n.op == "cast" and n.text in ("half", "bfloat16") for n in nodes(x)):
        raise Unreadable(f"no template for a change to half precision and back: {text[:40]}")
    return Node("cast", (x,), "float") if _mixed(reader) or _unlike(reader, x) else x


def _unlike(reader: Expressions, inner: Node) -> bool:
    """Tells whether a value's elements are integers or booleans."""
    while inner.op in MOVING or inner.op in READERS:
        inner = inner.args[0]
    declared = reader.facts.inputs.get(inner.text) if inner.op == "input" else None
    whole = inner.op in _WHOLE
    return (
        whole
        or inner.op in COMPARISONS
        or inner.op in LOGIC
        or getattr(declared, "dtype", "") in ("bool", "long", "int")
    )


def _mixed(reader: Expressions) -> bool:
    """Tells whether the task has floating types other than float32."""
    return any(getattr(v, "dtype", "") in ("half", "bfloat16", "double") for v in reader.facts.inputs.values())
