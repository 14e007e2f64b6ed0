"""Reads a task's text into parts, and lowers its forward for a writer.

Where a text cannot be read, its normal form is tried (no loops over layers, no choices by a constructor's argument, no
one-line helpers), then that form with the file's own classes rewritten (`tasks.normal_form.plain_classes`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from kernelwright import syntax
from kernelwright.solutions import families
from kernelwright.solutions.kernels.plan import AnswerPlan
from kernelwright.solutions.kernels.schedule import Schedule
from kernelwright.solutions.kernels.stages import Writer
from kernelwright.solutions.read.facts import Facts, read_facts
from kernelwright.solutions.read.forward import expression
from kernelwright.solutions.read.lowering import lower
from kernelwright.solutions.read.reading import Node, ReferenceText, Unreadable, read, readable
from kernelwright.tasks.normal_form.normal import normal_form
from kernelwright.tasks.normal_form.plain_classes import plain_classes

Result = TypeVar("Result")


class TaskParts(NamedTuple):
    """The parts of a task that the templates need."""

    reference: ReferenceText
    facts: Facts
    """The sizes and values that the text fixes."""
    expression: Node
    """The value that forward returns."""


def with_parts(source: str, use: Callable[[TaskParts], Result]) -> Result:
    """Returns `use(parts)` for the first form of a task's text that can be read and used.

    Raises the first form's `Unreadable` where all forms fail.
    """
    first: Unreadable | None = None
    for form in (None, normal_form, lambda text: plain_classes(normal_form(text))):
        try:
            with readable():
                parts = _read(form(source) if form else source)
                if form:
                    parts.reference.own = syntax.parse(source)
                return use(parts)
        except Unreadable as error:
            first = first or error
    assert first is not None
    raise first


def _read(source: str) -> TaskParts:
    families.register()
    reference = read(source)
    facts = read_facts(reference)
    return TaskParts(reference, facts, expression(reference, facts))


def lowered(parts: TaskParts, schedule: Schedule, plan: bool = False) -> tuple[Writer, Node]:
    """Returns a writer for a task, and its forward in terms of the writer's operators. Raises `Unreadable`.

    With `plan` the writer adds comments that say what is computed where.
    """
    reference, facts, node = parts
    writer = Writer(reference, schedule, facts, AnswerPlan(node, reference.named) if plan else None)
    if schedule.fuse:  # hidden values are lowered first; without fusing, each has its tensor when it is asked for
        for hidden in reference.hidden.values():
            lower(writer, hidden)
    return writer, lower(writer, node)
