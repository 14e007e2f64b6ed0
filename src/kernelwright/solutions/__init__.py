"""The solution library: honest CUDA candidates, written from a task's text alone.

`write(source)` reads the reference's forward as an expression (`reading`), what sizes and values the text declares
(`facts`), lowers the expression to kernels and host lines (`stages`, `fusion`, and the operators of `families`), and
frames them as a candidate (`frame`). Nothing of the task is executed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kernelwright.solutions.kernels.schedule import APART, CANONICAL, Schedule

if TYPE_CHECKING:
    from kernelwright.solutions.kernels.stages import Writer
    from kernelwright.solutions.read.facts import Facts
    from kernelwright.solutions.read.reading import Node, Reference

    Parts = tuple[Reference, Facts, Node]
    """Of a task: what templates need to know, what its text fixes, and what its forward computes."""


def write(
    source: str, schedule: Schedule = CANONICAL, *, form: str = "module", style: str = "canonical", plan: bool = False
) -> str:
    """A candidate file for a task's source. Raises `reading.Unreadable` where no template fits.

    `form`: `module`, a CUDA string that Python launches; `load_inline`, the same for KernelBench, without this package;
    `triton`. `style`: one of `style.STYLES`, for the first two forms: the same kernels as other people write them.
    `plan`, of the form `module`: comments say what is computed where (`plan`).
    """
    from kernelwright.solutions.kernels.style import styled
    from kernelwright.solutions.read.reading import readable

    if form == "load_inline":
        from kernelwright.solutions.forms import export

        return export(write(source, schedule, style=style))
    if form == "triton":
        from kernelwright.solutions.kernels import triton

        with readable():
            return triton.write(source, schedule)
    if form != "module":
        raise ValueError(f"unknown form {form!r}")
    return styled(either(source, lambda parts: _module_text(parts, schedule, plan)), style)


def _module_text(parts: Parts, schedule: Schedule, plan: bool) -> str:
    """A candidate of the form `module`."""
    from kernelwright.solutions.kernels import frame
    from kernelwright.solutions.kernels.sharing import shared

    writer, node = lowered(parts, schedule, plan)
    result = writer.output(node)
    text = frame.module_text(writer.reference, *shared(writer.kernels, writer.lines), result)
    return writer.plan.written(text, writer.reference.inputs) if writer.plan else text


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
    from kernelwright.solutions.kernels import variants
    from kernelwright.solutions.read.declared import Declared

    writer, node = either(source, lambda parts: lowered(parts, CANONICAL))
    halves = any(isinstance(v, Declared) and v.dtype in ("half", "bfloat16") for v in writer.facts.inputs.values())
    return variants.of(node, halves)


def either(source: str, use: Callable[[Parts], Any]) -> Any:
    """What can be made of a task's parts. Raises `Unreadable`.

    Of a text of which nothing can be made as it is, those of its normal form: without loops over layers, choices by a
    constructor's argument and helpers of one line; then with the classes of the file made plainer.
    """
    from kernelwright import syntax
    from kernelwright.solutions.read.reading import Unreadable, readable
    from kernelwright.tasks.normal_form.normal import normal_form
    from kernelwright.tasks.normal_form.plain_classes import plain_classes

    first: Unreadable | None = None
    for form in (None, normal_form, lambda text: plain_classes(normal_form(text))):
        try:
            with readable():
                found = _understood(form(source) if form else source)
                if form:
                    found[0].own = syntax.parse(source)
                return use(found)
        except Unreadable as error:
            first = first or error
    assert first is not None
    raise first


def _understood(source: str) -> Parts:
    from kernelwright.solutions import families
    from kernelwright.solutions.read.facts import read_facts
    from kernelwright.solutions.read.forward import expression
    from kernelwright.solutions.read.reading import read

    families.register()
    reference = read(source)
    facts = read_facts(reference)
    return reference, facts, expression(reference, facts)


def lowered(parts: Parts, schedule: Schedule, plan: bool = False) -> tuple[Writer, Node]:
    """A writer for a task, and its forward in terms of what the writer knows. Raises `Unreadable`."""
    from kernelwright.solutions.kernels.plan import Plan
    from kernelwright.solutions.kernels.stages import Writer
    from kernelwright.solutions.read.lowering import lower

    reference, facts, node = parts
    writer = Writer(reference, schedule, facts, Plan(node, reference.named) if plan else None)
    if schedule.fuse:  # values whose sizes are asked for; apart, each has its tensor when it is asked for
        for hidden in reference.hidden.values():
            lower(writer, hidden)
    return writer, lower(writer, node)


__all__ = ["APART", "CANONICAL", "Schedule", "known_schedules", "schedules", "write"]
