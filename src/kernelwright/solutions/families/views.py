"""Operators that only rearrange: views, copies of views, slices. They move no data, or let torch copy."""

from __future__ import annotations

import ast
import math

from kernelwright import syntax
from kernelwright.solutions.families.remaps import strided
from kernelwright.solutions.kernels.fusion import READERS
from kernelwright.solutions.kernels.stages import RESHAPES, Epilogue, Writer, anchor, elementwise, shape_rule
from kernelwright.solutions.kernels.values import Values
from kernelwright.solutions.read.declared import Shape, broadcast
from kernelwright.solutions.read.reading import Node, Unreadable

RESHAPES.update(("reshape", "reshape_as", "flatten", "unflatten", "unsqueeze", "squeeze"))


def _sizes(writer: Writer, text: str) -> list[int]:
    """Returns the sizes that the text gives, -1 for unknown ones."""
    tree = syntax.expression(text)
    if not isinstance(tree, (ast.Tuple, ast.List)):
        value = writer.value(text)
        return [value] if isinstance(value, int) else [int(v) for v in value]
    found: list[int] = []
    for item in tree.elts:
        if isinstance(item, ast.Starred):
            found += [int(v) for v in writer.value(ast.unparse(item.value))]
            continue
        try:
            found.append(int(writer.value(ast.unparse(item))))
        except Unreadable:
            found.append(-1)
    return found


def _dim(value: object, rank: int) -> int:
    if not isinstance(value, int) or not -rank <= value < rank:
        raise Unreadable(f"dim={value} of {rank} dimensions")
    return value % rank


@shape_rule("reshape")
def _reshape(writer: Writer, node: Node) -> Shape:
    given, shape = _sizes(writer, node.option("shape")), writer.shape(node.args[0])
    if given.count(-1) == 1 and -1 not in shape:
        rest = math.prod(s for s in given if s != -1)
        given[given.index(-1)] = math.prod(shape) // rest if rest else 0
    return tuple(given)


@shape_rule("constant")
def _constant(writer: Writer, node: Node) -> Shape:
    return writer.shape(node.args[0]) if node.args else tuple(_sizes(writer, node.option("shape")))


@shape_rule("reshape_as", "expand_as")
def _reshape_as(writer: Writer, node: Node) -> Shape:
    return writer.shape(node.args[1])


@shape_rule("flatten")
def _flatten(writer: Writer, node: Node) -> Shape:
    shape = writer.shape(node.args[0])
    low = _dim(writer.option(node, "start_dim", "0"), len(shape))
    high = _dim(writer.option(node, "end_dim", "-1"), len(shape))
    middle = shape[low : high + 1]
    return (*shape[:low], -1 if -1 in middle else math.prod(middle), *shape[high + 1 :])


@shape_rule("unflatten")
def _unflatten(writer: Writer, node: Node) -> Shape:
    shape = writer.shape(node.args[0])
    at = _dim(writer.option(node, "dim"), len(shape))
    return (*shape[:at], *_sizes(writer, node.option("sizes")), *shape[at + 1 :])


@shape_rule("unsqueeze")
def _unsqueeze(writer: Writer, node: Node) -> Shape:
    shape = writer.shape(node.args[0])
    at = _dim(writer.option(node, "dim"), len(shape) + 1)
    return (*shape[:at], 1, *shape[at:])


@shape_rule("squeeze")
def _squeeze(writer: Writer, node: Node) -> Shape:
    shape = writer.shape(node.args[0])
    if not node.option("dim"):
        return tuple(s for s in shape if s != 1)
    value = writer.option(node, "dim")
    dims = [_dim(d, len(shape)) for d in (value if isinstance(value, (tuple, list)) else [value])]
    return tuple(s for d, s in enumerate(shape) if d not in dims or s != 1)


def order(writer: Writer, node: Node) -> tuple[int, ...]:
    """Returns for each dimension of a transposed or permuted result the operand's dimension."""
    rank = len(writer.shape(node.args[0]))
    if node.op == "permute":
        return tuple(_dim(d, rank) for d in _sizes(writer, node.option("dims")))
    dims = list(range(rank))
    if rank > 1:
        a, b = (_dim(writer.option(node, n, d), rank) for n, d in (("dim0", "-2"), ("dim1", "-1")))
        dims[a], dims[b] = dims[b], dims[a]
    return tuple(dims)


@shape_rule("permute", "transpose")
def _permute(writer: Writer, node: Node) -> Shape:
    shape = writer.shape(node.args[0])
    return tuple(shape[d] for d in order(writer, node))


@shape_rule("movedim")
def _movedim(writer: Writer, node: Node) -> Shape:
    shape = list(writer.shape(node.args[0]))
    source, target = (_dim(writer.option(node, n), len(shape)) for n in ("source", "destination"))
    shape.insert(target, shape.pop(source))
    return tuple(shape)


@shape_rule("expand")
def _expand(writer: Writer, node: Node) -> Shape:
    given, shape = _sizes(writer, node.option("shape")), writer.shape(node.args[0])
    wide = (1,) * (len(given) - len(shape)) + tuple(shape)
    return broadcast(tuple(w if g == -1 else g for g, w in zip(given, wide, strict=True)), wide)


@shape_rule("repeat")
def _repeat(writer: Writer, node: Node) -> Shape:
    given, shape = _sizes(writer, node.option("shape")), writer.shape(node.args[0])
    wide = (1,) * (len(given) - len(shape)) + tuple(shape)
    return tuple(-1 if -1 in (g, w) else g * w for g, w in zip(given, wide, strict=True))


@shape_rule("index")
def _index(writer: Writer, node: Node) -> Shape:
    shape = list(writer.shape(node.args[0]))
    parts = _parts(node)
    taken = sum(not (isinstance(p, ast.Constant) and p.value in (None, ...)) for p in parts)
    if not any(isinstance(p, ast.Constant) and p.value is ... for p in parts):
        parts.append(ast.Constant(...))
    found: list[int] = []
    for part in parts:
        if isinstance(part, ast.Constant) and part.value is ...:
            count = len(shape) - taken
            found, shape = found + shape[:count], shape[count:]
        elif isinstance(part, ast.Constant) and part.value is None:
            found.append(1)
        else:
            taken -= 1
            size = shape.pop(0)
            if isinstance(part, ast.Slice):
                found.append(_sliced(writer, part, size))
    return tuple(found)


def _parts(node: Node) -> list[ast.expr]:
    index = syntax.expression(f"x[{node.text}]").slice  # type: ignore[attr-defined]
    return list(index.elts) if isinstance(index, ast.Tuple) else [index]


def _sliced(writer: Writer, part: ast.Slice, size: int) -> int:
    try:
        ends = [None if e is None else writer.value(ast.unparse(e)) for e in (part.lower, part.upper, part.step)]
    except Unreadable:
        return -1
    return -1 if size == -1 else len(range(size)[slice(*ends)])


@shape_rule("narrow")
def _narrow(writer: Writer, node: Node) -> Shape:
    shape = list(writer.shape(node.args[0]))
    shape[_dim(writer.option(node, "dim"), len(shape))] = _sizes(writer, f"({node.option('length')},)")[0]
    return tuple(shape)


@shape_rule("diagonal")
def _diagonal(writer: Writer, node: Node) -> Shape:
    shape = writer.shape(node.args[0])
    dims = [_dim(writer.option(node, n, d), len(shape)) for n, d in (("dim1", "0"), ("dim2", "1"))]
    known = (node.option("offset") or "0") == "0" and all(shape[d] != -1 for d in dims)
    length = min(shape[d] for d in dims) if known else -1
    return (*(s for d, s in enumerate(shape) if d not in dims), length)


@shape_rule("unfold")
def _unfold(writer: Writer, node: Node) -> Shape:
    shape = list(writer.shape(node.args[0]))
    at = _dim(writer.option(node, "dim"), len(shape))
    size, step = (_sizes(writer, f"({node.option(n)},)")[0] for n in ("size", "step"))
    shape[at] = -1 if -1 in (size, step, shape[at]) else (shape[at] - size) // step + 1
    return (*shape, size)


@shape_rule("select")
def _select(writer: Writer, node: Node) -> Shape:
    shape = list(writer.shape(node.args[0]))
    del shape[_dim(writer.option(node, "dim"), len(shape))]
    return tuple(shape)


@shape_rule("piece")
def _piece(writer: Writer, node: Node) -> Shape:
    shape = list(writer.shape(node.args[0]))
    at = _dim(writer.option(node, "dim"), len(shape))
    if node.option("sizes"):
        shape[at] = _split(writer, node, shape[at])
        return tuple(shape)
    count = int(node.option("count"))
    shape[at] = -1 if shape[at] == -1 else -(-shape[at] // count)
    return tuple(shape)


def _split(writer: Writer, node: Node, whole: int) -> int:
    """Returns the size of a piece; -1 where the text does not tell it."""
    sizes, part = syntax.expression(node.option("sizes")), int(node.option("part"))
    if isinstance(sizes, ast.List | ast.Tuple):
        return _sizes(writer, f"({ast.unparse(sizes.elts[part])},)")[0]
    size = _sizes(writer, f"({ast.unparse(sizes)},)")[0]
    return size if size == -1 or whole == -1 else max(0, min(size, whole - part * size))


def _text(writer: Values, node: Node) -> str:
    """Returns the Python text behind a tensor's name."""
    option = node.option
    if node.op == "permute":
        return f".permute({option('dims').strip('()[]').rstrip(',')})"
    if node.op == "transpose":
        return f".transpose({option('dim0')}, {option('dim1')})" if option("dim0") else ".mT"
    if node.op in ("reshape", "expand", "repeat"):
        return f".{node.op}({_inside(option('shape'))})"
    if node.op in ("reshape_as", "expand_as"):
        return f".{node.op}({writer.tensor(node.args[1])})"
    if node.op == "flatten":
        return f".flatten({option('start_dim') or '0'}{', ' + option('end_dim') if option('end_dim') else ''})"
    if node.op == "unflatten":
        return f".unflatten({option('dim')}, {option('sizes')})"
    if node.op in ("unsqueeze", "squeeze"):
        return f".{node.op}({option('dim')})"
    if node.op == "movedim":
        return f".movedim({option('source')}, {option('destination')})"
    if node.op == "diagonal":
        return f".diagonal({option('offset') or '0'}, {option('dim1') or '0'}, {option('dim2') or '1'})"
    if node.op == "unfold":
        return f".unfold({option('dim')}, {option('size')}, {option('step')})"
    if node.op == "narrow":
        return f".narrow({option('dim')}, {option('start')}, {option('length')})"
    if node.op == "select":
        return f".select({option('dim')}, {option('index')})"
    if node.op == "piece" and option("sizes"):
        return f".split({option('sizes')}, {option('dim')})[{option('part')}]"
    if node.op == "piece":
        return f".chunk({option('count')}, {option('dim')})[{option('part')}]"
    return f"[{node.text}]"


def _inside(text: str) -> str:
    """Returns the items of a tuple's text, without its parentheses."""
    tree = syntax.expression(text)
    return ", ".join(ast.unparse(e) for e in tree.elts) if isinstance(tree, ast.Tuple) else text


@anchor("reshape", "reshape_as", "flatten", "unflatten", "unsqueeze", "squeeze", fuses=False)
def reshaped(writer: Writer, node: Node, epilogue: Epilogue) -> str:
    """Returns a view of the same elements in the same order."""
    x = writer.tensor(node.args[0])
    y = writer.result(_stem(x))
    writer.line(f"{y} = {x}{_text(writer, node)}")
    return y


def _view(writer: Values, node: Node) -> str:
    """Adds the line that makes a view, once, and returns its name."""
    known = writer.views.get(node)
    if known is None:
        x = writer.tensor(node.args[0])
        known = writer.views[node] = writer.result(_stem(x), node)
        writer.line(f"{known} = {x}{_text(writer, node)}")
    return known


VIEWS = (
    "permute",
    "transpose",
    "movedim",
    "expand",
    "expand_as",
    "index",
    "narrow",
    "select",
    "piece",
    "unfold",
    "diagonal",
)
READERS.update(dict.fromkeys(VIEWS, strided(_view)))


@anchor(*VIEWS, fuses=False)
def rearranged(writer: Writer, node: Node, epilogue: Epilogue) -> str:
    """Returns a view in row-major order: by a kernel where forward does nothing else to its inputs, else by torch's
    copy."""
    below = node
    while below.op in VIEWS or below.op in RESHAPES:
        below = below.args[0]
    root = writer.root
    while root is not None and root.op in RESHAPES:
        root = root.args[0]
    fast = writer.schedule.memory == "wide" and node.op in ("permute", "transpose") and writer.kind(node) == "float"
    if fast or below.op in ("input", "tensor") and node == root:
        return elementwise(writer, node)
    x = writer.tensor(node.args[0])
    y = writer.result(_stem(x))
    writer.line(f"{y} = {x}{_text(writer, node)}.contiguous()")
    return y


@anchor("repeat", fuses=False)
def repeated(writer: Writer, node: Node, epilogue: Epilogue) -> str:
    """Repeats the whole tensor along its dimensions."""
    rank = len(writer.shape(node))
    if rank != len(writer.shape(node.args[0])):
        raise Unreadable("no template for a repetition that adds dimensions")
    x = writer.floats_of(node.args[0])
    name, y = writer.kernel_name("repeat"), writer.result()
    sizes, strides = [f"d{d}" for d in range(rank)], [f"n{d}" for d in range(rank)]
    index = "i % d0 % n0"
    terms = []
    for d in range(rank):
        over = "".join(f" / {s}" for s in sizes[:d:-1])
        terms.append(f"(i{over} % {sizes[d]} % {strides[d]})")
    index = terms[0]
    for d in range(1, rank):
        index = f"({index}) * {strides[d]} + {terms[d]}"
    parameters = ", ".join(f"int {n}" for n in (*sizes, *strides))
    writer.kernel(f"""
extern "C" __global__ void {name}(const float* x, float* y, long long n, {parameters}) {{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = x[{index}];
}}
""")
    counts = [ast.unparse(e) for e in _items(node.option("shape"))]
    shape = ", ".join(f"{x}.shape[{d}] * {c}" if c != "1" else f"{x}.shape[{d}]" for d, c in enumerate(counts))
    writer.line(f"{y} = torch.empty(({shape},), device={x}.device)")
    given = ", ".join([f"{y}.shape[{d}]" for d in range(rank)] + [f"{x}.shape[{d}]" for d in range(rank)])
    block = writer.schedule.block
    writer.launch(name, f"({y}.numel() + {block - 1}) // {block}", f"{x}, {y}, {y}.numel(), {given}")
    return y


def _items(text: str) -> list[ast.expr]:
    tree = syntax.expression(text)
    return list(tree.elts) if isinstance(tree, (ast.Tuple, ast.List)) else [tree]


def _stem(x: str) -> str:
    return x if x.isidentifier() else "x"
