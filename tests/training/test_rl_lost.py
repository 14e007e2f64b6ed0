"""A GPU fault of a candidate loses the policy's work; simulated by a step that never ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

sys.path.insert(0, str(Path(__file__).parent))

from undecided_model import rl_table  # noqa: E402

from kernelwright.training.rl import rollouts  # noqa: E402

LOST = """
import json, sys, time
from pathlib import Path
from kernelwright.evaluation.processes.gpu_faults import Faults
from kernelwright.executor import load_executor
from kernelwright.training.rl import rollouts as rl_rollouts
from kernelwright.training.ranks import Ranks
from kernelwright.training.rl.loop import load_tasks
from kernelwright.training.rl.settings import RlSettings
from kernelwright.training.rl.state import State
wanted, out = RlSettings.model_validate(json.loads(sys.argv[1])), Path(sys.argv[2])
rl_rollouts.WATCH_SECONDS, rl_rollouts.LOST_SECONDS = 0.1, 0.5
policy, faults = State.open(wanted, out / "none", Ranks()).policy, Faults(out / "gpu-0.fault")
rl_rollouts.faults_of = lambda _: faults
def step():
    print("begun", flush=True)
    if sys.argv[3] == "fault":
        faults.note()
    time.sleep(3)
    if sys.argv[3] == "fault":
        time.sleep(600)
    raise RuntimeError("slow, and not lost")
policy.engine.step = step
with load_executor("local", 1, "cpu") as judges:
    rl_rollouts.Rollouts(wanted, policy, judges).play(0, dict(enumerate(load_tasks(wanted.tasks))), out / "step.jsonl")
"""


@pytest.mark.parametrize("fault", ["fault", "none"])
def test_a_run_that_would_wait_for_ever_ends_and_says_so(undecided: Path, tmp_path: Path, fault: str) -> None:
    words = [sys.executable, "-c", LOST, json.dumps(rl_table(undecided)), str(tmp_path), fault]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    said = "error: the GPU has lost the policy's work"
    assert "begun" in done.stdout and (said in done.stderr) == (fault == "fault"), done.stderr
    assert ("hint: give the same command again" in done.stderr) == (fault == "fault")
    assert done.returncode == (3 if fault == "fault" else 1)


def test_faults_are_those_of_the_card_that_the_back_end_computes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollouts, "visible_gpus", lambda: ("3", "GPU-7"))
    for device, name in (("cuda", "gpu-3.fault"), ("cuda:1", "gpu-GPU-7.fault")):
        faults = rollouts.faults_of(SimpleNamespace(device=torch.device(device)))
        assert faults is not None and faults._path.name == name
    assert rollouts.faults_of(SimpleNamespace(device=torch.device("cpu"))) is None
    assert rollouts.faults_of(None) is None
