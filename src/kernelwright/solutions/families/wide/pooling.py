"""Largest and mean of windows whose sizes the text fixes (`kernelwright/pool.cuh`); pooling to one value reduces."""

from __future__ import annotations

import math

from kernelwright.solutions.families.pooling import ADAPTIVE, MAX, POOL_WAYS, PoolingWindow, option
from kernelwright.solutions.families.pooling import size_lines as size_lines_of
from kernelwright.solutions.families.wide.lambdas import lambda_text
from kernelwright.solutions.kernels import windows as win
from kernelwright.solutions.kernels.host import add_kernel, add_lines
from kernelwright.solutions.kernels.stages import Epilogue, Writer
from kernelwright.solutions.read.lowering import reduce, rule
from kernelwright.solutions.read.reading import Node
from kernelwright.solutions.read.shaped_lowering import one_example

INCLUDE = "#include <kernelwright/pool.cuh>"
_BLOCK, _EACH = 128, 4
"""Threads of a block; results along H that a thread computes, as in the header."""
_MOST = 50
"""Elements of the largest window whose loads are unrolled."""
_TAKEN = tuple("x planes D H W OD OH OW od oh ow acc total".split())


@rule(*ADAPTIVE)
def _adaptive(writer: Writer, node: Node) -> Node:
    """Turns pooling to one value a channel into a reduction, for the wide way."""
    rank, wanted = int(node.op[-2]), option(writer, node, "output_size")
    shape = writer.shape(node.args[0])
    if len(shape) != rank + 2:
        return one_example(writer, node)
    if writer.schedule.memory != "wide" or wanted not in (1, (1,) * rank, [1] * rank):
        return node
    return reduce("max" if "max" in node.op else "mean", node.args[0], tuple(range(2, rank + 2)), True)


def pooled(writer: Writer, node: Node, epilogue: Epilogue, window: PoolingWindow, dilated: bool) -> str:
    """Adds the kernel and returns the output's Python name; empty where the text does not fix the windows."""
    rank = int(node.op[-2])
    size = win.numbers(option(writer, node, "kernel_size"), rank)
    stride = size if (given := option(writer, node, "stride")) is None else win.numbers(given, rank)
    padding, dilation = (win.numbers(option(writer, node, n, v), rank) for n, v in (("padding", 0), ("dilation", 1)))
    plain = window.parameters or "@u * @u" in window.step or "count" in window.step
    if plain or None in (size, stride, padding, dilation) or math.prod(size or ()) > _MOST:
        return ""
    numbers = list(zip(size or (), stride or (), padding or (), dilation or (), strict=True))
    windows = ["kw::Window<1>"] * (3 - rank) + [f"kw::Window<{', '.join(map(str, n))}>" for n in numbers]
    letters = win.LETTERS[rank]
    names = "".join(
        f"constexpr int K{a} = {k}, s{a.lower()} = {s}, p{a.lower()} = {p};\n    "
        for a, (k, s, p, _) in zip(letters, numbers, strict=True)
    )
    axes = {2 + d: name for d, name in enumerate(win.names(rank, "o"))}
    *more, last = epilogue.store("y", "acc", "i", "    ", axes, _TAKEN).split("\n")
    body = [window.end] if window.end else []
    parameters = ["float acc", "int od", "int oh", "int ow", "long long i"]
    element = lambda_text(parameters, [*body, *more], last.partition(" = ")[2].rstrip(";"))
    operation = "Largest" if node.op in MAX else "Add"
    inputs = ", ".join("1" if a not in letters else a for a in "DHW")
    outputs = ", ".join("1" if a not in letters else f"O{a}" for a in "DHW")
    writer.kernel(INCLUDE)
    name = add_kernel(
        writer,
        node.op,
        f"""
extern "C" __global__ void @name(const float* x, float* y, long long planes, {win.parameters(rank, "", "O")}{epilogue.parameters}) {{
    {names if window.end else ""}kw::pool<kw::{operation}, {", ".join(windows)}>(y, x, planes, {inputs}, {outputs}, {element});
}}
""",  # noqa: E501
    )
    x, y = writer.tensor(node.args[0]), writer.result()
    groups = f"((OH + {_EACH - 1}) // {_EACH})" if rank > 1 else "1"
    threads = " * ".join(["N * C", *(["OD"] if rank > 2 else []), groups, "OW"])
    template = f"""
{size_lines_of(writer, node, rank, dilated)}
@y = torch.empty(N, C, {win.listed(rank, "O")}, device=@x.device)
kernels.@name[({threads} + {_BLOCK - 1}) // {_BLOCK}, {_BLOCK}](@x, @y, N * C, {win.listed(rank, "", "O")}@last)
"""
    add_lines(writer, template, x=x, y=y, name=name, last=epilogue.arguments(y))
    return y


POOL_WAYS["wide"] = pooled
