"""Assignments to slices in forward: a value of its own afterwards, where nothing else lies in the same memory."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kernelwright.solutions.read.reading import Node, Unreadable

if TYPE_CHECKING:
    from kernelwright.solutions.read.forward import Reader

_VIEWS = frozenset(
    """permute transpose movedim expand expand_as index narrow select piece unfold diagonal reshape reshape_as flatten
    unflatten unsqueeze squeeze split unbind""".split()
)
_OWNED = frozenset((*_VIEWS, "input", "tensor"))
"""Operators whose result lies, or may lie, in memory that is not its own."""


class Memory:
    """What the text tells of which names share memory."""

    def __init__(self, body: Sequence[ast.stmt] = (), items: int = 0) -> None:
        names = [n for statement in body for n in ast.walk(statement) if isinstance(n, ast.Name)]
        self.reads = Counter(n.id for n in names if isinstance(n.ctx, ast.Load))
        self.copied: set[str] = set()
        """Names of copies: `u = x.clone()`."""
        self.items = items
        """Rounds and elements of lists so far (`sequences`)."""
        self.alike: dict[str, dict[str, int]] = {}
        """Other names of one tensor, of `a = b` or `a = b = torch.zeros(3)`, and how often that reads them itself."""

    def assigned(self, statement: ast.Assign) -> None:
        """Notes an assignment."""
        names = {t.id for t in statement.targets if isinstance(t, ast.Name)}
        value = statement.value
        self.copied -= names
        for name in names:
            for others in [self.alike.pop(name, {}), *self.alike.values()]:
                others.pop(name, None)
        if isinstance(value, ast.Name) or len(names) > 1:
            source = {value.id: 1, **self.alike.get(value.id, {})} if isinstance(value, ast.Name) else {}
            every = source | dict.fromkeys(names, 0)
            for name in every:
                self.alike[name] = {other: reads for other, reads in every.items() if other != name}
        elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "clone":
            self.copied |= names

    def shared(self, name: str) -> bool:
        """Whether another name of the same tensor is read anywhere else."""
        return any(self.reads[other] > reads for other, reads in self.alike.get(name, {}).items())


def check_alone(reader: Reader, name: str, values: dict[str, Any]) -> None:
    """Raises `Unreadable` where changing a tensor in place changes what another name stands for."""
    value = values.get(name)
    if not isinstance(value, Node) or value.op == "number":
        return
    others = [v for n, v in values.items() if n != name and isinstance(v, Node)]
    viewed = any(v != value and _root(v) == value for v in others)  # others are views of it
    views = value.op in _VIEWS and name not in reader.memory.copied and any(_root(v) == _root(value) for v in others)
    if reader.memory.shared(name) or viewed or views:
        raise Unreadable(f"forward changes {name} in place, which other names may share")


def put(reader: Reader, target: ast.Subscript, value: Node, values: dict[str, Any]) -> Node:
    """`y[1:] = value`: a tensor that differs from y there.

    Raises `Unreadable` where others may share y's memory, or for an index of tensors.
    """
    name, base = target.value.id, reader.tensor(target.value, values)  # type: ignore[attr-defined]
    check_alone(reader, name, values)
    if base.op in _OWNED and name not in reader.memory.copied:
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
