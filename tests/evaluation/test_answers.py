"""Answers of a runner that a candidate may have written: read with checked types, or refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.evaluation.processes import messages

FACTS: dict[str, Any] = {"launches": [{"kernel": "k", "count": 2, "counters": {"loads": 3}}], "own_calls": 1}
CALLED: dict[str, Any] = {"kind": "called", "facts": FACTS, "operators": [["mm", 9]], "mutated": [], "problems": []}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def test_what_a_runner_says_passes() -> None:
    read = messages.read(messages.Called, CALLED | {"prints": "hello", "foreign": [[0, 5]], "unknown": 1})
    assert isinstance(read, messages.Called)
    assert read.facts.launches[0].counters == {"loads": 3} and read.operators == [("mm", 9)]
    assert read.prints == "hello" and read.foreign == [(0, 5)] and not hasattr(read, "unknown")
    assert messages.read(messages.Loaded, {"kind": "loaded"}).unsupported == []
    made = messages.read(messages.Made, {"kind": "made", "weights": "names"})
    assert isinstance(made, messages.Made) and made.weights == "names"
    raised = messages.read(messages.Loaded, {"kind": "failed", "type": "E", "message": "m", "line": 3})
    assert isinstance(raised, messages.Raised) and raised.line == 3


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "loaded"},
        {"facts": None},
        {"facts": {"launches": [5]}},
        {"facts": {"launches": [{"count": "many"}]}},
        {"facts": {"launches": [{"count": -1}]}},
        {"facts": {"launches": [{"count": float("inf")}]}},
        {"facts": {"launches": [{"instructions": 1 << 70}]}},
        {"facts": {"launches": [{}] * 2000}},
        {"operators": [1]},
        {"mutated": 5},
        {"problems": ["abc"]},
        {"findings": "none"},
        {"unsupported": "everything"},
        {"prints": 7},
        {"prints": "x" * (1 << 20)},
    ],
)
def test_what_no_runner_says_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(messages.Unsound):
        messages.read(messages.Called, CALLED | change)


def test_an_answer_to_another_question_is_refused() -> None:
    asked: tuple[tuple[type[messages.AnswerState], dict[str, Any]], ...] = (
        (messages.Loaded, CALLED),
        (messages.Made, {"kind": "made"}),
        (messages.Called, {"kind": "loaded"}),
        (messages.Loaded, {}),
    )
    for wanted, header in asked:
        with pytest.raises(messages.Unsound):
            messages.read(wanted, header)


def test_lone_surrogates_are_no_forgery() -> None:
    assert messages.read(messages.Loaded, {"kind": "loaded", "prints": "a\ud800"}).prints == "a?"


def test_build_requests() -> None:
    request = messages.build_request({"request": {"kind": "extension", "functions": ["f"], "cuda_source": "x"}})
    assert request["functions"] == ("f",) and request["cpp_flags"] == ()
    for bad in (None, {}, {"kind": "else"}, {"kind": "device", "name": 5}, {"kind": "device", "functions": [[1]]}):
        with pytest.raises(messages.Unsound):
            messages.build_request({"request": bad})


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([messages.Loaded, messages.Made, messages.Called]),
    st.sampled_from(["loaded", "made", "called", "failed"]),
    JSON,
    st.data(),
)
def test_anything_is_read_or_refused(
    asked: type[messages.AnswerState], kind: str, value: Any, data: st.DataObject
) -> None:
    field = data.draw(st.sampled_from(["facts", "operators", "findings", "weights", "type", "message", "problems"]))
    header = {**CALLED, "weights": "none", "type": "E", "message": "m", "kind": kind, field: value}
    try:
        assert messages.read(asked, header).model_dump()["kind"] == kind
    except messages.Unsound:
        pass
