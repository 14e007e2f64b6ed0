"""No command writes into what another kind of command made."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kernelwright import folders
from kernelwright.errors import StoreError
from kernelwright.folders import KINDS, claim, full
from kernelwright.store import Store


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
