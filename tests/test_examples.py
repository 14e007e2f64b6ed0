"""The one-file examples, run as a reader would run them: what they promise must come out."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_cuset_example(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers")
    curve = load("sft_cuset").main(steps=16)
    assert sum(curve[-4:]) / 4 < 0.75 * curve[0]
    printed = capsys.readouterr().out
    assert "confidence in the hardest window" in printed and "__global__ void" in printed
    lines = [line.split() for line in printed.splitlines() if "__global__ void" in line]
    weights = [float(words[1 + (words[0] == ">")]) for words in lines]
    assert weights and all(weight > 0.5 for weight in weights)


def test_reinforcement_learning_example() -> None:
    command = [sys.executable, str(EXAMPLES / "rl_loop.py"), "20"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    rewards = [float(line.split("first turns ")[1].split()[0]) for line in done.stdout.splitlines() if "step" in line]
    assert rewards[-1] > max(rewards[0], 0.0) + 0.1
    assert rewards[-1] >= 0.2
    for name in ("relu: correct", "square: correct"):
        assert name in done.stdout


@pytest.mark.parametrize(("name", "limit"), [("sft_cuset", 200), ("rl_loop", 275)])
def test_they_stay_short(name: str, limit: int) -> None:
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) <= limit
