"""The solution library: honest candidates, written from a task's text alone.

`write(source)` reads the reference's forward as an expression (`read.forward`) and the sizes and values that the text
declares (`read.facts`). It lowers the expression to kernels and host lines (`read.lowering`, `kernels.stages` and the
operators of `families`), and frames them as a candidate (`kernels.frame`). Nothing of the task is executed.
"""

from __future__ import annotations

from kernelwright.solutions.kernels.schedule import APART, CANONICAL, Schedule


def write(
    source: str, schedule: Schedule = CANONICAL, *, form: str = "module", style: str = "canonical", plan: bool = False
) -> str:
    """Returns a candidate file for a task's source. Raises `read.reading.Unreadable` where no template fits.

    `form`: `module`, a CUDA string that Python launches; `load_inline`, the same for KernelBench, without this package;
    `triton`. `style`: one of `style.STYLES`, for the first two forms: the same kernels in other authors' spelling.
    `plan`, for the form `module`: comments say what is computed where (`kernels.plan`).
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
    from kernelwright.solutions.kernels import module_form

    return styled(module_form.write(source, schedule, plan), style)


def schedules(source: str) -> list[Schedule]:
    """Returns the schedules that give a task different candidates, from the plainest to the best; all are correct.

    Raises `Unreadable`.
    """
    order = known_schedules(source)
    answers: dict[str, Schedule] = {write(source): CANONICAL}
    for schedule in order:
        answers.setdefault(write(source, schedule), schedule)
    return sorted(answers.values(), key=order.index)


def known_schedules(source: str) -> list[Schedule]:
    """Returns the schedules that a task's operators know, from the plainest to the best; some may give equal texts.

    Raises `Unreadable`.
    """
    from kernelwright.solutions.kernels import variants
    from kernelwright.solutions.read.declared import Declared
    from kernelwright.solutions.task_parts import lowered, with_parts

    writer, node = with_parts(source, lambda parts: lowered(parts, CANONICAL))
    halves = any(isinstance(v, Declared) and v.dtype in ("half", "bfloat16") for v in writer.facts.inputs.values())
    return variants.of(node, halves)


__all__ = ["APART", "CANONICAL", "Schedule", "known_schedules", "schedules", "write"]
