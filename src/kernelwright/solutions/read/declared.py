"""Evaluates expressions of a task's text to values, or to the shape and dtype of a tensor. Runs nothing.

Raises `NotDeclared` for values that the text does not fix.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernelwright.solutions.read.reading import dotted

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Declared:
    """A tensor as the text declares it. Sizes in elements; dtype is one of float, half, bfloat16, double, long, int,
    bool."""

    shape: Shape
    dtype: str = "float"


class Sizes(tuple):  # type: ignore[type-arg]
    """A shape that raises LookupError where an unknown size (-1) is read."""

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        if found == -1:
            raise LookupError("a size that the text does not fix")
        return found


class NotDeclared(Exception):
    """The text does not fix the value."""


_LONGEST = 4096
"""The longest comprehension that is evaluated, in rounds."""
_MOST = 65_536
"""The most values that a list may hold, nested lists included."""


def _range(*ends: int) -> list[int]:
    """Returns `range(...)` of at most `_LONGEST` items. Raises ValueError for more."""
    found = range(*ends)
    if len(found) > _LONGEST:
        raise ValueError(f"{len(found)} numbers")
    return list(found)


_MATH = {
    **{name: getattr(math, name) for name in ("sqrt", "log", "exp", "floor", "ceil", "prod", "log2")},
    **{"int": int, "float": float, "len": len, "tuple": tuple, "list": list, "max": max, "min": min, "abs": abs},
    **{"sum": sum, "bool": bool, "str": str, "torch.Size": tuple, "range": _range, "round": round},
}
_OPERATIONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
    ast.Pow: lambda a, b: a**b,
}
_COMPARISONS: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
    ast.Is: lambda a, b: a is b,
    ast.IsNot: lambda a, b: a is not b,
}


def evaluate(node: ast.expr, names: dict[str, Any]) -> Any:
    """Returns the value of an expression of numbers, strings, tuples and lists. Raises `NotDeclared`."""
    try:
        return _evaluate(node, names)
    except (ArithmeticError, TypeError, ValueError, LookupError, RecursionError) as error:
        raise NotDeclared(ast.unparse(node)) from error


def value_or(node: ast.expr, names: dict[str, Any], default: Any) -> Any:
    """Returns the value of an expression, or `default` where it is not known."""
    try:
        return evaluate(node, names)
    except NotDeclared:
        return default


def _evaluate(node: ast.expr, names: dict[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, (ast.Name, ast.Attribute)):
        return _named(node, names)
    if isinstance(node, (ast.Tuple, ast.List)):
        found: list[Any] = []
        for one in node.elts:
            value = _evaluate(one.value if isinstance(one, ast.Starred) else one, names)
            found.extend(value) if isinstance(one, ast.Starred) else found.append(value)
        return tuple(found) if isinstance(node, ast.Tuple) else found
    if isinstance(node, ast.Dict) and None not in node.keys:
        pairs = zip(node.keys, node.values, strict=True)
        return {_evaluate(k, names): _evaluate(v, names) for k, v in pairs if k is not None}
    if isinstance(node, ast.Call) and dotted(node.func) == "dict" and not node.args and node.keywords:
        return {k.arg: _evaluate(k.value, names) for k in node.keywords if k.arg is not None}
    if isinstance(node, ast.UnaryOp):
        value = _evaluate(node.operand, names)
        return (not value) if isinstance(node.op, ast.Not) else -value if isinstance(node.op, ast.USub) else +value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        left, right = _evaluate(node.left, names), _evaluate(node.right, names)
        _check_size(node.op, left, right)
        return _OPERATIONS[type(node.op)](left, right)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARISONS:
        return _COMPARISONS[type(node.ops[0])](_evaluate(node.left, names), _evaluate(node.comparators[0], names))
    if isinstance(node, ast.IfExp):
        return _evaluate(node.body if _evaluate(node.test, names) else node.orelse, names)
    if isinstance(node, ast.ListComp | ast.GeneratorExp) and len(node.generators) == 1:
        each = node.generators[0]
        items = _evaluate(each.iter, names)
        if isinstance(each.target, ast.Name) and not each.ifs and len(items) <= _LONGEST:
            found = []
            for item in items:
                found.append(_evaluate(node.elt, {**names, each.target.id: item}))
                if len(items) * _items(found[0]) > _MOST:
                    raise NotDeclared("too long")
            return found
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        ends = (node.slice.lower, node.slice.upper, node.slice.step)
        whole = _evaluate(node.value, names)
        if isinstance(whole, tuple | list):
            return whole[slice(*(None if e is None else _evaluate(e, names) for e in ends))]
    elif isinstance(node, ast.Subscript):
        return _evaluate(node.value, names)[_evaluate(node.slice, names)]
    if isinstance(node, ast.Call) and dotted(node.func).endswith(".size"):
        shape = _evaluate(ast.Attribute(node.func.value, "shape", ast.Load()), names)  # type: ignore[attr-defined]
        return shape[_evaluate(node.args[0], names)] if node.args else shape
    if isinstance(node, ast.Call) and not node.keywords:
        called = dotted(node.func).removeprefix("math.")
        if called in _MATH:
            return _MATH[called](*(_evaluate(a, names) for a in node.args))
    raise NotDeclared(ast.unparse(node)[:60])


def _check_size(op: ast.operator, left: Any, right: Any) -> None:
    """Raises `NotDeclared` for an operation whose result would be huge."""
    if isinstance(left, str) or isinstance(right, str):
        if not isinstance(op, ast.Add):
            raise NotDeclared("an operator on text")
    elif isinstance(left, tuple | list) or isinstance(right, tuple | list):
        many, times = (left, right) if isinstance(left, tuple | list) else (right, left)
        if isinstance(op, ast.Mult) and _items(many) * times > _MOST:
            raise NotDeclared("too long")
    elif isinstance(op, ast.Pow | ast.Mult) and max(abs(left), abs(right)) > 1e9:
        raise NotDeclared("too large")


def _items(value: Any) -> int:
    """Returns the number of values in a value, nested ones included; a number counts as one."""
    if isinstance(value, dict):
        value = list(value.values())
    return sum(map(_items, value)) + 1 if isinstance(value, tuple | list) else 1


def _named(node: ast.expr, names: dict[str, Any]) -> Any:
    name = dotted(node)
    if name in names:
        return names[name]
    if name in ("math.pi", "torch.pi", "math.e", "math.inf", "torch.inf"):
        return getattr(math, name.split(".")[1])
    owner, _, last = name.rpartition(".")
    if last == "shape" and isinstance(names.get(owner), Declared):
        return Sizes(names[owner].shape)
    if last == "dtype" and isinstance(names.get(owner), Declared):
        return names[owner].dtype
    if name.startswith("torch.") and name.count(".") == 1:
        return name  # a dtype, as text
    raise NotDeclared(name)


# Tensors -------------------------------------------------------------------------------------------------------------

DTYPES = {
    "float16": "half",
    "half": "half",
    "bfloat16": "bfloat16",
    "float32": "float",
    "float": "float",
    "float64": "double",
    "double": "double",
    "int64": "long",
    "long": "long",
    "int32": "int",
    "int": "int",
    "bool": "bool",
}
_WHOLE = ("long", "int", "bool")
_FLOATING = frozenset(
    "atan cos cosh erf exp exp2 expm1 log log1p log2 reciprocal rsqrt sigmoid sin sinh sqrt tan tanh".split()
)
"""Functions whose result is floating, whatever their argument's dtype."""
_KEEPING = frozenset(
    """abs add atan clamp clamp_max clamp_min clip clone contiguous copy cos cosh cpu cuda cumprod cumsum detach div erf
    exp exp2 expm1 fill flip floor ceil gelu log log1p log2 logical_not log_softmax masked_fill maximum minimum mul
    multiply neg normal normal_like ones_like zeros_like rand_like randn_like full_like empty_like pow reciprocal relu
    remainder requires_grad roll round rsqrt sigmoid sign silu sin sinh softmax softplus sqrt square sub subtract tan
    tanh tril triu true_divide uniform zero trunc""".split()
)
"""Methods and functions of torch whose result has its arguments' shape."""
_DEPTH = 8
"""The deepest nesting of calls between the module's functions that is followed."""
_MAKERS = frozenset("randn rand zeros ones empty full normal".split())


def declared(node: ast.expr, names: dict[str, Any]) -> Declared:
    """Returns a tensor's shape and dtype from the expression that makes it. Raises `NotDeclared`."""
    if isinstance(node, ast.Name) and isinstance(names.get(node.id), Declared):
        return names[node.id]  # type: ignore[no-any-return]
    if isinstance(node, ast.BinOp):
        found = _joined([node.left, node.right], names)
        true = isinstance(node.op, ast.Div) and found.dtype in _WHOLE
        return Declared(found.shape, "float") if true else found
    if isinstance(node, ast.Compare):
        return Declared(_joined([node.left, node.comparators[0]], names).shape, "bool")
    if isinstance(node, ast.UnaryOp):
        inner = declared(node.operand, names)
        return inner
    if isinstance(node, ast.Attribute) and node.attr in ("T", "mT"):
        inner = declared(node.value, names)
        return Declared((*inner.shape[:-2], *inner.shape[:-3:-1]), inner.dtype)
    if isinstance(node, ast.Subscript):
        return _picked(declared(node.value, names), node.slice, names)
    if isinstance(node, ast.Call):
        return _made(node, names)
    raise NotDeclared(ast.unparse(node)[:60])


def _several(node: ast.expr, names: dict[str, Any]) -> list[Declared]:
    """Returns the tensors of a list, or those of `torch.meshgrid`. Raises `NotDeclared`."""
    if isinstance(node, ast.List | ast.Tuple) and node.elts:
        return [declared(e, names) for e in node.elts]
    if isinstance(node, ast.Call) and dotted(node.func) == "torch.meshgrid":
        given = node.args[0] if len(node.args) == 1 and isinstance(node.args[0], ast.List | ast.Tuple) else None
        parts = [declared(e, names) for e in (given.elts if given is not None else node.args)]
        if all(len(p.shape) == 1 for p in parts) and [ast.unparse(k) for k in node.keywords] == ["indexing='ij'"]:
            return [Declared(tuple(p.shape[0] for p in parts), one.dtype) for one in parts]
    raise NotDeclared(ast.unparse(node)[:60])


def _joined(nodes: list[ast.expr], names: dict[str, Any]) -> Declared:
    found, numbers = [], []
    for node in nodes:
        try:
            found.append(declared(node, names))
        except NotDeclared:
            numbers.append(evaluate(node, names))  # a number, or unknown
    if not found:
        raise NotDeclared("no tensor")
    shape = found[0].shape
    for other in found[1:]:
        shape = broadcast(shape, other.shape)
    floating = [d.dtype for d in found if d.dtype not in _WHOLE]
    if not floating and any(isinstance(n, float) for n in numbers):
        floating = ["float"]
    return Declared(shape, floating[0] if floating else found[0].dtype)


def broadcast(a: Shape, b: Shape) -> Shape:
    """Returns the shape of an elementwise operator's result. An unknown size (-1) is taken not to be one."""
    rank = max(len(a), len(b))
    wide = [(1,) * (rank - len(s)) + tuple(s) for s in (a, b)]
    return tuple(q if p == 1 else (p if p != -1 or q == 1 else q) for p, q in zip(*wide, strict=True))


def _picked(inner: Declared, index: ast.expr, names: dict[str, Any]) -> Declared:
    """Returns the tensor of `x[3]`, `x[None, :, 1:]`, `x[..., 0]`: integers, slices, None and one ellipsis."""
    parts = list(index.elts) if isinstance(index, ast.Tuple) else [index]
    constants = [p.value if isinstance(p, ast.Constant) else 0 for p in parts]
    taken = sum(v is not None and v is not ... for v in constants)
    if taken > len(inner.shape):
        raise NotDeclared(ast.unparse(index))
    left, shape = list(inner.shape), list[int]()
    for part, value in zip(parts, constants, strict=True):
        if value is ...:
            rest = len(left) - sum(v is not None for v in constants[len(constants) - constants[::-1].index(...) :])
            shape, left = shape + left[:rest], left[rest:]
        elif value is None:
            shape.append(1)
        elif isinstance(part, ast.Slice):
            ends = [None if e is None else evaluate(e, names) for e in (part.lower, part.upper, part.step)]
            size = left.pop(0)
            shape.append(size if ends == [None] * 3 else len(range(size)[slice(*ends)]) if size != -1 else -1)
        elif isinstance(evaluate(part, names), int):
            left.pop(0)
        else:
            raise NotDeclared(ast.unparse(index))
    return Declared((*shape, *left), inner.dtype)


def _returned_by(function: ast.FunctionDef, call: ast.Call, names: dict[str, Any]) -> Declared:
    """Returns the tensor that a function of the module returns for these arguments; its body must be assignments."""
    a = function.args
    parameters = [p.arg for p in a.args]
    given = dict(zip(parameters[::-1], a.defaults[::-1], strict=False))
    given |= {p.arg: d for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True) if d is not None}
    given |= dict(zip(parameters, call.args, strict=False)) | {k.arg: k.value for k in call.keywords if k.arg}
    own = {*parameters, *(p.arg for p in a.kwonlyargs)}
    inside = {k: v for k, v in names.items() if k not in own and not k.startswith("self.")}
    arguments = {name: or_none(node, names) for name, node in given.items()}
    inside |= {name: value for name, value in arguments.items() if value is not None}
    for statement in function.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            assign(statement, inside)
        elif isinstance(statement, ast.Return) and statement.value is not None:
            return declared(statement.value, inside)
        elif not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
            break
    raise NotDeclared(function.name)


def _made(node: ast.Call, names: dict[str, Any]) -> Declared:
    called = dotted(node.func)
    keywords = {k.arg: k.value for k in node.keywords if k.arg}
    name = called.split(".")[-1] if called else getattr(node.func, "attr", "")
    if called.startswith("torch.") and called.count(".") == 1 or name == "Parameter":
        if name == "Parameter" or name in ("tensor", "as_tensor") and node.args and _is_tensor(node.args[0], names):
            return declared(node.args[0], names)
        made = _by_function(name, node.args, keywords, names)
    elif called.startswith(("F.", "torch.nn.functional.", "nn.functional.")) and node.args:
        made = declared(node.args[0], names)
    elif isinstance(node.func, ast.Attribute):
        made = _by_method(node.func.attr, declared(node.func.value, names), node.args, names)
    elif isinstance(function := names.get(f"def {called}"), ast.FunctionDef) and names.get("def", 0) < _DEPTH:
        return _returned_by(function, node, {**names, "def": names.get("def", 0) + 1})
    else:
        raise NotDeclared(ast.unparse(node)[:60])
    return Declared(made.shape, dtype(keywords["dtype"], names)) if "dtype" in keywords else made


def _is_tensor(node: ast.expr, names: dict[str, Any]) -> bool:
    try:
        declared(node, names)
    except NotDeclared:
        return False
    return True


def dtype(node: ast.expr, names: dict[str, Any]) -> str:
    """Returns a dtype in the spelling of `Declared`. Raises `NotDeclared`."""
    value = evaluate(node, names)
    found = DTYPES.get(str(value).removeprefix("torch."))
    if found is None:
        raise NotDeclared(f"dtype {value}")
    return found


def _shape(args: list[ast.expr], keywords: dict[str, ast.expr], names: dict[str, Any]) -> Shape:
    given = keywords.get("size") or keywords.get("shape")
    values = evaluate(given, names) if given is not None else evaluate(ast.List(args, ast.Load()), names)
    if isinstance(values, (list, tuple)) and len(values) == 1 and isinstance(values[0], (list, tuple)):
        values = values[0]
    sizes = values if isinstance(values, (list, tuple)) else [values]
    if not all(isinstance(v, int) for v in sizes):
        raise NotDeclared(f"sizes {sizes}")
    return tuple(sizes)


def _by_function(name: str, args: list[ast.expr], keywords: dict[str, ast.expr], names: dict[str, Any]) -> Declared:
    if name == "Tensor" and all(isinstance(value_or(a, names, None), int) for a in args):
        return Declared(_shape(args, keywords, names))
    if name in ("full", "normal"):
        return Declared(_shape(args[:1] if name == "full" else args[2:], keywords, names))
    if name in _MAKERS:
        return Declared(_shape(args, keywords, names))
    if name == "randint":
        size = args[-1:] if "size" not in keywords else []
        return Declared(_shape(size, keywords, names), "long")
    if name in ("arange", "linspace", "randperm"):
        values = [evaluate(a, names) for a in args]
        values += [evaluate(keywords[k], names) for k in ("steps", "end", "step") if k in keywords]
        kind = "float" if name == "linspace" or any(isinstance(v, float) for v in values) else "long"
        if name == "linspace":
            return Declared((values[2],), kind)
        start, end, step = (0, values[0], 1) if len(values) == 1 else (*values, 1)[:3]
        return Declared((max(0, math.ceil((end - start) / step)),), kind)
    if name in ("tensor", "as_tensor"):
        value, shape = evaluate(args[0], names), []
        while isinstance(value, (list, tuple)):
            shape.append(len(value))
            value = value[0] if value else 0.0
        kind = "bool" if isinstance(value, bool) else "long" if isinstance(value, int) else "float"
        return Declared(tuple(shape), kind)
    if name == "where":
        return _joined(args[1:], names)
    if name == "eye":
        side = evaluate(args[0], names)
        return Declared((side, evaluate(args[1], names) if len(args) > 1 else side))
    if name in ("stack", "cat"):
        parts = _several(args[0], names)
        dim = evaluate(args[1] if len(args) > 1 else keywords.get("dim", ast.Constant(0)), names)
        shape = list(parts[0].shape)
        if name == "stack":
            shape.insert(dim % (len(shape) + 1), len(parts))
        else:
            shape[dim] = sum(p.shape[dim] for p in parts)
        return Declared(tuple(shape), parts[0].dtype)
    inner = declared(args[0], names)
    return _by_method(name, inner, args[1:], names)


def _by_method(name: str, inner: Declared, args: list[ast.expr], names: dict[str, Any]) -> Declared:
    if name in DTYPES:
        return Declared(inner.shape, DTYPES[name])
    if name in ("to", "type") and args:
        try:
            return Declared(inner.shape, dtype(args[0], names))
        except NotDeclared:
            return inner
    if name == "flatten":
        rank = len(inner.shape)
        low, high = ([evaluate(a, names) for a in args] + [0, -1][len(args) :])[:2]
        middle = inner.shape[low % rank : high % rank + 1]
        whole = -1 if -1 in middle else math.prod(middle)
        return Declared((*inner.shape[: low % rank], whole, *inner.shape[high % rank + 1 :]), inner.dtype)
    if name == "repeat":
        counts = _shape(args, {}, names)
        wide = (1,) * (len(counts) - len(inner.shape)) + tuple(inner.shape)
        return Declared(tuple(-1 if -1 in (c, w) else c * w for c, w in zip(counts, wide, strict=True)), inner.dtype)
    if name == "outer":
        other = declared(args[0], names)
        if len(inner.shape) == len(other.shape) == 1:
            return Declared((*inner.shape, *other.shape), inner.dtype)
    if name in ("sum", "mean", "amax", "amin") and not args:
        return Declared((), inner.dtype)
    if name in ("view", "reshape", "expand", "sum", "mean", "squeeze", "gather"):
        if name in ("view", "reshape", "expand"):
            shape = _shape(args, {}, names)
            if -1 not in shape:
                return Declared(shape, inner.dtype)
            if name != "expand" and shape.count(-1) == 1 and -1 not in inner.shape:
                rest = math.prod(v for v in shape if v != -1)
                whole = math.prod(inner.shape) // max(rest, 1)
                return Declared(tuple(whole if v == -1 else v for v in shape), inner.dtype)
        raise NotDeclared(name)
    if name in ("t", "transpose", "permute"):
        order = list(range(len(inner.shape)))
        if name == "permute":
            order = [i % len(order) for i in _shape(args, {}, names)]
        else:
            a, b = [evaluate(x, names) for x in args] or [0, 1]
            order[a], order[b] = order[b], order[a]
        return Declared(tuple(inner.shape[i] for i in order), inner.dtype)
    if name == "unsqueeze":
        at = evaluate(args[0], names) % (len(inner.shape) + 1)
        return Declared((*inner.shape[:at], 1, *inner.shape[at:]), inner.dtype)
    if name in ("argmax", "argmin", "argsort", "sort", "topk", "nonzero", "unique", "max", "min"):
        raise NotDeclared(name)
    if name in ("gt", "ge", "lt", "le", "eq", "ne"):
        return Declared(inner.shape, "bool")
    if name.rstrip("_") not in _KEEPING:
        raise NotDeclared(name)
    shape = inner.shape
    if name in _FLOATING and inner.dtype in _WHOLE:
        inner = Declared(shape, "float")
    for arg in args:
        shape = broadcast(shape, declared(arg, names).shape) if _is_tensor(arg, names) else shape
    return Declared(shape, inner.dtype)


def assign(statement: ast.stmt, names: dict[str, Any]) -> None:
    """Follows `a = value`, `a: T = value` and `a, b = values`; names with unknown values are forgotten."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
        return
    try:
        value = thing(statement.value, names)
    except NotDeclared:
        value = None
    for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
        if isinstance(target, ast.Tuple) and isinstance(value, (tuple, list)) and len(value) == len(target.elts):
            names.update({t.id: v for t, v in zip(target.elts, value, strict=True) if isinstance(t, ast.Name)})
        elif isinstance(target, ast.Name):
            names.pop(target.id, None)
            if value is not None:
                names[target.id] = value


def thing(node: ast.expr, names: dict[str, Any]) -> Any:
    """Returns a value or a declared tensor."""
    try:
        return evaluate(node, names)
    except NotDeclared:
        pass
    try:
        called = dotted(node.func) if isinstance(node, ast.Call) else ""
        return _several(node, names) if called == "torch.meshgrid" else declared(node, names)
    except (TypeError, ValueError, LookupError, ArithmeticError) as error:  # the text itself would fail
        raise NotDeclared(str(error)) from None


def or_none(node: ast.expr, names: dict[str, Any]) -> Any:
    try:
        return thing(node, names)
    except NotDeclared:
        return None
