"""Expresses `nn.MultiheadAttention` and a transformer's encoder layer by linear layers, norms, views and attention."""

from __future__ import annotations

import ast
from typing import Any

from kernelwright.solutions.read.interface import Expressions
from kernelwright.solutions.read.reading import Node, Unreadable

KIND = "MultiheadAttention"
_PARAMETERS = "query key value key_padding_mask need_weights attn_mask average_attn_weights is_causal".split()


def multihead(reader: Expressions, path: str, node: ast.Call, values: dict[str, Any]) -> tuple[Any, Any]:
    """Returns the value of a call of the layer: the output, and None for the weights, which no template computes.

    A boolean mask forbids where it is true; another mask is added. Inputs have three dimensions. Raises `Unreadable`.
    """
    given = dict(zip(_PARAMETERS, node.args, strict=False)) | {k.arg: k.value for k in node.keywords if k.arg}
    operands = [reader.tensor(given[name], values) for name in _PARAMETERS[:3] if name in given]
    if len(operands) != 3 or not _plain(given.get("key_padding_mask")):
        raise Unreadable(f"no template for {ast.unparse(node)[:60]}")
    masks = [] if _plain(given.get("attn_mask")) else [reader.tensor(given["attn_mask"], values)]
    return _attended(reader, path, operands, masks), None


def _attended(reader: Expressions, path: str, operands: list[Node], masks: list[Node]) -> Node:
    """Returns the layer's output for a query, a key and a value, with a mask or none."""
    known = reader.facts.attributes
    odd = [n for n in ("add_bias_kv", "add_zero_attn", "kdim", "vdim") if known.get(f"{path}.{n}") not in (None, False)]
    if odd or (known.get(f"{path}.dropout") and known.get(f"{path}.training") is not False):
        raise Unreadable(f"no template for nn.{KIND} with {(*odd, 'dropout')[0]}")
    by_batch = known.get(f"{path}.batch_first") is True
    width, heads = f"self.{path}.embed_dim", f"self.{path}.num_heads"
    parts = []
    for number, operand in enumerate(operands):
        x = operand if by_batch else _permuted(operand, "(1, 0, 2)")
        size = reader.shape_name(operand)
        first, second = (0, 1) if by_batch else (1, 0)
        projected = _linear(reader, x, f"{path}.in_proj", f"{number} * {width}:{number + 1} * {width}")
        shape = f"({size}.shape[{first}], {size}.shape[{second}], {heads}, {width} // {heads})"
        parts.append(_permuted(Node("reshape", (projected,), options=(("shape", shape),)), "(0, 2, 1, 3)"))
    attended = Node("scaled_dot_product_attention", (*parts, *masks), options=(("forbids", "True"),))
    size = reader.shape_name(operands[0])
    shape = f"({size}.shape[{0 if by_batch else 1}], {size}.shape[{1 if by_batch else 0}], {width})"
    joined = Node("reshape", (_permuted(attended, "(0, 2, 1, 3)"),), options=(("shape", shape),))
    result = _linear(reader, joined, f"{path}.out_proj.", "")
    return result if by_batch else _permuted(result, "(1, 0, 2)")


def _plain(node: ast.expr | None) -> bool:
    """Tells whether an argument is absent or None."""
    return node is None or (isinstance(node, ast.Constant) and node.value is None)


def _permuted(x: Node, dims: str) -> Node:
    return Node("permute", (x,), options=(("dims", dims),))


def _linear(reader: Expressions, x: Node, name: str, rows: str) -> Node:
    """Returns a linear layer with weights `NAME_weight`, or `NAME.weight` where `name` ends in a point; some of its
    rows."""
    names = [f"{name}{kind}" if name.endswith(".") else f"{name}_{kind}" for kind in ("weight", "bias")]
    weights = [Node("tensor", text=f"self.{n}") for n in names if n in reader.facts.tensors]
    if not weights:
        raise Unreadable(f"the text does not give the shape of self.{names[0]}")
    cut = [Node("index", (w,), text=rows) if rows else w for w in weights]
    return Node("linear", (x, *cut))


def encoder(reader: Expressions, path: str, node: ast.Call, values: dict[str, Any]) -> Node:
    """Returns the value of a call of an encoder layer. Raises `Unreadable` for masks and other activations."""
    known = reader.facts.attributes
    activation = str(known.get(f"{path}.activation")).rpartition(".")[2]
    if len(node.args) != 1 or node.keywords or activation not in ("relu", "gelu"):
        raise Unreadable(f"no template for {ast.unparse(node)[:60]} with {activation}")
    x = reader.tensor(node.args[0], values)
    first = known.get(f"{path}.norm_first") is True

    def attended(x: Node) -> Node:
        return _attended(reader, f"{path}.self_attn", [x, x, x], [])

    def fed(x: Node) -> Node:
        return _module(reader, f"{path}.linear2", Node(activation, (_module(reader, f"{path}.linear1", x),)))

    for name, inner in (("norm1", attended), ("norm2", fed)):
        if first:
            x = Node("add", (x, inner(_module(reader, f"{path}.{name}", x))))
        else:
            x = _module(reader, f"{path}.{name}", Node("add", (x, inner(x))))
    return x


def _module(reader: Expressions, path: str, x: Node) -> Node:
    return reader.module(path, [x])  # type: ignore[no-any-return]
