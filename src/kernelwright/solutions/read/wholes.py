"""Finds integer and boolean values in the reference. Our kernels compute in float32 and cannot represent them."""

from __future__ import annotations

from kernelwright.solutions.kernels.fusion import READERS
from kernelwright.solutions.kernels.operators import COMPARISONS, FUSED, LOGIC
from kernelwright.solutions.kernels.values import Values
from kernelwright.solutions.read.reading import Node, nodes

MOVING = frozenset(
    """cat stack repeat flip roll reshape reshape_as flatten unflatten unsqueeze squeeze gather index_select pick
    contiguous tril triu""".split()
)
"""Operators beside `READERS` that keep elements unchanged."""
_KEEPING = frozenset(
    """add sub mul neg abs clamp square sign floor_divide remainder maximum minimum max min pow where relu
    cumsum cumprod cummax cummin amax amin""".split()
)
_COUNTS = frozenset("argmax argmin count_nonzero bincount cummax_indices cummin_indices".split())


def whole(writer: Values, node: Node) -> bool:
    """Tells whether torch gives integers or booleans for a value, as far as its operators are known here."""
    if node.op == "number":
        return node.text.lstrip("-").isdigit()
    if node.op in ("input", "tensor"):
        return writer.kind(node) in ("long", "int", "bool")
    if node.op in COMPARISONS or node.op in LOGIC or node.op in _COUNTS:
        return True
    if node.op in MOVING or node.op in READERS:
        return bool(node.args) and whole(writer, node.args[0])
    if node.op == "where":
        return all(whole(writer, a) for a in node.args[1:])
    kept = node.op in _KEEPING or node.op == "reduce" and node.text in ("sum", "prod", "amax", "amin", "max", "min")
    return kept and bool(node.args) and all(whole(writer, a) for a in node.args)


def stored_truth(writer: Values, root: Node) -> bool:
    """Tells whether a node is a truth value whose operands are not elementwise, after computing these operands.

    Only elementwise kernels store booleans.
    """
    found = False
    for arg in root.args if root.op in COMPARISONS or root.op in LOGIC else ():
        if arg.op in COMPARISONS or arg.op in LOGIC:
            found |= stored_truth(writer, arg)
        elif any(n.op not in FUSED and n.args for n in nodes(arg)):
            writer.tensor(arg)
            found = True
    return found
