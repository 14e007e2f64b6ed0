"""The one-file examples, run as a reader would run them: they must give the results that they promise."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.runs.store import Store

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


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("--help",), 0, "usage: "),
        (("many",), 2, "error: 'many'"),
        (("-3",), 2, "error: '-3'"),
        (("0",), 2, "error: '0'"),
        (("2", "3"), 2, "error: '2 3'"),
    ],
)
def test_its_words_are_looked_at(words: tuple[str, ...], status: int, said: str) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "rl_loop.py"), *words], capture_output=True, text=True, timeout=120
    )
    shown = done.stdout + done.stderr
    assert done.returncode == status and shown.startswith(said) and shown.count("\n") == 1, shown


SHIM = """#!/bin/sh
[ "$1" != optimize ] || [ -z "{listed}" ] || exec echo "asked: $*"
exec {python} -m kernelwright.cli "$@"
"""


def search(folder: Path, starter: Path, *, listed: str = "") -> str:
    """Returns the output of examples/search.sh with a checkpoint's folder as the starter. `listed`: no search."""
    shim = folder / "kernelwright"
    shim.write_text(SHIM.format(python=sys.executable, listed=listed))
    shim.chmod(0o755)
    more = {"PATH": f"{folder}:{os.environ['PATH']}", "KERNELWRIGHT_STARTER": str(starter), "OMP_NUM_THREADS": "1"}
    more |= {"KERNELWRIGHT_MAX_TOKENS": "20", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = ["bash", str(EXAMPLES / "search.sh"), "bias_gelu", str(folder / "run")]
    done = subprocess.run(command, env={**os.environ, **more}, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_search_takes_the_starter_where_there_is_one(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    from inference.checkpoints import random_checkpoint

    printed = search(tmp_path, random_checkpoint(tmp_path / "starter", context=2048))
    assert "--policy starter" in printed and "found none in four tries" in printed  # as it is a random one
    with Store.open(tmp_path / "run" / "search", writable=False) as store:
        assert sum(map(len, store.turns().values())) == 4
    assert "class ModelNew" in (tmp_path / "run" / "search-template" / "best.py").read_text()


def test_the_search_takes_the_templates_where_there_is_no_starter(tmp_path: Path) -> None:
    printed = search(tmp_path, tmp_path / "nothing", listed="yes")
    assert "no starter model" in printed and printed.count("asked: optimize bias_gelu --policy template") == 1


@pytest.mark.parametrize(("name", "limit"), [("sft_cuset", 200), ("rl_loop", 275)])
def test_they_stay_short(name: str, limit: int) -> None:
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) <= limit
