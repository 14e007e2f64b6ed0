"""One build cache for all backend tests of a run: the precompiled header is made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelwright.machine import library


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the shared build cache. It has no results of earlier runs; our library and header are the user's."""
    folder = tmp_path_factory.mktemp("builds")
    kept = library.cache_folder() / "host"
    kept.mkdir(parents=True, exist_ok=True)
    (folder / "host").symlink_to(kept)
    return folder
