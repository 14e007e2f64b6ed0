"""Ctrl-C at several moments of real commands: the last counts are right, and the same command loses nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from policies.server import serving
from test_suitebench import ANSWER, TASK, fenced, right, wrong

from kernelwright.bench import numbers
from kernelwright.runs.store import Store

ENDED = (130, -signal.SIGINT)
"""A shell reports both as 130. CPython ends by the signal where the interrupt met it inside `exec` of a text."""
STOPPED = re.compile(r"of (\d+) (\w+) (\d+) finished, (\d+) in flight, (\d+) not started")


def interrupted(words: list[str], seen: Callable[[list[str]], bool]) -> str:
    """Runs a command until `seen` holds for its lines on stderr, sends SIGINT, and returns all that stderr holds."""
    command = [sys.executable, "-m", "kernelwright", *words]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    lines: list[str] = []
    while not seen(lines):
        line = child.stderr.readline()
        assert line, f"ended too early: {lines}"
        lines.append(line)
    child.send_signal(signal.SIGINT)
    rest = child.stderr.read()
    assert child.wait(60) in ENDED and "Traceback" not in rest, rest
    return "".join(lines) + rest


def counted(said: str) -> dict[str, int]:
    """Returns the counts of the line that an interrupted command ends with; checks that they add up."""
    found = STOPPED.findall(said)
    assert len(found) == 1, said
    total, _, *parts = found[0]
    finished, in_flight, left = map(int, parts)
    assert finished + in_flight + left == int(total), said
    return {"total": int(total), "finished": finished, "in_flight": in_flight, "left": left}


def finished(words: list[str]) -> str:
    done = subprocess.run([sys.executable, "-m", "kernelwright", *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("task") / "double.py"
    file.write_text(TASK.replace("FACTOR", "2"))
    return file


def turns_of(run: Path) -> int:
    with Store.open(run, writable=False) as store:
        return max((len(turns) for turns in store.turns().values()), default=0)


@pytest.mark.parametrize("after", [1, 2, 3])
def test_optimize_counts_its_turns(task: Path, tmp_path: Path, after: int) -> None:
    answers = [fenced(ANSWER.replace("FACTOR.0f + 1.0f", f"2.0f + {n}.5f")) for n in range(5)] + [right(0)]
    script = tmp_path / "answers.jsonl"
    script.write_text("".join(json.dumps({"answer": answer}) + "\n" for answer in answers))
    words = ["optimize", str(task), "--policy", f"scripted:{script}", "--run", str(tmp_path / "run"), "--seed", "1"]
    said = interrupted(words, lambda lines: sum(line.startswith("turn ") for line in lines) == after)
    counts = counted(said)
    assert counts["total"] == 6 and counts["in_flight"] == 1, said
    assert counts["finished"] == turns_of(tmp_path / "run") >= after
    with Store.open(tmp_path / "run", writable=False) as store:
        before = {e.candidate_id: e.seconds for e in store.evaluations()}
    assert json.loads(finished([*words, "--json"]))["verdict"] == "correct"
    with Store.open(tmp_path / "run", writable=False) as store:
        again = {e.candidate_id: e.seconds for e in store.evaluations()}
    assert before.items() <= again.items(), "what was judged was judged again"


def test_optimize_keeps_a_reply_on_its_way(task: Path, tmp_path: Path) -> None:
    """It may have been paid for."""
    with serving() as endpoint:
        endpoint.answer, endpoint.troubles = right(0), [2.0]
        words = ["optimize", str(task), "--policy", f"openai:m@{endpoint.url}", "--run", str(tmp_path / "run")]
        child = subprocess.Popen([sys.executable, "-m", "kernelwright", *words], stderr=subprocess.PIPE, text=True)
        while not endpoint.requests and child.poll() is None:
            time.sleep(0.02)
        child.send_signal(signal.SIGINT)
        said = child.communicate(timeout=60)[1]
        assert child.returncode in ENDED and counted(said) == {"total": 6, "finished": 0, "in_flight": 1, "left": 5}
        finished(words)
        assert len(endpoint.requests) == 1


@pytest.mark.parametrize("moment", [0.0, 0.3, 0.6])
def test_before_the_work_begins_there_is_no_traceback(task: Path, tmp_path: Path, moment: float) -> None:
    words = ["optimize", str(task), "--policy", "template", "--run", str(tmp_path / "run")]
    # `-c`, so that the signal can be sent as soon as the package's own code runs
    code = "import sys; print('begun', file=sys.stderr, flush=True); from kernelwright.__main__ import main; main()"
    command = [sys.executable, "-c", code, *words]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None and child.stderr.readline() == "begun\n"
    time.sleep(0.05 + moment)
    child.send_signal(signal.SIGINT)
    said = child.communicate(timeout=60)[1]
    assert child.returncode in ENDED and "Traceback" not in said, said
    assert "interrupted" in said.splitlines()[-1] or said.splitlines()[-1].startswith("hint: "), said


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("suite") / "tasks.jsonl"
    rows = [{"task_id": f"times{i + 2}", "reference": TASK.replace("FACTOR", str(i + 2))} for i in range(2)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def judged_samples(run: Path) -> int:
    with Store.open(run, writable=False) as store:
        return sum(s.verdict is not None for s in numbers.read(store).answered())


@pytest.mark.parametrize("after", [0, 1, 5])
def test_bench_counts_its_samples(suite: Path, tmp_path: Path, after: int) -> None:
    with serving() as endpoint:
        endpoint.answer = wrong(0)
        endpoint.troubles = [0.05] * 6 + [0.6] * 60
        run = tmp_path / "run"
        words = ["bench", str(suite), "--policy", f"openai:m@{endpoint.url}", "--samples", "12", "--run", str(run)]
        words += ["--trials", "2", "--backend", "cpu", "--jobs", "1"]
        asked = lambda lines: bool(endpoint.requests) and len(lines) >= after  # noqa: E731
        if after:
            said = interrupted(words, asked)
        else:
            child = subprocess.Popen([sys.executable, "-m", "kernelwright", *words], stderr=subprocess.PIPE, text=True)
            while not endpoint.requests and child.poll() is None:
                time.sleep(0.02)
            child.send_signal(signal.SIGINT)
            said = child.communicate(timeout=60)[1]
            assert child.returncode in ENDED, said
        counts = counted(said)
        assert counts["total"] == 24 and counts["finished"] >= after
        assert counts["finished"] == sum(line.startswith("wrong") or "correct" in line for line in said.splitlines())
        asked_before = len(endpoint.requests)
        with Store.open(run, writable=False) as store:
            kept = sum(len(turns) for turns in store.turns().values())
        assert kept == asked_before, "an answer on its way was lost"
        endpoint.troubles = []
        found = json.loads(finished([*words, "--json"]))
        assert found["counts"]["samples"] == 24 and len(endpoint.requests) == 24, "a sample was drawn twice"


def test_bench_counts_samples_of_earlier_sessions(suite: Path, tmp_path: Path) -> None:
    with serving() as endpoint:
        endpoint.answer = wrong(0)
        endpoint.troubles = [0.01] * 8 + [0.6] * 60
        run = tmp_path / "run"
        words = ["bench", str(suite), "--policy", f"openai:m@{endpoint.url}", "--samples", "12", "--run", str(run)]
        words += ["--trials", "2", "--backend", "cpu", "--jobs", "1"]
        first = counted(interrupted(words, lambda lines: len(lines) >= 4))
        second = counted(interrupted(words, lambda lines: len(lines) >= 1))
        assert second["finished"] >= first["finished"] >= 4


@pytest.mark.parametrize("rows", [0, 3, 40])
def test_corpus_counts_its_chunks(tmp_path: Path, rows: int) -> None:
    out = tmp_path / "corpus"
    words = ["corpus", "build", "--out", str(out), "--tasks", "96", "--seed", "4", "--families", "relu,selu,abs,exp"]
    words += ["--judge", "none", "--jobs", "2"]

    def on_disk() -> int:
        journals = [p.read_text().splitlines() for p in out.glob("work/part-*.jsonl")]
        return sum('"row":' in line for lines in journals for line in lines)

    command = [sys.executable, "-m", "kernelwright", *words]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while child.poll() is None and not (on_disk() >= rows and (out / "build.json").exists()):
        time.sleep(0.01)
    os.killpg(child.pid, signal.SIGINT)
    said = child.communicate(timeout=60)[1]
    assert child.returncode in ENDED and "Traceback" not in said, said
    if not STOPPED.search(said):
        assert rows == 0, said  # nothing had been counted yet
    else:
        counts = counted(said)
        ends = sum('"end":' in line for p in out.glob("work/part-*.jsonl") for line in p.read_text().splitlines())
        assert counts["finished"] == ends and counts["total"] == 12 and counts["in_flight"] <= 2
        kept = re.search(r"; (\d+) rows are kept", said)
        assert kept is not None and int(kept[1]) == on_disk() >= rows
    finished(words)
    assert json.loads((out / "manifest.json").read_text())["complete"]
