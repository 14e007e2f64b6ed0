"""Draws programs: forwards of two to nine operators, each of which may read any earlier value.

Chains (`fused`) follow people's most frequent code. Here any operator may follow any other: a statistic that several
later lines read, weights of any shape that broadcasts, a selection by a comparison, a slice, a matrix product in the
middle. A later value reads every value, so nothing is computed in vain.
"""

from __future__ import annotations

from collections.abc import Callable

from kernelwright.generate import sizes
from kernelwright.generate.draft import Draft, size_of
from kernelwright.generate.families import norms
from kernelwright.generate.families.unary import memory_bound_input
from kernelwright.generate.programs import program_rows as along
from kernelwright.generate.programs import program_shapes as shapes
from kernelwright.generate.programs import program_values as values
from kernelwright.generate.programs.program import DrawnProgram
from kernelwright.generate.registry import Family, rows

_LONGEST = 9

_LINES: tuple[tuple[Callable[[DrawnProgram], bool], float], ...] = (
    (values.activation_line, 2.0),
    (values.function_line, 1.2),
    (values.scalar_line, 2.2),
    (values.pair_line, 2.5),
    (values.parameter_line, 2.2),
    (along.statistic_line, 1.6),
    (along.reduce_line, 0.8),
    (along.softmax_line, 0.5),
    (along.norm_line, 0.8),
    (shapes.layer_line, 0.8),
    (shapes.product_line, 0.4),
    (shapes.pool_line, 0.5),
    (values.select_line, 0.9),
    (shapes.layout_line, 0.8),
    (along.scan_line, 0.25),
    (values.gate_line, 0.9),
    (along.spread_line, 0.5),
    (shapes.halves_line, 0.4),
    (shapes.affine_line, 0.4),
    (values.counted_line, 0.3),
)


def extend(p: DrawnProgram, count: int) -> None:
    """Adds up to `count` lines."""
    lines, weights = [line for line, _ in _LINES], [weight for _, weight in _LINES]
    for _ in range(count):
        if p.x.dtype != p.t.dtype or p.x.rank == 0 or p.x.elements < 2 or len(p.t.lines) > _LONGEST + 4:
            return
        for _ in range(6):
            if p.t.random.choices(lines, weights)[0](p):
                break


def _started(t: Draft, image: bool) -> DrawnProgram:
    total = sizes.log_uniform(t.random, 1e5, 4e7)
    if image:
        x, _ = norms.channel_input(t, t.random.choice((1, 2, 2, 3)), multiple=t.random.choice((1, 4, 8)), low=8)
    else:
        x = memory_bound_input(t, t.random.choice((2, 2, 2, 3, 3, 4)), total=total)
    p = DrawnProgram(t, x, image, [x])
    t.kept.add(x.text)
    if t.chance(0.3):
        shape = t.inputs[0].shape
        if t.chance(0.25):
            shape = tuple(e if i == p.axis or size_of(e) == 1 else 1 for i, e in enumerate(shape))
        p.values.append(t.input("other", shape))
        t.kept.add(p.values[-1].text)
    return p


def _program(image: bool, anchored: bool) -> Callable[[Draft], None]:
    def make(t: Draft) -> None:
        p = _started(t, image)
        if anchored and not shapes.layer_line(p) and not shapes.product_line(p):
            along.norm_line(p)
        extend(p, t.random.choice((2, 3, 3, 4, 4, 5, 5, 6, 7)))
        if len(t.marks) < 2:
            values.activation_line(p)
            values.scalar_line(p)
        p.finish()

    return make


def families() -> list[Family]:
    """Returns the families of programs, by kind of input and with or without a first layer."""
    makers = [("program_rows", _program(False, False)), ("program_image", _program(True, False))]
    makers += [("program_linear", _program(False, True)), ("program_conv", _program(True, True))]
    return rows("program", 24.0, makers)
