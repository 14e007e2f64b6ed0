"""Rows from real runs that were played with scripted answers and judged on the CPU."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from running import Command

import kernelwright
from kernelwright.bench.numbers import task_name
from kernelwright.corpus.build import CorpusPlan, CorpusProgress, build
from kernelwright.corpus.pairs import make_chunk, recipe
from kernelwright.corpus.shards import Verdict, row_of
from kernelwright.curation import METHODS, CurationSettings, gather
from kernelwright.curation.gather import sample_of_row
from kernelwright.errors import StoreError
from kernelwright.records import Task, Turn
from kernelwright.runs.store import Store

CANDIDATES = Path(kernelwright.__file__).parent / "data" / "candidates" / "row_softmax"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, kernelwright: Command) -> Path:
    """Returns a search on a bundled task: an answer without code, one that overflows, a correct one."""
    folder = tmp_path_factory.mktemp("curation")
    answers = ["I would rather not.", (CANDIDATES / "overflow.py").read_text(), (CANDIDATES / "module.py").read_text()]
    texts = [answers[0], *(f"<think>One row a block.</think>\n```python\n{a}```\n" for a in answers[1:])]
    script = folder / "answers.jsonl"
    script.write_text("".join(json.dumps({"answer": t}) + "\n" for t in texts))
    out = folder / "run"
    words = ("--policy", f"scripted:{script}", "--turns", "3", "--run", out, "--trials", "2", "--backend", "cpu")
    done = kernelwright("optimize", "row_softmax", *words, timeout=240)
    assert done.returncode == 0, done.stderr
    return out


def test_turns_become_an_episode_with_its_task(run: Path) -> None:
    (episode,) = gather([run])
    assert [t.verdict for t in episode.turns] == ["no_candidate", "wrong", "correct"]
    assert {t.task.task_id for t in episode.turns} == {"row_softmax"}
    assert episode.turns[2].reasoning == "One row a block." and episode.turns[0].parse_failure
    assert episode.turns[1].messages[-1].content.startswith("Your answer could not be used")


def test_a_rollout_without_a_candidate_counts_and_what_was_not_judged_yet_does_not(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    with Store.open(folder) as store:
        (played,) = store.turns().values()
        answered = played[1].changed(evaluation=None, candidate_id=None)  # as `bench` keeps it before it is judged
        store.add_turn("row_softmax · p · seed 1", played[0])
        store.add_turn("row_softmax · p · seed 2", answered.changed(index=0))
        store.add_turn("row_softmax · p · seed 3", played[0])
        store.add_turn("row_softmax · p · seed 3", answered)
    found = gather([folder])
    assert [[t.verdict for t in e.turns] for e in found[1:]] == [["no_candidate"], ["no_candidate"]]
    assert {e.task.content_hash for e in found} == {found[0].task.content_hash}
    assert METHODS["rft"](found, CurationSettings(form="chat")).left_out["no-reward"] == 2


def test_answers_without_a_candidate_are_counted_where_nothing_else_was_answered(tmp_path: Path) -> None:
    """The rollout's name identifies their task; an unprocessed answer does not count. A task's answers come by number,
    not in the order in which they ended.
    """
    told = Turn(index=0, messages=(), answer="No.", parse_failure="no code")
    tasks = [Task(task_id="a", source="x = 1"), Task(task_id="c", source="x = 2"), Task(task_id="bad", source="y")]
    with Store.create(tmp_path / "run") as store:
        for one in tasks:
            store.add_task(one)
            store.add_turn(f"{task_name(one)} · sample 10", told)
            store.add_turn(f"{task_name(one)} · sample 2", told)
            store.add_turn(f"{task_name(one)} · sample 3", told.changed(parse_failure=None))
        store.add_turn("c · scripted:x · seed 0", told)
        store.add_event("bad_task", {"name": task_name(tasks[2]), "reason": "raises"})
    found = gather([tmp_path / "run"])
    assert {t.verdict for e in found for t in e.turns} == {"no_candidate"}
    names = [e.name.rpartition(" · ")[2] for e in found]
    assert names == ["sample 2", "sample 10", "sample 2", "sample 10", "seed 0"]


def test_methods_on_a_real_run(run: Path) -> None:
    found = gather([run])
    settings = CurationSettings(form="chat")
    counts = {m: len(METHODS[m](found, settings).rows) for m in ("verified", "repair", "preferences", "mdpo", "rft")}
    assert counts == {"verified": 1, "repair": 1, "preferences": 0, "mdpo": 0, "rft": 0}
    # The right answer follows the wrong one: in the form of the conversation no prompt is both's.
    assert METHODS["preferences"](found, settings).left_out["answers-in-another-conversation"] == 2
    assert len(METHODS["preferences"](found, CurationSettings(form="plain")).rows) == 1
    row = METHODS["repair"](found, settings).rows[0]
    assert row["same_rollout"] and "Verdict: wrong" in row["prompt"][-1]["content"]
    assert row["completion"][0]["content"].startswith("<think>One row a block.")


def test_the_command_line(run: Path, tmp_path: Path, kernelwright: Command) -> None:
    out = tmp_path / "data"
    done = kernelwright("curate", run, "--out", out, "--method", "verified", "--form", "plain", "--json")
    assert done.returncode == 0, done.stderr
    manifest = json.loads(done.stdout)
    (row,) = (json.loads(line) for line in (out / "data" / "train.jsonl").read_text().splitlines())
    assert manifest["rows"] == 1 and manifest["left_out"] == {"no_candidate": 1, "wrong": 1}
    assert row["completion"] == [{"role": "assistant", "content": (CANDIDATES / "module.py").read_text()}]
    again = kernelwright("curate", run, "--out", out)
    assert again.returncode == 2 and "holds a data set already" in again.stderr
    near = kernelwright("curate", run, "--out", tmp_path / "none", "--against", "starter")
    assert near.returncode == 2 and "1 too near to a suite" in near.stderr and not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--method", "best"), "best-of"),
        (("--form", "x"), "plain"),
        (("--method", "concur"), "timed"),
        (("--balance", "inf"), "--balance"),
        (("--method", "repair", "--few-shot", "2"), "speed-deciles"),
    ],
)
def test_bad_words(words: tuple[str, ...], said: str, run: Path, tmp_path: Path, kernelwright: Command) -> None:
    done = kernelwright("curate", run, "--out", tmp_path / "data", *words)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="holds no run"):
        gather([tmp_path])


def test_rows_of_a_corpus_are_samples() -> None:
    pair = make_chunk(recipe(seed=1), 0, 1).pairs[0]
    timed = Verdict("correct", "", "gpu", 1.0, 0.5, 1.0, 2.0, (1.9, 2.1))
    sample = sample_of_row(row_of(pair, "r", timed), "corpus")
    assert sample.correct and sample.speedup == 2.0 and sample.reasoning == pair.trace
    for verdict in ("wrong", "rejected", "timeout"):
        failed = sample_of_row(row_of(pair, "r", Verdict(verdict, "why", "cpu", 1.0)), "corpus")
        assert failed.verdict == verdict and failed.speedup is None


def test_rows_of_one_task_are_one_task() -> None:
    pair = make_chunk(recipe(seed=1), 0, 1).pairs[0]
    made = [sample_of_row(row_of(pair, name, Verdict("correct", "", "cpu", 1.0)), "corpus") for name in ("a", "b")]
    assert made[0].task.content_hash == made[1].task.content_hash


def test_a_corpus_that_is_not_built_to_its_end_has_the_rows_so_far(tmp_path: Path) -> None:
    def enough(progress: CorpusProgress) -> None:
        if progress.judged >= 3:
            raise TimeoutError

    plan = CorpusPlan(recipe(seed=2, families=["relu", "tanh", "softplus"]), 40, "cpu")
    with pytest.raises(TimeoutError):
        build(tmp_path, plan, 1, enough)
    journal = tmp_path / "work" / "part-00000.jsonl"
    kept = [json.loads(line)["row"]["row_id"] for line in journal.read_text().splitlines() if "row" in json.loads(line)]
    journal.write_text(journal.read_text() + '{"chunk": 0, "row": {"row_id')  # a line that a kill cut off
    found = gather([tmp_path])
    assert len(found) == len(kept) >= 3 and all(episode.turns[0].correct for episode in found)
