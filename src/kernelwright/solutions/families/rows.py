"""Reductions, and the operators between them along the same dimensions: softmax, norms by hand, statistics, losses.

The reduced elements are a *row*: `n` elements, `inner` apart. Reductions over the same dimensions of one shape, and the
elementwise operators between them, make one kernel: a block a row where rows are contiguous, a thread a row where
neighbouring rows are adjacent. A reduction over everything has a kernel of its own whose blocks add to one number.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kernelwright.solutions.families.blocks import KINDS, block_function
from kernelwright.solutions.kernels.fusion import NUMBERS, Fusion, Operands, leaves, matches, same
from kernelwright.solutions.kernels.operators import FUSED
from kernelwright.solutions.kernels.stages import REGIONS, Epilogue, Writer, anchor, shape_rule
from kernelwright.solutions.read.declared import Shape
from kernelwright.solutions.read.lowering import reduce
from kernelwright.solutions.read.reading import Node, Unreadable, nodes

_NAMES = {"sum": "total", "mean": "mean", "prod": "product", "max": "high", "min": "low"}


def dims_of(node: Node) -> tuple[int, ...]:
    """Returns the dimensions of a `reduce` or `count` node."""
    return tuple(ast.literal_eval(node.option("dims")))


def kept(shape: Shape, dims: tuple[int, ...]) -> Shape:
    """Returns a shape with its reduced dimensions of size one."""
    return tuple(1 if d in dims else s for d, s in enumerate(shape))


def left(shape: Shape, dims: tuple[int, ...]) -> Shape:
    """Returns a shape without its reduced dimensions."""
    return tuple(s for d, s in enumerate(shape) if d not in dims)


@shape_rule("reduce")
def _reduce_shape(writer: Writer, node: Node) -> Shape:
    shape, dims = writer.shape(node.args[0]), dims_of(node)
    return kept(shape, dims) if node.option("keepdim") else left(shape, dims)


@shape_rule("count", "size")
def _number_shape(writer: Writer, node: Node) -> Shape:
    return ()


# What one kernel covers ----------------------------------------------------------------------------------------------


@dataclass
class Group:
    """Reductions over `dims` of tensors of shape `full`, and the operators up to `root` that use them."""

    writer: Writer
    root: Node
    full: Shape
    dims: tuple[int, ...]
    members: list[Node] = field(default_factory=list)
    """Reductions in an order of computation; two that differ only in `keepdim` are both listed."""
    _levels: dict[Node, str] = field(default_factory=dict)

    def level(self, node: Node) -> str:
        """Returns `row` for one value a row, `full` for one an element, `free` where no reduction of the group is
        used."""
        if node not in self._levels:
            self._levels[node] = self._level(node)
        return self._levels[node]

    def _level(self, node: Node) -> str:
        if node.op in ("reduce", "count"):  # a count along other dimensions is not this group's
            return "row" if self.owns(node) else "free"
        if node.op not in FUSED:
            return "free"
        if all(self.level(a) == "free" for a in node.args):
            return "free"
        return "row" if self._is_row(self.writer.shape(node)) else "full"

    def _is_row(self, shape: Shape) -> bool:
        return matches(shape, kept(self.full, self.dims)) or matches(shape, left(self.full, self.dims))

    def owns(self, node: Node) -> bool:
        """Tells whether a reduction or a count runs along this group's rows."""
        along = node.op in ("reduce", "count") and dims_of(node) == self.dims
        return along and matches(self.writer.shape(node.args[0]), self.full)

    def collect(self, node: Node) -> None:
        """Adds the reductions that a node depends on.

        Raises `Unreadable` where a row's value meets elements other than its own row's.
        """
        if node.op == "reduce" and self.owns(node):
            if node not in self.members:
                self.collect(node.args[0])
                self.members.append(node)
        elif node.op in FUSED:
            for arg in node.args:
                self.collect(arg)
            if self.level(node) == "full":
                if not matches(self.writer.shape(node), self.full):
                    raise Unreadable("rows of different shapes in one expression")
                for arg in node.args:
                    if self.level(arg) == "row" and arg.op != "count" and not self._lined_up(arg):
                        raise Unreadable("a reduction without keepdim within an expression")

    def _lined_up(self, arg: Node) -> bool:
        shape = self.writer.shape(arg)
        return len(shape) == len(self.full) or not shape


def group_of(writer: Writer, root: Node) -> Group | None:
    """Returns the group that computes `root`, or None where it is not made of reductions along the same rows.

    A group that takes in a statistic along other rows, recognised by its count, is used only where there is no other.
    """
    return _group_of(writer, root, False) or _group_of(writer, root, True)


def _group_of(writer: Writer, root: Node, foreign: bool) -> Group | None:
    for node in _reductions(root):
        shape, dims = writer.shape(node.args[0]), dims_of(node)
        if len(dims) == len(shape) > 1 and node != root:
            continue  # one number, which needs all blocks and so a kernel of its own
        if not _together(dims):
            continue
        group = Group(writer, root, shape, dims)
        try:
            group.collect(root)
        except Unreadable:
            continue
        if not foreign and any(n.op == "count" and not group.owns(n) for n in leaves(root)):
            continue
        if group.level(root) != "free" and _is_whole(group, root):
            return group
    return None


def _together(dims: tuple[int, ...]) -> bool:
    """Tells whether dimensions are adjacent, so that a row's elements have one stride."""
    return dims == tuple(range(dims[0], dims[-1] + 1)) if dims else True


def _is_whole(group: Group, root: Node) -> bool:
    """Tells whether the root has one value a row or the rows' own shape."""
    return group.level(root) == "row" or matches(group.writer.shape(root), group.full)


def _reductions(root: Node) -> Iterator[Node]:
    """Yields the reductions of a value, nearest first, through elementwise operators and other reductions."""
    seen: set[Node] = set()
    queue = [root]
    while queue:
        node = queue.pop(0)
        if node in seen or node.op not in FUSED and node.op != "reduce":
            continue
        seen.add(node)
        if node.op == "reduce":
            yield node
        queue.extend(node.args)


def _by_rows(writer: Writer, node: Node) -> Callable[[], str] | None:
    group = group_of(writer, node) if node.op in FUSED else None
    return _kernel(writer, group).write if group else None


def _kernel(writer: Writer, group: Group) -> RowKernel:
    return ROW_WAYS.get(writer.schedule.memory, RowKernel)(writer, group)


REGIONS.append(_by_rows)


# The kernel ----------------------------------------------------------------------------------------------------------


@anchor("reduce", fuses=False)
def reduction(writer: Writer, node: Node, epilogue: Epilogue) -> str:
    """Lowers a reduction that is a value of its own."""
    dims, shape = dims_of(node), writer.shape(node.args[0])
    if not dims and not shape:
        raise Unreadable("a reduction of a number")
    if len(dims) == len(shape):
        return whole(writer, node)
    if not _together(dims):
        return _apart(writer, node, dims, shape)
    found = group_of(writer, node)
    assert found is not None
    return _kernel(writer, found).write()


def _apart(writer: Writer, node: Node, dims: tuple[int, ...], shape: Shape) -> str:
    """Moves dimensions that are not adjacent to the end first, or reduces them one after the other."""
    if writer.schedule.memory == "wide" and node.text in KINDS and writer.kind(node) == "float":
        start = next(d for d in dims if _together(tuple(e for e in dims if e >= d)))
        rest = tuple(d for d in dims if d < start)
        below = reduce(node.text, node.args[0], tuple(d for d in dims if d >= start), True)
        y = writer.tensor(reduce(node.text, below, rest, True))
        return y if node.option("keepdim") else f"{y}.squeeze({dims})"
    order = [d for d in range(len(shape)) if d not in dims] + list(dims)
    moved = Node("permute", node.args, options=(("dims", repr(tuple(order))),))
    last = tuple(range(len(shape) - len(dims), len(shape)))
    y = writer.tensor(Node("reduce", (moved,), node.text, (("dims", repr(last)), ("keepdim", ""))))
    for d in dims if node.option("keepdim") else ():
        y = f"{y}.unsqueeze({d})"
    return y


class RowKernel:
    """Writes the kernel of a group."""

    def __init__(self, writer: Writer, group: Group) -> None:
        self.writer, self.group = writer, group
        full, dims = group.full, group.dims
        self.inner = [d for d in range(dims[-1] + 1, len(full)) if full[d] != 1]
        """Dimensions after the reduced ones; where there are any, a row's elements are strided."""
        self.threads = bool(self.inner) and writer.schedule.thread_rows
        """True where a thread computes a row, False where a block does."""
        self.operands = Operands(first="x")
        counts = (node for node in nodes(group.root) if node.op == "count" and group.owns(node))
        self.known: dict[Node, str] = {node: f"(n - {node.text})" for node in counts}
        self._between: dict[Node, str] = {}
        """Values of the row between the loops -> the names that are declared there."""
        self._declared: set[str] = set()
        self.text: list[str] = []
        roots = (group.root, *(m.args[0] for m in group.members))
        self.reads = frozenset(n for root in roots for n in writer.reads(Node("", (root,)), self._inside))

    def _inside(self, node: Node) -> bool:
        return self.group.level(node) != "free"

    def write(self) -> str:
        """Adds kernel and launch; returns the output's Python name."""
        writer, root, group = self.writer, self.group.root, self.group
        depths = depths_of(group)
        if writer.schedule.one_pass and (pair := online(depths)):
            self._online_pass(*pair)
            depths = depths[2:]
        for depth in depths:
            self._pass(depth)
        per_element = group.level(root) == "full"
        if per_element:
            loop, fusion = self._loop(), self._fusion("i", " " * 8)
            value = fusion.start(root, self.known)
            self.text += [loop, *fusion.statements, f"        y[i] = {value};", "    }"]
        else:
            guard = "" if self.threads else "    if (threadIdx.x == 0) {\n"
            fusion = self._row_fusion("        " if guard else "    ")
            value = fusion.start(root, self.known) if guard else self._started(fusion, root)
            if guard and not fusion.statements:
                self.text.append(f"    if (threadIdx.x == 0) y[row] = {value};")
            else:
                self.text += [*([guard.rstrip("\n")] if guard else []), *fusion.statements]
                self.text += [f"{'        ' if guard else '    '}y[row] = {value};", *(["    }"] if guard else [])]
        return self._launch(per_element)

    def _pass(self, members: list[Node]) -> None:
        """Adds one loop along the row that computes some reductions."""
        fusion = self._fusion("i", " " * 8)
        names, steps = [self._variable(node) for node in members], []
        values = fusion.start_all([node.args[0] for node in members], self.known)
        for node, name, value in zip(members, names, values, strict=True):
            start, step, _ = KINDS[node.text]
            steps.append("        " + step.format(acc=name, v=value))
            self.text.append(f"    float {name} = {start};")
        self.text += [self._loop(), *fusion.statements, *steps, "    }"]
        for node, name in zip(members, names, strict=True):
            if not self.threads:
                self.text.append(f"    {name} = {block_function(self.writer, node.text)}({name});")
            if node.text == "mean":
                self.text.append(f"    {name} /= n;")
            for twin in self.group.members:
                if alike(twin, node):
                    self.known[twin] = name
        self._row_values(members)

    def _online_pass(self, high: Node, total: Node) -> None:
        """Adds one loop for maximum and sum of exponentials; the sum is rescaled whenever the maximum grows."""
        fusion = self._fusion("i", " " * 8)
        value = fusion.start(high.args[0], self.known)
        self._taken.update(("high", "total", "top"))
        self.text += [
            "    float high = -3.402823466e+38f, total = 0.0f;",  # finite: all elements of a thread may be -inf
            self._loop(),
            *fusion.statements,
            f"        float top = fmaxf(high, {value});",
            f"        total = total * expf(high - top) + expf({value} - top);",
            "        high = top;",
            "    }",
        ]
        if not self.threads:
            self.text += [
                f"    float top = {block_function(self.writer, 'max')}(high);",
                f"    total = {block_function(self.writer, 'sum')}(total * expf(high - top));",
                "    high = top;",
            ]
        for twin in self.group.members:
            for node, name in ((high, "high"), (total, "total")):
                if alike(twin, node):
                    self.known[twin] = name
        self._row_values([high, total])

    def _row_values(self, members: list[Node]) -> None:
        """Computes values of the row that later loops need once, between the loops."""
        group = self.group
        wanted: list[Node] = []
        stack = [group.root, *(m.args[0] for m in group.members if m not in self.known)]
        seen: set[Node] = set()
        while stack:
            node = stack.pop()
            if node in seen or node.op not in FUSED:
                continue
            seen.add(node)
            if group.level(node) == "full":
                stack.extend(node.args)
                wanted += [a for a in node.args if a.op in FUSED and group.level(a) == "row" and a not in self.known]
        for node in dict.fromkeys(wanted):
            if all(m in self.known for m in nodes(node) if m.op == "reduce" and group.owns(m)):
                fusion = self._row_fusion("    ")
                value = self._started(fusion, node)
                self.text += fusion.statements
                self.known[node] = value
                self._taken.add(value)

    def _started(self, fusion: Fusion, node: Node) -> str:
        """Returns the C text of a row's value outside loops, where no name may be declared twice."""
        hidden = self._declared - self._taken
        self._taken.update(hidden)
        value = fusion.start(node, {**self.known, **self._between})
        self._taken.difference_update(hidden)
        self._declared |= fusion.variables
        last = {name: n for n, name in fusion.known.items() if name in self._declared}  # reused: the last value
        self._between.update({n: name for name, n in last.items()})
        return value

    def _variable(self, node: Node) -> str:
        kind, plan = _NAMES[node.text], self.writer.plan
        found = (plan.result(node) or plan.part(kind, node)) if plan else kind
        for count in itertools.count(2):
            if found not in self._taken:
                break
            found = plan.part(f"{kind}{count}", node) if plan else f"{kind}{count}"
        self._taken.add(found)
        return found

    @property
    def _taken(self) -> set[str]:
        return self.operands.taken

    def _fusion(self, place: str, indent: str) -> Fusion:
        taken = {"y", "i", "j", "n", "row", "base", "rows", "inner"}
        self._taken.update(taken)
        axes, dims = self._axes(), self.group.dims
        return Fusion(self.writer, self.group.full, place, axes, indent, self.operands, "{x}", dims, self.reads)

    def _row_fusion(self, indent: str) -> Fusion:
        group = self.group
        shape, bearer = self.writer.shape(group.root), "{y}"
        if not group._is_row(shape):
            shape, bearer = kept(group.full, group.dims), "{x}"
        self._taken.update({"y", "i", "j", "n", "row", "base", "rows", "inner"})
        return Fusion(self.writer, shape, "row", {}, indent, self.operands, bearer, (), self.reads)

    def _axes(self) -> dict[int, str]:
        """Returns the index of the walked dimension, where only one is walked."""
        return {self.group.dims[0]: "j"} if len(self.group.dims) == 1 else {}

    def _loop(self) -> str:
        first, step = ("0", "1") if self.threads else ("threadIdx.x", str(self.writer.schedule.block))
        stride = " * inner" if self.inner else ""
        advance = "j++" if step == "1" else f"j += {step}"
        place = f"base + (long long)j{stride}" if stride else "base + j"
        return f"    for (int j = {first}; j < n; {advance}) {{\n        long long i = {place};"

    def _launch(self, per_element: bool) -> str:
        writer, group = self.writer, self.group
        x = self._sized()
        y = writer.result()
        block = writer.schedule.block
        name = writer.kernel_name(title_of(writer, group))
        (pointers, tensors), (numbers, values) = self.operands.pointers(y, x), self.operands.numbers(y, x)
        if self.threads:
            head = """    long long row = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    long long base = row / inner * n * inner + row % inner;"""
            sizes = "long long rows, int n, int inner"
        elif self.inner:
            head = """    long long row = blockIdx.x;
    long long base = row / inner * n * inner + row % inner;"""
            sizes = "int n, int inner"
        else:
            head = "    long long row = blockIdx.x;\n    long long base = row * n;"
            sizes = "int n"
        body = "\n".join(self.text)
        whole = writer.kind(group.root) == "long"
        out, dtype = ("long long", ", dtype=torch.int64") if whole else ("float", "")
        writer.kernel(f"""
extern "C" __global__ void {name}({pointers}{out}* y, {sizes}{numbers}) {{
{head}
{body}
}}
""")
        n, inner, rows = (writer.local(name) for name in ("n", "inner", "rows"))
        writer.line(f"{n} = {product(x, group.dims)}")
        if self.inner:
            writer.line(f"{inner} = {product(x, tuple(self.inner))}")
        rank = len(group.full)
        if per_element:
            writer.line(f"{y} = {self._full_output(x)}")
        else:
            sizes = reduced_sizes(x, rank, group.dims, writer.shape(group.root))
            writer.line(f"{y} = torch.empty({sizes}{dtype}, device={x}.device)")
        if self.threads:
            writer.line(f"{rows} = {x}.numel() // {n}")
            writer.launch(name, f"({rows} + {block - 1}) // {block}", f"{tensors}{y}, {rows}, {n}, {inner}{values}")
        else:
            more = f", {inner}" if self.inner else ""
            writer.launch(name, f"{x}.numel() // {n}", f"{tensors}{y}, {n}{more}{values}")
        return y

    def _sized(self) -> str:
        """Returns Python text of a tensor that has the rows' shape."""
        for node in self._full_leaves():
            if same(self.writer.shape(node), self.group.full):
                return self.writer.bearer(node)
        whole = self._full_leaves(*(m.args[0] for m in self.group.members))  # leaves outside the reductions
        every = [self.writer.bearer(n) for n in whole if self.writer.shape(n)]
        if not every:
            raise Unreadable("no template for rows of one value")
        x = self.writer.fresh("x")
        listed = ", ".join(f"{name}.shape" for name in every)
        self.writer.line(f"{x} = torch.empty(torch.broadcast_shapes({listed}), device={every[0]}.device)")
        return x

    def _full_leaves(self, *roots: Node) -> list[Node]:
        found: dict[Node, None] = {}
        for root in roots or (self.group.root, *(m.args[0] for m in self.group.members)):
            found.update((n, None) for n in leaves(root, self.reads))
        return [n for n in found if n.op not in NUMBERS and not self.group.owns(n)]

    def _full_output(self, x: str) -> str:
        if self.writer.moved(x):
            return f"torch.empty({x}.shape, device={x}.device)"
        return f"torch.empty_like({x}{'' if x in self.writer.floats else ', dtype=torch.float32'})"


ROW_WAYS: dict[str, type[RowKernel]] = {}
"""Value of `Schedule.memory` -> the class that takes the place of `RowKernel`."""


WHOLE_WAYS: dict[str, Callable[[Writer, Node], str]] = {}
"""Value of `Schedule.memory` -> a function that does the work of `whole`; it returns "" where it cannot."""


def alike(a: Node, b: Node) -> bool:
    return a.text == b.text and a.args == b.args and a.option("dims") == b.option("dims")


def online(depths: list[list[Node]]) -> tuple[Node, Node] | None:
    """Returns the maximum and the sum of exponentials after it, where a group begins with these two."""
    if len(depths) < 2 or len(depths[0]) != 1 or len(depths[1]) != 1:
        return None
    high, total = depths[0][0], depths[1][0]
    if high.text != "max" or total.text != "sum" or total.args[0].op != "exp":
        return None
    shifted = total.args[0].args[0]
    matches = shifted.op == "sub" and shifted.args[0] == high.args[0] and alike(shifted.args[1], high)
    return (high, total) if matches else None


def depths_of(group: Group) -> list[list[Node]]:
    """Returns reductions by their number of predecessors; those that differ only in `keepdim` once."""
    depth: dict[Node, int] = {}
    found: list[list[Node]] = []
    for node in group.members:
        inside = [depth[m] for m in nodes(node.args[0]) if m in depth]
        depth[node] = max(inside, default=-1) + 1
        while len(found) <= depth[node]:
            found.append([])
        if not any(alike(node, other) for other in found[depth[node]]):
            found[depth[node]].append(node)
    return found


def product(x: str, dims: tuple[int, ...]) -> str:
    return " * ".join(f"{x}.shape[{d}]" for d in dims)


def reduced_sizes(x: str, rank: int, dims: tuple[int, ...], shape: Shape) -> str:
    """Returns Python text of a reduced tensor's sizes."""
    if len(shape) == rank:
        parts = ["1" if d in dims else f"{x}.shape[{d}]" for d in range(rank)]
    else:
        parts = [f"{x}.shape[{d}]" for d in range(rank) if d not in dims]
    return ", ".join(parts) if len(parts) > 1 else f"({parts[0]},)" if parts else "()"


def title_of(writer: Writer, group: Group) -> str:
    """Returns the kernel's name: the operator's of the text, where the group is one operator."""
    return writer.title(group.root) or (group.members[0].text if group.root.op == "reduce" else "row")


def whole(writer: Writer, node: Node) -> str:
    """Reduces everything to one number: blocks of sums and means add atomically; other kinds take one block."""
    if (way := WHOLE_WAYS.get(writer.schedule.memory)) and (found := way(writer, node)):
        return found
    kind, inside = node.text, node.args[0]
    shape = writer.shape(inside)
    block = writer.schedule.block
    reads = writer.reads(Node("", (inside,)))
    fusion = Fusion(
        writer, shape, "i", {}, " " * 8, Operands({"y", "i", "n", "acc"}, first="x"), bearer="{x}", reads=reads
    )
    value = fusion.start(inside)
    start, step, _ = KINDS[kind]
    function = block_function(writer, kind)
    name = writer.kernel_name(writer.title(node) or kind)
    adds = kind in ("sum", "mean")
    x, y = largest(writer, inside, reads), writer.result()
    (pointers, tensors), (numbers, values) = fusion.operands.pointers(y, x), fusion.operands.numbers(y, x)
    first, stride = ("threadIdx.x", f"{block}")
    if adds:
        first, stride = f"(long long)blockIdx.x * {block} + threadIdx.x", f"(long long)gridDim.x * {block}"
    end = f"atomicAdd(y, acc{' / n' if kind == 'mean' else ''})" if adds else "y[0] = acc"
    out, dtype = "float", ""
    if writer.kind(node) == "long":  # float32 cannot hold a large count exactly
        out, dtype = "unsigned long long", ", dtype=torch.int64"
        end = "atomicAdd(y, (unsigned long long)acc)" if adds else end
    body = "\n".join([*fusion.statements, "        " + step.format(acc="acc", v=value)])
    writer.kernel(f"""
extern "C" __global__ void {name}({pointers}{out}* y, long long n{numbers}) {{
    float acc = {start};
    for (long long i = {first}; i < n; i += {stride}) {{
{body}
    }}
    acc = {function}(acc);
    if (threadIdx.x == 0) {end};
}}
""")
    size = f"(1,) * {len(shape)}" if node.option("keepdim") else "()"
    writer.line(f"{y} = torch.{'zeros' if adds else 'empty'}({size}{dtype}, device={x}.device)")
    grid = f"min(1024, ({x}.numel() + {block - 1}) // {block})" if adds else "1"
    writer.launch(name, grid, f"{tensors}{y}, {x}.numel(){values}")
    return y


def largest(writer: Writer, node: Node, reads: frozenset[Node]) -> str:
    """Returns Python text of a tensor that has the shape of an elementwise expression."""
    shape = writer.shape(node)
    for leaf in leaves(node, reads):
        if leaf.op not in NUMBERS and same(writer.shape(leaf), shape):
            return writer.bearer(leaf)
    return writer.tensor(node)
