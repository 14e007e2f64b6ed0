"""Tables of a bench run for the terminal and for the HTML page. `bench.numbers` computes the numbers."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from typing import Any

from rich import markup
from rich.console import Console
from rich.table import Table

from kernelwright.untrusted import visible

Row = tuple[str, ...]
_INTERVALS = "intervals: 95 % over tasks: Wilson's for shares, bootstrap for speedups"
_PAIRED = (
    "p exact: sign test (McNemar's where each task has one sample); p Holm: the same, for all rows as one family; "
    "p bootstrap: from 8 tasks on; intervals: Newcombe's for shares, paired bootstrap for speedups"
)
SHOWN_KS = (1, 2, 3, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100)


def cell(estimate: dict[str, Any] | None, percent: bool = True) -> str:
    """Formats an estimate with its interval, `72.5 % (62.5 to 82.5)`, or `-`."""
    if estimate is None:
        return "-"
    scale, digits = (100.0, 1) if percent else (1.0, 3)
    value, low, high = (f"{estimate[name] * scale:.{digits}f}" for name in ("value", "low", "high"))
    return f"{value}{' %' if percent else ''} ({low} to {high})"


def tables(summary: dict[str, Any]) -> Iterator[tuple[str, Row, list[Row]]]:
    """Yields the title, head and rows of each table."""
    yield "solved", ("", "estimate", "tasks"), list(_solved(summary))
    if summary["speedup"]["eager"] or summary["speedup"]["compile"]:
        yield "against PyTorch", ("", "eager", "compile"), list(_speed(summary))
    if summary["families"]:
        yield "by family", _FAMILY_HEAD, [_family(name, facts) for name, facts in summary["families"].items()]
    yield "samples", ("what became of them", "count"), list(_counts(summary))
    yield "cost", ("", ""), list(_cost(summary["cost"]))


def _solved(summary: dict[str, Any]) -> Iterator[Row]:
    greedy = summary["greedy"]
    if greedy:
        for name in ("compiled", "correct"):
            yield f"{name}, greedy", cell(greedy[name]), str(greedy[name]["tasks"])
    shown = [k for k in summary["correct"] if int(k) in SHOWN_KS or k == list(summary["correct"])[-1]]
    for name, word in (("compiled", "compiled"), ("correct", "pass")):
        for k in shown if name == "correct" else [k for k in shown if k in (shown[0], shown[-1])]:
            found = summary[name][k]
            yield f"{word}@{k}", cell(found), str(found["tasks"]) if found else "0"


def _speed(summary: dict[str, Any]) -> Iterator[Row]:
    sides = [summary["fast"][name] for name in ("eager", "compile")]
    first = next(side for side in sides if side)
    for p, by_k in first.items():
        for k in by_k:
            yield f"fast_{p}@{k}", *(cell(side[p].get(k)) if side else "-" for side in sides)
    for name in ("geomean", "median"):
        means = [summary["speedup"][side] for side in ("eager", "compile")]
        yield f"{name} speedup of right ones", *(cell(m[name], percent=False) if m else "-" for m in means)


_FAMILY_HEAD = ("family", "tasks", "greedy", "solved", "pass@1", "pass@most", "fast_1@1 eager", "geomean")


def _family(name: str, facts: dict[str, Any]) -> Row:
    ks = list(facts["correct"])
    fast, speed, greedy = facts["fast"]["eager"], facts["speedup"]["eager"], facts["greedy"]
    return (
        name,
        str(facts["tasks"]),
        str(greedy["solved"]) if greedy else "-",
        str(facts["solved"]),
        _short(facts["correct"].get("1")),
        _short(facts["correct"][ks[-1]]) if ks else "-",
        _short(fast["1"].get("1")) if fast else "-",
        f"{speed['geomean']['value']:.3f}" if speed else "-",
    )


def _short(estimate: dict[str, Any] | None) -> str:
    return "-" if estimate is None else f"{100 * estimate['value']:.1f} %"


def _counts(summary: dict[str, Any]) -> Iterator[Row]:
    counts = summary["counts"]
    for name, count in summary["verdicts"].items():
        yield name, str(count)
    for name, words in (
        ("no_answer", "not counted: the policy gave no answer"),
        ("harness_errors", "not counted: a fault of the harness"),
        ("pending", "not counted: not judged yet"),
    ):
        if counts[name]:
            yield words, str(counts[name])
    left = counts["tasks"] - counts["judged_tasks"]
    yield "tasks with a sample that counts", f"{counts['judged_tasks']} of {counts['tasks']}"
    if left and counts["bad_tasks"]:
        yield "tasks that cannot be judged", str(counts["bad_tasks"])


def _cost(cost: dict[str, Any]) -> Iterator[Row]:
    yield "tokens", f"{cost['prompt_tokens']} in, {cost['completion_tokens']} out"
    seconds = [f"{cost[name]:.1f} {words}" for name, words in _SECONDS]
    yield "seconds", ", ".join(seconds)
    yield "dollars", "not known" if cost["dollars"] is None else f"{cost['dollars']:.4f}"


_SECONDS = (("policy_seconds", "of the policy"), ("judge_seconds", "of judging"), ("wall_seconds", "by the clock"))


def print_summary(summary: dict[str, Any], out: Console) -> None:
    """Prints all tables."""
    settings = summary["settings"]
    out.print(f"[bold]{escape(str(settings.get('suite')))}[/] · {escape(str(settings.get('policy')))}", soft_wrap=True)
    for title, head, rows in tables(summary):
        _print(out, title, head, rows)
    out.print(f"[dim]{_INTERVALS}[/]")


def _print(out: Console, title: str, head: Row, rows: Sequence[Row]) -> None:
    table = Table(box=None, header_style="dim", title=title, title_justify="left", title_style="bold")
    for position, name in enumerate(head):
        table.add_column(name, no_wrap=True, justify="left" if position == 0 else "right")
    for row in rows:
        table.add_row(*(escape(_plain(c)) for c in row))
    out.print(table)


def _plain(text: str) -> str:
    return visible(text.replace("\n", " "))


def escape(text: str) -> str:
    """Escapes untrusted text for a console of rich."""
    return markup.escape(visible(text))


def section(summary: dict[str, Any]) -> str:
    """Returns the tables as HTML."""
    parts = []
    for title, head, rows in tables(summary):
        cells = "".join(f"<th>{html.escape(_plain(c))}</th>" for c in head)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(_plain(c))}</td>" for c in row) + "</tr>" for row in rows)
        parts.append(f"<h2>{html.escape(title)}</h2><table><tr>{cells}</tr>{body}</table>")
    return f'<section class="bench">{"".join(parts)}<p class="dim">{_INTERVALS}</p></section>'


def print_comparison(found: dict[str, Any], names: tuple[str, str], out: Console) -> None:
    """Prints two runs side by side. Their names stand above the table: paths would make its columns too wide."""
    for letter, name in zip("AB", names, strict=True):
        out.print(f"{letter}: {escape(name)}", soft_wrap=True)
    if not found["common_tasks"]:
        out.print("[yellow]no task in both[/]: nothing is compared")
        return
    rows = []
    for name, row in found["rows"].items():
        percent = not name.startswith("log")
        scale, unit = (100.0, " %") if percent else (1.0, "")
        values = [f"{row[side] * scale:.1f}{unit}" if percent else f"{row[side]:.3f}" for side in ("first", "second")]
        interval = {"value": row["difference"], "low": row["low"], "high": row["high"]}
        better = f"{row['first_only']} : {row['second_only']}"
        p_values = [f"{row['p_exact']:.3g}", f"{row['p_holm']:.3g}"]
        p_values.append("-" if row["p_bootstrap"] is None else f"{row['p_bootstrap']:.3g}")
        rows.append((name, str(row["tasks"]), *values, cell(interval, percent), better, *p_values))
    head = ("", "tasks", "A", "B", "difference B - A", "A : B better", "p exact", "p Holm", "p bootstrap")
    _print(out, f"{found['common_tasks']} tasks in both", head, rows)
    for side, letter in (("only_in_first", "A"), ("only_in_second", "B")):
        if found[side]:
            out.print(f"{found[side]} tasks only in {letter}: left out")
    for name, (a, b) in found["differences"].items():
        out.print(f"[yellow]differs[/] {escape(name)}: {escape(str(a))} and {escape(str(b))}", soft_wrap=True)
    out.print(f"[dim]{_PAIRED}[/]")


def print_grid(found: dict[str, dict[str, Any]], out: Console) -> None:
    """Prints the shapes of one budget, one per row."""
    beside = sorted({facts["baseline"] for facts in found.values()} - {"eager"})
    fast, speed = (name + "".join(f" ({b})" for b in beside) for name in ("best fast_1", "best speedup"))
    head = ("samples x turns", "answers", "best correct", "mean correct", "last turn", fast, speed)
    rows = [
        (
            name,
            str(facts["answers"]),
            *(cell(facts[key]) for key in ("best_correct", "avg_correct", "last_correct", "best_fast_1")),
            cell(facts["best_speedup"], percent=False),
        )
        for name, facts in found.items()
    ]
    _print(out, "test-time scaling at equal budget", head, rows)
    out.print("[dim]best: over all answers to a task; speedup 0 where none is correct[/]")
    out.print(f"[dim]{_INTERVALS}[/]")
    if short := [f"{name} {facts['missing']}" for name, facts in found.items() if facts["missing"]]:
        out.print(f"[yellow]not at equal budget: samples that do not count: {escape(', '.join(short))}[/]")
