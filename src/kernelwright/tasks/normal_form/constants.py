"""Evaluates constant expressions of Python text and tells which may replace their name.

Nothing is executed: values are computed from literals, arithmetic and a few functions known by name.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from kernelwright import syntax

MAX_ROUNDS = 24
"""Most repetitions of a loop that is unrolled, and of a list that is repeated."""
LONGEST = 4096
"""Most elements of a computed list, and characters of a computed text."""
LARGEST_NUMBER = 7
"""Integers above it may be sizes, so they keep their names."""
_LARGEST: dict[type, float] = {bool: 1, int: 2**40, float: 1e300}
ROOTS = ("torch", "nn", "F", "math")
_SUMS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
_CALLS: dict[str, Callable[..., Any]] = {
    "int": int,
    "float": float,
    "bool": bool,
    "len": len,
    "tuple": tuple,
    "list": list,
    "max": max,
    "min": min,
    "abs": abs,
    "round": round,
    "sum": sum,
    "sorted": sorted,
    "range": lambda *a: tuple(range(*a)),
    "str.lower": str.lower,
    "enumerate": lambda *a: tuple(enumerate(*a)),
    "zip": lambda *a: tuple(zip(*a, strict=False)),
    "reversed": lambda a: tuple(reversed(a)),
    "math.sqrt": math.sqrt,
    "math.ceil": math.ceil,
    "math.floor": math.floor,
    "math.log": math.log,
    "math.log2": math.log2,
    "math.exp": math.exp,
    "math.prod": math.prod,
    "math.pow": math.pow,
}
_TYPES = {"int": int, "float": float, "bool": bool, "str": str, "tuple": tuple, "list": list}


class UnknownValue(Exception):
    """Raised for an expression whose value is not known from the text."""


def value_of(node: ast.expr, known: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """Returns the value of a constant expression over the known names. Raises `UnknownValue`."""

    def of(part: ast.expr) -> Any:
        return value_of(part, known)

    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None):
            return node.value
        case ast.Name(id=name) if name in known:
            return known[name]
        case ast.Tuple(elts=elements):
            return tuple(map(of, elements))
        case ast.List(elts=elements):
            return list(map(of, elements))
        case ast.Dict(keys=keys, values=values) if None not in keys:
            return _tried(dict, list(zip(map(of, keys), map(of, values), strict=True)))  # type: ignore[arg-type]
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=given) if all(k.arg for k in given):
            return {k.arg: of(k.value) for k in given}
        case ast.UnaryOp(op=sign, operand=operand) if type(sign) in _SUMS:
            return _tried(_SUMS[type(sign)], of(operand))
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            a, b = of(left), of(right)
            if isinstance(a, int | float) and isinstance(b, int | float) and abs(a) <= 2**20 and abs(b) <= 64:
                return _tried(operator.pow, a, b)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _SUMS:
            a, b = of(left), of(right)
            if isinstance(sign, ast.Mult) and not all(isinstance(v, int | float) for v in (a, b)):
                if max(v for v in (a, b, 0) if isinstance(v, int)) > MAX_ROUNDS:
                    raise UnknownValue
            if isinstance(sign, ast.Mod) and isinstance(a, str):
                raise UnknownValue  # the width alone makes a huge text: "%999999999d" % 1
            return _tried(_SUMS[type(sign)], a, b)
        case ast.Compare(left=left, ops=[sign], comparators=[right]) if type(sign) in _SUMS:
            return _tried(_SUMS[type(sign)], of(left), of(right))
        case ast.Call(func=ast.Name(id="isinstance"), args=[one, ast.Name(id=kind)]) if kind in _TYPES:
            return isinstance(of(one), _TYPES[kind])
        case ast.Call(func=ast.Name(id="isinstance"), args=[one, ast.Tuple(elts=kinds)]):
            names = [k.id for k in kinds if isinstance(k, ast.Name) and k.id in _TYPES]
            if len(names) == len(kinds):
                return isinstance(of(one), tuple(_TYPES[k] for k in names))
        case ast.Call(func=ast.Attribute(value=text, attr="lower"), args=[], keywords=[]):
            return _tried(str.lower, of(text))
        case ast.Call(func=called, args=arguments, keywords=[]) if ast.unparse(called) in _CALLS:
            if ast.unparse(called) == "range" and not all(abs(_whole(of(a))) <= 4096 for a in arguments):
                raise UnknownValue
            return _tried(_CALLS[ast.unparse(called)], *map(of, arguments))
        case ast.Subscript(value=inner, slice=ast.Slice(lower=a, upper=b, step=c)):
            return _tried(operator.getitem, of(inner), slice(*(None if v is None else of(v) for v in (a, b, c))))
        case ast.Subscript(value=inner, slice=index):
            return _tried(operator.getitem, of(inner), of(index))
    raise UnknownValue


def _whole(value: Any) -> int:
    if not isinstance(value, int):
        raise UnknownValue
    return value


def _tried(function: Callable[..., Any], *values: Any) -> Any:
    try:
        found = function(*values)
    except (ArithmeticError, TypeError, ValueError, LookupError):
        raise UnknownValue from None
    if isinstance(found, str | tuple | list) and len(found) > LONGEST:
        raise UnknownValue
    if isinstance(found, complex) or (isinstance(found, int | float) and not abs(found) <= _LARGEST[type(found)]):
        raise UnknownValue
    return found


def written(value: Any) -> ast.expr:
    """Returns the expression of a constant."""
    return syntax.expression(repr(value))


def is_value(node: ast.expr) -> bool:
    """Tells whether an expression is a literal constant."""
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant)
    if isinstance(node, ast.Tuple | ast.List):
        return all(map(is_value, node.elts))
    return isinstance(node, ast.Constant) and not isinstance(node.value, bytes | complex | type(...))


def is_known(node: ast.expr) -> bool:
    """Tells whether an expression is a constant, a torch name, a layer of a list, or a table of these."""
    if isinstance(node, ast.Dict):
        return all(k is not None and is_value(k) for k in node.keys) and all(map(is_known, node.values))
    if isinstance(node, ast.Attribute | ast.Subscript):
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            root = root.value
        return isinstance(root, ast.Name) and root.id in ROOTS
    return is_value(node)


def is_small(node: ast.expr) -> bool:
    """Tells whether an expression may replace its name everywhere: it is no size and no long list."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return abs(node.value) <= LARGEST_NUMBER
    if isinstance(node, ast.UnaryOp):
        return is_small(node.operand)
    if isinstance(node, ast.Tuple | ast.List):
        return len(node.elts) <= LARGEST_NUMBER and all(map(is_small, node.elts))
    return True
