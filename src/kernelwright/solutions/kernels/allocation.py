"""Writes Python text that allocates results of elementwise operators: sized by their operands, never as declared."""

from __future__ import annotations

from collections.abc import Container

from kernelwright.solutions.kernels.fusion import NUMBERS, READERS, leaves, region, same
from kernelwright.solutions.kernels.values import Values
from kernelwright.solutions.read.declared import Shape
from kernelwright.solutions.read.reading import Node


def allocation(writer: Values, root: Node, reads: Container[Node], shape: Shape, out: str) -> str:
    """Returns Python text that allocates the result of elementwise operators."""
    every = [leaf for leaf in leaves(root, reads) if leaf.op not in NUMBERS]
    shaped = [leaf for leaf in every if writer.shape(leaf) != ()] or every
    dtype = ", dtype=torch.bool" if out == "bool" else ""
    for leaf in shaped:
        if same(writer.shape(leaf), shape):
            if leaf.op in READERS and not writer.has(leaf) and (own := READERS[leaf.op].sizes):
                return f"torch.empty({own(writer, leaf)}{dtype}, device={writer.tensor(leaf.args[0])}.device)"
            x = writer.bearer(leaf)
            if x in writer.floats:
                return f"torch.empty_like({x}{dtype})"
            return f"torch.empty({x}.shape{dtype}, device={x}.device)"
    names = [writer.bearer(leaf) for leaf in shaped]
    parts = [f"{name}.shape" for name in names]
    parts += [_range_sizes(node) for node in region(root, reads) if node.op == "arange"]
    filled = [leaf for leaf in leaves(root, reads) if leaf.op == "constant" and writer.shape(leaf) != ()]
    parts += [f"{writer.bearer(c.args[0])}.shape" if c.args else c.option("shape") for c in filled]
    sizes = parts[0] if len(parts) == 1 else f"torch.broadcast_shapes({', '.join(parts)})"
    where = names[0] if names else writer.reference.inputs[0]
    return f"torch.empty({sizes or shape}{dtype}, device={where}.device)"


def _range_sizes(node: Node) -> str:
    """Returns Python text of the sizes of a range along one of its dimensions."""
    start, end, step = node.option("start") or "0", node.option("end"), node.option("step") or "1"
    length = end if (start, step) == ("0", "1") else f"-int(({start} - ({end})) // ({step}))"
    at, rank = int(node.option("at") or "0"), int(node.option("rank") or "1")
    return f"({', '.join(length if d == at else '1' for d in range(rank))},)"
