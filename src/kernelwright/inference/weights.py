"""Simplifies weights in a prompt: a kernel depends on their shape, not on their initial values.

`nn.Parameter(1.0 + 0.1 * torch.randn(64))`, an empty tensor with `nn.init.xavier_uniform_` below it and a buffer of
random values all become `nn.Parameter(torch.randn(64))`. Only the prompt changes: the answer gets the task's own
constructor.
"""

from __future__ import annotations

import ast
import copy
import re

from kernelwright import syntax
from kernelwright.tasks.normal_form.constants import UnknownValue, value_of

Shape = tuple[str, ...]
"""Extents as source text: numbers, or arguments of the constructor."""
_MADE = ("randn", "rand", "zeros", "ones", "empty", "normal")
_SAME = set(
    "abs sqrt exp log tanh sigmoid relu tril triu neg square clamp cumsum softmax float contiguous clone".split()
)
_SAME |= set("normal_ uniform_ fill_ zero_ mul_ add_ div_ clamp_ detach mul add sub div pow cos sin exp_ abs_".split())
_FIRST_VALUES = re.compile(
    r"(?:torch\.)?nn\.init\.\w+\(self\.|self\.\w+(?:\[\d+\])*(?:\.weight|\.bias)?(?:\.data)?\.\w+_\("
)
"""Matches the beginning of a statement that only initializes values."""


def plain_weights(model: ast.ClassDef) -> None:
    """Rewrites the constructor of class Model in place: weights and float buffers of known shape become plain ones."""
    init = next((n for n in model.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
    if init is None:
        return
    names, values = init.args.args, init.args.defaults
    defaults = zip([a.arg for a in names[len(names) - len(values) :]], values, strict=True)
    tuples = {name: value for name, value in defaults if isinstance(value, ast.Tuple)}
    body: list[ast.stmt] = []
    for statement in init.body:
        if isinstance(statement, ast.With):
            kept = [s for s in statement.body if not _first_values(s)]
            if not kept:
                continue
        if not _first_values(statement):
            body.append(_plain(_Spread(tuples).visit(copy.deepcopy(statement)), statement))
    init.body = body or [ast.Pass()]


def _first_values(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and _FIRST_VALUES.match(ast.unparse(statement)) is not None


class _Spread(ast.NodeTransformer):
    """Replaces arguments by their default tuples, so that a weight's shape shows its dimensions."""

    def __init__(self, tuples: dict[str, ast.Tuple]) -> None:
        self.tuples = tuples

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.tuples.get(node.id, node)

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        spread = [
            a.value.elts if isinstance(a, ast.Starred) and isinstance(a.value, ast.Tuple) else [a] for a in node.args
        ]
        node.args = [one for some in spread for one in some]
        return node


def _plain(statement: ast.stmt, before: ast.stmt) -> ast.stmt:
    """Rewrites `self.w = nn.Parameter(...)` or `self.register_buffer("w", ...)` by shape; else returns `before`."""
    match statement:
        case ast.Assign(targets=[ast.Attribute() as target], value=ast.Call(func=called, args=[made], keywords=_)):
            if ast.unparse(called) in ("nn.Parameter", "torch.nn.Parameter"):
                return _weight(ast.unparse(target), made) or before
        case ast.Expr(value=ast.Call(func=called, args=[ast.Constant(value=str(name)), made], keywords=_)):
            if ast.unparse(called) in ("self.register_buffer", "self.register_parameter") and name.isidentifier():
                return _weight(f"self.{name}", made) or before
    return before


def _weight(target: str, made: ast.expr) -> ast.stmt | None:
    try:
        shape = shape_of(made)
    except UnknownValue:
        return None
    if not shape:
        return None
    return syntax.parse(f"{target} = nn.Parameter(torch.randn({', '.join(shape)}))").body[0]


def shape_of(node: ast.expr) -> Shape:
    """Returns the shape of the floating-point tensor that a constant expression makes. Raises `UnknownValue`."""
    match node:
        case ast.BinOp(left=left, right=right):
            return _broadcast(_operand(left), _operand(right))
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            return shape_of(operand)
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr=name), args=arguments, keywords=keywords):
            if any(k.arg == "dtype" and ast.unparse(k.value) not in ("torch.float", "torch.float32") for k in keywords):
                raise UnknownValue
            return _made(name, arguments)
        case ast.Call(func=ast.Attribute(value=inner, attr=name), args=arguments):
            return _changed(shape_of(inner), name, arguments)
        case ast.Call(func=called, args=[inner]) if ast.unparse(called) in ("nn.Parameter", "torch.nn.Parameter"):
            return shape_of(inner)
    raise UnknownValue


def _operand(node: ast.expr) -> Shape:
    """Returns the shape of an operand; empty for a number. Raises `UnknownValue`."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return ()
    if isinstance(node, ast.UnaryOp):
        return _operand(node.operand)
    if isinstance(node, ast.BinOp):
        return _broadcast(_operand(node.left), _operand(node.right))
    if isinstance(node, ast.Name) or (isinstance(node, ast.Call) and ast.unparse(node.func).startswith("math.")):
        return ()  # an argument of the constructor
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return ()
    return shape_of(node)


def _made(name: str, arguments: list[ast.expr]) -> Shape:
    """Returns the shape of the tensor that a torch function makes. Raises `UnknownValue`."""
    if (name in _SAME or name.endswith("_like")) and arguments:
        return shape_of(arguments[0])
    if name == "eye" and len(arguments) in (1, 2):
        return _extents([arguments[0], arguments[-1]])
    if name == "full" and len(arguments) == 2 and isinstance(arguments[0], ast.Tuple | ast.List):
        return _extents(arguments[0].elts)
    if name == "linspace" and len(arguments) == 3:
        return _extents(arguments[2:])
    if name == "tensor" and len(arguments) == 1:
        return _nested(value_of(arguments[0]))
    if name in _MADE and arguments:
        first = arguments[0]
        if isinstance(first, ast.Tuple | ast.List):
            return _extents(first.elts)
        if len(arguments) == 1 and isinstance(first, ast.Starred):
            return (ast.unparse(first),)
        return _extents(arguments)
    raise UnknownValue


def _nested(value: object) -> Shape:
    """Returns the shape of a nested list of floats. Raises `UnknownValue`."""
    if isinstance(value, list | tuple) and value:
        return (str(len(value)), *_nested(value[0]))
    if isinstance(value, float):
        return ()
    raise UnknownValue


def _changed(shape: Shape, name: str, arguments: list[ast.expr]) -> Shape:
    """Returns the shape after a tensor method. Raises `UnknownValue`."""
    if name in _SAME:
        return shape
    if name in ("t", "transpose") and len(shape) == 2:
        return shape[::-1]
    if name == "unsqueeze" and len(arguments) == 1:
        at = value_of(arguments[0])
        if isinstance(at, int):
            at %= len(shape) + 1
            return (*shape[:at], "1", *shape[at:])
    if name in ("view", "reshape") and arguments:
        new = arguments[0].elts if isinstance(arguments[0], ast.Tuple | ast.List) else arguments
        if len(shape) == 1:
            return tuple(shape[0] if ast.unparse(e) == "-1" else ast.unparse(e) for e in new)
        return _extents(new)
    raise UnknownValue


def _extents(nodes: list[ast.expr]) -> Shape:
    """Returns extents as source text: positive numbers, arguments, or arithmetic on them. Raises `UnknownValue`."""
    found = []
    for node in nodes:
        if not all(isinstance(n, _SIZES) for n in ast.walk(node)):
            raise UnknownValue
        if isinstance(node, ast.Constant) and not (type(node.value) is int and node.value > 0):
            raise UnknownValue
        if isinstance(node, ast.UnaryOp):
            raise UnknownValue
        found.append(ast.unparse(node))
    return tuple(found)


_SIZES = (ast.Constant, ast.Name, ast.Load, ast.BinOp, ast.operator, ast.Attribute, ast.Subscript, ast.expr_context)


def _broadcast(a: Shape, b: Shape) -> Shape:
    rank = max(len(a), len(b))
    pairs = zip(("1",) * (rank - len(a)) + a, ("1",) * (rank - len(b)) + b, strict=True)
    found: list[str] = []
    for one, other in pairs:
        if one != other and "1" not in (one, other):
            raise UnknownValue
        found.append(other if one == "1" else one)
    return tuple(found)
