"""The scripts that measure on a GPU, as far as they run without one: order, limits, files left by an interrupt."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import gpu_exploits
import gpu_rest
from gpu_rest import Part, Rest

BENCHMARKS = gpu_rest.HERE

WAITS = """
import signal, sys, time
def stop(*_):
    open(sys.argv[1], "w").write("what there was")
    sys.exit(9)
signal.signal(signal.SIGINT, stop)
open(sys.argv[1] + ".begun", "w")
time.sleep(100)
"""
DEAF = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(100)"


def part(name: str, code: str, *words: str, limit: float = 30.0, gpus: int = 1) -> Part:
    return Part(name, (sys.executable, "-c", code, *words), limit, gpus)


def test_parts_share_gpus_and_end_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_rest, "GRACE", 1.0)
    shows = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"
    rest = Rest(tmp_path, ["3", "5"], 60.0)
    waiting = [
        part("first", shows),
        part("second", shows),
        part("both", shows, gpus=2),
        part("late", WAITS, str(tmp_path / "late.txt"), limit=1.5),
        part("deaf", DEAF, limit=0.5),
        part("many", shows, gpus=4),
    ]
    rest.run(waiting)
    facts = json.loads((tmp_path / "facts.json").read_text())["parts"]
    assert {(tmp_path / f"{name}.log").read_text().strip() for name in ("first", "second")} == {"3", "5"}
    assert sorted((tmp_path / "both.log").read_text().strip().split(",")) == ["3", "5"]
    assert facts["many"] == {"skipped": "it wants 4 GPUs"}
    assert (facts["late"]["exit"], facts["late"]["cut"]) == (9, True)
    assert (tmp_path / "late.txt").read_text() == "what there was"
    assert facts["deaf"]["exit"] == -signal.SIGKILL and facts["deaf"]["seconds"] < 10
    assert not any(one.get("running") for one in facts.values())


def test_what_has_no_time_left_is_said(tmp_path: Path) -> None:
    rest = Rest(tmp_path, ["0"], gpu_rest.GRACE + 5)
    rest.run([part("one", "pass")])
    assert rest.facts["parts"]["one"] == {"skipped": "no time was left"}


def test_a_cut_lets_parts_write_what_they_have(tmp_path: Path) -> None:
    driver = f"""
import signal, sys
from pathlib import Path
sys.path[:0] = [{str(BENCHMARKS)!r}]
import gpu_rest
signal.signal(signal.SIGTERM, signal.default_int_handler)
words = (sys.executable, "-c", {WAITS!r}, {str(tmp_path / "kept")!r})
gpu_rest.Rest(Path({str(tmp_path)!r}), ["0"], 90.0).run([gpu_rest.Part("waits", words, 80.0)])
"""
    process = subprocess.Popen([sys.executable, "-c", driver], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (tmp_path / "kept.begun").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    process.wait(30)
    assert (tmp_path / "kept").read_text() == "what there was"
    assert json.loads((tmp_path / "facts.json").read_text())["parts"]["waits"]["exit"] == 9


def test_every_part_is_a_script_that_there_is(tmp_path: Path) -> None:
    for dry in (True, False):
        made = gpu_rest.parts(tmp_path, dry)
        scripts = [word for one in made for word in one.command if word.endswith(".py")]
        assert all(Path(word).exists() for word in scripts) and len(scripts) >= 5
        assert {one.name for one in made} == {"tests", "corpus", "faults", "exploits", "triton", "pair"}
    whole = next(one for one in gpu_rest.parts(tmp_path, False) if one.name == "tests")
    assert f"--junitxml={tmp_path}/tests.xml" in whole.command and str(gpu_rest.TESTS) in whole.command


def test_builds_without_end_come_last() -> None:
    order = gpu_exploits.left(set(), "", False)
    assert order[-1].endless_build and not any(e.endless_build for e in order[:-1])
    assert len(order) > 200
    known = {e.name for e in order[:100]}
    assert [e.name for e in gpu_exploits.left(known, "", False)] == [e.name for e in order[100:]]
    assert all(e.where == "both" for e in gpu_exploits.left(set(), "B73", True))
