"""A whole run on the CPU: it learns, resumes to the same weights, and reports errors."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("accelerate")

from safetensors.torch import load_file  # noqa: E402
from training.sample_pairs import pair, write_corpus  # noqa: E402

from kernelwright.config import load_config  # noqa: E402
from kernelwright.errors import ConfigError, TaskError  # noqa: E402
from kernelwright.inference.tokenizer import ChatTokenizer  # noqa: E402
from kernelwright.training.card import write_card  # noqa: E402
from kernelwright.training.pretrain.job import pretrain  # noqa: E402
from kernelwright.training.pretrain.progress import read_log  # noqa: E402
from kernelwright.training.pretrain.settings import DataSettings, PretrainSettings, config_path  # noqa: E402
from kernelwright.training.pretrain.sources import Corpus, Generated, open_source  # noqa: E402

SMALL = """
name: small
note: For a test.
data: {corpus: CORPUS, held_out: 10, workers: 1}
tokenizer: {vocabulary: 400, pairs: 50}
model: {hidden: 32, layers: 1, heads: 2, kv_heads: 1, feed_forward: 48, context: 1280}
train: {steps: 14, rows: 2, length: 1280, warm_up: 2, compile: false, log_every: 2, eval_every: 6, save_seconds: 0.001}
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a settings file, with its corpus beside it."""
    folder = tmp_path_factory.mktemp("small")
    write_corpus(folder / "corpus", 90)
    path = folder / "small.yaml"
    path.write_text(SMALL.replace("CORPUS", str(folder / "corpus")))
    return path


@pytest.fixture(scope="module")
def finished(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the uninterrupted run."""
    out = tmp_path_factory.mktemp("finished")
    torch.set_num_threads(1)
    pretrain(load_config(small, [], PretrainSettings), out, shown=False)
    return out


def test_a_run_leaves_what_it_promises(finished: Path) -> None:
    facts = json.loads((finished / "training.json").read_text())
    rows = read_log(finished / "log.jsonl")
    assert [row["step"] for row in rows] == [2, 4, 6, 8, 10, 12, 14]
    assert [row["step"] for row in rows if "held_out_loss" in row] == [6, 12, 14]
    assert rows[-1]["loss"] < rows[0]["loss"] - 0.5 and rows[-1]["rate"] == 0
    assert facts["held_out_loss"] == rows[-1]["held_out_loss"] < rows[2]["held_out_loss"]
    assert facts["updates"] == 14 and facts["tokens"] == rows[-1]["tokens"] > 14 * 2 * 1280 * 0.8
    assert facts["pairs"]["training"] + facts["pairs"]["held_out"] <= 90
    card = (finished / "README.md").read_text()
    assert "small" in card and "For a test." in card and f"{facts['tokens']:,}" in card and "What it is not" in card
    assert not list((finished / "state").glob("*"))


def test_the_checkpoint_loads_in_transformers(finished: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(finished, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(finished)
    assert type(model).__name__ == "LlamaForCausalLM" and model.config.kernelwright == {"prompt": "task"}
    ours = ChatTokenizer.load(finished)
    for text in pair(random.Random(8)):  # with a config.json beside it, transformers may take another class
        assert tokenizer(text, add_special_tokens=False).input_ids == ours.encode(text)
        assert tokenizer.decode(ours.encode(text)) == text
    assert model.config.vocab_size == len(tokenizer) <= 400
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id


def test_a_run_that_is_stopped_twice_ends_with_the_same_weights(
    small: Path, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(finished / "data", tmp_path / "data")
    stopped(small, tmp_path, signal.SIGKILL, 1)
    status, errors = stopped(small, tmp_path, signal.SIGINT, 5)
    assert status == 130 and "kept" in errors and "Traceback" not in errors and "resumed after update" in errors
    facts = pretrain(load_config(small, [], PretrainSettings), tmp_path).facts
    assert "resumed after update" in capsys.readouterr().err
    assert facts["updates"] == 14
    right, found = load_file(finished / "model.safetensors"), load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(right[name], found[name]) for name in right)
    logs = [[(row["step"], row["tokens"]) for row in read_log(f / "log.jsonl")] for f in (finished, tmp_path)]
    assert logs[0] == logs[1]


def stopped(small: Path, out: Path, how: signal.Signals, step: int) -> tuple[int, str]:
    """Runs the command and sends a signal once its log reaches update `step`; returns exit status and messages."""
    command = [sys.executable, "-m", "kernelwright.cli", "train", "pretrain", str(small), "--out", str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if any(row["step"] >= step for row in read_log(out / "log.jsonl")):
            break
        time.sleep(0.005)
    process.send_signal(how)
    errors = process.communicate(timeout=60)[1]
    last = read_log(out / "log.jsonl")[-1]["step"]
    assert step <= last < 14, "it was over before it could be stopped"
    return process.returncode, errors


def test_a_finished_run_is_not_done_again(small: Path, finished: Path) -> None:
    settings = load_config(small, [], PretrainSettings)
    before = (finished / "model.safetensors").stat().st_mtime_ns
    assert pretrain(settings, finished, shown=False).facts["updates"] == 14
    assert (finished / "model.safetensors").stat().st_mtime_ns == before
    with pytest.raises(ConfigError, match="other settings"):
        pretrain(load_config(small, ["train.steps=15"], PretrainSettings), finished, shown=False)


def test_budgets_by_tokens_and_by_seconds(small: Path, finished: Path, tmp_path: Path) -> None:
    tokens = load_config(small, ["train.steps=null", "train.tokens=9000"], PretrainSettings)
    shutil.copytree(finished / "data", tmp_path / "a" / "data")
    facts = pretrain(tokens, tmp_path / "a", shown=False).facts
    assert 9000 <= facts["tokens"] < 9000 + 2048
    tiny = ["train.steps=null", "train.seconds=1.5", "train.rows=1", "train.length=512", "train.eval_every=1000"]
    shutil.copytree(finished / "data", tmp_path / "b" / "data")
    facts = pretrain(load_config(small, tiny, PretrainSettings), tmp_path / "b", shown=False).facts
    assert facts["updates"] >= 40 and 0.2 < facts["seconds"]["training"] < 15


def test_how_the_rate_falls(small: Path, finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished / "data", tmp_path / "data")
    shape = ["train.steps=8", "train.warm_up=0", "train.flat=0.5", "train.fall=2", "train.log_every=1"]
    pretrain(load_config(small, shape, PretrainSettings), tmp_path, shown=False)
    rates = {row["step"]: row["rate"] for row in read_log(tmp_path / "log.jsonl")}
    assert [rates[step] for step in range(1, 9)] == pytest.approx([1, 1, 1, 1, 0.75**2, 0.5**2, 0.25**2, 0])


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["train.seconds=5"], "exactly one of seconds"),
        (["train.stepps=5"], "train.stepps"),
        (["train.muon_lr=true"], "train.muon_lr = True: a number is wanted"),
        (["model.heads=3"], "even multiple"),
        (["data.generate={count=5}"], "either corpus or generate"),
        (["train.rows=0"], "train.rows"),
    ],
)
def test_settings_that_cannot_be(small: Path, overrides: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_config(small, overrides, PretrainSettings)


def test_shipped_settings_are_valid() -> None:
    for name in ("starter", "base", "tiny"):
        settings = load_config(config_path(name), [], PretrainSettings)
        assert settings.name == name
        assert isinstance(open_source(settings.data), Generated)
    with pytest.raises(ConfigError, match="no settings file"):
        config_path("other")


def test_a_corpus_without_pairs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="too few"):
        Corpus.open(DataSettings(corpus=str(tmp_path), held_out=5))
    (tmp_path / "a.jsonl").write_text('{"reference": "x"}\n')
    with pytest.raises(ConfigError, match="line 1"):
        Corpus.open(DataSettings(corpus=str(tmp_path), held_out=5))


def test_held_out_references_are_not_trained_on(tmp_path: Path) -> None:
    source = Corpus.open(DataSettings(corpus=str(write_corpus(tmp_path, 200)), held_out=20))
    held = {reference for reference, _ in source.held_out(Counter())}
    trained = {reference for n in range(source.count) for reference, _ in source(n, Counter())}
    assert held and not held & trained and 5 <= len(held) <= 40


def test_parquet_is_a_corpus_too(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = [("a", "b"), ("c", "d"), ("e", "f")]
    table = pyarrow.table({"reference": [r for r, _ in rows], "answer": [a for _, a in rows], "other": [1, 2, 3]})
    parquet.write_table(table, tmp_path / "x.parquet")
    source = Corpus.open(DataSettings(corpus=str(tmp_path), held_out=1))
    assert sorted([*source(0, Counter()), *source.held_out(Counter())]) == rows


def test_generated_pairs_do_not_depend_on_who_makes_them() -> None:
    settings = load_config(config_path("tiny"), ["data.generate.shard=6", "data.generate.count=15"], PretrainSettings)
    source = open_source(settings.data)
    shards = [list(source(n, Counter())) for n in range(source.count)]
    assert list(map(len, shards)) == [6, 6, 3]
    assert list(source(1, Counter())) == shards[1] != shards[0]
    assert all("class Model(" in reference and "class ModelNew" in answer for reference, answer in shards[2])
    assert not {r for r, _ in source.held_out(Counter())} & {r for shard in shards for r, _ in shard}


def test_training_keeps_away_from_suites_that_are_named(tmp_path: Path) -> None:
    fresh = ["data.generate.shard=40", "data.generate.count=40"]
    open_ = open_source(load_config(config_path("tiny"), fresh, PretrainSettings).data)
    usual = list(open_(0, Counter()))
    suite = tmp_path / "suite.jsonl"
    near = [r for r, _ in usual[:5]]
    suite.write_text("".join(json.dumps({"task_id": str(n), "reference": r}) + "\n" for n, r in enumerate(near)))
    for rule in ("remove", "keep"):
        named = [*fresh, f"data.against={suite}", f"data.one_operator={rule}"]
        source = open_source(load_config(config_path("tiny"), named, PretrainSettings).data)
        counts: Counter[str] = Counter()
        left = list(source(0, counts))
        assert len(left) == 40 and counts["contaminated"] >= 5 and not set(near) & {r for r, _ in left}
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    rows = [{"reference": r, "answer": a} for r, a in usual]
    (corpus / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    kept = Corpus.open(DataSettings(corpus=str(corpus), held_out=1, against=(str(suite),)))
    counts = Counter()
    assert not set(near) & {r for r, _ in kept(0, counts)} and counts["contaminated"] >= 4
    with pytest.raises(TaskError):
        open_source(DataSettings(corpus=str(corpus), held_out=1, against=(str(tmp_path / "none.jsonl"),)))


def test_card_takes_results(finished: Path, tmp_path: Path) -> None:
    facts = json.loads((finished / "training.json").read_text())
    results = tmp_path / "results.json"
    results.write_text(json.dumps({"suite": "dev", "pass@1": 0.8125, "families": {"matmul": 3}}))
    text = write_card(tmp_path, facts, results).read_text()
    assert "| pass@1 | 0.8125 |" in text and "| families.matmul | 3 |" in text
