"""Reads the parts of a reference by AST: model, forward, inputs, and the layers and weights of the constructor.

Nothing is executed. `forward` turns forward's computation into a `Node`; this module defines the node and the parts.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from kernelwright import syntax
from kernelwright.tasks.normal_form.layers import ENCODER, encoder_parts, layers_of


class Unreadable(Exception):
    """The reference does something that no template knows; the message says what."""


@contextmanager
def readable() -> Iterator[None]:
    """Turns a fault of the library on an odd text into `Unreadable`, so that it costs one answer and not the whole
    batch."""
    try:
        yield
    except _MISTAKES as error:
        raise Unreadable(f"no template ({FAULT}: {error!r})") from error


_MISTAKES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RecursionError,
    SyntaxError,
    TypeError,
    ValueError,
)
FAULT = "a fault of the solution library"
"""Part of the message where the library is at fault, not the task."""


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
        # Hashed once, from the operands' hashes: an expression with shared parts has exponentially many paths.
        object.__setattr__(self, "_hash", hash((self.op, self.args, self.text, self.options)))

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined, no-any-return]

    def option(self, name: str, default: str = "") -> str:
        return dict(self.options).get(name, default)


def nodes(root: Node) -> Iterator[Node]:
    """Yields all values of an expression, each once, the root first."""
    seen: set[Node] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            yield node
            stack.extend(node.args)


@dataclass
class ReferenceText:
    """The parts of a reference that the templates need."""

    source: str
    tree: ast.Module
    model: ast.ClassDef
    forward: ast.FunctionDef
    """The forward that is read. The candidate's constructor comes from `own` where that is set."""
    inputs: tuple[str, ...]
    modules: dict[str, tuple[str, ast.Call]] = field(default_factory=dict)
    """Attributes made as `self.NAME = nn.CLASS(...)`: class name and call. Nested layers have paths such as `net[0]` or
    `block.conv`."""
    tensors: set[str] = field(default_factory=set)
    """Attributes that are parameters or buffers."""
    lists: dict[str, list[str]] = field(default_factory=dict)
    """Path of each `nn.Sequential` and `nn.ModuleList` -> paths of its layers."""
    blocks: dict[str, ast.ClassDef] = field(default_factory=dict)
    """Path of each attribute made from a class of the same file -> that class."""
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Sizes of values by their hidden names (see `forward`)."""
    hidden: dict[str, Node] = field(default_factory=dict)
    own: ast.Module | None = None
    """The task's original text, where `tree` is its normal form."""
    named: dict[Node, str] = field(default_factory=dict)
    """Value -> its first name in forward, in the order of the text."""


def read(source: str) -> ReferenceText:
    """Returns the reference's parts. Raises `Unreadable`."""
    try:
        tree = syntax.parse(source)
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
    reference = ReferenceText(source, tree, model, forward, names)
    if "__init__" in methods:
        _read_init(methods["__init__"], reference)
    return reference


_CHANGING = frozenset("append extend insert add_module register_module pop clear remove".split())


def _read_init(init: ast.FunctionDef, reference: ReferenceText, prefix: str = "") -> None:
    for node in ast.walk(init):
        for target, value in assigned(node):
            if isinstance(target, ast.Attribute) and dotted(target.value) == "self" and isinstance(value, ast.Call):
                _read_layer(prefix + target.attr, value, reference)
        if isinstance(node, ast.Call) and dotted(node.func) == "self.register_buffer" and node.args:
            if isinstance(node.args[0], ast.Constant):
                reference.tensors.add(prefix + str(node.args[0].value))
    for node in ast.walk(init):  # lists that change later differ from their first value
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name in _CHANGING:
                changed = [owner]
            case ast.AugAssign(target=owner):
                changed = [owner]
            case ast.Assign(targets=targets) | ast.Delete(targets=targets):
                changed = [t.value for t in targets if isinstance(t, ast.Subscript)]
            case _:
                continue
        for path in map(dotted, changed):
            if path.startswith("self.") and prefix + path[5:] in reference.lists:
                raise Unreadable(f"no template for changes to the layers of {path}")


def assigned(node: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
    """Returns the targets and values of an assignment, item by item where both sides are tuples."""
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        return [(node.target, node.value)]
    match node:
        case ast.Expr(ast.Call(ast.Attribute(ast.Name("self"), "add_module"), [ast.Constant(str(name)), value], [])):
            return [(ast.Attribute(ast.Name("self", ast.Load()), name, ast.Store()), value)]
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return []
    target, value = node.targets[0], node.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return list(zip(target.elts, value.elts, strict=True))
    return [(target, value)]


def contained(call: ast.Call) -> list[ast.Call]:
    """Returns the layers of a `Sequential` or `ModuleList`, also from an `OrderedDict`. Raises `Unreadable`."""
    first = call.args[0] if len(call.args) == 1 else None
    if isinstance(first, ast.Call) and dotted(first.func).split(".")[-1] == "OrderedDict" and len(first.args) == 1:
        pairs = first.args[0].elts if isinstance(first.args[0], ast.List | ast.Tuple) else [first]
        layers = [p.elts[1] if isinstance(p, ast.Tuple) and len(p.elts) == 2 else p for p in pairs]
        call = ast.Call(ast.Name("Sequential", ast.Load()), layers, [])
    found = layers_of(call)
    if found is None:
        raise Unreadable(f"no template for layers made by {ast.unparse(call)[:60]}")
    return found  # type: ignore[return-value]


CHANGES = frozenset("half bfloat16 float double to type eval train cuda cpu requires_grad_".split())


def bare_layer(call: ast.Call) -> tuple[ast.Call, list[ast.Call]]:
    """Returns a layer's own call, and the calls chained to it: `nn.Linear(3, 4).half().eval()`."""
    changes: list[ast.Call] = []
    inner = call
    while isinstance(inner.func, ast.Attribute) and inner.func.attr in CHANGES:
        if not isinstance(inner.func.value, ast.Call):
            return call, []
        changes.append(inner)
        inner = inner.func.value
    layer = dotted(inner.func).startswith(("nn.", "torch.nn.")) and not dotted(inner.func).endswith("Parameter")
    return (inner, changes[::-1]) if layer else (call, [])


def _read_layer(path: str, call: ast.Call, reference: ReferenceText) -> None:
    """Records an attribute as a weight, a layer, layers in a row, or a block of the same file."""
    call, _ = bare_layer(call)
    called = dotted(call.func)
    if called in ("nn.Parameter", "torch.nn.Parameter", "Parameter"):
        reference.tensors.add(path)
        return
    kind = called.split(".")[-1]
    if kind in ("Sequential", "ModuleList") and called.startswith(("nn.", "torch.nn.")):
        items = contained(call)
        reference.lists[path] = [f"{path}[{i}]" for i in range(len(items))]
        for i, item in enumerate(items):
            _read_layer(f"{path}[{i}]", item, reference)
    elif called.startswith(("nn.", "torch.nn.")):
        if path in reference.modules and ast.dump(reference.modules[path][1]) != ast.dump(call):
            raise Unreadable(f"no template for self.{path}, which is one layer or another")
        reference.modules[path] = (kind, call)
        if kind == ENCODER:
            for name, part in encoder_parts(call).items():
                _read_layer(f"{path}.{name}", part, reference)
    elif block := next((n for n in reference.tree.body if isinstance(n, ast.ClassDef) and n.name == called), None):
        reference.blocks[path] = block
        init = next((n for n in block.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
        if init is not None and path.count(".") < 4:
            _read_init(init, reference, f"{path}.")


_TAKEN = frozenset(
    "xs y n s d dtype shape dim dims low high outer inner middle a b w size extension torch nn F".split()
)


def safe_name(name: str) -> str:
    """Returns an input's name, with an underscore where generated code uses that name itself."""
    return name + "_" if name in _TAKEN else name


def dotted(node: ast.AST) -> str:
    """Returns `a.b.c` for an attribute chain, "" for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        return ".".join([node.id, *parts[::-1]])
    return ""
