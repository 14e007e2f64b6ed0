"""Fine-tuning of a model with a hundred thousand weights: it matches TRL's own trainer, and invariances hold."""

from __future__ import annotations

import fcntl
import json
import threading
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from running import Command  # noqa: E402
from tiny_model import ROWS, log, settings, weights  # noqa: E402

from kernelwright.config import load_config  # noqa: E402
from kernelwright.errors import ConfigError  # noqa: E402
from kernelwright.inference.chat import task_prompt  # noqa: E402
from kernelwright.records import Message  # noqa: E402
from kernelwright.training.fine_tune.explain import explain, page  # noqa: E402
from kernelwright.training.fine_tune.run import begin, last_checkpoint  # noqa: E402
from kernelwright.training.fine_tune.samples import CUDA, TARGET, EncodedSamples, encoder_of, pack, prepare, split  # noqa: E402
from kernelwright.training.fine_tune.settings import SftSettings, recipe_path  # noqa: E402
from kernelwright.training.fine_tune.sft import arguments, dataset, make_trainer, train_sft  # noqa: E402
from kernelwright.training.fine_tune.texts import Conversation  # noqa: E402

pytestmark = pytest.mark.usefixtures("own_cache")


def test_plain_sft_is_trl_s_own_to_the_last_digits(home: Path, tmp_path: Path) -> None:
    from trl import SFTConfig, SFTTrainer

    wanted = settings(home, "sft", steps=3)
    train_sft(wanted, tmp_path / "ours")
    samples, _ = prepare(wanted)
    plain = dataset(samples, None).to_list()
    rows = [
        {"input_ids": r["input_ids"], "labels": [t if f & TARGET else -100 for t, f in zip(*r.values(), strict=True)]}
        for r in ({k: row[k] for k in ("input_ids", "flags")} for row in plain)
    ]
    from datasets import Dataset

    from kernelwright.training.fine_tune.run import load_model
    from kernelwright.training.fine_tune.samples import load_tokenizer

    args = arguments(wanted, tmp_path / "theirs").to_dict()
    keep = ("per_device_train_batch_size", "gradient_accumulation_steps", "max_steps", "learning_rate", "seed")
    more = ("data_seed", "lr_scheduler_type", "warmup_steps", "max_grad_norm", "use_cpu", "logging_steps", "bf16")
    trainer = SFTTrainer(
        model=load_model(wanted.model),
        args=SFTConfig(
            output_dir=str(tmp_path / "theirs"),
            **{k: args[k] for k in (*keep, *more)},
            gradient_checkpointing=False,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
            max_length=None,
            dataset_kwargs={"skip_prepare_dataset": True},
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=load_tokenizer(wanted.model.path),
    )
    trainer.train()
    theirs = [(row["loss"], row["mean_token_accuracy"]) for row in trainer.state.log_history if "loss" in row]
    ours = [(row["loss"], row["mean_token_accuracy"]) for row in log(tmp_path / "ours")]
    assert [a for a, _ in ours] == pytest.approx([a for a, _ in theirs], rel=1e-6)
    for name, weight in trainer.model.state_dict().items():
        if name in (saved := weights(tmp_path / "ours")):
            assert torch.allclose(weight, saved[name], atol=1e-6), name


def gradients(wanted: SftSettings, out: Path) -> tuple[float, dict[str, Any]]:
    """Returns loss and weights after one update of Adam that resembles plain gradient descent."""
    train_sft(wanted, out)
    return log(out)[0]["loss"], weights(out)


@pytest.mark.parametrize("loss", ["sft", {"name": "cuset", "window": 32}, {"name": "eaft"}])
def test_packing_and_micro_batches_do_not_matter(home: Path, tmp_path: Path, loss: Any) -> None:
    """The six samples form one update: one by one, together, padded, and joined into rows."""
    cases = {
        "single": settings(home, loss, steps=1, batch=6, micro_batch=1),
        "padded": settings(home, loss, steps=1, batch=6, micro_batch=6),
        # one row of all six
        "packed": settings(home, loss, {"length": 4096}, steps=1, batch=1, micro_batch=1, packing=True),
    }
    found = {name: gradients(wanted, tmp_path / name) for name, wanted in cases.items()}
    for name in ("padded", "packed"):
        assert found[name][0] == pytest.approx(found["single"][0], rel=1e-5), name
        for key, weight in found[name][1].items():
            # Adam's first step is the gradient's sign: only weights with next to no gradient may differ.
            off = (weight - found["single"][1][key]).abs() > 1e-5
            assert off.float().mean() < 0.02, (name, key)


@pytest.fixture
def uneven(tmp_path: Path) -> dict[str, Any]:
    """Returns data settings of rows of very different lengths, with up to five per packed row."""
    sizes = (1, 1, 1, 1, 1, 12, 12, 3, 1, 1)
    kernel = "__global__ void k(float* y) {{\n{}}}\nk<<<1, 32>>>(y);\n"
    rows = [
        {"prompt": "q" * i, "completion": kernel.format("".join(f"  y[0] += {j}.0f;\n" for j in range(size)))}
        for i, size in enumerate(sizes)
    ]
    (tmp_path / "uneven.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"path": str(tmp_path / "uneven.jsonl"), "length": 520}


def test_a_mean_over_samples_does_not_go_by_packed_rows(home: Path, tmp_path: Path, uneven: dict[str, Any]) -> None:
    loss = {"name": "cuset", "reduction": "sample_mean"}
    found = []
    for micro_batch in (1, 2):
        out = tmp_path / str(micro_batch)
        train_sft(settings(home, loss, uneven, steps=1, batch=2, micro_batch=micro_batch, packing=True), out)
        found.append((log(out)[0]["loss"], log(out)[0]["grad_norm"], log(out)[0]["nll"], log(out)[0]["sample_weight"]))
    assert found[0] == pytest.approx(found[1], rel=1e-4)


@pytest.mark.parametrize("loss", ["sft", {"name": "cuset", "reduction": "sample_mean"}])
def test_held_out_numbers_do_not_go_by_micro_batches(
    home: Path, tmp_path: Path, uneven: dict[str, Any], loss: Any
) -> None:
    found = []
    for name, more in {"1": {"micro_batch": 1}, "4": {"micro_batch": 4}, "packed": {"packing": True}}.items():
        wanted = settings(home, loss, {**uneven, "held_out": 6}, **{"steps": 1, "batch": 4, "lr": 1e-9, **more})
        facts = train_sft(wanted, tmp_path / name).facts
        found.append((facts["held_out_nll"], facts["held_out_loss"]))
    assert found[1] == pytest.approx(found[0], rel=1e-6) and found[2] == pytest.approx(found[0], rel=1e-6)
    if loss == "sft":
        assert found[0][0] == pytest.approx(found[0][1], rel=1e-6)


def test_the_mean_sample_weight_of_an_update_is_over_its_samples() -> None:
    from kernelwright.training.fine_tune.sft_trainer import _RunningMean

    mean = _RunningMean()
    mean.add(0, torch.tensor(0.5), torch.tensor(3))
    mean.add(0, torch.tensor(0.9), torch.tensor(1))
    value = mean.before(1)
    assert value is not None and value.item() == pytest.approx(0.6)


@pytest.fixture(scope="module")
def warm(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a model that is no longer random: most losses weight tokens by the model's expectations."""
    out = tmp_path_factory.mktemp("warm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELWRIGHT_CACHE", str(out / "cache"))
        train_sft(settings(home, "sft", steps=25, lr=1e-2, schedule="constant", log_every=25), out / "run")
    return out / "run"


CASES: list[tuple[Any, str]] = [
    ("dft", "full"),
    ("profit", "full"),
    ("eaft", "full"),
    ("asft", "full"),
    ("asft", "lora"),
    ({"name": "cuset", "sample_weight": "normalised", "tau": 0.05}, "full"),
    ("cuset", "lora"),
]


@pytest.mark.parametrize(("loss", "tune"), CASES)
def test_every_loss_trains(home: Path, warm: Path, tmp_path: Path, loss: Any, tune: str) -> None:
    lr = 1e-2 if tune == "lora" else 2e-3
    model = {"path": str(warm), "tune": tune}
    wanted = settings(home, loss, model=model, steps=6, lr=lr, warm_up=0.0, schedule="constant")
    result = train_sft(wanted, tmp_path / "run")
    rows = log(tmp_path / "run")
    # DFT and losses built on it raise the probability of already expected tokens, not the likelihood of all tokens.
    better = "confidence" if result.facts["loss_name"] in ("dft", "asft") else "nll"
    assert (rows[-1][better] < rows[0][better]) == (better == "nll")
    assert 0 < rows[0]["kept"] <= 1 and rows[0]["non_finite"] == 0
    if result.facts["loss_name"] == "asft":
        assert abs(rows[0]["kl"]) < 1e-4 < rows[-1]["kl"]  # it begins at its anchor, and leaves it
    saved, base = weights(tmp_path / "run"), weights(warm)
    assert set(saved) == set(base)
    assert any(not torch.equal(saved[name].float(), base[name].float()) for name in base)
    if tune == "lora":
        assert (tmp_path / "run" / "adapter" / "adapter_config.json").is_file()
        assert result.facts["trained_parameters"] < 0.5 * result.facts["parameters"]


class Stopped(Exception):
    """An exception that stands for a kill in the middle of a run."""


def test_a_stopped_run_goes_on_to_the_same_weights(home: Path, tmp_path: Path) -> None:
    from transformers import TrainerCallback

    class StopAtFive(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_more: Any) -> None:
            if state.global_step == 5:
                raise Stopped

    wanted = settings(home, steps=6, save_every=2)
    train_sft(wanted, tmp_path / "whole")
    out = tmp_path / "stopped"
    begin(wanted, out)
    training, held_out = split(prepare(wanted)[0], 0)
    trainer = make_trainer(wanted, out, arguments(wanted, out), training, held_out)
    trainer.add_callback(StopAtFive())
    with pytest.raises(Stopped):
        trainer.train()
    checkpoint = last_checkpoint(out)
    assert checkpoint is not None and checkpoint.name == "checkpoint-4"
    assert train_sft(wanted, out).facts["updates"] == 6
    assert [row["step"] for row in log(out)] == [1, 2, 3, 4, 5, 6]
    again, whole = weights(out), weights(tmp_path / "whole")
    assert all(torch.equal(again[name], whole[name]) for name in whole)
    with pytest.raises(ConfigError, match="other settings"):
        train_sft(settings(home, steps=7, save_every=2), out)


def test_a_run_that_was_stopped_after_its_last_update_makes_no_more(home: Path, tmp_path: Path) -> None:
    wanted = settings(home, steps=5, save_every=5)
    whole = train_sft(wanted, tmp_path).facts
    before = weights(tmp_path)
    for name in ("training.json", "model.safetensors"):
        (tmp_path / name).unlink()
    facts = train_sft(wanted, tmp_path).facts
    assert facts["updates"] == 5 and facts["loss"] == pytest.approx(whole["loss"], rel=1e-3)
    assert [row["step"] for row in log(tmp_path)] == [1, 2, 3, 4, 5]
    again = weights(tmp_path)
    assert all(torch.equal(again[name], before[name]) for name in before)


def test_bad_rows_are_named_and_never_trained_on(home: Path, tmp_path: Path) -> None:
    good = [json.dumps(row).encode() for row in ROWS[:2]]
    bad = [
        (b'{"row_id": "empty", "reference": "x", "answer": " \\n"}', "empty-answer"),
        (b'{"row_id": "utf8", "reference": "x", "answer": "\xff\xfe"}', "broken-utf8"),
        (b'{"row_id": "replaced", "reference": "x", "answer": "__global__ void k() {} \xef\xbf\xbd"}', "broken-utf8"),
        (b'{"row_id": "surrogate", "reference": "x", "answer": "__global__ void k() {} \\ud800"}', "broken-utf8"),
        (b'{"row_id": "torn", "reference": ', "unreadable"),
        (b"[1, 2]", "unreadable"),
        (b'{"row_id": "no answer", "reference": "x"}', "no-field"),
        (b'{"row_id": "number", "reference": "x", "answer": 3}', "no-field"),
        (b'{"row_id": "asked", "messages": [{"role": "user", "content": "x"}]}', "no-field"),
        (b'{"row_id": "plain", "reference": "x", "answer": "just words"}', "no-cuda"),
        (b'{"row_id": "special", "reference": "<|im_end|>", "answer": "__global__ void k() {}"}', "special-token"),
        (b'{"row_id": "twice", "reference": "x", "answer": "__global__ void k() {}", "answer": "y"}', "unreadable"),
        (
            b'{"row_id": "bot", "messages": [{"role": "bot", "content": "x"}, {"role": "assistant", "content": "y"}]}',
            "role",
        ),
        (json.dumps({"row_id": "long", "reference": "x", "answer": ROWS[0]["answer"] * 9}).encode(), "too-long"),
    ]
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + b"\n".join([good[0], *(line for line, _ in bad), b"", good[1]]))
    result = train_sft(settings(home, data={"path": str(path)}, steps=1), tmp_path / "run")
    named = [json.loads(line) for line in (tmp_path / "run" / "bad_rows.jsonl").read_text().splitlines()]
    counts: dict[str, int] = {}
    for _, reason in bad:
        counts[reason] = counts.get(reason, 0) + 1
    assert result.facts["bad_rows"] == dict(sorted(counts.items()))
    assert {row["row"] for row in named} >= {"empty", "replaced", "surrogate", "no answer", "number", "plain", "long"}
    assert result.facts["samples"] == 2
    kept = train_sft(
        settings(home, data={"path": str(path), "without_cuda": "keep"}, steps=1, batch=3, micro_batch=3),
        tmp_path / "kept",
    )
    assert kept.facts["samples"] == 3
    only_bad = tmp_path / "bad.jsonl"
    only_bad.write_bytes(bad[0][0])
    with pytest.raises(ConfigError, match="nothing to train on.*empty"):
        train_sft(settings(home, data={"path": str(only_bad)}), tmp_path / "none")


def test_tokens_are_those_of_prompt_then_answer_and_flags_fit_the_text(home: Path) -> None:
    wanted = settings(home)
    encoder = encoder_of(wanted)
    row = ROWS[0]
    messages = [{"role": "user", "content": row["reference"]}, {"role": "assistant", "content": row["answer"]}]
    sample = encoder.encode(Conversation("relu", messages, reference=True))
    from kernelwright.inference.tokenizer import ChatTokenizer

    ours = ChatTokenizer.load(home / "base")
    text = encoder.tokenizer.decode(sample.ids)
    assert text.endswith(row["answer"] + "<|im_end|>") and task_prompt(row["reference"]) in text
    target = sample.ids[(sample.flags & TARGET) != 0]
    assert ours.inner.decode(target.tolist()[:-1]) == row["answer"]
    # The tokens equal those of the engine's prompt; transformers' own class for Qwen2 would split elsewhere.
    asked = ours.prompt([Message(role="user", content=task_prompt(row["reference"]))])
    assert sample.ids.tolist() == [*asked, *ours.encode(row["answer"]), ours.turn_end]
    cuda = encoder.tokenizer.decode(sample.ids[(sample.flags & CUDA) != 0])
    assert "__global__ void relu_kernel" in cuda and "relu_kernel[(" in cuda and "empty_like" not in cuda
    assert not ((sample.flags & CUDA) != 0)[(sample.flags & TARGET) == 0].any()


def test_of_a_rollout_all_answers_of_the_policy_are_trained_on(home: Path, tmp_path: Path) -> None:
    """The rows are those of `curate --method rft`; an answer within the request is not the policy's."""
    first, second = ROWS[0]["answer"], ROWS[1]["answer"]
    said = [("user", "example"), ("assistant", "shown"), ("user", "task"), ("assistant", first), ("user", "wrong")]
    messages = [{"role": role, "content": text} for role, text in [*said, ("assistant", second)]]
    rows = [
        {"row_id": "good", "messages": messages, "actions": [False, False, False, True, False, True]},
        {"row_id": "marks", "messages": messages, "actions": [True]},
        {"row_id": "user's", "messages": messages, "actions": [False, False, True, False, False, True]},
        {"row_id": "last", "messages": messages},
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    wanted = settings(home, data={"path": str(tmp_path / "rows.jsonl")})
    samples, report = prepare(wanted)
    assert samples.names == ["good", "last"] and report.counts == {"no-field": 2}
    decode = encoder_of(wanted).tokenizer.decode
    whole, last = samples[0], samples[1]
    assert decode(whole.ids[(whole.flags & TARGET) != 0]) == f"{first}<|im_end|>{second}<|im_end|>"
    assert decode(last.ids[(last.flags & TARGET) != 0]) == f"{second}<|im_end|>"
    assert decode(whole.ids) == decode(last.ids)
    cuda = decode(whole.ids[(whole.flags & CUDA) != 0])
    assert "relu_kernel" in cuda and "abs_kernel" in cuda


def test_samples_are_kept_and_split_by_prompt(home: Path, tmp_path: Path) -> None:
    twice = tmp_path / "rows.jsonl"
    twice.write_text(
        "".join(json.dumps({**row, "row_id": f"{row['row_id']}-{i}"}) + "\n" for row in ROWS for i in (1, 2))
    )
    wanted = settings(home, data={"path": str(twice), "held_out": 3})
    first, _ = prepare(wanted)
    again, _ = prepare(wanted)
    assert first.names == again.names and (first.ids == again.ids).all()
    training, held_out = split(first, 3)
    assert held_out is not None and 3 <= len(held_out) <= 4 and len(training) + len(held_out) == 12
    assert not set(training.prompts.tolist()) & set(held_out.prompts.tolist())
    with pytest.raises(ConfigError):
        split(first, 12)


def test_of_runs_that_begin_at_once_one_encodes(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others wait for the lock beside the samples, and use the stored samples."""
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path))
    wanted = settings(home)
    prepare(wanted)
    kept = next(path for path in (tmp_path / "samples").iterdir() if path.is_dir())
    aside = kept.rename(tmp_path / "aside")
    found: list[Any] = []
    other = threading.Thread(target=lambda: found.append(prepare(wanted)), daemon=True)
    with open(kept.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        other.start()
        other.join(1.5)
        assert other.is_alive() and not kept.exists()
        aside.rename(kept)
        made = kept.stat().st_mtime_ns
    other.join(60)
    assert len(found) == 1 and kept.stat().st_mtime_ns == made


def test_rows_are_packed_whole_and_tightly() -> None:
    lengths = [5, 9, 3, 3, 7, 1, 2, 12]
    rows = pack(lengths, 10)
    assert sorted(i for row in rows for i in row) == list(range(8))
    assert all(sum(lengths[i] for i in row) <= 10 for row in rows if row != [7])
    assert len(rows) == 4
    assert pack([], 10) == []


@pytest.mark.parametrize(("steps", "first"), [(1, 1e-3), (2, 0.0)])
def test_a_warm_up_begins_at_nothing_unless_it_would_be_all(
    home: Path, tmp_path: Path, steps: int, first: float
) -> None:
    train_sft(settings(home, steps=steps, lr=1e-3, warm_up=0.03, log_every=1), tmp_path)
    assert log(tmp_path)[0]["learning_rate"] == pytest.approx(first)


def test_held_out_loss_is_measured(home: Path, tmp_path: Path) -> None:
    wanted = settings(home, data={"held_out": 2}, steps=4, eval_every=2)
    facts = train_sft(wanted, tmp_path / "run").facts
    assert 0 < facts["held_out_nll"] < 10
    rows = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if "eval_nll" in row] == [2, 4, 4]
    assert json.loads((tmp_path / "run" / "data.json").read_text())["cuda_share"] > 0.2


def test_a_model_that_has_diverged_stops_the_run(home: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(home / "base")
    with torch.no_grad():
        model.model.norm.weight.fill_(float("nan"))
    model.save_pretrained(tmp_path / "broken")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "broken" / name).write_bytes((home / "base" / name).read_bytes())
    with pytest.raises(ConfigError, match="diverged"):
        train_sft(settings(home, model={"path": str(tmp_path / "broken")}), tmp_path / "run")


def test_weights_that_are_no_numbers_are_not_saved(home: Path, tmp_path: Path) -> None:
    """The last updates are not logged."""
    with pytest.raises(ConfigError, match="weight tensors are not finite"):
        train_sft(settings(home, steps=2, log_every=10, lr=1e39), tmp_path / "run")
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_heat_map(home: Path, tmp_path: Path) -> None:
    nasty = {
        "row_id": "<script>alert(1)</script>",
        "reference": "x",
        "answer": ROWS[0]["answer"] + "\n# <b>&\"'</b> 🚀\n",
    }
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(nasty) + "\n")
    found = explain(settings(home, {"name": "cuset", "window": 16}, {"path": str(path)}), 0)
    assert "".join(t.text for t in found.tokens).startswith(nasty["answer"])
    assert 8 <= sum(t.hardest for t in found.tokens) <= 16  # clipped at an end
    cuda = "".join(t.text for t in found.tokens if t.cuda)
    assert "__global__ void relu_kernel" in cuda and "größer" in cuda and "ModelNew" not in cuda
    assert max(t.weight for t in found.tokens) > 0
    text = page(found)
    assert "<script" not in text and "<b>&amp;" not in text and "http" not in text
    assert text.count("<span") == len(found.tokens) and "&lt;script&gt;" in text
    with pytest.raises(ConfigError, match="no row 5"):
        explain(settings(home, data={"path": str(path)}), 5)


def test_rows_of_heat_maps_are_those_of_the_file(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("{\n" + json.dumps(ROWS[0]) + "\n[]\n" + json.dumps(ROWS[1]) + "\n{}\n")
    wanted = settings(home, data={"path": str(path)})
    assert [explain(wanted, number).name for number in (1, 3)] == [ROWS[0]["row_id"], ROWS[1]["row_id"]]
    for number, reason in ((0, "unreadable"), (2, "unreadable"), (4, "no-field")):
        with pytest.raises(ConfigError, match=rf"row {number} \(rows.jsonl:{number + 1}\) is not trained on: {reason}"):
            explain(wanted, number)
    for number in (-1, 5):
        with pytest.raises(ConfigError, match="no row"):
            explain(wanted, number)


def test_a_heat_map_of_asft_is_anchored_to_the_model_before_training(home: Path, warm: Path) -> None:
    wanted = settings(home, "asft")
    assert explain(wanted, 0).stats["kl"] == pytest.approx(0.0, abs=1e-9)
    assert explain(wanted, 0, str(warm)).stats["kl"] > 0.01


def test_a_recipe_runs_with_another_loss_by_its_name() -> None:
    """Parameters of a recipe's loss are dropped with it; parameters given with the new name stay."""
    cuset = load_config(recipe_path("cuset"), [], SftSettings).loss
    assert {"tau", "lam", "window", "reduction"} <= set(cuset.parameters())
    for name in ("sft", "dft", "profit", "eaft", "asft"):
        assert load_config(recipe_path("cuset"), [f"loss.name={name}"], SftSettings).loss.parameters() == {
            "reduction": "token_mean"
        }
    given = ["loss.alpha=2", "loss.name=eaft"]
    assert load_config(recipe_path("cuset"), given, SftSettings).loss.alpha == 2.0
    assert load_config(recipe_path("cuset"), ["loss.name=cuset"], SftSettings).loss == cuset


def test_settings_say_what_is_wrong(home: Path, tmp_path: Path) -> None:
    good = f"model: {{path: {home / 'base'}}}\ndata: {{path: {home / 'rows.jsonl'}}}\ntrain: {{steps: 1}}\n"
    path = tmp_path / "run.yaml"
    path.write_text(good)
    assert load_config(recipe_path(str(path)), ["loss.name=cuset", "loss.tau=0.3"], SftSettings).loss.tau == 0.3
    assert load_config(path, ["train.lr=1"], SftSettings).train.lr == 1.0
    for override, match in (
        ("loss.name=cusett", "cuset"),
        ("loss.window=3", "window"),  # sft has none
        ("train.epochs=1", "epochs and steps"),
        ("train.lr=0", "lr"),
        ("train.lr=true", "train.lr = True: a number is wanted"),
        ("train.lrate=1", "unknown"),
    ):
        with pytest.raises(ConfigError, match=match):
            load_config(path, [override], SftSettings)
    with pytest.raises(ConfigError, match="no layer of the model is 'nope'"):
        wanted = {"path": str(home / "base"), "tune": "lora", "lora": {"targets": "q_proj,nope"}}
        train_sft(settings(home, model=wanted), tmp_path / "run4")
    with pytest.raises(ConfigError, match="no settings file"):
        recipe_path("cusett")
    with pytest.raises(ConfigError, match="micro-batches of 2"):
        wanted = settings(home, batch=3, micro_batch=2)
        train_sft(wanted, tmp_path / "run")
    with pytest.raises(ConfigError, match="no data set"):
        train_sft(settings(home, data={"path": str(tmp_path / "none.jsonl")}), tmp_path / "run2")
    with pytest.raises(ConfigError, match="tokenizer"):
        train_sft(settings(home, model={"path": str(tmp_path)}), tmp_path / "run3")


def test_samples_are_arrays_of_one_length(home: Path) -> None:
    samples, report = prepare(settings(home))
    assert isinstance(samples, EncodedSamples) and len(samples) == len(ROWS) == report.rows
    assert int(samples.bounds[-1]) == len(samples.ids) == len(samples.flags)


@pytest.mark.parametrize("recipe", ["cuset", "concur", "stanford_sft", "starter_sft"])
def test_shipped_recipes_load(recipe: str) -> None:
    loaded = load_config(recipe_path(recipe), ["model.path=somewhere"], SftSettings)
    assert loaded.name == recipe and loaded.model.path == "somewhere"


def test_published_numbers_of_cuset() -> None:
    loaded = load_config(recipe_path("cuset"), [], SftSettings)
    assert loaded.loss.parameters() == {
        "tau": 0.1,
        "lam": 1.0,
        "window": 256,
        "scope": "all",
        "sample_weight": "raw",
        "reduction": "token_mean",
    }
    lora = loaded.model.lora
    assert (lora.r, lora.alpha, lora.dropout, loaded.train.lr, loaded.train.epochs) == (8, 16, 0.05, 1e-4, 3)


def test_the_command_line(home: Path, tmp_path: Path, kernelwright: Command) -> None:
    """It runs two processes, whose update equals that of one; then shows a row; then gets a wrong word."""
    from typer.testing import CliRunner

    from kernelwright.cli import app

    loss = {"name": "cuset", "window": 16, "sample_weight": "normalised"}
    wanted = settings(home, loss, {"limit": 4}, lr=1e-2, warm_up=0.0)
    train_sft(wanted, tmp_path / "one")
    config = tmp_path / "run.yaml"
    config.write_text(json.dumps(wanted.model_dump(mode="json")))
    done = kernelwright("train", "sft", config, "--out", tmp_path / "two", "--processes", "2", "--json", timeout=250)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["updates"], facts["processes"]) == (2, 2)
    assert [r["loss"] for r in log(tmp_path / "two")] == pytest.approx([r["loss"] for r in log(tmp_path / "one")])
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    for name in one:  # Adam's first steps are the gradient's sign: weights with next to no gradient may differ
        assert ((one[name] - two[name]).abs() > 1e-4).float().mean() < 0.02, name
    seen = CliRunner().invoke(app, ["train", "sft", str(config), "--out", str(tmp_path / "two"), "--explain", "1"])
    assert seen.exit_code == 0, seen.output
    assert "explain-1.html" in seen.stdout and (tmp_path / "two" / "explain-1.html").stat().st_size > 3000
    wrong = kernelwright("train", "sft", config, "--set", "loss.name=cusett")
    assert wrong.returncode == 2 and "cuset" in wrong.stderr and "Traceback" not in wrong.stderr
