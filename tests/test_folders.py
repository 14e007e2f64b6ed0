"""No command writes into a folder that another kind of command created."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kernelwright.errors import StoreError
from kernelwright.runs import folders
from kernelwright.runs.folders import KINDS, check_replaceable, claim, full, write_text
from kernelwright.runs.store import Store


@pytest.mark.parametrize("mark", KINDS)
def test_a_folder_of_another_kind_is_refused(tmp_path: Path, mark: str) -> None:
    (tmp_path / mark).write_text("{}", encoding="utf-8")
    with pytest.raises(StoreError, match=KINDS[mark]):
        claim(tmp_path)
    claim(tmp_path, mark)
    assert [p.name for p in tmp_path.iterdir()] == [mark]


def test_new_and_unknown_folders_are_free(tmp_path: Path) -> None:
    claim(tmp_path / "none")
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    claim(tmp_path)


def test_a_run_is_not_made_in_a_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(StoreError, match="holds a model"):
        Store.create(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["config.json"]


def test_a_full_disk_is_told_from_other_troubles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert full(tmp_path, OSError(errno.ENOSPC, "No space left on device"))
    assert not full(tmp_path, OSError(errno.EACCES, "Permission denied"))
    assert not full(tmp_path, RuntimeError("[enforce fail at inline_container.cc:603]"))
    assert not full(tmp_path / "none", RuntimeError("[enforce fail at inline_container.cc:603]"))
    monkeypatch.setattr(folders, "LITTLE", 1 << 60)  # as if nothing were left
    assert full(tmp_path, RuntimeError("[enforce fail at inline_container.cc:603]"))
    assert not full(tmp_path, OSError(errno.EACCES, "Permission denied"))


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    wanted = tmp_path / "new" / "a.py"
    write_text(wanted, "one\n")
    link = tmp_path / "link.py"
    link.symlink_to(wanted)
    write_text(link, "two \ud800\n")
    assert wanted.read_text(encoding="utf-8") == "two ?\n" and link.is_symlink()
    assert [p.name for p in wanted.parent.iterdir()] == ["a.py"]


def test_what_is_no_file_is_not_replaced_by_one(tmp_path: Path) -> None:
    """A user who may rename in /dev would have replaced /dev/null by a file."""
    (tmp_path / "folder").mkdir()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_text(pipe, "through\n")
    assert os.read(reader, 100) == b"through\n" and pipe.is_fifo()
    os.close(reader)
    with pytest.raises(StoreError, match="folder"):
        write_text(tmp_path / "folder", "text")
    with pytest.raises(StoreError, match="No space left"):
        write_text(Path("/dev/full"), "text")
    for name in ("folder", "pipe"):
        with pytest.raises(StoreError, match="regular file"):
            check_replaceable(tmp_path / name)
    check_replaceable(tmp_path / "none")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "pipe"]
