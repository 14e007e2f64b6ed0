"""Fixtures shared by the tests of fine-tuning: one tiny model for all of them."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets a separate cache folder for the tests."""
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with a tiny random Qwen2 in `base` and rows in `rows.jsonl`."""
    pytest.importorskip("trl")
    from tiny_model import make_home

    return make_home(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="session")
def undecided(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with two tasks, and a model that answers either task with either kernel."""
    pytest.importorskip("trl")
    from undecided_model import make_undecided

    return make_undecided(tmp_path_factory.mktemp("undecided"))
