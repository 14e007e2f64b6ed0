"""argmax and argmin: the index of the largest or smallest element of each row, the first of equal ones."""

from __future__ import annotations

from collections.abc import Callable

from kernelwright.solutions.families.blocks import half_of, within
from kernelwright.solutions.families.scans import row_bearer
from kernelwright.solutions.kernels.fusion import Fusion, Operands
from kernelwright.solutions.kernels.stages import Epilogue, Writer, anchor, shape_rule
from kernelwright.solutions.read.declared import Shape
from kernelwright.solutions.read.reading import Node, Unreadable

PLACE_WAYS: dict[str, Callable[[Writer, Node, int], str]] = {}
"""Value of `Schedule.memory` -> the function that takes the place of `place` along one dimension."""


def _dim(writer: Writer, node: Node) -> int | None:
    rank = len(writer.shape(node.args[0]))
    value = writer.option(node, "dim") if node.option("dim") else None
    if value is None:
        return None
    if not isinstance(value, int) or not -rank <= value < rank:
        raise Unreadable(f"dim={value} of {rank} dimensions")
    return value % rank


@shape_rule("argmax", "argmin")
def _shape(writer: Writer, node: Node) -> Shape:
    shape, dim = writer.shape(node.args[0]), _dim(writer, node)
    keep = bool(writer.option(node, "keepdim", "False"))
    if dim is None:
        return (1,) * len(shape) if keep else ()
    return (*shape[:dim], *((1,) if keep else ()), *shape[dim + 1 :])


@anchor("argmax", "argmin", fuses=False)
def place(writer: Writer, node: Node, epilogue: Epilogue) -> str:
    """Adds a kernel with one block a row: each thread takes a strided share, then a tree reduces the block."""
    inside = node.args[0]
    shape, dim = writer.shape(inside), _dim(writer, node)
    if dim is not None and (way := PLACE_WAYS.get(writer.schedule.memory)):
        return way(writer, node, dim)
    sign = ">" if node.op == "argmax" else "<"
    worst = "-INFINITY" if node.op == "argmax" else "INFINITY"
    block = writer.schedule.block
    reads = writer.reads(Node("", (inside,)))
    operands = Operands(
        {"y", "i", "j", "n", "row", "base", "inner", "best", "place", "values", "places", "k"}, first="x"
    )
    fusion = Fusion(writer, shape, "i", {} if dim is None else {dim: "j"}, " " * 8, operands, bearer="{x}", reads=reads)
    value = fusion.start(inside)
    inner = [] if dim is None else [d for d in range(dim + 1, len(shape)) if shape[d] != 1]
    x = row_bearer(writer, inside, reads)
    y = writer.result()
    name = writer.kernel_name(node.op)
    (pointers, tensors), (numbers, given) = operands.pointers(y, x), operands.numbers(y, x)
    base = "row / inner * n * inner + row % inner" if inner else "row * n"
    step = "base + (long long)j * inner" if inner else "base + j"
    statements = "\n".join(fusion.statements)
    writer.kernel(f"""
extern "C" __global__ void {name}({pointers}long long* y, int n{", int inner" if inner else ""}{numbers}) {{
    __shared__ float values[{block}];
    __shared__ int places[{block}];
    long long row = blockIdx.x;
    long long base = {base};
    float best = {worst};
    int place = n;
    for (int j = threadIdx.x; j < n; j += {block}) {{
        long long i = {step};
{statements}
        if ({value} {sign} best || place == n) {{
            best = {value};
            place = j;
        }}
    }}
    values[threadIdx.x] = best;
    places[threadIdx.x] = place;
    __syncthreads();
    for (int k = {half_of(block)}; k > 0; k /= 2) {{
        if ({within(block)}) {{
            float other = values[threadIdx.x + k];
            int there = places[threadIdx.x + k];
            if (other {sign} values[threadIdx.x] || (other == values[threadIdx.x] && there < places[threadIdx.x])) {{
                values[threadIdx.x] = other;
                places[threadIdx.x] = there;
            }}
        }}
        __syncthreads();
    }}
    if (threadIdx.x == 0) y[row] = places[0];
}}
""")
    count, width = writer.local("n"), writer.local("inner")
    writer.line(f"{count} = {x}.numel()" if dim is None else f"{count} = {x}.shape[{dim}]")
    if inner:
        writer.line(f"{width} = {' * '.join(f'{x}.shape[{d}]' for d in inner)}")
    writer.line(f"{y} = torch.empty({_sizes(writer, node, x, dim)}, dtype=torch.int64, device={x}.device)")
    writer.launch(name, f"{x}.numel() // {count}", f"{tensors}{y}, {count}{f', {width}' if inner else ''}{given}")
    return y


def _sizes(writer: Writer, node: Node, x: str, dim: int | None) -> str:
    rank = len(writer.shape(node.args[0]))
    keep = len(writer.shape(node)) == rank
    parts = [
        "1" if d == dim or dim is None else f"{x}.shape[{d}]"
        for d in range(rank)
        if keep or d != dim and dim is not None
    ]
    return ", ".join(parts) if len(parts) > 1 else f"({parts[0]},)" if parts else "()"
