"""One number of a whole tensor, in one launch whose last block combines the blocks' parts; reductions by stages."""

from __future__ import annotations

from kernelwright.solutions.families.rows import WHOLE_WAYS, largest
from kernelwright.solutions.families.wide.lambdas import LambdaFusion, lambda_text
from kernelwright.solutions.families.wide.rows import INCLUDE
from kernelwright.solutions.kernels.fusion import Operands
from kernelwright.solutions.kernels.stages import Writer
from kernelwright.solutions.read.reading import Node

OPERATIONS = {"sum": "Add", "mean": "Add", "prod": "Multiply", "max": "Largest", "min": "Smallest"}
BLOCK = 256
_BLOCKS = 1056
"""Blocks that a card of 132 multiprocessors holds at once, 8 each."""
_EACH = 16 * BLOCK
"""Elements that a block reads at once."""


def whole(writer: Writer, node: Node) -> str:
    """Adds the kernel and returns the output's Python name; empty where an element is read by its index."""
    inside = node.args[0]
    if writer.kind(node) != "float":
        return ""
    reads = writer.reads(Node("", (inside,)))
    operands = Operands({"y", "i", "n", "total", "parts"}, first="x")
    fusion = LambdaFusion(writer, writer.shape(inside), "i", operands=operands, bearer="{x}", reads=reads)
    value = fusion.start(inside)
    if fusion.indexed or not fusion.loads:
        return ""
    x = largest(writer, inside, reads)
    y, parts, count = writer.result(), writer.fresh("parts"), writer.local("blocks")
    (pointers, tensors), (numbers, values) = operands.pointers(y, x), operands.numbers(y, x)
    name = writer.kernel_name(writer.title(node) or node.text)
    text = lambda_text(list(fusion.loads), fusion.statements, value)
    finish = f"[&](float total) {{ y[0] = total{' / n' if node.text == 'mean' else ''}; }}"
    writer.kernel(INCLUDE)
    writer.kernel(f"""
extern "C" __global__ void {name}({pointers}float* parts, float* y, long long n{numbers}) {{
    kw::whole<{BLOCK}, kw::{OPERATIONS[node.text]}>(parts, n, {text}, {finish}, {", ".join(fusion.loads.values())});
}}
""")
    size = f"(1,) * {len(writer.shape(inside))}" if node.option("keepdim") else "()"
    writer.line(f"{count} = min({_BLOCKS}, ({x}.numel() + {_EACH - 1}) // {_EACH})")
    writer.line(f"{parts} = torch.empty({count}, device={x}.device)")
    writer.line(f"{y} = torch.empty({size}, device={x}.device)")
    writer.launch(name, count, f"{tensors}{parts}, {y}, {x}.numel(){values}", BLOCK)
    return y


WHOLE_WAYS["wide"] = whole
