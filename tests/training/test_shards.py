"""Making shards in processes: what fails ends the whole at once, and what was made is kept."""

from __future__ import annotations

import time
from multiprocessing import active_children
from pathlib import Path

import pytest

pytest.importorskip("tokenizers")

from failing_source import Failing

from kernelwright.training.shards import make_shards
from kernelwright.training.tokenizer import save_tokenizer, train_tokenizer


def test_a_failure_ends_it_without_making_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    save_tokenizer(train_tokenizer(["task", "answer"], 300), tmp_path, 64)
    done: list[int] = []
    began = time.monotonic()
    with pytest.raises(AssertionError, match="second shard"):
        make_shards(tmp_path / "shards", 400, Failing(0.5), tmp_path, 2, lambda shards, *_: done.append(shards))
    for child in active_children():
        child.join(20)
    assert active_children() == []
    assert time.monotonic() - began < 60  # all of them would take 100 s, and longer to start
    assert len(list((tmp_path / "shards").glob("*.pairs.npy"))) < 20
