"""Saved states of a run on a full disk."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from kernelwright.errors import StoreError  # noqa: E402
from kernelwright.runs import folders  # noqa: E402
from kernelwright.training.checkpoint import load_state, save_state  # noqa: E402


def test_torchs_words_for_a_full_disk_are_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.pt"
    save_state(path, {"step": 1})

    def fails(state: object, to: Path) -> None:
        to.write_bytes(b"a part")
        raise RuntimeError("[enforce fail at inline_container.cc:603] . unexpected pos 1024 vs 918")

    monkeypatch.setattr(torch, "save", fails)
    with pytest.raises(StoreError, match="enforce fail"):  # the disk has room, so the cause is unknown
        save_state(path, {"step": 2})
    monkeypatch.setattr(folders, "LITTLE", 1 << 60)  # as if nothing were left
    with pytest.raises(StoreError, match="cannot be written: No space left on device") as error:
        save_state(path, {"step": 2})
    assert "free some space" in str(error.value.hint) and "enforce" not in str(error.value)
    assert load_state(path) == {"step": 1} and [p.name for p in tmp_path.iterdir()] == ["state.pt"]


@pytest.mark.parametrize("content", [b"", b"x", b"PK\x03\x04"])
def test_a_damaged_state_is_named_in_a_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "state.pt"
    path.write_bytes(content)
    with pytest.raises(StoreError, match="state.pt' is damaged") as error:
        load_state(path)
    assert "\n" not in str(error.value) and "remove it" in str(error.value.hint)
    torch.save([1], path)
    with pytest.raises(StoreError, match="state.pt' is damaged"):
        load_state(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(StoreError, match="cannot be read: Is a directory"):
        load_state(path)
