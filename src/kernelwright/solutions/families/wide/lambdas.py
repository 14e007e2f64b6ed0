"""Writes elementwise operators as a C++ lambda whose parameters are the operands' values.

The device library's functions load the operands (`kernelwright/memory.cuh`, `reduce.cuh`) and call the lambda.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kernelwright.solutions.kernels.fusion import CTYPES, READERS, Fusion, same
from kernelwright.solutions.read.declared import Shape
from kernelwright.solutions.read.reading import Node

_PICKS = re.compile(r"\bf(max|min)f\(")


@dataclass
class LambdaFusion(Fusion):
    """Elementwise operators whose operands are parameters of a lambda."""

    loads: dict[str, str] = field(default_factory=dict)
    """A parameter with its type -> the text by which the library reads it."""
    view: Callable[[LambdaFusion, Node], str] | None = None
    """Returns the text for a view that is read in place; empty for a view that the lambda reads by an index."""
    indexed: bool = False
    """True where an operand is read, or a value is made, at an index that the lambda needs."""

    def _operator(self, node: Node) -> str:
        if node.op == "mish":
            return self._assign(node, f"kw::mish({self.value(node.args[0])})")
        before = len(self.statements)
        name = super()._operator(node)
        self.indexed |= any(re.search(rf"\b{self.place}\b", s) for s in self.statements[before:])
        return name

    def _read(self, node: Node) -> str:
        view = node.op in READERS and not self.writer.has(node) and same(self.writer.shape(node), self.shape)
        if view:
            text = self.view(self, node) if self.view else ""
        else:
            text = "" if self._is_scalar_input(node) else self.reader(node)
        if not text:
            self.indexed |= not self._is_scalar_input(node)
            return super()._read(node)
        variable = self._variable()
        self.loads[f"float {variable}"] = text  # of truth values, too: statements use the variable for their results
        self._known[node] = variable
        return variable

    def reader(self, node: Node) -> str:
        """Returns C++ text of an operand of `kw::map`; empty where the lambda has to read it by an index."""
        shape, text = self.writer.shape(node), self.writer.flat(node)
        rank = len(self.shape)
        wide: Shape = (1,) * (rank - len(shape)) + tuple(shape)
        kept = [d for d in range(rank) if wide[d] != 1]
        gap = [d for d in range(rank) if wide[d] == 1 and self.shape[d] != 1]
        if same(wide, self.shape):
            return f"kw::dense({self.pointer_of(node, text)})"
        if not kept:
            return f"kw::single({self.pointer_of(node, text)})"
        before, after = [d for d in gap if d < kept[0]], [d for d in gap if d > kept[-1]]
        if len(before) + len(after) == len(gap):
            pointer = self.pointer_of(node, text)
            middle = range(kept[0], kept[-1] + 1)
            if not after:
                return f"kw::column({pointer}, {self.count(middle)})"
            inner = self.count(range(kept[-1] + 1, rank))
            return (
                f"kw::channel({pointer}, {inner}, {self.count(middle)})" if before else f"kw::row({pointer}, {inner})"
            )
        if not before and not after and all(self.shape[d] == 1 or d in gap for d in range(gap[0], gap[-1] + 1)):
            outer = self.count(range(gap[0], rank))
            return f"kw::gap({self.pointer_of(node, text)}, {outer}, {self.count(range(gap[-1] + 1, rank))})"
        return (
            f"kw::dense({self.pointer_of(node, f'{self.writer.tensor(node)}.expand_as({self.bearer}).contiguous()')})"
        )

    def pointer_of(self, node: Node, text: str) -> str:
        """Returns the kernel's parameter for an operand with this Python text."""
        wanted = text.split("(")[0].replace("self.", "").split(".expand")[0]
        return self.operands.name(wanted, f"const {CTYPES.get(self.writer.kind(node), 'float')}*", text)


def lambda_text(parameters: Sequence[str], statements: Sequence[str], value: str, head: str = "") -> str:
    """Returns a lambda that computes `value` by `statements`, by reference to the kernel's variables.

    The larger and the smaller of two values are NaN where one of them is, as in torch.
    """
    body = [head] if head else []
    body += [s.strip() for s in statements]
    text = f"[&]({', '.join(parameters)}) {{ return {value}; }}"
    if body:
        lines = textwrap.indent("\n".join([*body, f"return {value};"]), " " * 8)
        text = f"[&]({', '.join(parameters)}) {{\n{lines}\n    }}"
    return _PICKS.sub(r"kw::\1imum(", text)
