"""Computes what a returned truth value compares before it: only elementwise kernels store booleans."""

from __future__ import annotations

from kernelwright.solutions.kernels.operators import COMPARISONS, FUSED, LOGIC
from kernelwright.solutions.kernels.values import Values
from kernelwright.solutions.read.reading import Node, nodes


def computed_before_truth(writer: Values, root: Node) -> bool:
    """Computes the numbers in a returned truth value that are not elementwise; tells whether there are any."""
    found = False
    for arg in root.args if root.op in COMPARISONS or root.op in LOGIC else ():
        if arg.op in COMPARISONS or arg.op in LOGIC:
            found |= computed_before_truth(writer, arg)
        elif any(n.op not in FUSED and n.args for n in nodes(arg)):
            writer.tensor(arg)
            found = True
    return found
