"""Ctrl-C in `train sft`: no update is lost, and the same command resumes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tiny_model import log, make_home, settings, settings_table, weights

from kernelwright.training.fine_tune.merging import write_model
from kernelwright.training.fine_tune.sft import train_sft


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_home(tmp_path_factory.mktemp("home"))


STEPS = 16


def begin(home: Path, out: Path) -> subprocess.Popen[str]:
    table = settings_table(home, steps=STEPS, save_every=1000)
    (home / "settings.json").write_text(json.dumps(table))
    code = (
        "import json, pathlib, signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from kernelwright.training.fine_tune.settings import SftSettings\n"
        "from kernelwright.training.fine_tune.sft import train_sft\n"
        f"table = json.loads(pathlib.Path({str(home / 'settings.json')!r}).read_text())\n"
        f"try:\n    train_sft(SftSettings.model_validate(table), pathlib.Path({str(out)!r}))\n"
        "except KeyboardInterrupt:\n    sys.exit(130)\n"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, env=environment)


def test_ctrl_c_keeps_the_update_and_the_run_goes_on(home: Path, tmp_path: Path) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    child = begin(home, stopped)
    deadline = time.monotonic() + 120
    while not (stopped / "log.jsonl").is_file() or len(log(stopped)) < 3:
        assert child.poll() is None and time.monotonic() < deadline, child.communicate()[1]
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    said = child.communicate(timeout=120)[1]
    assert child.returncode == 130 and "which is kept" in said and "Traceback" not in said, said
    done = [int(p.name.rpartition("-")[2]) for p in (stopped / "checkpoints").glob("checkpoint-*")]
    assert len(done) == 1 and 3 <= done[0] < STEPS and not (stopped / "training.json").exists()
    assert begin(home, stopped).wait(timeout=240) == 0
    train_sft(settings(home, steps=STEPS, save_every=1000), whole)
    assert [row["step"] for row in log(stopped)] == list(range(1, STEPS + 1))
    assert [r["loss"] for r in log(stopped)] == pytest.approx([r["loss"] for r in log(whole)], rel=1e-4)


def test_a_tied_head_is_written_once_even_where_weights_were_gathered(home: Path, tmp_path: Path) -> None:
    """Gathered shards are copies, so that the head no longer shares memory with the embedding."""
    import torch
    from accelerate import Accelerator
    from transformers import AutoModelForCausalLM

    class Gathering(Accelerator):
        def get_state_dict(self, model: torch.nn.Module, unwrap: bool = True) -> dict[str, torch.Tensor]:
            return {name: tensor.clone() for name, tensor in model.state_dict().items()}

    class Trained:
        model = model_wrapped = AutoModelForCausalLM.from_pretrained(home / "base")
        accelerator = Gathering(cpu=True)

        @staticmethod
        def is_world_process_zero() -> bool:
            return True

    write_model(Trained, tmp_path)
    assert set(weights(tmp_path)) == set(weights(home / "base")) and "lm_head.weight" not in weights(tmp_path)
    again, tokens = AutoModelForCausalLM.from_pretrained(tmp_path), torch.arange(12)[None]
    assert torch.equal(again(tokens).logits, Trained.model(tokens).logits)
