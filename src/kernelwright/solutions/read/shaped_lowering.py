"""Lowers products in their many spellings to `matmul`, elementwise operators, reductions and views; also attention."""

from __future__ import annotations

from kernelwright.solutions.kernels.stages import Writer
from kernelwright.solutions.read.declared import Shape
from kernelwright.solutions.read.factories import placed
from kernelwright.solutions.read.lowering import call, number, reduce, rule
from kernelwright.solutions.read.reading import Node, Unreadable

_WINDOWED = ("conv", "conv_transpose", "max_pool", "avg_pool", "lp_pool", "adaptive_avg_pool", "adaptive_max_pool")


def unsqueezed(x: Node, dim: int) -> Node:
    """Adds a dimension of size one."""
    return Node("unsqueeze", (x,), options=(("dim", str(dim)),))


def permuted(x: Node, dims: tuple[int, ...]) -> Node:
    """Permutes dimensions; returns the operand itself where nothing changes."""
    if dims == tuple(range(len(dims))):
        return x
    return Node("permute", (x,), options=(("dims", repr(dims)),))


@rule("conv", "convtranspose", *(f"{kind}{d}d" for kind in _WINDOWED for d in (1, 2, 3)))
def one_example(writer: Writer, node: Node) -> Node:
    """Treats a tensor without a batch as a batch of one."""
    x, *more = node.args
    named = node.op if node.op.endswith("d") else writer.reference.modules[node.text.removeprefix("self.")][0]
    if len(writer.shape(x)) != int(named[-2]) + 1:
        return node
    return Node(
        "squeeze", (Node(node.op, (unsqueezed(x, 0), *more), node.text, node.options),), options=(("dim", "0"),)
    )


@rule("mv", "inner")
def _matrix_vector(writer: Writer, node: Node) -> Node:
    a, b = node.args
    if node.op == "inner" and len(writer.shape(b)) > 1:
        b = Node("transpose", (b,))
    return call("matmul", a, b)


@rule("dot")
def _dot(writer: Writer, node: Node) -> Node:
    return reduce("sum", call("mul", *node.args), (0,), False)


@rule("outer")
def _outer(writer: Writer, node: Node) -> Node:
    return call("mul", unsqueezed(node.args[0], 1), node.args[1])


@rule("matmul", "mm", "bmm")
def _matmul(writer: Writer, node: Node) -> Node:
    """Turns a product with a diagonal matrix into a scaling of rows or columns, and a product of two vectors into a
    sum."""
    a, b = node.args
    if a.op == "diag" and len(writer.shape(a.args[0])) == 1:
        d = a.args[0]
        return call("mul", d if len(writer.shape(b)) == 1 else unsqueezed(d, 1), b)
    if b.op == "diag" and len(writer.shape(b.args[0])) == 1:
        return call("mul", a, b.args[0])
    if len(writer.shape(a)) == len(writer.shape(b)) == 1:
        return reduce("sum", call("mul", a, b), (0,), False)
    return node


@rule("unsqueeze", "index")
def _spread_range(writer: Writer, node: Node) -> Node:
    """Keeps a range a range when dimensions of size one are added around it."""
    x = node.args[0]
    if x.op != "arange":
        return node
    at, rank = int(x.option("at") or "0"), int(x.option("rank") or "1")
    if node.op == "unsqueeze":
        dim = int(writer.option(node, "dim")) % (rank + 1)
        return Node("arange", options=placed(x.options, at + (dim <= at), rank + 1))
    parts = node.text.replace(" ", "").split(",")
    if rank > 1 or sorted(set(parts)) not in ([":", "None"], ["...", "None"]) or len(parts) - parts.count("None") != 1:
        return node
    return Node("arange", options=placed(x.options, next(i for i, p in enumerate(parts) if p != "None"), len(parts)))


@rule("scatter")
def _scatter(writer: Writer, node: Node) -> Node:
    """Scatters one value a row: every element compares its index with the row's."""
    base, index, value = node.args
    rank = len(writer.shape(index))
    dim = int(writer.option(node, "dim")) % rank
    if writer.shape(index)[dim] != 1 or (value.op != "number" and len(writer.shape(value)) not in (0, rank)):
        raise Unreadable("no template for a scatter of several values a row")
    options = (("end", f"{node.option('sizes')}[{dim}]"), ("start", "0"), ("step", "1"))
    here = Node("arange", options=placed(options, dim, rank))
    return call("where", call("eq", here, index), value, base)


@rule("one_hot")
def _one_hot(writer: Writer, node: Node) -> Node:
    """Returns ones at the indexed places, in a new last dimension."""
    index = node.args[0]
    rank = len(writer.shape(index)) + 1
    options = (("end", node.option("num_classes")), ("start", "0"), ("step", "1"))
    if not node.option("num_classes"):
        raise Unreadable("no template for one_hot without a number of classes")
    here = Node("arange", options=placed(options, rank - 1, rank))
    return call("where", call("eq", unsqueezed(index, -1), here), number("1.0"), number("0.0"))


@rule("embedding")
def _by_range(writer: Writer, node: Node) -> Node:
    """Turns rows of a table, selected by a range of numbers, into a slice of the table."""
    index = node.args[0]
    if index.op != "arange" or index.option("rank") or index.option("step") not in ("", "1"):
        return node
    table = Node("tensor", text=f"{node.text}.weight") if node.text else node.args[1]
    return Node("index", (table,), text=f"{index.option('start') or '0'}:{index.option('end')}")


@rule("index_select")
def _rows_by_number(writer: Writer, node: Node) -> Node:
    """Turns `table[indices]`, with indices of several dimensions, into an embedding."""
    table, index = node.args
    if len(writer.shape(index)) == 1:
        return node
    if writer.option(node, "dim") != 0 or len(writer.shape(table)) > 2:
        raise Unreadable("no template for an index of several dimensions")
    if len(writer.shape(table)) == 1:
        column = Node("unsqueeze", (table,), options=(("dim", "-1"),))
        return Node("squeeze", (call("embedding", index, column),), options=(("dim", "-1"),))
    return call("embedding", index, table)


@rule("addmm", "baddbmm", "addmv")
def _added(writer: Writer, node: Node) -> Node:
    """Returns beta * c + alpha * a @ b."""
    c, a, b = node.args
    product = call("matmul", a, b)
    alpha, beta = node.option("alpha", "1"), node.option("beta", "1")
    if alpha not in ("1", "1.0"):
        product = call("mul", product, number(alpha))
    if beta not in ("1", "1.0"):
        c = call("mul", c, number(beta))
    return call("add", product, c)


@rule("einsum")
def _einsum(writer: Writer, node: Node) -> Node:
    """Contracts tensors two at a time by `_contracted`; letters of one tensor alone are summed first."""
    equation = str(writer.option(node, "equation")).replace(" ", "")
    operands, arrow, out = equation.partition("->")
    parts = operands.split(",")
    if "..." in equation or len(parts) != len(node.args):
        raise Unreadable(f"no template for einsum {equation!r}")
    if any(len(set(part)) != len(part) for part in (*parts, out)):
        raise Unreadable(f"no template for einsum {equation!r}: a letter twice")
    if not arrow:
        out = "".join(sorted(c for c in set(operands) - {","} if operands.count(c) == 1))
    terms = []
    for x, part in zip(node.args, parts, strict=True):
        alone = [c for c in part if c not in out and sum(c in other for other in parts) == 1]
        if alone:
            x = reduce("sum", x, tuple(part.index(c) for c in alone), False)
        terms.append((x, "".join(c for c in part if c not in alone)))
    while len(terms) > 2:
        (a, left), (b, right), *rest = terms
        later = {*out, *(c for _, part in rest for c in part)}
        kept = "".join(c for c in dict.fromkeys(left + right) if c in later)
        terms = [(_contracted(writer, a, b, left, right, kept), kept), *rest]
    if len(terms) == 1:
        x, part = terms[0]
        return permuted(x, tuple(part.index(c) for c in out))
    (a, left), (b, right) = terms
    return _contracted(writer, a, b, left, right, out)


def _contracted(writer: Writer, a: Node, b: Node, left: str, right: str, out: str) -> Node:
    """Contracts two tensors: a matrix product where both have letters of their own, else a sum."""
    summed = [c for c in left if c not in out]
    found = _as_matmul(a, b, left, right, out, "".join(summed))
    if found is not None:
        return found
    order = out + "".join(summed)
    product = call("mul", *(_spread(x, part, order) for x, part in ((a, left), (b, right))))
    return reduce("sum", product, tuple(range(len(out), len(order))), False) if summed else product


def _spread(x: Node, letters: str, order: str) -> Node:
    """Returns a tensor with its dimensions in the order of the letters, of size one for missing letters."""
    x = permuted(x, tuple(letters.index(c) for c in order if c in letters))
    leading = True
    for at, c in enumerate(order):
        leading = leading and c not in letters
        if c not in letters and not leading:
            x = unsqueezed(x, at - sum(o not in letters for o in order[:at] if _leads(o, letters, order)))
    return x


def _leads(letter: str, letters: str, order: str) -> bool:
    """Tells whether a letter precedes all letters of a tensor; broadcasting adds such dimensions by itself."""
    return order.index(letter) < min(order.index(c) for c in letters)


def _as_matmul(a: Node, b: Node, left: str, right: str, out: str, summed: str) -> Node | None:
    """Returns a contraction as a matrix product, if it is one."""
    batch = [c for c in out if c in left and c in right]
    rows, columns = [c for c in out if c not in right], [c for c in out if c not in left]
    if len(summed) != 1 or not rows or len(columns) > 1 or (batch and not columns):
        return None
    if columns and out == "".join([*batch, *columns, *rows]) and len(rows) == 1:
        a, b, left, right, rows, columns = b, a, right, left, columns, rows
    if out != "".join([*batch, *rows, *columns]) or (len(rows) > 1 and batch):
        return None
    a = permuted(a, tuple(left.index(c) for c in [*batch, *rows, summed]))
    b = permuted(b, tuple(right.index(c) for c in [*batch, summed, *columns]))
    return call("matmul", a, b)


def _in_one_pass(writer: Writer, node: Node) -> Node | None:
    """Returns attention as one operator, where the schedule and its operands allow it."""
    q, k, v, *masks = node.args
    masks = [mask for mask in masks if mask.op != "number"]
    if writer.schedule.attention != "flash" or writer.option(node, "dropout_p", "0.0") or len(masks) > 1:
        return None
    shapes = [writer.shape(x) for x in (q, k, v)]
    if {writer.floating(x) for x in (q, k, v)} not in ({"half"}, {"bfloat16"}) or not _heads(node, *shapes):
        return None
    causal = writer.option(node, "is_causal", "False")
    if masks:
        low, none = number("-math.inf"), number("0.0")
        if node.option("forbids") and len(writer.shape(masks[0])) != 2:
            return None
        if writer.kind(masks[0]) == "bool":
            masks = [call("where", masks[0], *((low, none) if node.option("forbids") else (none, low)))]
        if writer.kind(masks[0]) not in ("float", "half") or len(writer.shape(masks[0])) not in (2, 4):
            return None
    scale = node.option("scale", "None")
    options = (("scale", scale if scale != "None" else ""), ("causal", "True" if causal else ""))
    return Node("attention", (q, k, v, *masks), options=options)


def _heads(node: Node, q: Shape, k: Shape, v: Shape) -> bool:
    """Tells whether shapes are those of heads of one known size, of at most 256; groups of queries may share keys."""
    if not 2 <= len(q) == len(k) == len(v) <= 4 or k != v or not 0 < q[-1] == k[-1] <= 256:
        return False
    lead, shared = q[:-2], k[:-2]
    if len(q) == 4 and node.option("enable_gqa") not in ("", "False"):
        return lead[0] == shared[0] and 0 < shared[1] and lead[1] % shared[1] == 0
    return lead == shared


@rule("scaled_dot_product_attention")
def _attention(writer: Writer, node: Node) -> Node:
    """Returns softmax(q @ k.T / sqrt(d) + mask) @ v."""
    if (whole := _in_one_pass(writer, node)) is not None:
        return whole
    q, k, v, *masks = node.args
    if writer.option(node, "dropout_p", "0.0") or node.option("enable_gqa"):
        raise Unreadable("no template for attention with dropout or grouped queries")
    scores = call("matmul", q, Node("transpose", (k,)))
    if node.option("scale", "None") != "None":
        scores = call("mul", scores, number(node.option("scale")))
    else:
        scores = call("div", scores, call("sqrt", Node("size", (q,), "-1")))
    for mask in masks:
        if mask.op == "number":
            continue
        if node.option("forbids") and len(writer.shape(mask)) != 2:
            raise Unreadable("no template for a layer's mask of each head")
        low = number("-math.inf")
        if writer.kind(mask) != "bool":
            scores = call("add", scores, mask)
        elif node.option("forbids"):  # as a layer's mask does
            scores = call("where", mask, low, scores)
        else:
            scores = call("where", mask, scores, low)
    if writer.option(node, "is_causal", "False"):
        scores = call("causal", scores)
    dims = (len(writer.shape(scores)) - 1,)
    shifted = call("exp", call("sub", scores, reduce("max", scores, dims, True)))
    return call("matmul", call("div", shifted, reduce("sum", shifted, dims, True)), v)
