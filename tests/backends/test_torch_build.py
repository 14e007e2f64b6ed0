"""Builds by torch's own load_inline. They cover host code only, since there is no nvcc here."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from kernelwright.backends import torch_build
from kernelwright.backends.build import build_by_torch
from kernelwright.builds import BuildRequest, BuildResult
from kernelwright.config import cache_dir

SOURCE = "#include <torch/extension.h>\ntorch::Tensor twice(torch::Tensor x) {{ return x + x; }} // {}\n"


def request(number: int, source: str = SOURCE) -> BuildRequest:
    return BuildRequest(
        kind="extension", name="twice", cpp_source=source.format(number), functions=("twice",), arch="sm_90a"
    )


@pytest.fixture
def folder() -> Iterator[Path]:
    """Returns a folder beside the builds of all other tests, so that the headers, which take a minute, compile once."""
    made = cache_dir() / "builds" / f"test-{os.getpid()}"
    yield made
    for path in made.parent.glob(f"{made.name}-*"):
        shutil.rmtree(path)


@pytest.mark.skipif(shutil.which("ninja") is None, reason="torch builds extensions with ninja, which is not installed")
def test_headers_are_compiled_once_and_the_library_works(folder: Path) -> None:
    first, other = Path(f"{folder}-a"), Path(f"{folder}-b")
    broken = torch_build.build(request(1, "torch::Tensor twice(torch::Tensor x) {{ return y; }}"), first)
    assert broken is not None and broken.status == "compile_error" and "y" in broken.log
    (taken,) = re.findall(r"-include (\S+)", (first / "build.ninja").read_text())
    header = Path(f"{taken}.gch")
    assert folder.parent / "torch-headers" in header.parents and header.stat().st_size > 1 << 20
    made = header.stat().st_mtime_ns
    second = torch_build.build(request(2), other)
    assert second is not None and second.status == "ok" and second.built_by == "load_inline", second
    assert header.stat().st_mtime_ns == made
    assert f"-include {taken}" in (other / "build.ninja").read_text()
    script = (
        "import importlib.util as u, sys, torch; s = u.spec_from_file_location('twice', sys.argv[1]); "
        "m = u.module_from_spec(s); s.loader.exec_module(m); print(m.twice(torch.ones(2)).tolist())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, second.library or ""], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[2.0, 2.0]"


@pytest.mark.skipif(shutil.which("ninja") is None, reason="torch builds extensions with ninja, which is not installed")
def test_a_build_that_was_ended_does_not_hold_up_the_next(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch marks a folder in which it builds by a lock file, and waits until it is removed."""
    monkeypatch.setattr(torch_build, "SECONDS", 100.0)
    place = Path(f"{folder}-ended")
    place.mkdir(parents=True)
    (place / "lock").touch()
    made = torch_build.build(request(4), place)
    assert made is not None and made.status == "ok"


def test_no_more_builds_at_a_time_than_memory_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    available = psutil.virtual_memory()._replace(available=torch_build.BUILD_BYTES // 2)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: available)
    entered = threading.Event()

    def enter() -> None:
        with torch_build._room(tmp_path):
            entered.set()

    with open(tmp_path / "place-0", "w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        thread = threading.Thread(target=enter)
        thread.start()
        assert not entered.wait(0.5), "the only place is taken"
        fcntl.flock(other, fcntl.LOCK_UN)
        assert entered.wait(5)
        thread.join(5)


@pytest.mark.skipif(shutil.which("ninja") is None, reason="torch builds extensions with ninja, which is not installed")
def test_a_build_that_takes_too_long_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may be the only cause; no process of the build survives."""
    monkeypatch.setattr(torch_build, "SECONDS", 1.0)
    before = set(psutil.Process().children(recursive=True))
    for _ in range(2):
        result = build_by_torch(request(3), tmp_path, BuildResult("unsupported"))
        assert result.status == "compile_error" and "did not finish" in result.log
    assert not list((tmp_path / "builds").glob("*.json"))
    (folder,) = (p.parent for p in (tmp_path / "builds").glob("*/request.json"))
    (folder / "headers").touch()  # as a build leaves it that was ended while it made them
    monkeypatch.setattr(torch_build, "HEADER_SECONDS", 600.0)
    monkeypatch.setattr(torch_build, "_SCRIPT", "import time; time.sleep(60)")
    assert "did not finish" in build_by_torch(request(3), tmp_path, BuildResult("unsupported")).log
    assert not {p for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE} - before
