"""The operations of the writer that its parts use.

`stages.Writer` implements them. Its parts (`fusion`, `lanes`, `allocation`, `read.wholes`) depend on this interface
alone, so that no part imports the writer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from kernelwright.solutions.kernels.plan import AnswerPlan
from kernelwright.solutions.read.declared import Shape
from kernelwright.solutions.read.facts import Facts
from kernelwright.solutions.read.reading import Node, ReferenceText


class Values(ABC):
    """Gives the tensors, shapes and kinds of forward's values, and adds lines to the candidate's forward."""

    reference: ReferenceText
    facts: Facts
    plan: AnswerPlan | None
    """The source of comments; None writes no comments."""
    floats: set[str]
    """Python names of tensors that are known to hold float32 in row-major order."""
    views: dict[Node, str]
    """Python names of views that were made, which need not be in row-major order."""

    @abstractmethod
    def tensor(self, node: Node) -> str:
        """Returns Python text of a contiguous tensor with a node's value: float32, or long, int, bool for such inputs.

        Raises `Unreadable` where no template fits.
        """

    @abstractmethod
    def has(self, node: Node) -> bool:
        """Tells whether a tensor with a node's value exists already."""

    @abstractmethod
    def bearer(self, node: Node) -> str:
        """Returns Python text of a tensor with a node's shape, if possible without computing the node's value."""

    @abstractmethod
    def flat(self, node: Node) -> str:
        """Returns Python text of a contiguous tensor with a node's elements, in any shape."""

    @abstractmethod
    def result(self, name: str = "y", node: Node | None = None) -> str:
        """Returns a Python name for a value, by default the tensor that is being computed."""

    @abstractmethod
    def line(self, text: str) -> None:
        """Adds a line to forward."""

    @abstractmethod
    def shape(self, node: Node) -> Shape:
        """Returns sizes as declared, -1 for unknown ones. Raises `Unreadable` where even the rank is unknown."""

    @abstractmethod
    def kind(self, node: Node) -> str:
        """Returns the kind of a node's elements: float, half, long, int or bool."""

    @abstractmethod
    def option(self, node: Node, name: str, default: str = "None") -> Any:
        """Returns the value of an option that the text fixes. Raises `Unreadable` where it does not."""

    @abstractmethod
    def value(self, text: str) -> Any:
        """Returns the value of Python text, as far as the task's text fixes it. Raises `Unreadable`."""
