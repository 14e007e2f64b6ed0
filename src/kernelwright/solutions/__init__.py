"""The solution library: honest CUDA candidates, written from a task's text alone.

`write(source)` reads the reference's forward as an expression (`reading`), what sizes and values the text declares
(`facts`), lowers the expression to kernels and host lines (`stages`, `fusion`, and the operators of `families`), and
frames them as a candidate (`frame`). Nothing of the task is executed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelwright.solutions.schedule import APART, CANONICAL, Schedule

if TYPE_CHECKING:
    from kernelwright.solutions.facts import Facts
    from kernelwright.solutions.reading import Node, Reference
    from kernelwright.solutions.stages import Writer


def write(
    source: str, schedule: Schedule = CANONICAL, *, form: str = "module", style: str = "canonical", plan: bool = False
) -> str:
    """A candidate file for a task's source. Raises `reading.Unreadable` where no template fits.

    `form`: `module`, a CUDA string that Python launches; `load_inline`, the same for KernelBench, without this package;
    `triton`. `style`: one of `style.STYLES`, for the first two forms: the same kernels as other people write them.
    `plan`, of the form `module`: comments say what is computed where (`plan`).
    """
    from kernelwright.solutions import frame
    from kernelwright.solutions.reading import readable
    from kernelwright.solutions.style import styled

    if form == "load_inline":
        from kernelwright.solutions.forms import export

        return export(write(source, schedule, style=style))
    if form == "triton":
        from kernelwright.solutions import triton

        with readable():
            return triton.write(source, schedule)
    if form != "module":
        raise ValueError(f"unknown form {form!r}")
    with readable():
        writer, node = _lowered(source, schedule, plan)
        result = writer.output(node)
    text = frame.module_text(writer.reference, writer.kernels, writer.lines, result)
    return styled(writer.plan.written(text, writer.reference.inputs) if writer.plan else text, style)


def schedules(source: str) -> list[Schedule]:
    """Schedules for a task whose answers differ, from the plainest to the best; every one gives a right answer.

    Raises `Unreadable`.
    """
    order = known_schedules(source)
    answers: dict[str, Schedule] = {write(source): CANONICAL}
    for schedule in order:
        answers.setdefault(write(source, schedule), schedule)
    return sorted(answers.values(), key=order.index)


def known_schedules(source: str) -> list[Schedule]:
    """Schedules that a task's operators know, from the plainest to the best; some may give equal answers.

    Raises `Unreadable`.
    """
    from kernelwright.solutions import variants
    from kernelwright.solutions.declared import Declared

    writer, node = _lowered(source, CANONICAL)
    halves = any(isinstance(v, Declared) and v.dtype in ("half", "bfloat16") for v in writer.facts.inputs.values())
    return variants.of(node, halves)


def understood(source: str) -> tuple[Reference, Facts, Node]:
    """A task's parts, what its text fixes, and what its forward computes. Raises `Unreadable`.

    Of a text that is not understood as it is, those of its normal form: without loops over layers, choices by a
    constructor's argument and helpers of one line.
    """
    from kernelwright import syntax
    from kernelwright.solutions.reading import Unreadable, readable
    from kernelwright.tasks.normal import normal_form

    try:
        with readable():
            return _understood(source)
    except Unreadable as error:
        try:
            with readable():
                found = _understood(normal_form(source))
                found[0].own = syntax.parse(source)
                return found
        except Unreadable:
            raise error from None


def _understood(source: str) -> tuple[Reference, Facts, Node]:
    from kernelwright.solutions import families
    from kernelwright.solutions.facts import read_facts
    from kernelwright.solutions.forward import expression
    from kernelwright.solutions.reading import read

    families.register()
    reference = read(source)
    facts = read_facts(reference)
    return reference, facts, expression(reference, facts)


def _lowered(source: str, schedule: Schedule, plan: bool = False) -> tuple[Writer, Node]:
    """A writer for a task, and its forward in terms of what the writer knows. Raises `Unreadable`."""
    from kernelwright.solutions.lowering import lower
    from kernelwright.solutions.plan import Plan
    from kernelwright.solutions.stages import Writer

    reference, facts, node = understood(source)
    writer = Writer(reference, schedule, facts, Plan(node, reference.named) if plan else None)
    if schedule.fuse:  # values whose sizes are asked for; apart, each has its tensor when it is asked for
        for hidden in reference.hidden.values():
            lower(writer, hidden)
    return writer, lower(writer, node)


__all__ = ["APART", "CANONICAL", "Schedule", "known_schedules", "schedules", "write"]
