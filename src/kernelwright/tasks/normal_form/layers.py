"""Finds the layers in containers made by a constructor's text, and writes a call of all in sequence."""

from __future__ import annotations

import ast
import copy

from kernelwright.tasks.normal_form.constants import written


def layers_of(node: ast.expr | None) -> list[ast.expr] | None:
    """Returns the layers of an `nn.Sequential(...)` or `nn.ModuleList([...])`."""
    if not isinstance(node, ast.Call) or node.keywords or last_name(node.func) not in ("Sequential", "ModuleList"):
        return None
    items = node.args
    if last_name(node.func) == "ModuleList" and items:
        if len(items) != 1 or not isinstance(items[0], ast.List | ast.Tuple):
            return None
        items = items[0].elts
    return None if any(isinstance(i, ast.Starred) or not isinstance(i, ast.Call) for i in items) else items


def chained(container: ast.expr, layers: list[ast.expr], value: ast.expr) -> ast.expr:
    """Returns the nested calls of a Sequential's layers, each on the result of the one before."""
    for number, layer in enumerate(layers):
        one = ast.Subscript(copy.deepcopy(container), written(number), ast.Load())
        inner = layers_of(layer) if last_name(layer.func) == "Sequential" else None  # type: ignore[attr-defined]
        value = chained(one, inner, value) if inner is not None else ast.Call(one, [value], [])
    return value


def last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


ENCODER = "TransformerEncoderLayer"
_ENCODER = "d_model nhead dim_feedforward dropout activation layer_norm_eps batch_first norm_first bias".split()


def encoder_parts(call: ast.Call) -> dict[str, ast.Call]:
    """Returns the layers within a transformer encoder layer by name, as its constructor makes them.

    Empty where the call leaves them open.
    """
    given = dict(zip(_ENCODER, call.args, strict=False)) | {str(k.arg): k.value for k in call.keywords}
    width, hidden = given.get("d_model"), given.get("dim_feedforward", ast.Constant(2048))
    if width is None or "nhead" not in given:
        return {}
    bias = [ast.keyword("bias", given["bias"])] if "bias" in given else []
    eps = [ast.keyword("eps", given["layer_norm_eps"])] if "layer_norm_eps" in given else []
    dropped = [ast.keyword("dropout", given.get("dropout", ast.Constant(0.1)))]
    by_batch = [ast.keyword("batch_first", given["batch_first"])] if "batch_first" in given else []
    return {
        "self_attn": _made("MultiheadAttention", [width, given["nhead"]], [*dropped, *by_batch, *bias]),
        "linear1": _made("Linear", [width, hidden], bias),
        "linear2": _made("Linear", [hidden, width], bias),
        **{name: _made("LayerNorm", [width], [*eps, *bias]) for name in ("norm1", "norm2")},
    }


def _made(kind: str, args: list[ast.expr], keywords: list[ast.keyword]) -> ast.Call:
    return ast.Call(ast.Attribute(ast.Name("nn", ast.Load()), kind, ast.Load()), args, keywords)
