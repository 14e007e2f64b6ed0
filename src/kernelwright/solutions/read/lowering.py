"""Lowers composite operators to elementwise ones and `reduce`: softmax, norms, losses, statistics.

A `reduce` node has its kind as text (sum, mean, max, min, prod) and two options: `dims`, the reduced
dimensions as a tuple of non-negative numbers, and `keepdim`, 1 or empty. A `count` node is the number of elements that
its operand is reduced over, minus the number in its text. It belongs to the row that is being reduced.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from kernelwright.solutions.kernels.stages import Writer
from kernelwright.solutions.read.reading import Node, Unreadable
from kernelwright.solutions.read.wholes import whole

Rule = Callable[[Writer, Node], Node]
RULES: dict[str, Rule] = {}
_KINDS = ("sum", "mean", "max", "min", "prod")


def rule(*ops: str) -> Callable[[Rule], Rule]:
    """Registers a function that expresses operators by simpler ones. The operands are lowered already."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(ops, function))
        return function

    return register


def lower(writer: Writer, root: Node) -> Node:
    """Returns the same value in terms of elementwise operators, reductions and anchors."""
    known = writer.lowered
    stack = [root]
    while stack:
        node = stack[-1]
        waiting = [a for a in node.args if a not in known]
        if waiting:
            stack.extend(waiting if writer.schedule.fuse else waiting[::-1])
            continue
        stack.pop()
        args = tuple(known[a] for a in node.args)
        new = node if args == node.args else Node(node.op, args, node.text, node.options)
        known[node] = RULES[new.op](writer, new) if new.op in RULES else new
        if known[node] is not new:
            writer.titles[known[node]] = node.op
        if writer.plan:
            writer.plan.own(node, known[node], args, _dim(writer, new), _rank(writer, known[node]))
        if not writer.schedule.fuse:
            known[node] = writer.apart(known[node])
    return known[root]


def _rank(writer: Writer, node: Node) -> int | None:
    try:
        return len(writer.shape(node))
    except (Unreadable, IndexError):
        return None


def _dim(writer: Writer, node: Node) -> str:
    """Returns "DIM of RANK" for an operator that names one dimension; "" where the text does not fix it."""
    try:
        rank, dim = len(writer.shape(node.args[0])), writer.option(node, "dim") if node.option("dim") else None
    except (Unreadable, IndexError):
        return ""
    return f"{dim % rank} of {rank}" if type(dim) is int and rank else ""


def number(value: object) -> Node:
    return Node("number", text=str(value))


def call(op: str, *args: Node) -> Node:
    return Node(op, args)


def reduce(kind: str, x: Node, dims: tuple[int, ...], keepdim: bool) -> Node:
    """Returns a reduction over given dimensions; dimensions that are not adjacent are moved to the end."""
    return Node("reduce", (x,), kind, (("dims", repr(tuple(sorted(dims)))), ("keepdim", "1" if keepdim else "")))


def dims_of(writer: Writer, node: Node, default: Any = None) -> tuple[int, ...]:
    """Returns the dimensions that an operator works along, from its option `dim`; all of them by default."""
    rank = len(writer.shape(node.args[0]))
    value = writer.option(node, "dim") if node.option("dim") else default
    if value is None or value == () or value == []:
        return tuple(range(rank))
    given = value if isinstance(value, (tuple, list)) else (value,)
    if not all(isinstance(d, int) and -max(rank, 1) <= d < max(rank, 1) for d in given):
        raise Unreadable(f"dim={value} of {rank} dimensions")
    return tuple(sorted({d % rank for d in given})) if rank else ()


def keepdim_of(writer: Writer, node: Node) -> bool:
    return bool(writer.option(node, "keepdim", "False"))


@rule(*_KINDS, "amax", "amin")
def _reduction(writer: Writer, node: Node) -> Node:
    kind = {"amax": "max", "amin": "min"}.get(node.op, node.op)
    return reduce(kind, node.args[0], dims_of(writer, node), keepdim_of(writer, node))


@rule("count_nonzero")
def _count_nonzero(writer: Writer, node: Node) -> Node:
    x = node.args[0]
    counted = x if writer.kind(x) == "bool" else call("ne", x, number("0.0"))
    return reduce("sum", counted, dims_of(writer, node), False)


@rule("softmax", "log_softmax", "softmin")
def _softmax(writer: Writer, node: Node) -> Node:
    x = node.args[0]
    dims = dims_of(writer, node, _implicit_dim(writer, x))
    if node.op == "softmin":
        x = call("neg", x)
    shifted = call("sub", x, reduce("max", x, dims, True))
    exponential = call("exp", shifted)
    total = reduce("sum", exponential, dims, True)
    if node.op == "log_softmax":
        return call("sub", shifted, call("log", total))
    return call("div", exponential, total)


def _implicit_dim(writer: Writer, x: Node) -> int:
    """Returns torch's choice of dimension for a softmax without one."""
    return 0 if len(writer.shape(x)) in (0, 1, 3) else 1


@rule("logsumexp")
def _logsumexp(writer: Writer, node: Node) -> Node:
    x, dims = node.args[0], dims_of(writer, node)
    high = reduce("max", x, dims, True)
    # The maximum is part of a row's value, so it is reduced with the same `keepdim` there.
    total = reduce("sum", call("exp", call("sub", x, high)), dims, keepdim_of(writer, node))
    return call("add", reduce("max", x, dims, keepdim_of(writer, node)), call("log", total))


@rule("norm", "vector_norm")
def _norm(writer: Writer, node: Node) -> Node:
    return _norm_over(writer, node, dims_of(writer, node), keepdim_of(writer, node))


def _norm_over(writer: Writer, node: Node, dims: tuple[int, ...], keepdim: bool) -> Node:
    x = node.args[0]
    p = writer.option(node, "p", "2") if node.option("p") else writer.option(node, "ord", "2")
    p = {"fro": 2, "inf": math.inf, None: 2}.get(p, p)
    if p == 2:
        return call("sqrt", reduce("sum", call("square", x), dims, keepdim))
    if p == 1:
        return reduce("sum", call("abs", x), dims, keepdim)
    if p in (math.inf, -math.inf):
        return reduce("max" if p > 0 else "min", call("abs", x), dims, keepdim)
    if not isinstance(p, (int, float)) or p == 0:
        raise Unreadable(f"no template for the norm of order {p}")
    power = number(node.option("p") or node.option("ord"))
    total = reduce("sum", call("pow", call("abs", x), power), dims, keepdim)
    return call("pow", total, number(f"(1.0 / {power.text})"))


@rule("normalize")
def _normalize(writer: Writer, node: Node) -> Node:
    size = _norm_over(writer, node, dims_of(writer, node, 1), True)
    return call("div", node.args[0], call("maximum", size, number(node.option("eps") or "1e-12")))


@rule("var", "std")
def _variance(writer: Writer, node: Node) -> Node:
    x, dims = node.args[0], dims_of(writer, node)
    less = writer.option(node, "correction") if node.option("correction") else None
    if less is None:
        less = 0 if node.option("unbiased") and not writer.option(node, "unbiased") else 1
    squares = call("square", call("sub", x, reduce("mean", x, dims, True)))
    keepdim = keepdim_of(writer, node)
    if less == 0:
        value = reduce("mean", squares, dims, keepdim)
    else:
        counted = Node("count", (x,), str(less), (("dims", repr(dims)),))
        value = call("div", reduce("sum", squares, dims, keepdim), counted)
    return value if node.op == "var" else call("sqrt", value)


@rule("prelu")
def _prelu(writer: Writer, node: Node) -> Node:
    """Gives PReLU one slope for all values, or one for each channel (dimension 1)."""
    x, weight = node.args
    rank, shape = len(writer.shape(x)), writer.shape(weight)
    if shape == (1,) or rank <= 2 or len(shape) != 1:
        return node
    return Node("prelu", (x, Node("reshape", (weight,), options=(("shape", repr((-1,) + (1,) * (rank - 2))),))))


@rule("clamp")
def _clamp(writer: Writer, node: Node) -> Node:
    x = node.args[0]
    for op, name in (("maximum", "min"), ("minimum", "max")):
        bound = node.option(name, "None")
        if bound != "None":
            weight = bound.startswith("self.") and bound.removeprefix("self.") in writer.facts.tensors
            x = call(op, x, Node("tensor", text=bound) if weight else number(bound))
    return x


# Losses --------------------------------------------------------------------------------------------------------------


def over_all(writer: Writer, node: Node, value: Node, batch: Node | None = None) -> Node:
    """Reduces a loss's elementwise values by its option `reduction`."""
    reduction = node.option("reduction") or "'mean'"
    way = writer.option(node, "reduction", "'mean'") if not reduction.startswith("self.") else _way(writer, reduction)
    dims = tuple(range(len(writer.shape(value))))
    if way == "none":
        return value
    if way in ("mean", "sum"):
        return reduce(str(way), value, dims, False)
    if way == "batchmean":
        return call("div", reduce("sum", value, dims, False), Node("size", (batch or value,), "0"))
    raise Unreadable(f"no template for reduction={way}")


def _way(writer: Writer, text: str) -> str:
    """Returns `self.NAME.reduction` of a layer, from the call that made the layer."""
    name = text.split(".")[1]
    if name in writer.reference.modules:
        for keyword in writer.reference.modules[name][1].keywords:
            if keyword.arg == "reduction":
                import ast

                return str(writer.facts.value(ast.unparse(keyword.value)))
        return "mean"
    return str(writer.facts.value(text))


@rule("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
def _regression(writer: Writer, node: Node) -> Node:
    difference = call("sub", node.args[0], node.args[1])
    if node.op == "mse_loss":
        return over_all(writer, node, call("square", difference))
    size = call("abs", difference)
    if node.op == "l1_loss":
        return over_all(writer, node, size)
    edge, half = number(node.option("beta" if node.op == "smooth_l1_loss" else "delta") or "1.0"), number("0.5")
    near = call("mul", half, call("square", difference))
    far = call("sub", size, call("mul", half, edge))
    if node.op == "smooth_l1_loss":
        near = call("div", near, edge) if edge.text != "1.0" else near
    else:
        far = call("mul", edge, far) if edge.text != "1.0" else far
    return over_all(writer, node, call("where", call("lt", size, edge), near, far))


@rule("kl_div")
def _kl_div(writer: Writer, node: Node) -> Node:
    given, target = node.args[:2]
    if node.option("log_target") and writer.option(node, "log_target"):
        value = call("mul", call("exp", target), call("sub", target, given))
    else:
        inside = call("mul", target, call("sub", call("log", target), given))
        value = call("where", call("gt", target, number("0.0")), inside, number("0.0"))
    return over_all(writer, node, value, target)


@rule("binary_cross_entropy")
def _bce(writer: Writer, node: Node) -> Node:
    p, t = node.args[:2]
    floor = number("-100.0")
    yes = call("mul", t, call("maximum", call("log", p), floor))
    no = call("mul", call("sub", number("1.0"), t), call("maximum", call("log1p", call("neg", p)), floor))
    value = call("neg", call("add", yes, no))
    return over_all(writer, node, call("mul", node.args[2], value) if len(node.args) > 2 else value)


@rule("binary_cross_entropy_with_logits")
def _bce_with_logits(writer: Writer, node: Node) -> Node:
    x, t = node.args[:2]
    tail = call("log1p", call("exp", call("neg", call("abs", x))))
    value = call("add", call("sub", call("relu", x), call("mul", x, t)), tail)
    return over_all(writer, node, call("mul", node.args[2], value) if len(node.args) > 2 else value)


@rule("soft_margin_loss")
def _soft_margin(writer: Writer, node: Node) -> Node:
    x, t = node.args[:2]
    return over_all(writer, node, call("log1p", call("exp", call("neg", call("mul", t, x)))))


@rule("hinge_embedding_loss")
def _hinge_embedding(writer: Writer, node: Node) -> Node:
    x, t = node.args[:2]
    far = call("relu", call("sub", number(node.option("margin") or "1.0"), x))
    return over_all(writer, node, call("where", call("eq", t, number("1.0")), x, far))


@rule("margin_ranking_loss")
def _margin_ranking(writer: Writer, node: Node) -> Node:
    a, b, t = node.args[:3]
    value = call("add", call("mul", call("neg", t), call("sub", a, b)), number(node.option("margin") or "0.0"))
    return over_all(writer, node, call("relu", value))


@rule("poisson_nll_loss")
def _poisson(writer: Writer, node: Node) -> Node:
    x, t = node.args[:2]
    if node.option("log_input") and not writer.option(node, "log_input"):
        eps = number(node.option("eps") or "1e-8")
        value = call("sub", x, call("mul", t, call("log", call("add", x, eps))))
    else:
        value = call("sub", call("exp", x), call("mul", t, x))
    if node.option("full") and writer.option(node, "full"):
        raise Unreadable("no template for poisson_nll_loss with full=True")
    return over_all(writer, node, value)


@rule("gaussian_nll_loss")
def _gaussian(writer: Writer, node: Node) -> Node:
    x, t, variance = node.args[:3]
    if node.option("full") and writer.option(node, "full"):
        raise Unreadable("no template for gaussian_nll_loss with full=True")
    kept = call("maximum", variance, number(node.option("eps") or "1e-06"))
    square = call("div", call("square", call("sub", x, t)), kept)
    return over_all(writer, node, call("mul", number("0.5"), call("add", call("log", kept), square)))


@rule("cosine_similarity")
def _cosine(writer: Writer, node: Node) -> Node:
    return cosine(writer, node.args[0], node.args[1], dims_of(writer, node, 1), node.option("eps") or "1e-08")


def cosine(writer: Writer, a: Node, b: Node, dims: tuple[int, ...], eps: str) -> Node:
    """Returns the cosine of the angle between rows."""
    product = reduce("sum", call("mul", a, b), dims, False)
    sizes = [call("maximum", call("sqrt", reduce("sum", call("square", x), dims, False)), number(eps)) for x in (a, b)]
    return call("div", product, call("mul", *sizes))


@rule("cosine_embedding_loss")
def _cosine_embedding(writer: Writer, node: Node) -> Node:
    a, b, t = node.args[:3]
    # torch adds a small number to each square here instead of bounding the sizes from below.
    dims = (len(writer.shape(a)) - 1,)
    tiny = number("1e-12")
    squares = [call("add", reduce("sum", call("square", x), dims, False), tiny) for x in (a, b)]
    similar = call("div", reduce("sum", call("mul", a, b), dims, False), call("sqrt", call("mul", *squares)))
    far = call("relu", call("sub", similar, number(node.option("margin") or "0.0")))
    value = call("where", call("eq", t, number("1.0")), call("sub", number("1.0"), similar), far)
    return over_all(writer, node, value)


@rule("pairwise_distance")
def _pairwise_distance(writer: Writer, node: Node) -> Node:
    keepdim = keepdim_of(writer, node)
    return distance(writer, node, node.args[0], node.args[1], node.option("eps") or "1e-06", keepdim)


def distance(writer: Writer, node: Node, a: Node, b: Node, eps: str, keepdim: bool = False) -> Node:
    """Returns the p-norm of a difference of rows, to which torch adds `eps`."""
    gap = call("add", call("sub", a, b), number(eps))
    dims = (len(writer.shape(gap)) - 1,)
    return _norm_over(writer, Node("norm", (gap,), options=node.options), dims, keepdim)


@rule("cdist")
def _cdist(writer: Writer, node: Node) -> Node:
    """Returns the distances between all rows of one tensor and all rows of another."""
    a, b = (Node("unsqueeze", (x,), options=(("dim", d),)) for x, d in zip(node.args, ("-2", "-3"), strict=True))
    gap = call("sub", a, b)
    return _norm_over(writer, Node("norm", (gap,), options=node.options), (len(writer.shape(gap)) - 1,), False)


@rule("triplet_margin_loss")
def _triplet(writer: Writer, node: Node) -> Node:
    anchor, positive, negative = node.args[:3]
    if node.option("swap") and writer.option(node, "swap"):
        raise Unreadable("no template for triplet_margin_loss with swap=True")
    eps = node.option("eps") or "1e-06"
    near = distance(writer, node, anchor, positive, eps)
    far = distance(writer, node, anchor, negative, eps)
    margin = number(node.option("margin") or "1.0")
    return over_all(writer, node, call("relu", call("add", call("sub", near, far), margin)))


# Classification, gates, masks -----------------------------------------------------------------------------------------


@rule("nll_loss")
def _nll(writer: Writer, node: Node) -> Node:
    return _classified(writer, node, call("neg", Node("pick", node.args[:2])))


@rule("cross_entropy")
def _cross_entropy(writer: Writer, node: Node) -> Node:
    x, target = node.args[:2]
    if len(writer.shape(target)) == len(writer.shape(x)):
        raise Unreadable("no template for cross_entropy with probabilities as targets")
    dim = 1 if len(writer.shape(x)) > 1 else 0
    along = (("dim", str(dim)),)
    total = _logsumexp(writer, Node("logsumexp", (x,), options=along))
    value = call("sub", total, Node("pick", (x, target)))
    if node.option("label_smoothing") and writer.option(node, "label_smoothing"):
        share = number(node.option("label_smoothing"))
        even = call("sub", total, reduce("mean", x, (dim,), False))
        rest = call("sub", number("1.0"), share)
        value = call("add", call("mul", rest, value), call("mul", share, even))
    return _classified(writer, node, value)


def _classified(writer: Writer, node: Node, value: Node) -> Node:
    if len(node.args) > 2 or len(writer.shape(node.args[0])) < 2:
        raise Unreadable(f"no template for {node.op} with weights, or of one example")
    if node.option("ignore_index") and writer.option(node, "ignore_index") >= 0:
        raise Unreadable(f"no template for {node.op} with ignore_index")
    return over_all(writer, node, value)


@rule("glu")
def _glu(writer: Writer, node: Node) -> Node:
    dim = node.option("dim") or "-1"
    halves = [
        Node("piece", node.args, options=(("count", "2"), ("dim", dim), ("part", str(part)))) for part in range(2)
    ]
    return call("mul", halves[0], call("sigmoid", halves[1]))


@rule("masked_fill")
def _masked_fill(writer: Writer, node: Node) -> Node:
    return call("where", node.args[1], node.args[2], node.args[0])


@rule("flip")
def _flip(writer: Writer, node: Node) -> Node:
    """Turns a scan between two flips into a scan from the end; flips along several dimensions come one by one."""
    inner = node.args[0]
    dims = dims_of(writer, Node("flip", node.args, options=(("dim", node.option("dims")),)))
    if inner.op.startswith(("cum", "logcum")) and len(dims) == 1 and inner.args[0].op == "flip":
        rank = len(writer.shape(node))
        along = tuple(writer.option(n, name) for n, name in ((inner, "dim"), (inner.args[0], "dims")))
        flat = [d[0] if isinstance(d, (tuple, list)) and len(d) == 1 else d for d in along]
        if all(isinstance(d, int) and d % rank == dims[0] for d in flat) and not inner.option("reverse"):
            return Node(inner.op, inner.args[0].args, options=(("dim", str(dims[0])), ("reverse", "1")))
    value = inner
    for d in dims:
        value = Node("flip", (value,), options=(("dims", node.option("dims") if len(dims) == 1 else str(d)),))
    return value


@rule("cumsum")
def _cumsum(writer: Writer, node: Node) -> Node:
    """Turns a running sum of values shifted by one element, with a leading zero, into an exclusive running sum."""
    moved = node.args[0]
    if moved.op != "cat" or len(moved.args) != 2 or moved.args[0].op != "constant":
        return node
    first, rest = moved.args
    dim = dims_of(writer, node)
    start = rest.option("start") if rest.op == "narrow" else ""
    if start != "0" or dims_of(writer, moved, 0) != dim or dims_of(writer, rest) != dim or float(first.text) != 0.0:
        return node
    shape, x = writer.shape(moved), rest.args[0]
    if writer.shape(first)[dim[0]] != 1 or shape != writer.shape(x) or -1 in shape:
        return node
    return Node("exclusive_cumsum", (x,), options=(("dim", str(dim[0])),))


@rule("unsqueeze")
def _unsqueeze(writer: Writer, node: Node) -> Node:
    """Turns a reduction whose dimension is put back into one with `keepdim`."""
    x = node.args[0]
    at = writer.option(node, "dim")
    rank = len(writer.shape(x)) + 1
    if x.op == "reduce" and not x.option("keepdim") and isinstance(at, int):
        if x.option("dims") == f"({at % rank},)":
            return Node("reduce", x.args, x.text, (("dims", x.option("dims")), ("keepdim", "1")))
    return node


@rule("cast")
def _cast(writer: Writer, node: Node) -> Node:
    """Gives a cast the dtype that its result is rounded to."""
    kind = node.text or writer.floating(node.args[1])
    if not kind and whole(writer, node.args[1]):
        raise Unreadable("no template for a change to whole numbers")
    args = node.args if len({writer.shape(a) for a in node.args}) == 1 else node.args[:1]  # the type alone is wanted
    return Node("cast", args, kind or "float")
