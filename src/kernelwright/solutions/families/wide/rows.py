"""Row kernels that read their rows from memory once (`kernelwright/reduce.cuh`): softmax, norms, statistics.

A row's threads hold its elements in registers; several blocks of a cluster share a long row. Rows whose elements lie
apart have a lane each, and several warps share their elements.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from kernelwright.solutions.families.rows import (
    ROW_WAYS,
    Group,
    RowKernel,
    alike,
    depths_of,
    kept,
    online,
    product,
    reduced_sizes,
    title_of,
)
from kernelwright.solutions.families.wide.lambdas import LambdaFusion, lambda_text
from kernelwright.solutions.kernels.fusion import READERS, Fusion, same
from kernelwright.solutions.kernels.operators import FUSED
from kernelwright.solutions.kernels.stages import Writer
from kernelwright.solutions.read.reading import Node

INCLUDE = "#include <kernelwright/reduce.cuh>"

_LONG = 8192
"""A row of fewer elements is not cut into parts."""
_BLOCKS = 1056
"""Blocks that a card of 132 multiprocessors holds at once, 8 each."""


@dataclass(frozen=True)
class RowLayout:
    """The threads of a row, the packs of four elements that each holds, and the blocks of a row."""

    threads: int
    packs: int
    blocks: int = 1


def contiguous_layout(n: int, held: int) -> RowLayout:
    """Returns the layout for rows of n neighbouring elements (-1: unknown) of `held` tensors."""
    if n <= 0:
        return RowLayout(256, 4)
    most = 8 if held < 2 else 4
    threads = min(max(_power(-(-n // 16)), 4), 512)
    if threads == 64 and held < 2:
        threads = 32  # a warp needs no barrier
    packs = -(-n // (4 * threads))
    if packs <= most:
        return RowLayout(threads, packs)
    blocks = min(_power(-(-n // (4 * threads * most))), 8)
    return RowLayout(threads, min(-(-n // (4 * threads * blocks)), 2 * most), blocks)


def strided_layout(n: int, held: int) -> RowLayout:
    """Returns the layout for rows of n elements (-1: unknown) that lie apart; its threads are warps."""
    if n <= 0:
        return RowLayout(8, 4)
    warps = min(max(_power(-(-n // 16)), 2), 16)
    return RowLayout(warps, min(max(-(-n // (4 * warps)), 1), 8 if held < 2 else 4))


def _power(n: int) -> int:
    """Returns the least power of two that is not below n."""
    return 1 << max(n - 1, 0).bit_length()


@dataclass
class RowLambda(LambdaFusion):
    """Elementwise operators at element j of a row `r`."""

    kernel: WideRowKernel | None = None

    def reader(self, node: Node) -> str:
        """Returns C++ text of a pointer to the row's first value; the lambda reads other operands by an index."""
        kernel, writer = self.kernel, self.writer
        assert kernel is not None
        shape = writer.shape(node)
        wide = (1,) * (len(self.shape) - len(shape)) + tuple(shape)
        if same(wide, self.shape):
            return f"{self.pointer_of(node, writer.flat(node))} + r.base"
        walked = [d for d in self.walked if self.shape[d] != 1]
        if not kernel.inner and [d for d in range(len(wide)) if wide[d] != 1] == walked:
            return self.pointer_of(node, writer.flat(node))
        return ""

    def _read(self, node: Node) -> str:
        before = len(self.statements)
        indexed = self.indexed
        name = super()._read(node)
        # An operand that is read at `j` alone needs no other index.
        texts = [
            *self.statements[before:],
            *([name] if "[" in name else []),
        ]  # truth values are read where they are used
        self.indexed = indexed or any("[j]" not in text for text in texts)
        return name


class WideRowKernel(RowKernel):
    """Writes the kernel of a group by the device library."""

    def __init__(self, writer: Writer, group: Group) -> None:
        super().__init__(writer, group)
        self.threads = False
        self.once = False
        """True where one reduction is all that reads the row."""
        self.fusion = self._row()
        """The operators of the last lambda."""
        self.held: dict[Node, str] = {}
        """Tensors of the rows' shape that stay in registers -> the lambdas' parameters."""
        self._pointers: dict[Node, str] = {}
        self._taken.update(("r", "i", "j", "row", "rows", "y", "n", "inner", "base"))

    def write(self) -> str:
        """Adds kernel and launch; returns the output's Python name."""
        writer, root, group = self.writer, self.group.root, self.group
        if all(group.full[d] == 1 for d in group.dims):  # a row is an element, and nothing tells them apart
            return RowKernel(writer, group).write()
        depths = depths_of(group)
        per_element = group.level(root) == "full"
        self._hold([[m.args[0] for m in depth] for depth in depths] + ([[root]] if per_element else []))
        self.once = not per_element and len(depths) == 1 and len(depths[0]) == 1
        if self.once and (found := self._in_parts(depths[0][0])):
            return found
        if pair := online(depths):
            self._online_pass(*pair)
            depths = depths[2:]
        elif pair := _centred(depths):
            self._moments_pass(*pair)
            depths = depths[2:]
        for depth in depths:
            self._pass(depth)
        if per_element:
            self.text.append(f"    r.store(y, {self._element(root)});")
            return self._launch(True)
        fusion = self._row_fusion("        ")
        value = fusion.start(root, self.known)
        if fusion.statements:
            self.text += ["    if (r.leads()) {", *fusion.statements, f"        y[row] = {value};", "    }"]
        else:
            self.text.append(f"    if (r.leads()) y[row] = {value};")
        return self._launch(False)

    def _hold(self, passes: list[list[Node]]) -> None:
        """Chooses the tensors that stay in registers: those of the first pass, and those of several passes."""
        found = [self._tensors(roots) for roots in passes]
        wanted = [
            n for n in dict.fromkeys(n for f in found for n in f) if n in found[0] or sum(n in f for f in found) > 1
        ]
        for node in wanted[:3]:
            pointer = self._row().pointer_of(node, self.writer.flat(node))
            self.held[node] = self.operands.fresh(f"{pointer}j")
            self.known[node] = self.held[node]
            self._pointers[node] = pointer

    def _tensors(self, roots: list[Node]) -> list[Node]:
        """Returns the float tensors of the rows' own shape that some values read."""
        found: dict[Node, None] = {}
        stack, seen, writer = list(roots), set[Node](), self.writer
        while stack:
            node = stack.pop()
            if node in seen or self.group.level(node) == "row":
                continue
            seen.add(node)
            if node.op in FUSED and node not in self.reads:
                stack.extend(node.args)
            elif node.op not in READERS or writer.has(node):
                if same(writer.shape(node), self.group.full) and writer.kind(node) in ("float", "half"):
                    found[node] = None
        return list(found)

    def _read_row_values(self, root: Node) -> None:
        """Reads the operands of a value that have one element a row, before the lambda whose names would hide them."""
        full, writer = self.group.full, self.writer
        stack, seen = [root], set[Node]()
        while stack:
            node = stack.pop()
            if node in seen or node in self.known or self.group.level(node) == "row":
                continue
            seen.add(node)
            if node.op in FUSED and node not in self.reads:
                stack.extend(node.args)
                continue
            shape = writer.shape(node)
            wide = (1,) * (len(full) - len(shape)) + tuple(shape)
            if node.op in READERS or not shape or any(wide[d] != 1 for d in self.group.dims):
                continue
            along = kept(full, self.group.dims)
            fusion = Fusion(writer, along, "row", {}, "    ", self.operands, "{x}", (), self.reads)
            value = self._started(fusion, node)
            self.text += fusion.statements
            self.known[node] = value
            self._taken.add(value)

    def _row(self) -> RowLambda:
        full, dims = self.group.full, self.group.dims
        axes, indent = self._axes(), " " * 8
        return RowLambda(self.writer, full, "i", axes, indent, self.operands, "{x}", dims, self.reads, kernel=self)

    def _element(self, node: Node) -> str:
        """Returns a lambda for a value of element j, and the operands that it loads besides those in registers."""
        self._read_row_values(node)
        self.fusion = fusion = self._row()
        value = fusion.start(node, self.known)
        head = "long long i = r.at(j);" if fusion.indexed else ""
        parameters = ["int j", *(f"float {name}" for name in self.held.values()), *fusion.loads]
        text = lambda_text(parameters, fusion.statements, value, head)
        return ", ".join([text, *fusion.loads.values()])

    def _pass(self, members: list[Node]) -> None:
        """Adds some reductions, each with one reading of the row's registers."""
        made: dict[Node, str] = {}
        for node in members:
            element = self._element(node.args[0])
            made[node] = self._variable(node)
            self.text.append(f"    float {made[node]} = r.{node.text}({element});")
        for node, name in made.items():
            self.known.update((twin, name) for twin in self.group.members if alike(twin, node))
        self._row_values(members)

    def _in_parts(self, member: Node) -> str:
        """Adds two kernels where rows are too few for the card: one reduces parts of rows, one the parts.

        Returns the output's Python name; empty where rows are many or short, or a value depends on its place.
        """
        writer, group, full = self.writer, self.group, self.group.full
        if -1 in full:
            return ""
        n = math.prod(full[d] for d in group.dims)
        inner = math.prod(full[d] for d in self.inner)
        blocks = math.prod(full) // (n * inner) * -(-inner // 32)
        if n < _LONG or blocks * 2 > _BLOCKS:
            return ""
        element = self._element(member.args[0])
        if len(re.findall(r"\bj\b", element)) > 1 or not all(
            t.endswith("+ r.base") for t in self.fusion.loads.values()
        ):
            return ""
        layout, block, head, bounds = self._reading(n)
        kind = "sum" if member.text == "mean" else member.text
        text = [*self.text, f"    float part = r.{kind}({element});"]
        text.append("    if (r.leads()) parts[blockIdx.y * rows + row] = part;")
        x, y = self._sized(), writer.result()
        name, last = writer.kernel_name("parts"), writer.kernel_name(self._name())
        total = self._variable(member)
        self.known.update((twin, total) for twin in group.members if alike(twin, member))
        fusion = self._row_fusion("        ")
        value = fusion.start(group.root, self.known)
        (pointers, tensors), (numbers, values) = self.operands.pointers(y, x), self.operands.numbers(y, x)
        sizes = "long long rows, int n, int inner" if self.inner else "long long rows, int n"
        statements, body = "\n".join(text), "\n".join(fusion.statements)
        divided = " / n" if member.text == "mean" else ""
        out, dtype = self._stored()
        writer.kernel(INCLUDE)
        writer.kernel(f"""
extern "C" __global__ void {bounds}{name}({pointers}float* parts, {sizes}{numbers}) {{
{head}
    long long row = r.row;
{statements}
}}
""")
        writer.kernel(f"""
extern "C" __global__ void {last}({pointers}const float* parts, {out}* y, int rows, int n, int count{numbers}) {{
    auto r = kw::columns<8, 4>(count, rows, parts);
    long long row = r.row;
    float {total} = r.{kind}([&](int j, float v) {{ return v; }}){divided};
    if (r.leads()) {{
{body}
        y[row] = {value};
    }}
}}
""")
        length, width, rows = (writer.local(word) for word in ("n", "inner", "rows"))
        writer.line(f"{length} = {product(x, group.dims)}")
        if self.inner:
            writer.line(f"{width} = {product(x, tuple(self.inner))}")
        writer.line(f"{rows} = {x}.numel() // {length}")
        count, parts, grid = writer.local("count"), writer.fresh("parts"), writer.local("blocks")
        writer.line(f"{grid} = {f'{rows} // {width} * (({width} + 31) // 32)' if self.inner else rows}")
        writer.line(f"{count} = max(1, min({length} // {_LONG // 8}, {_BLOCKS} // max(1, {grid})))")
        writer.line(f"{parts} = torch.empty({count}, {rows}, device={x}.device)")
        left = reduced_sizes(x, len(full), group.dims, writer.shape(group.root))
        writer.line(f"{y} = torch.empty({left}{dtype}, device={x}.device)")
        given = f"{rows}, {length}{f', {width}' if self.inner else ''}"
        if not self.inner:
            grid = f"{grid} * {layout.blocks}" if layout.blocks > 1 else grid
        writer.launch(name, f"({grid}, {count})", f"{tensors}{parts}, {given}{values}", block)
        writer.launch(last, f"({rows} + 31) // 32", f"{tensors}{parts}, {y}, {rows}, {length}, {count}{values}", 256)
        return y

    def _online_pass(self, high: Node, total: Node) -> None:
        """Adds maximum and sum of exponentials."""
        element = self._element(high.args[0])
        self._taken.update(("high", "total"))
        self.text += ["    float high;", f"    float total = r.exponentials(high, {element});"]
        for twin in self.group.members:
            for node, name in ((high, "high"), (total, "total")):
                if alike(twin, node):
                    self.known[twin] = name
        self._row_values([high, total])

    def _moments_pass(self, mean: Node, spread: Node) -> None:
        """Adds a mean and the mean of the squares around it."""
        element = self._element(mean.args[0])
        names = [self._variable(mean), self._variable(spread)]
        self.text += [f"    float {names[1]};", f"    float {names[0]} = r.moments({names[1]}, {element});"]
        for twin in self.group.members:
            for node, name in zip((mean, spread), names, strict=True):
                if alike(twin, node):
                    self.known[twin] = name
        self._row_values([mean, spread])

    def _name(self) -> str:
        """Returns the operator that the kernel is named after."""
        return title_of(self.writer, self.group)

    def _stored(self) -> tuple[str, str]:
        """Returns the results' type in CUDA, and its part of the allocation in Python."""
        return ("long long", ", dtype=torch.int64") if self.writer.kind(self.group.root) == "long" else ("float", "")

    def _reading(self, n: int) -> tuple[RowLayout, int, str, str]:
        """Returns the layout of rows of n elements (-1: unknown), the threads of a block, the first statements, and the
        kernel's attributes."""
        layout = (strided_layout if self.inner else contiguous_layout)(n, len(self.held))
        if self.once and not self.inner and n > 4096:  # a row that is read once anyway needs no room in registers
            layout = RowLayout(256, 4)
        held = "".join(f", {self._pointers[node]}" for node in self.held)
        if self.inner:
            block = 32 * layout.threads
            head = f"    auto r = kw::columns<{layout.threads}, {layout.packs}>(n, inner{held});"
        else:
            block = max(layout.threads, 256 if layout.threads < 64 else 0)
            more = f", {layout.blocks}" if layout.blocks > 1 else ""
            head = f"    auto r = kw::rows<{layout.threads}, {layout.packs}{more}>(rows, n{held});"
            head += "\n    if (r.outside()) return;" if layout.threads < 64 else ""
        bounds = f"__launch_bounds__({block}) " if block > 256 else ""
        bounds += f"__cluster_dims__({layout.blocks}, 1, 1) " if layout.blocks > 1 else ""
        return layout, block, head, bounds

    def _launch(self, per_element: bool) -> str:
        writer, group = self.writer, self.group
        x, y = self._sized(), writer.result()
        name = writer.kernel_name(self._name())
        (pointers, tensors), (numbers, values) = self.operands.pointers(y, x), self.operands.numbers(y, x)
        sizes = [group.full[d] for d in group.dims]
        layout, block, head, bounds = self._reading(-1 if -1 in sizes else math.prod(sizes))
        out, dtype = self._stored()
        parameters = f"{pointers}{out}* y, {'int n, int inner' if self.inner else 'long long rows, int n'}{numbers}"
        body = "\n".join(self.text)
        if re.search(r"\brow\b", body):
            head += "\n    long long row = r.row;"
        writer.kernel(INCLUDE)
        writer.kernel(f"""
extern "C" __global__ void {bounds}{name}({parameters}) {{
{head}
{body}
}}
""")
        n, inner, rows = (writer.local(name) for name in ("n", "inner", "rows"))
        writer.line(f"{n} = {product(x, group.dims)}")
        if self.inner:
            writer.line(f"{inner} = {product(x, tuple(self.inner))}")
        if per_element:
            writer.line(f"{y} = {self._full_output(x)}")
        else:
            left = reduced_sizes(x, len(group.full), group.dims, writer.shape(group.root))
            writer.line(f"{y} = torch.empty({left}{dtype}, device={x}.device)")
        if self.inner:
            grid, given = f"{x}.numel() // ({n} * {inner}) * (({inner} + 31) // 32)", f"{n}, {inner}"
        else:
            writer.line(f"{rows} = {x}.numel() // {n}")
            each = block // layout.threads
            grid, given = f"({rows} + {each - 1}) // {each}" if each > 1 else rows, f"{rows}, {n}"
            grid += f" * {layout.blocks}" if layout.blocks > 1 else ""
        writer.launch(name, grid, f"{tensors}{y}, {given}{values}", block)
        return y


def _centred(depths: list[list[Node]]) -> tuple[Node, Node] | None:
    """Returns a mean and the mean of the squares around it, where a group begins with these two."""
    if len(depths) < 2 or len(depths[0]) != 1 or len(depths[1]) != 1:
        return None
    mean, spread = depths[0][0], depths[1][0]
    square = spread.args[0]
    if mean.text != "mean" or spread.text != "mean" or square.op != "square" or square.args[0].op != "sub":
        return None
    whole, centre = square.args[0].args
    return (mean, spread) if whole == mean.args[0] and alike(centre, mean) else None


ROW_WAYS["wide"] = WideRowKernel
