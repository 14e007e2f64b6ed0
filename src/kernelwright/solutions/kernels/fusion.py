"""Writes elementwise operators as CUDA statements at one element, with the operands that they read."""

from __future__ import annotations

import ast
import math
import re
import string
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelwright import syntax
from kernelwright.solutions.kernels.operators import COMPARISONS, DEFAULTS, ELEMENTWISE, FUSED, LOGIC
from kernelwright.solutions.kernels.plan import NAME, marked
from kernelwright.solutions.kernels.values import Values
from kernelwright.solutions.read.declared import Shape
from kernelwright.solutions.read.reading import Node, Unreadable

_C_NAMES = frozenset("v y n i j o acc row inner size total sum best value float int long double half load s".split())
CTYPES = {"float": "float", "long": "long long", "int": "int", "bool": "bool"}
"""C types of a tensor's elements; other dtypes are converted to float on the host."""


def same(a: Shape, b: Shape) -> bool:
    """Tells whether two shapes have the same rank and the same dimensions of size one."""
    return len(a) == len(b) and all((p == 1) == (q == 1) for p, q in zip(a, b, strict=True))


def matches(a: Shape, b: Shape) -> bool:
    """Tells whether two shapes are alike as in `same` and no declared size tells them apart."""
    return same(a, b) and all(p == q or -1 in (p, q) for p, q in zip(a, b, strict=True))


def region(root: Node, reads: Container[Node] = ()) -> Iterator[Node]:
    """Yields the elementwise operators that are computed together with `root`, each once; `reads` are not entered."""
    seen: set[Node] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if node in seen or node.op not in FUSED or node in reads:
            continue
        seen.add(node)
        yield node
        stack.extend(node.args[::-1])


def leaves(root: Node, reads: Container[Node] = ()) -> list[Node]:
    """Returns the operands of `region(root, reads)` from outside it, each once, in order of appearance.

    A root that is no elementwise operator is its own leaf.
    """
    if root.op not in FUSED or root in reads:
        return [root]
    found: dict[Node, None] = {}
    for node in region(root, reads):
        found.update((a, None) for a in node.args if a.op not in FUSED or a in reads)
    return list(found)


NUMBERS = ("number", "count", "size", "constant")
"""Leaves that are numbers of the host."""


@dataclass(frozen=True)
class OperandReader:
    """An operator that reads its operand at another index than the result's: a view, a gather, a shift."""

    read: Callable[[Fusion, Node], str]
    """Returns C text of the value at the fusion's place; the fusion has the node's own shape."""
    bearer: Callable[[Values, Node], str]
    """Returns Python text of a tensor with the result's shape; empty where no tensor has it."""
    sizes: Callable[[Values, Node], str] | None = None
    """Returns Python text of the result's sizes, where no tensor has its shape."""


READERS: dict[str, OperandReader] = {}
POSITIONS: dict[str, Callable[[Fusion, Node], str]] = {}
"""Operators of `FUSED` whose value depends on the element's position. Each returns C text, given its operands'
values."""


CPP_WORDS = frozenset(
    (
        "alignas alignof and asm auto bitand bitor bool break case catch char class compl const constexpr continue "
        "decltype default delete do double else enum explicit export extern false float for friend goto half if "
        "inline int long mutable namespace new noexcept not nullptr operator or private protected public register "
        "return short signed sizeof static struct switch template this throw true try typedef typename union "
        "unsigned using virtual void volatile while xor"
    ).split()
)
"""C++ keywords that a Python attribute may be called but a kernel's parameter may not."""


@dataclass
class Operands:
    """The kernel parameters that its statements read, and the C names in use in the kernel."""

    taken: set[str] = field(default_factory=set)
    table: dict[str, tuple[str, str]] = field(default_factory=dict)
    """C name -> declaration, Python text (with `{y}` for the output's name, `{x}` for an operand's)."""
    first: str = ""
    """The C name of the first tensor among the operands, whatever its name in Python."""

    def pointers(self, y: str, x: str = "") -> tuple[str, str]:
        """Returns the tensors among the operands as kernel parameters and launch arguments, each with a comma after."""
        return self._pick(y, x, True)

    def numbers(self, y: str, x: str = "") -> tuple[str, str]:
        """Returns the numbers among the operands as kernel parameters and launch arguments, each with a comma
        before."""
        return self._pick(y, x, False)

    def _pick(self, y: str, x: str, pointers: bool) -> tuple[str, str]:
        chosen = [(d, t.replace("{y}", y).replace("{x}", x)) for d, t in self.table.values() if ("*" in d) == pointers]
        form = "{}, " if pointers else ", {}"
        return "".join(form.format(d) for d, _ in chosen), "".join(form.format(t) for _, t in chosen)

    def fresh(self, name: str) -> str:
        """Returns an unused C name."""
        found, count = f"{name}_" if name in CPP_WORDS else name, 2
        while found in self.taken:
            found, count = f"{name}{count}", count + 1
        self.taken.add(found)
        return found

    def name(self, wanted: str, ctype: str, python: str) -> str:
        """Returns the parameter for a Python expression; adds it on first use."""
        for name, (declaration, text) in self.table.items():
            if text == python and declaration.startswith(ctype):
                return name
        if ctype.endswith("*") and self.first:
            wanted, self.first = self.first, ""
        wanted = re.sub(r"\W+", "_", wanted).strip("_")
        if not wanted or not wanted[0].isalpha() or len(wanted) > 24:
            wanted = "s"
        if NAME.fullmatch(wanted):
            wanted += "s"  # the name itself belongs to a value of the plan
        name = self.fresh(wanted + "_" if wanted in _C_NAMES or re.fullmatch(r"v\d+", wanted) else wanted)
        self.table[name] = (f"{ctype} {name}", python)
        return name


@dataclass
class Fusion:
    """Writes elementwise operators at one element of a result, as CUDA statements.

    `place` is the C text of the element's linear index in a tensor of shape `shape`. `axes` maps dimensions to C
    variables that hold the index there. Several fusions of one kernel share their `operands`.
    """

    writer: Values
    shape: Shape
    place: str
    axes: Mapping[int, str] = field(default_factory=dict)
    indent: str = "    "
    operands: Operands = field(default_factory=Operands)
    bearer: str = "{y}"
    """The host tensor of shape `shape`: the output, or the operand that the caller passes as `{x}`."""
    walked: tuple[int, ...] = ()
    """Adjacent dimensions whose common index is `j`."""
    reads: frozenset[Node] = frozenset()
    """Elementwise nodes that are read as tensors, because a kernel of their own computes them better."""
    statements: list[str] = field(default_factory=list)
    _known: dict[Node, str] = field(default_factory=dict)
    _left: Counter[Node] = field(default_factory=Counter)
    _own: set[str] = field(default_factory=set)
    """The variables of these statements."""
    _said: str = ""
    """The plan's operator whose statements came last."""

    def start(self, root: Node, known: Mapping[Node, str] | None = None, reuse: str = "") -> str:
        """Adds the statements for `root` and returns its C text; see `start_all`."""
        return self.start_all([root], known, reuse)[0]

    def start_all(self, roots: list[Node], known: Mapping[Node, str] | None = None, reuse: str = "") -> list[str]:
        """Adds the statements for several values and returns their C texts.

        `known` maps values that exist already to their variables. Only the variable `reuse` may be written to.
        """
        self._known.update(known or {})
        self._own.update({reuse} - {""})
        for root in roots:
            self._left[root] += 1
        for node in dict.fromkeys(n for root in roots for n in region(root, self.reads)):
            self._left.update(node.args)
        return [self.value(root) for root in roots]

    @property
    def variables(self) -> set[str]:
        """The C names that the statements declare."""
        return self._own

    @property
    def known(self) -> Mapping[Node, str]:
        """The C texts of values by node; a variable used for several values holds the last one."""
        return self._known

    def value(self, node: Node) -> str:
        """Returns a variable or literal with a node's value."""
        if node in self._known:
            return self._known[node]
        if node in self.reads:
            return self._read(node)
        if node.op in ("count", "size"):
            return self._counted(node)
        if node.op in ("number", "constant"):
            return self.number(node.text)
        if node.op in COMPARISONS or node.op in LOGIC:
            return self._assign(node, self.choice(self.truth(node), self.number("1.0"), self.number("0.0")))
        if node.op == "cast":
            self._left[node.args[0]] += self._left[node]
            self._known[node] = self.value(node.args[0])
            return self._known[node]
        if node.op == "where":
            condition = self.truth(node.args[0])
            return self._assign(node, self.choice(condition, self.value(node.args[1]), self.value(node.args[2])))
        return self._operator(node)

    def choice(self, condition: str, yes: str, no: str) -> str:
        """Returns C text that chooses between two values."""
        return f"{condition} ? {yes} : {no}"

    def _operator(self, node: Node) -> str:
        if node.op in POSITIONS:
            return self._assign(node, POSITIONS[node.op](self, node))
        if node.op == "pow" and (text := self._power(node)):
            return self._assign(node, text)
        if node.op in ELEMENTWISE:
            operands = [self.value(a) for a in node.args]
            template = ELEMENTWISE[node.op]
            wanted = re.findall(r"\{([a-z_]+)\}", template)
            options = {name: self.number(node.option(name) or DEFAULTS[name]) for name in wanted}
            return self._assign(node, template.format(*operands, **options))
        return self._read(node)

    def truth(self, node: Node) -> str:
        """Returns C text of a condition."""
        if node.op in COMPARISONS:
            left, right = self.value(node.args[0]), self.value(node.args[1])
            return f"{left} {COMPARISONS[node.op]} {right}"
        if node.op in LOGIC:
            return LOGIC[node.op].format(*(f"({self.truth(a)})" for a in node.args))
        return self.value(node) if self.writer.kind(node) == "bool" else f"{self.value(node)} != 0.0f"

    def _power(self, node: Node) -> str:
        """Returns small integer powers as products; empty for other powers."""
        try:
            power = self.writer.facts.value(node.args[1].text) if node.args[1].op == "number" else None
        except Unreadable:
            return ""
        if power not in (2, 3, 0.5, -1, -0.5):
            return ""
        base = self.value(node.args[0])
        return {2: f"{base} * {base}", 3: f"{base} * {base} * {base}", 0.5: f"sqrtf({base})", -1: f"1.0f / {base}"}.get(
            power, f"rsqrtf({base})"
        )

    def _assign(self, node: Node, text: str) -> str:
        """Assigns a value to the variable of an operand that is no longer used, or to a new one."""
        for arg in node.args:
            self._left[arg] -= 1
        free = [self._known[a] for a in node.args if a in self._known and self._left[a] == 0]
        free = [name for name in free if name in self._own and name not in self._still_used()]
        named = self._named(node)
        owner = self.writer.plan.owner(node) if self.writer.plan else ""
        if owner:  # names depend on the operator alone
            free = [] if named else [name for name in free if name[:-1] == owner]
        name = named or (free[0] if free else self._variable(owner))
        statement = f"{self.indent}{'' if free else 'float '}{name} = {text};"
        self.statements.append(marked(statement, owner) if owner not in ("", self._said) else statement)
        self._said = owner or self._said
        self._known[node] = name
        return name

    def _named(self, node: Node) -> str:
        """Declares the plan's name for a value; returns "" where it has none, or the name is in use."""
        name = self.writer.plan.result(node) if self.writer.plan else ""
        if not name or name in self._taken():
            return ""
        self._own.add(name)
        return name

    def _taken(self) -> set[str]:
        return {*self.operands.taken, *self._own, *self._known.values()}

    def _variable(self, owner: str = "") -> str:
        """Returns a C name for an intermediate value: `v`, `v2`, or for parts of a plan's operator `t3a`, `t3b`."""
        taken = self._taken()
        for letter in string.ascii_lowercase if owner else "":
            if (part := owner + letter) not in taken and not part.endswith("s"):
                self._own.add(part)
                return part
        name, count = "v", 2
        while name in taken:
            name, count = f"v{count}", count + 1
        self._own.add(name)
        return name

    def _counted(self, node: Node) -> str:
        """Returns a parameter with the number of elements of a reduction, or a size, as a float."""
        tensor = self.writer.tensor(node.args[0])
        if node.op == "count":
            return self.operands.name("count", "float", self.counted(node, tensor))
        return self.operands.name("size", "float", f"{tensor}.shape[{node.text}]")

    def counted(self, node: Node, tensor: str) -> str:
        """Returns Python text of an element count: of a tensor, or along some of its dimensions."""
        dims = ast.literal_eval(node.option("dims"))
        if len(dims) == len(self.writer.shape(node.args[0])):
            return f"{tensor}.numel() - {node.text}"
        return f"{' * '.join(f'{tensor}.shape[{d}]' for d in dims)} - {node.text}"

    def _still_used(self) -> set[str]:
        return {name for node, name in self._known.items() if self._left[node] > 0}

    def number(self, text: str) -> str:
        """Returns a Python number as CUDA text: literals and their arithmetic in place, anything else as a
        parameter."""
        literal = c_number(text)
        if literal is not None:
            return literal
        if text.startswith("self.") and text[5:] in self.writer.facts.tensors:
            raise Unreadable(f"{text}, a tensor, where a number is needed")
        if text in ("True", "False", "None") or text.startswith(("'", '"')):
            raise Unreadable(f"{text} where a number is needed")
        short = text.split(".")[-1] if text.startswith("self.") else text
        return self.operands.name(text.removeprefix("self.") if self.writer.plan else short, "float", text)

    def _read(self, node: Node) -> str:
        """Reads an operand at this element."""
        if node.op in READERS and not self.writer.has(node) and same(self.writer.shape(node), self.shape):
            variable = self._named(node) or self._variable()
            self.statements.append(f"{self.indent}float {variable} = {READERS[node.op].read(self, node)};")
            self._known[node] = variable
            return variable
        shape = self.writer.shape(node)
        text = self.writer.flat(node) if not self._is_scalar_input(node) else node.text
        if self._is_scalar_input(node):
            self._known[node] = self.operands.name(node.text, "float", f"float({text})")
            return self._known[node]
        place, text = self._index(node, shape, text)
        kind = self.writer.kind(node)
        ctype = CTYPES.get(kind, "float")
        name = self.operands.name(text.split("(")[0].replace("self.", "").split(".expand")[0], f"const {ctype}*", text)
        if kind == "bool":
            self._known[node] = f"{name}[{place}]"
            return self._known[node]
        if self.writer.plan and node.op == "tensor" and self._left[node] < 2:  # a weight used once is read in place
            self._known[node] = f"{name}[{place}]"
            return self._known[node]
        variable = self._named(node) or self._variable()
        self.statements.append(f"{self.indent}float {variable} = {name}[{place}];")
        self._known[node] = variable
        return variable

    def _is_scalar_input(self, node: Node) -> bool:
        return node.op == "input" and isinstance(self.writer.facts.inputs.get(node.text), (int, float))

    def _index(self, node: Node, shape: Shape, text: str) -> tuple[str, str]:
        """Returns C text of an operand's index, and its Python text (expanded where no short index exists)."""
        rank = len(self.shape)
        wide = (1,) * (rank - len(shape)) + tuple(shape)
        if same(wide, self.shape):
            return self.place, text
        kept = [d for d in range(rank) if wide[d] != 1]
        if not kept:
            return "0", text
        if len(kept) == 1 and kept[0] in self.axes:
            return self.axes[kept[0]], text
        if self.walked and tuple(kept) == tuple(d for d in self.walked if self.shape[d] != 1):
            return "j", text
        low, high = kept[0], kept[-1] + 1
        if kept == list(range(low, high)):
            index = self.over(range(high, rank))
            if any(self.shape[d] != 1 for d in range(low)):
                index = f"{index} % {self.count(range(low, high))}"
            return index, text
        gap = [d for d in range(rank) if wide[d] == 1 and self.shape[d] != 1]
        if gap and gap == list(range(gap[0], gap[-1] + 1)):
            if all(self.shape[d] == 1 for d in range(gap[-1] + 1, rank)):
                return self.over(gap), text
            inner = self.count(range(gap[-1] + 1, rank))
            return f"{self.place} / ({self.count(range(gap[0], rank))}) * {inner} + {self.place} % {inner}", text
        return self.place, f"{self.writer.tensor(node)}.expand_as({self.bearer}).contiguous()"

    def along(self, dim: int) -> str:
        """Returns C text of the index along one dimension."""
        if dim in self.axes:
            return self.axes[dim]
        if self.shape[dim] == 1:
            return "0"
        index = self.over(range(dim + 1, len(self.shape)))
        if any(self.shape[d] != 1 for d in range(dim)):
            index = f"{index} % {self.count([dim])}"
        return index

    def pointer(self, node: Node, wanted: str = "") -> str:
        """Returns the C name of an operand that the caller reads at indices of its own."""
        text = self.writer.flat(node)
        return self.pointer_to(text, CTYPES.get(self.writer.kind(node), "float"), wanted)

    def pointer_to(self, text: str, ctype: str = "float", wanted: str = "") -> str:
        """Returns the C name for Python text of a tensor."""
        return self.operands.name(wanted or text.replace("self.", ""), f"const {ctype}*", text)

    def integer(self, wanted: str, python: str) -> str:
        """Returns the C name of an integer of the host; `{y}` in the text is the output's name."""
        return self.operands.name(wanted, "int", python)

    def over(self, dims: Any) -> str:
        """Returns C text of the place divided by the number of elements over some dimensions of the output."""
        dims = [d for d in dims if self.shape[d] != 1]
        return f"{self.place} / {self.count(dims)}" if dims else self.place

    def count(self, dims: Any) -> str:
        """Returns a parameter with the number of elements over adjacent dimensions of the output."""
        dims = [d for d in dims if self.shape[d] != 1]
        rank = len(self.shape)
        sizes = " * ".join(f"{self.bearer}.shape[{d if d == 0 else d - rank}]" for d in dims)
        if len(dims) == 1:
            wanted = "cols" if dims[0] == rank - 1 else "channels" if dims[0] == 1 else f"size{dims[0]}"
        else:
            wanted = "inner" if dims[-1] == rank - 1 else "middle"
        wanted = wanted if wanted not in _C_NAMES else wanted + "_"
        return self.operands.name(wanted, "int", sizes)


def c_number(text: str) -> str | None:
    """Returns a Python literal, or arithmetic of literals, as C text in float; None for anything else."""
    try:
        return _c_number(syntax.expression(text))
    except (SyntaxError, KeyError):
        return None


_C_MATH = {"sqrt": "sqrtf", "exp": "expf", "log": "logf", "tanh": "tanhf"}
_C_SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}


def _c_number(node: ast.expr, outer: bool = True) -> str:
    """Returns C text of literal arithmetic. Raises KeyError for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
        return f"{float(node.value)!r}f" if math.isfinite(node.value) else "INFINITY"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return f"-{_c_number(node.operand, False)}"
    if isinstance(node, ast.BinOp):
        text = f"{_c_number(node.left, False)} {_C_SIGNS[type(node.op)]} {_c_number(node.right, False)}"
        return f"({text})"
    if isinstance(node, ast.Attribute) and ast.unparse(node) in ("math.pi", "torch.pi", "math.e"):
        return f"{getattr(math, node.attr)!r}f"
    if isinstance(node, ast.Attribute) and ast.unparse(node) in ("math.inf", "torch.inf"):
        return "INFINITY"
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func).split(".")[-1]
        if called == "float" and ast.unparse(node.args[0]) in ("'inf'", "'-inf'"):
            return "INFINITY" if "-" not in ast.unparse(node.args[0]) else "-INFINITY"
        return f"{_C_MATH[called]}({_c_number(node.args[0])})"
    raise KeyError(ast.unparse(node))
