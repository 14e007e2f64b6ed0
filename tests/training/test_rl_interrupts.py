"""Ctrl-C during `train rl`: the line that it ends with counts the step's rollouts, and no rollout is lost."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from undecided_model import rl_table  # noqa: E402

from kernelwright.training.rl.rollouts import Standing, read_rollouts  # noqa: E402
from kernelwright.training.rl.view import stopped  # noqa: E402

LINE = re.compile(r"stopped in step (\d) of 2: of 8 rollouts (\d+) finished, (\d+) in flight, (\d+) not started; (.*)")


def toml(table: dict[str, object]) -> str:
    """Writes a table of plain values and tables of plain values as TOML."""
    plain = [f"{name} = {json.dumps(value)}" for name, value in table.items() if not isinstance(value, dict)]
    for name, value in table.items():
        if isinstance(value, dict):
            plain += [f"[{name}]", *(f"{key} = {json.dumps(item)}" for key, item in value.items())]
    return "\n".join(plain) + "\n"


@pytest.mark.slow
@pytest.mark.parametrize("after", [0, 3, 8])
def test_its_last_line_counts_the_rollouts(undecided: Path, tmp_path: Path, after: int) -> None:
    shape = {"rollout": {"rollouts": 4, "turns": 2}, "judging": {"jobs": 1}}
    (tmp_path / "run.toml").write_text(toml(rl_table(undecided, **shape)))
    out = tmp_path / "out"
    command = [sys.executable, "-m", "kernelwright", "train", "rl", str(tmp_path / "run.toml"), "--out", str(out)]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    first = out / "rollouts" / "step-000000.jsonl"
    begun = out / "tasks.sha256"
    while child.poll() is None and not (begun.exists() and len(read_rollouts(first)) >= after):
        time.sleep(0.01)
    if not after:
        time.sleep(1.0)
    child.send_signal(signal.SIGINT)
    said = child.communicate(timeout=120)[1]
    assert child.returncode in (130, -signal.SIGINT) and "Traceback" not in said, said
    found = LINE.search(said)
    if found is None:
        assert not after and ("before the first rollout" in said or "interrupted" in said), said
        kept = {}
    else:
        step, finished, in_flight, left = map(int, found.groups()[:4])
        assert finished + in_flight + left == 8
        path = out / "rollouts" / f"step-{step - 1:06d}.jsonl"
        kept = read_rollouts(path)
        assert finished == len(kept), said
    again = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=240)
    assert again.returncode == 0, again.stderr
    facts = json.loads(again.stdout)
    assert (facts["steps"], facts["rollouts"]) == (2, 16)
    if found is not None:
        whole = read_rollouts(path)
        assert all(whole[key] == rows for key, rows in kept.items()), "a rollout was played again"


def test_the_line_in_words() -> None:
    assert stopped(None, 5) == "stopped before the first rollout of this session"
    assert stopped(Standing(2, 16, 9, 4), 5).startswith(
        "stopped in step 3 of 5: of 16 rollouts 9 finished, 4 in flight, 3 not started;"
    )
    assert "update is computed again" in stopped(Standing(0, 16, 16, 0), 5)
    assert "in flight" not in stopped(Standing(0, 16, 9, None), 5), "other processes play, too"
