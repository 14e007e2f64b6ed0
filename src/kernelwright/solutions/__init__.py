"""The solution library: honest CUDA candidates, written from a task's text alone.

`write(source)` reads the reference's forward as an expression (`reading`), what sizes and values the text declares
(`facts`), lowers the expression to kernels and host lines (`stages`, `fusion`, and the operators of `families`), and
frames them as a candidate (`frame`). Nothing of the task is executed.
"""

from __future__ import annotations

from kernelwright.solutions.schedule import CANONICAL, Schedule, choices


def write(source: str, schedule: Schedule = CANONICAL, *, form: str = "module", style: str = "canonical") -> str:
    """A candidate file for a task's source. Raises `reading.Unreadable` where no template fits."""
    from kernelwright.solutions import families, frame
    from kernelwright.solutions.facts import read_facts
    from kernelwright.solutions.forward import expression
    from kernelwright.solutions.lowering import lower
    from kernelwright.solutions.reading import read
    from kernelwright.solutions.stages import Writer

    if form != "module":
        raise ValueError(f"unknown form {form!r}")
    reference = read(source)
    facts = read_facts(reference)
    node = expression(reference, facts)
    families.register()
    writer = Writer(reference, schedule, facts)
    result = writer.output(lower(writer, node))
    return frame.module_text(reference, writer.kernels, writer.lines, result)


def schedules(source: str) -> list[Schedule]:
    """Schedules for a task, from the plainest to the best; every one gives a right answer."""
    return choices()


__all__ = ["CANONICAL", "Schedule", "schedules", "write"]
