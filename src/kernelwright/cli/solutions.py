"""The verbs of the solution library: `kernelwright solutions write` and `kernelwright solutions tune`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernelwright.cli.options import eval_options, path_option, seed_option
from kernelwright.cli.whole_help import WholeHelp

if TYPE_CHECKING:
    from kernelwright.records import Evaluation
    from kernelwright.search.autotune import Measured

solutions_app = typer.Typer(
    help="Write candidates of the solution library, or tune their schedules.",
    no_args_is_help=True,
    rich_markup_mode=None,
    cls=WholeHelp,
)
_FORMS = ("module", "load_inline", "triton")
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Form = Annotated[str, typer.Option(help="Form: module (kernelwright.cuda), load_inline (KernelBench's) or triton.")]


@solutions_app.callback()
def _root() -> None:
    pass


@solutions_app.command("write")
def solutions_write(
    task: Annotated[str, typer.Argument(help="Task: a .py file, a task folder, FILE.jsonl#ID, or a name.")],
    form: Form = "module",
    schedule: Annotated[
        str, typer.Option(help="Name of a schedule, as --list prints it, or tuned: the fast one.")
    ] = "canonical",
    list_schedules: Annotated[bool, typer.Option("--list", help="Print the task's schedules, plainest first.")] = False,
    out: Annotated[Path | None, path_option("File for the candidate; default: stdout.")] = None,
    as_json: Json = False,
) -> None:
    """Write a candidate for a task from the task's text, or list the task's schedules.

    Runs none of the task's code. Exit status: 0, or 2 where the library has no template for the task.
    """
    from kernelwright.errors import UsageError
    from kernelwright.runs.folders import write_text
    from kernelwright.solutions import schedules, write
    from kernelwright.solutions.kernels.schedule import named
    from kernelwright.solutions.read.reading import Unreadable
    from kernelwright.tasks import load_task

    _check_form(form)
    wanted = load_task(task)
    try:
        if list_schedules:
            found = [s.name for s in schedules(wanted.source)]
            print(json.dumps({"task_id": wanted.task_id, "schedules": found}) if as_json else "\n".join(found))
            return
        text = write(wanted.source, named(schedule), form=form)
    except Unreadable as reason:
        raise UsageError(
            f"the solution library has no template for {wanted.task_id!r}: {reason}",
            hint="ask a model: kernelwright optimize TASK --policy openai:MODEL@BASE_URL --run DIR",
        ) from reason
    if out is not None:
        write_text(out, text)
        print(f"wrote {out}", file=sys.stderr)
    if as_json:
        print(json.dumps({"task_id": wanted.task_id, "form": form, "schedule": schedule, "candidate": text}))
    elif out is None:
        print(text, end="")


@solutions_app.command("tune")
def solutions_tune(
    spec: Annotated[str, typer.Argument(metavar="TASK_OR_FAMILY", help="A task, or a family of generated tasks.")],
    run: Annotated[Path, path_option("Run folder; an existing run is resumed.")],
    count: Annotated[int, typer.Option(min=1, help="Number of tasks of a family.")] = 4,
    task_seed: Annotated[int, seed_option("Seed of a family's tasks.")] = 0,
    form: Form = "module",
    schedule: Annotated[list[str] | None, typer.Option("--schedule", help="Judge this one only; repeatable.")] = None,
    backend: Annotated[str, typer.Option(help="auto, cpu or gpu.")] = "auto",
    timing_seconds: Annotated[float, typer.Option(help="On a GPU, wall seconds for timing; 0: no timing.")] = 1.0,
    timeout: Annotated[float, typer.Option(help="Wall seconds for a candidate, without its builds.")] = 60.0,
    seed: Annotated[int | None, seed_option("Seed of inputs and weights; default: random.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Candidates judged at once.")] = 1,
    fresh: Annotated[bool, typer.Option("--fresh", help="Judge again even if the run folder holds a verdict.")] = False,
    as_json: Json = False,
) -> None:
    """Judge every schedule of a task, or of a family's tasks, and rank them.

    Ranks by time on a GPU, else by thread instructions of the checked calls. Lists wrong schedules too.
    """
    from kernelwright.executor import load_executor
    from kernelwright.report import terminal
    from kernelwright.runs.store import Store
    from kernelwright.search import autotune

    _check_form(form)
    options = eval_options(backend=backend, timeout=timeout, seed=seed, sandbox="auto", timing_seconds=timing_seconds)
    wanted = autotune.trials(autotune.tasks_of(spec, count, task_seed), form, schedule or ())
    executing = load_executor("local", jobs, options.backend)
    with (
        Store.open_or_create(run, {"verb": "solutions tune", "input": spec}) as store,
        terminal.BatchView(len(wanted), run, not as_json) as view,
        executing as executor,
    ):

        def show(item_id: str, evaluation: Evaluation | None, note: str) -> None:
            view.show(item_id, evaluation, note)

        found = autotune.tune(wanted, store, executor.settle(options), executor, show, fresh)
        store.add_event("tuned", [m.plain() for m in found])
    for measured in found:
        print(json.dumps(measured.plain()) if as_json else _line(measured))


def _line(m: Measured) -> str:
    """Returns one row of the table."""
    time = f"{m.candidate_ms:10.4f} ms" if m.candidate_ms is not None else f"{m.instructions / 1e6:10.1f} M"
    speedup = f"{m.speedup:7.3f}x" if m.speedup is not None else " " * 8
    mark = "*" if m.best else " "
    return f"{mark} {m.verdict:13} {time} {speedup}  {m.task}  {m.schedule}  {m.reason[:80]}".rstrip()


def _check_form(form: str) -> None:
    from kernelwright.errors import ConfigError

    if form not in _FORMS:
        raise ConfigError(f"--form {form!r} is not a form", hint=f"use {', '.join(_FORMS)}")
