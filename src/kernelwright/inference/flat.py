"""Flattens a task: inlines the modules that its file defines into the model, as the task generator writes tasks.

A small model that has seen `self.conv` misspells `self.block1.conv1`. So a module that the file defines is inlined
where the model constructs it: the lines of its constructor and its forward move into the model's, and its attributes
get the module's name as a prefix (`self.block1_conv1`). The answer gets the paths back (`self.block1.conv1`).
"""

from __future__ import annotations

import ast
import copy
import functools
from collections.abc import Sequence

from kernelwright import syntax
from kernelwright.inference.names import Names
from kernelwright.tasks.normal_form.expressions import bound, is_attribute, stored_names
from kernelwright.tasks.normal_form.normal import normal_form

MOST_MODULES, MOST_CALLS, LONGEST = 24, 96, 40
"""Bounds on inlined modules, on their inlined calls, and on AST nodes of an argument: each makes the text longer."""
_OF_ALL = frozenset(
    "parameters named_parameters modules named_modules children named_children buffers named_buffers apply to eval "
    "train state_dict load_state_dict requires_grad_ zero_grad extra_repr".split()
)
"""Methods that every module has."""
_CONTAINERS = ("nn.ModuleList", "nn.Sequential")


class _Closed(Exception):
    """Raised for a module that cannot be inlined."""


@functools.lru_cache(maxsize=128)
def flattened(source: str) -> tuple[str, Names]:
    """Flattens a task; returns its normal form and the path of each new attribute (`block1_conv1` -> `block1.conv1`).

    Returns the text unchanged, and no paths, where it defines no modules or one of them cannot be inlined.
    """
    try:
        tree = syntax.parse(source)
        model = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Model"), None)
        kinds = {n.name: n for n in tree.body if isinstance(n, ast.ClassDef) and n is not model and _is_module(n)}
        if model is None or not kinds:
            return source, {}
        paths = _Flat(model, kinds).opened()
        if not paths:
            return source, {}
        _drop_unused(tree, kinds)
        return normal_form(ast.unparse(tree)), paths
    except (_Closed, SyntaxError, ValueError, RecursionError, MemoryError, StopIteration):
        return source, {}


class _Flat:
    """Inlines modules into class Model."""

    def __init__(self, model: ast.ClassDef, kinds: dict[str, ast.ClassDef]) -> None:
        self.kinds = kinds
        functions = {n.name: n for n in model.body if isinstance(n, ast.FunctionDef)}
        if not {"__init__", "forward"} <= set(functions):
            raise _Closed("a model without constructor or forward")
        self.init, self.forward = functions["__init__"], functions["forward"]
        self.taken = {n.id for n in ast.walk(model) if isinstance(n, ast.Name)}
        self.taken |= {n.attr for n in ast.walk(model) if isinstance(n, ast.Attribute)}
        self.paths: dict[str, str] = {}
        self.opening: dict[str, ast.ClassDef] = {}
        """Attribute -> the class of its inlined module."""
        self.lists: dict[str, list[str]] = {}
        """Attribute of a container -> the attributes of its elements."""
        self.calls = 0

    def opened(self) -> dict[str, str]:
        """Inlines all modules, outer ones first; returns the paths of the new attributes. Raises `_Closed`."""
        while self._constructors():
            if len(self.opening) > MOST_MODULES:
                raise _Closed("too many modules")
        if self.opening:
            while self._calls():
                pass
            self._elements()
        return {flat: path for flat, path in self.paths.items() if flat not in self.opening}

    def fresh(self, name: str) -> str:
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    # Constructors

    def _constructors(self) -> bool:
        """Inlines the file's own classes in the constructor's statements; tells whether it found any."""
        found = False
        body: list[ast.stmt] = []
        for statement in self.init.body:
            made = self._made(statement)
            found = found or made is not None
            body += [statement] if made is None else made
        self.init.body = body
        return found

    def _made(self, statement: ast.stmt) -> list[ast.stmt] | None:
        """Returns the inlined lines of `self.NAME = CLASS(...)`, or of a container of modules; None for the rest."""
        match statement:
            case ast.Assign(targets=[ast.Attribute(ast.Name("self"), name)], value=ast.Call() as call):
                pass
            case _:
                if any(isinstance(n, ast.Call) and self._kind(n) for n in ast.walk(statement)):
                    raise _Closed("a module in a statement of another kind")
                return None
        path = self.paths.get(name, name)
        if kind := self._kind(call):
            self.opening[name] = kind
            return self._inside(kind, call, name, path)
        elements = _elements_of(call)
        if elements is None or not any(isinstance(e, ast.Call) and self._kind(e) for e in elements):
            return None
        made: list[ast.stmt] = []
        self.lists[name] = []
        for number, element in enumerate(elements):
            own = self.fresh(f"{name}_{number}")
            self.paths[own] = f"{path}[{number}]"
            self.lists[name].append(own)
            made.append(ast.Assign([_of_self(own, ast.Store())], element, lineno=0))
        return made

    def _kind(self, call: ast.Call) -> ast.ClassDef | None:
        return self.kinds.get(call.func.id) if isinstance(call.func, ast.Name) else None

    def _inside(self, kind: ast.ClassDef, call: ast.Call, name: str, path: str) -> list[ast.stmt]:
        """Returns the lines of a class's constructor, renamed for the model."""
        init = _method(kind, "__init__")
        renamed = _Inlined(self, name, path, _bound(init.args, call), _assigned(init))
        lines = [s for s in init.body if not _is_super(s) and not _is_text(s)]
        return [renamed.visit(copy.deepcopy(s)) for s in lines]

    # Forward

    def _calls(self) -> bool:
        """Inlines calls of inlined modules in forward; tells whether it found any."""
        body: list[ast.stmt] = []
        found = False
        for statement in self.forward.body:
            value = statement.value if isinstance(statement, ast.Assign) else None
            name = self._called(value) if isinstance(value, ast.Call) else ""
            if not name:
                body.append(statement)
                continue
            assert isinstance(statement, ast.Assign) and isinstance(value, ast.Call)
            body += self._computed(name, value, statement.targets)
            found = True
        self.forward.body = body
        return found

    def _called(self, call: ast.Call) -> str:
        """Returns the inlined module that a call calls; empty for any other call."""
        match call.func:
            case ast.Attribute(ast.Name("self"), name) if name in self.opening:
                return name
            case ast.Subscript(ast.Attribute(ast.Name("self"), name), ast.Constant(int() as number)):
                own = self.lists.get(name, [])
                return own[number] if number < len(own) and own[number] in self.opening else ""
        return ""

    def _computed(self, name: str, call: ast.Call, targets: list[ast.expr]) -> list[ast.stmt]:
        """Returns the lines of a module's forward for one call."""
        self.calls += 1
        if self.calls > MOST_CALLS:
            raise _Closed("too many calls")
        forward = _method(self.opening[name], "forward")
        *lines, last = [s for s in forward.body if not _is_text(s)]
        returns = [n for s in lines for n in ast.walk(s) if isinstance(n, ast.Return)]
        if returns or not isinstance(last, ast.Return) or last.value is None:
            raise _Closed("a forward that returns on its way")
        given = _bound(forward.args, call)
        changed = _assigned(forward) & set(given)
        path = self.paths.get(name, name)
        renamed = _Inlined(self, name, path, {k: v for k, v in given.items() if k not in changed}, _assigned(forward))
        begin = [ast.Assign([ast.Name(renamed.local(k), ast.Store())], given[k], lineno=0) for k in sorted(changed)]
        result = ast.Assign(targets, last.value, lineno=0)
        values = [renamed.visit(copy.deepcopy(s)) for s in lines]
        result.value = renamed.visit(copy.deepcopy(last.value))
        if len(begin) > 1:
            raise _Closed("values that are changed side by side")
        return self._singly([*begin, *values, result])

    def _singly(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Rewrites statements so that each call of an inlined module is on a line of its own."""
        lines: list[ast.stmt] = []
        for statement in statements:
            if not isinstance(statement, ast.Assign):
                if any(isinstance(n, ast.Call) and self._called(n) for n in ast.walk(statement)):
                    raise _Closed("a module that is called in a statement of another kind")
                lines.append(statement)
                continue
            hoisted = _Hoisted(self, statement.value)
            statement.value = hoisted.visit(statement.value)
            lines += [*hoisted.lines, statement]
        return lines

    def _elements(self) -> None:
        """Replaces `self.blocks[0]` by `self.blocks_0`. Raises `_Closed` for other uses of a module."""
        wholly = {*self.lists, *self.opening, *_OF_ALL}
        for function in (self.init, self.forward):
            _Elements(self.lists).visit(function)
            for node in ast.walk(function):
                if isinstance(node, ast.Attribute) and is_attribute(node) and node.attr in wholly:
                    raise _Closed("a module that is used otherwise than called")


class _Inlined(ast.NodeTransformer):
    """Renames a line of a module's method for the model."""

    def __init__(self, flat: _Flat, name: str, path: str, given: dict[str, ast.expr], own: set[str]) -> None:
        self.flat, self.name, self.path, self.given, self.own = flat, name, path, given, own

    def local(self, name: str) -> str:
        return f"{self.name}_{name}_"

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id == "self":
            raise _Closed("a module that hands itself on")
        if node.id in self.own:
            return ast.Name(self.local(node.id), node.ctx)
        return copy.deepcopy(self.given[node.id]) if node.id in self.given else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if not is_attribute(node):
            self.generic_visit(node)
            return node
        if node.attr == "training":
            return node
        if node.attr in _OF_ALL:
            raise _Closed("a module that looks at itself")
        return _of_self(self._attribute(node.attr), node.ctx)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        match node:
            case ast.Call(func=ast.Attribute(ast.Name("self"), how), args=[ast.Constant(str() as name), *rest]):
                if how not in ("register_buffer", "register_parameter"):
                    raise _Closed("a module that calls a method of its own")
                text = ast.Constant(self._attribute(name))
                keywords = [ast.keyword(k.arg, self.visit(k.value)) for k in node.keywords]
                return ast.Call(ast.Attribute(ast.Name("self", ast.Load()), how, ast.Load()),
                                [text, *map(self.visit, rest)], keywords)  # fmt: skip
        self.generic_visit(node)
        return node

    def _attribute(self, name: str) -> str:
        path = f"{self.path}.{name}"
        known = next((flat for flat, of in self.flat.paths.items() if of == path), "")
        if not known:
            known = self.flat.fresh(f"{self.name}_{name}")
            self.flat.paths[known] = path
        return known

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        raise _Closed("a function within a module")

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        raise _Closed("a function within a module")


class _Hoisted(ast.NodeTransformer):
    """Moves calls of inlined modules out of an expression to `lines`, except the expression itself."""

    def __init__(self, flat: _Flat, root: ast.expr) -> None:
        self.flat, self.root = flat, root
        self.lines: list[ast.stmt] = []

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if node is self.root or not self.flat._called(node):
            return node
        name = self.flat.fresh("inner")
        self.lines.append(ast.Assign([ast.Name(name, ast.Store())], node, lineno=0))
        return ast.Name(name, ast.Load())


class _Elements(ast.NodeTransformer):
    def __init__(self, lists: dict[str, list[str]]) -> None:
        self.lists = lists

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Subscript(ast.Attribute(ast.Name("self"), name), ast.Constant(int() as number)):
                own = self.lists.get(name, [])
                return _of_self(own[number], node.ctx) if 0 <= number < len(own) else node
        return node


def _is_module(kind: ast.ClassDef) -> bool:
    """Tells whether a class may be a module; dataclasses, named tuples and enums are not."""
    return any(ast.unparse(base).split(".")[-1] not in ("object", "NamedTuple", "Enum") for base in kind.bases)


def _elements_of(call: ast.Call) -> Sequence[ast.expr] | None:
    """Returns the elements of a container that are written out; None for any other call."""
    if ast.unparse(call.func) not in _CONTAINERS or call.keywords:
        return None
    elements = call.args[0].elts if len(call.args) == 1 and isinstance(call.args[0], ast.List) else call.args
    return None if any(isinstance(e, ast.Starred) for e in elements) else elements


def _method(kind: ast.ClassDef, name: str) -> ast.FunctionDef:
    """Returns a method of a plain module with constructor and forward only. Raises `_Closed` for other classes."""
    functions = [n for n in kind.body if isinstance(n, ast.FunctionDef)]
    if [ast.unparse(b) for b in kind.bases] not in (["nn.Module"], ["torch.nn.Module"]) or kind.decorator_list:
        raise _Closed(f"{kind.name} is no plain module")
    if {f.name for f in functions} != {"__init__", "forward"}:
        raise _Closed(f"{kind.name} has other methods")
    return next(f for f in functions if f.name == name)


def _bound(wanted: ast.arguments, call: ast.Call) -> dict[str, ast.expr]:
    """Maps each parameter except self to a call's argument. Raises `_Closed` where the text does not determine it."""
    given = bound(wanted, call)
    if given is None:
        raise _Closed("arguments that do not fit, or of any number")
    if any(sum(1 for _ in ast.walk(value)) > LONGEST for value in given.values()):
        raise _Closed("long arguments")
    return given


def _assigned(function: ast.FunctionDef) -> set[str]:
    return set().union(*stored_names(function))


def _of_self(name: str, context: ast.expr_context) -> ast.Attribute:
    return ast.Attribute(ast.Name("self", ast.Load()), name, context)


def _is_super(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and ast.unparse(statement.value).startswith("super(")


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _drop_unused(tree: ast.Module, kinds: dict[str, ast.ClassDef]) -> None:
    """Removes the classes that nothing uses any more."""
    while True:
        named = {
            n.id for s in tree.body for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
        }
        kept = [s for s in tree.body if not (isinstance(s, ast.ClassDef) and s.name in kinds and s.name not in named)]
        if len(kept) == len(tree.body):
            return
        tree.body = kept
