"""Bench end to end: real judging of scripted and served answers, kills, resuming, numbers, comparison."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from policies.server import serving
from rich.console import Console
from running import Command

from kernelwright.bench import numbers, tables
from kernelwright.bench.grid import baseline_of, measure, parse_grid
from kernelwright.errors import ConfigError
from kernelwright.records import Evaluation as Verdict
from kernelwright.records import Seconds, Task, Timing, Turn, WorkloadResult
from kernelwright.runs.store import Store

TASK = """
import torch
import torch.nn as nn

rows = 16

class Model(nn.Module):
    def forward(self, x):
        return x * FACTOR + 1

def get_inputs():
    return [torch.randn(rows, 64)]

def get_init_inputs():
    return []
"""
ANSWER = '''
import torch
import torch.nn as nn
from kernelwright.cuda import Module

module = Module(r"""
extern "C" __global__ void k(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * FACTOR.0f + 1.0f;
}
""")

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        module.k[(x.numel() + 127) // 128, 128](x, y, x.numel())
        return y
'''
NAMES = ("double", "triple", "quadruple", "fivefold")


def fenced(text: str) -> str:
    return f"Here it is:\n```python\n{text}\n```\n"


def right(index: int) -> str:
    return fenced(ANSWER.replace("FACTOR", str(index + 2)))


def wrong(index: int) -> str:
    return right(index).replace("+ 1.0f", "+ 1.5f")


def broken(index: int) -> str:
    return right(index).replace("int i", "itn i")


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns four tasks of two families, one of which cannot run."""
    file = tmp_path_factory.mktemp("suite") / "tasks.jsonl"
    rows = [
        {"task_id": name, "family": "small" if i < 2 else "large", "reference": TASK.replace("FACTOR", str(i + 2))}
        for i, name in enumerate(NAMES)
    ]
    rows.append({"task_id": "faulty", "family": "large", "reference": TASK.replace("FACTOR", "undefined_name")})
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def script(path: Path, answers: dict[str, list[str]]) -> str:
    """Returns the answers by task, one per sample (seed)."""
    rows = [
        {"task_id": task, "turn": 0, "seed": seed, "answer": answer}
        for task, every in answers.items()
        for seed, answer in enumerate(every)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"scripted:{path}"


ANSWERS = {
    "double": [right(0), wrong(0), right(0) + " "],
    "triple": [wrong(1), broken(1), "no code at all"],
    "quadruple": [right(2), right(2), right(2)],
    "fivefold": [wrong(3)],
    "faulty": [right(0)] * 3,
}
COMMON = ("--backend", "cpu", "--trials", "2", "--jobs", "2")


def bench(kernelwright: Command, *words: Any) -> dict[str, Any]:
    done = kernelwright("bench", *words, *COMMON, "--json", timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def run(kernelwright: Command, suite: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("runs") / "first"
    policy = script(folder.parent / "answers.jsonl", ANSWERS)
    return folder, bench(kernelwright, suite, "--policy", policy, "--samples", 3, "--run", folder)


def test_numbers_are_those_of_the_answers(run: tuple[Path, dict[str, Any]]) -> None:
    found = run[1]
    assert found["counts"] == {
        "tasks": 5,
        "judged_tasks": 4,
        "bad_tasks": 1,
        "samples": 10,
        "no_answer": 2,
        "harness_errors": 0,
        "pending": 0,
    }
    assert found["verdicts"] == {"correct": 5, "wrong": 3, "compile_error": 1, "no_candidate": 1}
    values = {k: e["value"] for k, e in found["correct"].items()}
    # double 2 of 3, triple 0 of 3, quadruple 3 of 3, fivefold 0 of 1 (the other two were not answered).
    assert values == {"1": pytest.approx((2 / 3 + 0 + 1 + 0) / 4), "2": pytest.approx(2 / 3), "3": pytest.approx(2 / 3)}
    assert [e["tasks"] for e in found["correct"].values()] == [4, 3, 3]
    assert found["compiled"]["1"]["value"] == pytest.approx((1 + 1 / 3 + 1 + 1) / 4)
    assert found["solved"] == 2 and found["fast"] == {"eager": None, "compile": None} and found["greedy"] is None
    small, large = found["families"]["small"], found["families"]["large"]
    assert (small["tasks"], large["tasks"]) == (2, 3)
    assert small["correct"]["1"]["value"] == pytest.approx(1 / 3) and large["correct"]["1"]["value"] == 0.5
    assert found["cost"]["judge_seconds"] > 0 and found["cost"]["dollars"] is None


def test_a_finished_run_is_not_judged_again(
    kernelwright: Command, suite: Path, run: tuple[Path, dict[str, Any]]
) -> None:
    folder, before = run
    with Store.open(folder, writable=False) as store:
        evaluations = len(list(store.evaluations()))
    # Equal candidates of one task are judged once: `quadruple` has three answers, `double` two that are the same.
    assert evaluations == 6
    policy = f"scripted:{folder.parent / 'answers.jsonl'}"
    after = bench(kernelwright, suite, "--policy", policy, "--samples", 3, "--run", folder)
    with Store.open(folder, writable=False) as store:
        assert len(list(store.evaluations())) == evaluations
    for name in ("verdicts", "correct", "compiled", "counts", "families"):
        assert after[name] == before[name]


def test_other_settings_need_another_folder(
    kernelwright: Command, suite: Path, run: tuple[Path, dict[str, Any]]
) -> None:
    done = kernelwright("bench", suite, "--policy", "template", "--run", run[0], *COMMON)
    assert done.returncode == 2 and "other settings: policy was" in done.stderr and "hint:" in done.stderr


def test_the_report_and_the_page_show_it(
    kernelwright: Command, run: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    shown = kernelwright("report", run[0], "--html", tmp_path / "page.html")
    assert shown.returncode == 0, shown.stderr
    for word in ("pass@3", "66.7 %", "by family", "the policy gave no answer", "no_candidate", "4 of 5"):
        assert word in shown.stdout
    page = (tmp_path / "page.html").read_text()
    assert 'class="bench"' in page and "pass@3" in page and "quadruple" in page
    facts = json.loads(kernelwright("report", run[0], "--json").stdout)
    assert facts["bench"]["correct"]["1"] == run[1]["correct"]["1"]


def test_a_killed_run_goes_on_where_it_was(kernelwright: Command, suite: Path, tmp_path: Path) -> None:
    """An endpoint receives each request once, though the process is killed twice."""
    with serving() as endpoint:
        endpoint.answer = right(0)
        words = (suite, "--policy", f"openai:m@{endpoint.url}", "--samples", 6, "--run", tmp_path / "run", *COMMON)
        environment = {**os.environ, "KERNELWRIGHT_CONCURRENCY": "2"}
        command = [sys.executable, "-m", "kernelwright.cli", "bench", *map(str, words), "--json"]
        for wanted in (3, 12):
            before = len(endpoint.requests)
            child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
            deadline = time.monotonic() + 120
            while len(endpoint.requests) < before + wanted and child.poll() is None and time.monotonic() < deadline:
                time.sleep(0.02)
            child.send_signal(signal.SIGKILL)
            child.communicate()
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        # Only requests open at the moment of a kill (two at a time) may be repeated.
        assert found["counts"]["samples"] == 24 and len(endpoint.requests) <= 30 + 2 * 2
        asked = [(r["seed"], r["messages"][-1]["content"]) for r in endpoint.requests]
        assert len(set(asked)) == 30  # the faulty task's answers are drawn, too, before it is known to be faulty
    assert found["verdicts"]["correct"] == 6 and found["cost"]["completion_tokens"] == 24 * 20
    with Store.open(tmp_path / "run", writable=False) as store:
        keys = [e.task_id for e in store.evaluations()]
    assert sorted(keys) == sorted(set(keys)), "a candidate was judged twice"


def test_greedy_and_sampled_ones_are_told_apart(kernelwright: Command, suite: Path, tmp_path: Path) -> None:
    with serving() as endpoint:
        endpoint.answer = right(0)
        run = tmp_path / "run"
        words = [suite, "--policy", f"openai:m@{endpoint.url}", "--limit", 1, "--run", run, "--form", "load_inline"]
        words += ["--samples", 2, "--greedy", "--temperature", 0.7]
        found = bench(kernelwright, *words)
        temperatures = sorted(r["temperature"] for r in endpoint.requests)
    assert temperatures == [0.0, 0.7, 0.7]
    assert found["greedy"]["correct"]["value"] == 1.0 and found["correct"]["2"]["value"] == 1.0
    assert found["counts"]["samples"] == 3 and found["settings"]["greedy"] is True
    with Store.open(run, writable=False) as store:
        texts = {
            store.candidate(t.candidate_id).text for turns in store.turns().values() for t in turns if t.candidate_id
        }
    assert all("load_inline" in text and "kernelwright" not in text for text in texts)


def test_turns_go_on_until_it_is_right(kernelwright: Command, suite: Path, tmp_path: Path) -> None:
    rows = [{"task_id": "double", "answer": text} for text in (broken(0), wrong(0), right(0))]
    rows += [{"task_id": "triple", "answer": text} for text in (right(1), "never asked for")]
    (tmp_path / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    policy = f"scripted:{tmp_path / 'answers.jsonl'}"
    words = (suite, "--policy", policy, "--turns", 3, "--limit", 2, "--run", tmp_path / "run")
    found = bench(kernelwright, *words)
    assert found["correct"]["1"]["value"] == 1.0 and found["verdicts"] == {"correct": 2}
    with Store.open(tmp_path / "run", writable=False) as store:
        assert sorted(len(turns) for turns in store.turns().values()) == [1, 3]


def test_a_sample_that_was_not_played_to_its_end_is_no_result(
    kernelwright: Command, suite: Path, tmp_path: Path
) -> None:
    """`double` is correct in its first turn and over, `triple` has no answer in its second turn of three.

    `quadruple` has three answers, the last of which is unreadable.
    """
    rows = [{"task_id": "double", "answer": right(0)}, {"task_id": "triple", "answer": wrong(1)}]
    rows += [{"task_id": "quadruple", "answer": text} for text in (wrong(2), broken(2), "no code")]
    (tmp_path / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = (suite, "--policy", f"scripted:{tmp_path / 'answers.jsonl'}", "--limit", 3, "--run", tmp_path / "run")
    found = bench(kernelwright, *words, "--turns", 3)
    assert found["verdicts"] == {"correct": 1, "wrong": 1} and found["counts"]["judged_tasks"] == 2
    assert (found["counts"]["samples"], found["counts"]["no_answer"], found["counts"]["pending"]) == (2, 1, 0)
    assert found["correct"]["1"]["value"] == 0.5
    facts = json.loads(kernelwright("report", tmp_path / "run", "--json").stdout)
    assert facts["bench"]["counts"]["no_answer"] == 1
    done = kernelwright("bench", *words[:3], "--limit", 3, "--turns", 3, "--stop", "never", "--run", tmp_path / "all")
    assert done.returncode == 0, done.stderr
    with Store.open(tmp_path / "all", writable=False) as store:
        found = numbers.read(store)
    assert numbers.counts(found)["no_answer"] == 2, "a right answer ends no sample that is never stopped"
    assert (measure(found)["tasks"], measure(found)["answers"]) == (1, 3)


def test_a_sample_that_a_kill_ended_is_pending(tmp_path: Path) -> None:
    folder = timed_run(tmp_path / "a", {"p": [None, None], "q": [1.0, None]}, turns=2)
    with Store.open(folder) as store:
        task = Task(task_id="p", source="x = 1")
        store.add_turn(numbers.rollout_name(task, 0), Turn(index=1, messages=(), answer="a", parse_failure="no code"))
        store.add_turn(numbers.rollout_name(task, 1), Turn(index=1, messages=(), answer="not judged"))
        store.add_event("bad_task", {"name": numbers.task_name(task), "reason": "before it was judged"})
    with Store.open(folder, writable=False) as store:
        found = numbers.read(store)
    assert numbers.verdicts(found) == {"wrong": 1, "correct": 1} and numbers.counts(found)["pending"] == 2
    assert numbers.counts(found)["bad_tasks"] == 0


def test_a_grid_spends_one_budget_in_several_shapes(kernelwright: Command, suite: Path, tmp_path: Path) -> None:
    rows = [{"task_id": "double", "turn": 0, "seed": n, "answer": text} for n, text in enumerate((wrong(0), right(0)))]
    rows.append({"task_id": "double", "turn": 1, "answer": right(0)})
    (tmp_path / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = (suite, "--policy", f"scripted:{tmp_path / 'answers.jsonl'}", "--limit", 1, "--run", tmp_path / "run")
    found = bench(kernelwright, *words, "--grid", "2x1,1x2", "--context", "recent")["grid"]
    assert list(found) == ["2x1", "1x2"] and [facts["answers"] for facts in found.values()] == [2, 2]
    assert [facts["best_correct"]["value"] for facts in found.values()] == [1.0, 1.0]
    assert [facts["avg_correct"]["value"] for facts in found.values()] == [0.5, 1.0]
    with Store.open(tmp_path / "run" / "1x2", writable=False) as store:
        (turns,) = store.turns().values()
    said = [m.content for m in turns[1].messages]
    assert said[-2] == turns[0].answer and said[-1].startswith("wrong: ")  # as contexts say it
    for verb in ("report", "compare"):
        done = kernelwright(verb, *[tmp_path / "run"] * (2 if verb == "compare" else 1))
        assert done.returncode == 2 and "holds a grid" in done.stderr, done.stderr
        assert f"{tmp_path / 'run' / '1x2'} or {tmp_path / 'run' / '2x1'}" in done.stderr


def test_a_grid_says_where_a_shape_had_less_than_the_budget(kernelwright: Command, suite: Path, tmp_path: Path) -> None:
    rows = [{"task_id": "double", "turn": 0, "seed": n, "answer": wrong(n)} for n in range(2)]
    (tmp_path / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("bench", suite, "--policy", f"scripted:{tmp_path / 'answers.jsonl'}", "--limit", 1)
    words += ("--run", tmp_path / "run", "--grid", "2x1,1x2")
    done = kernelwright(*words)  # the script has no answer for the second turn
    assert done.returncode == 1 and "not at equal budget: samples that do not count: 1x2 1" in done.stdout, done.stdout
    found = json.loads(kernelwright(*words, "--json").stdout)["grid"]
    assert [(facts["missing"], facts["tasks"], facts["answers"]) for facts in found.values()] == [(0, 1, 2), (1, 0, 0)]


def test_shapes_of_a_grid() -> None:
    assert [s.name for s in parse_grid("16x1, 4x4,1x16")] == ["16x1", "4x4", "1x16"]
    for text, message in (("16x1,4x3", "4x3 is 12"), ("16", "no shape"), ("0x4", "no shape"), ("2x2,2x2", "twice")):
        with pytest.raises(ConfigError, match=message):
            parse_grid(text)


def test_a_shape_is_measured_over_all_of_its_answers(tmp_path: Path) -> None:
    folder = timed_run(tmp_path / "a", {"p": [1.0, 4.0], "q": [None, 0.5], "r": [None, None], "s": [2.0, 2.0]})
    with Store.open(folder, writable=False) as store:
        found = measure(numbers.read(store))
    values = {name: found[name]["value"] for name in ("best_correct", "avg_correct", "last_correct", "best_speedup")}
    assert values == {"best_correct": 0.75, "avg_correct": 0.625, "last_correct": 0.625, "best_speedup": 1.75}
    assert found["best_fast_1"]["value"] == 0.5 and (found["answers"], found["tasks"]) == (8, 4)


def test_a_shape_is_held_against_what_was_timed(tmp_path: Path) -> None:
    """With `--baselines compile` a grid once had no speedups."""
    folder = timed_run(tmp_path / "a", {"p": [0.5, 4.0], "q": [None, None]}, eager=None)
    with Store.open(folder, writable=False) as store:
        bench = numbers.read(store)
    asked = replace(bench, settings={**bench.settings, "options": {"baselines": ["compile"]}})
    assert measure(bench)["best_speedup"] is None and baseline_of(asked) == "compile"
    found = measure(asked)
    assert found["best_speedup"]["value"] == 1.0 and found["best_fast_1"]["value"] == 0.5
    screen = io.StringIO()
    tables.print_grid({"2x1": found}, Console(file=screen, width=200))
    assert "best fast_1 (compile)" in screen.getvalue() and "best speedup (compile)" in screen.getvalue()
    for beside in (["eager", "compile"], [], ["eager"]):
        assert baseline_of(replace(bench, settings={"options": {"baselines": beside}})) == "eager"


def test_a_dead_endpoint_ends_it_with_an_error(kernelwright: Command, suite: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "KERNELWRIGHT_RETRIES": "0", "KERNELWRIGHT_FIRST_WAIT": "0.01"}
    words = ["bench", suite, "--policy", "openai:m@http://127.0.0.1:9/v1", "--samples", 50, "--run", tmp_path / "run"]
    command = [sys.executable, "-m", "kernelwright.cli", *map(str, (*words, *COMMON))]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 1 and "gives no answer" in done.stderr and "Traceback" not in done.stderr
    with Store.open(tmp_path / "run", writable=False) as store:
        assert numbers.read(store).answered() == []


def test_ctrl_c_keeps_what_was_judged(kernelwright: Command, suite: Path, tmp_path: Path) -> None:
    with serving() as endpoint:
        endpoint.answer = right(0)
        endpoint.troubles = [0.0, 0.0, 0.0, *[1.0] * 200]
        words = (suite, "--policy", f"openai:m@{endpoint.url}", "--samples", 40, "--run", tmp_path / "run", *COMMON)
        command = [sys.executable, "-m", "kernelwright.cli", "bench", *map(str, words)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and child.poll() is None and len(endpoint.requests) < 12:
            time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=60)
        asked = len(endpoint.requests)
    assert child.returncode == 130 and "Traceback" not in errors, errors
    with Store.open(tmp_path / "run", writable=False) as store:
        kept = sum(len(turns) for turns in store.turns().values())
    assert kept >= asked - 1, "an answer on its way was lost"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nowhere",), "no suite"),
        (("starter", "--policy", "gpt"), "no policy"),
        (("starter", "--form", "x"), "--form 'x'"),
        (("starter", "--samples", "0"), "draws nothing"),
        (("starter", "--compare", "nowhere"), "nowhere"),
        (("starter", "--grid", "99999999999999999999x1"), "too large"),
        (("starter", "--grid", "1x" + "9" * 5000), "too large"),
        (("starter", "--grid", "4x1,2x2", "--samples", "8"), "--grid does not go with --samples"),
        (("starter", "--grid", "4x1,2x2", "--turns", "3"), "--grid does not go with --turns"),
        (("starter", "--grid", "4x1,2x2", "--greedy"), "leave --greedy out"),
        (("starter", "--grid", "4x1,04x1"), "name each of them once"),
        (("starter", "--top-w", "2"), "--top-w needs --context top_w"),
        (("starter", "--top-w", "2", "--context", "recent"), "--top-w needs --context top_w"),
        (("cudabench:nowhere.jsonl",), "cannot be read"),
        (("cudabench:x.jsonl:9",), "no level"),
        (("starter", "--trials", "0"), "--trials"),
        (("starter", "--speed", "11/10"), "no speed decile"),
        (("cudabench:x.jsonl", "--speed", "10/10"), "--speed is for tasks with a Python reference"),
    ],
)
def test_bad_words_are_refused_before_anything_is_made(
    kernelwright: Command, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    done = kernelwright("bench", *words, "--run", tmp_path / "run")
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert not (tmp_path / "run" / "run.sqlite").exists()


# --- numbers of runs that were timed, from records ------------------------------------------------------------------


def timed_run(folder: Path, times: dict[str, list[float | None]], turns: int = 1, eager: float | None = 2.0) -> Path:
    """Returns a run whose samples took so many ms (None: wrong) against 2 ms eager, 1 ms compiled; with first turns."""
    meta = {"verb": "bench", "suite": "s", "policy": folder.name, "seed": 0, "turns": turns, "stop": "correct"}
    with Store.create(folder, meta) as store:
        tasks = {name: Task(task_id=name, source="x = 1") for name in times}
        rows = [
            {"name": numbers.task_name(t), "task_id": n, "hash": t.content_hash, "family": None}
            for n, t in tasks.items()
        ]
        store.add_event("suite", {"tasks": rows, "samples": 2, "greedy": False})
        for name, every in times.items():
            for number, ms in enumerate(every):
                verdict = Verdict(
                    task_id=name,
                    task_hash=tasks[name].content_hash,
                    candidate_id="c",
                    verdict="wrong" if ms is None else "correct",
                    reason="differs" if ms is None else "",
                    workloads=(WorkloadResult(name="w", passed=ms is not None),),
                    timing=None if ms is None else Timing(candidate_ms=ms, eager_ms=eager, compile_ms=1.0),
                    seconds=Seconds(total=1.0),
                )
                turn = Turn(index=0, messages=(), answer="a", candidate_id="c", evaluation=verdict)
                store.add_turn(numbers.rollout_name(tasks[name], number), turn)
    return folder


def test_speeds_are_those_of_the_records(tmp_path: Path) -> None:
    folder = timed_run(tmp_path / "a", {"p": [1.0, 4.0], "q": [None, 0.5], "r": [None, None], "s": [2.0, 2.0]})
    with Store.open(folder, writable=False) as store:
        found = numbers.summarise(numbers.read(store))
    eager, compiled = found["fast"]["eager"], found["fast"]["compile"]
    # Speedups against eager: p 2 and 0.5, q none and 4, r none, s 1 and 1; against compiled half of that.
    assert {p: by_k["1"]["value"] for p, by_k in eager.items()} == {
        "0": 0.625,
        "0.5": 0.5,
        "0.8": 0.5,
        "1": 0.25,
        "1.5": 0.25,
        "2": 0.125,
    }
    assert eager["1"]["2"]["value"] == 0.5 and compiled["1"]["1"]["value"] == 0.125
    assert found["speedup"]["eager"]["geomean"]["value"] == pytest.approx(4 ** (1 / 3))  # of 1 (p), 4 (q) and 1 (s)
    assert found["speedup"]["eager"]["median"]["value"] == 1.0
    assert found["speedup"]["eager"]["geomean"]["tasks"] == 3
    assert found["cost"]["judge_seconds"] == 8.0


def test_two_runs_are_compared_on_what_both_have(tmp_path: Path, kernelwright: Command) -> None:
    tmp_path = tmp_path / ("long" * 60)  # however long the runs' names are, the table has room
    every = {f"t{i}": [None, None] for i in range(12)}
    first = timed_run(tmp_path / "a", {**every, "t0": [2.0, 2.0], "only here": [1.0, 1.0]})
    better = {f"t{i}": [1.0, 1.0] for i in range(9)}
    second = timed_run(tmp_path / "b", {**every, **better, "t1": [None, 1.0]})
    done = kernelwright("compare", first, second, "--json")
    found = json.loads(done.stdout)
    assert (found["common_tasks"], found["only_in_first"], found["only_in_second"]) == (12, 1, 0)
    row = found["rows"]["pass@1"]
    assert (row["first"], row["second"]) == (pytest.approx(1 / 12), pytest.approx(8.5 / 12))
    assert (row["first_only"], row["second_only"]) == (0, 8) and row["p_exact"] == pytest.approx(2 / 2**8)
    assert found["rows"]["log speedup (eager)"]["tasks"] == 1
    shown = kernelwright("compare", first, second).stdout
    assert f"A: {first}" in shown and f"B: {second}" in shown
    assert "12 tasks in both" in shown and "pass@2" in shown and "0 : 8" in shown


def test_runs_without_a_common_task_are_not_compared(tmp_path: Path, kernelwright: Command) -> None:
    first, second = (timed_run(tmp_path / name, {name: [None]}) for name in ("a", "b"))
    done = kernelwright("compare", first, second, "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no task in common" in done.stderr and "hint:" in done.stderr
