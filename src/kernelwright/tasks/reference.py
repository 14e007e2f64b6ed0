"""Parses a reference by AST and executes it with other values of its constants.

To shrink `batch_size` to 3 is to execute the same source with 3 in place of 16 in `batch_size = 16`. Constants computed
from others follow. Integer literals in `get_inputs`, `get_init_inputs` or a top-level table count as constants, named
`get_inputs:LINE:COL`. The meaning of a constant is not known here.

`instantiate` executes a task's code, so call it only in a process that may run such code.
"""

from __future__ import annotations

import ast
import linecache
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from kernelwright import syntax
from kernelwright.errors import TaskError

MODULE_NAME = "kernelwright_reference"
GRADIENTS = "GRADIENTS"
"""The constant by which a reference asks for gradients (see `tasks.gradients`)."""
_OVERRIDES = "__kernelwright_overrides__"
_FUNCTIONS = ("get_inputs", "get_init_inputs")
_SMALLEST_LITERAL = 8
_MAX_DIGITS = 10**15


@dataclass(frozen=True)
class Leaf:
    """One integer that may be replaced: a constant, or one element of a tuple constant."""

    name: str
    index: int | None
    value: int


@dataclass
class Reference:
    """A parsed source: its constants and the code in which they can be replaced."""

    source: str
    code: types.CodeType | None = None
    values: dict[str, Any] = field(default_factory=dict)
    """Every constant by name, computed ones included; literals as `get_inputs:LINE:COL`."""
    bounds: frozenset[str] = frozenset()
    """Names, and positions `:LINE:COL`, in the bounds of random integers, which are mostly indices."""
    derived: set[str] = field(default_factory=set)
    """Constants whose expression names another constant; they follow it and are not shrunk themselves."""

    def leaves(self) -> list[Leaf]:
        """Returns the integers of at least 2 that may be shrunk, in the order of the source."""
        found = []
        for name, value in self.values.items():
            if name in self.derived:
                continue
            if _is_size(value):
                found.append(Leaf(name, None, value))
            elif isinstance(value, (tuple, list)):
                found += [Leaf(name, i, v) for i, v in enumerate(value) if _is_size(v)]
        return found

    def bounding(self) -> list[Leaf]:
        """Returns the leaves that bound random integers."""
        return [leaf for leaf in self.leaves() if {leaf.name, leaf.name[leaf.name.find(":") :]} & self.bounds]

    def overrides(self, values: dict[Leaf, int]) -> dict[str, Any]:
        """Returns the constants to pass to `instantiate` so that the given leaves take other values (JSON types)."""
        changed: dict[str, Any] = {}
        for leaf, value in values.items():
            if leaf.index is None:
                changed[leaf.name] = value
            else:
                changed.setdefault(leaf.name, list(self.values[leaf.name]))[leaf.index] = value
        return {name: value for name, value in changed.items() if value != _as_json(self.values[name])}


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 2


def _as_json(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def constants(source: str) -> dict[str, Any]:
    """Returns the module's top-level constants by name: ints, floats, bools, strings, and tuples or lists of them."""
    return {name: value for name, value in parse(source).values.items() if ":" not in name}


@lru_cache(maxsize=32)
def parse(source: str) -> Reference:
    """Reads a reference once. Raises `TaskError` when it is not Python."""
    try:
        tree = syntax.parse(source)
        reference = Reference(source, bounds=_bounds(tree))
        for statement in tree.body:
            _read(statement, reference)
        ast.fix_missing_locations(tree)
        reference.code = compile(tree, f"<{MODULE_NAME}>", "exec", dont_inherit=True)
    except SyntaxError as error:
        where = f" at line {error.lineno}" if error.lineno else ""
        raise TaskError(f"the reference is not valid Python{where}: {error.msg}", hint="fix the reference") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise TaskError(f"the reference cannot be read: {error}", hint="fix the reference") from error
    return reference


def _bounds(tree: ast.Module) -> frozenset[str]:
    """Returns `Reference.bounds`. Call it before literals are made replaceable."""
    found: set[str] = set()
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] == "randint":
            given = [*call.args[:2], *(k.value for k in call.keywords if k.arg in ("low", "high"))]
            for node in (part for one in given for part in ast.walk(one)):
                if isinstance(node, ast.Name):
                    found.add(node.id)
                elif isinstance(node, ast.Constant):
                    found.add(f":{node.lineno}:{node.col_offset}")
    return frozenset(found)


def _read(statement: ast.stmt, reference: Reference) -> None:
    """Notes the constants of one top-level statement and makes them replaceable, in place."""
    if isinstance(statement, ast.FunctionDef) and statement.name in _FUNCTIONS:
        _open_literals(statement, statement.name, reference)
    elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
        statement.value = _open(statement.target.id, statement.value, reference)
    elif isinstance(statement, ast.Assign):
        target, value = statement.targets[0], statement.value
        if isinstance(target, ast.Name):
            statement.value = _open(target.id, value, reference)
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            if not any(isinstance(e, ast.Starred) for e in (*target.elts, *value.elts)):
                pairs = zip(target.elts, value.elts, strict=True)
                value.elts = [_open(t.id, v, reference) if isinstance(t, ast.Name) else v for t, v in pairs]


def _open(name: str, expression: ast.expr, reference: Reference) -> ast.expr:
    """Returns `overrides[name] if name in overrides else E` for a constant E; other expressions unchanged."""
    try:
        value = _evaluate(expression, reference.values)
    except _NotConstant:
        if isinstance(expression, (ast.Dict, ast.Call, ast.List, ast.Tuple)):
            _open_literals(expression, name, reference)
        return expression
    reference.values[name] = value
    if any(isinstance(node, ast.Name) for node in ast.walk(expression)):
        reference.derived.add(name)
    else:
        reference.derived.discard(name)
    return _choice(name, expression)


def _open_literals(node: ast.AST, prefix: str, reference: Reference) -> None:
    """Makes the larger integer literals below a node replaceable, each under its own name."""
    for parent in ast.walk(node):
        if isinstance(parent, (ast.JoinedStr, ast.FormattedValue, ast.Subscript)):
            continue
        for label, child in list(ast.iter_fields(parent)):
            if label in ("annotation", "returns", "decorator_list"):
                continue
            if isinstance(child, list):
                setattr(parent, label, [_open_literal(c, prefix, reference) for c in child])
            else:
                setattr(parent, label, _open_literal(child, prefix, reference))


def _open_literal(child: Any, prefix: str, reference: Reference) -> Any:
    if not isinstance(child, ast.Constant) or type(child.value) is not int or child.value < _SMALLEST_LITERAL:
        return child
    name = f"{prefix}:{child.lineno}:{child.col_offset}"
    reference.values[name] = child.value
    return _choice(name, child)


def _choice(name: str, default: ast.expr) -> ast.expr:
    table = ast.Name(_OVERRIDES, ast.Load())
    found = ast.Compare(ast.Constant(name), [ast.In()], [table])
    chosen = ast.Subscript(ast.Name(_OVERRIDES, ast.Load()), ast.Constant(name), ast.Load())
    choice = ast.IfExp(found, chosen, default)
    for node in _without(choice, default):
        ast.copy_location(node, default)
    return choice


def _without(node: ast.AST, stop: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        if child is not stop:
            yield from _without(child, stop)


class _NotConstant(Exception):
    pass


def _evaluate(node: ast.expr, known: dict[str, Any]) -> Any:
    """Returns the value of a constant expression over names already known; raises `_NotConstant` for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float, str, type(None))):
        return node.value
    if isinstance(node, ast.Name) and node.id in known:
        return known[node.id]
    if isinstance(node, ast.Tuple):
        return tuple(_evaluate(e, known) for e in node.elts)
    if isinstance(node, ast.List):
        return [_evaluate(e, known) for e in node.elts]
    if isinstance(node, ast.Starred):
        raise _NotConstant
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        value = _number(_evaluate(node.operand, known))
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp):
        return _arithmetic(node.op, _evaluate(node.left, known), _evaluate(node.right, known))
    raise _NotConstant


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _NotConstant
    return value


def _arithmetic(operator: ast.operator, left: Any, right: Any) -> Any:
    a, b = _number(left), _number(right)
    try:
        if isinstance(operator, ast.Add):
            return a + b
        if isinstance(operator, ast.Sub):
            return a - b
        if isinstance(operator, ast.Mult):
            return a * b
        if isinstance(operator, ast.FloorDiv):
            return a // b
        if isinstance(operator, ast.Div):
            return a / b
        if isinstance(operator, ast.Mod):
            return a % b
        if isinstance(operator, ast.Pow) and abs(a) <= _MAX_DIGITS and 0 <= b <= 64:
            return a**b
    except ArithmeticError:
        pass
    raise _NotConstant


def instantiate(source: str, overrides: dict[str, Any] | None = None) -> dict[str, Any]:
    """Returns the namespace of the reference's module, executed with some constants replaced.

    Raises `TaskError` for a constant that the source does not have, or when executing it raises. The module is
    registered as `kernelwright_reference`, so that `inspect`, dataclasses and `torch.jit` find it and its source.
    """
    reference = parse(source)
    table: dict[str, Any] = {}
    for name, value in (overrides or {}).items():
        if name not in reference.values:
            raise TaskError(
                f"the reference has no constant {name!r}", hint="name a constant assigned at the top of the reference"
            )
        table[name] = tuple(value) if isinstance(reference.values[name], tuple) and isinstance(value, list) else value
    module = types.ModuleType(MODULE_NAME)
    filename = f"<{MODULE_NAME}>"
    module.__file__ = filename
    module.__dict__[_OVERRIDES] = table
    lines = source.splitlines(keepends=True)
    linecache.cache[filename] = (len(source), None, lines, filename)
    sys.modules[MODULE_NAME] = module
    assert reference.code is not None
    try:
        exec(reference.code, module.__dict__)
    except Exception as error:
        raise TaskError(f"the reference cannot be imported: {last_line(error)}", hint="fix the reference") from error
    if module.__dict__.get(GRADIENTS) is True and callable(module.__dict__.get("Model")):
        from kernelwright.tasks.gradients import differentiated

        try:
            module.__dict__["Model"] = differentiated(module.__dict__["Model"])
        except TypeError as error:
            raise TaskError(str(error), hint="derive Model from torch.nn.Module") from error
    return module.__dict__


def wants_gradients(source: str) -> bool:
    """Tells whether a reference asks for gradients, without executing it."""
    try:
        body = syntax.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(
        isinstance(node, ast.Assign)
        and any(isinstance(t, ast.Name) and t.id == GRADIENTS for t in node.targets)
        and isinstance(node.value, ast.Constant)
        and node.value.value is True
        for node in body
    )


def last_line(error: BaseException) -> str:
    """Returns an exception as one line: its type and the first line of its message."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


def sizes_in_words(source: str, constants: dict[str, Any]) -> str:
    """Returns replaced constants as the task's author knows them: `rows=157`, or `157 for 4096 on line 6`.

    A literal has the name that the source gives it: of the variable, keyword, parameter or key that holds it.
    """
    if not constants:
        return "the task's own size"
    names, values = _literal_names(source), parse(source).values
    parts = []
    for name, value in constants.items():
        _, *place = name.split(":")
        at = (int(place[0]), int(place[1])) if len(place) == 2 else None
        if at is None or at in names:
            parts.append(f"{name if at is None else names[at]}={value}")
        else:
            parts.append(f"{value} for {values.get(name, '?')} on line {at[0]}")
    return ", ".join(parts)


@lru_cache(maxsize=32)
def _literal_names(source: str) -> dict[tuple[int, int], str]:
    """Returns the names of literals by line and column, where the source gives them one."""
    found: dict[tuple[int, int], str] = {}

    def note(name: Any, value: ast.AST | None) -> None:
        if isinstance(name, str) and isinstance(value, ast.Constant):
            found[value.lineno, value.col_offset] = name

    for node in ast.walk(syntax.parse(source)):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            note(node.targets[0].id, node.value)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
            for target, value in zip(node.targets[0].elts, getattr(node.value, "elts", ()), strict=False):
                note(getattr(target, "id", None), value)
        elif isinstance(node, ast.AnnAssign):
            note(getattr(node.target, "id", None), node.value)
        elif isinstance(node, ast.keyword):
            note(node.arg, node.value)
        elif isinstance(node, ast.arguments):
            for argument, default in zip(reversed(node.args), reversed(node.defaults), strict=False):
                note(argument.arg, default)
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                note(getattr(key, "value", None), value)
    return found
