"""Prints corpora in a terminal: the progress of a build, a manifest, a row, a report. Writes no files."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from kernelwright.corpus import build
from kernelwright.corpus.shards import read_rows
from kernelwright.errors import UsageError
from kernelwright.report.terminal import err, escape, out, print_stopped, spinner

__all__ = ["BuildView", "find_row", "print_curated", "print_manifest", "print_report", "print_row", "spinner"]


LINE_SECONDS = 10.0


class BuildView:
    """Shows the progress of a build on stderr, by chunks: live on a terminal, else a line every ten seconds.

    On Ctrl-C it counts the chunks, and the rows on disk.
    """

    def __init__(self, chunks: int, folder: Path, shown: bool = True) -> None:
        self._folder = folder
        self._last: build.CorpusProgress | None = None
        self._lines = shown and not err.is_terminal
        self._said = time.monotonic()
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=err, disable=not shown or not err.is_terminal)
        self._task = self._progress.add_task("building", total=chunks)

    def show(self, progress: build.CorpusProgress) -> None:
        """Shows the build's progress."""
        self._last = progress
        verdicts = ", ".join(f"{n} {v}" for v, n in sorted(progress.verdicts.items(), key=lambda p: -p[1]))
        text = f"{progress.rows} rows, {progress.judged} judged" + (f": {verdicts}" if verdicts else "")
        self._progress.update(self._task, completed=progress.chunks, description=text)
        if self._lines and time.monotonic() - self._said > LINE_SECONDS:
            self._said = time.monotonic()
            err.print(f"{progress.chunks} of {progress.of_chunks} chunks, {text}", soft_wrap=True)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._progress.stop()
        if kind is KeyboardInterrupt and self._last is not None:
            last = self._last
            kept = f"; {last.rows} rows are kept in {self._folder}"
            print_stopped("chunks", (last.chunks, last.at_work), last.of_chunks, kept)


def print_manifest(manifest: dict[str, Any], folder: Path) -> None:
    """Prints a corpus in a few lines and a table by family."""
    state = "" if manifest["complete"] else " [yellow](not complete: the same `corpus build` continues)[/]"
    out.print(f"{escape(str(folder))}: {manifest['tasks']} tasks, {manifest['rows']} rows{state}", soft_wrap=True)
    judged, share = manifest["judged"], manifest["judged_share"]
    verdicts = ", ".join(f"{n} {v}" for v, n in sorted(manifest["verdicts"].items(), key=lambda p: -p[1]))
    out.print(f"judged {judged} ({share:.1%})" + (f": {verdicts}" if verdicts else ""), soft_wrap=True)
    if manifest["right_but_not_correct"]:
        out.print(f"[yellow]{manifest['right_but_not_correct']} meant to be right were not judged correct[/]")
    removed = manifest["decontamination"]
    against = ", ".join(removed["against"]) or "no suite"
    out.print(f"kept away from {escape(against)}: {removed['removed']} tasks removed", soft_wrap=True)
    if manifest["skipped"]:
        out.print("without a row: " + ", ".join(f"{n} {why}" for why, n in manifest["skipped"].items()))
    out.print(f"[dim]{escape(manifest['judging']['note'])}[/]", soft_wrap=True)
    names = ("tasks", "rows", "judged", "correct", "unreadable", "contaminated")
    table = Table("family", *names, box=None, header_style="dim")
    for family, counts in manifest["families"].items():
        table.add_row(escape(family), *(str(counts.get(n, 0) or "") for n in names))
    out.print(table)


def find_row(folder: Path, manifest: dict[str, Any], wanted: str) -> dict[str, Any]:
    """Returns a row by its name or its number. Raises `UsageError` where there is none."""
    for number, row in enumerate(read_rows(folder, manifest)):
        if wanted in (row["row_id"], str(number)):
            return row
    raise UsageError(f"{str(folder)!r} has no row {wanted!r}", hint=f"it has rows 0 to {manifest['rows'] - 1}")


def print_row(row: dict[str, Any]) -> None:
    """Prints one row."""
    verdict = f"{row['verdict']} ({row['backend']})" if row["judged"] else "not judged"
    made = "right by construction" if row["right"] else f"made wrong on purpose: {row['mistake']}"
    head = f"{row['row_id']}  {row['family']}  {row['schedule']}  {verdict}; {made}"
    out.print(escape(head), soft_wrap=True)
    for name in ("reference", "trace", "answer", "reason"):
        if row[name]:
            out.print(f"[dim]--- {name}[/]")
            out.print(escape(row[name]), soft_wrap=True)


def print_report(found: dict[str, Any]) -> None:
    """Prints the tasks that decontamination removed, by rule and by family."""
    against = ", ".join(f"{name} ({n} tasks)" for name, n in found["against"].items())
    rules = ", ".join(f"{n} by {rule}" for rule, n in found["by_rule"].items())
    out.print(f"{found['tasks']} tasks against {escape(against)}: {found['removed']} removed, {found['kept']} stay")
    if found["removed"]:
        out.print(f"rules (a task may fall under several): {rules}")
        single = found["one_operator"]
        out.print(
            f"{single['removed']} of {single['tasks']} tasks of one operator were removed, "
            f"{single['removed_by_ast_only']} by the AST rule alone: such tasks are alike whoever writes them"
            " (--one-operator keep spares those).",
            soft_wrap=True,
        )
    table = Table("family", "tasks", "removed", box=None, header_style="dim")
    for family, counts in found["by_family"].items():
        table.add_row(escape(family or "-"), str(counts["tasks"]), str(counts["removed"] or ""))
    out.print(table)
    nearest = Table("task", "rules", "nearest", "ast", "jaccard", box=None, header_style="dim")
    for row in found["rows"][:20]:
        scores = f"{row['ast']:.3f}", f"{row['jaccard']:.3f}"
        nearest.add_row(escape(row["task_id"]), ",".join(row["reasons"]), escape(row["nearest"]), *scores)
    if found["rows"]:
        out.print(nearest)
    if len(found["rows"]) > 20:
        out.print(f"[dim]and {len(found['rows']) - 20} more: --report FILE has all[/]")


def print_curated(manifest: dict[str, Any], folder: Path) -> None:
    """Prints a curated data set in a few lines."""
    rules = ", ".join(f"{n} {why}" for why, n in manifest["rules"].items())
    out.print(
        f"{escape(str(folder))}: {manifest['rows']} rows over {manifest['tasks']} tasks ({rules})", soft_wrap=True
    )
    left = ", ".join(f"{n} {why}" for why, n in manifest["left_out"].items())
    if left:
        out.print(f"left out: {left}", soft_wrap=True)
    removed = manifest["decontamination"]
    against = ", ".join(removed["against"]) or "no suite"
    out.print(
        f"{manifest['doubles']} doubles; kept away from {escape(against)}: {removed['removed']} tasks removed",
        soft_wrap=True,
    )
