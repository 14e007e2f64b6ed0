"""Prints to a terminal: live progress, tables, one verdict. The HTML page is in `page`.

Tables go to stdout, progress to stderr. Nothing here judges or stores.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich import markup
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from kernelwright.bench import grid, numbers, tables
from kernelwright.errors import StoreError
from kernelwright.evaluation.judge import counter_lines
from kernelwright.records import VERDICTS, Candidate, Evaluation, Task, Timing, Turn
from kernelwright.runs.store import Store
from kernelwright.search.circles import REPEATS
from kernelwright.tasks.reference import sizes_in_words
from kernelwright.untrusted import visible

TRAINING, SHOWN = ("settings.toml", "settings.json"), ("curves.html", "log.jsonl")
"""Files that mark a training run's folder, and files of it for a user to read."""

if TYPE_CHECKING:
    from kernelwright.evaluation.trials import TaskPlan
    from kernelwright.runs.batch import BatchSummary
    from kernelwright.search.optimize import OptimizeResult

WIDTH = 160
"""Columns of a table when stdout is no terminal."""
out = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
err = Console(stderr=True, highlight=False)

STYLES = {
    "correct": "green",
    "wrong": "red",
    "compile_error": "magenta",
    "runtime_error": "red",
    "timeout": "yellow",
    "rejected": "yellow",
    "unsupported": "blue",
    "harness_error": "bold red",
}


def escape(text: str) -> str:
    """Escapes untrusted text: no markup of rich, no control sequences of the terminal, nothing reordered or hidden."""
    return markup.escape(visible(text))


def _in_line(text: str) -> str:
    """Escapes untrusted text that must not look like further lines of a report."""
    return escape(" ".join(text.split()))


def _styled(verdict: str) -> str:
    return f"[{STYLES.get(verdict, 'white')}]{verdict}[/]"


@contextlib.contextmanager
def spinner(text: str) -> Iterator[None]:
    """Shows a line on stderr while the block runs, if stderr is a terminal."""
    with err.status(escape(text)) if err.is_terminal else contextlib.nullcontext():
        yield


_CLAIMED = "[yellow]by KernelBench's own protocol: a claim that nothing protects[/]"


def print_evaluation(evaluation: Evaluation, candidate: Candidate) -> None:
    """Prints a verdict with its evidence: reason and source line, then workloads, other findings, and the log."""
    out.print(f"{_styled(evaluation.verdict)}  {_in_line(evaluation.reason)}".rstrip(), soft_wrap=True)
    if evaluation.environment.protocol:
        out.print(_CLAIMED, soft_wrap=True)
    if (road := evaluation.environment.road) and evaluation.backend != "cpu":
        told = "; ".join(filter(None, (f"road: {road}", evaluation.environment.replayed)))
        out.print(f"[dim]{escape(told)}[/]", soft_wrap=True)
    lines = candidate.text.splitlines()
    deciding = [f for f in evaluation.findings if _told(f.evidence, evaluation.reason)]
    for finding in deciding[:1]:
        _print_line(lines, finding.line)
    if evaluation.workloads:
        heads = ("workload", "inputs", "values", "absolute error", "relative error", "allowed", "")
        table = Table(*heads, box=None, header_style="dim")
        for w in evaluation.workloads:
            shape = " ".join("x".join(map(str, s)) or "scalar" for s in w.shape)
            errors = ["-" if e is None else f"{e:.2g}" for e in (w.max_abs_error, w.max_rel_error)]
            allowed = "-" if w.tolerance is None else f"{w.tolerance:.2g}"
            mark = "[green]ok[/]" if w.passed else "[red]no[/]"
            mark += f", {w.forgiven} forgiven" if w.forgiven else ""
            table.add_row(f"{w.name} ({w.scope})", shape, w.distribution, *errors, allowed, mark)
        out.print(table)
    if evaluation.errors is not None:
        out.print(_in_line(evaluation.told_errors()), soft_wrap=True)
    for line in evaluation.coverage.told() if evaluation.coverage else ():
        out.print(_in_line(line), soft_wrap=True)
    for finding in [f for f in evaluation.findings if f not in deciding][:10]:
        out.print(f"[dim]{finding.severity}[/] {finding.rule}: {_in_line(finding.evidence)}", soft_wrap=True)
        _print_line(lines, finding.line)
    if evaluation.verdict != "correct" and evaluation.log:
        out.print(escape(evaluation.log[-3000:]), style="dim", soft_wrap=True)
    for launch in [x for x in evaluation.launches if x.instructions][:5]:
        out.print(f"[dim]{escape(counter_lines.summary(launch))}[/]", soft_wrap=True)
    for line in counter_lines.advice(evaluation):
        out.print(f"[dim]{escape(line)}[/]", soft_wrap=True)
    if evaluation.timing is not None:
        out.print(speed_line(evaluation.timing), soft_wrap=True)
    s = evaluation.seconds
    speed = "" if evaluation.timing else "; speed not measured"
    facts = f"{evaluation.backend} · {evaluation.sandbox} · build {s.build:.2f} s, check {s.check:.2f} s{speed}"
    out.print(f"[dim]{facts}[/]", soft_wrap=True)


def _told(evidence: str, reason: str) -> bool:
    """Tells whether a reason already holds a finding's evidence, an exception's type and message apart."""
    head, _, rest = evidence.partition(": ")
    return evidence[:200] in reason or (bool(rest) and head in reason and rest[:200] in reason)


def speed_line(timing: Timing) -> str:
    """Returns a timing as one line: medians, and the speedup with its interval."""
    text = f"{timing.candidate_ms:.4g} ms"
    if timing.eager_ms is not None:
        text += f"; eager {timing.eager_ms:.4g} ms"
    if timing.compile_ms is not None:
        text += f", compiled {timing.compile_ms:.4g} ms"
    if timing.speedup is not None:
        text += f"; speedup {timing.speedup:.3f}"
        text += f" ({timing.interval[0]:.3f} to {timing.interval[1]:.3f})" if timing.interval else ""
    return text


def _print_line(lines: list[str], number: int | None) -> None:
    if number and number <= len(lines):
        out.print(f"    {number}: {escape(lines[number - 1].strip())}", style="dim", soft_wrap=True)


Standing = tuple[int, int | None]
"""The finished items of some work, of earlier sessions too, and the items in flight; None where nobody counts them."""


def stopped_line(what: str, standing: Standing, total: int, kept: str = "") -> str:
    """Returns a line on how far an interrupted command had come. `kept` ends it."""
    finished, in_flight = standing
    text = f"of {total} {what} {finished} finished"
    if in_flight is not None:
        text += f", {in_flight} in flight, {max(0, total - finished - in_flight)} not started"
    return text + kept


def print_stopped(what: str, standing: Standing, total: int, kept: str = "") -> None:
    """Prints on stderr how far an interrupted command had come."""
    err.print(escape(f"stopped: {stopped_line(what, standing, total, kept)}"), soft_wrap=True)


def _kept_in(run: Path | None, standing: Standing) -> str:
    return f"; what is finished is kept in {run}" if run is not None and standing[0] else ""


class BatchView:
    """Shows live progress of a batch on stderr, with `lines` a line for each row. On Ctrl-C it counts the rows."""

    def __init__(self, total: int, run: Path | None, lines: bool, what: str = "rows") -> None:
        self.total, self.what = total, what
        self.standing: Callable[[], Standing] = lambda: (self.done, None)
        """Counts the rows at a stop; whoever knows more than was shown sets it."""
        self.run = run
        self.lines = lines
        self.done = 0
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self.progress = Progress(*columns, console=err, transient=True, disable=not err.is_terminal)
        self.task = self.progress.add_task("judging", total=total)

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.progress.stop()
        if kind is KeyboardInterrupt:
            standing = self.standing()
            print_stopped(self.what, standing, self.total, _kept_in(self.run, standing))

    def step(self, text: str = "") -> None:
        """Advances the bar by one; prints `text` above it."""
        self.done += 1
        self.progress.advance(self.task)
        if text:
            self.progress.console.print(escape(text), soft_wrap=True)

    def show(self, item_id: str, evaluation: Evaluation | None, note: str) -> None:
        """Advances the bar by one row and prints its verdict."""
        self.step()
        if not self.lines:
            return
        if evaluation is None:
            text = f"[dim]{'-':13} {escape(item_id)}  {escape(note[:150])}[/]"
        else:
            verdict = _styled(evaluation.verdict) + " " * (13 - len(evaluation.verdict))
            text = f"{verdict} {escape(item_id)}  {escape(evaluation.reason[:150])}".rstrip()
        self.progress.console.print(text, soft_wrap=True)


def print_batch(summary: BatchSummary, run: Path, quiet: bool) -> None:
    """Prints the counts of a finished batch; on stderr when stdout carries JSON."""
    console = err if quiet else out
    table = _counts(dict(summary.verdicts))
    if summary.no_candidate:
        table.add_row("[dim]no candidate[/]", str(summary.no_candidate))
    if summary.bad_tasks:
        table.add_row("[dim]task cannot be judged[/]", str(summary.bad_tasks))
    console.print(table)
    if summary.resumed:
        judged = sum(summary.verdicts.values())
        console.print(f"resumed: {summary.resumed} of {judged} were already judged")
    console.print(f"[dim]more: kernelwright report {escape(str(run))} --html report.html[/]")


def print_queued(summary: BatchSummary, run: Path) -> None:
    """Prints how many rows were queued, and why others were not."""
    left_out = {"already judged": summary.resumed, "no candidate": summary.no_candidate, "bad tasks": summary.bad_tasks}
    notes = "".join(f"; {name}: {count}" for name, count in left_out.items() if count)
    out.print(f"queued: {summary.queued} of {summary.rows} rows{notes}")
    out.print(f"[dim]next: kernelwright worker {escape(str(run))}[/]")


def print_worked(done: int, counts: Mapping[str, int], run: Path) -> None:
    """Prints on stderr how many jobs a worker finished, and how many are left."""
    left = "".join(f"; {name}: {count}" for name, count in counts.items() if name != "done")
    err.print(f"this worker finished {done} jobs{left}", soft_wrap=True)
    err.print(f"[dim]more: kernelwright report {escape(str(run))} --html report.html[/]", soft_wrap=True)


def _counts(verdicts: dict[str, int]) -> Table:
    table = Table("verdict", "count", box=None, header_style="dim")
    for name in VERDICTS:
        if verdicts.get(name):
            table.add_row(_styled(name), str(verdicts[name]))
    return table


STOPS = {
    "found": "a correct candidate was found",
    "turns": "all turns are used",
    "tokens": "all tokens are used",
    "seconds": "the time is used up",
    "circles": "no new answers",
}
"""The end of a search in words, by a trajectory's `stop_reason`."""


class TurnView:
    """Shows live progress of a search: a line for each turn. On Ctrl-C it counts the turns."""

    def __init__(self, task_id: str, policy: str, lines: bool, turns: int, run: Path) -> None:
        self.lines, self.turns, self.run = lines, turns, run
        self.done = 0
        self.status = err.status(escape(f"{policy} works on {task_id}")) if err.is_terminal else None

    def __enter__(self) -> Self:
        if self.status:
            self.status.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self.status:
            self.status.stop()
        if kind is KeyboardInterrupt:
            standing = self.done, min(1, self.turns - self.done)
            print_stopped("turns", standing, self.turns, _kept_in(self.run, standing))

    def show(self, turn: Turn) -> None:
        """Prints a turn's verdict."""
        self.done += 1
        if not self.lines:
            return
        if turn.evaluation is None:
            text = f"[yellow]no candidate[/]  {escape(turn.parse_failure or '')}"
        else:
            text = f"{_styled(turn.evaluation.verdict)}  {escape(turn.evaluation.reason[:150])}".rstrip()
        err.print(f"turn {turn.index + 1}: {text}", soft_wrap=True)


def print_optimize(result: OptimizeResult, run: Path) -> None:
    """Prints the result of a search."""
    facts = result.public()
    if result.evaluation is None:
        out.print(f"[yellow]nothing found[/]: {escape(facts['stop_reason'])}")
    else:
        out.print(f"best: {_styled(result.evaluation.verdict)}  {escape(result.evaluation.reason)}".rstrip())
        out.print(f"written to {escape(str(result.path))}" if result.path else "no file was written")
        if result.evaluation.timing is None:
            out.print("speed: not measured (no GPU)")
    spent = f"{facts['turns']} turns, {facts['tokens']} tokens"
    spent += "" if facts["dollars"] is None else f", {facts['dollars']:.4f} dollars"
    out.print(f"[dim]{spent}; stopped: {STOPS.get(facts['stop_reason'], escape(facts['stop_reason']))}[/]")
    if facts["stop_reason"] == "circles":
        policy = result.trajectories[-1].policy
        out.print(f"stopped early: {escape(policy)} goes in circles, its last {REPEATS} answers repeat earlier ones")
    if result.hint:
        out.print(f"hint: {escape(result.hint)}", soft_wrap=True)
    out.print(f"[dim]more: kernelwright report {escape(str(run))} --html report.html[/]")


def opened(run: Path) -> Store:
    """Opens a run for reading. Raises `StoreError`; for the folder of a grid its hint names the runs of the shapes, for
    the folder of a training run the files with its numbers."""
    try:
        return Store.open(run, writable=False)
    except StoreError as error:
        if not (run / "run.sqlite").exists() and any((run / name).is_file() for name in TRAINING):
            there = [str(run / name) for name in SHOWN if (run / name).is_file()]
            look = f"look at {' and '.join(there)}" if there else "it has logged nothing yet"
            raise StoreError(f"{str(run)!r} holds a training run, which has no report", hint=look) from error
        shapes = grid.runs_in(run)
        if not shapes:
            raise
        words = " or ".join(str(run / shape) for shape in shapes)
        raise StoreError(
            f"{str(run)!r} holds a grid, a run for each shape", hint=f"name one of them: {words}"
        ) from error


def summary(store: Store) -> dict[str, Any]:
    """Returns a run's numbers for `report --json`."""
    bench = numbers.summarise(numbers.read(store)) if numbers.is_bench(store) else None
    return {**_summary(store), **({"bench": bench} if bench else {})}


def _summary(store: Store) -> dict[str, Any]:
    items = store.items()
    turns = store.turns()
    return {
        "meta": store.meta,
        "verdicts": store.verdict_counts(),
        "queue": store.queue_counts(),
        "no_candidate": sum(i.status == "no_candidate" for i in items),
        "bad_tasks": sum(i.status == "bad_task" for i in items),
        "rows": [
            {
                "item_id": i.item_id,
                "status": i.status,
                "verdict": i.evaluation.verdict if i.evaluation else None,
                "reason": i.evaluation.reason if i.evaluation else i.note,
                "coverage": i.evaluation.coverage.plain() if i.evaluation and i.evaluation.coverage else None,
            }
            for i in items
        ],
        "rollouts": [
            {
                "rollout": name,
                "turns": [
                    {
                        "index": t.index,
                        "verdict": t.evaluation.verdict if t.evaluation else None,
                        "reason": t.evaluation.reason if t.evaluation else t.parse_failure,
                        "tokens": t.usage.prompt_tokens + t.usage.completion_tokens,
                    }
                    for t in found
                ],
            }
            for name, found in turns.items()
        ],
    }


def print_run(store: Store) -> None:
    """Prints a run as tables."""
    if numbers.is_bench(store):
        tables.print_summary(numbers.summarise(numbers.read(store)), out)
        return
    items, turns = store.items(), store.turns()
    if items:
        table, room = _table((i.item_id for i in items), "row", "verdict", "declared", "reason", "seconds")
        for item in items:
            if item.evaluation is None:
                table.add_row(escape(item.item_id), f"[dim]{item.status}[/]", "", _cut(item.note, room), "")
            else:
                e = item.evaluation
                seconds = f"{e.seconds.total:.2f}"
                compared = e.coverage.values if e.coverage and e.verdict == "correct" else ""
                table.add_row(escape(item.item_id), _styled(e.verdict), compared, _cut(e.reason, room), seconds)
        out.print(table)
    for name, found in turns.items():
        out.print(escape(name), style="bold")
        table, room = _table((), "turn", "verdict", "reason")
        for turn in found:
            verdict = _styled(turn.evaluation.verdict) if turn.evaluation else "[yellow]no candidate[/]"
            reason = turn.evaluation.reason if turn.evaluation else turn.parse_failure or ""
            table.add_row(str(turn.index + 1), verdict, _cut(reason, room))
        out.print(table)
    if not items and not turns:
        for evaluation in store.evaluations():
            out.print(f"{escape(evaluation.task_id)}  {_styled(evaluation.verdict)}  {escape(evaluation.reason[:100])}")
    out.print(_counts(store.verdict_counts()))
    if any(item.evaluation is not None and item.evaluation.environment.protocol for item in items):
        out.print(_CLAIMED, soft_wrap=True)
    queue = {state: count for state, count in store.queue_counts().items() if state != "done"}
    if queue:
        out.print(f"in the queue: {', '.join(f'{count} {state}' for state, count in sorted(queue.items()))}")


def _table(names: Iterable[str], *columns: str) -> tuple[Table, int]:
    """Returns a table whose first column holds `names`, and the characters left for a text column without wrapping."""
    table = Table(box=None, header_style="dim")
    for name in columns:
        table.add_column(name, no_wrap=True)
    return table, max(20, out.width - max((len(n) for n in names), default=0) - 42)


def _cut(text: str, room: int) -> str:
    return escape(text if len(text) <= room else text[: room - 1] + "…")


def print_tasks(tasks: list[Task]) -> None:
    """Prints a suite as a table."""
    table, room = _table((t.task_id for t in tasks), "task", "rule", "description")
    for task in tasks:
        table.add_row(escape(task.task_id), task.policy, _cut(task.description, room))
    out.print(table)


def plan_facts(task: Task, plan: TaskPlan) -> dict[str, Any]:
    """Returns a task's workloads and distributions for `tasks show --json`."""
    return {
        "task_id": task.task_id,
        "ok": True,
        "policy": task.policy,
        "workloads": [w.model_dump(mode="json") for w in plan.workloads],
        "declared": plan.declared.model_dump(mode="json") if plan.declared else None,
        "distributions": list(plan.distributions),
        "notes": list(plan.notes),
    }


def print_plan(task: Task, plan: TaskPlan) -> None:
    """Prints a task with its workloads and distributions."""
    out.print(escape(task.source.strip()), style="dim")
    table = Table("workload", "scope", "constants", "elements", "FLOPs", box=None, header_style="dim")
    for w in [*plan.workloads, *([plan.declared] if plan.declared else [])]:
        sizes = sizes_in_words(task.source, w.constants) if w.constants else "as written"
        table.add_row(w.name, w.scope, escape(sizes), f"{w.elements:,}", f"{w.flops:,}")
    out.print(table)
    out.print(f"values: {', '.join(plan.distributions)}")
    for note in plan.notes:
        out.print(f"[dim]note: {escape(note)}[/]")
