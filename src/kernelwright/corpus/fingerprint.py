"""Reduces a reference to fingerprints without names, sizes, comments and layout, for comparison by nearness.

Parses the source and executes nothing. A source has three views:

- `exact`: hash of the parsed text without docstrings; equal for copies with other comments, blanks or annotations.
- `tokens`: the set of its identifiers, attributes, numbers and strings (without docstrings), for the token Jaccard.
- `nodes`: the operations of `Model` in order of evaluation, for the AST similarity. A module's constructor counts where
  the module is called, so that `self.act(x)`, `F.relu(x)` and `torch.relu(x)` are one operation. Names of variables and
  arguments, constants, shapes and docstrings are dropped; names of the API stay, since they identify the operation. A
  read input is `input`, a parameter is `weight`; intermediate values have no name.
"""

from __future__ import annotations

import ast
import hashlib
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from kernelwright import syntax

_ROOTS = frozenset(("torch", "nn", "F", "math", "functional", "np", "numpy"))
_SYNONYMS = {
    "mm": "matmul",
    "multiply": "mul",
    "subtract": "sub",
    "divide": "div",
    "truedivide": "div",
    "clip": "clamp",
    "swish": "silu",
    "absolute": "abs",
    "negative": "neg",
    "mult": "mul",
    "usub": "neg",
    "concat": "cat",
    "concatenate": "cat",
    "power": "pow",
}
_SILENT = frozenset(("sequential", "identity", "modulelist", "parameter"))
_LEAVES = frozenset(("input", "weight"))
VIEWS = frozenset(
    "t transpose contiguous view reshape permute unsqueeze squeeze flatten float expand size shape detach clone".split()
)
"""Operations that compute nothing; they do not count as operators of a task."""
_OUTSIDE = frozenset(("get_inputs", "get_init_inputs"))


@dataclass(frozen=True)
class Fingerprint:
    """The three views of one reference."""

    source: str
    tokens: frozenset[str]
    nodes: tuple[str, ...]

    @cached_property
    def exact(self) -> str:
        """The hash of the text, computed on demand: equal hashes imply equal tokens, so few references need it."""
        return _exact(self.source)

    @property
    def operators(self) -> tuple[str, ...]:
        """The model's operators in order, without inputs, weights and `VIEWS`."""
        return tuple(n for n in self.nodes if n not in _LEAVES and n not in VIEWS and ":" not in n)

    @property
    def one_operator(self) -> bool:
        """Tells whether the model computes at most one operation; these tasks look alike whoever writes them."""
        return len(self.operators) <= 1


def fingerprint(source: str, api_names: bool = True) -> Fingerprint:
    """Computes the views of a reference. Text that is not Python has its words as tokens, and no nodes.

    Without `api_names`, every call is the same operation, as in the tool that CUDA Agent's authors used.
    """
    tree = _parsed(source)
    if tree is None:
        return Fingerprint(source, frozenset(_words(source)), ())
    try:
        return Fingerprint(source, _tokens(tree), _Order(tree, api_names).nodes())
    except RecursionError:
        return Fingerprint(source, frozenset(_words(source)), ())


def _parsed(source: str) -> ast.Module | None:
    """Parses a text; returns None where it is not Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return syntax.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _words(source: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", source)


def _exact(source: str) -> str:
    tree = _parsed(source)
    try:
        if tree is not None:
            _strip_docstrings(tree)
            return _digest(ast.dump(tree))
    except RecursionError:
        pass
    return _digest(" ".join(_words(source)))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _strip_docstrings(tree: ast.Module) -> None:
    """Removes docstrings, annotations, and everything under `if __name__ == '__main__'`."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            node.body = _body(node)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None


def _body(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.stmt]:
    """Returns the statements without the docstring and the script's main block."""
    body = node.body
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    if isinstance(node, ast.Module):
        return [n for n in body if not (isinstance(n, ast.If) and "__main__" in ast.dump(n.test))]
    return body


def _tokens(tree: ast.Module) -> frozenset[str]:
    """Collects the tokens of a tree, without the nodes that `_strip_docstrings` removes.

    Not by `ast.walk`: every task of a corpus passes here, and this walk takes a third of its time.
    """
    found: set[str] = set()
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Constant):
            found.add(repr(node.value))
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
            left.append(node.value)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.alias):
            found.update((node.name, node.asname or node.name))
        elif isinstance(node, (ast.operator, ast.cmpop, ast.unaryop)):
            found.add(type(node).__name__)
        elif isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            left += _definition(node, found)
        else:
            if isinstance(node, ast.keyword):
                found.add(f"{node.arg}=")
            left += ast.iter_child_nodes(node)
    return frozenset(found)


def _definition(
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, found: set[str]
) -> list[ast.AST]:
    """Returns the child nodes of a module, class or function to walk, and adds its name to `found`."""
    if isinstance(node, ast.Module):
        return list(_body(node))
    found.add(node.name)
    rest: list[ast.AST] = [*_body(node), *node.decorator_list, *getattr(node, "type_params", ())]
    return rest + ([*node.bases, *node.keywords] if isinstance(node, ast.ClassDef) else [node.args])


def canonical(name: str) -> str:
    """Returns the one spelling of an operator: `LeakyReLU`, `leaky_relu` and `leaky_relu_` are `leakyrelu`."""
    plain = name.replace("_", "").lower()
    return _SYNONYMS.get(plain, plain)


class _Order:
    """Walks `Model` in the order of evaluation and names each operation."""

    def __init__(self, tree: ast.Module, api_names: bool) -> None:
        self.api_names = api_names
        classes = [n for n in tree.body if isinstance(n, ast.ClassDef)]
        # Python takes the last of several definitions of one name.
        self.model = next((c for c in reversed(classes) if c.name == "Model"), None)
        self.classes = {c.name: c for c in classes if c is not self.model}
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        self.functions = {n.name: n for n in tree.body if isinstance(n, functions) and n.name not in _OUTSIDE}
        self.inputs: set[str] = set()
        self.modules: dict[str, ast.Call] = {}
        self.weights: set[str] = set()

    def nodes(self) -> tuple[str, ...]:
        if self.model is None:
            return ()
        found = list(self._class(self.model))
        for helper in self.classes.values():
            found += self._class(helper)
        for function in self.functions.values():
            found += self._function(function)
        return tuple(found)

    def _class(self, node: ast.ClassDef) -> Iterator[str]:
        methods = [n for n in node.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
        self.modules, self.weights = {}, set()
        for method in methods:
            if method.name == "__init__":
                self._constructor(method)
        for method in methods:
            if method.name != "__init__":
                yield from self._function(method)

    def _constructor(self, method: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for node in ast.walk(method):
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.value, ast.Call):
                target = node.targets[0]
                if isinstance(target, ast.Attribute):
                    name = _last(node.value.func)
                    if name in ("Parameter", "register_buffer"):
                        self.weights.add(target.attr)
                    elif name[:1].isupper():
                        self.modules[target.attr] = node.value
            if isinstance(node, ast.Call) and _last(node.func) == "register_buffer" and node.args:
                if isinstance(node.args[0], ast.Constant):
                    self.weights.add(str(node.args[0].value))

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
        self.inputs = {a.arg for a in node.args.args + node.args.kwonlyargs} - {"self"}
        for statement in node.body:
            yield from self._statement(statement)

    def _statement(self, node: ast.stmt) -> Iterator[str]:
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.Return, ast.Expr)):
            if node.value is not None:
                yield from self._value(node.value)
            for target in node.targets if isinstance(node, ast.Assign) else []:
                if isinstance(target, ast.Subscript):
                    yield from self._value(target)
                    yield "store:"
                # From here on the name holds a computed value, not an input.
                if isinstance(target, ast.Tuple):
                    self.inputs -= {n.id for n in target.elts if isinstance(n, ast.Name)}
                self.inputs.discard(target.id if isinstance(target, ast.Name) else "")
        elif isinstance(node, ast.AugAssign):
            yield from self._value(node.target)
            yield from self._value(node.value)
            yield canonical(type(node.op).__name__)
            self.inputs.discard(node.target.id if isinstance(node.target, ast.Name) else "")
        else:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.stmt):
                    yield from self._statement(child)
                elif isinstance(child, ast.expr):
                    yield from self._value(child)
            if not isinstance(node, ast.Pass):
                yield f"{type(node).__name__.lower()}:"

    def _value(self, node: ast.expr) -> Iterator[str]:
        if isinstance(node, ast.Constant):
            return
        if isinstance(node, ast.Name):
            if node.id in self.inputs:
                yield "input"
        elif isinstance(node, ast.Attribute):
            yield from self._attribute(node)
        elif isinstance(node, ast.Call):
            yield from self._call(node)
        elif isinstance(node, ast.BinOp):
            yield from self._both(node.left, node.right)
            yield canonical(type(node.op).__name__)
        elif isinstance(node, ast.UnaryOp):
            if not isinstance(node.operand, ast.Constant):
                yield from self._value(node.operand)
                yield canonical(type(node.op).__name__)
        elif isinstance(node, ast.Compare):
            yield from self._both(node.left, *node.comparators)
            for op in node.ops:
                yield canonical(type(op).__name__)
        else:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    yield from self._value(child)
                elif isinstance(child, ast.comprehension):
                    yield from self._both(child.iter, *child.ifs)
            if not isinstance(node, (ast.Tuple, ast.List)):
                yield f"{type(node).__name__.lower()}:"

    def _both(self, *values: ast.expr) -> Iterator[str]:
        for value in values:
            yield from self._value(value)

    def _attribute(self, node: ast.Attribute) -> Iterator[str]:
        root = _root(node)
        if root == "self":
            if node.attr in self.weights or _owner(node) in self.modules:
                yield "weight"
        elif root in _ROOTS and root not in self.inputs:
            yield f"{canonical(node.attr)}:"
        else:
            yield from self._value(node.value)
            yield canonical(node.attr)

    def _call(self, node: ast.Call) -> Iterator[str]:
        function = node.func
        root = _root(function)
        made = self.modules.get(function.attr) if isinstance(function, ast.Attribute) and root == "self" else None
        method = isinstance(function, ast.Attribute) and root not in _ROOTS and root != "self"
        if isinstance(function, ast.Attribute) and (method or root in self.inputs):
            yield from self._value(function.value)
        elif isinstance(function, ast.Call):  # nn.ReLU()(x): the module is made where it is called
            made = function
        yield from self._arguments(node)
        if made is not None:
            yield from self._arguments(made)
            function = made.func
        name = canonical(_last(function))
        if name not in _SILENT:
            yield name if self.api_names else "call"

    def _arguments(self, node: ast.Call) -> Iterator[str]:
        for argument in node.args:
            yield from self._value(argument)
        for keyword in node.keywords:
            yield from self._value(keyword.value)


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _owner(node: ast.Attribute) -> str:
    """Returns the owner of an attribute: `conv` for `self.conv.weight`."""
    return node.value.attr if isinstance(node.value, ast.Attribute) else ""


def _last(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
