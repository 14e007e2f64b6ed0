"""The operations of the forward reader that its parts use.

`forward.ForwardReader` implements them. Its parts (`attention`, `casting`, `factories`, `numbers`, `sequences`,
`writing`) depend on this interface alone, so that no part imports the reader.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from typing import Any

from kernelwright.solutions.read.aliases import Aliases
from kernelwright.solutions.read.facts import Facts
from kernelwright.solutions.read.reading import Node, ReferenceText

Value = Any
"""The value of a name in forward: a `Node`, a tuple of values, or None."""


class Expressions(ABC):
    """Reads expressions of forward. `values` maps the names in scope to their values."""

    reference: ReferenceText
    facts: Facts
    aliases: Aliases
    scope: str
    """The text that `self.` stands for; a block within the model has its own, e.g. `self.block.`."""

    @abstractmethod
    def value(self, node: ast.expr, values: dict[str, Value]) -> Value:
        """Returns the value of an expression. Raises `Unreadable`."""

    @abstractmethod
    def tensor(self, node: ast.expr, values: dict[str, Value]) -> Node:
        """Returns the value of an expression that is a tensor or a number. Raises `Unreadable`."""

    @abstractmethod
    def known(self, node: ast.expr, values: dict[str, Value]) -> Any:
        """Returns the Python value of an expression that the text fixes. Raises `Unreadable`."""

    @abstractmethod
    def text(self, node: ast.expr, values: dict[str, Value]) -> str:
        """Returns a number, tuple or slice as Python text that the candidate can evaluate. Raises `Unreadable`."""

    @abstractmethod
    def bind(self, target: ast.expr, value: Value, values: dict[str, Value]) -> None:
        """Assigns a value to a target: a name, a tuple of targets, or a slice. Raises `Unreadable`."""

    @abstractmethod
    def layers(self, node: ast.expr) -> list[str] | None:
        """Returns the paths of the layers in a list of layers; None for any other expression."""

    @abstractmethod
    def module(self, path: str, operands: list[Value]) -> Value:
        """Returns the value of a call of the layer at `path`. Raises `Unreadable`."""

    @abstractmethod
    def shape_name(self, node: Node) -> str:
        """Returns a name whose `.shape` is the tensor's."""
