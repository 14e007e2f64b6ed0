"""The page of a run: complete, self-contained, and harmless whatever a candidate writes."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from running import Command

from kernelwright.errors import StoreError
from kernelwright.records import (
    Candidate,
    Evaluation,
    Finding,
    Launch,
    Message,
    Seconds,
    SourceFile,
    Task,
    Turn,
    Usage,
    VerdictName,
    WorkloadResult,
)
from kernelwright.report import page, terminal
from kernelwright.runs.store import Store

HOSTILE = (
    "\x1b]0;owned\x07\x1b[2J[red]</script></pre><script>document.title='owned'</script>"
    "<img src=x onerror=\"document.title='owned'\"> '\"&"
)
BROWSER = shutil.which("chromium-headless-shell") or shutil.which("chromium") or shutil.which("google-chrome")


def evaluation(task: Task, candidate: Candidate, verdict: VerdictName, text: str = "") -> Evaluation:
    """Returns an evaluation in which every free text is `text`."""
    return Evaluation(
        task_id=task.task_id,
        task_hash=task.content_hash,
        candidate_id=candidate.content_hash,
        verdict=verdict,
        reason=text or ("" if verdict == "correct" else "because"),
        sandbox="process+landlock",
        workloads=(
            WorkloadResult(
                name="reduced-0",
                shape=((3, 5),),
                dtype=("float32",),
                max_abs_error=0.25,
                max_rel_error=1.5e-3,
                tolerance=1e-5,
                honest_error=1e-7,
                passed=verdict == "correct",
                reason=text,
            ),
        ),
        findings=(Finding(rule="data-race", evidence=text or "two threads", severity="reject", line=2),),
        launches=(Launch(kernel=text or "softmax", count=3, instructions=1234, counters={"barriers": 7}),),
        seconds=Seconds(build=0.5, check=1.5, total=2.0),
        log=text or "a compiler said this",
        environment={"python": "3.11", "note": text},
    )


def candidate_of(text: str) -> Candidate:
    return Candidate(sources=(SourceFile(path="candidate.py", content=text),), language="cuda")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Returns a run: rows that are correct, wrong, without a candidate and hostile, and a search of two turns."""
    task = Task(task_id="some task", source="x = 1")
    folder = tmp_path / "some-run"
    with Store.create(folder, {"verb": "eval", "input": HOSTILE}) as store:
        store.add_task(task)
        rows: list[tuple[str, VerdictName, str, str]] = [
            ("fine", "correct", "first line\nsecond line\n", ""),
            ("slow", "wrong", "int bad;\nrace here\nend\n", ""),
            (HOSTILE, "rejected", HOSTILE, HOSTILE),
        ]
        for index, (name, verdict, code, text) in enumerate(rows):
            candidate = candidate_of(code)
            store.add_candidate(candidate)
            store.add_evaluation(evaluation(task, candidate, verdict, text), str(index))
            store.set_item(index, name, "judged", str(index))
        store.set_item(3, "nothing", "no_candidate", note="no candidate")
        store.set_item(4, "worse", "bad_task", note=HOSTILE)
        candidate = candidate_of("answered code")
        store.add_candidate(candidate)
        messages = (Message(role="system", content="you are asked"), Message(role="user", content=HOSTILE))
        usage = Usage(prompt_tokens=11, completion_tokens=22)
        store.add_turn("roll", Turn(index=0, messages=messages, answer=HOSTILE, parse_failure="no code", usage=usage))
        judged = evaluation(task, candidate, "correct")
        store.add_turn(
            "roll",
            Turn(index=1, messages=messages, answer="ok", candidate_id=candidate.content_hash, evaluation=judged),
        )
    return folder


class Tags(HTMLParser):
    """Collects tags and attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


def rendered(run: Path) -> str:
    with Store.open(run, writable=False) as store:
        return page.render(store)


def test_page_shows_the_evidence(run: Path) -> None:
    text = rendered(run)
    for part in (
        "some-run",
        "fine",
        "slow",
        "race here",
        "data-race",
        "a compiler said this",
        "0.0015",
        "1e-05",
        "3x5",
    ):
        assert part in text, part
    for part in ("1,234", "barriers 7", "process+landlock", "build 0.50 s", "python 3.11", "turn 1", "you are asked"):
        assert part in text, part
    assert re.search(r'<mark title="data-race: two threads"><span class="n">   2 </span>race here</mark>', text)
    assert text.count('data-verdict="correct"') == 3  # a row, a turn, and the button that filters them


def test_nothing_that_a_candidate_writes_becomes_markup(run: Path) -> None:
    tags = Tags(rendered(run))
    assert tags.tags.count("script") == 1
    assert "img" not in tags.tags
    assert not [name for name, _ in tags.attributes if name.startswith("on")]


def test_page_needs_no_network(run: Path) -> None:
    text = rendered(run)
    tags = Tags(text)
    assert not {name for name, _ in tags.attributes} & {"src", "href", "srcset", "action"}
    assert not set(tags.tags) & {"link", "iframe", "object", "embed", "base"}
    ours = "".join(re.findall(r"<style>.*?</style>|<script>.*?</script>", text, re.DOTALL))
    assert len(ours) > 1000
    assert not re.search(r"url\(|@import|fetch|XMLHttpRequest|WebSocket|https?:", ours)


HEADLESS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
"""No window, no namespaces (root in a container has none), nothing that asks the network."""


def dom(path: Path, folder: Path, fragment: str = "") -> str:
    """Returns the page's elements after its scripts have run; `folder` becomes the browser's profile."""
    assert BROWSER is not None
    command = [BROWSER, *HEADLESS, f"--user-data-dir={folder}", "--dump-dom", path.as_uri() + fragment]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine")
def test_page_in_a_browser(run: Path, tmp_path: Path) -> None:
    with Store.open(run, writable=False) as store:
        page.write(store, tmp_path / "page.html")
    shown = dom(tmp_path / "page.html", tmp_path / "profile")
    assert "owned" not in re.search(r"<title>(.*?)</title>", shown)[1]  # type: ignore[index]
    assert '<p class="dim" id="shown">7 of 7</p>' in shown
    filtered = dom(tmp_path / "page.html", tmp_path / "profile", "#wrong")
    assert '<p class="dim" id="shown">1 of 7</p>' in filtered
    assert re.search(r'data-verdict="wrong" aria-pressed="true"', filtered)
    name = candidate_of("int bad;\nrace here\nend\n").content_hash[:12]
    opened = dom(tmp_path / "page.html", tmp_path / "profile", f"#c-{name}")
    assert re.search(rf'id="c-{name}" open=""', opened)


def test_report_verb(run: Path, tmp_path: Path, kernelwright: Command) -> None:
    done = kernelwright("report", run, "--html", tmp_path / "deep" / "page.html")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "deep" / "page.html").read_text().startswith("<!doctype html>")
    assert "slow" in done.stdout and "rejected" in done.stdout and "turn" in done.stdout
    assert "\x1b" not in done.stdout and "[red]" in done.stdout  # no control sequence, no markup of a candidate's own


def test_a_run_can_be_read_while_it_is_written(run: Path, kernelwright: Command) -> None:
    with Store.open(run) as store:
        store.set_item(9, "late", "no_candidate", note="no candidate")
        done = kernelwright("report", run, "--json")
    assert done.returncode == 0, done.stderr
    assert '"late"' in done.stdout


@pytest.mark.parametrize("mark", ["settings.toml", "settings.json"])
def test_a_training_runs_folder_says_where_its_numbers_are(tmp_path: Path, mark: str) -> None:
    (tmp_path / mark).write_text("")
    with pytest.raises(StoreError, match="holds a training run") as error:
        terminal.opened(tmp_path)
    assert "nothing yet" in str(error.value.hint)
    for name in ("log.jsonl", "curves.html"):
        (tmp_path / name).write_text("")
    with pytest.raises(StoreError, match="holds a training run") as error:
        terminal.opened(tmp_path)
    assert f"{tmp_path / 'curves.html'} and {tmp_path / 'log.jsonl'}" in str(error.value.hint)
