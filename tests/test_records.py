"""Records: frozen, validated, and unchanged by a round trip through JSON."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from kernelwright.records import (
    VERDICTS,
    BeforeAfter,
    Candidate,
    Environment,
    Evaluation,
    Finding,
    Launch,
    Message,
    Record,
    Seconds,
    SourceFile,
    Task,
    Timing,
    Trajectory,
    Turn,
    Workload,
    WorkloadResult,
)

TEXT = st.text(max_size=20)
FLOATS = st.floats(allow_nan=False)
CONSTANTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)

workloads = st.builds(
    Workload,
    name=TEXT,
    constants=st.dictionaries(TEXT, CONSTANTS, max_size=3),
    scope=st.sampled_from(["declared", "batch_reduced", "reduced"]),
    purpose=st.sampled_from(["functional", "timing"]),
    elements=st.integers(0, 2**62),
)
tasks = st.builds(
    Task,
    task_id=TEXT,
    source=TEXT.map(lambda t: "x" + t),
    policy=st.sampled_from(["from_scratch", "libraries"]),
    workloads=st.lists(workloads, max_size=2).map(tuple),
    tolerance=st.none() | FLOATS,
    description=TEXT,
)
sources = st.builds(SourceFile, path=TEXT, content=st.text(max_size=60))
candidates = st.builds(
    Candidate,
    sources=st.lists(sources, min_size=1, max_size=3).map(tuple),
    language=st.sampled_from(["cuda", "triton", "cpp", "hip", "torch"]),
)
results = st.builds(
    WorkloadResult,
    name=TEXT,
    shape=st.lists(st.lists(st.integers(0, 2**40), max_size=4).map(tuple), max_size=3).map(tuple),
    dtype=st.lists(TEXT, max_size=2).map(tuple),
    max_abs_error=st.none() | FLOATS,
    max_rel_error=st.none() | FLOATS,
    tolerance=st.none() | FLOATS,
    passed=st.just(True),
    reason=TEXT,
)
findings = st.builds(Finding, rule=TEXT, evidence=TEXT, severity=st.just("warning"), line=st.none() | st.integers(1))
timings = st.builds(
    Timing,
    candidate_ms=FLOATS,
    interval=st.none() | st.tuples(FLOATS, FLOATS),
    samples=st.dictionaries(TEXT, st.lists(FLOATS, max_size=3).map(tuple), max_size=2),
)


@st.composite
def evaluations(draw: st.DrawFn) -> Evaluation:
    """Draws any evaluation that the validator accepts."""
    verdict = draw(st.sampled_from(VERDICTS))
    correct = verdict == "correct"
    found = draw(st.lists(findings, max_size=2))
    if verdict == "rejected":
        found.append(Finding(rule="no-own-kernel", evidence="no launch", severity="reject"))
    return Evaluation(
        task_id=draw(TEXT),
        task_hash=draw(TEXT),
        candidate_id=draw(TEXT),
        verdict=verdict,
        reason="why: " + draw(TEXT),
        workloads=tuple(draw(st.lists(results, min_size=int(correct), max_size=2))),
        timing=draw(timings) if correct else None,
        findings=tuple(found),
        launches=tuple(draw(st.lists(st.builds(Launch, kernel=TEXT, instructions=st.integers(0)), max_size=2))),
        seconds=Seconds(build=abs(draw(FLOATS))),
        log=draw(TEXT),
        environment=draw(st.dictionaries(TEXT, TEXT, max_size=2)),
        options=draw(st.dictionaries(TEXT, CONSTANTS, max_size=3)),
    )


turns = st.builds(
    Turn,
    index=st.integers(0),
    messages=st.lists(st.builds(Message, role=st.just("user"), content=TEXT), max_size=2).map(tuple),
    answer=TEXT,
    evaluation=st.none() | evaluations(),
)
trajectories = st.builds(
    Trajectory, task_id=TEXT, task_hash=TEXT, policy=TEXT, turns=st.lists(turns, max_size=2).map(tuple)
)


def _strict(text: str) -> Any:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


@settings(max_examples=60, deadline=None)
@given(st.one_of(tasks, candidates, evaluations(), trajectories))
def test_round_trip_keeps_value_and_hash(record: Record) -> None:
    kind = type(record)
    by_pydantic = kind.model_validate_json(record.model_dump_json())
    by_json = kind.model_validate(_strict(json.dumps(record.plain(), allow_nan=False)))
    for copy in (by_pydantic, by_json):
        assert copy == record
        assert copy.content_hash == record.content_hash
    assert _strict(record.canonical_json()) == record.plain()


@settings(max_examples=40, deadline=None)
@given(candidates, TEXT)
def test_code_hash_ignores_provenance_only(candidate: Candidate, note: str) -> None:
    noted = candidate.model_copy(update={"provenance": candidate.provenance.model_copy(update={"note": note})})
    fresh = Candidate.model_validate(noted.plain())
    assert fresh.code_hash == candidate.code_hash
    assert fresh.content_hash != candidate.content_hash
    other = Candidate.model_validate({**candidate.plain(), "entry_point": "Other"})
    assert other.code_hash != candidate.code_hash


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_infinite_and_nan_errors_survive_json(value: float) -> None:
    result = WorkloadResult(name="own", passed=False, max_abs_error=value)
    copy = WorkloadResult.model_validate_json(result.model_dump_json())
    assert copy.max_abs_error == value or (math.isnan(value) and math.isnan(copy.max_abs_error or 0.0))
    assert copy.content_hash == result.content_hash
    _strict(result.canonical_json())


def test_tuples_and_infinities_in_constants_keep_the_hash() -> None:
    workload = Workload(name="w", constants={"kernel": (3, 3), "limit": math.inf})
    assert Workload.model_validate_json(workload.model_dump_json()).content_hash == workload.content_hash
    assert workload.constants["kernel"] == [3, 3]


def test_lone_surrogates_become_storable() -> None:
    broken = json.loads('"a\\ud83d"')
    candidate = Candidate(sources=({"path": "c.py", "content": broken},), language="torch")
    assert candidate.text == "a?"
    assert len(candidate.code_hash) == 64


def test_records_are_frozen_and_know_their_fields() -> None:
    task = Task(task_id="t", source="x = 1")
    with pytest.raises(ValidationError):
        task.task_id = "other"  # type: ignore[misc]
    with pytest.raises(ValidationError):
        Task(task_id="t", source="x = 1", colour="red")  # type: ignore[call-arg]
    with pytest.raises(ValidationError):
        Task(task_id="t", source="  \n")


def _evaluation(**fields: Any) -> Evaluation:
    return Evaluation(**{"task_id": "t", "task_hash": "h", "candidate_id": "c", "reason": "why", **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {"verdict": "correct"},
        {"verdict": "correct", "workloads": (WorkloadResult(name="w", passed=False),)},
        {"verdict": "rejected"},
        {"verdict": "wrong", "reason": ""},
        {"verdict": "wrong", "timing": Timing(candidate_ms=1.0)},
        {"verdict": "splendid"},
    ],
)
def test_impossible_evaluations_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        _evaluation(**fields)


def test_a_task_for_the_usual_function_keeps_its_name() -> None:
    usual, other = Task(task_id="a", source="x = 1"), Task(task_id="a", source="x = 1", function="backward")
    assert "function" not in usual.plain() and usual.content_hash != other.content_hash
    assert Task.model_validate(usual.plain()) == usual and Task.model_validate(other.plain()) == other


def test_facts_of_older_runs_are_read() -> None:
    """Older runs stored every fact of the environment as text."""
    stored = {
        "python": "3.12.3",
        "gpu": "NVIDIA H200",
        "gpu_index": "0",
        "built_by": "stand-in, load_inline",
        "gpu_seconds": "lease 0.120, run row 1.500",
        "own_kernel_share": "0.750",
        "checked_in_slices": "of 512 rows",
        "launch_us": "2.125, 3 launches a call",
        "inputs_needed": "0.50",
        "sm_mhz": "1980 before, 1965 after",
        "kernelbench": '{"compiled": true, "correctness": false, "runtime": -1.0, "ref_runtime": -1.0}',
        "restored": "from a table of times",
    }
    found = Environment.model_validate(stored)
    assert (found.built_by, found.gpu_seconds) == (("stand-in", "load_inline"), {"lease": 0.12, "run row": 1.5})
    assert (found.own_kernel_share, found.checked_in_slices, found.launch_us) == (0.75, 512, 2.125)
    assert found.sm_mhz == BeforeAfter(before="1980", after="1965") and found.notes["restored"]
    assert found.kernelbench is not None and found.kernelbench.compiled and not found.kernelbench.correctness
    assert Environment.model_validate(found.plain()) == found
    assert Environment.model_validate({"built_by": "nothing was built", "own_kernel_share": "nan"}) == Environment()
