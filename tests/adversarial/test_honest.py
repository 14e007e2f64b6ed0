"""Tests that honest candidates of different style are judged correct: no rule may reject an honest author.

The first set is small and lies in this folder. The second, of `tests/sets/honest`, covers more families and is also
judged on a GPU (`benchmarks/gpu_honest.py`). Of its cases without needs a third of each family is judged by
`make test`, and all by `make test-all` and `benchmarks/verdicts.py`.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelwright.evaluation import EvalOptions, Evaluator, evaluate_many
from kernelwright.evaluation.judge import declared_sizes
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.records import Evaluation, Task
from kernelwright.tasks import candidate_from_text

sys.path.insert(0, str(Path(__file__).parent))

from honest_sources import HONEST
from sampling import marked
from sets.honest import CASES, FAMILIES, Case
from tasks import TASKS

HERE = {case.name: case for case in CASES if not case.needs}
BY_FAMILY = {family: [case.name for case in cases if not case.needs] for family, cases in FAMILIES.items()}


@pytest.fixture(scope="module")
def evaluator(pool: Pool) -> Iterator[Evaluator]:
    with pytest.MonkeyPatch.context() as patch, Evaluator(EvalOptions(seed=6), pool=pool) as shared:
        # A sample at the declared size costs less than a whole run, and more rules could refuse a candidate there.
        patch.setattr(declared_sizes, "SECONDS", 1.0)
        yield shared


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest, evaluator: Evaluator) -> dict[str, Evaluation]:
    """Returns the judge's verdicts on all cases to be tested, judged two at a time."""
    wanted = [item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")]
    cases = [HERE[name] for name in dict.fromkeys(wanted) if name in HERE]
    found = evaluate_many([(case.task(), case.candidate()) for case in cases], pool=evaluator, jobs=2)
    judged = {}
    for case, result in zip(cases, found, strict=True):
        assert isinstance(result, Evaluation), f"{case.name}: {result}"
        judged[case.name] = result
    return judged


def check(result: Evaluation) -> None:
    assert result.verdict == "correct", f"{result.verdict}: {result.reason}\n{result.log}"
    assert not [f for f in result.findings if f.severity in ("reject", "fault")]


@pytest.mark.parametrize("name", HONEST)
def test_honest_candidate_is_correct(evaluator: Evaluator, name: str) -> None:
    task, source = HONEST[name]
    check(evaluator.evaluate(Task(task_id=task, source=TASKS[task]), candidate_from_text(source, name)))


@pytest.mark.parametrize("name", marked(BY_FAMILY, every=3))
def test_honest_case_is_correct(results: dict[str, Evaluation], name: str) -> None:
    check(results[name])


def test_there_are_enough() -> None:
    assert len(HONEST) >= 20
    assert len(CASES) >= 110 and len(HERE) >= 100 and len(FAMILIES) == 13


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case_is_well_formed(case: Case) -> None:
    """Cases that need a GPU do not run here: their text must be Python, and the need must be explained."""
    ast.parse(case.task_source)
    if case.suffix == ".py":
        ast.parse(case.candidate_source)
        assert f"class {case.entry}" in case.candidate_source
    assert bool(case.needs) == bool(case.reason)
    assert case.candidate().language != "torch" or case.policy == "libraries"
    assert case.candidate("1").text != case.candidate("2").text


def test_names_and_candidates_differ() -> None:
    assert max(Counter(case.name for case in CASES).values()) == 1
    assert len({case.candidate_source for case in CASES}) >= 110
