"""Reads forward's statements into one expression over inputs, weights and numbers. Raises `Unreadable` with the reason
where it cannot.

Values of attributes and constants stay Python text (`self.eps`, `0.5`) that the candidate evaluates; only the structure
comes from the source. Conditions and loops are followed where the text fixes their course. Sizes of tensors in such
text are written `NAME.shape[i]`, where NAME is an input or a hidden name (`__n0`), which the writer replaces by the
tensor's own name.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from kernelwright.solutions.read import attention, casting, factories, sequences, writing
from kernelwright.solutions.read.aliases import Aliases
from kernelwright.solutions.read.facts import Facts
from kernelwright.solutions.read.interface import Expressions, Value
from kernelwright.solutions.read.names import (
    ARGUMENTS,
    FUNCTIONS,
    MODULES,
    MORE_KEYWORDS,
    RENAMED,
    SPREAD,
    TENSOR_KEYWORDS,
)
from kernelwright.solutions.read.numbers import rewritten
from kernelwright.solutions.read.reading import Node, ReferenceText, Unreadable, dotted
from kernelwright.solutions.read.settling import piece, settled
from kernelwright.tasks.normal_form.layers import ENCODER

_BINARY: dict[type, str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
    ast.Mod: "remainder",
    ast.FloorDiv: "floor_divide",
    ast.BitAnd: "logical_and",
    ast.BitOr: "logical_or",
    ast.BitXor: "logical_xor",
}
_COMPARE: dict[type, str] = {
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Eq: "eq",
    ast.NotEq: "ne",
}
_SAME_VALUE = frozenset("contiguous clone detach requires_grad_ cuda cpu".split())
_GIVEN = frozenset(
    "kernel_size stride padding dilation groups eps in_channels out_channels in_features out_features".split()
)
"""Attributes of layers that equal their constructors' arguments."""
_LIBRARIES = ("torch", "F", "nn")
MOST_TURNS = 32
"""Loops of more rounds are not unrolled."""


def expression(reference: ReferenceText, facts: Facts) -> Node:
    """Returns the value that forward returns; several values in a node `tuple`. Raises `Unreadable`."""
    reader = ForwardReader(reference, facts)
    values: dict[str, Value] = {name: Node("input", text=name) for name in reference.inputs}
    given = reference.forward.args
    for argument, default in zip(given.args[::-1], given.defaults[::-1], strict=False):
        if argument.arg not in facts.inputs:
            values[argument.arg] = reader.value(default, {})
    try:
        found = reader.run(reference.forward.body, values, "self.")
    except RecursionError as error:
        raise Unreadable("forward is nested too deeply") from error
    if isinstance(found, (tuple, list)):
        return Node("tuple", tuple(_node(v) for v in found))
    return _node(found)


def _node(value: Value) -> Node:
    if isinstance(value, Node):
        return value
    if isinstance(value, tuple) and len(value) == 2:  # a pair (values, indices) used as a tensor
        raise Unreadable("a pair where a tensor is needed")
    raise Unreadable("forward returns nothing")


class ForwardReader(Expressions):
    """Follows the statements of forward.

    `scope` is the text that `self.` stands for; a block within the model has its own.
    """

    def __init__(self, reference: ReferenceText, facts: Facts) -> None:
        self.reference, self.facts = reference, facts
        self.scope = "self."
        self.depth = 0
        self.aliases = Aliases()

    # Statements --------------------------------------------------------------------------------------------------

    def run(self, body: Sequence[ast.stmt], values: dict[str, Value], scope: str) -> Value:
        """Returns the value that a function's body returns."""
        self.depth += 1
        if self.depth > 12:
            raise Unreadable("functions call one another too deeply")
        before, self.scope = (self.scope, self.aliases), scope
        self.aliases = Aliases(body, self.aliases.items)  # a function has names of its own
        try:
            returned = self._statements(body, values)
        finally:
            before[1].items = self.aliases.items
            (self.scope, self.aliases), self.depth = before, self.depth - 1
        if returned is None:
            raise Unreadable("forward returns nothing")
        return returned[0]

    def _statements(self, body: Sequence[ast.stmt], values: dict[str, Value]) -> tuple[Value] | None:
        for statement in body:
            if isinstance(statement, ast.Return) and statement.value is not None:
                return (self.value(statement.value, values),)
            returned = self._statement(statement, values)
            if returned is not None:
                return returned
        return None

    def _statement(self, statement: ast.stmt, values: dict[str, Value]) -> tuple[Value] | None:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            return None
        if isinstance(statement, (ast.Pass, ast.Assert)):
            return None
        if isinstance(statement, ast.Assign):
            value = self.value(statement.value, values)
            self.aliases.assigned(statement)
            for target in statement.targets:
                self.bind(target, value, values)
            return None
        if isinstance(statement, ast.AnnAssign) and statement.value is not None:
            self.bind(statement.target, self.value(statement.value, values), values)
            return None
        if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Subscript):
            old = ast.Subscript(statement.target.value, statement.target.slice, ast.Load())
            self.bind(statement.target, self.value(ast.BinOp(old, statement.op, statement.value), values), values)
            return None
        if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            writing.check_alone(self, statement.target.id, values)
            load = ast.Name(statement.target.id, ast.Load())
            values[statement.target.id] = self.value(ast.BinOp(load, statement.op, statement.value), values)
            return None
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            self._in_place(statement.value, values)
            return None
        if isinstance(statement, ast.If):
            taken = statement.body if self._truth(statement.test, values) else statement.orelse
            return self._statements(taken, values)
        if isinstance(statement, ast.For) and not statement.orelse:
            return self._loop(statement, values)
        raise Unreadable(f"forward has a statement that no template reads: {ast.unparse(statement)[:60]}")

    def bind(self, target: ast.expr, value: Value, values: dict[str, Value]) -> None:
        if isinstance(target, ast.Name):
            values[target.id] = value
            if isinstance(value, Node) and self.depth == 1:
                self.reference.named.setdefault(value, target.id)
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts = self._parts(value, len(target.elts))
            for one, part in zip(target.elts, parts, strict=True):
                self.bind(one, part, values)
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name) and target.value.id in values:
            values[target.value.id] = writing.put(self, target, _node(value), values)
        else:
            raise Unreadable(f"forward assigns to {ast.unparse(target)}")

    def _parts(self, value: Value, count: int) -> Sequence[Value]:
        if isinstance(value, Node) and value.op == "number":  # the sizes of a tensor
            return [Node("number", text=f"{value.text}[{i}]") for i in range(count)]
        if isinstance(value, Node) and value.op != "tuple":  # a tensor unpacks along its first dimension
            rows = value if value.op in ("split", "unbind") else Node("unbind", (value,))
            return [piece(rows, i) for i in range(count)]
        if not isinstance(value, (tuple, list)) or len(value) != count:
            raise Unreadable(f"forward takes {count} values from something else")
        return value

    def _in_place(self, call: ast.Call, values: dict[str, Value]) -> None:
        """Follows `x.relu_()` as a statement of its own."""
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if sequences.grown(self, call, values):
            return
        if isinstance(owner, ast.Name) and owner.id in values and call.func.attr.endswith("_"):  # type: ignore[attr-defined]
            writing.check_alone(self, owner.id, values)
            values[owner.id] = self.value(call, values)
        elif dotted(call.func) != "print":
            raise Unreadable(f"forward has a statement that no template reads: {ast.unparse(call)[:60]}")

    def layers(self, node: ast.expr) -> list[str] | None:
        """Returns the paths of the layers in a list of layers; None for any other expression."""
        return self.reference.lists.get(self._path(node))

    def _loop(self, statement: ast.For, values: dict[str, Value]) -> tuple[Value] | None:
        items = sequences.items(self, statement.iter, values)
        if len(items) > MOST_TURNS:
            raise Unreadable(f"forward has a loop of {len(items)} turns")
        for item in items:
            self.bind(statement.target, item, values)
            returned = self._statements(statement.body, values)
            if returned is not None:
                return returned
        return None

    def _truth(self, test: ast.expr, values: dict[str, Value]) -> bool:
        if isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and len(test.ops) == 1:
            value = values.get(test.left.id)
            if isinstance(test.ops[0], (ast.Is, ast.IsNot)) and isinstance(value, Node):
                none = value.op == "number" and value.text == "None"
                return none == isinstance(test.ops[0], ast.Is)
        return bool(self.known(test, values))

    def known(self, node: ast.expr, values: dict[str, Value]) -> Any:
        """Returns the Python value of an expression that the text fixes. Raises `Unreadable`."""
        return self.facts.value(self.text(node, values))

    # Expressions -------------------------------------------------------------------------------------------------

    def value(self, node: ast.expr, values: dict[str, Value]) -> Value:
        """Returns the value of an expression. Raises `Unreadable`."""
        if isinstance(node, ast.Name):
            return values[node.id] if node.id in values else Node("number", text=node.id)
        if isinstance(node, ast.Constant):
            return Node("number", text=repr(node.value))
        if isinstance(node, (ast.Tuple, ast.List)):
            return tuple(self.value(one, values) for one in node.elts)
        if isinstance(node, ast.UnaryOp):
            return self._unary(node, values)
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            left, right = self.tensor(node.left, values), self.tensor(node.right, values)
            if left.op == right.op == "number":
                return Node("number", text=f"({self.text(node, values)})")
            return Node(_BINARY[type(node.op)], (left, right))
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARE:
            pair = (self.tensor(node.left, values), self.tensor(node.comparators[0], values))
            return Node(_COMPARE[type(node.ops[0])], pair)
        if isinstance(node, ast.IfExp):
            return self.value(node.body if self._truth(node.test, values) else node.orelse, values)
        if isinstance(node, ast.Call):
            return self._call(node, values)
        if isinstance(node, ast.Subscript):
            return self._subscript(node, values)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, values)
        if isinstance(node, ast.ListComp | ast.GeneratorExp):
            return sequences.comprehension(self, node, values)
        raise Unreadable(f"forward has {ast.unparse(node)[:60]}")

    def tensor(self, node: ast.expr, values: dict[str, Value]) -> Node:
        """Returns the value of an expression that is a tensor or a number."""
        return _node(self.value(node, values))

    def _unary(self, node: ast.UnaryOp, values: dict[str, Value]) -> Node:
        inner = self.tensor(node.operand, values)
        if isinstance(node.op, ast.USub):
            return Node("number", text=f"-{inner.text}") if inner.op == "number" else Node("neg", (inner,))
        if isinstance(node.op, ast.Invert):
            return Node("logical_not", (inner,))
        raise Unreadable(f"forward has {ast.unparse(node)[:60]}")

    def _path(self, node: ast.expr) -> str:
        """Returns the path of the layer that an expression names, as in `ReferenceText.modules`; or ""."""
        text = ast.unparse(node)
        if not text.startswith("self."):
            return ""
        return (self.scope + text.removeprefix("self.")).removeprefix("self.")

    def _attribute(self, node: ast.Attribute, values: dict[str, Value]) -> Value:
        name = dotted(node)
        of_tensor = node.attr in ("T", "mT", "shape", "ndim", "device", "dtype", "data")
        if name.startswith("self.") and not of_tensor:
            path = self._path(node)
            if path in self.reference.tensors:
                return Node("tensor", text=f"self.{path}")
            owner, _, last = path.rpartition(".")
            if owner in self.reference.modules and last in ("weight", "bias", "running_mean", "running_var"):
                return Node("tensor", text=f"self.{path}")
            if path in self.reference.modules:
                raise Unreadable(f"forward uses the layer self.{path} as a value")
            method = self._own_method(path)
            if method is None:
                return Node("number", text=f"self.{path}")
            if "property" not in [dotted(d) for d in method.decorator_list]:
                raise Unreadable(f"forward uses the method self.{path} as a value")
            return self.run(method.body, {}, self.scope)
        if name in ("math.pi", "math.e", "torch.pi", "math.inf", "torch.inf"):
            return Node("number", text=name.replace("torch.", "math."))
        if name.startswith("torch."):
            return Node("number", text=name)
        if node.attr in ("shape", "ndim", "device", "dtype"):
            return Node("number", text=self.text(node, values))
        if (layer := self._layer_of(node.value, values)) and node.attr in _GIVEN:
            return Node("number", text=f"self.{layer}.{node.attr}")
        inner = self.value(node.value, values)
        if node.attr == "data":
            return inner
        if isinstance(inner, tuple) and node.attr in ("values", "indices", "min", "max"):
            return inner[0 if node.attr in ("values", "min") else 1]
        if node.attr in ("T", "mT"):
            return Node("transpose", (_node(inner),))
        raise Unreadable(f"forward has {ast.unparse(node)[:60]}")

    def _subscript(self, node: ast.Subscript, values: dict[str, Value]) -> Value:
        inner = self.value(node.value, values)
        if isinstance(inner, tuple):
            index = self.known(node.slice, values)
            if not isinstance(index, int) or not -len(inner) <= index < len(inner):
                raise Unreadable(f"forward has {ast.unparse(node)[:60]}")
            return inner[index]
        if inner.op == "number":
            return Node("number", text=self.text(node, values))
        if inner.op in ("split", "unbind") and isinstance(index := self.known(node.slice, values), int) and index >= 0:
            return piece(inner, index)
        return self._indexed(inner, node.slice, values)

    def _indexed(self, inner: Node, index: ast.expr, values: dict[str, Value]) -> Node:
        """Returns `x[:, 1:]`, `x[..., None]`: integers, slices, ellipsis and None."""
        parts = index.elts if isinstance(index, ast.Tuple) else [index]
        whole = all(isinstance(p, ast.Slice) and p.lower is p.upper is p.step is None for p in parts[:-1])
        if whole and not isinstance(parts[-1], (ast.Slice, ast.Constant)) and self._is_tensor(parts[-1], values):
            chosen = self.tensor(parts[-1], values)
            return Node("index_select", (inner, chosen), options=(("dim", str(len(parts) - 1)),))
        for part in parts:
            if isinstance(part, ast.Slice) or isinstance(part, ast.Constant):
                continue
            if self.tensor(part, values).op != "number":
                raise Unreadable(f"no template for an index of tensors: {ast.unparse(index)[:40]}")
        return Node("index", (inner,), text=", ".join(self.text(p, values) for p in parts))

    # Calls -------------------------------------------------------------------------------------------------------

    def _call(self, node: ast.Call, values: dict[str, Value]) -> Value:
        name = dotted(node.func)
        parts = name.split(".")
        if (found := self._of_self(node, values)) is not None:
            return found
        if isinstance(node.func, ast.Name) and isinstance(values.get(name), tuple) and values[name][0] == "layer":
            return self._layer(values[name][1], node, values)
        if name == "sum" and len(node.args) == 1:
            return sequences.added(self, node.args[0], values)
        if parts[0] == "math" or name in ("float", "int", "len", "range", "tuple", "list", "bool"):
            return Node("number", text=self.text(node, values))
        if isinstance(node.func, ast.Name) and (function := self._function(name)) is not None:
            return self._inline(function, node, values, self.scope, function.args.args)
        if parts[0] in _LIBRARIES and len(parts) > 1:
            return self._library(parts, node, values)
        if isinstance(node.func, ast.Attribute):
            return self._method(node.func.attr, node.func.value, node, values)
        raise Unreadable(f"no template for {ast.unparse(node.func)[:50]}")

    def _of_self(self, node: ast.Call, values: dict[str, Value]) -> Value:
        """Returns the value of a call of a layer, a block, or a method of the model; None for other calls."""
        if not ast.unparse(node.func).startswith("self."):
            return None
        path = self._path(node.func)
        if path in self.reference.modules or path in self.reference.lists or path in self.reference.blocks:
            return self._layer(path, node, values)
        method = self._own_method(path)
        if method is None:
            return None
        static = "staticmethod" in [dotted(d) for d in method.decorator_list]
        return self._inline(method, node, values, self.scope, method.args.args[0 if static else 1 :])

    def _own_method(self, path: str) -> ast.FunctionDef | None:
        """Returns a method of the class whose forward is read, by its path."""
        if path.count(".") != self.scope.count(".") - 1:
            return None
        owner = self.reference.blocks.get(self.scope.removeprefix("self.").removesuffix("."), self.reference.model)
        return _method_of(owner, path.rpartition(".")[2])

    def _layer_of(self, node: ast.expr, values: dict[str, Value]) -> str:
        """Returns the path of the layer that an attribute or a loop's variable names; or ""."""
        if isinstance(node, ast.Name):
            value = values.get(node.id)
            return str(value[1]) if isinstance(value, tuple) and len(value) == 2 and value[0] == "layer" else ""
        path = self._path(node)
        return path if path in self.reference.modules else ""

    def _function(self, name: str) -> ast.FunctionDef | None:
        return next((n for n in self.reference.tree.body if isinstance(n, ast.FunctionDef) and n.name == name), None)

    def _inline(
        self, function: ast.FunctionDef, node: ast.Call, values: dict[str, Value], scope: str, names: list[ast.arg]
    ) -> Value:
        """Returns the value of a call of a function of the same file."""
        inside: dict[str, Value] = {}
        for argument, default in zip(names[::-1], function.args.defaults[::-1], strict=False):
            inside[argument.arg] = self.value(default, {})
        for argument, given in zip(names, node.args, strict=False):
            inside[argument.arg] = self.value(given, values)
        for keyword in node.keywords:
            if keyword.arg is None:
                raise Unreadable("forward passes **keywords")
            inside[keyword.arg] = self.value(keyword.value, values)
        return self.run(function.body, inside, scope)

    def _layer(self, path: str, node: ast.Call, values: dict[str, Value]) -> Value:
        """Returns the value of a call of a layer, of layers in a row, or of a block."""
        kind = self.reference.modules.get(path, ("",))[0]
        if kind in (attention.KIND, ENCODER):
            return (attention.multihead if kind == attention.KIND else attention.encoder)(self, path, node, values)
        operands = [self.value(a, values) for a in node.args]
        operands += [self.value(k.value, values) for k in node.keywords]
        return self._through(path, operands)

    def _through(self, path: str, operands: list[Value]) -> Value:
        if path in self.reference.lists:
            value = operands[0]
            for layer in self.reference.lists[path]:
                value = self._through(layer, [value])
            return value
        if path in self.reference.blocks:
            forward = _method_of(self.reference.blocks[path], "forward")
            if forward is None:
                raise Unreadable(f"self.{path} has no forward")
            names = [a.arg for a in forward.args.args[1:]]
            inside = dict(zip(names, operands, strict=False))
            return self.run(forward.body, inside, f"self.{path}.")
        return self.module(path, operands)

    def module(self, path: str, operands: list[Value]) -> Value:
        kind = self.reference.modules[path][0]
        if kind not in MODULES:
            raise Unreadable(f"no template for nn.{kind}")
        op, attributes = MODULES[kind]
        pairs = [a.partition(":") for a in attributes]
        options = tuple((new or old, f"self.{path}.{old}") for old, _, new in pairs)
        if op == "identity":
            return operands[0]
        args = tuple(_node(v) for v in operands)
        if op == "prelu":
            return Node("prelu", (*args, Node("tensor", text=f"self.{path}.weight")))
        return settled(self.facts, Node(op, args, f"self.{path}", options))

    def _library(self, parts: list[str], node: ast.Call, values: dict[str, Value]) -> Value:
        """Returns the value of torch.f(...), F.f(...), torch.linalg.f(...)."""
        last = parts[-1]
        special = f"{parts[-2]}.{last}"
        found = FUNCTIONS.get(special) or FUNCTIONS.get(last) or FUNCTIONS.get(last.rstrip("_"))
        if last in factories.FACTORIES and (node.args or node.keywords):
            return factories.made(self, last, node, values)
        if last in factories.LIKE and node.args:
            return factories.like(self, last, node, values)
        if last == "tensor" and node.args:
            return self.tensor(node.args[0], values)
        if found is None:
            raise Unreadable(f"no template for {'.'.join(parts)}")
        return self._operator(found, list(node.args), node, values)

    def _method(self, name: str, owner: ast.expr, node: ast.Call, values: dict[str, Value]) -> Value:
        """Returns the value of x.f(...)."""
        if name in ("size", "dim", "numel", "ndimension", "nelement"):
            return Node("number", text=self.text(node, values))
        inner = self.value(owner, values)
        if isinstance(inner, tuple):
            raise Unreadable(f"no template for {ast.unparse(node.func)[:50]}")
        if name in ("float", "to", "type_as", "half", "bfloat16", "double"):
            return casting.cast(self, name, inner, node, values)
        if name in _SAME_VALUE:
            return inner
        if name in ("t", "adjoint"):
            return Node("transpose", (inner,))
        if name in ("bool",):
            return Node("ne", (inner, Node("number", text="0.0")))
        if name in factories.NEW:
            return factories.new(self, name, node, values)
        found = FUNCTIONS.get(name) or FUNCTIONS.get(name.rstrip("_"))
        if found is None:
            raise Unreadable(f"no template for {ast.unparse(node.func)[:50]}")
        return self._operator(found, [owner, *node.args], node, values)

    def _operator(self, op: str, args: list[ast.expr], node: ast.Call, values: dict[str, Value]) -> Value:
        if op == "einsum":
            factors = tuple(self.tensor(a, values) for a in args[1:])
            return Node("einsum", factors, options=(("equation", ast.unparse(args[0])),))
        if op == "where" and isinstance(node.func, ast.Attribute) and not dotted(node.func).startswith("torch."):
            args = [args[1], args[0], *args[2:]]  # x.where(condition, other)
        keywords = list(node.keywords)
        if not args:  # torch.f(input=x)
            args = [k.value for k in keywords if k.arg in ("input", "tensors", "self")][:1]
            keywords = [k for k in keywords if k.arg not in ("input", "tensors", "self")]
        if not args:
            raise Unreadable(f"no template for {ast.unparse(node)[:50]}")
        first = self.value(args[0], values)
        operands: list[Node] = list(first) if isinstance(first, tuple) and op in ("cat", "stack") else [_node(first)]
        options = self._arguments(op, operands, args[1:], keywords, values)
        if op == "scatter":
            return factories.scattered(self, operands, options.get("dim", "0"))
        if "dtype" in options:
            operands[0] = casting.accumulated(self, op, operands[0], options.pop("dtype"), values)
        return settled(self.facts, Node(op, tuple(operands), options=tuple(sorted(options.items()))))

    def _arguments(
        self,
        op: str,
        operands: list[Node],
        args: list[ast.expr],
        keywords: list[ast.keyword],
        values: dict[str, Value],
    ) -> dict[str, str]:
        """Fills in the tensors after the first, and returns the options as text."""
        if op in SPREAD:
            given = args or [k.value for k in keywords]
            whole = given[0] if len(given) == 1 else ast.Tuple(given, ast.Load())
            text = self.text(whole, values)
            return {SPREAD[op]: text}
        if op in ("var", "std", "var_mean", "std_mean") and args and isinstance(args[0], ast.Constant):
            if isinstance(args[0].value, bool):
                return {"unbiased": ast.unparse(args[0])}
        names = list(ARGUMENTS.get(op, ()))
        if op in ("max", "min") and len(args) == 1 and (_made(args[0]) or self._is_tensor(args[0], values)):
            names = ["*other"]
        if len(args) > len(names):
            raise Unreadable(f"no template for the arguments of {op}")
        options: dict[str, str] = {}
        tensors: dict[int, Node] = {}
        for i, (name, given_) in enumerate(zip(names, args, strict=False)):
            if name.startswith("*"):
                tensors[i] = self.tensor(given_, values)
            else:
                options[name] = self.text(given_, values)
        for keyword in keywords:
            self._keyword(op, keyword, names, tensors, options, values)
        starred = [i for i, name in enumerate(names) if name.startswith("*")]
        last = max(tensors, default=-1)
        operands += [tensors.get(i, Node("number", text="None")) for i in starred if i <= last]
        return options

    def _keyword(
        self,
        op: str,
        keyword: ast.keyword,
        names: list[str],
        tensors: dict[int, Node],
        options: dict[str, str],
        values: dict[str, Value],
    ) -> None:
        if keyword.arg is None:
            raise Unreadable("forward passes **keywords")
        name = RENAMED.get(keyword.arg, keyword.arg) if op not in ("roll", "interpolate") else keyword.arg
        name = keyword.arg if keyword.arg in names or f"*{keyword.arg}" in names else name
        if name in ("inplace", "out"):
            return
        if f"*{name}" in names:
            tensors[names.index(f"*{name}")] = self.tensor(keyword.value, values)
        elif name in TENSOR_KEYWORDS and "*" in names and name not in names:
            free = next(i for i, n in enumerate(names) if n == "*" and i not in tensors)
            tensors[free] = self.tensor(keyword.value, values)
        elif op in ("max", "min") and name == "other":
            names.insert(0, "*other")
            tensors[0] = self.tensor(keyword.value, values)
        elif name in names or name in MORE_KEYWORDS:
            options[name] = self.text(keyword.value, values)
        else:  # it may change what is computed
            raise Unreadable(f"no template for {op} with {keyword.arg}")

    def _is_tensor(self, node: ast.expr, values: dict[str, Value]) -> bool:
        value = self.value(node, values)
        return isinstance(value, Node) and value.op != "number"

    def text(self, node: ast.expr, values: dict[str, Value]) -> str:
        """Returns a number, tuple or slice as Python text that the candidate can evaluate. Raises `Unreadable`."""
        return rewritten(node, self, values)

    def shape_name(self, node: Node) -> str:
        """Returns a name whose `.shape` is the tensor's."""
        if node.op == "input":
            return node.text
        for name, known in self.reference.hidden.items():
            if known == node:
                return name
        name = f"__n{len(self.reference.hidden)}"
        self.reference.hidden[name] = node
        return name


def _method_of(owner: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next((n for n in owner.body if isinstance(n, ast.FunctionDef) and n.name == name), None)


def _made(node: ast.expr) -> bool:
    """Tells whether an expression makes a tensor of a number: `torch.tensor(0.5)`."""
    return isinstance(node, ast.Call) and dotted(node.func).split(".")[-1] in ("tensor", "as_tensor", "new_tensor")
