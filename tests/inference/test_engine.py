"""The engine against transformers, and one request against many: batching changes nothing but the time."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from inference.checkpoints import random_checkpoint  # noqa: E402

from kernelwright.errors import ConfigError  # noqa: E402
from kernelwright.inference import compiled  # noqa: E402
from kernelwright.inference.decoder import DecoderConfig  # noqa: E402
from kernelwright.inference.engine import Engine, Running  # noqa: E402
from kernelwright.inference.sampling import Sampling, draw  # noqa: E402

PROMPTS = [list(range(5, 5 + n)) for n in (3, 40, 17, 88, 9, 40)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_checkpoint(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="module")
def engine(folder: Path) -> Engine:
    return Engine(folder, device="cpu", rows=4, dtype="fp32", threads=1)


@pytest.mark.parametrize("bias", [True, False], ids=["qwen2", "llama"])
def test_transformers_gives_the_same_tokens_and_log_probs(tmp_path: Path, bias: bool) -> None:
    transformers = pytest.importorskip("transformers")
    folder = random_checkpoint(tmp_path, bias=bias, seed=3)
    ours = Engine(folder, device="cpu", rows=4, dtype="fp32", threads=1)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    done = ours.generate(PROMPTS, [Sampling(temperature=0, max_tokens=25)] * len(PROMPTS))
    for prompt, running in zip(PROMPTS, done, strict=True):
        with torch.no_grad():
            logits = theirs(torch.tensor([prompt + running.ids])).logits[0, len(prompt) - 1 : -1]
        logs = logits.log_softmax(-1)
        assert logs.argmax(-1).tolist() == running.ids
        assert running.log_probs == pytest.approx(logs.amax(-1).tolist(), abs=2e-4)
        assert len(running.ids) == 25 or running.ids[-1] in ours.ends


@pytest.mark.parametrize("bias", [True, False], ids=["qwen2", "llama"])
def test_compiled_steps_are_those_of_torch(tmp_path: Path, bias: bool) -> None:
    folder = random_checkpoint(tmp_path, bias=bias, seed=5)
    ours = Engine(folder, device="cpu", rows=6, dtype="fp32", threads=3)
    torchs = Engine(folder, device="cpu", rows=6, dtype="fp32", threads=1, compiled=False)
    assert ours._step is not None and torchs._step is None
    length, rows = 30, 6
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(3, 500, (rows, length), generator=generator)
    lengths = torch.tensor([30, 1, 7, 29, 16, 2])
    for engine in (ours, torchs):
        _, keys, values = engine.decoder.prefill(tokens, lengths)
        engine._cache.keys[:, :rows, :, :length], engine._cache.values[:, :rows, :, :length] = keys, values
    following = torch.randint(3, 500, (rows,), generator=generator)
    expected = torchs.decoder.step(following, lengths, torchs._cache, length + 1)
    found = ours._step(following, lengths, ours._cache)
    assert torch.allclose(found, expected, rtol=0, atol=2e-4 * float(expected.abs().max()))
    for ours_part, theirs in ((ours._cache.keys, torchs._cache.keys), (ours._cache.values, torchs._cache.values)):
        assert torch.allclose(ours_part, theirs, atol=1e-5)
    alone = ours._step(following[:1], lengths[:1], ours._cache)
    assert torch.equal(alone[0], found[0])  # to the bit, whatever runs beside it


def test_torch_steps_in_where_there_is_no_compiler(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled._library.cache_clear()
    monkeypatch.setenv("CXX", "no-such-compiler")
    engine = Engine(folder, device="cpu", rows=2, dtype="fp32", threads=1)
    compiled._library.cache_clear()
    assert engine._step is None
    assert engine.generate([PROMPTS[0]], [Sampling(0, max_tokens=3)])[0].finish_reason


def test_a_sample_does_not_depend_on_its_company(engine: Engine) -> None:
    samplings = [
        Sampling(temperature=1.0, seed=i, max_tokens=10 + 7 * i, top_p=0.9 if i % 2 else 1.0) for i in range(6)
    ]
    together = engine.generate(PROMPTS, samplings)  # six requests on four rows: two take over rows of others
    for prompt, sampling, running in zip(PROMPTS, samplings, together, strict=True):
        (alone,) = engine.generate([prompt], [sampling])
        assert alone.ids == running.ids and alone.text == running.text
        assert alone.log_probs == pytest.approx(running.log_probs, abs=1e-4)
    assert len({tuple(r.ids) for r in together}) == 6


def test_equal_prompts_with_different_seeds(engine: Engine) -> None:
    done = engine.generate([PROMPTS[1]] * 5, [Sampling(seed=i % 4, max_tokens=12) for i in range(5)])
    assert done[0].ids == done[4].ids
    assert len({tuple(r.ids) for r in done}) == 4


def test_answers_end_where_they_should(engine: Engine) -> None:
    done = engine.generate(PROMPTS, [Sampling(temperature=1.5, seed=i, max_tokens=300) for i in range(6)])
    reasons = Counter(r.finish_reason for r in done)
    assert set(reasons) <= {"stop", "length"}
    for prompt, running in zip(PROMPTS, done, strict=True):
        inner = running.ids[:-1]
        assert not engine.ends & set(inner)
        if running.finish_reason == "stop":
            assert running.ids[-1] in engine.ends
            assert running.text == engine.tokenizer.decode(inner)
        else:
            assert len(running.ids) == 300
        assert len(running.log_probs) == len(running.ids) and max(running.log_probs) <= 1e-6
        assert prompt == list(running.prompt)


def test_context_is_the_limit(engine: Engine) -> None:
    prompt = [7] * (engine.config.context - 5)
    (running,) = engine.generate([prompt], [Sampling(temperature=3.0, max_tokens=1000)])
    assert len(running.ids) <= 5
    for bad in ([], [7] * engine.config.context):
        with pytest.raises(ConfigError, match="context"):
            engine.add(bad, Sampling())


def test_stop_text_is_cut_off(engine: Engine) -> None:
    (whole,) = engine.generate([PROMPTS[2]], [Sampling(temperature=1.0, seed=5, max_tokens=40)])
    stop = whole.text[10:13]
    (cut,) = engine.generate([PROMPTS[2]], [Sampling(temperature=1.0, seed=5, max_tokens=40, stop=(stop,))])
    assert cut.finish_reason == "stop" and stop not in cut.text
    assert whole.text.startswith(cut.text) and len(cut.ids) < len(whole.ids)


def test_cancelled_request_leaves_its_row(engine: Engine) -> None:
    first = engine.add(PROMPTS[0], Sampling(max_tokens=200, temperature=0))
    second = engine.add(PROMPTS[1], Sampling(max_tokens=20, temperature=0))
    engine.step()
    first.cancelled = True
    while engine.busy:
        engine.step()
    assert first.finish_reason == "cancelled" and len(first.ids) < 5
    (again,) = engine.generate([PROMPTS[1]], [Sampling(max_tokens=20, temperature=0)])
    assert second.ids == again.ids


def test_interrupted_generate_leaves_nothing_behind(engine: Engine) -> None:
    def stop(done: int) -> None:
        raise KeyboardInterrupt

    lengths = [3, 60, 60, 60, 60, 60]
    with pytest.raises(KeyboardInterrupt):
        engine.generate(PROMPTS, [Sampling(max_tokens=n, temperature=0) for n in lengths], stop)
    assert not engine.busy


def test_draws_follow_the_distribution() -> None:
    torch.manual_seed(0)
    logits = torch.tensor([2.0, 1.0, 0.5, 0.0, -1.0, -3.0])
    n = 40_000
    rows = logits.expand(n, 6)
    uniform = torch.rand(n)

    def shares(temperature: float, top_p: float = 1.0, top_k: int = 6) -> list[float]:
        column = torch.ones(n)
        ids, logs = draw(
            rows, uniform, column * temperature, column * top_p, torch.full((n,), top_k), top_p < 1 or top_k < 6
        )
        assert torch.allclose(logs, logits.log_softmax(-1)[ids], atol=1e-6)
        return (torch.bincount(ids, minlength=6) / n).tolist()

    assert shares(1.0) == pytest.approx(logits.softmax(-1).tolist(), abs=0.01)
    assert shares(0.5) == pytest.approx((logits / 0.5).softmax(-1).tolist(), abs=0.01)
    assert shares(0.0) == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    two = logits[:2].softmax(-1).tolist()
    assert shares(1.0, top_k=2) == pytest.approx([*two, 0, 0, 0, 0], abs=0.01)
    assert shares(1.0, top_p=0.7) == pytest.approx([*two, 0, 0, 0, 0], abs=0.01)  # 0.56, then 0.21 passes 0.7
    assert shares(1.0, top_p=0.01) == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]


def test_edges_of_the_uniform_numbers_draw_tokens_that_can_be() -> None:
    logits = torch.tensor([[-1e9, 0.0, 1.0, -1e9]]).expand(2, 4)
    ones = torch.ones(2)
    for filtered in (False, True):
        ids, _ = draw(logits, torch.tensor([0.0, 1.0 - 2**-24]), ones, ones * 0.99999, torch.full((2,), 4), filtered)
        assert set(ids.tolist()) <= {1, 2}


def test_folder_that_cannot_be_used(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no config.json"):
        Engine(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "mamba"}))
    with pytest.raises(ConfigError, match="mamba"):
        DecoderConfig.read(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match="model.safetensors"):
        Engine(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"not a tensor in sight")
    with pytest.raises(ConfigError, match="cannot be read"):
        Engine(tmp_path)
    with pytest.raises(ConfigError, match="temperature"):
        Sampling(temperature=-1).checked()


@pytest.mark.gpu
def test_graphs_on_a_gpu_give_what_the_processor_gives(folder: Path, engine: Engine) -> None:
    fast = Engine(folder, device="cuda", rows=32, dtype="fp32")
    samplings = [Sampling(temperature=0, max_tokens=30) for _ in PROMPTS] * 8
    done = fast.generate(PROMPTS * 8, samplings)
    right = engine.generate(PROMPTS, samplings[:6])
    assert sum(a.ids == b.ids for a, b in zip(done, right * 8, strict=True)) >= 46
    assert isinstance(done[0], Running)
