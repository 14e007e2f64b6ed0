"""The shaped families: candidates parse, and are judged correct under the canonical and other schedules."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from shaped_tasks import CONVOLUTIONS, EVERY, PRODUCTS, pair, task

from kernelwright import generate
from kernelwright.errors import UsageError
from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.records import Task
from kernelwright.solutions import CANONICAL, Schedule, schedules, write
from kernelwright.solutions.kernels.schedule import named
from kernelwright.solutions.read.reading import Unreadable
from kernelwright.tasks import candidate_from_text

SCHEDULED = {
    "epilogue": ("product=naive", "product=shared32", "product=register64", "product=double128"),
    "half": ("product=tensor",),
    "linear chain": ("product=register32", "product=wide"),
    "conv2d grouped": ("conv=weights", "conv=channels", "conv=gemm16", "conv=gemm64", "conv=double64"),
    "transposed 2d": ("conv=weights", "conv=channels", "conv=gemm32"),
    "adaptive": ("block=64,pool=block",),
}


@pytest.fixture(scope="module")
def evaluator(pool: Pool) -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(backend="cpu", trials=3), pool=pool) as opened:
        yield opened


def judge(evaluator: Evaluator, source: str, text: str) -> None:
    result = evaluator.evaluate(Task(task_id="t", source=source), candidate_from_text(text, "test"))
    assert result.verdict == "correct", f"{result.reason}\n{text}"


@pytest.mark.parametrize("name", EVERY)
def test_canonical_answer_is_right(evaluator: Evaluator, name: str) -> None:
    judge(evaluator, EVERY[name], write(EVERY[name]))


@pytest.mark.parametrize(("name", "schedule"), [(n, s) for n, every in SCHEDULED.items() for s in every])
def test_scheduled_answer_is_right(evaluator: Evaluator, name: str, schedule: str) -> None:
    text = write(EVERY[name], named(schedule))
    assert text != write(EVERY[name]), "the schedule changes nothing"
    judge(evaluator, EVERY[name], text)


@pytest.mark.parametrize("name", EVERY)
def test_every_schedule_writes_a_module_that_differs_and_is_named(name: str) -> None:
    found = schedules(EVERY[name])
    assert CANONICAL in found and len(set(found)) == len(found)
    texts = set()
    for schedule in found:
        assert named(schedule.name) == schedule
        text = write(EVERY[name], schedule)
        tree = ast.parse(text)
        assert [n.name for n in tree.body if isinstance(n, ast.ClassDef)] == ["ModelNew"]
        texts.add(text)
    least = 6 if name in PRODUCTS and "int M, int N, int K" in text else 4 if name in CONVOLUTIONS else 1
    assert len(texts) >= least


def test_what_no_template_knows_says_so() -> None:
    with pytest.raises(Unreadable, match="svd"):
        write(task("return torch.linalg.svd(x)", "torch.randn(4, 4)"))
    with pytest.raises(Unreadable, match="indices"):
        write(task("return self.p(x)", "torch.randn(2, 3, 8)", init="self.p = nn.MaxPool1d(2, return_indices=True)"))
    with pytest.raises(Unreadable, match="einsum"):
        write(pair("torch.einsum('ii,ij->j', A, B)", "5, 5", "5, 6"))


@pytest.mark.parametrize("name", ["nothing", "product=", "product=quick", "block=33", "block=4096", "shuffle=1"])
def test_unknown_schedules_are_refused(name: str) -> None:
    with pytest.raises(UsageError):
        named(name)


def test_names_of_sizes_do_not_hide_inputs() -> None:
    text = write(pair("torch.matmul(A, B) + A", "30, 30", "30, 30").replace("A, B):", "K, N):").replace(
        "torch.matmul(A, B) + A", "torch.matmul(K, N) + K"
    ))  # fmt: skip
    forward = text[text.index("def forward") :]
    assert "(M, K_), N_ = a.shape" in forward


def test_layers_of_the_same_kind_share_a_kernel() -> None:
    text = write(CONVOLUTIONS["separable"])
    assert text.count("__global__") == 1 and text.count("kernels.conv2d_kernel[") == 2


@pytest.mark.parametrize("group", ["matmul", "convolution", "pooling", "attention", "linear"])
def test_every_generated_task_of_these_groups_has_an_answer(group: str) -> None:
    for made in generate.generate(17, 40, families=[group]):
        text = write(made.source)
        assert "class ModelNew" in text and "load_inline" not in text
        ast.parse(text)
    assert Schedule(block=128).name == "block=128"
