"""Follows assignments to slices in forward: each gives a new value, where no other name shares the memory."""

from __future__ import annotations

import ast
from typing import Any

from kernelwright.solutions.read.interface import Expressions
from kernelwright.solutions.read.reading import Node, Unreadable

_VIEWS = frozenset(
    """permute transpose movedim expand expand_as index narrow select piece unfold diagonal reshape reshape_as flatten
    unflatten unsqueeze squeeze split unbind""".split()
)
_OWNED = frozenset((*_VIEWS, "input", "tensor"))
"""Operators whose result may lie in memory that is not its own."""


def check_alone(reader: Expressions, name: str, values: dict[str, Any]) -> None:
    """Raises `Unreadable` where an in-place change of a tensor would change another name's value."""
    value = values.get(name)
    if not isinstance(value, Node) or value.op == "number":
        return
    others = [v for n, v in values.items() if n != name and isinstance(v, Node)]
    viewed = any(v != value and _root(v) == value for v in others)  # others are views of it
    views = value.op in _VIEWS and name not in reader.aliases.copied and any(_root(v) == _root(value) for v in others)
    if reader.aliases.shared(name) or viewed or views:
        raise Unreadable(f"forward changes {name} in place, which other names may share")


def put(reader: Expressions, target: ast.Subscript, value: Node, values: dict[str, Any]) -> Node:
    """Returns a tensor that differs from y at a slice: `y[1:] = value`.

    Raises `Unreadable` where other names may share y's memory, or for an index of tensors.
    """
    name, base = target.value.id, reader.tensor(target.value, values)  # type: ignore[attr-defined]
    check_alone(reader, name, values)
    if base.op in _OWNED and name not in reader.aliases.copied:
        raise Unreadable(f"forward writes to {ast.unparse(target)[:40]}, which may be part of another tensor")
    index = target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]
    for part in index:
        if not isinstance(part, ast.Slice | ast.Constant) and reader.tensor(part, values).op != "number":
            raise Unreadable(f"no template for an assignment to {ast.unparse(target)[:40]}")
    return Node("put", (base, value), text=", ".join(reader.text(p, values) for p in index))


def _root(node: Node) -> Node:
    """Returns the tensor whose memory a view shows."""
    while node.op in _VIEWS:
        node = node.args[0]
    return node
