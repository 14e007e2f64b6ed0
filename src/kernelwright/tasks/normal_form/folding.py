"""Evaluates a module's constructor by constant folding and unrolls its loops.

A task has one set of constructor arguments. With these known, `self.eps = eps` is a number, `if act == "relu"` has one
branch, a list comprehension over `range(3)` is three layers, and a loop over them in forward is three lines. The
computation is the same. Sizes and values computed from them keep their expressions, because the same text is judged
with smaller sizes. Values that are not certain stay, too.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Container, Iterator, Mapping
from typing import Any

from kernelwright.tasks.normal_form.constants import (
    MAX_ROUNDS,
    ROOTS,
    UnknownValue,
    is_known,
    is_small,
    is_value,
    value_of,
    written,
)
from kernelwright.tasks.normal_form.expressions import (
    entry,
    has_integers,
    is_attribute,
    is_items,
    is_made,
    is_self,
    is_unread,
    loaded,
    matched,
    names_in,
    replaced,
    spelled,
    spread_out,
    stored_names,
)
from kernelwright.tasks.normal_form.layers import chained, last_name, layers_of

MAX_WRITTEN = 256
"""Most unrolled rounds of all loops of a model; a nested loop counts as often as it runs."""
_FRESH = ("relu", "linear", "matmul", "conv1d", "conv2d", "conv3d", "sigmoid", "tanh", "gelu", "silu", "softmax", "mul")


def fold(
    model: ast.ClassDef,
    known: Mapping[str, ast.expr],
    given: Mapping[str, ast.expr],
    helpers: Mapping[str, ast.FunctionDef],
) -> None:
    """Rewrites class Model in place.

    `known`: constants of the module; `given`: the constructor's arguments; `helpers`: the module's functions, by name.
    """
    methods = [n for n in model.body if isinstance(n, ast.FunctionDef)]
    seen = _ClassFacts(model)
    made = _Known()
    for method in sorted(methods, key=lambda m: m.name != "__init__"):
        own = {a.arg for a in ast.walk(method.args) if isinstance(a, ast.arg)}
        names = _Known()
        for name, value in known.items():
            if name not in own:
                names.note(name, value, value, value)
        if method.name == "__init__":
            for name, value in given.items():  # named sizes of a layer keep their names
                named = has_integers(value) and not isinstance(value, ast.Dict)
                names.note(name, ast.Name(name) if named else value, value, value)
        body = _Body(names, made, helpers, seen, forward=method.name != "__init__", method=method)
        method.body = body.run(method.body) or [ast.Pass()]
    read = {
        n.attr
        for n in ast.walk(model)
        if isinstance(n, ast.Attribute) and is_self(n.value) and isinstance(n.ctx, ast.Load)
    }
    for method in methods:
        if method.name == "__init__":
            method.body = [s for s in method.body if not is_unread(s, made.small, read)] or [ast.Pass()]


class _Known:
    """Known values by name.

    `full` has all of them, `small` those that are no sizes, `light` those that also replace their name in the
    constructor.
    """

    def __init__(self) -> None:
        self.light: dict[str, ast.expr] = {}
        self.small: dict[str, ast.expr] = {}
        self.full: dict[str, ast.expr] = {}

    def note(self, name: str, light: ast.expr, small: ast.expr, full: ast.expr) -> None:
        """Sets a name's value, folded with each of the three kinds of values."""
        self.drop(name)
        if is_known(full) or is_items(full):
            self.full[name] = full
        for kind, value in ((self.light, light), (self.small, small)):
            if (is_known(value) and is_small(value)) or is_items(value):
                kind[name] = value

    def set(self, name: str, value: ast.expr) -> None:
        """Sets a loop variable's value for one round; it always replaces the name."""
        self.light[name] = self.small[name] = self.full[name] = value

    def drop(self, name: str) -> None:
        for kind in (self.light, self.small, self.full):
            kind.pop(name, None)

    def copy(self) -> _Known:
        other = _Known()
        other.light, other.small, other.full = dict(self.light), dict(self.small), dict(self.full)
        return other

    def of(self, kind: str) -> dict[str, ast.expr]:
        """Returns the values of a kind: `light`, `small` or `full`."""
        return {"light": self.light, "small": self.small, "full": self.full}[kind]


class _ClassFacts:
    """Facts about a class's attributes: reads of those that are set once can be inlined."""

    def __init__(self, model: ast.ClassDef) -> None:
        self.stores: dict[str, int] = {}
        self.rounds = 0
        self.methods = {n.name for n in model.body if isinstance(n, ast.FunctionDef)}
        # A base class, or code that is given the module, may read attributes, too.
        self.odd = [ast.unparse(base) for base in model.bases] not in (["nn.Module"], ["torch.nn.Module"])
        owners = {id(n.value) for n in ast.walk(model) if isinstance(n, ast.Attribute)}
        for node in ast.walk(model):
            if isinstance(node, ast.Name) and node.id == "self" and id(node) not in owners:
                self.odd = True
            if isinstance(node, ast.Attribute) and is_self(node.value) and not isinstance(node.ctx, ast.Load):
                self.stores[node.attr] = self.stores.get(node.attr, 0) + 1
            if isinstance(node, ast.Name) and node.id in ("setattr", "vars", "hasattr", "exec", "eval"):
                self.odd = True
            if isinstance(node, ast.Attribute) and node.attr == "__dict__":
                self.odd = True


class _Body:
    """Folds a function's statements in order; holds the values known so far."""

    def __init__(
        self,
        names: _Known,
        made: _Known,
        helpers: Mapping[str, ast.FunctionDef],
        seen: _ClassFacts,
        forward: bool,
        method: ast.FunctionDef,
    ) -> None:
        self.set_once, self.set_often = stored_names(method)
        self.names, self.made, self.helpers, self.seen, self.forward = names, made, helpers, seen, forward
        self.fresh: set[str] = set()
        self.lists: dict[str, ast.Assign] = {}
        """Attribute that is a list of layers -> the assignment that makes it, to which later appends are added."""

    def run(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Returns the statements that remain after folding, in order."""
        left: list[ast.stmt] = []
        for statement in statements:
            left += self.statement(statement)
            if left and isinstance(left[-1], ast.Return):
                break
        return left

    def statement(self, node: ast.stmt) -> list[ast.stmt]:
        """Returns the statements that remain of one statement."""
        read = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        set_here = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
        left = self._left(node)
        self.fresh -= read - set_here  # another name may share its memory from here on
        return left

    def _left(self, node: ast.stmt) -> list[ast.stmt]:
        if any(isinstance(n, ast.NamedExpr) for n in ast.walk(node)):
            self.forget(node)
            return [node]
        match node:
            case ast.Assign(targets=[target]):
                return self.assign(node, target)
            case ast.AugAssign(target=ast.Name(id=name), op=sign):
                return self.augmented(node, name, sign)
            case ast.If(test=test):
                decided = self.full(test)
                if is_value(decided):
                    return self.run(node.body if value_of(decided) else node.orelse)
            case ast.For(target=target, orelse=[]):
                rounds = self.rounds(node.iter)
                given = [matched(target, one) for one in rounds or []]
                broken = any(isinstance(n, ast.Break | ast.Continue) for n in ast.walk(node))
                if rounds is not None and None not in given and not broken:
                    return [s for pairs in given for s in self.round(pairs or [], node.body)]
            case ast.Expr(value=value):
                if self.append(value) or self.append_layer(value):
                    return []
                before = self.released(node)
                self.forget(node)
                node.value = self.fold(value)
                return before if isinstance(node.value, ast.Constant) else [*before, node]
            case ast.Return(value=value) if value is not None:
                node.value = self.fold(value)
                return [node]
            case ast.Assert():
                return []
        before = self.released(node, True)
        self.forget(node)
        return [*before, self.fold(node)]

    def released(self, node: ast.AST, wholly: bool = False) -> list[ast.stmt]:
        """Returns assignments of the collected lists and tables that this node may change, and forgets their values."""
        names = {
            n.func.value.id
            for n in ast.walk(node)
            if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and isinstance(n.func.value, ast.Name)
        }
        if wholly:
            names |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        found: list[ast.stmt] = []
        for name in sorted(names):
            items = self.names.light.get(name)
            if isinstance(items, ast.List | ast.Dict):
                self.names.drop(name)
                found.append(ast.Assign([ast.Name(name, ast.Store())], items, lineno=0))
        return found

    def assign(self, node: ast.Assign, target: ast.expr) -> list[ast.stmt]:
        """Notes an assignment's known value; returns the assignment unless the value replaces every read."""
        before = self.released(node.value) + self.released(target, isinstance(target, ast.Subscript))
        if before:
            return [*before, *self.assign(node, target)]
        countable = not is_made(node.value)
        small, full = (self.known(node.value, "small"), self.full(node.value)) if countable else (None, None)
        value = node.value = self.fold(node.value)
        small, full = small or value, full or value
        if isinstance(target, ast.Subscript):
            target.slice = self.fold(target.slice)  # a loop's variable, too
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            simple = [t for t in target.elts if isinstance(t, ast.Name) or is_attribute(t)]
            apart = not self.forward and not names_in(value) & names_in(target)
            if len(simple) == len(target.elts) and (apart or all(map(is_known, value.elts))):
                pairs = zip(target.elts, value.elts, strict=True)
                return [s for t, v in pairs for s in self.assign(ast.Assign([t], v, lineno=0), t)]
        if isinstance(target, ast.Name) and isinstance(value, ast.List):
            kept = [self.lasting(element, self.set_often) for element in value.elts]
            if None in kept:
                self.forget(target)
                return [node]
            small = full = value = node.value = ast.List([k for k in kept if k is not None], ast.Load())
        if isinstance(target, ast.Name):
            self.fresh.discard(target.id)
            self.names.note(target.id, value, small, full)
            if isinstance(value, ast.BinOp) or (isinstance(value, ast.Call) and last_name(value.func) in _FRESH):
                self.fresh.add(target.id)
            return [] if target.id in self.names.light else [node]
        if isinstance(target, ast.Attribute) and is_self(target.value) and not self.forward:
            if self.seen.stores.get(target.attr) == 1 and not self.seen.odd:
                self.made.note(target.attr, small, small, full)
                if layers_of(value) is not None:
                    self.made.full[target.attr] = value
                    self.lists[target.attr] = node
            return [node]
        self.forget(target)
        return [node]

    def augmented(self, node: ast.AugAssign, name: str, sign: ast.operator) -> list[ast.stmt]:
        """Rewrites `n *= 2` as an assignment, for a known number or a tensor that no other name shares."""
        target, now = ast.Name(name, ast.Store()), self.names.light.get(name, ast.Name(name, ast.Load()))
        if name in self.names.full or (self.forward and name in self.fresh):
            known = self.names.full.get(name)
            changed = ast.Assign([target], ast.BinOp(copy.deepcopy(now), sign, node.value), lineno=0)
            if known is None:
                changed.value = self.fold(changed.value)
                return [changed]
            return self.assign(changed, target)
        node.value = self.fold(node.value)
        return [node]

    def lasting(self, element: ast.expr, often: Container[str]) -> ast.expr | None:
        """Returns a list's element in a form that is valid where the list is read.

        Replaces names that change before then by their values. Returns None where these are not known, or where the
        element computes on tensors.
        """
        if self.forward:
            return element if is_known(element) else None
        changing = [name for name in names_in(element) if name in often]
        if any(name not in self.names.full for name in changing):
            return None
        return replaced({name: self.names.full[name] for name in changing}, element)  # type: ignore[no-any-return]

    def append(self, call: ast.expr) -> bool:
        """Evaluates `layers.append(...)` of a list with known elements; returns True where it did."""
        match call:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=how), args=[one], keywords=[]):
                items = self.names.light.get(name)
                if how in ("append", "extend") and isinstance(items, ast.List):
                    new = self.fold(one)
                    if how == "extend" and not isinstance(new, ast.List | ast.Tuple):
                        return False
                    more = new.elts if how == "extend" else [new]  # type: ignore[attr-defined]
                    kept = [self.lasting(element, self.set_often) for element in more]
                    if None in kept:
                        return False
                    longer = ast.List([*items.elts, *(k for k in kept if k is not None)], ast.Load())
                    self.names.note(name, longer, longer, longer)
                    return True
        return False

    def append_layer(self, call: ast.expr) -> bool:
        """Evaluates `self.layers.append(...)`; returns True where it did."""
        match call:
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr=name) as owner, attr="append"), args=[one]):
                made = self.lists.get(name)
                if made is None or not is_self(owner.value) or name not in self.made.full:
                    return False
                container = made.value
                assert isinstance(container, ast.Call)
                new = self.lasting(self.fold(one), self.set_once | self.set_often)
                if not isinstance(new, ast.Call):
                    return False
                if last_name(container.func) == "Sequential":
                    container.args.append(new)
                elif container.args:
                    container.args[0].elts.append(new)  # type: ignore[attr-defined]
                else:
                    container.args.append(ast.List([new], ast.Load()))
                self.made.full[name] = container
                return True
        return False

    def rounds(self, iterated: ast.expr) -> list[ast.expr] | None:
        """Returns a loop variable's value per round; None where they are not known or too many."""
        found = self.elements(self.full(iterated))
        if found is None or len(found) > MAX_ROUNDS or self.seen.rounds + len(found) > MAX_WRITTEN:
            return None
        self.seen.rounds += len(found)
        return found

    def elements(self, node: ast.expr) -> list[ast.expr] | None:
        """Returns the elements of a list, a list of layers, or enumerate, zip, reversed of them; None if unknown."""
        if isinstance(node, ast.Tuple | ast.List) and not any(isinstance(e, ast.Starred) for e in node.elts):
            return list(node.elts)
        if isinstance(node, ast.Attribute) and is_self(node.value):
            layers = layers_of(self.made.full.get(node.attr))
            return None if layers is None else [self._layer(node, i) for i in range(len(layers))]
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            inner, bounds = self.elements(node.value), (node.slice.lower, node.slice.upper, node.slice.step)
            if inner is not None and all(b is None or is_value(b) for b in bounds):
                return inner[slice(*(None if b is None else value_of(b) for b in bounds))]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            parts = [self.elements(a) for a in node.args]
            if node.func.id == "reversed" and len(parts) == 1 and parts[0] is not None:
                return parts[0][::-1]
            if node.func.id == "enumerate" and len(parts) == 1 and parts[0] is not None:
                return [ast.Tuple([written(i), e], ast.Load()) for i, e in enumerate(parts[0])]
            if node.func.id == "zip" and parts and all(p is not None for p in parts):
                return [ast.Tuple(list(row), ast.Load()) for row in zip(*parts, strict=False)]  # type: ignore[arg-type]
        return None

    def _layer(self, layers: ast.expr, number: int) -> ast.expr:
        return ast.Subscript(copy.deepcopy(layers), written(number), ast.Load())

    def round(self, given: list[tuple[str, ast.expr]], body: list[ast.stmt]) -> list[ast.stmt]:
        """Returns the statements of one round of a loop with the given values of its names."""
        for name, value in given:
            self.names.set(name, value)
        return self.run(copy.deepcopy(body))

    def forget(self, node: ast.AST) -> None:
        """Drops the values that a statement may set, and the layers of lists that it may change."""
        for inner in ast.walk(node):
            called = inner.func if isinstance(inner, ast.Call) else inner
            if isinstance(called, ast.Attribute) and is_self(called.value) and called.attr in self.seen.methods:
                for name in self.lists:
                    self.made.drop(name)
                self.lists.clear()
            if isinstance(called, ast.Attribute | ast.Subscript) and is_attribute(called.value):
                if called is not inner or not isinstance(called.ctx, ast.Load):
                    name = called.value.attr  # type: ignore[attr-defined]
                    self.made.drop(name)
                    self.lists.pop(name, None)
            if isinstance(inner, ast.Name) and not isinstance(inner.ctx, ast.Load):
                self.names.drop(inner.id)
                self.fresh.discard(inner.id)

    def fold(self, node: Any) -> Any:
        """Folds known values into an expression or statement, in place, except sizes."""
        return _FoldedExpressions(self, "light").visit(node)

    def full(self, node: ast.expr) -> ast.expr:
        """Returns a copy of an expression with all known values folded in."""
        return self.known(node, "full")

    def known(self, node: ast.expr, kind: str) -> ast.expr:
        """Returns a copy of an expression with one kind of values folded in."""
        return _FoldedExpressions(self, kind).visit(copy.deepcopy(node))  # type: ignore[no-any-return]


class _FoldedExpressions(ast.NodeTransformer):
    """Replaces names and attributes by known values, and evaluates constant expressions."""

    def __init__(self, body: _Body, kind: str) -> None:
        self.body, self.kind = body, kind
        self.hidden: set[str] = set()
        self.depth = 0

    def visit_Name(self, node: ast.Name) -> ast.expr:
        known = self.body.names.of(self.kind)
        if node.id not in known or node.id in self.hidden or not isinstance(node.ctx, ast.Load):
            return node
        return copy.deepcopy(known[node.id])

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        known = self.body.made.of("small" if self.kind == "light" and self.body.forward else self.kind)
        value = known.get(node.attr) if is_self(node.value) else None
        if value is None or not isinstance(node.ctx, ast.Load) or not is_known(value):
            return node
        return copy.deepcopy(value)

    def visit_List(self, node: ast.List) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load):
            node.elts = [part for one in node.elts for part in spread_out(one)]
        return node

    def visit_Tuple(self, node: ast.Tuple) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load):
            node.elts = [part for one in node.elts for part in spread_out(one)]
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        test = self.body.full(node.test)
        if is_value(test):
            return self.visit(node.body if value_of(test) else node.orelse)  # type: ignore[no-any-return]
        self.generic_visit(node)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        if all(map(is_value, node.values)):
            values = [value_of(v) for v in node.values]
            both = isinstance(node.op, ast.And)
            return written(next((v for v in values if bool(v) != both), values[-1]))
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        bound = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and not loaded(n)}
        return self._inside(node, bound | {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)})  # type: ignore[no-any-return]

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        return self._inside(node, {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)})

    def _inside(self, node: Any, names: set[str]) -> Any:
        before = self.hidden
        self.hidden = before | names
        self.generic_visit(node)
        self.hidden = before
        return node

    def _comprehension(self, node: Any) -> ast.expr:
        if len(node.generators) == 1:
            (one,) = node.generators
            rounds = self.body.rounds(copy.deepcopy(one.iter)) if not one.is_async else None
            if rounds is not None:
                try:
                    return ast.List(list(self._rounds(node.elt, one, rounds)), ast.Load())
                except UnknownValue:
                    pass
        return self._inside(node, {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and not loaded(n)})  # type: ignore[no-any-return]

    visit_ListComp = visit_GeneratorExp = _comprehension

    def _rounds(self, element: ast.expr, one: ast.comprehension, rounds: list[ast.expr]) -> Iterator[ast.expr]:
        outer = self.body.names
        try:
            for value in rounds:
                given = matched(one.target, value)
                if given is None:
                    raise UnknownValue
                self.body.names = outer.copy()
                for name, part in given:
                    self.body.names.set(name, part)
                tests = [self.body.full(test) for test in one.ifs]
                if not all(map(is_value, tests)):
                    raise UnknownValue
                if all(map(value_of, tests)):
                    yield self.visit(copy.deepcopy(element))
        finally:
            self.body.names = outer

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.value, ast.Dict) and is_value(node.slice):
            return entry(node.value, value_of(node.slice)) or node
        if isinstance(node.value, ast.Dict):
            key = self.body.full(node.slice)
            return (entry(node.value, value_of(key)) if is_value(key) else None) or node
        if isinstance(node.value, ast.List | ast.Tuple) and is_value(node.slice) and isinstance(node.ctx, ast.Load):
            at = value_of(node.slice)
            if isinstance(at, int) and -len(node.value.elts) <= at < len(node.value.elts):
                return node.value.elts[at]
        return self._computed(self._counted(node))

    def _counted(self, node: ast.Subscript) -> ast.expr:
        """Rewrites a negative index of a list of layers (`self.layers[-1]`) as a positive one."""
        owner = node.value
        made = (
            self.body.made.full.get(owner.attr) if isinstance(owner, ast.Attribute) and is_self(owner.value) else None
        )
        layers = layers_of(made)
        if layers is not None and is_value(node.slice) and isinstance(node.ctx, ast.Load):
            at = value_of(node.slice)
            if type(at) is int and -len(layers) <= at < 0:
                node.slice = written(at + len(layers))
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        lists = [v.elts for v in (node.left, node.right) if isinstance(v, ast.List)]
        if isinstance(node.op, ast.Add) and len(lists) == 2 and sum(map(len, lists)) <= MAX_WRITTEN:
            return ast.List([*lists[0], *lists[1]], ast.Load())
        return self._computed(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        return self._computed(node)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        return self._computed(node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        node.args = [part for one in node.args for part in spread_out(one)]
        node.keywords = [k for one in node.keywords for k in spelled(one)]
        helped = self._helped(node)
        if helped is not None:
            return helped
        match node:
            case ast.Call(func=ast.Name(id="getattr"), args=[root, ast.Constant(value=str(name))]):
                if isinstance(root, ast.Name) and root.id in ROOTS:
                    return ast.Attribute(root, name, ast.Load())
            case ast.Call(func=ast.Attribute(value=ast.Dict() as table, attr="get"), args=[key, *rest]) if is_value(
                key
            ):
                return entry(table, value_of(key)) or (rest[0] if rest else written(None))
        layers = self._sequential(node.func)
        if layers is not None and len(node.args) == 1 and not node.keywords:
            return chained(node.func, layers, node.args[0])
        return self._computed(node)

    def _sequential(self, called: ast.expr) -> list[ast.expr] | None:
        """Returns the layers of a Sequential that is called in forward."""
        if not self.body.forward or not isinstance(called, ast.Attribute) or not is_self(called.value):
            return None
        made = self.body.made.full.get(called.attr)
        return layers_of(made) if isinstance(made, ast.Call) and last_name(made.func) == "Sequential" else None

    def _helped(self, node: ast.Call) -> ast.expr | None:
        """Returns a one-expression helper's result with its arguments inlined; None where that is not possible."""
        helper = self.body.helpers.get(node.func.id) if isinstance(node.func, ast.Name) else None
        if helper is None or len(helper.body) != 1 or helper.decorator_list or self.depth > 4:
            return None
        (statement,) = helper.body
        names, defaults = [a.arg for a in helper.args.args], helper.args.defaults
        if not isinstance(statement, ast.Return) or statement.value is None or len(node.args) > len(names):
            return None
        if helper.args.vararg or helper.args.kwarg or helper.args.kwonlyargs or helper.args.posonlyargs:
            return None
        given = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
        given |= dict(zip(names, node.args, strict=False))
        given |= {k.arg: k.value for k in node.keywords if k.arg is not None}
        inner = [n for n in ast.walk(statement.value) if isinstance(n, ast.Lambda | ast.comprehension | ast.NamedExpr)]
        if set(given) != set(names) or inner:
            return None
        read = [n.id for n in ast.walk(statement.value) if isinstance(n, ast.Name)]
        if not all(isinstance(v, ast.Name) or is_known(v) or read.count(n) <= 1 for n, v in given.items()):
            return None  # the argument would be evaluated more than once
        value = replaced(given, statement.value)
        self.depth += 1
        value = self.visit(value)
        self.depth -= 1
        return value  # type: ignore[no-any-return]

    def _computed(self, node: ast.expr) -> ast.expr:
        try:
            value = value_of(node)
        except UnknownValue:
            return node
        return written(float(f"{value:.9g}") if isinstance(value, float) else value)  # float32 has seven digits
