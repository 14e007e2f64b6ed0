"""Layers in containers, as a constructor's text makes them: which ones there are, and a call of all in a row."""

from __future__ import annotations

import ast
import copy

from kernelwright.tasks.constants import written


def layers_of(node: ast.expr | None) -> list[ast.expr] | None:
    """The layers of an `nn.Sequential(...)` or `nn.ModuleList([...])`."""
    if not isinstance(node, ast.Call) or node.keywords or last_name(node.func) not in ("Sequential", "ModuleList"):
        return None
    items = node.args
    if last_name(node.func) == "ModuleList" and items:
        if len(items) != 1 or not isinstance(items[0], ast.List | ast.Tuple):
            return None
        items = items[0].elts
    return None if any(isinstance(i, ast.Starred) or not isinstance(i, ast.Call) for i in items) else items


def chained(container: ast.expr, layers: list[ast.expr], value: ast.expr) -> ast.expr:
    """A Sequential's layers, one called with what the one before returns."""
    for number, layer in enumerate(layers):
        one = ast.Subscript(copy.deepcopy(container), written(number), ast.Load())
        inner = layers_of(layer) if last_name(layer.func) == "Sequential" else None  # type: ignore[attr-defined]
        value = chained(one, inner, value) if inner is not None else ast.Call(one, [value], [])
    return value


def last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
