"""Rewrites a task's text in normal form, in which our own models are trained and asked.

Files with the same computation differ in details that cost a small model training and can mislead it: a docstring about
a "square" kernel is no reason to square a value. The normal form has no docstrings, comments and annotations. It
inlines the module's constants in the input functions, makes the values of constructor arguments their defaults, and
puts the parts in one order. Names stay.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from typing import Any

from kernelwright import syntax
from kernelwright.tasks.normal_form.constants import UnknownValue, is_known, value_of, written
from kernelwright.tasks.normal_form.folding import fold
from kernelwright.tasks.normal_form.steps import in_steps

IMPORTS = ("import torch", "import torch.nn as nn", "import torch.nn.functional as F")
_SAME = ("from torch import nn", "from torch.nn import functional as F")
_LONGEST = 16
"""Most elements of an inlined constant."""
_SHORT = {"torch.nn": "nn", "nn.functional": "F"}
_FUNCTIONS = ("get_inputs", "get_init_inputs")

Constants = dict[str, Any]


@functools.lru_cache(maxsize=128)
def normal_form(source: str) -> str:
    """Returns a task's text in normal form; any other text stripped. The function is idempotent.

    Nothing is executed. Code that is not understood stays unchanged, so the computation is the same.
    """
    try:
        tree = _with_functions(syntax.parse(source.strip()))
        if any(isinstance(n, ast.ClassDef) and n.name == "Model" for n in tree.body):
            return _TaskFile(tree).text()
    except (SyntaxError, ValueError, RecursionError, MemoryError, ArithmeticError):
        pass
    return source.strip()


def _with_functions(tree: ast.Module) -> ast.Module:
    """Rewrites `get_inputs = lambda: [...]` as a function definition."""
    for at, node in enumerate(tree.body):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda(args=given, body=body)) if name in _FUNCTIONS:
                tree.body[at] = ast.FunctionDef(name, given, [ast.Return(body)], [], lineno=0)
    return tree


class _TaskFile:
    """The parts of a file."""

    def __init__(self, tree: ast.Module) -> None:
        _Plain(_bound(tree).union(*map(_imported, filter(_odd, tree.body)))).visit(tree)
        self.tree = tree
        self.model = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Model")
        self.known = _constants(tree)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name in _FUNCTIONS:
                own = _bound(node)
                lists = _lists(tree, self.known) if node.name == "get_init_inputs" else {}
                _FoldedConstants({k: v for k, v in {**self.known, **lists}.items() if k not in own}).visit(node)
        given: dict[str, ast.expr] = {}
        for init in self._constructor():
            given = self._defaults(init.args)
        functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name not in _FUNCTIONS}
        tables = _tables(tree)
        known = {name: written(value) for name, value in self.known.items()} | tables
        self.spare = {*self.known, *tables}
        fold(self.model, known, given, functions)
        for node in self.model.body:
            if isinstance(node, ast.FunctionDef) and node.name == "forward":
                in_steps(node)

    def _function(self, name: str) -> ast.FunctionDef | None:
        found = [n for n in self.tree.body if isinstance(n, ast.FunctionDef) and n.name == name]
        return found[0] if len(found) == 1 else None

    def _constructor(self) -> list[ast.FunctionDef]:
        """Moves the constructor before the other functions and returns it; adds an inherited one if missing."""
        model = self.model
        found = [n for n in model.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
        if not found and [ast.unparse(base) for base in model.bases] in (["nn.Module"], ["torch.nn.Module"]):
            found = syntax.parse("def __init__(self):\n    super().__init__()").body  # type: ignore[assignment]
        rest = [n for n in model.body if n not in found]
        at = next((i for i, n in enumerate(rest) if isinstance(n, ast.FunctionDef)), len(rest))
        model.body = [*rest[:at], *found, *rest[at:]]
        return found[:1]

    def _defaults(self, names: ast.arguments) -> dict[str, ast.expr]:
        """Sets defaults of constructor arguments to the values from `get_init_inputs`, where these may be defaults.

        Returns all constant values by argument.
        """
        arguments = names.args[1:]
        first = len(arguments) - len(names.defaults)
        old: list[ast.expr | None] = [None] * first + list(names.defaults)
        given = self._function("get_init_inputs")
        if given is None or len(given.body) != 1 or not isinstance(given.body[0], ast.Return):
            return {}
        values = given.body[0].value
        if not isinstance(values, ast.List) or names.vararg or names.kwarg or names.posonlyargs:
            return {}
        if len(values.elts) > len(arguments):
            return {}
        new = [_literal(v) for v in values.elts] + old[len(values.elts) :]
        if all(v is not None for v in new) and not names.kwonlyargs:
            names.defaults = [v for v in new if v is not None]
        every = [*zip(arguments, [*values.elts, *old[len(values.elts) :]], strict=True)]
        every += zip(names.kwonlyargs, names.kw_defaults, strict=True)
        return {a.arg: v for a, v in every if v is not None and is_known(v)}

    def text(self) -> str:
        """Returns the file's text: imports, other definitions, the class, the input functions."""
        body = self.tree.body
        imports = [n for n in body if isinstance(n, ast.Import | ast.ImportFrom)]
        functions = [f for name in _FUNCTIONS if (f := self._function(name)) is not None]
        rest = [n for n in body if n not in imports and n not in functions]
        model = [n for n in rest if isinstance(n, ast.ClassDef) and n.name == "Model"]
        before = self._needed([n for n in rest if n not in model], [*model, *functions])
        read = set[str]().union(*map(_free, [*before, *model, *functions]))
        odd = [ast.unparse(n) for n in imports if _odd(n) and _imported(n) & {*read, "*"}]
        parts = [*IMPORTS, *odd, *map(ast.unparse, [*before, *model, *functions])]
        return re.sub(r"\n\n+", "\n", "\n".join(parts))  # string literals keep theirs: unparse escapes them

    def _needed(self, statements: list[ast.stmt], users: list[ast.stmt]) -> list[ast.stmt]:
        """Returns the module's statements without constants that are no longer read."""
        read = set[str]().union(*map(_free, users))
        kept: list[ast.stmt] = []
        for statement in reversed(statements):  # a constant is read below the line that sets it
            names = _assigned(statement)
            if isinstance(statement, ast.FunctionDef) and not statement.decorator_list and statement.name not in read:
                continue
            if not names or names & read or not names <= self.spare:
                kept.append(statement)
                read |= _free(statement)
        return kept[::-1]


class _Plain(ast.NodeTransformer):
    """Drops docstrings and annotations; spells torch's modules in one way where `nn` and `F` are not taken."""

    def __init__(self, taken: set[str]) -> None:
        self.short = {path: name for path, name in _SHORT.items() if name not in taken}
        self.fields: set[int] = set()
        """Ids of annotated statements that stay unchanged."""

    def _body(self, node: Any) -> Any:
        self.generic_visit(node)
        body = node.body
        if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            if isinstance(body[0].value.value, str):
                node.body = body[1:] or [ast.Pass()]
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        node.returns = None
        return self._body(node)

    def visit_Module(self, node: ast.Module) -> Any:
        return self._body(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        if node.decorator_list or any(ast.unparse(b).split(".")[-1] == "NamedTuple" for b in node.bases):
            self.fields.update(id(n) for n in node.body)  # annotations make fields of a dataclass
        return self._body(node)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        self.generic_visit(node)
        if node.value is None or id(node) in self.fields:
            return node
        return ast.copy_location(ast.Assign([node.target], node.value), node)

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            node.args = []
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and (name := self.short.get(f"{node.value.id}.{node.attr}")):
            return ast.copy_location(ast.Name(name, node.ctx), node)  # torch.nn.functional is nn.functional by then
        return node


class _FoldedConstants(ast.NodeTransformer):
    """Replaces reads of constants by their values."""

    def __init__(self, known: Constants) -> None:
        self.known = known

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return written(self.known[node.id]) if _read(node) and node.id in self.known else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if isinstance(node.value, ast.Name) and isinstance(self.known.get(node.value.id), dict):
            found = _value(node, self.known)  # an item of a table
            return node if found is _NOTHING else written(found)
        self.generic_visit(node)
        return (_literal(node) or node) if isinstance(node.value, ast.List | ast.Tuple) else node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        arguments: list[ast.expr] = []
        for one in node.args:  # f(*(2, 3)) is f(2, 3)
            spread = isinstance(one, ast.Starred) and isinstance(one.value, ast.Tuple | ast.List)
            arguments += one.value.elts if spread else [one]  # type: ignore[attr-defined]
        node.args = arguments
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        return _literal(node) or node


def _constants(tree: ast.Module) -> Constants:
    """Returns the module's names set once to a number, a text or a tuple of these.

    Also returns tables of these that are read by item only."""
    times: dict[str, int] = {}
    for statement in tree.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and not _read(node):
                times[node.id] = times.get(node.id, 0) + 1
            elif isinstance(node, ast.Global):
                times |= dict.fromkeys(node.names, 2)
    known: Constants = {}
    for statement in tree.body:
        if not isinstance(statement, ast.Assign):
            continue
        try:
            value = value_of(statement.value, known)
        except UnknownValue:
            continue
        if not isinstance(value, list) and not (isinstance(value, tuple) and len(value) > _LONGEST):
            for target in statement.targets:
                known |= _pairs(target, value)
    whole = _whole(tree)
    return {k: v for k, v in known.items() if times.get(k) == 1 and not (isinstance(v, dict) and k in whole)}


def _lists(tree: ast.Module, known: Constants) -> Constants:
    """Returns the module's lists and tables that are set once and never changed, as arguments of a constructor."""
    read = {id(n) for n in ast.walk(tree) if isinstance(n, ast.Subscript) and _read(n)}
    owners = [n.value for n in ast.walk(tree) if isinstance(n, ast.Attribute | ast.Subscript) and id(n) not in read]
    owned = {n.id for n in owners if isinstance(n, ast.Name)}
    names = [n for n in ast.walk(tree) if isinstance(n, ast.Name)]
    times = Counter(n.id for n in names if not _read(n))
    found: Constants = {}
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=made) if times[name] == 1 and name not in owned:
                value = _value(made, known)
                if isinstance(value, list | dict) and len(value) <= _LONGEST:
                    found[name] = value
    return found


def _whole(tree: ast.Module) -> set[str]:
    """Returns names that are read other than by item."""
    items = {n.value for n in ast.walk(tree) if isinstance(n, ast.Subscript) and _read(n)}
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and _read(n) and n not in items}


def _tables(tree: ast.Module) -> dict[str, ast.expr]:
    """Returns tables of torch's functions that the module sets once, by name."""
    found: dict[str, ast.expr] = {}
    names = [t.id for n in tree.body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)]
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Dict) and is_known(statement.value):
            (name, *more) = statement.targets
            if isinstance(name, ast.Name) and not more and names.count(name.id) == 1:
                found[name.id] = statement.value
    return found


def _pairs(target: ast.expr, value: Any) -> Constants:
    if isinstance(target, ast.Name):
        return {target.id: value}
    if isinstance(target, ast.Tuple) and isinstance(value, tuple) and len(value) == len(target.elts):
        return {n.id: v for n, v in zip(target.elts, value, strict=True) if isinstance(n, ast.Name)}
    return {}


_NOTHING = object()


def _value(node: ast.expr, known: Constants | None = None) -> Any:
    """Returns a constant's value; `_NOTHING` for any other expression."""
    try:
        value = value_of(node, known or {})
    except UnknownValue:
        return _NOTHING
    return value


def _literal(node: ast.expr, known: Constants | None = None) -> ast.expr | None:
    """Returns a constant's expression; None for any other, and for lists, since a default is shared between calls."""
    value = _value(node, known)
    return None if value is _NOTHING or isinstance(value, list | dict) else written(value)


def _odd(statement: ast.stmt) -> bool:
    """Tells whether a statement is an import other than torch's three."""
    return isinstance(statement, ast.Import | ast.ImportFrom) and ast.unparse(statement) not in (*IMPORTS, *_SAME)


def _imported(statement: ast.stmt) -> set[str]:
    """Returns the names that an import gives."""
    names = statement.names if isinstance(statement, ast.Import | ast.ImportFrom) else []
    return {(alias.asname or alias.name).partition(".")[0] for alias in names}


def _bound(node: ast.AST) -> set[str]:
    """Returns names that are set anywhere in a node, arguments of functions among them."""
    set_here = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and not _read(n)}
    return set_here | {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}


def _free(node: ast.AST) -> set[str]:
    """Returns the free names that a node reads: those not bound by a function within it."""
    inner = set[str]().union(*map(_free, ast.iter_child_nodes(node)))
    if isinstance(node, ast.Name) and _read(node):
        return {node.id}
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        a = node.args
        own = {one.arg for one in (*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg) if one is not None}
        defaults = set[str]().union(*(_free(d) for d in (*a.defaults, *a.kw_defaults) if d is not None))
        bound = _bound(node) if isinstance(node, ast.FunctionDef) else set()
        return (inner - own - bound) | defaults
    return inner


def _read(node: ast.Name | ast.Subscript) -> bool:
    return isinstance(node.ctx, ast.Load)


def _assigned(statement: ast.stmt) -> set[str]:
    """Returns the names that an assignment of the module sets; none for any other statement."""
    if not isinstance(statement, ast.Assign):
        return set()
    return {n.id for target in statement.targets for n in ast.walk(target) if isinstance(n, ast.Name)}
