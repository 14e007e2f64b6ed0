"""What a task's text declares without being run: sizes and dtypes of inputs and weights, values of attributes.

A small evaluator reads module constants, `get_init_inputs`, the constructor and `get_inputs`. What it cannot know is
absent, never guessed: asking for it raises `Unreadable`. Sizes are those that the text declares; only the number of
dimensions, and which of them are one, may be built into a kernel, for a task is also judged at other sizes.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kernelwright import syntax
from kernelwright.solutions.names import MODULE_ARGUMENTS
from kernelwright.solutions.reading import Reference, Unreadable, assigned, dotted

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Declared:
    """A tensor as the text declares it. Sizes in elements; dtype is one of float, half, bfloat16, double, long, int,
    bool."""

    shape: Shape
    dtype: str = "float"


@dataclass
class Facts:
    """Values that the text fixes; tensors by input name and by attribute (`self.NAME` without `self.`)."""

    constants: dict[str, Any] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)
    constructor: dict[str, Any] = field(default_factory=dict)
    """What names and `self.NAME` stand for within the constructor."""
    inputs: dict[str, Any] = field(default_factory=dict)
    """By input's name: `Declared`, or a Python number."""
    tensors: dict[str, Declared] = field(default_factory=dict)

    def value(self, text: str) -> Any:
        """The value of a Python expression over constants and `self`; raises `Unreadable` where it is not known."""
        names = self.names()
        if text in names:  # of layers in a list, too: `self.layers[0].eps`
            return names[text]
        try:
            return evaluate(syntax.expression(text), names)
        except (_Unknown, SyntaxError) as error:
            raise Unreadable(f"the text does not fix the value of {text}") from error

    shapes: dict[str, Shape] = field(default_factory=dict)
    """Sizes of tensors by the name that stands for them in text: inputs, and what the writer adds."""

    def names(self) -> dict[str, Any]:
        attributes = {f"self.{k}": v for k, v in self.attributes.items()}
        numbers = {k: v for k, v in self.inputs.items() if isinstance(v, (int, float, bool))}
        shapes = {f"{k}.shape": _Sizes(v) for k, v in self.shapes.items()}
        return {**self.constants, **attributes, **numbers, **shapes}


class _Sizes(tuple):  # type: ignore[type-arg]
    """A shape some of whose sizes may not be known."""

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        if found == -1:
            raise LookupError("a size that the text does not fix")
        return found


class _Unknown(Exception):
    """The text does not say."""


_MATH = {
    **{name: getattr(math, name) for name in ("sqrt", "log", "exp", "floor", "ceil", "prod", "log2")},
    **{"int": int, "float": float, "len": len, "tuple": tuple, "list": list, "max": max, "min": min, "abs": abs},
    **{"sum": sum, "bool": bool, "str": str, "torch.Size": tuple, "range": lambda *a: list(range(*a)), "round": round},
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
    """The value of an expression of numbers, strings, tuples and lists. Raises `_Unknown`."""
    try:
        return _evaluate(node, names)
    except (ArithmeticError, TypeError, ValueError, LookupError, RecursionError) as error:
        raise _Unknown(ast.unparse(node)) from error


def value_or(node: ast.expr, names: dict[str, Any], default: Any) -> Any:
    """The value of an expression, or `default` where it is not known."""
    try:
        return evaluate(node, names)
    except _Unknown:
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
    if isinstance(node, ast.UnaryOp):
        value = _evaluate(node.operand, names)
        return (not value) if isinstance(node.op, ast.Not) else -value if isinstance(node.op, ast.USub) else +value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        left, right = _evaluate(node.left, names), _evaluate(node.right, names)
        if isinstance(node.op, (ast.Pow, ast.Mult)) and max(_size(left), _size(right)) > 1e9:
            raise _Unknown("too large")
        return _OPERATIONS[type(node.op)](left, right)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARISONS:
        return _COMPARISONS[type(node.ops[0])](_evaluate(node.left, names), _evaluate(node.comparators[0], names))
    if isinstance(node, ast.IfExp):
        return _evaluate(node.body if _evaluate(node.test, names) else node.orelse, names)
    if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice):
        return _evaluate(node.value, names)[_evaluate(node.slice, names)]
    if isinstance(node, ast.Call) and dotted(node.func).endswith(".size"):
        shape = _evaluate(ast.Attribute(node.func.value, "shape", ast.Load()), names)  # type: ignore[attr-defined]
        return shape[_evaluate(node.args[0], names)] if node.args else shape
    if isinstance(node, ast.Call) and not node.keywords:
        called = dotted(node.func).removeprefix("math.")
        if called in _MATH:
            return _MATH[called](*(_evaluate(a, names) for a in node.args))
    raise _Unknown(ast.unparse(node)[:60])


def _size(value: Any) -> float:
    return abs(value) if isinstance(value, (int, float)) else len(value)


def _named(node: ast.expr, names: dict[str, Any]) -> Any:
    name = dotted(node)
    if name in names:
        return names[name]
    if name in ("math.pi", "torch.pi", "math.e", "math.inf", "torch.inf"):
        return getattr(math, name.split(".")[1])
    owner, _, last = name.rpartition(".")
    if last == "shape" and isinstance(names.get(owner), Declared):
        return _Sizes(names[owner].shape)
    if last == "dtype" and isinstance(names.get(owner), Declared):
        return names[owner].dtype
    if name.startswith("torch.") and name.count(".") == 1:
        return name  # a dtype, as text
    raise _Unknown(name)


# Tensors -------------------------------------------------------------------------------------------------------------

_DTYPES = {
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
_MAKERS = frozenset("randn rand zeros ones empty full normal".split())


def declared(node: ast.expr, names: dict[str, Any]) -> Declared:
    """A tensor's shape and dtype from the expression that makes it. Raises `_Unknown`."""
    if isinstance(node, ast.Name) and isinstance(names.get(node.id), Declared):
        return names[node.id]  # type: ignore[no-any-return]
    if isinstance(node, ast.BinOp):
        return _joined([node.left, node.right], names)
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
    raise _Unknown(ast.unparse(node)[:60])


def _joined(nodes: list[ast.expr], names: dict[str, Any]) -> Declared:
    found = []
    for node in nodes:
        try:
            found.append(declared(node, names))
        except _Unknown:
            evaluate(node, names)  # a number, or unknown
    if not found:
        raise _Unknown("no tensor")
    shape = found[0].shape
    for other in found[1:]:
        shape = broadcast(shape, other.shape)
    floating = [d.dtype for d in found if d.dtype not in ("long", "int", "bool")]
    return Declared(shape, floating[0] if floating else found[0].dtype)


def broadcast(a: Shape, b: Shape) -> Shape:
    """The shape of an elementwise operator's result. A size of -1 is not known, but taken not to be one."""
    rank = max(len(a), len(b))
    wide = [(1,) * (rank - len(s)) + tuple(s) for s in (a, b)]
    return tuple(q if p == 1 else (p if p != -1 or q == 1 else q) for p, q in zip(*wide, strict=True))


def _picked(inner: Declared, index: ast.expr, names: dict[str, Any]) -> Declared:
    if isinstance(index, ast.Constant) and isinstance(index.value, int):
        return Declared(inner.shape[1:], inner.dtype)
    raise _Unknown(ast.unparse(index))


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
    else:
        raise _Unknown(ast.unparse(node)[:60])
    return Declared(made.shape, _dtype(keywords["dtype"], names)) if "dtype" in keywords else made


def _is_tensor(node: ast.expr, names: dict[str, Any]) -> bool:
    try:
        declared(node, names)
    except _Unknown:
        return False
    return True


def _dtype(node: ast.expr, names: dict[str, Any]) -> str:
    value = evaluate(node, names)
    found = _DTYPES.get(str(value).removeprefix("torch."))
    if found is None:
        raise _Unknown(f"dtype {value}")
    return found


def _shape(args: list[ast.expr], keywords: dict[str, ast.expr], names: dict[str, Any]) -> Shape:
    given = keywords.get("size") or keywords.get("shape")
    values = evaluate(given, names) if given is not None else evaluate(ast.List(args, ast.Load()), names)
    if isinstance(values, (list, tuple)) and len(values) == 1 and isinstance(values[0], (list, tuple)):
        values = values[0]
    sizes = values if isinstance(values, (list, tuple)) else [values]
    if not all(isinstance(v, int) for v in sizes):
        raise _Unknown(f"sizes {sizes}")
    return tuple(sizes)


def _by_function(name: str, args: list[ast.expr], keywords: dict[str, ast.expr], names: dict[str, Any]) -> Declared:
    if name in ("full", "normal"):
        return Declared(_shape(args[:1] if name == "full" else args[2:], keywords, names))
    if name in _MAKERS:
        return Declared(_shape(args, keywords, names))
    if name == "randint":
        size = args[-1:] if "size" not in keywords else []
        return Declared(_shape(size, keywords, names), "long")
    if name in ("arange", "linspace", "randperm"):
        values = [evaluate(a, names) for a in args]
        count = values[0] if len(values) == 1 else values[2] if name == "linspace" else values[1] - values[0]
        return Declared((int(count),), "float" if name == "linspace" else "long")
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
        raise _Unknown(name)
    inner = declared(args[0], names)
    return _by_method(name, inner, args[1:], names)


def _by_method(name: str, inner: Declared, args: list[ast.expr], names: dict[str, Any]) -> Declared:
    if name in _DTYPES:
        return Declared(inner.shape, _DTYPES[name])
    if name in ("to", "type") and args:
        try:
            return Declared(inner.shape, _dtype(args[0], names))
        except _Unknown:
            return inner
    if name in ("view", "reshape", "expand", "repeat", "flatten", "sum", "mean", "squeeze", "gather"):
        if name in ("view", "reshape", "expand"):
            shape = _shape(args, {}, names)
            if -1 not in shape:
                return Declared(shape, inner.dtype)
        raise _Unknown(name)
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
        raise _Unknown(name)
    if name in ("gt", "ge", "lt", "le", "eq", "ne"):
        return Declared(inner.shape, "bool")
    return inner  # what is left works on each element: abs, softmax, clamp, contiguous, requires_grad_, ...


# The parts of a task -------------------------------------------------------------------------------------------------


def read_facts(reference: Reference) -> Facts:
    """What the text of a task declares."""
    facts = Facts()
    functions = {n.name: n for n in reference.tree.body if isinstance(n, ast.FunctionDef)}
    for node in reference.tree.body:
        if isinstance(node, ast.Assign):
            _assign(node, facts.constants)
    methods = {n.name: n for n in reference.model.body if isinstance(n, ast.FunctionDef)}
    if "__init__" in methods:
        given = _returned(functions["get_init_inputs"], facts.constants) if "get_init_inputs" in functions else []
        _read_constructor(methods["__init__"], given, facts, reference)
    if "get_inputs" in functions:
        values = _returned(functions["get_inputs"], facts.constants)
        facts.inputs = {n: v for n, v in zip(reference.inputs, values, strict=False) if v is not None}
        facts.shapes = {n: v.shape for n, v in facts.inputs.items() if isinstance(v, Declared)}
    return facts


def _assign(node: ast.Assign, names: dict[str, Any]) -> None:
    """Follows `a = value` and `a, b = values`; what is not known is forgotten."""
    try:
        value = _thing(node.value, names)
    except _Unknown:
        value = None
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(value, (tuple, list)) and len(value) == len(target.elts):
            names.update({t.id: v for t, v in zip(target.elts, value, strict=True) if isinstance(t, ast.Name)})
        elif isinstance(target, ast.Name):
            names.pop(target.id, None)
            if value is not None:
                names[target.id] = value


def _thing(node: ast.expr, names: dict[str, Any]) -> Any:
    """A value, or a declared tensor."""
    try:
        return evaluate(node, names)
    except _Unknown:
        return declared(node, names)


def _returned(function: ast.FunctionDef, constants: dict[str, Any]) -> list[Any]:
    """The items that a function without parameters returns in a list; None for what is not known."""
    names = dict(constants)
    for statement in function.body:
        if isinstance(statement, ast.Assign):
            _assign(statement, names)
        elif isinstance(statement, ast.Return) and statement.value is not None:
            items = statement.value.elts if isinstance(statement.value, (ast.List, ast.Tuple)) else []
            if isinstance(statement.value, ast.Name) and isinstance(names.get(statement.value.id), (list, tuple)):
                return list(names[statement.value.id])
            return [_or_none(item, names) for item in items]
    return []


def _or_none(node: ast.expr, names: dict[str, Any]) -> Any:
    try:
        return _thing(node, names)
    except _Unknown:
        return None


def _read_constructor(init: ast.FunctionDef, given: list[Any], facts: Facts, reference: Reference) -> None:
    """Attributes with known values, and parameters and buffers with known shapes."""
    names = {**facts.constants, **_bound(init, [], [], {})}
    for argument, value in zip(init.args.args[1:], given, strict=False):
        names[argument.arg] = value
    _read_body(init, names, facts, reference, "")
    facts.constructor = names


def _read_body(init: ast.FunctionDef, names: dict[str, Any], facts: Facts, reference: Reference, prefix: str) -> None:
    for statement in init.body:
        for target, value in assigned(statement):
            if isinstance(target, ast.Attribute) and dotted(target.value) == "self":
                _set_attribute(prefix + target.attr, value, names, facts, reference)
        if isinstance(statement, ast.Assign):
            _assign(statement, names)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            call = statement.value
            if dotted(call.func) == "self.register_buffer" and len(call.args) > 1:
                name = _or_none(call.args[0], names)
                _set_attribute(f"{prefix}{name}", call.args[1], names, facts, reference)


def _set_attribute(name: str, node: ast.expr, names: dict[str, Any], facts: Facts, reference: Reference) -> None:
    if isinstance(node, ast.Call) and _layer(name, node, names, facts, reference):
        return
    try:
        value = _thing(node, names)
    except _Unknown:
        return
    if isinstance(value, Declared):
        facts.tensors[name] = value
    else:
        facts.attributes[name] = value
    names[f"self.{name.rpartition('.')[2]}"] = value


def _layer(name: str, call: ast.Call, names: dict[str, Any], facts: Facts, reference: Reference) -> bool:
    """Notes what a layer was made with, as `NAME.PARAMETER`, and the shapes of its weights."""
    if name in reference.lists:
        items = call.args[0].elts if call.args and isinstance(call.args[0], (ast.List, ast.Tuple)) else call.args
        for path, item in zip(reference.lists[name], items, strict=False):
            if isinstance(item, ast.Call):
                _layer(path, item, names, facts, reference)
        return True
    if name in reference.blocks:
        init = next((n for n in reference.blocks[name].body if getattr(n, "name", "") == "__init__"), None)
        if isinstance(init, ast.FunctionDef):
            inner = {**facts.constants, **_bound(init, call.args, call.keywords, names)}
            _read_body(init, inner, facts, reference, f"{name}.")
        return True
    if name not in reference.modules:
        return False
    kind = reference.modules[name][0]
    parameters = [p.partition("=") for p in MODULE_ARGUMENTS.get(kind, "").split()]
    given: dict[str, Any] = {n: evaluate(syntax.expression(d), {}) for n, _, d in parameters if d}
    for (parameter, _, _), value in zip(parameters, call.args, strict=False):
        given[parameter] = _or_none(value, names)
    for keyword in call.keywords:
        given[str(keyword.arg)] = _or_none(keyword.value, names)
    facts.attributes.update({f"{name}.{k}": v for k, v in given.items()})
    _weights(name, kind, given, facts)
    return True


def _weights(name: str, kind: str, given: dict[str, Any], facts: Facts) -> None:
    """Shapes of a layer's weights, where they are known."""
    shape: tuple[Any, ...] | None = None
    if kind == "Linear":
        shape = (given.get("out_features"), given.get("in_features"))
    elif kind in ("LayerNorm", "RMSNorm"):
        sizes = given.get("normalized_shape")
        shape = tuple(sizes) if isinstance(sizes, (tuple, list)) else (sizes,)
    elif kind.startswith(("BatchNorm", "InstanceNorm", "GroupNorm")):
        shape = (given.get("num_features", given.get("num_channels")),)
    elif kind == "PReLU":
        shape = (given.get("num_parameters"),)
    elif kind == "Embedding":
        shape = (given.get("num_embeddings", -1), given.get("embedding_dim", -1))
    if shape is None or not all(isinstance(s, int) for s in shape):
        return
    facts.tensors[f"{name}.weight"] = Declared(shape)
    facts.tensors[f"{name}.bias"] = Declared(shape[:1] if kind == "Linear" else shape)
    if kind.startswith("BatchNorm"):
        facts.tensors[f"{name}.running_mean"] = facts.tensors[f"{name}.running_var"] = Declared(shape)


def _bound(
    init: ast.FunctionDef, args: list[ast.expr], keywords: list[ast.keyword], names: dict[str, Any]
) -> dict[str, Any]:
    """The constructor's parameters by name, from the expressions that it is called with."""
    parameters = init.args.args[1:]
    found: dict[str, Any] = {}
    for argument, default in zip(parameters[::-1], init.args.defaults[::-1], strict=False):
        found[argument.arg] = _or_none(default, {})
    for argument, value in zip(parameters, args, strict=False):
        found[argument.arg] = _or_none(value, names)
    found.update({str(k.arg): _or_none(k.value, names) for k in keywords})
    return found
