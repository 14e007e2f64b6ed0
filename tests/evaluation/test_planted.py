"""A few planted bugs are detected and located; `benchmarks/planted_bugs.py` runs the whole set."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sets import planted_blind
from sets.planted import MUTANTS, ORIGINALS, named

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.processes.pool import Pool

CHOSEN = (
    "row-sum/half-mask",
    "softmax/box-reused-too-early",
    "layernorm/last-warp-writes-no-sum",
    "histogram/plain-add-in-shared",
    "histogram/index-in-32-bits",
    "tiled-matmul/one-product-too-many",
    "attention-row/query-without-syncwarp",
)
FIRST = (
    "grid-sum/no-fence-before-the-count",
    "look-back-maximum/no-fence-before-whole",
    "pipelined-matmul/waits-for-one-group-too-few",
    "embedding-bag/no-barrier",
    "embedding-bag/one-id-missing",
    "long-scale/or-in-32-bits",
    "staged-rows/no-syncwarp",
)
"""Bugs of the blind set of which the deciding finding names the cause; two of them end in an access out of bounds."""
BLIND = {f"{o.name}/{m.name}": (o, m) for o, m in planted_blind.MUTANTS}
BY_NAME = {f"{o.name}/{m.name}": (o, m) for o, m in MUTANTS}


@pytest.fixture(scope="module")
def evaluator(pool: Pool) -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(backend="cpu", trials=3, seed=1), pool=pool) as shared:
        yield shared


def test_the_set_is_whole() -> None:
    assert len(ORIGINALS) == 12 and len(BY_NAME) == len(MUTANTS) == 60
    for original, mutant in MUTANTS:
        assert original.candidate(mutant).text != original.source
        assert original.lines(mutant) or not mutant.rules


@pytest.mark.parametrize("name", CHOSEN)
def test_planted_bug_is_named(evaluator: Evaluator, name: str) -> None:
    original, mutant = BY_NAME[name]
    result = evaluator.evaluate(original.task(), original.candidate(mutant))
    assert result.verdict in ("wrong", "runtime_error"), result.reason
    assert named(original, mutant, result), result.reason


def test_the_blind_set_is_whole() -> None:
    assert len(planted_blind.ORIGINALS) >= 30 and len(BLIND) == len(planted_blind.MUTANTS) >= 150
    for original, mutant in planted_blind.MUTANTS:
        assert original.candidate(mutant).text != original.source
        assert original.lines(mutant) or not mutant.rules


@pytest.mark.parametrize("name", FIRST)
def test_the_cause_is_named_first(evaluator: Evaluator, name: str) -> None:
    original, mutant = BLIND[name]
    result = evaluator.evaluate(original.task(), original.candidate(mutant))
    assert result.verdict in ("wrong", "runtime_error"), result.reason
    assert named(original, mutant, result, first=True), result.reason


@pytest.mark.parametrize("seed", [1, 2])
def test_look_back_that_stops_early_is_wrong(pool: Pool, seed: int) -> None:
    original, mutant = BLIND["look-back-maximum/stops-at-the-first-part"]
    with Evaluator(EvalOptions(backend="cpu", trials=3, seed=seed), pool=pool) as evaluator:
        assert evaluator.evaluate(original.task(), original.candidate(mutant)).verdict == "wrong"
        assert evaluator.evaluate(original.task(), original.candidate()).verdict == "correct"


@pytest.mark.parametrize("name", ["layernorm", "attention-row"])
def test_original_has_no_finding(evaluator: Evaluator, name: str) -> None:
    original = next(o for o in ORIGINALS if o.name == name)
    result = evaluator.evaluate(original.task(), original.candidate())
    assert (result.verdict, result.findings) == ("correct", ()), result.reason
    launch = result.launches[0]
    read = {m.name.split("'")[1]: m.read for m in launch.memory}
    assert read["y"] == 0 and all(n > 0 for k, n in read.items() if k in ("x", "q", "k", "v"))
    assert launch.counters["flops_f32"] > 0
