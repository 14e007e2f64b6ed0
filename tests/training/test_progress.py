"""Files of a run: partial lines of a killed process, damaged lines, and a full disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelwright.errors import StoreError
from kernelwright.training.pretrain.progress import Log, LoggedStep, read_log

ROWS = [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}]
TEXT = "".join(json.dumps(row) + "\n" for row in ROWS)


def test_a_log_goes_on_where_it_was_and_is_rewritten_only_where_it_must(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(TEXT)
    before = path.stat().st_ino
    Log(path, 2).add({"step": 3})
    assert read_log(path) == [*ROWS, {"step": 3}] and path.stat().st_ino == before
    Log(path, 1)
    assert read_log(path) == ROWS[:1] and path.stat().st_ino != before
    assert [p.name for p in tmp_path.iterdir()] == ["log.jsonl"]


@pytest.mark.parametrize("torn", ['{"step": 3', "é".encode()[:1].decode("latin-1"), "["])
def test_a_torn_last_line_is_left_out(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(TEXT.encode() + torn.encode("latin-1"))
    assert read_log(path) == ROWS
    Log(path, 9)
    assert path.read_text() == TEXT


@pytest.mark.parametrize(
    "line", [b"[]", b"7", b'{"a": 1}', b'{"step": "2"}', b'{"step": null}', b"\xff\xfe", b'{"step": 1', b"null"]
)
def test_a_damaged_line_is_named(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(json.dumps(ROWS[0]).encode() + b"\n" + line + b"\n" + json.dumps(ROWS[1]).encode() + b"\n")
    with pytest.raises(StoreError, match=r"line 2 of .*log.jsonl"):
        read_log(path, LoggedStep)
    with pytest.raises(StoreError, match="line 2"):
        Log(path, 2)


def test_a_full_disk_is_an_error_of_the_run(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl", 0)
    log.path = Path("/dev/full")
    with pytest.raises(StoreError, match="No space left"):
        log.add({"step": 1})
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        Log(tmp_path / "file" / "log.jsonl", 0)
