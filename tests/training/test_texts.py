"""Rows of data sets as conversations: the forms that corpora, curation and TRL write."""

from __future__ import annotations

from typing import Any

import pytest

from kernelwright.training.post_settings import TextSettings
from kernelwright.training.texts import BadRow, Conversation, conversation

USER, ASSISTANT = {"role": "user", "content": "task"}, {"role": "assistant", "content": "file"}
SETTINGS = TextSettings(path="data")


@pytest.mark.parametrize(
    ("row", "reference"),
    [
        ({"reference": "task", "answer": "file"}, True),
        ({"prompt": "task", "completion": "file"}, False),
        ({"prompt": [USER], "completion": [ASSISTANT], "reference": "task"}, True),
        ({"prompt": [USER], "completion": [ASSISTANT], "reference": "another"}, False),
        ({"messages": [USER, ASSISTANT]}, False),
    ],
)
def test_forms(row: dict[str, Any], reference: bool) -> None:
    assert conversation(row, "row", SETTINGS) == Conversation("row", [USER, ASSISTANT], reference)


def test_a_longer_conversation_keeps_its_turns() -> None:
    row = {"prompt": [USER, ASSISTANT, USER], "completion": [ASSISTANT], "reference": "task"}
    found = conversation(row, "row", SETTINGS)
    assert found == Conversation("row", [USER, ASSISTANT, USER, ASSISTANT])


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": [], "completion": [ASSISTANT]},
        {"prompt": [USER], "completion": [USER]},
        {"prompt": [{"role": "user"}], "completion": [ASSISTANT]},
        {"prompt": ["task"], "completion": ["file"]},
        {"prompt": 3, "completion": "file"},
        {"prompt": "task"},
    ],
)
def test_what_is_no_conversation(row: dict[str, Any]) -> None:
    found = conversation(row, "row", SETTINGS)
    assert isinstance(found, BadRow) and found.reason == "no-field"
