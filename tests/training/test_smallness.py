"""A run of a model that is too small to write kernels says so at once, and a usable one says nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright.inference import starter_folder
from kernelwright.training.smallness import parameters, parameters_of, remark

TINY = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 1024,
    "intermediate_size": 128,
}


def said(tmp_path: Path, *words: str) -> str:
    """Returns the first line on stderr of a training command, then ends the command."""
    command = [sys.executable, "-m", "kernelwright", "train", *words, "--out", str(tmp_path / "out")]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    line = child.stderr.readline() + child.stderr.readline()
    child.kill()
    child.communicate()
    return line


@pytest.mark.parametrize("verb", [("sft", "cuset"), ("dpo", "dpo"), ("rl", "starter_rl")])
def test_further_training_says_it_before_anything_else(tmp_path: Path, verb: tuple[str, str]) -> None:
    """The folder holds a shape alone: what it says comes before a model is read, or found missing."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(TINY))
    line = said(tmp_path, *verb, "--set", f"model.path={model}", *(["--set", "data.path=x"] if verb[0] != "rl" else []))
    assert line.startswith("note: a model of this shape (0.14 M parameters) writes no answers that can be read")
    assert f"model.path={starter_folder()}" in line


def test_pretraining_says_it(tmp_path: Path) -> None:
    line = said(tmp_path, "pretrain", "tiny")
    assert "writes no answers that can be read" in line and "train pretrain starter" in line


def test_a_model_that_writes_kernels_is_not_remarked_on() -> None:
    count = parameters_of(starter_folder())
    assert count is not None and 20e6 < count < 30e6 and remark(count, "") is None
    assert parameters(4096, 512, 8, 128, 1536) == count


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"hidden_size": "x"}', '{"hidden_size": 1e999}', "\0"])
def test_a_config_that_tells_no_shape_is_no_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    assert parameters_of(tmp_path) is None and parameters_of(tmp_path / "none") is None
