"""The public names of `kernelwright`: their signatures, and that each loads its module only when it is used."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kernelwright
from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.records import Candidate, SourceFile, Task

SIGNATURES = {
    "Evaluator": "(options: 'EvalOptions | None' = None, device: 'str | None' = None, gpu: 'str | None' = None,"
    " pool: 'Pool | None' = None, plan_budget: 'dict[str, int] | None' = None) -> 'None'",
    "evaluate": "(task: 'Task', candidate: 'Candidate', options: 'EvalOptions | None' = None,"
    " pool: 'Evaluator | None' = None) -> 'Evaluation'",
    "evaluate_many": "(pairs: 'Iterable[tuple[Task, Candidate]]', options: 'EvalOptions | None' = None,"
    " jobs: 'int' = 1, pool: 'Evaluator | None' = None) -> 'Iterator[Evaluation | TaskError]'",
    "load_candidate": "(path: 'Path | str') -> 'Candidate'",
    "load_task": "(spec: 'str | Path', policy: 'LibraryRule | None' = None, *,"
    " reference_field: 'str' = 'reference', id_field: 'str | None' = None) -> 'Task'",
    "optimize": "(task: 'Task', policy: 'Policy | str' = 'template', *, run: 'Path | str | None' = None,"
    " options: 'EvalOptions | None' = None, turns: 'int' = 6, seed: 'int' = 0, out: 'Path | str | None' = None,"
    " on_turn: 'Callable[[Turn], None] | None' = None) -> 'OptimizeResult'",
}
RECORDS = {
    "Candidate": "sources language entry_point provenance",
    "EvalOptions": "backend policy precision trials timeout build_timeout memory_mb seed sample_large full_size"
    " small_sizes baselines timing_seconds gpu_memory_gb program_first replay live strict_kernelbench"
    " kernelbench_tolerance sandbox",
    "Evaluation": "task_id task_hash candidate_id verdict reason backend sandbox workloads coverage timing findings"
    " launches library_ops seconds log environment options",
    "Task": "task_id source policy workloads tolerance description provenance precision function gate",
}
ERRORS = """
KernelwrightError
    UsageError
        ConfigError
        TaskError
        CandidateError
        StoreError
    PolicyError
    HarnessError
        SandboxError
        WorkerDied
        MachineError
"""
HEAVY = ("torch", "numpy", "pydantic", "typer", "rich")


def test_the_names_are_these() -> None:
    assert set(kernelwright.__all__) == {*SIGNATURES, *RECORDS, *ERRORS.split()}
    assert set(kernelwright.__all__) <= set(dir(kernelwright))
    with pytest.raises(AttributeError, match="no attribute 'evaluat'"):
        _ = kernelwright.evaluat  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(name: str) -> None:
    assert str(inspect.signature(getattr(kernelwright, name))) == SIGNATURES[name]


@pytest.mark.parametrize("name", RECORDS)
def test_fields_of_records(name: str) -> None:
    assert " ".join(getattr(kernelwright, name).model_fields) == RECORDS[name]


def test_the_tree_of_errors() -> None:
    def lines(kind: type[BaseException], depth: int = 0) -> Iterator[str]:
        yield " " * 4 * depth + kind.__name__
        for below in kind.__subclasses__():
            if getattr(kernelwright, below.__name__, None) is below:
                yield from lines(below, depth + 1)

    assert list(lines(kernelwright.KernelwrightError)) == ERRORS.strip().splitlines()


def test_type_checkers_see_the_same_names() -> None:
    stub = Path(kernelwright.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    seen = {
        (f"{node.module}", alias.name)
        for node in ast.walk(ast.parse(stub))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == {(module, name) for module, names in kernelwright._MODULES.items() for name in names}  # type: ignore[attr-defined]


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = f"import sys, kernelwright; dir(kernelwright); print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_judging_by_the_public_names_imports_no_torch() -> None:
    code = "import sys, kernelwright as kw; [getattr(kw, name) for name in kw.__all__]; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stdout + done.stderr


TASK = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn(4, 8)]

def get_init_inputs():
    return []
"""
REACHES = {
    "plain": ("import kernelwright", "kernelwright.evaluate", "harness-access"),
    "imported": ("from kernelwright import Evaluator as E", "E", "harness-access"),
    "renamed": ("import kernelwright as kw", "kw.evaluate", "harness-access"),
    "hidden": ("import kernelwright as kw", "getattr(kw, 'evalu' + 'ate')", "harness-access"),
    "searches": ("import kernelwright as kw", "kw.optimize", "harness-access"),
}


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(policy="libraries", trials=1, seed=0)) as shared:
        yield shared


@pytest.mark.parametrize("way", REACHES)
def test_a_candidate_that_reaches_for_the_judge_by_a_public_name_is_rejected(evaluator: Evaluator, way: str) -> None:
    """It is treated as a candidate that imports `kernelwright.evaluation`: by its text, or, under a hidden name, by its
    effects.
    """
    first, name, rule = REACHES[way]
    text = TASK.replace("class Model(", f"{first}\nREACHED = {name}\n\nclass ModelNew(")
    candidate = Candidate(sources=(SourceFile(path="candidate.py", content=text),), language="torch")
    found = evaluator.evaluate(Task(task_id="relu", source=TASK), candidate)
    assert found.verdict == "rejected", (found.verdict, found.reason)
    assert rule in {f.rule for f in found.findings if f.severity == "reject"}


def test_a_runner_s_copy_of_the_judge_is_not_the_one_that_judges() -> None:
    code = """
import sys
import kernelwright
from kernelwright.evaluation import Evaluator
from kernelwright.evaluation.candidate import hidden_package
kernelwright.Evaluator
hidden_package.hide([])
import kernelwright
print([v for v in vars(kernelwright).values() if v is Evaluator], "kernelwright.evaluation" in sys.modules)
print(hasattr(kernelwright, "Evaluator"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split("\n")[:2] == ["[] False", "False"], done.stdout + done.stderr


def test_help_shows_first_sentences_whole() -> None:
    from typer.testing import CliRunner

    from kernelwright.cli.verbs import app

    text = CliRunner().invoke(app, ["--help"], terminal_width=70).output
    commands = " ".join(text.partition("Commands:")[2].split())
    assert "..." not in commands and "suggest changes." in commands
