"""Runs in several processes: all end, whichever of them fails.

`test_sft.test_the_command_line` compares their numbers with one process.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tiny_model import log, settings_table, weights

from kernelwright.errors import ConfigError, KernelwrightError, WorkerDied
from kernelwright.evaluation.options import gpu_count
from kernelwright.training.fine_tune.settings import SftSettings
from kernelwright.training.processes import launch, train_in_processes

TWO = Path(__file__).with_name("two_processes.py")
CHILD = """
import os, signal, sys, time
from pathlib import Path
from kernelwright.errors import ConfigError
from kernelwright.training.processes import child

rank = int(os.environ["RANK"])
here = Path(sys.argv[1])


def work():
    (here / f"pid-{rank}").write_text(str(os.getpid()))
    while not (here / "pid-0").exists() or not (here / "pid-1").exists():
        time.sleep(0.01)
    CODE


child(here, work)
"""


def light(folder: Path, code: str) -> list[str]:
    """Returns a command whose processes load no torch, and run `code` when both are present."""
    return [sys.executable, "-c", CHILD.replace("CODE", code), str(folder)]


def gone(folder: Path) -> bool:
    """Tells whether both processes have ended."""
    pids = [int((folder / f"pid-{rank}").read_text()) for rank in (0, 1)]
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.parametrize(
    ("code", "kind", "match"),
    [
        ("if rank == 1: raise ConfigError('no such thing', hint='name another')\n    time.sleep(60)", None, "no such"),
        ("time.sleep(0.3 * rank); raise ConfigError(f'rank {rank} has it')", None, "rank 0 has it"),
        ("if rank == 1: os.kill(os.getpid(), signal.SIGKILL)\n    time.sleep(60)", WorkerDied, "killed by signal 9"),
        ("if rank == 0: 1 / 0\n    time.sleep(60)", None, "unexpected ZeroDivisionError"),
    ],
)
def test_one_that_fails_ends_all_and_is_told_once(tmp_path: Path, code: str, kind: Any, match: str) -> None:
    began = time.monotonic()
    with pytest.raises(kind or KernelwrightError, match=match) as raised:
        launch(light(tmp_path, code), tmp_path, 2)
    assert time.monotonic() - began < 30 and gone(tmp_path)
    if match == "no such":
        assert raised.value.hint == "name another" and raised.value.exit_status == 2


def test_ctrl_c_and_the_parents_death_end_all(tmp_path: Path) -> None:
    for sign in (signal.SIGINT, signal.SIGKILL):
        folder = tmp_path / sign.name
        folder.mkdir()
        command = light(folder, "time.sleep(60)")
        code = f"import pathlib; from kernelwright.training.processes import launch; launch({command!r}, "
        parent = subprocess.Popen(
            [sys.executable, "-c", code + f"pathlib.Path({str(folder)!r}), 2)"], stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 60
        while not all((folder / f"pid-{rank}").exists() for rank in (0, 1)) and time.monotonic() < deadline:
            time.sleep(0.02)
        parent.send_signal(sign)
        assert parent.wait(timeout=30) != 0
        while not gone(folder) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert gone(folder), sign


def test_a_batch_that_does_not_divide_starts_nothing(home: Path, tmp_path: Path) -> None:
    wanted = SftSettings.model_validate(settings_table(home, batch=4, micro_batch=4))
    with pytest.raises(ConfigError, match="2 processes"):
        train_in_processes("sft", wanted, tmp_path / "run", 2)
    assert not (tmp_path / "run").exists()
    sharded = SftSettings.model_validate(settings_table(home, fsdp="full"))
    with pytest.raises(ConfigError, match="needs GPUs"):
        train_in_processes("sft", sharded, tmp_path / "run", 2)


@pytest.mark.gpu
@pytest.mark.parametrize(("kind", "tune"), [("full", "full"), ("gradients", "full"), ("full", "lora")])
def test_a_sharded_run_is_that_of_two_whole_processes(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, tune: str
) -> None:
    """Losses and weights are equal, and the saved model is whole."""
    import torch

    if gpu_count() < 2:
        pytest.skip("needs two GPUs")
    monkeypatch.setenv("KERNELWRIGHT_BACKEND", "gpu")  # the tests' default is cpu
    for name, fsdp in (("whole", "no"), ("sharded", kind)):
        table = settings_table(home, model={"tune": tune}, fsdp=fsdp, precision="fp32", save_every=1)
        train_in_processes("sft", SftSettings.model_validate(table), tmp_path / name, 2)
    first, second = ([row["loss"] for row in log(tmp_path / name)] for name in ("whole", "sharded"))
    assert second == pytest.approx(first, rel=1e-3)
    whole, sharded = weights(tmp_path / "whole"), weights(tmp_path / "sharded")
    assert set(whole) == set(sharded)
    for name, values in whole.items():
        assert torch.allclose(sharded[name].float(), values.float(), atol=2e-3), name
