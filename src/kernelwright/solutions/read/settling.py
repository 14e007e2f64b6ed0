"""Resolves calls: options that name another operator, and operators that return several values."""

from __future__ import annotations

import ast
from typing import Any

from kernelwright import syntax
from kernelwright.solutions.read.facts import Facts
from kernelwright.solutions.read.reading import Node, Unreadable

_PAIRS = {"max": "argmax", "min": "argmin", "cummax": "cummax_indices", "cummin": "cummin_indices"}


def settled(facts: Facts, node: Node) -> Any:
    """Returns the operator that a call's options name, or its several values."""
    op = node.op
    if op == "gelu":
        return Node("gelu_tanh" if "tanh" in _option(facts, node, "approximate") else "gelu", node.args)
    if op in ("max", "min") and len(node.args) == 2:
        return Node(f"{op}imum", node.args)
    if op in _PAIRS and (node.option("dim") or op.startswith("cum")):
        return (node, Node(_PAIRS[op], node.args, options=node.options))
    if op == "dropout":
        return _dropout(facts, node)
    if op in ("chunk", "split", "unbind", "var_mean", "std_mean", "aminmax"):
        return _several(facts, node)
    if op == "div" and node.option("rounding_mode"):
        way = _option(facts, node, "rounding_mode")
        return (
            Node(way if way != "floor" else "floor_divide", (Node("div", node.args),))
            if way == "trunc"
            else (Node("floor_divide" if way == "floor" else "div", node.args))
        )
    if op in ("add", "sub") and node.option("alpha"):
        scaled = Node("mul", (node.args[1], Node("number", text=node.option("alpha"))))
        return Node(op, (node.args[0], scaled))
    return node


def _option(facts: Facts, node: Node, name: str) -> str:
    text = node.option(name, "None")
    try:
        return str(facts.value(text))
    except Unreadable:
        return text


def _dropout(facts: Facts, node: Node) -> Node:
    """Returns the operand of a dropout that drops nothing. Raises `Unreadable` for any other dropout."""
    if _option(facts, node, "p") in ("0.0", "0") or _option(facts, node, "training") == "False":
        return node.args[0]
    raise Unreadable("no template for dropout that drops something")


def _several(facts: Facts, node: Node) -> Node | tuple[Node, ...]:
    """Returns the pieces of a tensor along a dimension, or a statistic with its mean."""
    x = node.args[0]
    if node.op in ("var_mean", "std_mean"):
        mean = tuple((k, v) for k, v in node.options if k in ("dim", "keepdim"))
        return (Node(node.op[:3], node.args, options=node.options), Node("mean", node.args, options=mean))
    if node.op == "chunk":
        count = facts.value(node.option("chunks"))
        dim = node.option("dim") or "0"
        return tuple(
            Node("piece", (x,), options=(("count", str(count)), ("dim", dim), ("part", str(i)))) for i in range(count)
        )
    if node.op == "split":
        sizes = syntax.expression(node.option("split_size"))
        known = isinstance(sizes, ast.List | ast.Tuple)
        return tuple(piece(node, i) for i in range(len(sizes.elts))) if known else node  # type: ignore[attr-defined]
    if node.op == "aminmax":
        return (Node("amin", node.args, options=node.options), Node("amax", node.args, options=node.options))
    return node  # unbind


def piece(split: Node, number: int) -> Node:
    """Returns one tensor of a split or unbind, whose number of tensors the text alone does not tell."""
    if split.op == "unbind":
        return Node("select", split.args, options=(("dim", split.option("dim") or "0"), ("index", str(number))))
    options = (("dim", split.option("dim") or "0"), ("part", str(number)), ("sizes", split.option("split_size")))
    return Node("piece", split.args, options=options)
