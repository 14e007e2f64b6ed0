"""benchmarks/device_starter.py: existing results come back in pieces of bounded size, even if a step hangs."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import pieces  # noqa: E402


def test_pieces_are_put_together_again(tmp_path: Path) -> None:
    root, noise = tmp_path / "root", random.Random(0).randbytes(101_000)
    (root / "a").mkdir(parents=True)
    (root / "a" / "weights").write_bytes(noise)
    with sqlite3.connect(root / "a" / "run.sqlite") as base:
        base.execute("PRAGMA journal_mode=WAL")
        base.execute("CREATE TABLE t (x)")
        base.execute("INSERT INTO t VALUES (7)")
    files = [path for path in root.rglob("*") if path.is_file()]
    made, problem = pieces.pack(root, files, tmp_path / "out", "all", 1 << 30, 100_000)
    base.close()
    assert len(made) == 2 and not problem and all(path.stat().st_size <= 100_000 for path in made)
    assert pieces.unpack(tmp_path / "out", tmp_path / "back") == ["all.tar.xz"]
    assert (tmp_path / "back" / "a" / "weights").read_bytes() == noise
    assert sqlite3.connect(tmp_path / "back" / "a" / "run.sqlite").execute("SELECT x FROM t").fetchall() == [(7,)]
    shell = "cat out/all.tar.xz.* | tar xJ -O a/weights | cmp - root/a/weights"
    assert subprocess.run(["bash", "-c", shell], cwd=tmp_path).returncode == 0
    small, why = pieces.pack(root, files[:1], tmp_path / "out", "all", 10)
    assert not small and "there is room for 10" in why


HANGING = """
import sys, threading, time
from pathlib import Path
import device_starter
work, out = map(Path, sys.argv[1:])
work.mkdir()
(work / "models" / "m").mkdir(parents=True)
(work / "models" / "m" / "model.safetensors").write_bytes(b"weights")
call = device_starter.Call(work, out, device_starter.GUARD + 3.0, ["m"])
threading.Thread(target=device_starter.guard, args=(call,), daemon=True).start()
deaf = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('begun', flush=True); time.sleep(600)"
call.start("deaf", ["-c", deaf], 600.0, None)
time.sleep(600)
"""


def test_the_guard_hands_back_what_there_is(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(BENCHMARKS), *sys.path])}
    began = time.monotonic()
    line = [sys.executable, "-c", HANGING, str(tmp_path / "work"), str(tmp_path / "out")]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "at the guard time" in done.stderr, done.stderr
    assert time.monotonic() - began < 40
    assert pieces.unpack(tmp_path / "out", tmp_path / "back") == ["m.tar.xz", "results.tar.xz"]
    assert (tmp_path / "back" / "models" / "m" / "model.safetensors").read_bytes() == b"weights"
    facts = json.loads((tmp_path / "back" / "device_starter.json").read_text())["calls"][0]
    assert facts["parts"][0] | {"limit": 0, "seconds": 0} == {"name": "deaf", "limit": 0, "status": "cut", "seconds": 0}
    assert facts["notes"] == ["the guard ended this call"]
    assert (tmp_path / "back" / "logs" / "deaf.log").read_text() == "begun\n"
