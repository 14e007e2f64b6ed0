"""Turns an expression into kernels and host lines: the `Writer`, and elementwise operators fused after an anchor.

To add an operator, you need these terms:

- An *anchor* is an operator with a kernel of its own. `ANCHORS[op]` is a function `(writer, node, epilogue) -> str` in
  a module of `families/` (named in `families/__init__.py`). It writes the kernel (`writer.kernel`), allocates, launches
  (`writer.line`, `writer.launch`) and returns the Python name of a contiguous float32 tensor with the result. It gets
  operands from `writer.tensor(node.args[0])`, which lowers them first. Register it with `@anchor("conv")`.
- The `Epilogue` holds the elementwise operators after an anchor. Let `acc` be the result of the element with linear
  index `o` (long long, in the shape of the anchor's node). Where `acc` is ready in the kernel, write
  `epilogue.store("y", "acc", "o", indent, axes)`: statements that end in `y[o] = …;`. An empty epilogue gives that
  statement alone. `axes` maps dimensions of the result to C variables that hold the index there, e.g. `{1: "c"}`: a
  bias of shape (C, 1, 1) is then read as `bias[c]`. Afterwards `epilogue.parameters` is the text to append to the
  kernel's parameters (each with a comma before), and `epilogue.arguments("y")` the same for the launch, given the
  output's name. The output has the anchor's own shape: operators that would widen it are not fused.
- An anchor that cannot fuse (its result is not written by one statement) is registered with `@anchor(..., fuses=False)`
  and gets an empty epilogue.
- `writer.shape(node)` returns the sizes that the text declares, -1 for unknown ones. Build only the rank and sizes of
  one into a kernel. `SHAPES[op]` holds the rule of an operator: `(writer, node) -> Shape`; an operator without a rule
  keeps the shape of its first operand.
- `writer.option(node, name)` returns the value of an option that the text fixes; `node.option(name)` is its Python
  text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kernelwright.solutions.kernels.allocation import allocation
from kernelwright.solutions.kernels.fusion import CTYPES, NUMBERS, READERS, Fusion, Operands, leaves, region, same
from kernelwright.solutions.kernels.lanes import by_elements, vectorised
from kernelwright.solutions.kernels.operators import COMPARISONS, FUSED, LOGIC
from kernelwright.solutions.kernels.plan import AnswerPlan, titled, unmarked
from kernelwright.solutions.kernels.schedule import Schedule
from kernelwright.solutions.kernels.values import Values
from kernelwright.solutions.read.declared import Declared, Shape, broadcast
from kernelwright.solutions.read.facts import Facts, read_facts
from kernelwright.solutions.read.reading import Node, ReferenceText, Unreadable, nodes
from kernelwright.solutions.read.wholes import stored_truth, whole

Anchor = Callable[["Writer", Node, "Epilogue"], str]
ANCHORS: dict[str, Anchor] = {}
FUSING: set[str] = set()
"""The anchors that take an epilogue."""
REGIONS: list[Callable[[Writer, Node], Callable[[], str] | None]] = []
"""Lowerings that take elementwise operators together with the reductions below them. Each returns for a node the
function that writes it, or None."""
_WHOLE = frozenset(("input", "tensor", "tuple", "arange", "cast", "contiguous", *NUMBERS))
"""Nodes that `Writer.apart` leaves unchanged: they are no operators, or have no elements of their own."""
_PICKS = frozenset(("pick", "gather", "repeat_interleave", "flip", "roll", "pad", "cat", "stack"))
"""Readers that are operators of the text, not views."""
RESHAPES: set[str] = set()
"""Anchors that only change the shape: the same elements in the same order."""
SHAPES: dict[str, Callable[[Writer, Node], Shape]] = {}


def anchor(*ops: str, fuses: bool = True) -> Callable[[Anchor], Anchor]:
    """Registers a function as the lowering of operators."""

    def register(function: Anchor) -> Anchor:
        ANCHORS.update(dict.fromkeys(ops, function))
        FUSING.update(ops if fuses else ())
        return function

    return register


def shape_rule(*ops: str) -> Callable[[Callable[[Writer, Node], Shape]], Callable[[Writer, Node], Shape]]:
    """Registers the rule for the shape of operators' results."""

    def register(function: Callable[[Writer, Node], Shape]) -> Callable[[Writer, Node], Shape]:
        SHAPES.update(dict.fromkeys(ops, function))
        return function

    return register


@dataclass(frozen=True)
class _Begun:
    """A tensor that is being lowered, with the positions of its first line and its first kernel."""

    node: Node
    line: int
    kernel: int


_PYTHON_NAMES = frozenset("torch nn F math kernels self Module".split())


class Writer(Values):
    """Collects kernels and the lines of forward."""

    def __init__(
        self, reference: ReferenceText, schedule: Schedule, facts: Facts | None = None, plan: AnswerPlan | None = None
    ) -> None:
        self.reference = reference
        self.plan = plan
        """The source of comments; None writes no comments."""
        self.facts = facts or read_facts(reference)
        self.schedule = schedule
        self.kernels: list[str] = []
        """Device functions and kernels, in order."""
        self.lines: list[str] = []
        """Lines of forward."""
        self.functions: list[str] = []
        """Python functions that forward calls (see `prepacked`)."""
        self._names = {*_PYTHON_NAMES, *reference.inputs, *self.facts.constants}
        self._kernel_names: set[str] = set()
        self._tensors: dict[Node, str] = {}
        self._begun: list[_Begun] = []
        """The stack of tensors that are being lowered; each is an operand of the one before it."""
        self._shapes: dict[Node, Shape] = {}
        self.floats: set[str] = set()
        """Python names of tensors that are known to hold float32 in row-major order."""
        self._users: Counter[Node] = Counter()
        self._ways: dict[Node, Callable[[], str] | None] = {}
        self._floating: dict[Node, str] = {}
        self.views: dict[Node, str] = {}
        """Python names of views that were made, which need not be in row-major order."""
        self.root: Node | None = None
        self.lowered: dict[Node, Node] = {}
        """Value of the text -> the node that it became (see `lowering.lower`)."""
        self.titles: dict[Node, str] = {}
        """Lowered node -> the operator of the text that it stands for."""

    # Text --------------------------------------------------------------------------------------------------------

    def fresh(self, name: str) -> str:
        """Returns an unused Python name: `name`, or `name2`, …"""
        found, count = name, 2
        while found in self._names:
            found, count = f"{name}{count}", count + 1
        self._names.add(found)
        return found

    def local(self, name: str) -> str:
        """Returns a Python name for a number that is used at once: `name`, or `name_` where forward uses `name`
        itself."""
        return f"{name}_" if name in self.reference.inputs or name in self.facts.constants else name

    def result(self, name: str = "y", node: Node | None = None) -> str:
        """Returns a Python name for a value, by default the tensor that is being computed.

        With a plan it is the operator's name, else `name`.
        """
        node = node or (self._begun[-1].node if self._begun else None)
        if not self.plan or node is None:
            return self.fresh(name)
        said = self.plan.result(node) or self.plan.part("part", node)
        return self.fresh(name if said == "part" or said in self._names else said)

    def kernel_name(self, op: str) -> str:
        """Returns `<op>_kernel`, numbered after the first; with a plan `<op>_t3` for a kernel that computes `t3`."""
        of = self.plan.part("", self._begun[-1].node) if self.plan and self._begun else ""  # "_t3"
        found, count = f"{op}{of or '_kernel'}", 2
        while found in self._kernel_names:
            found, count = f"{op}{count}{of}" if of else f"{op}_kernel{count}", count + 1
        self._kernel_names.add(found)
        return found

    def kernel(self, text: str) -> None:
        """Adds device functions or a kernel; the same text is added once."""
        if not self.has_kernel(text):
            self.kernels.append(text.strip("\n"))

    def has_kernel(self, text: str) -> bool:
        """Tells whether the same text was added before."""
        return unmarked(text.strip("\n")) in map(unmarked, self.kernels)

    def line(self, text: str) -> None:
        """Adds a line to forward."""
        text = self.resolved(text)  # resolving may add lines
        self.lines.append(text)

    def resolved(self, text: str) -> str:
        """Replaces hidden names of tensors (see `read.forward`) in Python text by the tensors' own names."""
        for name in sorted(set(re.findall(r"\b__n\d+\b", text))):
            text = re.sub(rf"\b{name}\b", self.tensor(self._sized(self._hidden(name))), text)
        return text

    def _hidden(self, name: str) -> Node:
        """Returns the value that a hidden name stands for, in its lowered form."""
        node = self.reference.hidden[name]
        return self.lowered.get(node, node)

    def _sized(self, node: Node) -> Node:
        """Returns a tensor of the same sizes as a node, to avoid computing the node for its sizes alone."""
        while node.op in FUSED and node not in self._tensors:
            alike = [a for a in node.args if a.op not in NUMBERS and same(self.shape(a), self.shape(node))]
            if not alike:
                break
            node = alike[0]
        return node

    def launch(self, name: str, grid: str, arguments: str, block: str | int | None = None) -> None:
        """Adds the launch of a kernel."""
        self.line(f"kernels.{name}[{grid}, {block or self.schedule.block}]({arguments})")

    # Values ------------------------------------------------------------------------------------------------------

    def output(self, root: Node) -> str:
        """Writes all of forward, already lowered; returns the Python text of its return value."""
        for part in root.args if root.op == "tuple" else (root,):
            if whole(self, part) and self.kind(part) in ("float", "half"):
                raise Unreadable(f"no template for {part.op} of whole numbers")
        self.count_users(root)
        self.root = root
        if root.op == "tuple":
            return ", ".join(self.rounded(arg, self.tensor(arg)) for arg in root.args)
        result = self.rounded(root, self.tensor(root))
        if not self.kernels:
            raise Unreadable("no template for a forward that computes nothing")
        return result

    def tensor(self, node: Node) -> str:
        """Returns Python text of a contiguous tensor with a node's value, in float32 (or long, int, bool for such
        inputs)."""
        if node not in self._tensors:
            self._tensors[node] = self._said(node)
            if self.kind(node) in ("float", "half"):
                self.floats.add(self._tensors[node])
        return self._tensors[node]

    def floats_of(self, node: Node) -> str:
        """Returns `tensor(node)` for kernels that read float32 only. Raises `Unreadable` for other kinds."""
        if self.kind(node) not in ("float", "half"):
            raise Unreadable(f"no template for {node.op} of {self.kind(node)} joined or repeated")
        return self.tensor(node)

    def _said(self, node: Node) -> str:
        """Lowers a node; with a plan, comments its first line and its first kernel with the values that they compute.

        Operands are lowered on the way, so the node's own lines are those after its last operand's.
        """
        self._begun.append(_Begun(node, len(self.lines), len(self.kernels)))
        try:
            name = self._lower(node)
        finally:
            begun = self._begun.pop()
        if self.plan and (said := self.plan.computed(node, self._tensors)):
            if len(self.lines) > begun.line:
                self.lines.insert(begun.line, f"# {', '.join(said)}")
            for at in [k for k in range(begun.kernel, len(self.kernels)) if 'extern "C"' in self.kernels[k]][:1]:
                self.kernels[at] = titled(self.kernels[at], said)
        if self._begun:
            self._begun[-1] = replace(self._begun[-1], line=len(self.lines), kernel=len(self.kernels))
        return name

    def apart(self, node: Node) -> Node:
        """Gives an operator's value a tensor of its own and returns a node for that tensor.

        Views and numbers are returned unchanged.
        """
        if node.op in _WHOLE or node.op in RESHAPES or node.op in READERS and node.op not in _PICKS:
            return node
        try:
            declared = Declared(self.shape(node), self.kind(node))
        except Unreadable:  # its users may not need the shape
            return node
        self._users.clear()
        self.count_users(node)
        name = self.tensor(node)
        stand = Node("tensor", text=name)
        self.facts.tensors[name], self._floating[stand] = declared, self.floating(node)
        self._tensors[stand] = name
        return stand

    def has(self, node: Node) -> bool:
        """Tells whether a tensor with a node's value exists already."""
        return node in self._tensors

    def bearer(self, node: Node) -> str:
        """Returns Python text of a tensor with a node's shape, if possible without computing the node's value."""
        if node.op in READERS and not self.has(node) and (found := READERS[node.op].bearer(self, node)):
            return found
        return self.tensor(node)

    def moved(self, name: str) -> bool:
        """Tells whether a tensor is a view whose dimensions may be permuted in memory; `empty_like` would keep that
        order."""
        node = next((n for n, view in self.views.items() if view == name), None)
        while node is not None and node in self.views:
            if node.op not in ("piece", "narrow", "index", "select"):
                return True
            node = node.args[0]
        return False

    def flat(self, node: Node) -> str:
        """Returns Python text of a contiguous tensor with a node's elements, in any shape."""
        while node.op in RESHAPES and node not in self._tensors:
            node = node.args[0]
        return self.tensor(node)

    def _lower(self, node: Node) -> str:
        if node.op == "input":
            return self._input(node)
        if node.op == "tensor":
            kind = self.kind(node)
            return f"{node.text}.float()" if kind == "half" else node.text
        if node.op == "constant":
            return self._constant(node)
        if node.op in FUSED:
            return elementwise(self, node) if stored_truth(self, node) else self._fused(node)
        if node.op in READERS and node.op not in ANCHORS:
            return elementwise(self, node)
        if node.op in ANCHORS:
            return ANCHORS[node.op](self, node, Epilogue(self, node, node))
        raise Unreadable(f"no template for {node.op}")

    def _constant(self, node: Node) -> str:
        """Adds the line that makes a tensor of one value with torch."""
        name = self.fresh("fill")
        if node.args:
            self.line(f"{name} = torch.full_like({self.bearer(node.args[0])}, {node.text}, dtype=torch.float32)")
        else:
            device = next((n for n, v in self.facts.inputs.items() if isinstance(v, Declared)), "")
            shape = node.option("shape")
            if shape.startswith("(") or shape.endswith(".shape"):
                self.line(f"{name} = torch.full({shape}, {node.text}, device={device}.device)")
            else:  # one size, or several
                self.line(f"{name} = torch.empty({shape}, device={device}.device).fill_({node.text})")
        return name

    def _input(self, node: Node) -> str:
        found = self.facts.inputs.get(node.text)
        if isinstance(found, (int, float)):
            raise Unreadable(f"the number {node.text} where a tensor is needed")
        if isinstance(found, Declared) and found.dtype == "double":
            raise Unreadable("no template computes in float64")
        convert = "" if isinstance(found, Declared) and found.dtype in CTYPES else ".float()"
        self.line(f"{node.text} = {node.text}{convert}.contiguous()")
        return node.text

    def _fused(self, node: Node) -> str:
        """Lowers elementwise operators: into the kernel of the anchor below them, else in a kernel of their own."""
        if how := self.how(node):
            return how()
        if below := self.fusing(node):
            return ANCHORS[below.op](self, below, Epilogue(self, node, below))
        return elementwise(self, node)

    def how(self, node: Node) -> Callable[[], str] | None:
        """Returns the function that lowers elementwise operators together with reductions below them, or None."""
        if node not in self._ways:
            found = (way(self, node) for way in REGIONS)
            self._ways[node] = next((f for f in found if f), None)
        return self._ways[node]

    def reads(self, root: Node, inside: Callable[[Node], bool] = lambda node: False) -> frozenset[Node]:
        """Returns the elementwise nodes below `root` that get kernels of their own.

        These nodes fuse into an anchor or into a row kernel. Nodes that are `inside` belong to the root's own kernel
        and are entered.
        """
        found: set[Node] = set()
        seen: set[Node] = set()
        stack = list(root.args)
        while stack:
            node = stack.pop()
            if node in seen or node.op not in FUSED and not inside(node):
                continue
            seen.add(node)
            own = inside(node)
            if not own and node.op in FUSED and (self.how(node) or self.fusing(node)) and not self._splits(node):
                found.add(node)
            else:
                stack.extend(node.args)
        return frozenset(found)

    def _splits(self, root: Node) -> bool:
        """Tells whether a value between `root` and the anchor below it has other users. That value is then fused
        instead."""
        for node in region(root):
            if node != root and self.fusing(node):
                if sum(arg == node for user in region(root) for arg in user.args) < self._users[node]:
                    return True
        return False

    def fusing(self, node: Node) -> Node | None:
        """Returns the anchor into whose kernel an elementwise node would be fused, or None."""
        if self.plan and not self.plan.result(node):
            return None  # a part of an operator stays with the operator's other parts
        for below in leaves(node):
            if below.op in FUSING and below not in self._tensors and self._only_within(below, node):
                if same(self.shape(below), self.shape(node)):
                    return below
        return None

    def title(self, node: Node) -> str:
        """Returns the operator of the text that a lowered node stands for; empty for none."""
        return self.titles.get(node, "")

    def _only_within(self, below: Node, root: Node) -> bool:
        """Tells whether all uses of a node are by the elementwise operators under `root`."""
        uses = sum(arg == below for user in region(root) for arg in user.args)
        return uses == self._users[below]

    def count_users(self, root: Node) -> None:
        """Counts the uses of each value; call it once before lowering."""
        for node in nodes(root):
            self._users.update(node.args)

    # Facts -------------------------------------------------------------------------------------------------------

    def shape(self, node: Node) -> Shape:
        """Returns sizes as declared, -1 for unknown ones. Raises `Unreadable` where even the rank is unknown."""
        if node not in self._shapes:
            self._shapes[node] = self._shape(node)
        return self._shapes[node]

    def _shape(self, node: Node) -> Shape:
        if node.op == "constant" and node.args:
            return self.shape(node.args[0])
        if node.op in NUMBERS and node.op not in SHAPES:
            return ()
        if node.op in ("input", "tensor"):
            table: Mapping[str, Any] = self.facts.inputs if node.op == "input" else self.facts.tensors
            found = table.get(node.text.removeprefix("self."))
            if isinstance(found, Declared):
                return found.shape
            if isinstance(found, (int, float)):
                return ()
            raise Unreadable(f"the text does not give the shape of {node.text}")
        if node.op in SHAPES:
            return SHAPES[node.op](self, node)
        if node.op in FUSED:
            shape: Shape = ()
            for arg in node.args:
                shape = broadcast(shape, self.shape(arg))
            return shape
        return self.shape(node.args[0])

    def kind(self, node: Node) -> str:
        """Returns the kind of a node's elements: float, long, int or bool; half for inputs and weights of 16-bit
        types."""
        if node.op in COMPARISONS or node.op in LOGIC:
            return "bool"
        if node.op == "reduce" and node.text in ("sum", "prod") and self.kind(node.args[0]) in ("bool", "long", "int"):
            return "long"
        if node.op in RESHAPES or node.op in READERS:
            return self.kind(node.args[0])
        if node.op in ("argmax", "argmin", "cummax_indices", "cummin_indices"):
            return "long"
        if node.op in ("input", "tensor"):
            table: Mapping[str, Any] = self.facts.inputs if node.op == "input" else self.facts.tensors
            found = table.get(node.text.removeprefix("self."))
            kind = found.dtype if isinstance(found, Declared) else "float"
            return "half" if kind == "bfloat16" else kind
        return "float"

    def rounded(self, node: Node, name: str) -> str:
        """Converts a result to the reference's dtype; kernels compute and store float32."""
        computed = self.kind(node) == "float" or (self.kind(node) == "half" and node.op in READERS)
        kind = self.floating(node) if computed else ""
        return f"{name}.{kind}()" if kind in ("half", "bfloat16", "double") else name

    def floating(self, node: Node) -> str:
        """Returns the floating type of a value by torch's promotion; empty for integers, booleans and numbers."""
        if node.op in ("input", "tensor") and node not in self._floating:
            table: Mapping[str, Any] = self.facts.inputs if node.op == "input" else self.facts.tensors
            found = table.get(node.text.removeprefix("self."))
            kind = found.dtype if isinstance(found, Declared) else "float" if node.op == "tensor" else ""
            return kind if kind in ("half", "bfloat16", "float", "double") else ""
        if node.op in COMPARISONS or node.op in LOGIC:
            return ""
        made = self.facts.attributes.get(f"{node.text.removeprefix('self.')}.dtype") if node.text else None
        if made in ("half", "bfloat16"):
            return str(made)
        if node.op == "cast":
            return node.text or self.floating(node.args[1])
        if node not in self._floating:
            kinds = {self.floating(a) for a in node.args}
            wide = [k for k in ("double", "float") if k in kinds]
            both = {"half", "bfloat16"} <= kinds
            found = wide[0] if wide else "float" if both else "".join(kinds - {""})
            self._floating[node] = found or ("float" if self._made_floating(node) else "")
        return self._floating[node]

    def _made_floating(self, node: Node) -> bool:
        """Tells whether a Python number promotes integers or booleans to floating point: `0.5 * (x > 0)` is float32."""
        if node.op not in ("add", "sub", "mul", "div") or all(a.op == "number" for a in node.args):
            return False
        try:
            return any(isinstance(self.value(a.text), float) for a in node.args if a.op == "number")
        except Unreadable:
            return False

    def weight(self, layer: Node, name: str, text: str = "") -> str:
        """Returns Python text of a layer's weight or bias in float32, by default `LAYER.NAME`; "None" where it has
        none."""
        path, text = layer.text.removeprefix("self."), text or f"{layer.text}.{name}"
        if self.facts.attributes.get(f"{path}.dtype", "float") == "float":
            return text
        return "None" if self.facts.attributes.get(f"{path}.{name}") is False else f"{text}.float()"

    def option(self, node: Node, name: str, default: str = "None") -> Any:
        """Returns the value of an option that the text fixes. Raises `Unreadable` where it does not."""
        return self.value(node.option(name) or default)

    def value(self, text: str) -> Any:
        """Returns the value of Python text, as far as the task's text fixes it. Raises `Unreadable`."""
        for name in re.findall(r"\b__n\d+\b", text):
            self.facts.shapes[name] = self.shape(self._hidden(name))
        return self.facts.value(text)


class Epilogue:
    """The elementwise operators after an anchor: `root` is the last of them, `below` the anchor's node."""

    def __init__(self, writer: Writer, root: Node, below: Node) -> None:
        self._writer, self._root, self._below = writer, root, below
        self._fusion: Fusion | None = None
        self._shared = False
        self._reads = frozenset(n for n in writer.reads(root) if below not in leaves(n))
        for leaf in leaves(root, self._reads):
            if leaf != below and leaf.op not in (*NUMBERS, "input", "tensor"):
                writer.tensor(leaf)  # its lines come before the anchor's

    def __bool__(self) -> bool:
        return self._root != self._below

    def store(
        self,
        y: str,
        acc: str,
        index: str,
        indent: str = "    ",
        axes: Mapping[int, str] = {},
        taken: tuple[str, ...] = (),
        operands: Operands | None = None,
    ) -> str:
        """Returns statements that apply the operators to the variable `acc` and store the result at `y[index]`."""
        # The anchor declares and passes the operands that it shares with its epilogue.
        self._shared = operands is not None
        if not self:
            return f"{indent}{y}[{index}] = {acc};"
        shape = self._writer.shape(self._root)
        operands = operands or Operands()
        operands.taken |= {acc, y, index, *axes.values(), *taken}
        self._fusion = Fusion(self._writer, shape, index, axes, indent, operands, reads=self._reads)
        text = self._fusion.start(self._root, {self._below: acc}, reuse=acc)
        return "\n".join([*self._fusion.statements, f"{indent}{y}[{index}] = {text};"])

    @property
    def parameters(self) -> str:
        """The text to append to the kernel's parameters; known after `store`."""
        if self._fusion is None or self._shared:
            return ""
        pointers = self._fusion.operands.pointers("")[0].removesuffix(", ")
        return (f", {pointers}" if pointers else "") + self._fusion.operands.numbers("")[0]

    def arguments(self, y: str) -> str:
        """Returns the text to append to the launch's arguments; known after `store`. `y`: the output's Python name."""
        if self._fusion is None or self._shared:
            return ""
        pointers = self._fusion.operands.pointers(y)[1].removesuffix(", ")
        return (f", {pointers}" if pointers else "") + self._fusion.operands.numbers(y)[1]


ELEMENTWISE_WAYS: dict[str, Callable[[Writer, Node], str]] = {}
"""Value of `Schedule.memory` -> the function that takes the place of `elementwise`."""


def elementwise(writer: Writer, node: Node) -> str:
    """Adds a kernel of elementwise operators alone; returns the Python name of its result."""
    if way := ELEMENTWISE_WAYS.get(writer.schedule.memory):
        return way(writer, node)
    shape, schedule = writer.shape(node), writer.schedule
    reads = writer.reads(node)
    strided = schedule.per_thread > 1
    operands = Operands({"y", "i", "n"}, first="x")
    fusion = Fusion(writer, shape, "i", indent=" " * 8 if strided else " " * 4, operands=operands, reads=reads)
    text = fusion.start(node)
    ops = list(region(node, reads))
    name = writer.kernel_name(writer.title(node) or (node.op if len(ops) < 2 else "fused"))
    out = "bool" if writer.kind(node) == "bool" else "float"
    if writer.kind(node) in ("long", "int"):  # its users would read the float result as integers
        raise Unreadable(f"no template for {node.op} of whole numbers")
    y = writer.result()
    (pointers, tensors), (numbers, values) = operands.pointers(y), operands.numbers(y)
    parameters = f"{pointers}{out}* y, long long n{numbers}"
    each = schedule.per_thread * schedule.block
    lanes = vectorised(name, fusion, text, parameters) if schedule.vector == 4 and out == "float" else ""
    if lanes:
        writer.kernel(lanes)
        each = 4 * schedule.block
    else:
        writer.kernel(by_elements(name, fusion, text, parameters, strided))
    writer.line(f"{y} = {allocation(writer, node, reads, shape, out)}")
    writer.launch(name, f"({y}.numel() + {each - 1}) // {each}", f"{tensors}{y}, {y}.numel(){values}")
    return y
