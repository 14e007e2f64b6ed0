"""argmax and argmin along a dimension, by the threads that share a row."""

from __future__ import annotations

from kernelwright.solutions.families.places import PLACE_WAYS
from kernelwright.solutions.families.rows import Group
from kernelwright.solutions.families.scans import row_bearer
from kernelwright.solutions.families.wide.rows import WideRowKernel
from kernelwright.solutions.kernels.stages import Writer
from kernelwright.solutions.read.reading import Node


class PlaceKernel(WideRowKernel):
    """Writes the kernel that finds the first largest or smallest element of each row."""

    def write(self) -> str:
        """Adds kernel and launch; returns the output's Python name."""
        node = self.group.root
        inside = node.args[0]
        self.reads = self.writer.reads(Node("", (inside,)))
        self._hold([[inside]])
        element = self._element(inside)
        found = self.operands.fresh("place")
        self.text.append(f"    int {found} = r.place_of<{'true' if node.op == 'argmax' else 'false'}>({element});")
        self.text.append(f"    if (r.leads()) y[row] = {found};")
        return self._launch(False)

    def _sized(self) -> str:
        return row_bearer(self.writer, self.group.root.args[0], self.reads)

    def _name(self) -> str:
        return self.group.root.op


def place(writer: Writer, node: Node, dim: int) -> str:
    """Adds the kernel for one dimension and returns the output's Python name."""
    return PlaceKernel(writer, Group(writer, node, writer.shape(node.args[0]), (dim,))).write()


PLACE_WAYS["wide"] = place
