"""A run as one self-contained HTML file: no network, no libraries, every text of a candidate escaped.

What it shows: counts by verdict, a row a candidate that can be searched and filtered, and for each its code with the
lines of findings marked, compiler output, errors by workload, kernels that ran, and the turns of a search.
"""

from __future__ import annotations

import datetime
import html
import json
from pathlib import Path
from typing import Any

from kernelwright.errors import StoreError
from kernelwright.records import VERDICTS, Candidate, Evaluation, Turn
from kernelwright.store import Store

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --bad: #d33; --good: #2a2; --note: #b80;
--far: #36c; }
* { box-sizing: border-box } body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 1100px; padding: 24px }
h1 { font-size: 22px; margin: 0 0 4px } h2 { font-size: 17px; margin: 28px 0 8px } .dim { opacity: .65 }
.counts { display: flex; flex-wrap: wrap; gap: 8px; margin: 16px 0 } .counts button { font: inherit; cursor: pointer;
border: 1px solid var(--line); background: none; color: inherit; border-radius: 8px; padding: 6px 12px }
.counts button[aria-pressed=true] { background: var(--soft); outline: 2px solid var(--far) }
input { font: inherit; width: 100%; padding: 6px 10px; border: 1px solid var(--line); border-radius: 8px;
background: none; color: inherit } details { border-bottom: 1px solid var(--line) }
summary { cursor: pointer; padding: 8px 4px; display: grid; gap: 12px;
grid-template-columns: 150px 130px 1fr 70px }
summary > * { overflow: hidden; text-overflow: ellipsis; white-space: nowrap } details[open] > summary { font-weight: 600 }
.v { font-weight: 600 } .correct { color: var(--good) } .wrong, .runtime_error, .harness_error { color: var(--bad) }
.rejected, .timeout, .compile_error, .none { color: var(--note) } .unsupported { color: var(--far) }
.body { padding: 4px 8px 20px }
pre { overflow: auto; max-height: 560px; background: var(--soft); padding: 10px;
border-radius: 8px; font: 12.5px/1.45 ui-monospace, monospace; margin: 6px 0 } pre .n { opacity: .45; user-select: none }
pre mark { background: #f502; color: inherit; display: inline-block; min-width: 100% }
table { border-collapse: collapse; width: 100%; margin: 6px 0 } th { text-align: left; font-weight: 500; opacity: .65 }
td, th { padding: 3px 10px 3px 0; border-bottom: 1px solid var(--line); vertical-align: top }
@media (max-width: 700px) { summary { grid-template-columns: 1fr 110px } summary > :nth-child(n+3) { display: none } }
"""

_SCRIPT = """
const rows = [...document.querySelectorAll('details.row')], search = document.querySelector('input');
let verdict = location.hash.slice(1);
function show() {
  const text = search.value.toLowerCase(); let shown = 0;
  for (const row of rows) {
    const hit = (!verdict || row.dataset.verdict === verdict) && row.textContent.toLowerCase().includes(text);
    row.hidden = !hit; shown += hit;
  }
  document.querySelector('#shown').textContent = shown + ' of ' + rows.length;
  for (const b of document.querySelectorAll('.counts button'))
    b.setAttribute('aria-pressed', b.dataset.verdict === verdict);
}
search.addEventListener('input', show);
for (const b of document.querySelectorAll('.counts button')) b.addEventListener('click', () => {
  verdict = verdict === b.dataset.verdict ? '' : b.dataset.verdict;
  history.replaceState(null, '', '#' + verdict); show();
});
show();
"""


def write(store: Store, path: Path) -> None:
    """Writes the page of a run; raises `StoreError` when the file cannot be written."""
    text = render(store)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise StoreError(f"{str(path)!r} cannot be written: {error.strerror}", hint="name another file") from error


def render(store: Store) -> str:
    """The page's text."""
    items, rollouts, meta = store.items(), store.turns(), store.meta
    sections: list[str] = []
    counts: dict[str, int] = {}
    for item in items:
        verdict = item.evaluation.verdict if item.evaluation else item.status
        counts[verdict] = counts.get(verdict, 0) + 1
        sections.append(_row(store, item.item_id, verdict, item.evaluation, item.note))
    for name, turns in rollouts.items():
        sections.append(f"<h2>{_e(name)}</h2>")
        for turn in turns:
            verdict = turn.evaluation.verdict if turn.evaluation else "none"
            counts[verdict] = counts.get(verdict, 0) + 1
            sections.append(_turn(store, turn, verdict))
    if not items and not rollouts:
        for evaluation in store.evaluations():
            counts[evaluation.verdict] = counts.get(evaluation.verdict, 0) + 1
            sections.append(_row(store, evaluation.task_id, evaluation.verdict, evaluation, ""))
    order = [*VERDICTS, *sorted(set(counts) - set(VERDICTS))]
    buttons = "".join(
        f'<button data-verdict="{_e(v)}"><span class="v {_e(v)}">{_e(v)}</span> {counts[v]}</button>'
        for v in order
        if counts.get(v)
    )
    began = datetime.datetime.fromtimestamp(float(meta.get("created", 0)), datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    known = {k: v for k, v in meta.items() if k not in ("created", "options")}
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Kernelwright run {_e(store.folder.name)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
        f"<h1>Run {_e(store.folder.name)}</h1><div class=dim>begun {began} · {_e(json.dumps(known))}</div>"
        f'<div class="counts">{buttons}</div><input type="search" placeholder="Search names, reasons, code" '
        f'aria-label="Search"> <div class="dim" id="shown"></div>{"".join(sections)}<script>{_SCRIPT}</script></html>\n'
    )


def _e(value: Any) -> str:
    return html.escape(str(value), quote=True)


def _row(store: Store, name: str, verdict: str, evaluation: Evaluation | None, note: str) -> str:
    reason = evaluation.reason if evaluation else note
    seconds = f"{evaluation.seconds.total:.2f} s" if evaluation else ""
    body = ""
    if evaluation is not None:
        body = _evidence(evaluation) + _code(store.candidate(evaluation.candidate_id), evaluation)
    return (
        f'<details class="row" data-verdict="{_e(verdict)}"><summary><span>{_e(name)}</span>'
        f'<span class="v {_e(verdict)}">{_e(verdict)}</span><span>{_e(reason)}</span><span>{seconds}</span></summary>'
        f'<div class="body">{body}</div></details>'
    )


def _turn(store: Store, turn: Turn, verdict: str) -> str:
    prompt = "\n\n".join(f"[{m.role}]\n{m.content}" for m in turn.messages)
    reason = turn.evaluation.reason if turn.evaluation else turn.parse_failure or ""
    body = _evidence(turn.evaluation) if turn.evaluation else ""
    if turn.candidate_id and turn.evaluation:
        body += _code(store.candidate(turn.candidate_id), turn.evaluation)
    usage = turn.usage
    return (
        f'<details class="row" data-verdict="{_e(verdict)}"><summary><span>turn {turn.index + 1}</span>'
        f'<span class="v {_e(verdict)}">{_e(verdict)}</span><span>{_e(reason)}</span><span></span></summary>'
        f'<div class="body"><div class="dim">{usage.prompt_tokens} + {usage.completion_tokens} tokens</div>{body}'
        f"<details><summary>prompt</summary><pre>{_e(prompt)}</pre></details>"
        f"<details><summary>answer</summary><pre>{_e(turn.answer)}</pre></details></div></details>"
    )


def _evidence(e: Evaluation) -> str:
    parts = [f"<p>{_e(e.reason)}</p>" if e.reason else ""]
    if e.findings:
        rows = "".join(
            "<tr>" + "".join(f"<td>{_e(x)}</td>" for x in (f.severity, f.rule, f.line or "", f.evidence)) + "</tr>"
            for f in e.findings
        )
        parts.append(f"<table><tr><th>finding<th>rule<th>line<th>evidence</tr>{rows}</table>")
    if e.workloads:
        rows = "".join(
            f"<tr><td>{_e(w.name)} ({w.scope})</td><td>{_e(' '.join('x'.join(map(str, s)) for s in w.shape))}</td>"
            f"<td>{_e(w.distribution)}</td><td>{_number(w.max_rel_error)}</td><td>{_number(w.tolerance)}</td>"
            f"<td>{'ok' if w.passed else _e(w.reason)}</td></tr>"
            for w in e.workloads
        )
        parts.append(f"<table><tr><th>workload<th>inputs<th>values<th>error<th>allowed<th></tr>{rows}</table>")
    if e.launches:
        rows = "".join(
            f"<tr><td>{_e(k.kernel)}</td><td>{k.count}</td><td>{k.instructions:,}</td><td>{_e(_counters(k.counters))}</td></tr>"
            for k in e.launches
        )
        parts.append(f"<table><tr><th>kernel<th>launches<th>instructions<th>counters</tr>{rows}</table>")
    s = e.seconds
    facts = f"{e.backend} · {e.sandbox} · build {s.build:.2f} s · check {s.check:.2f} s · {e.candidate_id[:12]}"
    parts.append(f'<div class="dim">{_e(facts)}</div>')
    if e.log:
        parts.append(f"<pre>{_e(e.log)}</pre>")
    return "".join(parts)


def _counters(counters: dict[str, int]) -> str:
    return ", ".join(f"{k} {v:,}" for k, v in counters.items() if v)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2g}"


def _code(candidate: Candidate | None, evaluation: Evaluation) -> str:
    if candidate is None:
        return ""
    marked = {f.line for f in evaluation.findings if f.line}
    lines = []
    for number, line in enumerate(candidate.text.splitlines(), 1):
        text = f'<span class="n">{number:4} </span>{_e(line)}'
        lines.append(f"<mark>{text}</mark>" if number in marked else text)
    return f"<pre>{chr(10).join(lines)}</pre>"
