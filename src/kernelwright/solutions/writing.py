"""Assignments to slices in forward: a value of its own afterwards, where nothing else lies in the same memory."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from kernelwright.solutions.reading import Node, Unreadable

if TYPE_CHECKING:
    from kernelwright.solutions.forward import Reader

_VIEWS = frozenset(
    """permute transpose movedim expand expand_as index narrow select piece unfold diagonal reshape reshape_as flatten
    unflatten unsqueeze squeeze split unbind""".split()
)
_OWNED = frozenset((*_VIEWS, "input", "tensor"))
"""Operators whose result lies, or may lie, in memory that is not its own."""


class Memory:
    """What the text tells of which names share memory."""

    def __init__(self, items: int = 0) -> None:
        self.copied: set[str] = set()
        """Names of copies: `u = x.clone()`."""
        self.items = items
        """Rounds and elements of lists so far (`sequences`)."""
        self.shared: set[str] = set()
        """Names of one tensor: `a = b`, `a = b = torch.zeros(3)`."""

    def assigned(self, statement: ast.Assign) -> None:
        """Notes an assignment."""
        names = {t.id for t in statement.targets if isinstance(t, ast.Name)}
        value = statement.value
        self.copied -= names
        self.shared -= names
        if isinstance(value, ast.Name):
            self.shared |= names | {value.id}
        elif len(statement.targets) > 1:
            self.shared |= names
        elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "clone":
            self.copied |= names


def check_alone(reader: Reader, name: str, values: dict[str, Any]) -> None:
    """Raises `Unreadable` where changing a tensor in place changes what another name stands for."""
    value = values.get(name)
    if not isinstance(value, Node) or value.op == "number":
        return
    others = [v for n, v in values.items() if n != name and isinstance(v, Node)]
    viewed = any(v != value and _root(v) == value for v in others)  # others are views of it
    views = value.op in _VIEWS and name not in reader.memory.copied and any(_root(v) == _root(value) for v in others)
    if name in reader.memory.shared or viewed or views:
        raise Unreadable(f"forward changes {name} in place, which other names may share")


def put(reader: Reader, target: ast.Subscript, value: Node, values: dict[str, Any]) -> Node:
    """`y[1:] = value`: a tensor that differs from y there.

    Raises `Unreadable` where others may share y's memory, or for an index of tensors.
    """
    name, base = target.value.id, reader.tensor(target.value, values)  # type: ignore[attr-defined]
    copied = name in reader.memory.copied
    views = [v for n, v in values.items() if n != name and isinstance(v, Node) and _root(v) == base and v != base]
    if name in reader.memory.shared or views or (base.op in _OWNED and not copied):
        raise Unreadable(f"forward writes to {ast.unparse(target)[:40]}, which may be part of another tensor")
    index = target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]
    for part in index:
        if not isinstance(part, ast.Slice | ast.Constant) and reader.tensor(part, values).op != "number":
            raise Unreadable(f"no template for an assignment to {ast.unparse(target)[:40]}")
    return Node("put", (base, value), text=", ".join(reader.text(p, values) for p in index))


def _root(node: Node) -> Node:
    """The tensor whose memory a view shows."""
    while node.op in _VIEWS:
        node = node.args[0]
    return node
