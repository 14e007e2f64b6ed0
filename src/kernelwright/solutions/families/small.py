"""Lowers small operators to simpler ones: tests for infinities, differences, windows as columns."""

from __future__ import annotations

from typing import Any

from kernelwright.solutions.kernels.stages import Writer
from kernelwright.solutions.read.lowering import RULES, call, dims_of, keepdim_of, number, reduce, rule
from kernelwright.solutions.read.reading import Node, Unreadable

INFINITY = "math.inf"


@rule("rsub")
def _reversed_difference(writer: Writer, node: Node) -> Node:
    """Lowers `other - alpha * x`."""
    x, other = node.args
    return call("sub", other, call("mul", x, number(node.option("alpha"))) if node.option("alpha") else x)


@rule("rrelu")
def _leaky_between(writer: Writer, node: Node) -> Node:
    """Lowers `F.rrelu` without training, whose slope is the mean of its bounds."""
    if node.option("training") and writer.option(node, "training"):
        raise Unreadable("no template for rrelu that draws its slopes")
    low, high = node.option("lower") or "1.0 / 8", node.option("upper") or "1.0 / 3"
    return Node("leaky_relu", node.args, options=(("negative_slope", f"(({low}) + ({high})) / 2"),))


@rule("isnan", "isinf", "isfinite")
def _kind_of_number(writer: Writer, node: Node) -> Node:
    x = node.args[0]
    if node.op == "isnan":
        return call("ne", x, x)
    return call("eq" if node.op == "isinf" else "lt", call("abs", x), number(INFINITY))


@rule("any", "all")
def _truth(writer: Writer, node: Node) -> Node:
    """Lowers `any` and `all` to the largest and the least of ones and zeros."""
    x = node.args[0]
    holds = x if writer.kind(x) == "bool" else call("ne", x, number("0.0"))
    ones = call("where", holds, number("1.0"), number("0.0"))
    found = reduce("max" if node.op == "any" else "min", ones, dims_of(writer, node), keepdim_of(writer, node))
    return call("ne", found, number("0.0"))


@rule("logit")
def _logit(writer: Writer, node: Node) -> Node:
    """Bounds the operand of a logit by its option `eps`."""
    eps = node.option("eps")
    if eps in ("", "None"):
        return Node("logit", node.args)
    low = call("maximum", node.args[0], number(eps))
    return call("logit", call("minimum", low, number(f"(1.0 - {eps})")))


@rule("diff")
def _difference(writer: Writer, node: Node) -> Node:
    """Lowers the difference of neighbours along a dimension."""
    if node.option("n") and writer.option(node, "n") != 1:
        raise Unreadable("no template for differences of a higher order")
    x = node.args[0]
    before = ":, " * (_whole(writer, node, "dim", -1) % len(writer.shape(x)))
    return call("sub", *(Node("index", (x,), text=before + part) for part in ("1:", ":-1")))


@rule("softmax2d")
def _softmax_of_channels(writer: Writer, node: Node) -> Node:
    return RULES["softmax"](writer, Node("softmax", node.args, options=(("dim", "-3"),)))


@rule("im2col")
def _windows_as_columns(writer: Writer, node: Node) -> Node:
    """Lowers `F.unfold` of maps (N, C, H, W): windows side by side, as views of the padded map."""
    size, dilation, padding, stride = (
        _pair(writer.option(node, name, default))
        for name, default in (("kernel_size", ""), ("dilation", "1"), ("padding", "0"), ("stride", "1"))
    )
    if dilation != (1, 1) or len(writer.shape(node.args[0])) != 4:
        raise Unreadable("no template for unfold with a dilation, or of one map")
    value = node.args[0]
    if padding != (0, 0):
        sides = (padding[1], padding[1], padding[0], padding[0])
        value = Node("pad", (value,), options=(("pad", repr(sides)),))
    for at in range(2):
        options = (("dim", str(2 + at)), ("size", str(size[at])), ("step", str(stride[at])))
        value = Node("unfold", (value,), options=options)
    value = Node("permute", (value,), options=(("dims", "(0, 1, 4, 5, 2, 3)"),))
    for first, last in ((1, 3), (2, 3)):
        value = Node("flatten", (value,), options=(("start_dim", str(first)), ("end_dim", str(last))))
    return value


def _pair(value: Any) -> tuple[int, int]:
    """Returns one or two whole numbers as two."""
    both = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(both) != 2 or not all(type(v) is int for v in both):
        raise Unreadable(f"no template for windows of {value}")
    return both


def _whole(writer: Writer, node: Node, name: str, default: int) -> int:
    value = writer.option(node, name) if node.option(name) else default
    if type(value) is not int:
        raise Unreadable(f"no template for {name}={value}")
    return value
