"""Reads a reference by AST: its forward becomes an expression over inputs, weights and numbers, or a reason why not.

Nothing is executed. Values of attributes and constants stay Python text (`self.eps`, `0.5`), evaluated by the candidate
itself; only the structure is taken from the source.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from kernelwright.solutions import shaped_names


class Unreadable(Exception):
    """The reference does something that no template knows; the message says what."""


@dataclass(frozen=True)
class Node:
    """A value of forward: an operator with its operands, or a leaf.

    Leaves: `input` (`text` is its name), `tensor` (an attribute that is a weight), `number` (Python text).
    """

    op: str
    args: tuple[Node, ...] = ()
    text: str = ""
    options: tuple[tuple[str, str], ...] = ()
    """Python text of keyword arguments by canonical name, e.g. (("dim", "1"), ("keepdim", "True"))."""

    def __post_init__(self) -> None:
        # Once, from the operands' own: an expression whose parts are shared would else be walked once a path.
        object.__setattr__(self, "_hash", hash((self.op, self.args, self.text, self.options)))

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined, no-any-return]

    def option(self, name: str, default: str = "") -> str:
        return dict(self.options).get(name, default)


@dataclass
class Reference:
    """What the templates need to know of a reference."""

    source: str
    tree: ast.Module
    model: ast.ClassDef
    forward: ast.FunctionDef
    inputs: tuple[str, ...]
    modules: dict[str, tuple[str, ast.Call]] = field(default_factory=dict)
    """Attributes made as `self.NAME = nn.CLASS(...)`: class name and call."""
    tensors: set[str] = field(default_factory=set)
    """Attributes that are parameters or buffers."""


def read(source: str) -> Reference:
    """The reference's parts; raises `Unreadable`."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise Unreadable(f"the reference cannot be parsed: {error}") from error
    model = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Model"), None)
    if model is None:
        raise Unreadable("the reference defines no class Model")
    methods = {n.name: n for n in model.body if isinstance(n, ast.FunctionDef)}
    if "forward" not in methods:
        raise Unreadable("Model has no forward")
    forward = methods["forward"]
    if forward.args.vararg or forward.args.kwarg or forward.args.kwonlyargs:
        raise Unreadable("forward takes *args or keywords")
    names = tuple(a.arg for a in forward.args.args[1:])
    reference = Reference(source, tree, model, forward, names)
    if "__init__" in methods:
        _read_init(methods["__init__"], reference)
    return reference


def _read_init(init: ast.FunctionDef, reference: Reference) -> None:
    for node in ast.walk(init):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.value, ast.Call):
            target, called = node.targets[0], dotted(node.value.func)
            if isinstance(target, ast.Attribute) and dotted(target.value) == "self":
                if called in ("nn.Parameter", "torch.nn.Parameter", "Parameter"):
                    reference.tensors.add(target.attr)
                elif called.startswith(("nn.", "torch.nn.")):
                    reference.modules[target.attr] = (called.split(".")[-1], node.value)
        if isinstance(node, ast.Call) and dotted(node.func) == "self.register_buffer" and node.args:
            if isinstance(node.args[0], ast.Constant):
                reference.tensors.add(str(node.args[0].value))


_TAKEN = frozenset(
    "xs y n s d dtype shape dim dims low high outer inner middle a b w size extension torch nn F".split()
)


def safe_name(name: str) -> str:
    """An input's name, with an underscore where generated code uses that name itself."""
    return name + "_" if name in _TAKEN else name


def dotted(node: ast.AST) -> str:
    """`a.b.c` of an attribute chain, empty for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        return ".".join([node.id, *parts[::-1]])
    return ""


_FUNCTIONS = {
    **{name: name for name in ("relu", "sigmoid", "tanh", "exp", "log", "sqrt", "rsqrt", "abs", "erf", "sin", "cos")},
    **{name: name for name in ("square", "neg", "reciprocal", "floor", "ceil", "sign", "log1p", "expm1", "softplus")},
    **{name: name for name in ("gelu", "silu", "selu", "elu", "leaky_relu", "hardtanh", "hardsigmoid", "hardswish")},
    **{name: name for name in ("mish", "softsign", "relu6", "logsigmoid", "tanhshrink", "clamp", "where", "celu")},
    **{name: name for name in ("minimum", "maximum", "pow", "add", "sub", "mul", "div", "softmax", "log_softmax")},
    **{name: name for name in ("sum", "mean", "prod", "max", "min", "amax", "amin", "argmax", "argmin", "logsumexp")},
    **{name: name for name in ("norm", "cumsum", "cumprod", "matmul", "mm", "bmm", "flip", "mse_loss", "l1_loss")},
    **{
        name: name
        for name in ("smooth_l1_loss", "huber_loss", "linear", "softmin", "var", "std", "kl_div", "normalize")
    },
    "multiply": "mul",
    "subtract": "sub",
    "divide": "div",
    "true_divide": "div",
    "clip": "clamp",
    "absolute": "abs",
    "swish": "silu",
    "relu_": "relu",
    "logsigmoid": "logsigmoid",
    **shaped_names.FUNCTIONS,
}
_POSITIONAL = {
    **dict.fromkeys(("sum", "mean", "prod", "max", "min", "amax", "amin", "argmax", "argmin"), ("dim", "keepdim")),
    **dict.fromkeys(("softmax", "log_softmax", "softmin", "cumsum", "cumprod", "flip"), ("dim",)),
    **dict.fromkeys(("logsumexp", "var", "std"), ("dim", "keepdim")),
    "norm": ("p", "dim", "keepdim"),
    "normalize": ("p", "dim", "eps"),
    "leaky_relu": ("negative_slope",),
    "elu": ("alpha",),
    "celu": ("alpha",),
    "hardtanh": ("min_val", "max_val"),
    "clamp": ("min", "max"),
    "softplus": ("beta", "threshold"),
    "gelu": ("approximate",),
    "smooth_l1_loss": ("size_average", "reduce", "reduction", "beta"),
    **shaped_names.POSITIONAL,
}
_TENSOR_ARGUMENTS = dict.fromkeys(
    ("minimum", "maximum", "pow", "add", "sub", "mul", "div", "matmul", "mm", "bmm", "mse_loss", "l1_loss", "kl_div"), 2
) | {"where": 3, "smooth_l1_loss": 2, "huber_loss": 2, "linear": 3, **shaped_names.TENSOR_ARGUMENTS}
_MODULES = {
    "ReLU": ("relu", ()),
    "ReLU6": ("relu6", ()),
    "Sigmoid": ("sigmoid", ()),
    "Tanh": ("tanh", ()),
    "GELU": ("gelu", ("approximate",)),
    "SiLU": ("silu", ()),
    "SELU": ("selu", ()),
    "ELU": ("elu", ("alpha",)),
    "CELU": ("celu", ("alpha",)),
    "Mish": ("mish", ()),
    "LeakyReLU": ("leaky_relu", ("negative_slope",)),
    "Hardtanh": ("hardtanh", ("min_val", "max_val")),
    "Hardsigmoid": ("hardsigmoid", ()),
    "Hardswish": ("hardswish", ()),
    "Softplus": ("softplus", ("beta", "threshold")),
    "Softsign": ("softsign", ()),
    "LogSigmoid": ("logsigmoid", ()),
    "Tanhshrink": ("tanhshrink", ()),
    "Softmax": ("softmax", ("dim",)),
    "LogSoftmax": ("log_softmax", ("dim",)),
    "Softmin": ("softmin", ("dim",)),
    "MSELoss": ("mse_loss", ("reduction",)),
    "L1Loss": ("l1_loss", ("reduction",)),
    "SmoothL1Loss": ("smooth_l1_loss", ("reduction", "beta")),
    "HuberLoss": ("huber_loss", ("reduction", "delta")),
    "Identity": ("identity", ()),
    **{f"{kind}{d}d": (kind.lower(), ()) for kind in ("Conv", "ConvTranspose") for d in (1, 2, 3)},
    **{f"{kind}{d}d": (kind.lower(), ()) for kind in ("BatchNorm", "InstanceNorm") for d in (1, 2, 3)},
    "LayerNorm": ("layernorm", ()),
    "GroupNorm": ("groupnorm", ()),
    "RMSNorm": ("rmsnorm", ()),
    "Linear": ("linear_module", ()),
    **shaped_names.MODULES,
}
_BINARY = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow", ast.MatMult: "matmul"}
_COMPARE = {ast.Gt: "gt", ast.GtE: "ge", ast.Lt: "lt", ast.LtE: "le"}


def expression(reference: Reference) -> Node:
    """The value that forward returns; raises `Unreadable`. Assignments to plain names are followed."""
    values: dict[str, Node] = {name: Node("input", text=name) for name in reference.inputs}
    for statement in reference.forward.body:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
            if not isinstance(target, ast.Name):
                raise Unreadable(f"forward assigns to {ast.unparse(target)}")
            values[target.id] = _value(statement.value, values, reference)
        elif isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            op = _BINARY.get(type(statement.op))
            if op is None:
                raise Unreadable(f"forward has {ast.unparse(statement)}")
            right = _value(statement.value, values, reference)
            values[statement.target.id] = Node(op, (values[statement.target.id], right))
        elif isinstance(statement, ast.Return) and statement.value is not None:
            return _value(statement.value, values, reference)
        else:
            raise Unreadable(f"forward has a statement that no template reads: {ast.unparse(statement)[:60]}")
    raise Unreadable("forward returns nothing")


def _value(node: ast.expr, values: dict[str, Node], reference: Reference) -> Node:
    if isinstance(node, ast.Name):
        return values.get(node.id) or Node("number", text=node.id)
    if isinstance(node, ast.Constant):
        return Node("number", text=repr(node.value))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _value(node.operand, values, reference)
        return Node("number", text=f"-({inner.text})") if inner.op == "number" else Node("neg", (inner,))
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = _value(node.left, values, reference), _value(node.right, values, reference)
        if left.op == right.op == "number":
            return Node("number", text=f"({ast.unparse(node)})")
        return Node(_BINARY[type(node.op)], (left, right))
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARE:
        pair = (_value(node.left, values, reference), _value(node.comparators[0], values, reference))
        return Node(_COMPARE[type(node.ops[0])], pair)
    if isinstance(node, ast.Call):
        return _call(node, values, reference)
    if isinstance(node, ast.Subscript):
        inner = _value(node.value, values, reference)
        if inner.op in ("max", "min") and isinstance(node.slice, ast.Constant) and node.slice.value in (0, 1):
            return inner if node.slice.value == 0 else Node("arg" + inner.op, inner.args, options=inner.options)
    if isinstance(node, ast.Attribute):
        return _attribute(node, values, reference)
    raise Unreadable(f"forward has {ast.unparse(node)[:60]}")


def _attribute(node: ast.Attribute, values: dict[str, Node], reference: Reference) -> Node:
    name = dotted(node)
    if name.startswith("self."):
        if node.attr in reference.tensors and name.count(".") == 1:
            return Node("tensor", text=name)
        if name.count(".") == 2 and node.attr in ("weight", "bias") and name.split(".")[1] in reference.modules:
            return Node("tensor", text=name)
        return Node("number", text=name)
    if node.attr in ("T", "mT"):
        return Node("transpose", (_value(node.value, values, reference),))
    if name in ("math.pi", "math.e", "torch.pi"):
        return Node("number", text=name.replace("torch.", "math."))
    inner = _value(node.value, values, reference) if not name else None
    if inner is not None and inner.op in ("max", "min") and node.attr in ("values", "indices"):
        return inner if node.attr == "values" else Node("arg" + inner.op, inner.args, options=inner.options)
    raise Unreadable(f"forward has {ast.unparse(node)[:60]}")


def _call(node: ast.Call, values: dict[str, Node], reference: Reference) -> Node:
    name = dotted(node.func)
    parts = name.split(".")
    if len(parts) == 2 and parts[0] == "self" and parts[1] in reference.modules:
        return _module_call(parts[1], node, values, reference)
    if name in ("math.sqrt", "math.log", "math.exp", "float", "int"):
        return Node("number", text=ast.unparse(node))
    function = node.func.attr if isinstance(node.func, ast.Attribute) else parts[-1]
    is_library = parts[0] in ("torch", "F", "nn") and len(parts) > 1
    if is_library and function in _FUNCTIONS:
        return _function(_FUNCTIONS[function], list(node.args), node, values, reference)
    if isinstance(node.func, ast.Attribute) and not is_library:
        owner = node.func.value
        if function in ("t", "transpose", "contiguous", "float", "clone"):
            return _method(function, owner, node, values, reference)
        if function in _FUNCTIONS:
            return _function(_FUNCTIONS[function], [owner, *node.args], node, values, reference)
    raise Unreadable(f"no template for {ast.unparse(node.func)[:50]}")


def _method(function: str, owner: ast.expr, node: ast.Call, values: dict[str, Node], reference: Reference) -> Node:
    inner = _value(owner, values, reference)
    if function in ("contiguous", "clone", "float"):
        return inner
    if function == "transpose":
        dims = tuple(ast.unparse(a) for a in node.args)
        return Node("transpose", (inner,), options=() if set(dims) == {"-1", "-2"} else (("dims", ",".join(dims)),))
    return Node("transpose", (inner,))


def _function(op: str, args: list[ast.expr], node: ast.Call, values: dict[str, Node], reference: Reference) -> Node:
    count = _TENSOR_ARGUMENTS.get(op, 1)
    if op in ("max", "min") and len(args) == 2 and not isinstance(args[1], (ast.Constant, ast.UnaryOp)):
        second = _value(args[1], values, reference)
        if second.op not in ("number",):
            return Node("maximum" if op == "max" else "minimum", (_value(args[0], values, reference), second))
    operands = tuple(_value(a, values, reference) for a in args[:count])
    names = _POSITIONAL.get(op, ())
    options: dict[str, str] = {}
    for name, value in zip(names, args[count:], strict=False):
        options[name] = _text(value, values, reference)
    if len(args) - count > len(names):
        raise Unreadable(f"no template for the arguments of {op}")
    for keyword in node.keywords:
        if keyword.arg is None:
            raise Unreadable("forward passes **keywords")
        name = {"axis": "dim", "dims": "dim", "min": "min", "max": "max"}.get(keyword.arg, keyword.arg)
        if name in ("input", "other", "target", "exponent"):
            operands = (*operands, _value(keyword.value, values, reference))
        else:
            options[name] = _text(keyword.value, values, reference)
    return _settled(Node(op, operands, options=tuple(sorted(options.items()))))


def _settled(node: Node) -> Node:
    """Operators whose option names another one."""
    if node.op == "gelu":
        return Node("gelu_tanh" if "tanh" in node.option("approximate") else "gelu", node.args)
    return node


def _text(node: ast.expr, values: dict[str, Node], reference: Reference) -> str:
    """A keyword's value as Python text that the candidate can evaluate."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and inner.id in values and values[inner.id].op != "number":
            raise Unreadable(f"{ast.unparse(node)[:40]} depends on a tensor")
    return ast.unparse(node)


def _module_call(name: str, node: ast.Call, values: dict[str, Node], reference: Reference) -> Node:
    kind = reference.modules[name][0]
    if kind not in _MODULES:
        raise Unreadable(f"no template for nn.{kind}")
    op, attributes = _MODULES[kind]
    operands = tuple(_value(a, values, reference) for a in node.args)
    options = tuple((a, f"self.{name}.{a}") for a in attributes)
    if op == "identity":
        return operands[0]
    return Node(op, operands, text=f"self.{name}", options=options)
