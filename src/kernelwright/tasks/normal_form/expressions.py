"""Inspects and rewrites expressions of a task's text."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping
from typing import Any

from kernelwright.tasks.normal_form.constants import ROOTS, is_known, is_value, value_of


def entry(table: ast.Dict, key: Any) -> ast.expr | None:
    """Returns a table's value under a key; None where the key is missing or the keys are not constants."""
    for name, value in zip(table.keys, table.values, strict=True):
        if name is not None and is_value(name) and value_of(name) == key:
            return value
    return None


def spread_out(one: ast.expr) -> list[ast.expr]:
    """Returns `*(2, 3)` as `2, 3`; anything else as it is."""
    known = isinstance(one, ast.Starred) and isinstance(one.value, ast.Tuple | ast.List)
    return list(one.value.elts) if known else [one]  # type: ignore[attr-defined]


def spelled(one: ast.keyword) -> list[ast.keyword]:
    """Returns `**{"a": 1}` as `a=1`; any other keyword as it is."""
    if one.arg is None and isinstance(one.value, ast.Dict):
        keys = [k.value for k in one.value.keys if isinstance(k, ast.Constant) and isinstance(k.value, str)]
        if len(keys) == len(one.value.keys):
            return [ast.keyword(k, v) for k, v in zip(keys, one.value.values, strict=True)]
    return [one]


def names_in(node: ast.AST) -> set[str]:
    """Returns the names in an expression; for a stored attribute, its owner's name."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def has_integers(node: ast.expr) -> bool:
    """Tells whether an expression is or contains an integer, which may be a size."""
    return any(isinstance(n, ast.Constant) and type(n.value) is int for n in ast.walk(node))


def is_made(node: ast.expr) -> bool:
    """Tells whether torch or a layer makes the value, so that it is no constant."""
    if isinstance(node, ast.BinOp):
        return is_made(node.left) or is_made(node.right)
    called: ast.expr = node.func if isinstance(node, ast.Call) else node
    if called is node:
        return False
    while isinstance(called, ast.Attribute | ast.Subscript):
        called = called.value
    return isinstance(called, ast.Name) and called.id in (*ROOTS[:3], "self", "super")


def is_items(node: ast.expr) -> bool:
    """Tells whether an expression is a list of layers and constants, as collected for a Sequential."""
    return isinstance(node, ast.List) and all(isinstance(e, ast.Call) or is_known(e) for e in node.elts)


def is_unread(statement: ast.stmt, known: Mapping[str, ast.expr], read: set[str]) -> bool:
    """Tells whether a statement sets an attribute that nothing reads any more, since its value was inlined."""
    match statement:
        case ast.Assign(targets=[ast.Attribute(value=owner, attr=name)]):
            return is_self(owner) and name not in read and name in known and is_known(known[name])
    return False


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def is_attribute(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and is_self(node.value)


def matched(target: ast.expr, value: ast.expr) -> list[tuple[str, ast.expr]] | None:
    """Returns (name, value) pairs of a loop's nested target; None where target and value do not match."""
    match target, value:
        case ast.Name(id=name), _:
            return [(name, value)]
        case ((ast.Tuple(elts=a) | ast.List(elts=a)), (ast.Tuple(elts=b) | ast.List(elts=b))) if len(a) == len(b):
            inner = list(map(matched, a, b))
            return None if None in inner else [pair for pairs in inner for pair in pairs or []]
    return None


def loaded(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Load)


def stored_names(function: ast.FunctionDef) -> tuple[set[str], set[str]]:
    """Returns the names that a function sets once, and the names that it sets repeatedly or in a loop."""
    once: set[str] = set()
    often: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.For | ast.While):
            often |= {n.id for s in node.body for n in ast.walk(s) if isinstance(n, ast.Name) and not loaded(n)}
        if isinstance(node, ast.Name) and not loaded(node):
            (often if node.id in once else once).add(node.id)
    return once - often, often


def bound(wanted: ast.arguments, call: ast.Call) -> dict[str, ast.expr] | None:
    """Returns a constructor call's argument per parameter except self, in order; None where the text leaves it open."""
    names = [a.arg for a in wanted.args[1:]]
    starred = any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords)
    if wanted.vararg or wanted.kwarg or wanted.posonlyargs or starred or len(call.args) > len(names):
        return None
    given = dict(zip(names[::-1], wanted.defaults[::-1], strict=False))
    keyword_only = zip((a.arg for a in wanted.kwonlyargs), wanted.kw_defaults, strict=True)
    given |= {k: v for k, v in keyword_only if v is not None}
    given |= dict(zip(names, call.args, strict=False)) | {k.arg: k.value for k in call.keywords if k.arg}
    every = [*names, *(a.arg for a in wanted.kwonlyargs)]
    return {name: given[name] for name in every} if set(given) == set(every) else None


def replaced(given: Mapping[str, ast.expr], node: ast.AST) -> Any:
    """Returns a copy of an expression or statement with names replaced by expressions."""
    return _Put(given).visit(copy.deepcopy(node))


class _Put(ast.NodeTransformer):
    """Replaces a helper's parameters by its arguments."""

    def __init__(self, given: Mapping[str, ast.expr]) -> None:
        self.given = given

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return copy.deepcopy(self.given.get(node.id, node))
