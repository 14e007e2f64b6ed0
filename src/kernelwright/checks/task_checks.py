"""Checks tasks for `tasks check`: runs each, tries null kernels on it, lints it, and prints the results.

The gate itself is `evaluation.judge.null_kernel_gate`. Tables go to stdout, progress to stderr.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from kernelwright.errors import TaskError
from kernelwright.records import Task
from kernelwright.report import terminal
from kernelwright.untrusted import visible

if TYPE_CHECKING:
    from kernelwright.evaluation import Evaluator

STYLES = {"sound": "green", "hardened": "cyan", "quarantined": "yellow", "cannot run": "red"}
STATES = tuple(STYLES)
MAX_NULLS = 6

Facts = dict[str, Any]


def check(tasks: Sequence[Task], evaluator: Evaluator, show: Callable[[Facts], None] | None = None) -> list[Facts]:
    """Returns the results of gate and lint per task, in order; `show` gets each when it is done.

    A task that cannot run has `ok` false and a `reason`; the others have the plan's fields, `gate` (a `records.Gate`),
    `nulls` (name, trials passed and failed, largest error over the tolerance), and `seconds`.
    """
    found = []
    evaluator.pool.warm()  # otherwise the first task's time includes the start of the worker process
    for task in tasks:
        started = time.monotonic()
        try:
            checked = evaluator.check_gate(task)
            facts = terminal.plan_facts(task, evaluator.check_task(task))
            facts["gate"] = checked.gate.plain()
            facts["nulls"] = [
                {"name": t.name, "passed": t.passed, "failed": t.failed, "worst": _finite(t.worst)}
                for t in checked.tallies
            ]
        except TaskError as error:
            facts = {"task_id": task.task_id, "ok": False, "reason": str(error)}
        facts["seconds"] = round(time.monotonic() - started, 2)
        found.append(facts)
        if show is not None:
            show(facts)
    return found


def _finite(value: float) -> float | str:
    return float(f"{value:.4g}") if value < float("inf") else "Infinity"


def state(facts: Facts) -> str:
    """Returns `sound`, `hardened`, `quarantined` or `cannot run`."""
    return str(facts["gate"]["state"]) if facts["ok"] else "cannot run"


def line(facts: Facts) -> str:
    """Returns one task as a line of progress."""
    text = facts["gate"]["reason"] if facts["ok"] else facts["reason"]
    return f"{facts['task_id']}: {state(facts)}" + (f", {text}" if text else "")


def passes(facts: Facts) -> list[str]:
    """Returns the null kernels that passed a trial, grouped by the trials passed: `zeros, ones: declared/own`."""
    by_place: dict[str, list[str]] = {}
    for entry in facts["gate"]["passed"] if facts["ok"] else ():
        name, _, places = entry.partition(": ")
        by_place.setdefault(places, []).append(name)
    return [f"{_few(names)}: {places}" for places, names in by_place.items()]


def _few(names: list[str]) -> str:
    more = f" and {len(names) - MAX_NULLS} more" if len(names) > MAX_NULLS else ""
    return ", ".join(names[:MAX_NULLS]) + more


def print_table(found: Iterable[Facts], console: Console | None = None) -> None:
    """Prints all tasks as a table, each with its sizes and distributions."""
    table = Table(box=None, header_style="dim")
    for name in ("task", "state", "sizes", "values", "nulls that passed, and where", "notes", "s"):
        table.add_column(name, overflow="fold", no_wrap=name in ("task", "state", "s"))
    for facts in found:
        mark = f"[{STYLES[state(facts)]}]{state(facts)}[/]"
        name, seconds = terminal.escape(facts["task_id"]), f"{facts['seconds']:.1f}"
        if not facts["ok"]:
            table.add_row(name, mark, "", "", "", terminal.escape(facts["reason"]), seconds)
            continue
        where = "\n".join(map(terminal.escape, passes(facts)))
        notes = [r for r in (facts["gate"]["reason"],) if r] + facts["gate"]["notes"]
        sizes, values = str(len(facts["workloads"])), " ".join(facts["distributions"])
        table.add_row(name, mark, sizes, values, where, "\n".join(map(terminal.escape, notes)), seconds)
    (console or terminal.out).print(table)


def counts(found: Sequence[Facts]) -> dict[str, int]:
    """Returns the number of tasks per state."""
    states = [state(facts) for facts in found]
    return {name: states.count(name) for name in STATES if name in states}


def markdown(found: Sequence[Facts], title: str, head: Sequence[str] = ()) -> str:
    """Returns all tasks as a Markdown page: the counts, then a table."""
    summary = ", ".join(f"{n} {name}" for name, n in counts(found).items())
    lines = [f"# {title}", "", *head, *([""] if head else []), f"{len(found)} tasks: {summary}.", ""]
    lines += [
        "A null passes a trial, named `workload/values`, when the judge's comparison accepts its outputs. A task is",
        "sound when the trials of an evaluation catch every null, at the task's own extents too.",
        "",
        "| task | state | nulls that passed, and where | notes | GB | s |",
        "|---|---|---|---|---|---|",
    ]
    for facts in found:
        if facts["ok"]:
            gate = facts["gate"]
            notes = [r for r in (gate["reason"],) if r] + gate["notes"]
            memory = "" if gate["memory_gb"] is None else f"{gate['memory_gb']:.3g}"
            cells = [facts["task_id"], state(facts), "<br>".join(passes(facts)), "<br>".join(notes), memory]
        else:
            cells = [facts["task_id"], state(facts), "", facts["reason"], ""]
        lines.append("| " + " | ".join(_cell(c) for c in [*cells, f"{facts['seconds']:.1f}"]) + " |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return visible(text).replace("\n", " ").replace("|", "\\|")
