"""Tells which names of a function share a tensor's memory, from its assignments."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence


class Aliases:
    """Holds which names share a tensor, and how many list elements forward has produced."""

    def __init__(self, body: Sequence[ast.stmt] = (), items: int = 0) -> None:
        names = [n for statement in body for n in ast.walk(statement) if isinstance(n, ast.Name)]
        self.reads = Counter(n.id for n in names if isinstance(n.ctx, ast.Load))
        self.copied: set[str] = set()
        """Names of clones: `u = x.clone()`."""
        self.items = items
        """Loop rounds and list elements so far; `sequences` bounds them."""
        self.alike: dict[str, dict[str, int]] = {}
        """Name -> other names of the same tensor, from `a = b` or `a = b = torch.zeros(3)`, each with how often that
        assignment itself reads it."""

    def assigned(self, statement: ast.Assign) -> None:
        """Records an assignment."""
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
        """Tells whether another name of the same tensor is read anywhere else."""
        return any(self.reads[other] > reads for other, reads in self.alike.get(name, {}).items())
