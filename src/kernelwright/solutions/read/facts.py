"""Reads the facts that a task's text declares: sizes and dtypes of inputs and weights, values of attributes.

Evaluates module constants, `get_init_inputs`, the constructor and `get_inputs` with `declared`; runs nothing. Unknown
values are absent, never guessed: asking for one raises `Unreadable`. Sizes are the declared ones. A kernel may build in
only the number of dimensions and the dimensions of size one, because a task is also judged at other sizes.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from kernelwright import syntax
from kernelwright.solutions.read.declared import (
    DTYPES,
    Declared,
    NotDeclared,
    Shape,
    Sizes,
    assign,
    dtype,
    evaluate,
    or_none,
    thing,
    value_or,
)
from kernelwright.solutions.read.names import MODULE_ARGUMENTS
from kernelwright.solutions.read.reading import (
    CHANGES,
    ReferenceText,
    Unreadable,
    assigned,
    bare_layer,
    contained,
    dotted,
)
from kernelwright.tasks.normal_form.layers import ENCODER, encoder_parts


@dataclass
class Facts:
    """The values that the text fixes; tensors by input name and by attribute (`self.NAME` without `self.`)."""

    constants: dict[str, Any] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)
    constructor: dict[str, Any] = field(default_factory=dict)
    """Values of names and of `self.NAME` within the constructor."""
    inputs: dict[str, Any] = field(default_factory=dict)
    """Input name -> `Declared`, or a Python number."""
    tensors: dict[str, Declared] = field(default_factory=dict)

    def value(self, text: str) -> Any:
        """Returns the value of a Python expression over constants and `self`. Raises `Unreadable` where it is
        unknown."""
        names = self.names()
        if text in names:  # also of layers in a list: `self.layers[0].eps`
            return names[text]
        try:
            return evaluate(syntax.expression(text), names)
        except (NotDeclared, SyntaxError) as error:
            raise Unreadable(f"the text does not fix the value of {text}") from error

    shapes: dict[str, Shape] = field(default_factory=dict)
    """Sizes of tensors by their names in text: inputs, and hidden names that the writer adds."""

    def names(self) -> dict[str, Any]:
        attributes = {f"self.{k}": v for k, v in self.attributes.items()}
        numbers = {k: v for k, v in self.inputs.items() if isinstance(v, (int, float, bool))}
        shapes = {f"{k}.shape": Sizes(v) for k, v in self.shapes.items()}
        return {**self.constants, **attributes, **numbers, **shapes}


def read_facts(reference: ReferenceText) -> Facts:
    """Returns the facts that a task's text declares."""
    facts = Facts()
    functions = {n.name: n for n in reference.tree.body if isinstance(n, ast.FunctionDef)}
    for node in reference.tree.body:
        assign(node, facts.constants)
    for node in reference.model.body:  # attributes of the class
        for target, value in assigned(node):
            if isinstance(target, ast.Name) and (known := or_none(value, facts.constants)) is not None:
                facts.attributes[target.id] = known
    methods = {n.name: n for n in reference.model.body if isinstance(n, ast.FunctionDef)}
    if "__init__" in methods:
        given = _returned(functions["get_init_inputs"], facts.constants) if "get_init_inputs" in functions else []
        _read_constructor(methods["__init__"], given, facts, reference)
    if "get_inputs" in functions:
        values = _returned(functions["get_inputs"], facts.constants)
        facts.inputs = {n: v for n, v in zip(reference.inputs, values, strict=False) if v is not None}
        facts.shapes = {n: v.shape for n, v in facts.inputs.items() if isinstance(v, Declared)}
    return facts


def _returned(function: ast.FunctionDef, constants: dict[str, Any]) -> list[Any]:
    """Returns the items of the list that a function without parameters returns; None for unknown items."""
    names = dict(constants)
    for statement in function.body:
        assign(statement, names)
        if isinstance(statement, ast.Return) and statement.value is not None:
            items = _items(statement.value, names)
            if isinstance(statement.value, ast.Name) and isinstance(names.get(statement.value.id), (list, tuple)):
                return list(names[statement.value.id])
            return [or_none(item, own) for item, own in items]
    return []


def _items(node: ast.expr, names: dict[str, Any]) -> list[tuple[ast.expr, dict[str, Any]]]:
    """Returns the expressions of a list's items, each with the names that it may read."""
    if isinstance(node, ast.List | ast.Tuple):
        parts = [_items(e.value, names) if isinstance(e, ast.Starred) else [(e, names)] for e in node.elts]
        return [item for part in parts for item in part]
    if isinstance(node, ast.ListComp) and len(node.generators) == 1 and not node.generators[0].ifs:
        each = node.generators[0]
        found = value_or(each.iter, names, ())
        if isinstance(each.target, ast.Name) and isinstance(found, range | list | tuple):
            return [(node.elt, {**names, each.target.id: value}) for value in found]
    return []


def _read_constructor(init: ast.FunctionDef, given: list[Any], facts: Facts, reference: ReferenceText) -> None:
    """Reads attributes with known values, and parameters and buffers with known shapes."""
    functions = {f"def {n.name}": n for n in reference.tree.body if isinstance(n, ast.FunctionDef)}
    own = {f"self.{k}": v for k, v in facts.attributes.items()}
    names = {**facts.constants, **functions, **own, **_bound(init, [], [], {})}
    for argument, value in zip(init.args.args[1:], given, strict=False):
        names[argument.arg] = value
    _read_body(init, names, facts, reference, "")
    facts.constructor = names


def _read_body(
    init: ast.FunctionDef, names: dict[str, Any], facts: Facts, reference: ReferenceText, prefix: str
) -> None:
    for statement in init.body:
        _check_compound(statement)
        for target, value in assigned(statement):
            if isinstance(target, ast.Attribute) and dotted(target.value) == "self":
                _set_attribute(prefix + target.attr, value, names, facts, reference)
        assign(statement, names)
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            call = statement.value
            changes = isinstance(call.func, ast.Attribute) and call.func.attr in CHANGES
            owner = ast.unparse(call.func.value) if changes else ""  # type: ignore[attr-defined]
            if owner == "self" or owner.startswith("self."):
                _changed(f"{prefix}{owner[5:]}".rstrip("."), call, names, facts, reference)
            if dotted(call.func) == "self.register_buffer" and len(call.args) > 1:
                name = or_none(call.args[0], names)
                _set_attribute(f"{prefix}{name}", call.args[1], names, facts, reference)


def _check_compound(statement: ast.stmt) -> None:
    """Raises `Unreadable` for a loop or condition that changes layers; the normal form may have plain statements
    instead."""
    if isinstance(statement, ast.For | ast.While | ast.If | ast.With | ast.Try):
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _MODES:
                raise Unreadable(f"no template for a constructor with {ast.unparse(node)[:40]} in a loop or condition")


def _set_attribute(name: str, node: ast.expr, names: dict[str, Any], facts: Facts, reference: ReferenceText) -> None:
    if isinstance(node, ast.Call) and _layer(name, node, names, facts, reference):
        return
    try:
        value = thing(node, names)
    except NotDeclared:
        return
    if isinstance(value, Declared):
        facts.tensors[name] = value
    else:
        facts.attributes[name] = value
    names[f"self.{name.rpartition('.')[2]}"] = value


def _changed(path: str, call: ast.Call, names: dict[str, Any], facts: Facts, reference: ReferenceText) -> None:
    """Records the effect of a call such as `self.net.eval()` on all layers below a path; "" is the whole model."""
    method, given = call.func.attr, [*call.args, *(k.value for k in call.keywords)]  # type: ignore[attr-defined]
    if method in ("eval", "train"):
        made = [m for m in reference.modules if f"{m}.dtype" in facts.attributes]  # layers made later are in training
        below = [m for m in made if not path or m == path or m.startswith((f"{path}.", f"{path}["))]
        facts.attributes |= {f"{m}.training": _trains(call, names) for m in below}
    elif method not in _HARMLESS and not (method in ("to", "type") and not any(_is_dtype(a, names) for a in given)):
        raise Unreadable(f"no template for {ast.unparse(call)[:60]}")


def _trains(call: ast.Call, names: dict[str, Any]) -> bool:
    """Tells whether `x.train()`, `x.train(mode)` or `x.eval()` leaves x in training mode."""
    modes = [*call.args, *(k.value for k in call.keywords)]
    return call.func.attr == "train" and all(or_none(m, names) for m in modes)  # type: ignore[attr-defined]


def _is_dtype(node: ast.expr, names: dict[str, Any]) -> bool:
    try:
        return bool(dtype(node, names))
    except NotDeclared:
        return False


_MODES = frozenset("eval train half bfloat16 double".split())
_HARMLESS = frozenset("cuda cpu requires_grad_ float".split())
_IN_HALF = frozenset(
    ["Linear", "LayerNorm", "RMSNorm", "Embedding", *(f"Conv{t}{d}d" for t in ("", "Transpose") for d in (1, 2, 3))]
)
"""Layers whose weights may have half precision; they are read as float32."""


def _layer(name: str, call: ast.Call, names: dict[str, Any], facts: Facts, reference: ReferenceText) -> bool:
    """Records a layer's constructor arguments as `NAME.PARAMETER`, and the shapes of its weights."""
    call, changes = bare_layer(call)
    if name in reference.lists:
        for path, item in zip(reference.lists[name], contained(call), strict=True):
            _layer(path, item, names, facts, reference)
        for change in changes:
            _changed(name, change, names, facts, reference)
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
    if any(k.arg == "return_indices" and ast.unparse(k.value) != "False" for k in call.keywords):
        raise Unreadable(f"no template for {ast.unparse(call)[:60]}")
    if any(k.arg is None for k in call.keywords) or any(isinstance(a, ast.Starred) for a in call.args):
        raise Unreadable(f"no template for {ast.unparse(call)[:60]}")
    parameters = [p.partition("=") for p in MODULE_ARGUMENTS.get(kind, "").split()]
    given: dict[str, Any] = {n: evaluate(syntax.expression(d), {}) for n, _, d in parameters if d}
    for (parameter, _, _), value in zip(parameters, call.args, strict=False):
        given[parameter] = or_none(value, names)
    for keyword in call.keywords:
        given[str(keyword.arg)] = or_none(keyword.value, names)
    kept = [k.value for k in call.keywords if k.arg == "dtype" and ast.unparse(k.value) != "None"]
    for change in changes:
        method = change.func.attr  # type: ignore[attr-defined]
        if method in ("eval", "train"):
            given["training"] = _trains(change, names)
        elif method in ("to", "type"):
            kept += [v for v in (*change.args, *(k.value for k in change.keywords)) if _is_dtype(v, names)]
        elif method in DTYPES:
            kept.append(ast.Constant(method))
    try:
        given["dtype"] = dtype(kept[-1], names) if kept else "float"
    except NotDeclared:
        given["dtype"] = ""
    if given["dtype"] != "float" and (kind not in _IN_HALF or given["dtype"] not in ("half", "bfloat16")):
        raise Unreadable(f"no template for weights of another type in nn.{kind}")
    if kind == ENCODER:
        for part, made in encoder_parts(call).items():
            _layer(f"{name}.{part}", made, names, facts, reference)
            if "training" in given:
                facts.attributes[f"{name}.{part}.training"] = given["training"]
    if kind == "PairwiseDistance":
        given["norm"] = given["p"]  # as the module calls it
    facts.attributes.update({f"{name}.{k}": v for k, v in given.items()})
    _weights(name, kind, given, facts)
    for weight in [k for k in facts.tensors if k.startswith(f"{name}.")]:
        facts.tensors[weight] = Declared(facts.tensors[weight].shape, given["dtype"])
    return True


def _weights(name: str, kind: str, given: dict[str, Any], facts: Facts) -> None:
    """Records the shapes of a layer's weights, where they are known."""
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
    elif kind in ("Embedding", "EmbeddingBag"):
        shape = (given.get("num_embeddings", -1), given.get("embedding_dim", -1))
    elif kind == "MultiheadAttention" and isinstance(width := given.get("embed_dim"), int):
        facts.tensors |= {f"{name}.in_proj_weight": Declared((3 * width, width))}
        facts.tensors |= {f"{name}.out_proj.weight": Declared((width, width))}
        if given.get("bias") is not False:
            facts.tensors |= {f"{name}.in_proj_bias": Declared((3 * width,))}
            facts.tensors |= {f"{name}.out_proj.bias": Declared((width,))}
    if shape is None or not all(isinstance(s, int) for s in shape):
        return
    facts.tensors[f"{name}.weight"] = Declared(shape)
    facts.tensors[f"{name}.bias"] = Declared(shape[:1] if kind == "Linear" else shape)
    if kind.startswith("BatchNorm"):
        facts.tensors[f"{name}.running_mean"] = facts.tensors[f"{name}.running_var"] = Declared(shape)


def _bound(
    init: ast.FunctionDef, args: list[ast.expr], keywords: list[ast.keyword], names: dict[str, Any]
) -> dict[str, Any]:
    """Returns the constructor's parameters by name, from the expressions of a call."""
    parameters = init.args.args[1:]
    found: dict[str, Any] = {}
    for argument, default in zip(parameters[::-1], init.args.defaults[::-1], strict=False):
        found[argument.arg] = or_none(default, {})
    for argument, only in zip(init.args.kwonlyargs, init.args.kw_defaults, strict=True):
        found[argument.arg] = None if only is None else or_none(only, {})
    for argument, value in zip(parameters, args, strict=False):
        found[argument.arg] = or_none(value, names)
    found.update({str(k.arg): or_none(k.value, names) for k in keywords})
    return found
