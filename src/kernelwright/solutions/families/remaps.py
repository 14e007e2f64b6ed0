"""Operators that read at another index: shifts, reversals, gathers, repetitions, views by their strides, triangles.

Each is read within the kernel that uses it. Most change the index along one dimension only: the element at (o, j, r) of
a result with `m` elements there comes from (o, f(j), r) of an operand with `n`, and r runs over `inner` elements.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from kernelwright import syntax
from kernelwright.solutions.kernels.fusion import CTYPES, POSITIONS, READERS, Fusion, OperandReader
from kernelwright.solutions.kernels.stages import Writer, shape_rule
from kernelwright.solutions.kernels.values import Values
from kernelwright.solutions.read.declared import Shape
from kernelwright.solutions.read.reading import Node, Unreadable

Change = Callable[[Fusion, Node, str, str], str]
"""Returns the operand's index along the dimension from (fusion, node, C text of j, C text of the operand's n)."""


def dim_of(writer: Values, node: Node, name: str = "dim", default: str = "0") -> int:
    """Returns the one dimension that an operator works along, not negative. Raises `Unreadable`."""
    rank = len(writer.shape(node.args[0]))
    value = writer.option(node, name, default)
    value = value[0] if isinstance(value, (tuple, list)) and len(value) == 1 else value
    if not isinstance(value, int) or not -rank <= value < rank:
        raise Unreadable(f"no template for {node.op} along {value} of {rank} dimensions")
    return value % rank


def one_dimension(op: str, change: Change, bearer: Callable[[Values, Node], str] | None, name: str = "dim") -> None:
    """Registers an operator that changes the index along one dimension."""

    def read(fusion: Fusion, node: Node) -> str:
        writer = fusion.writer
        x, shape = node.args[0], writer.shape(node)
        dim = dim_of(writer, node, name)
        pointer = fusion.pointer(x)
        n = fusion.integer("n_in", f"{writer.tensor(x)}.shape[{dim}]")
        j = change(fusion, node, fusion.along(dim), n)
        before = any(s != 1 for s in shape[:dim])
        after = [d for d in range(dim + 1, len(shape)) if shape[d] != 1]
        index = j
        if before:
            whole = fusion.over([dim, *after])
            index = f"{whole} * {n} + {j}"
        if after:
            inner = fusion.count(after)
            index = f"({index}) * {inner} + {fusion.place} % {inner}"
        return f"{pointer}[{index}]"

    READERS[op] = OperandReader(read, bearer or _nothing, None if bearer else _own_sizes)


def _own_sizes(writer: Values, node: Node) -> str:
    """Returns the operand's sizes, except along the one dimension."""
    x, dim = writer.tensor(node.args[0]), dim_of(writer, node)
    size = (
        f"{writer.tensor(node.args[1])}.shape[0]"
        if len(node.args) > 1
        else f"{x}.shape[{dim}] * {node.option('repeats')}"
    )
    parts = [size if d == dim else f"{x}.shape[{d}]" for d in range(len(writer.shape(node)))]
    return f"({', '.join(parts)},)"


def _like_operand(writer: Values, node: Node) -> str:
    return writer.tensor(node.args[0])


def _nothing(writer: Values, node: Node) -> str:
    return ""


def _number(fusion: Fusion, text: str, wanted: str) -> str:
    """Returns an integer as a literal where it is one, else as a parameter."""
    try:
        return str(int(ast.literal_eval(text)))
    except (ValueError, SyntaxError, TypeError):
        return fusion.integer(wanted, text)


def _rolled(fusion: Fusion, node: Node, j: str, n: str) -> str:
    shift = _number(fusion, _single(node.option("shifts")), "shift")
    return f"(({j} - {shift}) % {n} + {n}) % {n}"


def _single(text: str) -> str:
    """Returns the one item of a tuple's text, or the text itself."""
    tree = syntax.expression(text)
    if isinstance(tree, (ast.Tuple, ast.List)):
        if len(tree.elts) != 1:
            raise Unreadable(f"no template for a shift by {text}")
        return ast.unparse(tree.elts[0])
    return text


def _flipped(fusion: Fusion, node: Node, j: str, n: str) -> str:
    return f"({n} - 1 - {j})"


def _gathered(fusion: Fusion, node: Node, j: str, n: str) -> str:
    return _whole(fusion, node.args[1], fusion.place)


def _selected(fusion: Fusion, node: Node, j: str, n: str) -> str:
    return _whole(fusion, node.args[1], j)


def _whole(fusion: Fusion, index: Node, place: str) -> str:
    """Returns C text of an index; converts an index that a kernel has computed as float."""
    text = f"{fusion.pointer(index)}[{place}]"
    return text if fusion.writer.kind(index) in ("long", "int") else f"(long long){text}"


def _interleaved(fusion: Fusion, node: Node, j: str, n: str) -> str:
    return f"{j} / {_number(fusion, node.option('repeats'), 'repeats')}"


one_dimension("roll", _rolled, _like_operand, "dims")
one_dimension("flip", _flipped, _like_operand, "dims")
one_dimension("gather", _gathered, lambda writer, node: writer.tensor(node.args[1]))
one_dimension("index_select", _selected, None)
one_dimension("repeat_interleave", _interleaved, None)


@shape_rule("gather")
def _gather_shape(writer: Writer, node: Node) -> Shape:
    return writer.shape(node.args[1])


@shape_rule("index_select")
def _select_shape(writer: Writer, node: Node) -> Shape:
    shape = list(writer.shape(node.args[0]))
    shape[dim_of(writer, node)] = writer.shape(node.args[1])[0]
    return tuple(shape)


@shape_rule("repeat_interleave")
def _interleave_shape(writer: Writer, node: Node) -> Shape:
    shape, dim = list(writer.shape(node.args[0])), dim_of(writer, node)
    shape[dim] = shape[dim] * int(writer.option(node, "repeats")) if shape[dim] != -1 else -1
    return tuple(shape)


# One element of each row, by its index: the lookup of a classification loss.


def _picked(fusion: Fusion, node: Node) -> str:
    """Returns `x[row, index[row]]` along dimension 1, which the result does not have."""
    writer, place = fusion.writer, fusion.place
    x, index = node.args
    pointer, chosen = fusion.pointer(x), fusion.pointer(index)
    shape = writer.shape(x)
    n = fusion.integer("classes", f"{writer.tensor(x)}.shape[1]")
    whole = index.op in ("input", "tensor") and writer.kind(index) in ("long", "int")
    number = f"{chosen}[{place}]" if whole else f"(long long){chosen}[{place}]"
    if all(s == 1 for s in shape[2:]):
        return f"{pointer}[{place} * {n} + {number}]"
    inner = fusion.count(range(1, len(shape) - 1))
    return f"{pointer}[({place} / {inner} * {n} + {number}) * {inner} + {place} % {inner}]"


READERS["pick"] = OperandReader(_picked, lambda writer, node: writer.tensor(node.args[1]))


@shape_rule("pick")
def _pick_shape(writer: Writer, node: Node) -> Shape:
    return writer.shape(node.args[1])


# Triangles and counts -------------------------------------------------------------------------------------------------


def _triangle(sign: str, rest: str = "0.0f") -> Callable[[Fusion, Node], str]:
    def text(fusion: Fusion, node: Node) -> str:
        rank = len(fusion.shape)
        value = fusion.value(node.args[0])
        row, column = fusion.along(rank - 2), fusion.along(rank - 1)
        diagonal = node.option("diagonal") or "0"
        shift = "" if diagonal == "0" else f" + {_number(fusion, diagonal, 'diagonal')}"
        return f"{column} {sign} {row}{shift} ? {value} : {rest}"

    return text


POSITIONS["tril"] = _triangle("<=")
POSITIONS["triu"] = _triangle(">=")
POSITIONS["causal"] = _triangle("<=", "-INFINITY")


def _counted(fusion: Fusion, node: Node) -> str:
    """Returns the element's index along the one dimension of a range."""
    writer = fusion.writer
    shape = (1,) * (len(fusion.shape) - len(writer.shape(node))) + writer.shape(node)
    dims = [d for d, s in enumerate(shape) if s != 1]
    start, step = node.option("start") or "0", node.option("step") or "1"
    index = fusion.along(dims[0]) if dims else "0"
    index = index if step == "1" else f"({index}) * {_number(fusion, step, 'step')}"
    return index if start == "0" else f"{_number(fusion, start, 'start')} + {index}"


POSITIONS["arange"] = _counted


@shape_rule("arange")
def _arange_shape(writer: Writer, node: Node) -> Shape:
    try:
        start, end, step = (writer.option(node, n, d) for n, d in (("start", "0"), ("end", "0"), ("step", "1")))
        length = len(range(start, end, step))
    except (Unreadable, TypeError):
        length = -1
    at, rank = int(node.option("at") or "0"), int(node.option("rank") or "1")
    return tuple(length if d == at else 1 for d in range(rank))


# Views, by their strides ----------------------------------------------------------------------------------------------


def strided(view: Callable[[Values, Node], str]) -> OperandReader:
    """Reads a view of a tensor in place, by its strides. `view` adds its line and returns its Python name."""

    def read(fusion: Fusion, node: Node) -> str:
        shape = fusion.shape
        name = view(fusion.writer, node)
        pointer = fusion.pointer_to(name, CTYPES.get(fusion.writer.kind(node), "float"))
        terms = []
        for d, size in enumerate(shape):
            if size != 1:
                stride = fusion.operands.name(f"stride{d}", "long long", f"{name}.stride({d})")
                index = fusion.along(d)
                terms.append(f"{index if index.isidentifier() else f'({index})'} * {stride}")
        return f"{pointer}[{' + '.join(terms) or '0'}]"

    return OperandReader(read, view)
