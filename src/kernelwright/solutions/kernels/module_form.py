"""Writes candidates of the form `module`: a CUDA string that Python launches."""

from __future__ import annotations

from kernelwright.solutions.in_place import in_place
from kernelwright.solutions.kernels import frame
from kernelwright.solutions.kernels.schedule import Schedule
from kernelwright.solutions.kernels.sharing import shared
from kernelwright.solutions.task_parts import TaskParts, lowered, with_parts


def write(source: str, schedule: Schedule, plan: bool) -> str:
    """Returns a candidate for a task's source. Raises `Unreadable` where no template fits."""
    return with_parts(source, lambda parts: _text(parts, schedule, plan))


def _text(parts: TaskParts, schedule: Schedule, plan: bool) -> str:
    writer, node = lowered(parts, schedule, plan)
    result = writer.output(node)
    kernels, host = shared(writer.kernels, [*writer.functions, *writer.lines])
    functions, lines = host[: len(writer.functions)], host[len(writer.functions) :]
    if schedule.in_place:
        kernels, lines, result = in_place(writer, kernels, lines, result)
    text = frame.module_text(writer.reference, kernels, lines, result, functions)
    return writer.plan.written(text, writer.reference.inputs) if writer.plan else text
