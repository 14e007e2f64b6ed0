"""The terminal view of a reinforcement-learning run: a table of the last steps, or one line per step."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.live import Live as LiveTable
from rich.table import Table

from kernelwright.report.terminal import stopped_line
from kernelwright.training.pretrain.progress import Live
from kernelwright.training.rl.rollouts import Standing
from kernelwright.untrusted import visible

Row = Mapping[str, Any]
STEPS = 10
"""The number of steps in the table."""


def _share(name: str) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        value = row.get(name)
        return "" if value is None else f"{value:.0%}"

    return cell


def _reward(row: Row) -> str:
    return "none" if row["reward"] is None else f"{row['reward']:.3f}"


COLUMNS: dict[str, Callable[[Row], str]] = {
    "reward": _reward,
    "parts": lambda row: " ".join("none" if value is None else f"{value:.2f}" for value in row["parts"].values()),
    "correct": _share("correct"),
    "fast_1": _share("fast_1"),
    "hacked": _share("hacked"),
    "tokens": lambda row: f"{row['length']:.0f}",
    "cut": _share("cut"),
    "no code": _share("unreadable"),
    "no judge": _share("judge_failed_share"),
    "MRS": _share("mismatch_rejected"),
    "PRS": _share("profiling_rejected"),
    "s": lambda row: f"{row['step_s']:.0f}",
}
"""The table's columns after the step; columns empty in all rows are left out. `no judge`: the share of candidates
without an opinion, of those that a judge was asked about; `MRS`, `PRS`: the share of rows that these filters rejected.
Names are short, so that the table fits 80 columns, with the parts wrapped if necessary."""


class StepView:
    """Shows a run's steps on stderr: a live table on a terminal, else a line every ten seconds and one at the end.

    On Ctrl-C it counts the steps, and the rollouts of the step that was stopped, by `standing`.
    """

    def __init__(
        self,
        total: int,
        shown: bool,
        console: Console | None = None,
        standing: Callable[[], Standing | None] = lambda: None,
    ) -> None:
        console = console or Console(stderr=True, highlight=False)
        self.total, self.shown, self.standing = total, shown, standing
        self.rows: deque[Row] = deque(maxlen=STEPS)
        self._told = not shown
        """True once the reason of a judge's failure was shown, or if it must not be shown."""
        whole = shown and console.is_terminal and not console.is_dumb_terminal
        self._table = LiveTable(console=console, auto_refresh=False) if whole else None
        self._line = Live(shown and not whole)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._table is not None:
            self._table.stop()
        self._line.close()
        if kind is KeyboardInterrupt and self.shown:
            print(stopped(self.standing(), self.total), file=sys.stderr, flush=True)

    def add(self, row: Row, *, last: bool = False) -> None:
        """Adds a finished step. Always shows a step with a new alarm; shows the reason of a judge's failure once."""
        new = set(row["alarms"]) - set(self.rows[-1]["alarms"] if self.rows else ())
        self.rows.append(row)
        if row.get("judge_reason") and not self._told:
            self._told = True
            self._say(
                f"the judge gave no opinion on {row['judge_failed']} of {row['judge_asked']} candidates of step "
                f"{row['step']}: {row['judge_reason']}"
            )
        if self._table is None:
            self._line.say(line(row, self.total), last=last or bool(new))
            return
        self._table.start()  # not before the first step: the table would be empty
        self._table.update(table(list(self.rows), self.total), refresh=True)

    def _say(self, text: str) -> None:
        """Prints a message, above the table if there is one, with control characters replaced."""
        text = visible(text.replace("\n", " "))
        if self._table is not None:
            self._table.console.print(text, markup=False, highlight=False)
        else:
            self._line.close()
            print(text, file=sys.stderr, flush=True)


def stopped(standing: Standing | None, total: int) -> str:
    """Returns a line on how far an interrupted run had come."""
    if standing is None:
        return "stopped before the first rollout of this session"
    text = f"stopped in step {standing.step + 1} of {total}: "
    text += stopped_line("rollouts", (standing.finished, standing.in_flight), standing.rollouts)
    if standing.finished == standing.rollouts:
        return f"{text}; they are kept, and the step's update is computed again"
    return f"{text}; finished rollouts are kept"


def table(rows: list[Row], total: int) -> Table:
    """Formats steps as a table."""
    names = sorted({name for row in rows for name in row["parts"]})
    rows = [{**row, "parts": {name: row["parts"].get(name, 0.0) for name in names}} for row in rows]
    cells = {name: [cell(row) for row in rows] for name, cell in COLUMNS.items()}
    cells = {name: column for name, column in cells.items() if any(column)}
    caption = f"step {rows[-1]['step']} of {total}" + (f"; parts: {', '.join(names)}" if names else "")
    alarmed = next((row for row in reversed(rows) if row["alarms"]), None)
    if alarmed is not None:
        caption += f"; alarms of step {alarmed['step']}: {', '.join(alarmed['alarms'])}"
    found = Table(box=None, header_style="dim", padding=(0, 1, 0, 0), caption=caption, caption_justify="left")
    for name in ("step", *cells):
        # On a narrow terminal rich shrinks only columns that wrap; numbers in other columns would be cut.
        found.add_column(name.replace("no ", "no\n"), justify="right", no_wrap=name != "parts")
    for row, *values in zip(rows, *cells.values(), strict=True):
        found.add_row(str(row["step"]), *values, style="yellow" if row["alarms"] else None)
    return found


def line(row: Row, total: int) -> str:
    """Formats a step as one line."""
    text = f"step {row['step']}/{total} · reward {_reward(row)} · correct {row['correct']:.0%} · "
    text += f"hacked {row['hacked']:.0%}"
    if row["fast_1"] is not None:
        text += f" · fast_1 {row['fast_1']:.0%}"
    if row.get("judge_failed"):
        text += f" · no opinion {row['judge_failed_share']:.0%}"
    if row.get("redrawn"):
        text += f" · {row['redrawn']} groups redrawn"
    text += f" · {row['trained_rows']:.0f} rows trained · {row['play_s']:.0f} + {row['update_s']:.0f} s"
    return text + (f" · alarm: {', '.join(row['alarms'])}" if row["alarms"] else "")
