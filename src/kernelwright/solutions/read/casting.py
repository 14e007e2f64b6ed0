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
            return Node("cast", (inner, other)) if _mixed(reader) or _unlike(reader, inner) else inner
        kind = text.removeprefix("torch.")
    kind = {"float32": "float", "float16": "half", "float64": "double"}.get(kind, kind)
    if kind == "bool":
        return Node("ne", (inner, Node("number", text="0.0")))
    if kind not in ("float", "half", "bfloat16"):
        raise Unreadable(f"no template for a change to {kind}")
    if kind == "float" and any(n.op == "cast" and n.text in ("half", "bfloat16") for n in nodes(inner)):
        raise Unreadable(f"no template for a change to half precision and back: {ast.unparse(node)[:40]}")
    return Node("cast", (inner,), kind) if _mixed(reader) or kind != "float" or _unlike(reader, inner) else inner


def _unlike(reader: Expressions, inner: Node) -> bool:
    """Tells whether a value's elements are integers or booleans."""
    while inner.op in MOVING or inner.op in READERS:
        inner = inner.args[0]
    declared = reader.facts.inputs.get(inner.text) if inner.op == "input" else None
    whole = inner.op in ("sum", "prod", "argmax", "argmin", "count_nonzero")
    return (
        whole
        or inner.op in COMPARISONS
        or inner.op in LOGIC
        or getattr(declared, "dtype", "") in ("bool", "long", "int")
    )


def _mixed(reader: Expressions) -> bool:
    """Tells whether the task has floating types other than float32."""
    return any(getattr(v, "dtype", "") in ("half", "bfloat16", "double") for v in reader.facts.inputs.values())
