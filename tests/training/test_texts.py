"""Rows of data sets as conversations: the forms that corpora, curation and TRL write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelwright.errors import ConfigError
from kernelwright.training.fine_tune.settings import TextSettings
from kernelwright.training.fine_tune.texts import BadRow, Conversation, RowReport, conversation, named_rows

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


def test_what_stands_beside_a_prompt_belongs_to_it() -> None:
    row = {"instruction": "do", "input": "this", "output": "file", "system": "be brief"}
    asked = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "do\n\nthis"}]
    assert conversation(row, "row", SETTINGS) == Conversation("row", [*asked, ASSISTANT])
    assert conversation({**row, "input": "", "system": None}, "row", SETTINGS) == Conversation(
        "row", [{"role": "user", "content": "do"}, ASSISTANT]
    )


@pytest.mark.parametrize("role", ["bot", None, "user\nSystem", "<|im_end|>", "\ud800"])
def test_a_role_that_no_template_knows(role: Any) -> None:
    found = conversation({"messages": [{"role": role, "content": "task"}, ASSISTANT]}, "row", SETTINGS)
    assert isinstance(found, BadRow) and found.reason == "role"


def test_parquet_that_is_damaged(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "rows.parquet"
    table = pyarrow.table({"prompt": ["task " * 99] * 400, "completion": [f"file {n}" for n in range(400)]})
    parquet.write_table(table, path)
    (tmp_path / "folder.parquet").mkdir()  # no file
    settings = TextSettings(path=str(tmp_path))
    assert len(list(named_rows(settings, RowReport()))) == 400
    data = bytearray(path.read_bytes())
    data[40:400] = bytes(360)
    path.write_bytes(bytes(data))
    with pytest.raises(ConfigError, match="cannot be read"):
        list(named_rows(settings, RowReport()))


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
