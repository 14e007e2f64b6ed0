"""Slices that forward writes to: `y[..., 1:-1] = v` gives a new tensor whose elements test whether they lie in the
slice."""

from __future__ import annotations

import ast

from kernelwright import syntax
from kernelwright.solutions.kernels.fusion import READERS, Fusion, OperandReader
from kernelwright.solutions.kernels.stages import Writer, shape_rule
from kernelwright.solutions.kernels.values import Values
from kernelwright.solutions.read.declared import Shape
from kernelwright.solutions.read.reading import Node, Unreadable


@shape_rule("put")
def _shape(writer: Writer, node: Node) -> Shape:
    return writer.shape(node.args[0])


def parts(text: str, rank: int) -> list[ast.expr]:
    """Returns the index of each dimension, whole slices for unnamed ones. Raises `Unreadable`."""
    index = syntax.expression(f"x[{text}]").slice  # type: ignore[attr-defined]
    given = list(index.elts) if isinstance(index, ast.Tuple) else [index]
    dots = [i for i, p in enumerate(given) if isinstance(p, ast.Constant) and p.value is ...]
    odd = any(isinstance(p, ast.Constant) and (p.value is None or isinstance(p.value, bool)) for p in given)
    if odd or len(dots) > 1:
        raise Unreadable(f"no template for an assignment to [{text}]")
    at = dots[0] if dots else len(given)
    missing = rank - len(given) + len(dots)
    if missing < 0:
        raise Unreadable(f"no template for an assignment to [{text}] of {rank} dimensions")
    return [*given[:at], *[ast.Slice() for _ in range(missing)], *given[at + len(dots) :]]


def _put(fusion: Fusion, node: Node) -> str:
    """Returns the new value where the element lies in the slice, else the old one."""
    writer, (base, value) = fusion.writer, node.args
    rank, shape = len(fusion.shape), () if value.op == "number" else writer.shape(value)
    old = fusion.number(base.text) if base.op == "constant" else f"{fusion.pointer(base)}[{fusion.place}]"
    conditions: list[str] = []
    places: list[str] = []
    for d, part in enumerate(parts(node.text, rank)):
        here = fusion.along(d)
        here = here if here.isidentifier() else f"({here})"
        if isinstance(part, ast.Slice) and part.lower is part.upper is part.step is None:
            places.append(here)
            continue
        size = f"{fusion.bearer}.shape[{d}]"
        if not isinstance(part, ast.Slice):
            number = ast.unparse(part)
            conditions.append(f"{here} == {fusion.integer(f'at{d}', f'({number}) % {size}')}")
            continue
        ends = ", ".join("None" if e is None else ast.unparse(e) for e in (part.lower, part.upper, part.step))
        bounds = f"slice({ends}).indices({size})"
        first, last = (fusion.integer(f"{n}{d}", f"{bounds}[{i}]") for i, n in enumerate(("first", "last")))
        conditions.append(f"{here} >= {first} && {here} < {last}")
        offset = f"({here} - {first})"
        if part.step is not None:
            step = fusion.integer(f"step{d}", ast.unparse(part.step))
            conditions.append(f"{offset} % {step} == 0")
            offset = f"{offset} / {step}"
        places.append(offset)
    if value.op == "number":
        new = fusion.number(value.text)
    else:
        new = _read(fusion, value, shape, places)
    return f"{' && '.join(conditions)} ? {new} : {old}" if conditions else new


def _read(fusion: Fusion, value: Node, shape: Shape, places: list[str]) -> str:
    """Returns the value's element; its dimensions are the slice's last ones, or of size one."""
    if len(shape) > len(places):
        raise Unreadable("no template for an assignment of more dimensions than there are")
    name = fusion.writer.tensor(value)
    pointer = fusion.pointer(value)
    index = ""
    for d, place in zip(range(len(shape)), places[len(places) - len(shape) :], strict=True):
        place = "0" if shape[d] == 1 else place
        index = f"({index}) * {fusion.integer(f'wide{d}', f'{name}.shape[{d}]')} + {place}" if index else place
    return f"{pointer}[{index or '0'}]"


def _bearer(writer: Values, node: Node) -> str:
    base = node.args[0]
    return "" if base.op == "constant" else writer.tensor(base)


def _sizes(writer: Values, node: Node) -> str:
    """Returns Python text of the result's sizes."""
    base = node.args[0]
    if base.op != "constant":
        return f"{writer.tensor(base)}.shape"
    return f"{writer.bearer(base.args[0])}.shape" if base.args else base.option("shape")


READERS["put"] = OperandReader(_put, _bearer, _sizes)
