"""Honest candidates of different style are judged correct: no rule may cost an honest author anything."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.records import Task
from kernelwright.tasks import candidate_from_text

sys.path.insert(0, str(Path(__file__).parent))

from honest import HONEST
from tasks import TASKS


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(seed=6)) as shared:
        yield shared


@pytest.mark.parametrize("name", HONEST)
def test_honest_candidate_is_correct(evaluator: Evaluator, name: str) -> None:
    task, source = HONEST[name]
    result = evaluator.evaluate(Task(task_id=task, source=TASKS[task]), candidate_from_text(source, name))
    assert result.verdict == "correct", f"{result.verdict}: {result.reason}\n{result.log}"
    assert not [f for f in result.findings if f.severity in ("reject", "fault")]


def test_there_are_enough() -> None:
    assert len(HONEST) >= 20
