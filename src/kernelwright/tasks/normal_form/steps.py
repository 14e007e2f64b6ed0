"""Rewrites a function's body to one operator per line; each nested expression gets a line and a name.

`x = self.conv(x)` and `return F.relu(x) + self.bias` become `t1 = self.conv(x)`, `t2 = F.relu(t1)`,
`t3 = t2 + self.bias`, `return t3`: a name has one value. The evaluation
order stays Python's. Sizes, numbers and indices stay where they are.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

_SIZES = ("shape", "ndim", "dtype", "device")
_COUNTS = ("size", "dim", "numel", "ndimension", "type", "len")
_MODULES = ("torch", "nn", "F", "math", "self")
_WHOLE = (ast.IfExp, ast.BoolOp, ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp, ast.NamedExpr)
"""Expressions that stay unchanged, because Python may evaluate a part of them never or more than once."""


def in_steps(function: ast.FunctionDef) -> None:
    """Rewrites a function in place; leaves one with branches, loops or in-place changes as it is."""
    if all(map(_plain, function.body)) and not any(map(_changes, ast.walk(function))):
        names = [n for n in ast.walk(function) if isinstance(n, ast.Name)]
        set_here = {n.id for n in names if isinstance(n.ctx, ast.Store)}
        arguments = {n.arg for n in ast.walk(function.args) if isinstance(n, ast.arg)}
        steps = _Steps(arguments | {n.id for n in names} - set_here)
        for statement in function.body:
            steps.statement(statement)
        function.body = steps.body


def _plain(statement: ast.stmt) -> bool:
    """Tells whether a statement is an assignment to one or more names, or a return."""
    if isinstance(statement, ast.Assign):
        targets = statement.targets
        return len(targets) == 1 and all(isinstance(n, ast.Name) for n in _elements(targets[0]))
    return isinstance(statement, ast.Return) and statement.value is not None


def _elements(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple) else [node]


def _changes(node: ast.AST) -> bool:
    """Tells whether a node may change a tensor in place, or is evaluated only in part."""
    if isinstance(node, _WHOLE):
        return True
    if isinstance(node, ast.keyword):
        return node.arg in ("out", "inplace")
    return isinstance(node, ast.Attribute) and node.attr.endswith("_")


class _Steps:
    """The lines made so far; their names are not in `taken`."""

    def __init__(self, taken: set[str]) -> None:
        self.body: list[ast.stmt] = []
        self._names = (name for name in _numbered() if name not in taken)
        self._now = _Now()

    def statement(self, statement: ast.stmt) -> None:
        """Appends the lines of an assignment or a return."""
        assert isinstance(statement, ast.Assign | ast.Return) and statement.value is not None
        value = self._now.visit(statement.value)
        if isinstance(statement, ast.Return):
            parts = [self._named(e) for e in _elements(value)]
            statement.value = ast.Tuple(parts, ast.Load()) if isinstance(value, ast.Tuple) else parts[0]
            self.body.append(statement)
            return
        target = statement.targets[0]
        if isinstance(target, ast.Name) and isinstance(value, ast.Name):
            self._now.names[target.id] = value.id
            return
        statement.value = self._step(value)
        for name in _elements(target):
            assert isinstance(name, ast.Name)
            new = next(self._names)
            self._now.names[name.id] = new
            name.id = new
        self.body.append(statement)

    def _named(self, node: ast.expr) -> ast.expr:
        """Returns a name, a number or a size for an expression; appends the lines that compute it."""
        if _leaf(node):
            return node
        if isinstance(node, ast.Starred):
            return ast.Starred(self._named(node.value), node.ctx)
        if isinstance(node, ast.Tuple | ast.List):  # as the operands of torch.cat
            node.elts = [self._named(e) for e in node.elts]
            return node
        step = self._step(node)
        name = next(self._names)
        self.body.append(ast.Assign([ast.Name(name, ast.Store())], step, lineno=0))
        return ast.Name(name, ast.Load())

    def _step(self, node: ast.expr) -> ast.expr:
        """Returns an expression of one operator with named operands."""
        if _leaf(node):
            return node
        match node:
            case ast.BinOp():
                node.left = self._named(node.left)
                node.right = self._named(node.right)
            case ast.UnaryOp():
                node.operand = self._named(node.operand)
            case ast.Compare(comparators=[_]):
                node.left = self._named(node.left)
                node.comparators = [self._named(node.comparators[0])]
            case ast.Subscript() | ast.Attribute():
                node.value = self._named(node.value)
            case ast.Call():
                if isinstance(node.func, ast.Attribute) and not _of_module(node.func):
                    node.func.value = self._named(node.func.value)
                node.args = [self._named(a) for a in node.args]
                for keyword in node.keywords:
                    keyword.value = self._named(keyword.value)
            case ast.Tuple() | ast.List():
                node.elts = [self._named(e) for e in node.elts]
        return node


class _Now(ast.NodeTransformer):
    """Replaces names by those that hold their current values."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.names.get(node.id, node.id), node.ctx)


def _numbered() -> Iterator[str]:
    number = 1
    while True:
        yield f"t{number}"
        number += 1


def _of_module(node: ast.expr) -> bool:
    """Tells whether an expression names a function or layer, such as `F.relu`, `self.conv`, `self.layers[0]`."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return isinstance(node, ast.Name) and node.id in _MODULES


def _leaf(node: ast.expr) -> bool:
    """Tells whether an expression needs no line: a name, constant, module attribute, or size arithmetic."""
    match node:
        case ast.Name() | ast.Constant() | ast.Slice():
            return True
        case ast.Attribute(attr=name, value=value):
            return _of_module(node) or (name in _SIZES and _leaf(value))
        case ast.Subscript(value=value, slice=index):
            if _of_module(node):
                return not any(isinstance(i, ast.Slice) or _is_none(i) for i in _elements(index))
            return isinstance(value, ast.Attribute) and _leaf(value)
        case ast.UnaryOp(operand=operand):
            return _number(operand)
        case ast.BinOp():
            return _number(node)
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            return all(map(_leaf, elements))
        case ast.Call():
            return _number(node)
    return False


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _number(node: ast.expr) -> bool:
    """Tells whether an expression is certainly a number: constants, sizes, and arithmetic of these."""
    match node:
        case ast.Constant():
            return True
        case ast.Subscript(value=ast.Attribute(attr="shape", value=value)):
            return _leaf(value)
        case ast.UnaryOp(operand=operand):
            return _number(operand)
        case ast.BinOp(left=left, right=right):
            return _number(left) and _number(right)
        case ast.Call(func=ast.Attribute(attr=name, value=value), args=arguments, keywords=[]):
            if isinstance(value, ast.Name) and value.id == "math":
                return all(map(_number, arguments))
            return name in _COUNTS and _leaf(value) and all(map(_number, arguments))
        case ast.Call(func=ast.Name(id="len" | "float" | "int"), args=[one], keywords=[]):
            return _leaf(one)
    return False
