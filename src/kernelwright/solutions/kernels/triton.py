"""Writes candidates in Triton: elementwise chains, reductions along rows, products with epilogues.

Reading, lowering and the grouping of values into kernels are shared with the CUDA forms; only the kernel texts are
written here. A kernel's operands and sizes keep their names of the CUDA forms. Operators with other kernels
(convolutions, pooling, scans, …) have no Triton template and raise `Unreadable`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from typing import Any

from kernelwright import syntax
from kernelwright.solutions.families import products, rows
from kernelwright.solutions.kernels import frame
from kernelwright.solutions.kernels.allocation import allocation
from kernelwright.solutions.kernels.fusion import NUMBERS, POSITIONS, READERS, Fusion, Operands, leaves, region
from kernelwright.solutions.kernels.operators import COMPARISONS, DEFAULTS, ELEMENTWISE, FUSED, LOGIC
from kernelwright.solutions.kernels.schedule import Schedule
from kernelwright.solutions.kernels.stages import ANCHORS, Epilogue, Writer
from kernelwright.solutions.read.declared import value_or
from kernelwright.solutions.read.reading import Node, Unreadable
from kernelwright.solutions.task_parts import lowered, with_parts

_VIEWS = frozenset(
    "reshape reshape_as flatten unflatten unsqueeze squeeze permute transpose movedim expand expand_as index narrow "
    "select piece repeat".split()
)
_PRODUCTS = frozenset(("matmul", "mm", "bmm", "linear", "linear_module"))
_ELEMENTWISE = {
    **{name: f"libdevice.{name}({{0}})" for name in "tanh log1p expm1 erf erfc tan asin acos atan".split()},
    **{name: f"libdevice.{name}({{0}})" for name in "sinh cosh asinh".split()},
    **{name: f"tl.{name}({{0}})" for name in "exp exp2 log log2 sqrt rsqrt abs sin cos floor ceil sigmoid".split()},
    **{name: ELEMENTWISE[name] for name in ("add", "sub", "mul", "div", "neg", "square", "lerp", "addcmul", "addcdiv")},
    "reciprocal": "1.0 / {0}",
    "pow": "libdevice.pow({0}, {1})",
    "fmod": "libdevice.fmod({0}, {1})",
    "remainder": "{0} - tl.floor({0} / {1}) * {1}",
    "floor_divide": "tl.floor({0} / {1})",
    "atan2": "libdevice.atan2({0}, {1})",
    "hypot": "libdevice.hypot({0}, {1})",
    "minimum": "tl.minimum({0}, {1})",
    "maximum": "tl.maximum({0}, {1})",
    "relu": "tl.maximum({0}, 0.0)",
    "relu6": "tl.minimum(tl.maximum({0}, 0.0), 6.0)",
    "log10": "libdevice.log10({0})",
    "trunc": "libdevice.trunc({0})",
    "round": "libdevice.rint({0})",
    "frac": "{0} - libdevice.trunc({0})",
    "sign": "tl.where({0} > 0.0, 1.0, tl.where({0} < 0.0, -1.0, 0.0))",
    "logit": "tl.log({0} / (1.0 - {0}))",
    "silu": "{0} * tl.sigmoid({0})",
    "selu": "1.05070099 * tl.where({0} > 0.0, {0}, 1.67326324 * libdevice.expm1({0}))",
    "mish": "{0} * libdevice.tanh(tl.where({0} > 20.0, {0}, libdevice.log1p(tl.exp({0}))))",
    "softsign": "{0} / (1.0 + tl.abs({0}))",
    "hardsigmoid": "tl.minimum(tl.maximum({0} / 6.0 + 0.5, 0.0), 1.0)",
    "hardswish": "{0} * tl.minimum(tl.maximum({0} + 3.0, 0.0), 6.0) / 6.0",
    "logsigmoid": "tl.minimum({0}, 0.0) - libdevice.log1p(tl.exp(-tl.abs({0})))",
    "tanhshrink": "{0} - libdevice.tanh({0})",
    "gelu": "0.5 * {0} * (1.0 + libdevice.erf({0} * 0.70710678))",
    "gelu_tanh": "0.5 * {0} * (1.0 + libdevice.tanh(0.79788456 * ({0} + 0.044715 * {0} * {0} * {0})))",
    "elu": "tl.where({0} > 0.0, {0}, {alpha} * libdevice.expm1({0}))",
    "celu": "tl.where({0} > 0.0, {0}, {alpha} * libdevice.expm1({0} / {alpha}))",
    "leaky_relu": "tl.where({0} > 0.0, {0}, {negative_slope} * {0})",
    "prelu": "tl.where({0} > 0.0, {0}, {1} * {0})",
    "hardtanh": "tl.minimum(tl.maximum({0}, {min_val}), {max_val})",
    "hardshrink": "tl.where(tl.abs({0}) > {lambd}, {0}, 0.0)",
    "softshrink": "tl.where({0} > {lambd}, {0} - {lambd}, tl.where({0} < -{lambd}, {0} + {lambd}, 0.0))",
    "threshold": "tl.where({0} > {threshold}, {0}, {value})",
    "softplus": "tl.where({0} * {beta} > {threshold}, {0}, libdevice.log1p(tl.exp({0} * {beta})) / {beta})",
}
_LOGIC = {
    "logical_and": "({0} & {1})",
    "logical_or": "({0} | {1})",
    "logical_xor": "({0} != {1})",
    "logical_not": "({0} == 0)",
}
_BLOCK = 1024
_REDUCED = {
    "sum": ("0.0", "{acc} + {v}", "tl.sum({acc})"),
    "mean": ("0.0", "{acc} + {v}", "tl.sum({acc}) / n"),
    "prod": ("1.0", "{acc} * {v}", "tl.reduce({acc}, 0, multiply)"),
    "max": ('float("-inf")', "tl.maximum({acc}, {v})", "tl.max({acc})"),
    "min": ('float("inf")', "tl.minimum({acc}, {v})", "tl.min({acc})"),
}
"""Reduction -> its start, the step for an element, and the final reduction of a block's values."""


def write(source: str, schedule: Schedule) -> str:
    """Returns a candidate in Triton for a task's source. Raises `Unreadable` where no template fits."""
    return with_parts(source, lambda parts: _text(*lowered(parts, schedule), schedule))


def _text(plain: Writer, node: Node, schedule: Schedule) -> str:
    writer = TritonWriter(plain.reference, schedule, plain.facts)
    writer.titles = plain.titles
    result = writer.output(node)
    if not writer.kernels:
        raise Unreadable("forward needs no kernel")
    text = frame.module_text(writer.reference, [], writer.lines, result)
    head, _, rest = text.partition("from kernelwright.cuda import Module\n")
    constants, _, model = rest.partition('kernels = Module(r"""')
    model = model.split('""")\n', 1)[1]
    used = "\n\n\n".join(writer.kernels)
    imports = "import triton\nimport triton.language as tl\n"
    if "libdevice." in used:
        imports += "from triton.language.extra import libdevice\n"
    return f"{head}{imports}{constants.rstrip()}\n\n\n{used}\n\n{model}".replace("\n\n\n\n", "\n\n\n")


class TritonWriter(Writer):
    """A writer whose kernels are Triton functions."""

    def _lower(self, node: Node) -> str:
        if node.op in ("input", "tensor", "constant"):
            return super()._lower(node)
        if node.op in FUSED:
            return self._fused(node)
        if node.op == "reduce":
            return self._reduced(node)
        if node.op in _PRODUCTS:
            return product(self, node, node)
        if node.op in _VIEWS and node.op in ANCHORS:
            return ANCHORS[node.op](self, node, Epilogue(self, node, node))
        raise Unreadable(f"no Triton template for {node.op}")

    def _fused(self, node: Node) -> str:
        group = rows.group_of(self, node)
        if group is not None:
            return TritonRows(self, group).write()
        below = self.fusing(node)
        if below is not None and below.op in _PRODUCTS:
            return product(self, below, node)
        return elementwise(self, node)

    def _reduced(self, node: Node) -> str:
        dims, shape = rows.dims_of(node), self.shape(node.args[0])
        if node.text not in _REDUCED or not dims:
            raise Unreadable(f"no Triton template for {node.text} over {dims}")
        if dims != tuple(range(dims[0], dims[-1] + 1)):
            return rows._apart(self, node, dims, shape)
        group = rows.group_of(self, node)
        if group is None:
            raise Unreadable("no Triton template for this reduction")
        return TritonRows(self, group).write()

    def fusing(self, node: Node) -> Node | None:
        """Returns the anchor to fuse into, as for CUDA, but only for products."""
        found = super().fusing(node)
        return found if found is not None and found.op in _PRODUCTS else None

    def start(self, name: str, grid: str, arguments: str) -> None:
        """Adds the launch of a kernel."""
        self.line(f"{name}[{grid}]({arguments})")


class TritonFusion(Fusion):
    """Writes the statements of a fusion in Triton; `mask` guards elements outside."""

    mask = "mask"

    def choice(self, condition: str, yes: str, no: str) -> str:
        return f"tl.where({condition}, {yes}, {no})"

    def _operator(self, node: Node) -> str:
        if node.op in ("tril", "triu", "causal"):
            return self._assign(node, self._triangle(node))
        if node.op in POSITIONS or (node.op in FUSED and node.op not in _ELEMENTWISE):
            raise Unreadable(f"no Triton template for {node.op}")
        if node.op == "pow" and (text := self._power(node)):
            return self._assign(node, re.sub(r"\b(r?sqrt)f\b", r"tl.\1", text).replace("1.0f", "1.0"))
        if node.op in _ELEMENTWISE:
            template = _ELEMENTWISE[node.op]
            options = {
                name: self.number(node.option(name) or DEFAULTS[name]) for name in DEFAULTS if f"{{{name}}}" in template
            }
            return self._assign(node, template.format(*(self.value(a) for a in node.args), **options))
        return self._read(node)

    def truth(self, node: Node) -> str:
        """Returns Triton text of a condition."""
        if node.op in COMPARISONS:
            left, right = self.value(node.args[0]), self.value(node.args[1])
            return f"({left} {COMPARISONS[node.op]} {right})"
        if node.op in LOGIC:
            return _LOGIC[node.op].format(*(self.truth(a) for a in node.args))
        return f"({self.value(node)} != 0)"

    def _triangle(self, node: Node) -> str:
        """Returns a value on one side of a diagonal, else a constant."""
        rank = len(self.shape)
        value, rest = self.value(node.args[0]), 'float("-inf")' if node.op == "causal" else "0.0"
        row, column = (self.along(d).replace(" / ", " // ") for d in (rank - 2, rank - 1))
        shift = "" if (node.option("diagonal") or "0") == "0" else f" + {self.number(node.option('diagonal'))}"
        return f"tl.where({column} {'>=' if node.op == 'triu' else '<='} {row}{shift}, {value}, {rest})"

    def _assign(self, node: Node, text: str) -> str:
        text = super()._assign(node, text)
        self.statements[-1] = self.statements[-1].replace("float ", "", 1).removesuffix(";")
        return text

    def number(self, text: str) -> str:
        """Returns a literal as Triton text, anything else as a parameter."""
        try:
            value = value_or(syntax.expression(text), {}, None)
        except SyntaxError:
            value = None
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return repr(float(value)) if abs(value) < 1e300 else f'float("{float(value)}")'
        if text in ("True", "False", "None") or text.startswith(("'", '"')):
            raise Unreadable(f"{text} where a number is needed")
        name = text.split(".")[-1] if text.startswith("self.") else text
        return self.operands.name(name, "float", f"float({text})")

    def _counted(self, node: Node) -> str:
        tensor = self.writer.tensor(node.args[0])
        size = self.counted(node, tensor) if node.op == "count" else f"{tensor}.shape[{node.text}]"
        return self.operands.name(node.op, "float", f"float({size})")

    def _read(self, node: Node) -> str:
        if node.op in READERS and node.op not in ANCHORS:
            raise Unreadable(f"no Triton template for {node.op}")
        shape = self.writer.shape(node)
        if self._is_scalar_input(node):
            self._known[node] = self.operands.name(node.text, "float", f"float({node.text})")
            return self._known[node]
        place, text = self._index(node, shape, self.writer.flat(node))
        name = self.operands.name(text.split("(")[0].replace("self.", "").split(".expand")[0], "const float*", text)
        variable = self._variable()
        masked = f", mask={self.mask}, other=0.0" if self.mask else ""
        load = f"tl.load({name} + {place.replace(' / ', ' // ')}{masked})"
        self.statements.append(f"{self.indent}{variable} = {load}.to(tl.float32)")
        self._known[node] = variable
        return variable


class RowFusion(TritonFusion):
    """Statements about one value a row, which need no mask."""

    mask = ""


def _parameters(operands: Operands, y: str, x: str = "") -> tuple[str, str, str, str]:
    """Returns names of pointers and of numbers, and their launch arguments, each list with a comma after or before."""
    (pointers, tensors), (numbers, values) = operands.pointers(y, x), operands.numbers(y, x)
    strip = lambda text: ", ".join(part.split()[-1].lstrip("*") for part in text.split(", ") if part.strip())  # noqa: E731
    plain, counted = strip(pointers), strip(numbers)
    return (f"{plain}, " if plain else ""), (f", {counted}" if counted else ""), tensors, values


def elementwise(writer: TritonWriter, node: Node) -> str:
    """Adds a kernel of elementwise operators; each program computes a block of elements."""
    shape, reads = writer.shape(node), writer.reads(node)
    fusion = TritonFusion(writer, shape, "i", operands=Operands({"y", "i", "n", "mask"}, first="x"), reads=reads)
    value = fusion.start(node)
    ops = list(region(node, reads))
    name = writer.kernel_name(writer.title(node) or (node.op if len(ops) == 1 else "fused"))
    out = "bool" if writer.kind(node) == "bool" else "float"
    y = writer.result()
    pointers, numbers, tensors, values = _parameters(fusion.operands, y)
    value = f"{value} != 0" if out == "bool" else value
    writer.kernel(f"""
@triton.jit
def {name}({pointers}y, n{numbers}, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
{chr(10).join(fusion.statements)}
    tl.store(y + i, {value}, mask=mask)
""")
    writer.line(f"{y} = {allocation(writer, node, reads, shape, out)}")
    grid = f"(triton.cdiv({y}.numel(), {_BLOCK}),)"
    writer.start(name, grid, f"{tensors}{y}, {y}.numel(){values}, BLOCK={_BLOCK}")
    return y


class TritonRows(rows.RowKernel):
    """Reductions along rows: each program walks one row in blocks."""

    def __init__(self, writer: Writer, group: rows.Group) -> None:
        super().__init__(writer, group)
        self.threads = False
        self._taken.update({"mask", "start", "BLOCK"})

    def write(self) -> str:
        """Adds kernel and launch; returns the output's Python name."""
        group = self.group
        if any(self.writer.kind(m.args[0]) not in ("float", "half") for m in group.members):
            raise Unreadable("no Triton template for counts and sums of whole numbers")
        for depth in rows.depths_of(group):
            self._pass(depth)
        per_element = group.level(group.root) == "full"
        if per_element:
            fusion = self._fusion("i", " " * 8)
            value = fusion.start(group.root, self.known)
            self.text += [self._loop(), *fusion.statements, f"        tl.store(y + i, {value}, mask=mask)"]
        else:
            fusion = self._row_fusion("    ")
            value = fusion.start(group.root, self.known)
            self.text += [*fusion.statements, f"    tl.store(y + row, {value})"]
        return self._launch(per_element)

    def _pass(self, members: list[Node]) -> None:
        fusion = self._fusion("i", " " * 8)
        names = [self._variable(node) for node in members]
        values = fusion.start_all([node.args[0] for node in members], self.known)
        steps = []
        for node, name, value in zip(members, names, values, strict=True):
            start, step, _ = _REDUCED[node.text]
            self.text.append(f"    {name} = tl.full([BLOCK], {start}, tl.float32)")
            steps.append(f"        {name} = " + step.format(acc=name, v=f"tl.where(mask, {value}, {start})"))
        self.text += [self._loop(), *fusion.statements, *steps]
        for node, name in zip(members, names, strict=True):
            if node.text == "prod":
                self.writer.kernel("@triton.jit\ndef multiply(a, b):\n    return a * b")
            self.text.append(f"    {name} = {_REDUCED[node.text][2].format(acc=name)}")
            for twin in self.group.members:
                if rows.alike(twin, node):
                    self.known[twin] = name
        self._row_values(members)

    def _fusion(self, place: str, indent: str) -> Fusion:
        return _again(TritonFusion, super()._fusion(place, indent))

    def _row_fusion(self, indent: str) -> Fusion:
        return _again(RowFusion, super()._row_fusion(indent))

    def _loop(self) -> str:
        stride = " * inner" if self.inner else ""
        return (
            "    for start in range(0, n, BLOCK):\n        j = start + tl.arange(0, BLOCK)\n"
            f"        mask = j < n\n        i = base + j.to(tl.int64){stride}"
        )

    def _launch(self, per_element: bool) -> str:
        writer, group = self.writer, self.group
        assert isinstance(writer, TritonWriter)
        x = self._sized()
        y = writer.result()
        name = writer.kernel_name(rows.title_of(writer, group))
        pointers, numbers, tensors, values = _parameters(self.operands, y, x)
        base = "row // inner * n * inner + row % inner" if self.inner else "row * n"
        writer.kernel(
            f"@triton.jit\ndef {name}({pointers}y, n{', inner' if self.inner else ''}{numbers}, BLOCK: tl.constexpr):\n"
            f"    row = tl.program_id(0).to(tl.int64)\n    base = {base}\n" + "\n".join(self.text)
        )
        n, inner = writer.local("n"), writer.local("inner")
        writer.line(f"{n} = {rows.product(x, group.dims)}")
        if self.inner:
            writer.line(f"{inner} = {rows.product(x, tuple(self.inner))}")
        if per_element:
            writer.line(f"{y} = {self._full_output(x)}")
        else:
            sizes = rows.reduced_sizes(x, len(group.full), group.dims, writer.shape(group.root))
            writer.line(f"{y} = torch.empty({sizes}, device={x}.device)")
        more = f", {inner}" if self.inner else ""
        block = f"BLOCK=min(triton.next_power_of_2({n}), 4096)"
        writer.start(name, f"({x}.numel() // {n},)", f"{tensors}{y}, {n}{more}{values}, {block}")
        return y


def _again(kind: type[TritonFusion], f: Fusion) -> TritonFusion:
    """Returns a fusion of another class with the same fields."""
    given: dict[str, Any] = {x.name: getattr(f, x.name) for x in fields(Fusion) if not x.name.startswith("_")}
    return kind(**given)


@dataclass(frozen=True)
class _Factors:
    """The factors of a product as Python texts."""

    left: str
    """The left factor, its leading dimensions flattened."""
    right: str
    lead: str
    """The left factor with its own dimensions, of which the result takes the leading ones."""
    rank: int
    """The left factor's number of dimensions."""
    batch: bool
    """True for a product of batches."""


_PRODUCT = """
@triton.jit
def @name(@parameters, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    n = tl.program_id(1).to(tl.int64) * BN + tl.arange(0, BN)
@start    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        ta = tl.load(a + m[:, None] * am + k[None, :] * ak, mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        tb = tl.load(b + k[:, None] * bk + n[None, :] * bn, mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        acc = tl.dot(ta, tb, acc, input_precision="ieee")
    mask = (m[:, None] < M) & (n[None, :] < N)
    i = @index
@statements    tl.store(y + i, @value, mask=mask)
"""


def product(writer: TritonWriter, node: Node, root: Node) -> str:
    """Adds a product of matrices, of stacked rows with a matrix or of a batch, with the operators up to `root`
    fused."""
    reads = frozenset(n for n in writer.reads(root) if node not in leaves(n)) if root != node else frozenset()
    for leaf in leaves(root, reads) if root != node else ():
        if leaf != node and leaf.op not in (*NUMBERS, "input", "tensor"):
            writer.tensor(leaf)
    bias = ""
    if node.op in ("linear", "linear_module"):
        x, weight, bias = _linear(writer, node)
        left, right, batch = x, f"{weight}.T", False
        rank = len(writer.shape(node))
    else:
        a, b = (products.operand(writer, arg) for arg in node.args)
        if len(a.shape) < 2 or len(b.shape) < 2 or (len(b.shape) > 2 and a.shape[:-2] != b.shape[:-2]):
            raise Unreadable("no Triton template for vectors or broadcast batches")
        left, right, batch = a.text, b.text, len(b.shape) > 2
        rank = len(a.shape)
    given = _Factors(left, right, left, rank, batch)
    if rank > (3 if batch else 2):
        stacked = f"{left}.flatten(0, {-3 if batch else -2})"
        given = replace(given, left=stacked, right=f"{right}.flatten(0, -3)" if batch else right)
    axes = {rank - 1: "n[None, :]", **({rank - 2: "m[:, None]"} if rank == 2 or batch else {})}
    taken = set("a b y M N K am ak bk bn az bz m n k start ta tb acc mask i bias BM BN BK".split())
    fusion = TritonFusion(writer, writer.shape(root), "i", axes, "    ", Operands(taken), reads=reads)
    with_bias = bias not in ("", "None")
    statements = ["    acc += tl.load(bias + n, mask=n < N, other=0.0)[None, :]"] if with_bias else []
    value = fusion.start(root, {node: "acc"}, reuse="acc") if root != node else "acc"
    y = writer.result()
    pointers, numbers, tensors, values = _parameters(fusion.operands, y)
    strides = "az, am, ak, bz, bk, bn" if batch else "am, ak, bk, bn"
    parameters = f"a, b, {'bias, ' if with_bias else ''}{pointers}y, M, N, K, {strides}{numbers}"
    start = "    z = tl.program_id(2).to(tl.int64)\n    a += z * az\n    b += z * bz\n" if batch else ""
    index = "(z * M + m[:, None]) * N + n[None, :]" if batch else "m[:, None] * N + n[None, :]"
    text = _PRODUCT.replace("@parameters", parameters).replace("@start", start).replace("@index", index)
    text = text.replace("@statements", "".join(f"{line}\n" for line in [*statements, *fusion.statements]))
    name = writer.kernel_name("linear" if bias else "bmm" if batch else "matmul")
    writer.kernel(text.replace("@value", value).replace("@name", name))
    _product_lines(writer, name, y, given, (bias if with_bias else "", tensors, values))
    return y


def _linear(writer: TritonWriter, node: Node) -> tuple[str, str, str]:
    """Returns input, weight and bias of a linear layer or function, as Python text."""
    x = writer.tensor(node.args[0])
    if node.op == "linear_module":
        made = writer.facts.attributes.get(f"{node.text.removeprefix('self.')}.bias", True)
        if made is None:
            raise Unreadable("the text does not say whether the layer has a bias")
        return x, writer.weight(node, "weight"), writer.weight(node, "bias") if made else "None"
    bias = writer.tensor(node.args[2]) if len(node.args) > 2 and node.args[2].text != "None" else "None"
    return x, writer.tensor(node.args[1]), bias


def _product_lines(writer: TritonWriter, name: str, y: str, of: _Factors, more: tuple[str, str, str]) -> None:
    """Adds the lines of forward that allocate and launch. `more`: Python texts of the bias, tensors and numbers."""
    bias, tensors, values = more
    a, b, m, n, k, z = (writer.local(name) for name in ("a", "b", "M", "N", "K", "Z"))
    writer.line(f"{a}, {b} = {of.left}, {of.right}")
    writer.line(f"({z + ', ' if of.batch else ''}{m}, {k}), {n} = {a}.shape, {b}.shape[{2 if of.batch else 1}]")
    shape = f"{m}, {n}" if of.rank == 2 else f"*{of.lead}.shape[:-1], {n}"
    writer.line(f"{y} = torch.empty({shape}, device={a}.device)")
    grid = f"triton.cdiv({m}, 32), triton.cdiv({n}, 32){', ' + z if of.batch else ''}"
    given = f"{a}, {b}, {bias + ', ' if bias else ''}{tensors}{y}, {m}, {n}, {k}, *{a}.stride(), *{b}.stride(){values}"
    writer.start(name, f"({grid})", f"{given}, BM=32, BN=32, BK=32")


__all__ = ["write"]
