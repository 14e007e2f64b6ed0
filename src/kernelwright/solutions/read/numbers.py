"""Rewrites numbers of forward as Python text that the candidate can evaluate: with locals put in and sizes by name."""

from __future__ import annotations

import ast
from typing import Any

from kernelwright import syntax
from kernelwright.solutions.read.interface import Expressions
from kernelwright.solutions.read.reading import Node, Unreadable, dotted

_SIZES = ("size", "dim", "numel", "ndimension", "nelement")


def rewritten(node: ast.expr, reader: Expressions, values: dict[str, Any]) -> str:
    """Returns the text of an expression. `values` maps forward's names to their values. Raises `Unreadable`."""
    if isinstance(node, ast.Slice):
        copy: ast.expr = syntax.expression(f"x[{ast.unparse(node)}]").slice  # type: ignore[attr-defined]
    else:
        copy = syntax.expression(ast.unparse(node))
    return ast.unparse(_Rewritten(reader, values).visit(copy))


class _Rewritten(ast.NodeTransformer):
    """Replaces forward's names by their values, and sizes of tensors by `NAME.shape[i]`."""

    def __init__(self, reader: Expressions, values: dict[str, Any]) -> None:
        self.reader, self.values = reader, values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        value = self.values.get(node.id)
        if node.id not in self.values:
            return node
        if isinstance(value, Node) and value.op == "number":
            return syntax.expression(value.text)
        if isinstance(value, tuple) and all(isinstance(v, Node) and v.op == "number" for v in value):
            return syntax.expression(f"({', '.join(v.text for v in value)},)")
        declared = self.reader.facts.inputs.get(node.id)
        if isinstance(value, Node) and value.op == "input" and isinstance(declared, (int, float)):
            return node
        raise Unreadable(f"{node.id} as a number depends on a tensor")

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if (
            node.attr in ("shape", "ndim", "device", "dtype")
            and not dotted(node).startswith("self.")
            or (node.attr in ("shape", "ndim") and isinstance(self._value(node.value), Node))
        ):
            value = self._value(node.value)
            if isinstance(value, Node) and value.op != "number":
                return self._of(value, "shape" if node.attr == "ndim" else node.attr, node.attr == "ndim")
        name = dotted(node)
        if name.startswith("self."):
            scoped = (self.reader.scope + name.removeprefix("self.")).replace("self.self.", "self.")
            return syntax.expression(scoped)
        return self.generic_visit(node)  # type: ignore[return-value]

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if isinstance(node.func, ast.Attribute) and node.func.attr in (
            "size",
            "dim",
            "numel",
            "ndimension",
            "nelement",
        ):
            value = self._value(node.func.value)
            if isinstance(value, Node) and value.op != "number":
                return self._size(node, value)
        if dotted(node.func) == "len" and node.args and isinstance(node.args[0], ast.Name):
            value = self.values.get(node.args[0].id)
            if isinstance(value, Node) and value.op != "number":
                return syntax.expression(f"{self.reader.shape_name(value)}.shape[0]")
        if dotted(node.func) == "len" and node.args and (layers := self.reader.layers(node.args[0])) is not None:
            return ast.Constant(len(layers))
        if dotted(node.func) == "len" and node.args and isinstance(items := self._value(node.args[0]), tuple):
            return ast.Constant(len(items))
        return self.generic_visit(node)  # type: ignore[return-value]

    def _size(self, node: ast.Call, value: Node) -> ast.expr:
        name = self.reader.shape_name(value)
        attr = node.func.attr  # type: ignore[attr-defined]
        if attr in ("dim", "ndimension"):
            return syntax.expression(f"len({name}.shape)")
        if attr in ("numel", "nelement"):
            return syntax.expression(f"math.prod({name}.shape)")
        given = [*node.args, *(k.value for k in node.keywords)]
        if not given:
            return syntax.expression(f"{name}.shape")
        return syntax.expression(f"{name}.shape[{ast.unparse(self.visit(given[0]))}]")

    def _of(self, value: Node, attr: str, count: bool) -> ast.expr:
        text = f"{self.reader.shape_name(value)}.{attr}"
        return syntax.expression(f"len({text})" if count else text)

    def _value(self, node: ast.expr) -> Any:
        try:
            return self.reader.value(node, self.values)
        except Unreadable:
            return None
