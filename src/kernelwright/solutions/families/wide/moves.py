"""Permuted tensors: tiles through shared memory, or packs of neighbouring elements (`kernelwright/transpose.cuh`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.solutions.families.views import order
from kernelwright.solutions.families.wide.lambdas import LambdaFusion, lambda_text
from kernelwright.solutions.kernels.fusion import NUMBERS, Operands, leaves, same
from kernelwright.solutions.kernels.stages import Writer
from kernelwright.solutions.read.reading import Node

INCLUDE = "#include <kernelwright/transpose.cuh>"
_EDGE, _BLOCK = 64, 256
"""Edge of a tile and threads of a block, as in the header."""


@dataclass(frozen=True)
class MovedGroups:
    """The operand's dimensions in the result's order, neighbours that stay together in one group."""

    groups: tuple[tuple[int, ...], ...]

    @property
    def transposes(self) -> bool:
        """True where two neighbouring groups are swapped and the last one moves."""
        return self._pattern() in ([1, 0], [0, 2, 1])

    @property
    def swaps(self) -> bool:
        """True where two neighbouring groups are swapped and the last one stays."""
        return self._pattern() in ([1, 0, 2], [0, 2, 1, 3])

    def _pattern(self) -> list[int]:
        ranked = sorted(self.groups)
        return [ranked.index(g) for g in self.groups]


def permutation(writer: Writer, view: Node) -> MovedGroups | None:
    """Returns how a view permutes its operand; None for other views."""
    if view.op not in ("permute", "transpose"):
        return None
    shape = writer.shape(view.args[0])
    groups: list[tuple[int, ...]] = []
    for d in order(writer, view):
        if shape[d] == 1:
            continue
        between = range(groups[-1][-1] + 1, d) if groups else range(0)
        if groups and d > groups[-1][-1] and all(shape[m] == 1 for m in between):
            groups[-1] = (*groups[-1], d)
        else:
            groups.append((d,))
    return MovedGroups(tuple(groups))


def sizes(x: str, dims: Sequence[int]) -> str:
    """Returns Python text of the number of elements along some dimensions."""
    return " * ".join(f"{x}.shape[{d}]" for d in dims) or "1"


def swapped(fusion: LambdaFusion, view: Node) -> str:
    """Returns C++ text of a view with two middle dimensions swapped as an operand of `kw::map`; empty for others."""
    found = permutation(fusion.writer, view)  # type: ignore[arg-type]
    if found is None or not found.swaps:
        return ""
    x = fusion.writer.tensor(view.args[0])
    pointer = fusion.pointer_of(view, x)
    names = [
        fusion.operands.name(name, "int", sizes(x, dims))
        for name, dims in zip(
            ("first", "second", "last"), (found.groups[-2], found.groups[-3], found.groups[-1]), strict=True
        )
    ]
    return f"kw::swapped({pointer}, {', '.join(names)})"


def transposed(writer: Writer, node: Node, reads: frozenset[Node], out: str) -> str:
    """Adds a kernel of elementwise operators on one transposed tensor; returns the output's Python name, else ""."""
    views = [leaf for leaf in leaves(node, reads) if leaf.op not in NUMBERS]
    if len(views) != 1 or not same(writer.shape(views[0]), writer.shape(node)) or writer.has(views[0]):
        return ""
    view = views[0]
    found = permutation(writer, view)
    if found is None or not found.transposes or writer.kind(view) not in ("float", "half"):
        return ""
    operands = Operands({"y", "v", "x", "rows", "cols"})
    fusion = LambdaFusion(writer, writer.shape(node), "i", operands=operands, reads=reads)
    value = fusion.start(node, {view: "v"})
    if fusion.indexed or fusion.loads:
        return ""
    x = writer.tensor(view.args[0])
    y = writer.result()
    name = writer.kernel_name(writer.title(node) or node.op)
    numbers, values = operands.numbers(y)
    text = lambda_text(["float v"], fusion.statements, value)
    writer.kernel(INCLUDE)
    writer.kernel(f"""
extern "C" __global__ void {name}(const float* x, {out}* y, int rows, int cols{numbers}) {{
    kw::transpose(y, x, rows, cols, {text});
}}
""")
    low, high = writer.local("rows"), writer.local("cols")
    writer.line(f"{low} = {sizes(x, found.groups[-1])}")
    writer.line(f"{high} = {sizes(x, found.groups[-2])}")
    shape = ", ".join(f"{x}.shape[{d}]" for d in order(writer, view))
    dtype = ", dtype=torch.bool" if out == "bool" else ""
    writer.line(f"{y} = torch.empty({shape}{dtype}, device={x}.device)")
    tiles = " * ".join(f"(({n} + {_EDGE - 1}) // {_EDGE})" for n in (low, high))
    writer.launch(name, f"{x}.numel() // ({low} * {high}) * {tiles}", f"{x}, {y}, {low}, {high}{values}", _BLOCK)
    return y
