"""Generation back-ends on tiny models: the same samples as our engine's, log-probabilities against a plain forward."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from inference.checkpoints import random_checkpoint  # noqa: E402

from kernelwright.errors import ConfigError, PolicyError  # noqa: E402
from kernelwright.generation import GenerationBackend, load_backend  # noqa: E402
from kernelwright.generation.hub import HubTokenizer, load_tokenizer  # noqa: E402
from kernelwright.generation.transformers_backend import TransformersBackend  # noqa: E402
from kernelwright.inference.engine import Engine, Running  # noqa: E402
from kernelwright.inference.sampling import Sampling  # noqa: E402
from kernelwright.inference.tokenizer import ChatTokenizer  # noqa: E402
from kernelwright.policies import load_policy  # noqa: E402
from kernelwright.records import Message  # noqa: E402

CONTEXT = 160


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a Llama whose generation settings ask for a penalty, which no back-end may apply."""
    made = random_checkpoint(tmp_path_factory.mktemp("checkpoint"), context=CONTEXT)
    path = made / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "repetition_penalty": 5.0, "top_k": 2}))
    return made


@pytest.fixture(scope="module")
def engine(folder: Path) -> Engine:
    return Engine(folder, device="cpu", dtype="fp32", threads=1, tempered=True)


@pytest.fixture(scope="module")
def plain(folder: Path) -> TransformersBackend:
    made = load_backend("transformers", str(folder), threads=1, tempered=True)
    assert isinstance(made, TransformersBackend)
    made.continuous = False
    return made


def prompts(backend: GenerationBackend, count: int) -> list[list[int]]:
    return [backend.tokenizer.prompt([Message(role="user", content="x = 1\n" * (n + 1))]) for n in range(count)]


def forward(model: object, prompt: Sequence[int], ids: Sequence[int], temperature: float) -> list[float]:
    """Returns the log-probabilities of an answer from one forward pass over all of it."""
    with torch.no_grad():
        tokens = torch.tensor([[*prompt, *ids]], device=model.device)  # type: ignore[attr-defined]
        logits = model(tokens).logits[0].float()  # type: ignore[operator]
    log_probs = (logits / temperature).log_softmax(-1)[len(prompt) - 1 : -1].cpu()
    return [float(log_probs[n, token]) for n, token in enumerate(ids)]


def same(found: Sequence[Running], wanted: Sequence[Running]) -> bool:
    return [(r.ids, r.text, r.finish_reason) for r in found] == [(r.ids, r.text, r.finish_reason) for r in wanted]


def test_generate_draws_what_our_engine_draws(engine: Engine, plain: TransformersBackend) -> None:
    """It covers greedy and filtered sampling, prompts of several lengths in a batch, ends by length and by context."""
    asked = prompts(plain, 6)
    assert asked == prompts(engine, 6) and (plain.context, plain.ends) == (CONTEXT, engine.ends)
    how = [
        Sampling(temperature, top_p, max_tokens=tokens, seed=seed)
        for seed, (temperature, top_p, tokens) in enumerate(
            [(0.0, 1.0, 20), (0.7, 1.0, 20), (1.3, 1.0, 7), (0.9, 0.6, 20), (1.0, 1.0, 999), (0.0, 1.0, 1)]
        )
    ]
    found, wanted = plain.generate(asked, how), engine.generate(asked, how)
    assert same(found, wanted)
    assert [len(r.ids) for r in found[:4]] == [20, 20, 7, 20] or any(r.finish_reason == "stop" for r in found)
    for running, sampling in zip(found, how, strict=True):
        if sampling.temperature and sampling.top_p == 1:
            expected = forward(plain.model, running.prompt, running.ids, sampling.temperature)
            assert running.log_probs == pytest.approx(expected, abs=1e-4)
    assert not plain.busy


def test_an_answer_ends_at_its_token(plain: TransformersBackend) -> None:
    (prompt,) = prompts(plain, 1)
    seen = plain.generate([prompt], [Sampling(0.0, max_tokens=8)])[0].ids
    ends, plain.ends = plain.ends, frozenset({seen[3]})
    try:
        (running,) = plain.generate([prompt], [Sampling(0.0, max_tokens=8)])
    finally:
        plain.ends = ends
    first = seen.index(seen[3])
    assert (running.ids, running.finish_reason, len(running.log_probs)) == (seen[: first + 1], "stop", first + 1)


def test_continuous_batching_gives_the_log_probs_of_what_it_drew(
    folder: Path, engine: Engine, plain: TransformersBackend
) -> None:
    backend = TransformersBackend(plain.model, plain.tokenizer, rows=2, tempered=True, continuous=True)
    asked, attention = prompts(backend, 3), plain.model.config._attn_implementation
    greedy = [Sampling(0.0, max_tokens=6)] * 3
    assert same(backend.generate(asked, greedy), engine.generate(asked, greedy))
    found = backend.generate(asked, [Sampling(0.7, max_tokens=n) for n in (9, 4, 6)])
    assert [len(r.ids) for r in found] == [9, 4, 6] and backend.continuous
    for running in found:
        assert running.log_probs == pytest.approx(forward(plain.model, running.prompt, running.ids, 0.7), abs=1e-4)
    filtered = [Sampling(0.9, top_p=0.6, max_tokens=6, seed=n) for n in range(3)]  # plain generate answers these
    assert same(backend.generate(asked, filtered), engine.generate(asked, filtered))
    assert plain.model.config._attn_implementation == attention


def test_the_cache_is_for_all_rows_but_leaves_half_of_the_memory() -> None:
    import math

    from transformers import GPT2Config, Qwen2Config

    from kernelwright.generation.continuous import blocks_of

    config = Qwen2Config(hidden_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2)
    block = 256 * 3 * 2 * 2 * 16 * 2  # tokens, layers, key and value, their heads, their width, bytes
    assert blocks_of(config, 8, 1024, 2, math.inf) == 8 * 4
    assert blocks_of(config, 8, 1024, 2, 2 * 10 * block + 1) == 10
    assert blocks_of(config, 8, 1024, 2, 0) == 4
    assert blocks_of(GPT2Config(n_embd=64, n_layer=3, n_head=2), 8, 1024, 2, 2 * 10 * block) == 5


def test_short_answers_come_before_long_ones_and_cancelled_ones_end(plain: TransformersBackend) -> None:
    short, long = prompts(plain, 2)
    first, second = plain.add(short, Sampling(max_tokens=2)), plain.add(long, Sampling(max_tokens=100))
    later = plain.add(short, Sampling(max_tokens=100))
    while not first.finish_reason:
        plain.step()
    assert first.finish_reason in ("length", "stop") and not second.finish_reason
    second.cancelled = later.cancelled = True
    while plain.busy:
        plain.step()
    assert (second.finish_reason, later.finish_reason) == ("cancelled", "cancelled") and len(second.ids) < 100
    with pytest.raises(ConfigError, match="context"):
        plain.generate([short, [1] * CONTEXT], [Sampling(), Sampling()])
    with pytest.raises(ConfigError, match="stop"):
        plain.add(short, Sampling(stop=("\n",)))
    assert not plain.busy


def test_weights_are_taken_over(folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    other = random_checkpoint(tmp_path / "other", context=CONTEXT, seed=1)
    weights = {name: value.float() for name, value in load_file(other / "model.safetensors").items()}
    ours = Engine(folder, device="cpu", dtype="fp32", threads=1)
    wanted = Engine(other, device="cpu", dtype="fp32", threads=1)
    theirs = load_backend("transformers", str(folder), threads=1)
    asked, how = prompts(ours, 2), [Sampling(0.0, max_tokens=12)] * 2
    assert ours._step is not None  # our compiled steps, which pack the weights
    before = ours.generate(asked, how)
    whole = {**weights, "lm_head.weight": weights["model.embed_tokens.weight"]}
    for backend in (ours, theirs):
        backend.load_weights(whole)
        assert same(backend.generate(asked, how), wanted.generate(asked, how))
    assert not same(before, wanted.generate(asked, how))
    ours.load_weights({name: value * 1.001 for name, value in whole.items()})  # no longer bfloat16
    assert ours._step is None and ours.generate(asked, how)[0].finish_reason == "length"
    with pytest.raises(ConfigError, match="weights"):
        theirs.load_weights({"model.norm.weight": torch.ones(3)})


def test_a_model_that_cannot_be_batched_continuously_is_generated_with_plainly(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from transformers import BloomConfig, BloomForCausalLM

    tokenizer = load_tokenizer(str(folder))
    size = len(tokenizer.inner)
    torch.manual_seed(0)
    model = BloomForCausalLM(BloomConfig(vocab_size=size, hidden_size=32, n_layer=2, n_head=2, eos_token_id=2)).eval()
    backend = TransformersBackend(model, tokenizer, tempered=True, continuous=True)
    found = backend.generate([[5, 6, 7], [8] * 9], [Sampling(0.8, max_tokens=5, seed=n) for n in range(2)])
    assert "plain generate takes over" in capfd.readouterr().err and not backend.continuous
    for running in found:
        assert running.log_probs == pytest.approx(forward(model, running.prompt, running.ids, 0.8), abs=1e-4)


def test_a_tokenizer_splits_as_its_file_says_whatever_the_architecture(folder: Path, tmp_path: Path) -> None:
    text = "class A:\n    def f(self):\n        return x[12]\n\n\n# it's\n"
    expected = ChatTokenizer.load(folder).encode(text)
    for kind in ("llama", "qwen2"):
        place = tmp_path / kind
        shutil.copytree(folder, place)
        config = json.loads((place / "config.json").read_text())
        (place / "config.json").write_text(json.dumps({**config, "model_type": kind}))
        assert load_tokenizer(str(place)).encode(text) == expected


def test_which_back_end_is_taken(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert load_backend("auto", str(folder), threads=1).name == "engine"
    shutil.copytree(folder, tmp_path / "mistral")
    path = tmp_path / "mistral" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "model_type": "mistral", "sliding_window": 8}))
    unknown = str(tmp_path / "mistral")
    assert load_backend("auto", unknown, threads=1).name == "transformers"
    assert "'mistral' model" in capfd.readouterr().err
    with pytest.raises(ConfigError, match="mistral"):
        load_backend("engine", unknown)
    path.write_text(json.dumps({**json.loads(path.read_text()), "model_type": "llama", "attention_bias": True}))
    with pytest.raises(ConfigError, match="attention_bias"):  # of the output too, which our engine has no place for
        load_backend("engine", unknown)
    with pytest.raises(ConfigError, match="back-end") as raised:
        load_backend("vlm", unknown)
    assert "vllm" in str(raised.value.hint)


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed")
def test_vllm_that_is_not_installed(folder: Path) -> None:
    for load in (lambda: load_backend("vllm", str(folder)), lambda: load_policy(f"vllm:{folder}")):
        with pytest.raises(ConfigError, match="not installed") as raised:
            load()
        assert "pip install vllm" in str(raised.value.hint)


def test_chat_templates_without_system_messages_and_none(folder: Path) -> None:
    inner = load_tokenizer(str(folder)).inner
    inner.chat_template = (
        "{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}"
        "<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"
    )
    tokenizer = HubTokenizer(inner, "gemma")
    asked = [Message(role="system", content="be brief"), Message(role="user", content="x  = 1 .")]
    assert tokenizer.decode(tokenizer.prompt(asked)) == "<user>be brief\n\nx  = 1 ."
    inner.chat_template = None
    with pytest.raises(PolicyError, match="no chat template"):
        tokenizer.prompt(asked)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_continuous_batching_on_a_gpu(folder: Path) -> None:
    backend = load_backend("transformers", str(folder), tempered=True)
    assert isinstance(backend, TransformersBackend) and backend.continuous
    found = backend.generate(prompts(backend, 5), [Sampling(0.9, max_tokens=40, seed=n) for n in range(5)])
    assert backend.continuous and all(r.finish_reason in ("stop", "length") for r in found)
    for running in found:
        expected = torch.tensor(forward(backend.model, running.prompt, running.ids, 0.9))
        assert float((torch.tensor(running.log_probs) - expected).abs().median()) < 0.1  # bfloat16
    backend.load_weights(backend.model.state_dict())
    assert backend.generate(prompts(backend, 1), [Sampling(0.9, max_tokens=3)])[0].ids
