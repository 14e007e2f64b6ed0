"""Renders a run as one self-contained HTML file: no network, no libraries, every text of a candidate escaped.

The page shows counts by verdict and a row for each candidate, which can be searched and filtered. A row holds the
candidate's code with the lines of findings marked, compiler output, errors by workload, kernels that ran, and the turns
of a search. Style and script are package data (`data/page/`), inlined unchanged.
"""

from __future__ import annotations

import datetime
import html
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from kernelwright.bench import numbers, tables
from kernelwright.records import VERDICTS, Candidate, Environment, Evaluation, Launch, Turn, WorkloadResult
from kernelwright.runs.folders import write_text
from kernelwright.runs.store import Store
from kernelwright.untrusted import visible


def write(store: Store, path: Path) -> None:
    """Writes the page of a run; raises `StoreError` when the file cannot be written."""
    write_text(path, render(store))


def render(store: Store) -> str:
    """Returns the page's HTML."""
    items, rollouts, meta = store.items(), store.turns(), store.meta
    sections: list[str] = []
    counts: Counter[str] = Counter()
    shown: list[Evaluation] = []
    for item in items:
        verdict: str = item.evaluation.verdict if item.evaluation else item.status
        counts[verdict] += 1
        sections.append(_row(store, item.item_id, verdict, item.evaluation, item.note))
        shown += [item.evaluation] if item.evaluation else []
    for name, turns in rollouts.items():
        sections.append(f"<h2>{_e(name)}</h2>")
        for turn in turns:
            verdict = turn.evaluation.verdict if turn.evaluation else "no_candidate"
            counts[verdict] += 1
            sections.append(_turn(store, turn, verdict))
            shown += [turn.evaluation] if turn.evaluation else []
    if not items and not rollouts:
        for evaluation in store.evaluations():
            counts[evaluation.verdict] += 1
            sections.append(_row(store, evaluation.task_id, evaluation.verdict, evaluation, ""))
            shown.append(evaluation)
    style, script = (resources.files("kernelwright") / "data" / "page" / n for n in ("style.css", "script.js"))
    name = _e(store.folder.resolve().name)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Kernelwright: {name}</title>\n'
        f'<meta name="viewport" content="width=device-width"><style>\n{style.read_text()}</style></head>\n'
        f"<body><h1>Run {name}</h1>{_head(meta, shown)}{_bench(store)}{_counts(counts)}"
        '<input type="search" placeholder="Search names, reasons, code" aria-label="Search">'
        f'<p class="dim" id="shown"></p>\n{"".join(sections)}<script>\n{script.read_text()}</script></body></html>\n'
    )


def _bench(store: Store) -> str:
    """Returns the tables of a bench run as HTML; empty for another run."""
    return tables.section(numbers.summarise(numbers.read(store))) if numbers.is_bench(store) else ""


def _e(value: Any) -> str:
    return html.escape(visible(str(value)), quote=True)


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    body = "".join("<tr>" + "".join(f"<td>{_e(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{''.join(f'<th>{_e(h)}</th>' for h in head)}</tr>{body}</table>"


def _head(meta: dict[str, Any], evaluations: Sequence[Evaluation]) -> str:
    """Returns the run's start, its settings and the environments in which its candidates were judged, as HTML."""
    began = datetime.datetime.fromtimestamp(float(meta.get("created", 0)), datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    facts = {k: v for k, v in meta.items() if k != "created"}
    facts["sandbox"] = sorted({e.sandbox for e in evaluations})
    shared = [", ".join(f"{k} {_short(v)}" for k, v in _of_machine(e.environment).items()) for e in evaluations]
    facts["environment"] = sorted(set(shared))
    rows = [(k, v if isinstance(v, str) else json.dumps(v, ensure_ascii=False)) for k, v in facts.items()]
    return f'<details class="dim"><summary>begun {began}</summary>{_table(("setting", "value"), rows)}</details>'


def _of_machine(environment: Environment) -> dict[str, Any]:
    """Returns the facts that do not differ by candidate alone."""
    return environment.model_dump(mode="json", exclude={"kernelbench"})


def _short(fact: Any) -> str:
    if isinstance(fact, dict):
        return " ".join(f"{k} {v}" for k, v in fact.items())
    return "+".join(map(str, fact)) if isinstance(fact, list) else str(fact)


def _counts(counts: Counter[str]) -> str:
    order = [v for v in (*VERDICTS, *sorted(set(counts) - set(VERDICTS))) if counts[v]]
    bar = "".join(f'<i class="v {_e(v)}" style="flex:{counts[v]}"></i>' for v in order)
    buttons = "".join(
        f'<button data-verdict="{_e(v)}"><span class="v {_e(v)}">{_e(v)}</span> {counts[v]}</button>' for v in order
    )
    return f'<div class="bar">{bar}</div><div class="counts">{buttons}</div>'


def _row(store: Store, name: str, verdict: str, evaluation: Evaluation | None, note: str) -> str:
    if evaluation is None:
        return _details(name, verdict, note, "", "", "")
    body = _evidence(evaluation) + _code(store.candidate(evaluation.candidate_id), evaluation)
    seconds = f"{evaluation.seconds.total:.2f} s"
    return _details(name, verdict, evaluation.reason, seconds, body, evaluation.candidate_id)


def _details(name: str, verdict: str, reason: str, right: str, body: str, candidate_id: str) -> str:
    anchor = f' id="c-{_e(candidate_id[:12])}"' if candidate_id else ""
    return (
        f'<details class="row" data-verdict="{_e(verdict)}"{anchor}><summary><span title="{_e(name)}">{_e(name)}</span>'
        f'<span class="v {_e(verdict)}">{_e(verdict)}</span><span title="{_e(reason)}">{_e(reason)}</span>'
        f'<span>{_e(right)}</span></summary><div class="body">{body}</div></details>\n'
    )


def _turn(store: Store, turn: Turn, verdict: str) -> str:
    prompt = "\n\n".join(f"[{m.role}]\n{m.content}" for m in turn.messages)
    reason = turn.evaluation.reason if turn.evaluation else turn.parse_failure or ""
    body = _evidence(turn.evaluation) if turn.evaluation else ""
    if turn.candidate_id and turn.evaluation:
        body += _code(store.candidate(turn.candidate_id), turn.evaluation)
    body += f"<details><summary>prompt ({turn.usage.prompt_tokens} tokens)</summary><pre>{_e(prompt)}</pre></details>"
    body += (
        f"<details><summary>answer ({turn.usage.completion_tokens} tokens)</summary>"
        f"<pre>{_e(turn.answer)}</pre></details>"
    )
    seconds = f"{turn.evaluation.seconds.total:.2f} s" if turn.evaluation else ""
    return _details(f"turn {turn.index + 1}", verdict, reason, seconds, body, turn.candidate_id or "")


def _evidence(e: Evaluation) -> str:
    parts = [f"<p>{_e(e.reason)}</p>" if e.reason else ""]
    if e.findings:
        found = [(f.severity, f.rule, f.line or "", f.evidence) for f in e.findings]
        parts.append(_table(("finding", "rule", "line", "evidence"), found))
    if e.workloads:
        columns = ("workload", "inputs", "values", "largest error", "relative", "allowed", "honest", "")
        parts.append(_table(columns, [_workload(w) for w in e.workloads]))
    if e.errors is not None:
        parts.append(f"<p>{_e(e.told_errors())}</p>")
    if e.coverage:
        parts += [f"<p>{_e(line)}</p>" for line in e.coverage.told()]
    if e.launches:
        head = ("kernel", "launches", "thread instructions", "counters")
        parts.append(_table(head, [_launch(k) for k in e.launches]))
    if e.library_ops:
        parts.append(f'<p class="dim">library operators: {_e(", ".join(e.library_ops))}</p>')
    s = e.seconds
    speed = f"{e.timing.candidate_ms:.4g} ms" if e.timing else "speed not measured"
    way = (e.backend, *([f"road: {e.environment.road}"] if e.environment.road else []), e.sandbox)
    facts = (*way, f"build {s.build:.2f} s, check {s.check:.2f} s", speed, e.candidate_id[:12])
    parts.append(f'<p class="dim">{_e(" · ".join(facts))}</p>')
    if e.log:
        parts.append(f"<pre>{_e(e.log)}</pre>")
    return "".join(parts)


def _workload(w: WorkloadResult) -> tuple[Any, ...]:
    shapes = " ".join("x".join(map(str, s)) or "scalar" for s in w.shape)
    errors = [_number(x) for x in (w.max_abs_error, w.max_rel_error, w.tolerance, w.honest_error)]
    passed = f"ok, {w.forgiven} forgiven" if w.forgiven else "ok"
    return (f"{w.name} ({w.scope})", shapes, w.distribution, *errors, passed if w.passed else w.reason)


def _launch(k: Launch) -> tuple[Any, ...]:
    counters = ", ".join(f"{name} {value:,}" for name, value in k.counters.items() if value)
    return (k.kernel, k.count, f"{k.instructions:,}", counters)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2g}"


def _code(candidate: Candidate | None, evaluation: Evaluation) -> str:
    """Returns the candidate's code with line numbers. A line with a finding is marked, the finding is its title."""
    if candidate is None:
        return ""
    marked: dict[int, str] = {}
    for finding in evaluation.findings:
        if finding.line:
            marked.setdefault(finding.line, f"{finding.rule}: {finding.evidence}")
    lines = []
    for number, line in enumerate(candidate.text.splitlines(), 1):
        text = f'<span class="n">{number:4} </span>{_e(line)}'
        lines.append(f'<mark title="{_e(marked[number])}">{text}</mark>' if number in marked else text)
    return f"<pre>{chr(10).join(lines)}</pre>"
