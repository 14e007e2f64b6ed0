"""Elementwise kernels with 16-byte access and several loads in flight (`kernelwright/memory.cuh`)."""

from __future__ import annotations

from kernelwright.solutions.families.wide.lambdas import LambdaFusion, lambda_text
from kernelwright.solutions.families.wide.moves import INCLUDE as MOVES
from kernelwright.solutions.families.wide.moves import swapped, transposed
from kernelwright.solutions.kernels.allocation import allocation
from kernelwright.solutions.kernels.fusion import Fusion, Operands, region
from kernelwright.solutions.kernels.stages import ELEMENTWISE_WAYS, Writer
from kernelwright.solutions.read.declared import Shape
from kernelwright.solutions.read.reading import Node, Unreadable

INCLUDE = "#include <kernelwright/memory.cuh>"
_PACK, _LOADS = 4, 4
"""Elements of a pack, and packs of a thread, as in the header."""


def elementwise(writer: Writer, node: Node) -> str:
    """Adds a kernel of elementwise operators alone; returns the Python name of its result."""
    if writer.kind(node) in ("long", "int"):  # its users would read the float result as integers
        raise Unreadable(f"no template for {node.op} of whole numbers")
    shape, reads = writer.shape(node), writer.reads(node)
    out = "bool" if writer.kind(node) == "bool" else "float"
    if found := transposed(writer, node, reads, out):
        return found
    name = writer.kernel_name(writer.title(node) or (node.op if len(list(region(node, reads))) < 2 else "fused"))
    block, loads = layout_of(shape)
    operands, call = _mapped(writer, node, shape, reads, out, loads)
    y = writer.result()
    (pointers, tensors), (numbers, values) = operands.pointers(y), operands.numbers(y)
    writer.kernel(MOVES if "kw::swapped" in call else INCLUDE)
    writer.kernel(f"""
extern "C" __global__ void {name}({pointers}{out}* y, long long n{numbers}) {{
    {call};
}}
""")
    each = block * _PACK * loads
    writer.line(f"{y} = {allocation(writer, node, reads, shape, out)}")
    writer.launch(name, f"({y}.numel() + {each - 1}) // {each}", f"{tensors}{y}, {y}.numel(){values}", block)
    return y


def layout_of(shape: Shape) -> tuple[int, int]:
    """Returns the threads of a block, and the packs that a thread loads of each operand.

    One pack was the fastest on an H200: the threads of a multiprocessor have enough loads in flight.
    """
    return 512, 1


def _mapped(
    writer: Writer, node: Node, shape: Shape, reads: frozenset[Node], out: str, loads: int
) -> tuple[Operands, str]:
    """Returns the kernel's operands and the one call that it makes."""
    count = f"<{loads}>" if loads != _LOADS else ""
    operands = Operands({"y", "i", "n"}, first="x")
    fusion = LambdaFusion(writer, shape, "i", operands=operands, reads=reads, view=swapped)
    value = fusion.start(node)
    if not fusion.indexed and fusion.loads:
        text = lambda_text(list(fusion.loads), fusion.statements, value)
        return operands, f"kw::map{count}(y, n, {text}, {', '.join(fusion.loads.values())})"
    operands = Operands({"y", "i", "n"}, first="x")
    plain = Fusion(writer, shape, "i", operands=operands, reads=reads)
    value = plain.start(node)
    return operands, f"kw::fill{count}(y, n, {lambda_text(['auto i'], plain.statements, f'({out})({value})')})"


ELEMENTWISE_WAYS["wide"] = elementwise
