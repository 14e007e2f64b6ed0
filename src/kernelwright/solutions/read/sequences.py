"""Reads lists in forward: items of loops and comprehensions, appended values, sums of lists."""

from __future__ import annotations

import ast
from typing import Any

from kernelwright.solutions.read.interface import Expressions
from kernelwright.solutions.read.reading import Node, Unreadable

MOST_ITEMS = 16_384
"""The most rounds of all loops and comprehensions of a forward, and elements of its lists, together."""


def items(reader: Expressions, node: ast.expr, values: dict[str, Any]) -> list[Any]:
    """Returns the values of a loop's variable, round by round. Raises `Unreadable` where the text does not fix them."""
    found = _items(reader, node, values)
    _count(reader, len(found))
    return found


def _count(reader: Expressions, more: int) -> None:
    reader.aliases.items += more
    if reader.aliases.items > MOST_ITEMS:
        raise Unreadable(f"forward has loops and lists of more than {MOST_ITEMS} elements")


def _items(reader: Expressions, node: ast.expr, values: dict[str, Any]) -> list[Any]:
    if (layers := reader.layers(node)) is not None:
        return [("layer", path) for path in layers]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        match node.func.id, node.args:
            case "zip", [_, *_]:
                return list(zip(*(items(reader, a, values) for a in node.args), strict=False))
            case "enumerate", [one]:
                return [(_number(i), item) for i, item in enumerate(items(reader, one, values))]
            case "reversed" | "list" | "tuple", [one]:
                found = items(reader, one, values)
                return found[::-1] if node.func.id == "reversed" else found
    if isinstance(node, ast.Name) and isinstance(values.get(node.id), tuple) and "layer" not in values[node.id][:1]:
        return list(values[node.id])
    if isinstance(node, ast.Tuple | ast.List | ast.ListComp | ast.GeneratorExp):
        return list(reader.value(node, values))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        found = reader.value(node, values)
        if isinstance(found, tuple):  # pieces of a tensor
            return list(found)
    known = reader.known(node, values)
    if not isinstance(known, list | tuple | range):
        raise Unreadable(f"forward loops over {ast.unparse(node)[:40]}")
    return [_number(v) for v in known]


def _number(value: object) -> Any:
    return tuple(map(_number, value)) if isinstance(value, tuple | list) else Node("number", text=repr(value))


def comprehension(
    reader: Expressions, node: ast.ListComp | ast.GeneratorExp, values: dict[str, Any]
) -> tuple[Any, ...]:
    """Returns the items of `[f(x) for x in xs]`."""
    (one, *more) = node.generators
    if more or one.ifs or one.is_async:
        raise Unreadable(f"forward has {ast.unparse(node)[:60]}")
    found = []
    inside = dict(values)
    for item in items(reader, one.iter, values):
        reader.bind(one.target, item, inside)
        found.append(reader.value(node.elt, inside))
    return tuple(found)


def grown(reader: Expressions, call: ast.Call, values: dict[str, Any]) -> bool:
    """Follows `xs.append(x)` and `xs.extend(ys)` of a list with one name; tells whether the call was one of these."""
    match call:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append" | "extend" as how), args=[one]):
            old = values.get(name)
            if not isinstance(old, tuple) or reader.aliases.shared(name):
                return False
            values[name] = (*old, reader.value(one, values)) if how == "append" else (*old, *items(reader, one, values))
            _count(reader, len(values[name]))
            return True
    return False


def added(reader: Expressions, node: ast.expr, values: dict[str, Any]) -> Node:
    """Returns `sum(xs)`."""
    found = items(reader, node, values)
    if not found or not all(isinstance(v, Node) for v in found):
        raise Unreadable(f"forward has sum({ast.unparse(node)[:50]})")
    total = found[0]
    for value in found[1:]:
        both = total.op == value.op == "number"
        total = Node("number", text=f"({total.text} + {value.text})") if both else Node("add", (total, value))
    return total  # type: ignore[no-any-return]
