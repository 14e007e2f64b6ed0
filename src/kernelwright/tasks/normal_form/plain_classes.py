"""Rewrites user-defined modules into simpler ones, so that the solution library needs fewer special cases.

* A class that inherits from another class of the file gets its methods, and its constructor's lines in place of
  `super().__init__(…)`; `super().forward(x)` becomes a call of a method of the class.
* A module, class or function passed to a constructor (`Residual(nn.Linear(d, d))`, `Block(d, act=F.silu)`) is inlined:
  the class is specialised for each of these calls.
* `nn.ModuleDict({"a": …})` becomes a module with the attributes `a`, ….
* `partial(F.leaky_relu, negative_slope=0.1)` and lambdas in attributes are inlined where they are called.

Paths of parameters and buffers stay. The order of a constructor's random draws may change, so an answer keeps the
task's own constructor. Code that is not understood stays unchanged. Nothing is executed.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator

from kernelwright import syntax
from kernelwright.tasks.normal_form.constants import is_known
from kernelwright.tasks.normal_form.expressions import bound, is_attribute, is_self, names_in, replaced, stored_names

MOST = 48
"""Most added classes, since a text can ask for any number."""
_ROOTS = ("nn", "F", "torch", "math")


def plain_classes(source: str) -> str:
    """Returns the text with plainer classes. Raises SyntaxError, ValueError or RecursionError of the parser."""
    return ast.unparse(_Classes(syntax.parse(source)).tree)


class _Classes:
    """The classes of a file during the rewriting."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.classes = {n.name: n for n in tree.body if isinstance(n, ast.ClassDef)}
        self.globals = {n.name for n in tree.body if isinstance(n, ast.ClassDef | ast.FunctionDef)} | {*_ROOTS}
        self.made = 0
        flat: set[str] = set()
        for name in [*self.classes]:
            self._inherit(name, flat, 0)
        for kind in [*self.classes.values()]:
            if kind.name != "Model":
                _own_attributes(kind)
            self._dictionaries(kind)
        waiting = [*self.classes.values()]
        while waiting:  # a specialised class may pass its arguments on
            kind = waiting.pop(0)
            before = {*self.classes}
            self._arguments(kind)
            waiting += [self.classes[name] for name in self.classes if name not in before]
        for kind in self.classes.values():
            _callables(kind)
        ast.fix_missing_locations(tree)

    def add(self, kind: ast.ClassDef, after: ast.ClassDef) -> None:
        self.classes[kind.name] = kind
        self.globals.add(kind.name)
        self.tree.body.insert(self.tree.body.index(after) + 1, kind)

    def name(self, stem: str) -> str | None:
        """Returns a name for one more class; None above `MOST`."""
        self.made += 1
        while f"{stem}{self.made}" in self.globals:
            self.made += 1
        return f"{stem}{self.made}" if self.made <= MOST else None

    def _inherit(self, name: str, flat: set[str], depth: int) -> None:
        """Copies inherited methods and attributes into a class whose base is in the file."""
        kind = self.classes[name]
        base = self.classes.get(ast.unparse(kind.bases[0])) if len(kind.bases) == 1 else None
        if name in flat or base is None or base is kind or depth > 8:
            return
        self._inherit(base.name, flat, depth + 1)
        own = {n.name: n for n in kind.body if isinstance(n, ast.FunctionDef)}
        init = own.get("__init__")
        inherited = [n for n in base.body if isinstance(n, ast.FunctionDef)]
        first = next((n for n in inherited if n.name == "__init__"), None)
        if init is not None and first is not None and not _joined_constructors(init, first, base.name, self._is_handed):
            return
        for method in map(copy.deepcopy, inherited):
            if method.name not in own:
                kind.body.append(method)
            elif method.name != "__init__":
                called = f"_{base.name}_{method.name}"
                changed = _Super(method.name, called)
                for mine in own.values():
                    changed.visit(mine)
                if changed.found:
                    method.name = called
                    kind.body.append(method)
        stated = {n.id for s in kind.body if isinstance(s, ast.Assign) for n in s.targets if isinstance(n, ast.Name)}
        for statement in reversed(base.body):
            match statement:
                case ast.Assign(targets=[ast.Name(id=attribute)]) if attribute not in stated:
                    kind.body.insert(0, copy.deepcopy(statement))
        kind.bases = copy.deepcopy(base.bases)
        flat.add(name)

    def _dictionaries(self, kind: ast.ClassDef) -> None:
        """Replaces `nn.ModuleDict({…})` in attributes by a module class."""
        init = _method(kind, "__init__")
        for statement in [*init.body] if init else []:
            match statement:
                case ast.Assign(targets=[ast.Attribute(attr=attribute) as target]) if is_attribute(target):
                    made = _Dictionaries(self, kind, init)  # type: ignore[arg-type]
                    statement.value = made.visit(statement.value)
                    if made.names:
                        _Entries(attribute, made.names).visit(kind)

    def _arguments(self, kind: ast.ClassDef) -> None:
        """Specialises classes whose constructor is given modules or functions."""
        init = _method(kind, "__init__")
        if init is not None:
            _Handed(self, kind, init).visit(init)

    def specialised(self, call: ast.Call, init: ast.FunctionDef) -> ast.Call:
        """Returns a call of a specialised class, without the arguments that are modules or functions."""
        kind = self.classes[call.func.id]  # type: ignore[attr-defined]
        wanted = _method(kind, "__init__")
        given = bound(wanted.args, call) if wanted else None
        if wanted is None or given is None:
            return call
        changing = set().union(*stored_names(wanted))
        tested = _tested(wanted)
        chosen = {
            p: v
            for p, v in given.items()
            if p not in changing and (self._is_handed(v) or p in tested and isinstance(v, ast.Constant))
        }
        name = self.name(kind.name) if chosen else None
        if name is None:
            return call
        inside = _local_names(init, [*chosen.values()])
        if "self" in inside or any(isinstance(n, ast.Starred) for v in chosen.values() for n in ast.walk(v)):
            return call
        outer = {n: f"{n}_of_{kind.name}" for n in sorted(inside)}
        renamed = {p: replaced({n: ast.Name(o, ast.Load()) for n, o in outer.items()}, v) for p, v in chosen.items()}
        made = copy.deepcopy(kind)
        made.name = name
        constructor = _method(made, "__init__")
        assert constructor is not None
        kept = {p: v for p, v in given.items() if p not in chosen}
        constructor.args = _parameters([*kept, *outer.values()])
        constructor.body = _decided([_Settled().visit(replaced(renamed, s)) for s in constructor.body])
        self.add(made, kind)
        words = [ast.keyword(p, v) for p, v in kept.items()]
        words += [ast.keyword(o, ast.Name(n, ast.Load())) for n, o in outer.items()]
        return ast.Call(ast.Name(name, ast.Load()), [], words)

    def _is_handed(self, node: ast.expr) -> bool:
        """Tells whether a constructor's argument is a module, a class or a function."""
        if isinstance(node, ast.Lambda):
            return True
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            last = called.rpartition(".")[2]
            layer = called.startswith(("nn.", "torch.nn.")) and last[:1].isupper() and last != "Parameter"
            return layer or called in self.classes or last == "partial"
        if isinstance(node, ast.Attribute):
            text = ast.unparse(node)
            return text.startswith(("F.", "nn.", "torch.")) and not text.startswith(("torch.float", "torch.bfloat"))
        return isinstance(node, ast.Name) and node.id in self.globals and node.id not in _ROOTS


class _Handed(ast.NodeTransformer):
    """Specialises the calls in a constructor, inner ones first."""

    def __init__(self, classes: _Classes, kind: ast.ClassDef, init: ast.FunctionDef) -> None:
        self.classes, self.kind, self.init = classes, kind, init

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        known = isinstance(node.func, ast.Name) and node.func.id in self.classes.classes
        return self.classes.specialised(node, self.init) if known else node

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        return node

    def visit_ListComp(self, node: ast.ListComp) -> ast.expr:
        return node  # it has a scope of its own

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.expr:
        return node


class _Super(ast.NodeTransformer):
    """Rewrites `super().NAME(…)` as a call of a method of self."""

    def __init__(self, name: str, called: str) -> None:
        self.name, self.called, self.found = name, called, False

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        match node.func:
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name) if name == self.name:
                self.found = True
                node.func = ast.Attribute(ast.Name("self", ast.Load()), self.called, ast.Load())
        return node


class _Dictionaries(ast.NodeTransformer):
    """Replaces dictionaries of modules by calls of new classes. `names` are the modules' keys."""

    def __init__(self, classes: _Classes, kind: ast.ClassDef, init: ast.FunctionDef) -> None:
        self.classes, self.kind, self.init = classes, kind, init
        self.names: set[str] = set()

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Call(args=[ast.Dict(keys=keys, values=values)], keywords=[]):
                names = [k.value for k in keys if isinstance(k, ast.Constant) and isinstance(k.value, str)]
                inside = _local_names(self.init, values)
                plain = len(names) == len(keys) and all(n.isidentifier() and n not in dir(dict) for n in names)
                if ast.unparse(node.func).endswith("nn.ModuleDict") and plain and "self" not in inside:
                    return self._made(names, values, sorted(inside)) or node
        return node

    def _made(self, names: list[str], values: list[ast.expr], inside: list[str]) -> ast.expr | None:
        name = self.classes.name("Parts")
        if name is None:
            return None
        self.classes.add(_constructed(name, {*inside}, zip(names, values, strict=True)), self.kind)
        self.names |= {*names}
        return ast.Call(ast.Name(name, ast.Load()), [], [ast.keyword(n, ast.Name(n, ast.Load())) for n in inside])


class _Entries(ast.NodeTransformer):
    """Rewrites `self.parts["a"]` and `self.parts[0]["a"]` as `self.parts.a` and `self.parts[0].a`."""

    def __init__(self, attribute: str, names: set[str]) -> None:
        self.attribute, self.names = attribute, names

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        match node.slice:
            case ast.Constant(value=str(key)) if key in self.names:
                whole: ast.expr = node.value
                while isinstance(whole, ast.Subscript | ast.Attribute) and not is_attribute(whole):
                    whole = whole.value
                if isinstance(whole, ast.Attribute) and whole.attr == self.attribute:
                    return ast.Attribute(node.value, key, node.ctx)
        return node


class _Settled(ast.NodeTransformer):
    """Evaluates `nn.ReLU() is not None` and `"a" == "b"`, and conditional expressions on constants."""

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Compare(left=ast.Call() | ast.Lambda(), ops=[sign], comparators=[ast.Constant(None)]):
                return ast.Constant(isinstance(sign, ast.IsNot | ast.NotEq))
            case ast.Compare(left=ast.Constant(one), ops=[sign], comparators=[ast.Constant(other)]):
                if isinstance(sign, ast.Eq | ast.Is | ast.NotEq | ast.IsNot):
                    return ast.Constant((one == other) is isinstance(sign, ast.Eq | ast.Is))
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        settled = isinstance(node.op, ast.Not) and isinstance(node.operand, ast.Constant)
        return ast.Constant(not node.operand.value) if settled else node  # type: ignore[attr-defined]

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.test, ast.Constant):
            return node.body if node.test.value else node.orelse
        return node


def _tested(function: ast.FunctionDef) -> set[str]:
    """Returns the names that a function's conditions read."""
    return set().union(*(names_in(n.test) for n in ast.walk(function) if isinstance(n, ast.If | ast.IfExp)))


def _decided(body: list[ast.stmt]) -> list[ast.stmt]:
    """Returns statements with the branches of constant conditions inlined."""
    kept: list[ast.stmt] = []
    for statement in body:
        match statement:
            case ast.If(test=ast.Constant(value=value), body=yes, orelse=no):
                kept += _decided(yes if value else no)
            case _:
                kept.append(statement)
    return kept


def _method(kind: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next((n for n in kind.body if isinstance(n, ast.FunctionDef) and n.name == name), None)


def _local_names(function: ast.FunctionDef, nodes: list[ast.expr]) -> set[str]:
    """Returns names in expressions that are parameters or variables of a function, self among them."""
    parameters = function.args
    own = {a.arg for a in (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs)}
    own |= set().union(*stored_names(function))
    bound = {a.arg for node in nodes for n in ast.walk(node) if isinstance(n, ast.Lambda) for a in n.args.args}
    return (set().union(*map(names_in, nodes)) & own) - bound


def _constructed(name: str, parameters: set[str], attributes: Iterator[tuple[str, ast.expr]]) -> ast.ClassDef:
    """Returns a module class with the given attributes."""
    lines = [*syntax.parse("super().__init__()").body]
    for attribute, value in attributes:
        target = ast.Attribute(ast.Name("self", ast.Load()), attribute, ast.Store())
        lines.append(ast.Assign([target], copy.deepcopy(value), lineno=0))
    init = ast.FunctionDef("__init__", _parameters(sorted(parameters)), lines, [], lineno=0)
    base = ast.Attribute(ast.Name("nn", ast.Load()), "Module", ast.Load())
    return ast.ClassDef(name, [base], [], [init], [])


def _parameters(names: list[str]) -> ast.arguments:
    return ast.arguments([], [ast.arg("self"), *map(ast.arg, names)], None, [], [], None, [])


def _joined_constructors(
    init: ast.FunctionDef, first: ast.FunctionDef, base: str, handed: Callable[[ast.expr], bool]
) -> bool:
    """Replaces `super().__init__(…)` by the base's constructor lines; returns False where that is impossible."""
    calls = [n for n in ast.walk(init) if isinstance(n, ast.Call) and ast.unparse(n.func).endswith(".__init__")]
    changing = set().union(*stored_names(first))
    for at, statement in enumerate(init.body):
        match statement:
            case ast.Expr(value=ast.Call() as call) if calls == [call]:
                given = bound(first.args, call)
                if given is None:
                    return False
                put = {n: v for n, v in given.items() if n not in changing and (is_known(v) or handed(v))}
                names = {name: f"{name}_of_{base}" for name in {*given, *changing} - {*put}}
                lines: list[ast.stmt] = [
                    ast.Assign([ast.Name(names[n], ast.Store())], copy.deepcopy(v), lineno=0)
                    for n, v in given.items()
                    if n in names
                ]
                inner = [_RenamedVariables(names).visit(copy.deepcopy(s)) for s in first.body]
                init.body[at : at + 1] = [*lines, *_decided([_Settled().visit(replaced(put, s)) for s in inner])]
                return True
    return False


class _RenamedVariables(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Name(self.names.get(node.id, node.id), node.ctx)


def _own_attributes(kind: ast.ClassDef) -> None:
    """Moves a class's constants into attributes set by its constructor."""
    init = _method(kind, "__init__")
    at = next((i for i, s in enumerate(init.body) if ast.unparse(s).startswith("super(")), None) if init else None
    if init is None or at is None:
        return
    for statement in [*kind.body]:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if is_known(value):
                target = ast.Attribute(ast.Name("self", ast.Load()), name, ast.Store())
                init.body.insert(at + 1, ast.Assign([target], copy.deepcopy(value), lineno=0))


def _callables(kind: ast.ClassDef) -> None:
    """Inlines attributes that are partial functions or lambdas at their calls."""
    init = _method(kind, "__init__")
    known: dict[str, ast.expr] = {}
    for statement in [*init.body] if init else []:
        match statement:
            case ast.Assign(targets=[ast.Attribute(attr=name) as target], value=value) if is_attribute(target):
                local = _local_names(init, [value]) - {"self"}  # type: ignore[arg-type]
                partial = isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] == "partial"
                if not local and (partial or isinstance(value, ast.Lambda) or _is_function(value)):
                    known[name] = value
                    init.body.remove(statement)  # type: ignore[union-attr]
    if known:
        _InlinedCalls(known).visit(kind)


def _is_function(node: ast.expr) -> bool:
    """Tells whether an expression names a torch function, such as `F.silu`."""
    text = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
    return text.startswith(("F.", "torch.")) and text.rpartition(".")[2][:1].islower()


class _InlinedCalls(ast.NodeTransformer):
    """Inlines the calls of known attributes."""

    def __init__(self, known: dict[str, ast.expr]) -> None:
        self.known = known

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if not (isinstance(node.func, ast.Attribute) and is_self(node.func.value)):
            return node
        match self.known.get(node.func.attr):
            case ast.Lambda(args=ast.arguments(args=given, defaults=[], kwonlyargs=[]), body=body):
                if len(given) == len(node.args) and not node.keywords:
                    return replaced({a.arg: v for a, v in zip(given, node.args, strict=True)}, body)  # type: ignore
            case ast.Attribute() as function:
                node.func = copy.deepcopy(function)
            case ast.Call(args=[function, *first], keywords=words):
                later = {k.arg for k in node.keywords}
                kept = [copy.deepcopy(k) for k in words if k.arg not in later]
                return ast.Call(copy.deepcopy(function), [*copy.deepcopy(first), *node.args], [*kept, *node.keywords])
        return node
