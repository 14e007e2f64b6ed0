"""Sums by index: index_add, scatter_add, counts. Each result gathers its own terms, always in the same order."""

from __future__ import annotations

from kernelwright.solutions.families.remaps import dim_of
from kernelwright.solutions.kernels.fusion import CTYPES
from kernelwright.solutions.kernels.host import add_kernel, add_lines
from kernelwright.solutions.kernels.stages import Epilogue, Writer, anchor, shape_rule
from kernelwright.solutions.read.declared import Shape
from kernelwright.solutions.read.lowering import call, reduce, rule
from kernelwright.solutions.read.reading import Node, Unreadable

_KERNEL = """
extern "C" __global__ void @name(const float* base, const @type* index, const float* source, float* y, long long n,
                                 int rows, int inner, int count, float alpha) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    long long column = i % inner, row = i / inner % rows, outer = i / inner / rows;
    float total = 0.0f;
    for (int k = 0; k < count; ++k) {
        long long at = (outer * count + k) * inner + column;
        if (index[@at] == row) total += source[at];
    }
    y[i] = base[i] + alpha * total;
}
"""


@shape_rule("index_add", "scatter_add")
def _shape(writer: Writer, node: Node) -> Shape:
    return writer.shape(node.args[0])


@anchor("index_add", "scatter_add", fuses=False)
def collected(writer: Writer, node: Node, epilogue: Epilogue) -> str:
    """Adds a kernel with one thread a result, which goes over all rows of the source."""
    if len(node.args) != 3 or any(a.op == "number" for a in node.args):
        raise Unreadable(f"no template for this {node.op}")
    dim = dim_of(writer, node)
    base, index, source = (writer.tensor(a) for a in node.args)
    each = node.op == "scatter_add"
    ctype = CTYPES.get(writer.kind(node.args[1]), "float")
    text = _KERNEL.replace("@type", ctype).replace("@at", "at" if each else "k")
    name, y = add_kernel(writer, node.op, text), writer.result()
    block = writer.schedule.block
    template = f"""
rows, inner, count = @x.shape[{dim}], @x[{", ".join(["0"] * (dim + 1))}].numel(), @s.shape[{dim}]
@y = torch.empty_like(@x)
kernels.@name[(@y.numel() + {block - 1}) // {block}, {block}](@x, @i, @s, @y, @y.numel(), rows, inner, count, @alpha)
"""
    alpha = f"float({node.option('alpha')})" if node.option("alpha") else "1.0"
    add_lines(writer, template, x=base, i=index, s=source, y=y, name=name, alpha=alpha)
    return y


@rule("bincount")
def _bincount(writer: Writer, node: Node) -> Node:
    """Counts the occurrences of each number from 0 to `minlength` - 1."""
    if not node.option("minlength") or len(node.args) > 1:
        raise Unreadable("no template for bincount without minlength, or with weights")
    zeros = Node("constant", text="0.0", options=(("shape", f"({node.option('minlength')},)"),))
    ones = Node("constant", (node.args[0],), text="1.0")
    return Node("index_add", (zeros, node.args[0], ones), options=(("dim", "0"),))


@rule("embedding_bag")
def _bag(writer: Writer, node: Node) -> Node:
    """Reduces rows of a table, selected by indices, along the second dimension."""
    if len(writer.shape(node.args[0])) != 2 or len(node.args) > 1:
        raise Unreadable("no template for bags with offsets")
    known, path = writer.facts.attributes, node.text.removeprefix("self.")
    if any(known.get(f"{path}.{name}") is not None for name in ("padding_idx", "max_norm")):
        raise Unreadable("no template for bags that leave rows out")
    mode = str(known.get(f"{path}.mode", "mean"))
    table = Node("tensor", text=f"{node.text}.weight")
    return reduce(mode, call("embedding", node.args[0], table), (1,), False)
