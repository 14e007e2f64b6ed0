"""Respells a generated task: other spellings of calls, layers as functions of weights.

Works on the finished text, so that every family has all spellings. The computation stays the same, except that a
layer's weights become the model's own.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable
from random import Random

from kernelwright import syntax
from kernelwright.generate import words

_DIMS = "sum mean amax amin logsumexp"
_ORDER: dict[str, tuple[str, ...]] = {
    **dict.fromkeys("sum mean prod amax amin argmax argmin max min logsumexp".split(), ("dim", "keepdim")),
    **dict.fromkeys("softmax log_softmax cumsum cumprod unsqueeze squeeze glu".split(), ("dim",)),
    "clamp": ("min", "max"),
    "leaky_relu": ("negative_slope",),
    "elu": ("alpha",),
    "celu": ("alpha",),
    "hardtanh": ("min_val", "max_val"),
    "softshrink": ("lambd",),
    "hardshrink": ("lambd",),
    "softplus": ("beta", "threshold"),
    "max_pool1d": ("kernel_size", "stride", "padding"),
    "max_pool2d": ("kernel_size", "stride", "padding"),
    "max_pool3d": ("kernel_size", "stride", "padding"),
    "avg_pool1d": ("kernel_size", "stride", "padding"),
    "avg_pool2d": ("kernel_size", "stride", "padding"),
    "avg_pool3d": ("kernel_size", "stride", "padding"),
    "normalize": ("p", "dim"),
    "norm": ("p", "dim", "keepdim"),
    "transpose": ("dim0", "dim1"),
    "flatten": ("start_dim", "end_dim"),
    "threshold": ("threshold", "value"),
}
"""Arguments after the tensor, in order."""
_BOTH = frozenset(
    "sum mean prod amax amin argmax argmin max min logsumexp softmax log_softmax cumsum cumprod unsqueeze squeeze "
    "clamp norm transpose flatten var std abs exp log sqrt rsqrt sigmoid tanh relu sin cos erf floor ceil square neg "
    "log1p reciprocal "
    "expm1 sign pow matmul mm bmm maximum minimum add sub mul div flip cummax cummin tril triu".split()
)
"""Functions of torch that are also methods of tensors."""
_SHARE = 0.3
"""Share of tasks with respelt calls."""


def respelt(source: str, random: Random) -> str:
    """Returns a task's text, sometimes with layers as functions and calls in another form."""
    if random.random() < 0.2:
        source = functional(source, random)
    if random.random() >= _SHARE:
        return source
    try:
        tree = syntax.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return source
    forward = next((n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "forward"), None)
    calls = [n for n in ast.walk(forward) if isinstance(n, ast.Call)] if forward is not None else []
    lines = source.split("\n")
    done: list[tuple[int, int, int]] = []
    for call in calls:
        row, begin, end = call.lineno - 1, call.col_offset, call.end_col_offset or 0
        if call.end_lineno != call.lineno or random.random() < 0.3 or not lines[row].isascii():
            continue
        if any(r == row and begin < e and b < end for r, b, e in done):
            continue  # positions within a changed call are stale
        new = _other(call, random)
        if new and not any(r == row for r, _, _ in done):
            lines[row] = lines[row][:begin] + new + lines[row][end:]
            done.append((row, begin, end))
    return "\n".join(lines)


def _other(call: ast.Call, random: Random) -> str:
    """Returns a call in another form; empty for an unknown call."""
    if not isinstance(call.func, ast.Attribute) or any(k.arg is None for k in call.keywords):
        return ""
    name, owner, arguments = call.func.attr, call.func.value, list(call.args)
    of_module = isinstance(owner, ast.Name) and owner.id in ("torch", "F")
    if _root(owner) == "self" or (not of_module and _root(owner) in ("torch", "nn", "F", "math")):
        return ""
    if of_module:
        if not arguments:
            return ""
        tensor, arguments = arguments[0], arguments[1:]
    else:
        tensor = owner
    if any(isinstance(a, ast.Starred) for a in arguments) or (name not in _ORDER and name not in _BOTH):
        return ""
    given = _given(name, arguments, call.keywords)
    if given is None:
        return ""
    shown = _shown(name, given, random)
    root = owner.id if of_module and isinstance(owner, ast.Name) else "torch"
    text = ast.unparse(tensor)
    if name in _BOTH and random.random() < 0.5 and not (of_module and root == "F"):
        if of_module:
            return f"{_before_dot(tensor)}.{name}({shown})"
        if name == "flip" and shown.lstrip("-").isdigit():
            shown = f"[{shown}]"  # the method accepts a number, too
        return f"torch.{name}({', '.join(filter(None, (text, shown)))})"
    if of_module:
        return f"{root}.{name}({', '.join(filter(None, (text, shown)))})"
    return f"{_before_dot(owner)}.{name}({shown})"


def _before_dot(node: ast.expr) -> str:
    simple = isinstance(node, ast.Name | ast.Call | ast.Attribute | ast.Subscript)
    return ast.unparse(node) if simple else f"({ast.unparse(node)})"


Given = list[tuple[str, ast.expr]]


def _given(name: str, arguments: list[ast.expr], keywords: list[ast.keyword]) -> Given | None:
    """Returns arguments by keyword; unchanged for functions without keywords."""
    order = _ORDER.get(name)
    if order is None:
        return [("", a) for a in arguments] + [(k.arg or "", k.value) for k in keywords]
    if len(arguments) > len(order) or (
        name in ("max", "min") and arguments and not isinstance(arguments[0], ast.Constant)
    ):
        return None
    found = list(zip(order, arguments, strict=False))
    return found + [({"axis": "dim"}.get(k.arg or "", k.arg or ""), k.value) for k in keywords]


def _shown(name: str, given: Given, random: Random) -> str:
    order = _ORDER.get(name, ())
    by_position = random.choice((0, 1, len(order)))
    parts: list[str] = []
    for number, (key, value) in enumerate(given):
        text = ast.unparse(value)
        if key == "dim" and name in _DIMS.split() and text.lstrip("-").isdigit() and random.random() < 0.15:
            text = random.choice((f"({text},)", f"[{text}]"))
        in_order = number < by_position and number < len(order) and key == order[number]
        in_order = in_order and len(parts) == number and all("=" not in p for p in parts)
        parts.append(text if in_order or not key else f"{key}={text}")
    return ", ".join(parts)


def _root(node: ast.expr) -> str:
    """Returns the name that a chain of attributes and indices begins with."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


# Layers as functions of weights

_LAYER = re.compile(
    r"^        self\.(\w+) = (?:torch\.)?nn\.(Linear|Conv[123]d|ConvTranspose[123]d|LayerNorm|GroupNorm)\((.*)\)$", re.M
)
_WINDOW = ("stride", "padding", "output_padding", "dilation", "groups")
_LINEAR = ("in_features", "out_features", "bias")
_CONV = ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups", "bias")
_TRANSPOSE = (
    "in_channels",
    "out_channels",
    "kernel_size",
    "stride",
    "padding",
    "output_padding",
    "groups",
    "bias",
    "dilation",
)


def functional(source: str, random: Random) -> str:
    """Returns a task's text with its first layer of some kinds as a function of weights of the model's own."""
    layer = _LAYER.search(source)
    if layer is None or re.search(rf"self\.{layer[1]}\b(?!\()", source[layer.end() :]):
        return source
    prefix = (
        "F" if "import torch.nn.functional as F" in source else random.choice(("nn.functional", "torch.nn.functional"))
    )
    name, cls, text = layer.groups()
    try:
        call = syntax.expression(f"f({text})")
    except SyntaxError:
        return source
    assert isinstance(call, ast.Call)
    if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
        return source
    write = _linear if cls == "Linear" else _norm if cls.endswith("Norm") else _convolution
    made = write(cls, call, random)
    if made is None:
        return source
    shapes, options = made
    names = {
        "weight": random.choice(("weight", "w", "kernel", "W", f"{name}_weight", "filters")),
        "bias": random.choice(("bias", "b", f"{name}_bias", "beta", "shift")),
    }
    if any(re.search(rf"self\.{n}\b", source) for n in names.values()):
        return source
    lines = [f"        self.{names[role]} = nn.Parameter(torch.randn({shape}))" for role, shape in shapes.items()]
    operands = [f"self.{names['weight']}"]
    if "bias" in shapes:
        operands.append(random.choice((f"self.{names['bias']}", f"bias=self.{names['bias']}")))
    elif options and random.random() < 0.3:
        operands.append("None")
    function = {"Linear": "linear", "LayerNorm": "layer_norm", "GroupNorm": "group_norm"}.get(cls, "")
    function = function or cls.replace("ConvTranspose", "conv_transpose").replace("Conv", "conv")
    if cls.endswith("Norm"):
        middle, options = options[:1], options[1:]
        operands = [*middle, *([operands[0], operands[1].removeprefix("bias=")])]
    tail = source[layer.end() :].replace(f"self.{name}(", f"{prefix}.{function}(\0")
    tail = re.sub(r"\0([^()]*)\)", lambda m: f"{m[1]}, {', '.join([*operands, *options])})", tail)
    if "\0" in tail:  # its argument is no plain name
        return source
    return source[: layer.start()] + "\n".join(lines) + tail


Made = tuple[dict[str, str], list[str]] | None


def _linear(cls: str, call: ast.Call, random: Random) -> Made:
    given = _by_name(_LINEAR, call)
    shapes = {"weight": f"{given['out_features']}, {given['in_features']}"}
    if given.get("bias", "True") == "True":
        shapes["bias"] = given["out_features"]
    return (shapes, []) if given.get("bias", "True") in ("True", "False") else None


def _norm(cls: str, call: ast.Call, random: Random) -> Made:
    names = ("normalized_shape", "eps") if cls == "LayerNorm" else ("num_groups", "num_channels", "eps")
    given = _by_name(names, call)
    if set(given) - set(names):
        return None
    eps = [f"eps={given['eps']}"] if "eps" in given else []
    fixed = [*eps, given["num_groups"] if cls == "GroupNorm" else given["normalized_shape"]]
    if not all(re.fullmatch(r"(eps=)?[\d(), .e\[\]-]+", text) for text in fixed):
        return None  # an argument of the constructor, which forward does not see
    if cls == "GroupNorm":
        return {"weight": given["num_channels"], "bias": given["num_channels"]}, [given["num_groups"], *eps]
    shape = given["normalized_shape"]
    inner = shape.strip("()[]").rstrip(",")
    return {"weight": inner, "bias": inner}, [shape if shape[0] in "([" else f"({shape},)", *eps]


def _convolution(cls: str, call: ast.Call, random: Random) -> Made:
    transposed, rank = "Transpose" in cls, int(cls[-2])
    given = _by_name(_TRANSPOSE if transposed else _CONV, call)
    kernel, groups, bias = given["kernel_size"], given.get("groups", "1"), given.get("bias", "True")
    if bias not in ("True", "False") or not re.fullmatch(r"\d+|\((\d+, )+\d+\)", kernel):
        return None
    window = ", ".join([kernel] * rank) if kernel.isdigit() else kernel.strip("()")
    first, second = ("in_channels", "out_channels") if transposed else ("out_channels", "in_channels")
    per_group = given[second] if groups == "1" else f"{given[second]} // {groups}"
    shapes = {"weight": f"{given[first]}, {per_group}, {window}"}
    if bias == "True":
        shapes["bias"] = given["out_channels"]
    options = [f"{key}={given[key]}" for key in _WINDOW if key in given]
    if not all(re.fullmatch(r"\w+=[\d(), ]+", option) for option in options):
        return None  # an argument of the constructor, which forward does not see
    random.shuffle(options)
    return shapes, options


def _by_name(names: tuple[str, ...], call: ast.Call) -> dict[str, str]:
    given = {name: ast.unparse(a) for name, a in zip(names, call.args, strict=False)}
    return given | {k.arg: ast.unparse(k.value) for k in call.keywords if k.arg}


# Layers in a container

_ANY = re.compile(
    r"^        self\.(\w+) = ((?:torch\.)?nn\.(?!Parameter|Sequential|ModuleList)[A-Z]\w*\(.*\))$", re.MULTILINE
)


def gathered(source: str, random: Random) -> str:
    """Returns a task's text; sometimes with its layers in one container, called by their numbers."""
    layers = list(_ANY.finditer(source))
    chosen = random.random() < 0.12
    container = random.choice(words.CONTAINERS)
    if not chosen or not layers or container in source:
        return source
    kind = random.choice(("nn.ModuleList([{}])", "nn.ModuleList([{}])", "nn.Sequential({})"))
    made = kind.format(", ".join(layer[2] for layer in layers))
    head, tail = source[: layers[0].start()], source[layers[-1].end() :]
    between = [source[a.end() : b.start()].strip("\n") for a, b in itertools.pairwise(layers)]
    if any(between) or any(f"self.{layer[1]} " in head for layer in layers):
        return source  # another line may need a line before it
    for number, layer in enumerate(layers):
        tail = re.sub(rf"\bself\.{layer[1]}\b", f"self.{container}[{number}]", tail)
    return f"{head}        self.{container} = {made}{tail}"


CHANGES: tuple[Callable[[str, Random], str], ...] = (respelt, gathered)
"""The changes of a text, in the order of their application."""
