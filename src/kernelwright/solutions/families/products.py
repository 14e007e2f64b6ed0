"""Matrix products: matmul in every layout and rank, linear layers, einsum of two operands, outer and dot products.

Operands that are views (transposed, batched) are read through their strides. Linear layers have a kernel of their own,
because both of its operands lie by rows along the summed dimension. Sums are float32, also of 16-bit operands.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.solutions.families import half_products
from kernelwright.solutions.families.views import order
from kernelwright.solutions.kernels import skinny, tiles
from kernelwright.solutions.kernels.cost import ProductSizes, best_product
from kernelwright.solutions.kernels.host import add_kernel, add_lines, argument
from kernelwright.solutions.kernels.prepacked import is_attribute, packed_once
from kernelwright.solutions.kernels.schedule import AUTO, HALVES, SKINNY, VECTOR
from kernelwright.solutions.kernels.split import products as split_products
from kernelwright.solutions.kernels.stages import Epilogue, Writer, anchor, shape_rule
from kernelwright.solutions.read import shaped_lowering  # noqa: F401
from kernelwright.solutions.read.declared import Declared, Shape
from kernelwright.solutions.read.reading import Node, Unreadable


@dataclass(frozen=True)
class Operand:
    """A matrix, or a batch of them: Python text of a view, its declared shape, and its layout."""

    text: str
    shape: Shape
    by_rows: bool = True
    half: str = ""
    """C type of 16-bit elements where the schedule reads them without conversion; else empty."""


def operand(writer: Writer, node: Node, half: str = "") -> Operand:
    """Returns a node as an operand; a transposition only changes its strides. `half`: the 16-bit dtype that it has in
    the reference, where kernels are to read it so."""
    if node.op in ("transpose", "permute"):
        inner, dims = operand(writer, node.args[0], half), order(writer, node)
        rank = len(dims)
        if dims == (*range(rank - 2), rank - 1, rank - 2):
            text = f"{inner.text}.T" if rank == 2 else f"{inner.text}.transpose(-2, -1)"
        else:
            text = f"{inner.text}.permute{dims}"
        by_rows = inner.by_rows if dims[-1:] == (rank - 1,) else not inner.by_rows
        return Operand(text, writer.shape(node), by_rows, inner.half)
    if node.op == "unsqueeze":
        inner = operand(writer, node.args[0], half)
        return Operand(f"{inner.text}.unsqueeze({node.option('dim')})", writer.shape(node), inner.by_rows, inner.half)
    shape = writer.shape(node)
    found = writer.facts.inputs.get(node.text) if node.op == "input" else None
    if isinstance(found, Declared) and found.dtype in ("float", half):
        text = f"{node.text}.{half}()" if half else node.text  # exact, also where a float32 copy took its name
        return Operand(text, shape, half=half_products.TYPES.get(half, ""))  # the launch passes its strides
    return Operand(
        f"{writer.tensor(node)}.{half}()" if half else writer.tensor(node),
        shape,
        half=half_products.TYPES.get(half, ""),
    )


def common_half(writer: Writer, *nodes: Node) -> str:
    """Returns the 16-bit dtype of all operands where the schedule reads them so; else empty."""
    wanted = writer.schedule.product in ("tensor", AUTO, *HALVES)
    kinds = {writer.floating(node) for node in nodes}
    return kinds.pop() if wanted and len(kinds) == 1 and kinds <= set(half_products.TYPES) else ""


@shape_rule("matmul", "mm", "bmm")
def product_shape(writer: Writer, node: Node) -> Shape:
    """Returns the shape of torch.matmul."""
    a, b = (writer.shape(x) for x in node.args)
    if not a or not b:
        raise Unreadable("a product of numbers")
    lead = a[:-2] if len(a) >= len(b) else b[:-2]
    return (*lead, *(a[-2:-1]), *(b[-1:] if len(b) > 1 else ()))


@anchor("matmul", "mm", "bmm")
def matmul(writer: Writer, node: Node, epilogue: Epilogue) -> str:
    """Lowers products of two matrices, of batches or of vectors, as torch.matmul takes them."""
    half = common_half(writer, *node.args)
    a, b = (operand(writer, x, half) for x in node.args)
    if len(a.shape) <= 2 and len(b.shape) <= 2:
        return _two_matrices(writer, node, epilogue, a, b)
    if len(b.shape) <= 2:
        return _stacked_rows(writer, node, epilogue, a, b)
    return _batch(writer, node, epilogue, a, b)


def _count(extents: Sequence[int]) -> int:
    """Returns the rows of a product, over all batches; -1 where unknown."""
    return math.prod(extents) if min(extents, default=1) > 0 else -1


def _sizes(a: Shape, b: Shape) -> ProductSizes:
    """Returns the sizes of a product as its kernels take them."""
    rows = a[-2] if len(a) > 1 else 1
    columns = b[-1] if len(b) > 1 else 1
    if len(b) <= 2:
        return ProductSizes(_count(a[:-1]), columns, a[-1])
    batch = tuple(max(p, q) for p, q in zip(a[:-2], b[:-2], strict=False)) if len(a) == len(b) else b[:-2]
    return ProductSizes(rows, columns, a[-1], _count(batch))


def _chosen(writer: Writer, size: ProductSizes, along_k: bool, half: str, kept: bool = False) -> str:
    """Returns the tiling of a product: the schedule's, or the fastest of those that take its operands."""
    wanted = writer.schedule.product or "shared16"
    if half and wanted == AUTO:
        return half_products.best(size)
    if wanted == AUTO or (wanted in HALVES and not half):
        return best_product(size, along_k, kept=kept)
    return "register64" if wanted == "tensor" and not half or wanted in (SKINNY, VECTOR) and half else wanted


_ARGUMENTS = {
    **{name: name for name in ("a", "b", "M", "N", "K")},
    **{f"{x}z": f"{x}.stride(0)" for x in "ab"},
    **{"am": "a.stride(-2)", "ak": "a.stride(-1)", "bk": "b.stride(-2)", "bn": "b.stride(-1)"},
}


def _tiled(
    p: tiles.Product, tiling: str, size: ProductSizes, epilogue: Epilogue, axes: dict[int, str]
) -> tiles.Written:
    if tiling == SKINNY:
        return skinny.product(p, size, epilogue, axes)
    if tiling == VECTOR:
        return skinny.vector(p, epilogue, axes)
    if tiling in half_products.SHAPES:
        return half_products.product(p, tiling, epilogue, axes)
    if tiling in split_products.SHAPES:
        return split_products.product(p, tiling, epilogue, axes)
    return tiles.product(p, tiling, epilogue, axes)


def _write(
    writer: Writer, epilogue: Epilogue, op: str, a: Operand, b: Operand, axes: dict[int, str], index: str, start: str
) -> tuple[str, tiles.Written]:
    """Adds the kernel over strides, with parameters (a, b, y, M, N, K, strides); returns its name and text."""
    strides = ", ".join(f"long long {s}" for s in (["az"] if start else []) + ["am", "ak"])
    strides += ", " + ", ".join(f"long long {s}" for s in (["bz"] if start else []) + ["bk", "bn"])
    kind = a.half or "float"
    p = tiles.Product(
        parameters=f"const {kind}* a, const {kind}* b, float* y, int M, int N, int K, {strides}",
        left=lambda m, k: f"a[{m} * am + {k} * ak]",
        right=lambda k, n: f"b[{k} * bk + {n} * bn]",
        index=index,
        start=start,
        type=kind,
        a_by_rows=a.by_rows,
        b_by_rows=b.by_rows,
        arguments=_ARGUMENTS,
        batched=bool(start),
        matrices=("a, am, ak", "b, bn, bk"),
    )
    size = _sizes(a.shape, b.shape)
    tiling = _chosen(writer, size, not b.by_rows, a.half)
    written = _tiled(p, tiling, size, epilogue, axes)
    return add_kernel(writer, op, written.text), written


@dataclass(frozen=True)
class _Matrices:
    """The Python texts that a product's host lines are made from."""

    left: str
    """View of the left operand as (M, K), or (Z, M, K) for batches."""
    right: str
    sizes: str
    """Assignment of M, K, N (and Z)."""
    shape: str
    """Items of the result's shape."""
    lead: str = ""
    """The tensor that `@lead` in `shape` stands for."""
    batch: str = ""
    """`, Z` where the grid has a third dimension."""


_HOST = """
a, b = @a, @b
@sizes
@y = torch.empty(@shape, device=a.device)
@before
kernels.@name[(@grid), @block](@firsta, b, @y, M, N, K, *a.stride(), *b.stride()@more)
"""


def _two_matrices(writer: Writer, node: Node, epilogue: Epilogue, a: Operand, b: Operand) -> str:
    row, column = len(a.shape) == 1, len(b.shape) == 1
    left = f"{a.text}.unsqueeze(0)" if row else a.text
    right = f"{b.text}.unsqueeze(1)" if column else b.text
    axes = {0: "n" if row else "m", 1: "n"}
    name, written = _write(writer, epilogue, "matmul", a, b, axes, "m * N + n", "")
    shape = {(False, False): "M, N", (True, False): "N", (False, True): "M", (True, True): "()"}[row, column]
    return _launch(writer, epilogue, written, name, _Matrices(left, right, "(M, K), N = a.shape, b.shape[1]", shape))


def _stacked_rows(writer: Writer, node: Node, epilogue: Epilogue, a: Operand, b: Operand) -> str:
    """Lowers a tensor times a matrix or vector: the tensor's rows, stacked, times the matrix."""
    left = a.text if len(a.shape) == 2 else f"{a.text}.flatten(0, -2)"
    column = len(b.shape) == 1
    right = f"{b.text}.unsqueeze(1)" if column else b.text
    rank = len(a.shape) - column
    stacked = Operand(left, a.shape, a.by_rows, a.half)
    name, written = _write(writer, epilogue, "matmul", stacked, b, {rank - 1: "m" if column else "n"}, "m * N + n", "")
    shape = "@lead.shape[:-1]" if column else "*@lead.shape[:-1], N"
    matrices = _Matrices(left, right, "(M, K), N = a.shape, b.shape[1]", shape, a.text)
    return _launch(writer, epilogue, written, name, matrices)


def _batch(writer: Writer, node: Node, epilogue: Epilogue, a: Operand, b: Operand) -> str:
    """Lowers products of batches, broadcast against each other; the result's batch is blockIdx.z."""
    if len(a.shape) == 1:
        raise Unreadable("no template for a vector times a batch of matrices")
    rank = max(len(a.shape), len(b.shape))
    left, right = a.text, b.text
    known = a.shape[:-2] == b.shape[:-2] and len(a.shape) == len(b.shape)
    plain = known and rank == 3
    if not plain:
        if known:
            lead = "@lead.shape[:-2]"
        else:
            lead = "batch"
            add_lines(writer, "batch = torch.broadcast_shapes(@a.shape[:-2], @b.shape[:-2])", a=a.text, b=b.text)
        wide = "" if known else ".expand(*batch, -1, -1)"
        left, right = (f"{x.text}{wide}.flatten(0, -3)" for x in (a, b))
    axes = {rank - 2: "m", rank - 1: "n", **({0: "blockIdx.z"} if rank == 3 else {})}
    start = "a += blockIdx.z * az;\nb += blockIdx.z * bz;"
    name, written = _write(writer, epilogue, "bmm", a, b, axes, "(blockIdx.z * (long long)M + m) * N + n", start)
    shape = "Z, M, N" if plain else f"*{lead}, M, N"
    matrices = _Matrices(left, right, "(Z, M, K), N = a.shape, b.shape[2]", shape, a.text, ", Z")
    return _launch(writer, epilogue, written, name, matrices)


def _launch(writer: Writer, epilogue: Epilogue, written: tiles.Written, name: str, of: _Matrices) -> str:
    """Adds the host lines of a product and returns the Python name of its result."""
    y = writer.result()
    marks = {"a": of.left, "b": of.right, "y": y, "name": name, "block": written.block, "lead": of.lead}
    template = _HOST.replace("@sizes", of.sizes).replace("@shape", of.shape).replace("@grid", written.grid + of.batch)
    before = (written.before + written.right.replace("@device", "@y.device").lstrip("\n")).lstrip("\n")
    template = template.replace("@before\n", before).replace("@first", written.first)
    add_lines(writer, template, more=epilogue.arguments(y), **marks)
    return y


@shape_rule("linear", "linear_module")
def linear_shape(writer: Writer, node: Node) -> Shape:
    """Returns the input's shape with as many features as the weight has rows."""
    lead = writer.shape(node.args[0])[:-1]
    if node.op == "linear":
        return (*lead, writer.shape(node.args[1])[0])
    return (*lead, argument(writer, node, "out_features", -1))


def _linear_half(writer: Writer, node: Node) -> str:
    """Returns the 16-bit dtype of a layer's input and weight where the schedule reads them so; else empty."""
    if node.op == "linear":
        return common_half(writer, node.args[0], node.args[1])
    declared = writer.facts.attributes.get(f"{node.text.removeprefix('self.')}.dtype")
    half = common_half(writer, node.args[0])
    return half if half == declared else ""


@anchor("linear", "linear_module")
def linear(writer: Writer, node: Node, epilogue: Epilogue) -> str:
    """Lowers nn.Linear and F.linear: rows of the input times rows of the weight; no bias is a null pointer."""
    half = _linear_half(writer, node) if writer.schedule.product != "tensor" else ""
    x = operand(writer, node.args[0], half).text + ".contiguous()" if half else writer.tensor(node.args[0])
    if node.op == "linear":
        weight = operand(writer, node.args[1], half).text if half else writer.tensor(node.args[1])
        bias = writer.tensor(node.args[2]) if len(node.args) > 2 else "None"
    else:
        weight = f"{node.text}.weight" if half else writer.weight(node, "weight")
        bias = writer.weight(node, "bias")
    rank = len(writer.shape(node))
    *lead, columns = writer.shape(node)
    size = ProductSizes(_count(lead), columns, writer.shape(node.args[0])[-1])
    tiling = _chosen(writer, size, True, half, kept=is_attribute(weight)) if writer.schedule.product else "rows"
    if writer.schedule.product == AUTO:
        tiling = tiling.replace("shared16", "rows")
    kind = half_products.TYPES.get(half, "float")
    p = tiles.Product(
        parameters=f"const {kind}* x, const {kind}* w, const float* b, float* y, int M, int N, int K",
        left=lambda m, k: f"x[{m} * K + {k}]",
        right=lambda k, n: f"w[{n} * K + {k}]",
        index="m * N + n",
        finish="if (b) acc += b[n];",
        type=kind,
        b_by_rows=False,
        arguments={"x": "@x", "w": "@w", **{name: name for name in "MNK"}},
        matrices=("x, K, 1", "w, K, 1"),
    )
    axes = {rank - 1: "n", **({0: "m"} if rank == 2 else {})}
    written = _tiled(p, tiling, size, epilogue, axes)
    name = add_kernel(writer, "linear", written.text)
    y = writer.result()
    template = (
        """
x, w = @x, @w
M, N, K = x.numel() // x.shape[-1], w.shape[0], x.shape[-1]
@y = torch.empty(*x.shape[:-1], N, device=x.device)
kernels.@name[(@grid), @block](x, w, @b, @y, M, N, K@more)
"""
        if half
        else """
M, N, K = @x.numel() // @x.shape[-1], @w.shape[0], @x.shape[-1]
@y = torch.empty(*@x.shape[:-1], N, device=@x.device)
@before
kernels.@name[(@grid), @block](@first@x, @w, @b, @y, M, N, K@more)
"""
    )
    first, right = written.first, written.right.replace("@device", "@y.device").lstrip("\n")
    if right and is_attribute(weight):
        kept = packed_once(writer, weight, split_products.kept_right(written, name), "right")
        first, right = first.replace("right", kept), ""
    template = template.replace("@grid", written.grid).replace("@before\n", written.before.lstrip("\n") + right)
    template = template.replace("@first", first)
    marks = {"x": x, "w": weight, "b": bias, "y": y, "name": name, "block": written.block}
    add_lines(writer, template, more=epilogue.arguments(y), **marks)
    return y


# Bilinear ------------------------------------------------------------------------------------------------------------

_BILINEAR = """
extern "C" __global__ void @name(@parameters) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    long long m = i / N, n = i % N;
    float acc = b ? b[n] : 0.0f;
    for (int p = 0; p < P; ++p) {
        float sum = 0.0f;
        for (int q = 0; q < Q; ++q) sum += w[(n * P + p) * Q + q] * x2[m * Q + q];
        acc += x1[m * P + p] * sum;
    }
    @stored
}
"""


@shape_rule("bilinear")
def bilinear_shape(writer: Writer, node: Node) -> Shape:
    """Returns the inputs' leading sizes and the output features."""
    out = argument(writer, node, "out_features", -1) if node.text else writer.shape(node.args[2])[0]
    return (*writer.shape(node.args[0])[:-1], out)


@anchor("bilinear")
def bilinear(writer: Writer, node: Node, epilogue: Epilogue) -> str:
    """Lowers nn.Bilinear and F.bilinear: x1 @ W[n] @ x2 for each feature n; one thread a result."""
    first, second = (writer.tensor(x) for x in node.args[:2])
    if node.text:
        weight, bias = writer.weight(node, "weight"), writer.weight(node, "bias")
    else:
        weight = writer.tensor(node.args[2])
        bias = writer.tensor(node.args[3]) if len(node.args) > 3 and node.args[3].text != "None" else "None"
    rank = len(writer.shape(node))
    parameters = "const float* x1, const float* x2, const float* w, const float* b, float* y, long long total, int N, "
    parameters += "int P, int Q"
    axes = {rank - 1: "n", **({0: "m"} if rank == 2 else {})}
    name = add_kernel(writer, "bilinear", tiles.fuse(_BILINEAR, parameters, epilogue, "i", axes))
    y, block = writer.result(), writer.schedule.block
    template = f"""
N, P, Q = @w.shape
@y = torch.empty(*@first.shape[:-1], N, device=@first.device)
kernels.@name[(@y.numel() + {block - 1}) // {block}, {block}](@first, @second, @w, @b, @y, @y.numel(), N, P, Q@last)
"""
    marks = {"first": first, "second": second, "w": weight, "b": bias}
    add_lines(writer, template, y=y, name=name, last=epilogue.arguments(y), **marks)
    return y
