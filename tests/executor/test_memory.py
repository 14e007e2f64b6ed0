"""Verdicts kept between runs: equal questions get the kept answer, all others are judged."""

from __future__ import annotations

from pathlib import Path

import pytest
from judging import candidate, task

from kernelwright.errors import StoreError
from kernelwright.evaluation import EvalOptions
from kernelwright.executor import Job, load_executor
from kernelwright.executor.memory import Remembering, remembering
from kernelwright.records import Evaluation

OPTIONS = EvalOptions(backend="cpu", trials=1)
SECONDS = 60.0


def _opened(folder: Path) -> Remembering:
    found = remembering(load_executor("local", 1), folder)
    assert isinstance(found, Remembering)
    return found


def test_equal_questions_are_judged_once_by_all_runs(tmp_path: Path) -> None:
    kept: list[tuple[str, str]] = []

    def keep(job: Job, evaluation: Evaluation) -> None:
        kept.append((job.task.task_id, evaluation.verdict))

    with _opened(tmp_path / "verdicts") as first:
        assert first.submit(task(1), candidate(1), OPTIONS, keep=keep).result(SECONDS).verdict == "correct"
        assert first.submit(task(1), candidate(2), OPTIONS, keep=keep).result(SECONDS).verdict == "wrong"
        with _opened(tmp_path / "verdicts") as second:  # at the same time, as two trainings may
            found = second.submit(task(1), candidate(1), OPTIONS, keep=keep)
            assert found.done() and found.result().verdict == "correct"
            assert second.submit(task(1), candidate(2), OPTIONS).result(0).verdict == "wrong"
            assert (first.known, second.known) == (0, 2)
    assert kept == [("plus-1", "correct"), ("plus-1", "wrong"), ("plus-1", "correct")]


def test_other_inputs_tasks_and_candidates_are_other_questions(tmp_path: Path) -> None:
    with _opened(tmp_path) as executor:
        for asked in (OPTIONS, OPTIONS.changed(seed=5), OPTIONS.changed(trials=2)):
            executor.submit(task(1), candidate(1), asked).result(SECONDS)
        assert executor.submit(task(2), candidate(1), OPTIONS).result(SECONDS).verdict == "wrong"
        assert executor.known == 0


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.sqlite").write_text("no database")
    with pytest.raises(StoreError):
        remembering(load_executor("local", 1), tmp_path)


def test_without_a_folder_nothing_is_put_before_it() -> None:
    with load_executor("local", 1) as executor:
        assert remembering(executor, None) is executor
