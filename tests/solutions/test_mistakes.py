"""Planted mistakes: deterministic, each another text, and nearly all of them caught by the judge."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from shaped_tasks import CONVOLUTIONS, PRODUCTS

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.records import Task
from kernelwright.solutions import write
from kernelwright.solutions.mistakes import LATENT, mistakes, names
from kernelwright.tasks import candidate_from_text

SOURCES = {"matmul": PRODUCTS["epilogue"], "convolution": CONVOLUTIONS["conv2d grouped"]}


@pytest.fixture(scope="module")
def evaluator(pool: Pool) -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(backend="cpu", trials=3), pool=pool) as opened:
        yield opened


@pytest.mark.parametrize("name", SOURCES)
def test_each_mistake_is_another_text_and_the_same_every_time(name: str) -> None:
    text = write(SOURCES[name])
    found = mistakes(text, 5)
    assert found == mistakes(text, 5)
    assert len(found) >= 18 and len({t for _, t in found} | {text}) == len(found) + 1
    assert {n for n, _ in found} <= set(names())
    assert any(mistakes(text, seed) != found for seed in range(6, 12))


def test_text_without_cuda_has_none() -> None:
    assert mistakes("import torch\n", 1) == []


@pytest.mark.parametrize("name", SOURCES)
def test_the_judge_catches_them(evaluator: Evaluator, name: str) -> None:
    source = SOURCES[name]
    missed = []
    found = [(n, t) for n, t in mistakes(write(source), 1) if n not in LATENT]
    for kind, text in found:
        result = evaluator.evaluate(Task(task_id="t", source=source), candidate_from_text(text, kind))
        if result.verdict == "correct":
            missed.append(kind)
    assert len(missed) <= 1, missed
