"""The size of a checkout: no large file except the starter model's weights, and a bound on the sum."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
WEIGHTS = "src/kernelwright/data/starter/model.safetensors"
MOST_BYTES_A_FILE = 5_000_000
MOST_BYTES_OF_WEIGHTS = 28_000_000
MOST_BYTES = 45_000_000


@pytest.fixture(scope="module")
def sizes() -> dict[str, int]:
    """Returns the bytes of every tracked file."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("this copy is no checkout")
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {name: (ROOT / name).lstat().st_size for name in names.split("\0") if name and (ROOT / name).exists()}


def test_no_tracked_file_is_large(sizes: dict[str, int]) -> None:
    assert sizes[WEIGHTS] <= MOST_BYTES_OF_WEIGHTS
    assert {name: size for name, size in sizes.items() if size > MOST_BYTES_A_FILE} == {WEIGHTS: sizes[WEIGHTS]}


def test_the_checkout_is_small(sizes: dict[str, int]) -> None:
    assert sum(sizes.values()) <= MOST_BYTES, sorted(sizes.items(), key=lambda item: -item[1])[:10]
