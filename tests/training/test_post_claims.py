"""Errors of fine-tuning: unusable rows, settings, models and folders."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from tiny_model import ROWS, log, settings, settings_table  # noqa: E402

from kernelwright.errors import ConfigError, StoreError  # noqa: E402
from kernelwright.training.fine_tune.explain import explain, write_page  # noqa: E402
from kernelwright.training.fine_tune.pairs import read_pairs  # noqa: E402
from kernelwright.training.fine_tune.run import _mean_loss, begin, last_checkpoint  # noqa: E402
from kernelwright.training.fine_tune.samples import TARGET, encoder_of, prepare  # noqa: E402
from kernelwright.training.fine_tune.settings import DpoSettings, SftSettings, TextSettings  # noqa: E402
from kernelwright.training.fine_tune.sft import arguments, make_trainer, train_sft  # noqa: E402
from kernelwright.training.fine_tune.texts import BadRow, RowReport, conversation, named_rows  # noqa: E402
from kernelwright.training.losses import LOSSES, regions, top_k_entropy  # noqa: E402
from kernelwright.training.processes import train_in_processes  # noqa: E402

pytestmark = pytest.mark.usefixtures("own_cache")


def say(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


TWO_TURNS = [
    say("user", "one"),
    say("assistant", ROWS[0]["answer"]),
    say("user", "two"),
    say("assistant", "# second\n" + ROWS[1]["answer"]),
]


@pytest.mark.parametrize(
    ("marks", "own"),
    [
        ([0, 1, 0, 0], (1,)),
        ([False, True, False, True], (1, 3)),
        ([0, 0, 0, 0], None),
        ([0, 2, 0, 0], None),
        ([None, 1, 0, 0], None),
        ("abcd", None),
        (None, None),
    ],
)
def test_marks_are_true_false_or_one_nought(marks: Any, own: tuple[int, ...] | None) -> None:
    found = conversation({"messages": TWO_TURNS, "actions": marks}, "row", TextSettings(path="data"))
    if own is None:
        assert isinstance(found, BadRow) and found.reason == "no-field"
    else:
        assert not isinstance(found, BadRow) and found.own == own


def strict_model(home: Path, folder: Path) -> Path:
    """Makes a model whose template requires alternating roles."""
    shutil.copytree(home / "base", folder)
    strict = (
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('roles must alternate') }}{% endif %}[{{ m.role }}]{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    (folder / "chat_template.jinja").write_text(strict)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": strict}))
    return folder


def test_a_row_that_the_template_refuses_is_a_bad_one(home: Path, tmp_path: Path) -> None:
    model = strict_model(home, tmp_path / "strict")
    asked = [[say("user", "x")], [say("system", "y"), say("user", "x")]]
    rows = [{"prompt": p, "chosen": ROWS[0]["answer"], "rejected": ROWS[1]["answer"]} for p in asked]
    data = tmp_path / "rows.jsonl"
    turns = [{**r, "prompt": r["prompt"], "chosen": [say("assistant", r["chosen"])]} for r in rows]
    turns = [{**r, "rejected": [say("assistant", r["rejected"])]} for r in turns]
    data.write_text("".join(json.dumps(r) + "\n" for r in turns))
    samples, report = prepare(settings(home, "sft", {"path": str(data)}, {"path": str(model)}))
    assert len(samples) == 1 and report.counts == {"template": 1} and "alternate" in report.bad[0].detail
    table = {"model": {"path": str(model)}, "data": {"path": str(data), "length": 1024}, "train": {"steps": 1}}
    pairs, report = read_pairs(DpoSettings.model_validate(table))
    assert len(pairs) == 1 and report.counts == {"template": 1}


def test_text_in_parquet_that_is_no_utf8_is_a_bad_row(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    raw = arrow.array([b"good", b"\xff\xfe", b"fine"], type=arrow.binary())
    text = arrow.StringArray.from_buffers(3, raw.buffers()[1], raw.buffers()[2])
    parquet.write_table(arrow.table({"prompt": text, "completion": ["a", "b", "c"]}), tmp_path / "rows.parquet")
    report = RowReport()
    found = list(named_rows(TextSettings(path=str(tmp_path / "rows.parquet")), report))
    assert [row["completion"] for _, row in found] == ["a", "c"]
    assert [(bad.name, bad.reason) for bad in report.bad] == [("rows.parquet:2", "broken-utf8")]


def tiny(home: Path, folder: Path, kind: str, **sizes: Any) -> Path:
    """Returns a model of another kind with the same tokenizer."""
    from transformers import AutoConfig, AutoModelForCausalLM

    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        if (home / "base" / name).is_file():
            shutil.copy(home / "base" / name, folder / name)
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, vocab_size=400, pad_token_id=0, bos_token_id=0, eos_token_id=2, **sizes)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 2}


def test_packing_is_refused_where_samples_see_each_other(home: Path, tmp_path: Path) -> None:
    bloom = tiny(home, tmp_path / "bloom", "bloom", hidden_size=32, n_layer=2, n_head=2)
    gpt2 = tiny(home, tmp_path / "gpt2", "gpt2", n_positions=1024, **GPT2)
    wanted = settings(
        home, "sft", {"length": 1024}, {"path": str(bloom)}, steps=1, batch=1, micro_batch=1, packing=True
    )
    with pytest.raises(ConfigError, match="cannot keep packed samples apart") as raised:
        train_sft(wanted, tmp_path / "run")
    assert raised.value.hint == "set train.packing=false"
    for model in (gpt2, home / "base"):
        wanted = settings(home, "sft", None, {"path": str(model)}, steps=1, batch=1, micro_batch=1, packing=True)
        assert train_sft(wanted, tmp_path / f"run-{model.name}").facts["updates"] == 1


def test_an_attention_that_is_not_there_is_what_the_error_speaks_of(home: Path, tmp_path: Path) -> None:
    for name in ("flash_attention_2", "none_such"):
        wanted = settings(home, model={"attention": name})
        with pytest.raises(ConfigError, match="cannot be loaded") as raised:
            train_sft(wanted, tmp_path / name)
        assert raised.value.hint == "use model.attention=auto"


def test_packing_is_tried_with_rows_as_long_as_a_micro_batch_makes_them(home: Path, tmp_path: Path) -> None:
    sizes = {"hidden_size": 32, "num_layers": 2, "num_heads": 2, "attention_types": [[["global", "local"], 1]]}
    neo = tiny(home, tmp_path / "neo", "gpt_neo", max_position_embeddings=1024, **sizes)  # masks have that size
    wanted = settings(home, "sft", None, {"path": str(neo)}, steps=1, batch=2, micro_batch=2, packing=True)
    with pytest.raises(ConfigError, match="cannot keep packed samples apart"):
        train_sft(wanted, tmp_path / "run")


def test_a_model_whose_backbone_is_not_found_is_refused_before_training(home: Path, tmp_path: Path) -> None:
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}
    other = tiny(home, tmp_path / "other", "llama4_text", intermediate_size=32, num_local_experts=2, **sizes)
    with pytest.raises(ConfigError, match="fused head"):
        train_sft(settings(home, "sft", None, {"path": str(other)}), tmp_path / "run")


def tokenizer_without(home: Path, folder: Path, *names: str) -> Path:
    """Returns the base model, with these parts removed from its tokenizer."""
    shutil.copytree(home / "base", folder)
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    kept = {name: value for name, value in config.items() if name not in names}
    (folder / "tokenizer_config.json").write_text(json.dumps(kept))
    return folder


def test_a_tokenizer_that_can_neither_end_nor_pad_is_refused(home: Path, tmp_path: Path) -> None:
    bare = tokenizer_without(home, tmp_path / "bare", "chat_template", "eos_token", "pad_token")
    with pytest.raises(ConfigError, match="no token that ends a text") as raised:
        train_sft(settings(home, "sft", None, {"path": str(bare)}), tmp_path / "run")
    assert "eos_token" in str(raised.value.hint)


def test_without_a_template_a_text_begins_as_the_tokenizer_begins_it(home: Path, tmp_path: Path) -> None:
    from tokenizers import Tokenizer
    from tokenizers.processors import TemplateProcessing

    plain = tokenizer_without(home, tmp_path / "plain", "chat_template")
    begun = tokenizer_without(home, tmp_path / "begun", "chat_template")
    tokenizer = Tokenizer.from_file(str(begun / "tokenizer.json"))
    tokenizer.post_processor = TemplateProcessing(single="<|im_start|> $A", special_tokens=[("<|im_start|>", 1)])
    tokenizer.save(str(begun / "tokenizer.json"))
    config = json.loads((begun / "tokenizer_config.json").read_text())
    (begun / "tokenizer_config.json").write_text(json.dumps({**config, "bos_token": "<|im_start|>"}))
    one, other = (
        prepare(settings(home, "sft", {"length": 4096}, {"path": str(path)}))[0][0] for path in (plain, begun)
    )
    assert other.ids.tolist() == [1, *one.ids.tolist()]
    assert other.flags.tolist() == [0, *one.flags.tolist()]


def test_models_that_do_not_fit_the_data(home: Path, tmp_path: Path) -> None:
    short = tiny(home, tmp_path / "short", "gpt2", n_positions=64, **GPT2)
    with pytest.raises(ConfigError, match="64 positions"):
        train_sft(settings(home, "sft", None, {"path": str(short)}), tmp_path / "run1")
    small = tmp_path / "small"
    shutil.copytree(home / "base", small)
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(small)
    model.resize_token_embeddings(100)
    model.save_pretrained(small)
    with pytest.raises(ConfigError, match="embedding 100 tokens"):
        train_sft(settings(home, "sft", None, {"path": str(small)}), tmp_path / "run2")
    torn = small / "model.safetensors"
    torn.write_bytes(torn.read_bytes()[:1000])
    with pytest.raises(ConfigError, match="cannot be loaded"):
        train_sft(settings(home, "sft", None, {"path": str(small)}), tmp_path / "run3")


def test_mask_mean_wants_an_update_of_one_micro_batch(home: Path, tmp_path: Path) -> None:
    loss = {"name": "dft", "reduction": "mask_mean"}
    with pytest.raises(ConfigError, match="mask_mean") as raised:
        arguments(settings(home, loss, batch=4, micro_batch=2), tmp_path)
    assert "token_mean" in str(raised.value.hint)
    arguments(settings(home, loss, batch=4, micro_batch=4), tmp_path)


def test_eaft_trains_on_the_entropy_of_the_top_tokens(home: Path, tmp_path: Path) -> None:
    wanted = settings(home, "eaft", batch=2, micro_batch=2)
    samples, _ = prepare(wanted)
    trainer = make_trainer(wanted, tmp_path, arguments(wanted, tmp_path), samples, None)
    batch = next(iter(trainer.get_train_dataloader()))
    ids, mask = batch["input_ids"], batch["labels"][:, 1:] != -100
    with torch.no_grad():
        logits = trainer.model(input_ids=ids, attention_mask=batch["attention_mask"]).logits[:, :-1]
        log_probs = logits.log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
        found = trainer.compute_loss(trainer.model, dict(batch))
    expected = LOSSES["eaft"](log_probs, mask, entropy=top_k_entropy(logits)).loss
    assert float(found) == pytest.approx(float(expected), rel=1e-5)
    whole = LOSSES["eaft"](log_probs, mask, entropy=torch.distributions.Categorical(logits=logits).entropy()).loss
    assert float(found) < float(whole) - 1e-4
    looked = explain(wanted, 0)
    assert all(t.weight <= 1 for t in looked.tokens) and min(t.weight for t in looked.tokens) < 1


@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize("tune", ["full", "lora"])
def test_asft_is_anchored_over_the_whole_vocabulary(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tune: str, packing: bool
) -> None:
    """The trainer's loss and gradient equal those of the authors' formula on whole logits in float64."""
    from peft import get_peft_model
    from transformers import AutoModelForCausalLM

    from kernelwright.training.fine_tune import heads
    from kernelwright.training.fine_tune.run import adapter

    monkeypatch.setattr(heads, "_TILE", 7)
    model = {"tune": tune, "lora": {"dropout": 0.0}} if tune == "lora" else {"tune": tune}
    wanted = settings(home, {"name": "asft", "kl_weight": 0.7}, model=model, batch=2, micro_batch=2, packing=packing)
    samples, _ = prepare(wanted)
    trainer = make_trainer(wanted, tmp_path, arguments(wanted, tmp_path), samples, None)
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in (w for w in trainer.model.parameters() if w.requires_grad):
            weight += 0.1 * torch.randn_like(weight)
    batch = next(iter(trainer.get_train_dataloader()))
    trainer.model.eval()
    found = trainer.compute_loss(trainer.model, dict(batch))
    found.backward()

    def fresh() -> Any:
        made = AutoModelForCausalLM.from_pretrained(home / "base", dtype=torch.float64).eval()
        return get_peft_model(made, adapter(wanted.model)).eval() if tune == "lora" else made

    def logits(of: Any) -> Any:
        """Returns the logits of the whole batch; joined samples are told apart by their positions."""
        names = ("position_ids", "attention_mask") if not packing else ("position_ids",)
        more = {name: batch[name] for name in names if name in batch}
        return of(input_ids=batch["input_ids"], **more, use_cache=False).logits[:, :-1]

    exact = fresh()
    exact.load_state_dict(trainer.model.state_dict())
    targets = batch["labels"][:, 1:] != -100
    ours = logits(exact)[targets].log_softmax(-1)
    theirs = logits(fresh())[targets].log_softmax(-1).detach()
    gold = ours.gather(1, batch["input_ids"][:, 1:][targets][:, None])[:, 0]
    kl = (theirs.exp() * (theirs - ours)).sum(1)
    assert kl.mean() > 0.01, "the model has left its anchor"
    expected = (-gold.detach().exp() * gold + 0.7 * kl).mean()
    expected.backward()
    assert found.item() == pytest.approx(expected.item(), rel=1e-4)
    slopes = [(a.grad, b.grad) for a, b in zip(trainer.model.parameters(), exact.parameters(), strict=True)]
    assert any(b is not None and b.abs().max() > 1e-4 for _, b in slopes)
    for mine, right in slopes:
        assert (mine is None) == (right is None)
        if mine is not None:
            assert torch.allclose(mine.double(), right, rtol=1e-3, atol=1e-5)


def test_asft_refuses_shards(home: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="asft"):
        arguments(settings(home, "asft", fsdp="full"), tmp_path)  # before anything else about shards


@pytest.mark.parametrize(
    "loss",
    [
        {"name": "cuset", "lam": -3},
        {"name": "cuset", "lam": math.inf},
        {"name": "cuset", "tau": math.nan},
        {"name": "cuset", "scope": "host"},
        {"name": "cuset", "sample_weight": "heavy"},
        {"name": "eaft", "alpha": -1},
        {"name": "eaft", "max_entropy": 0},
        {"name": "asft", "kl_weight": math.inf},
        {"name": "profit", "tau": math.inf},
        {"name": "sft", "reduction": "mean"},
    ],
)
def test_parameters_of_losses_have_ranges(home: Path, loss: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(key for key in loss if key != "name")):
        settings(home, loss)
    log_probs, mask = torch.full((1, 3), -1.0), torch.ones(1, 3, dtype=torch.bool)
    more: dict[str, Any] = {"eaft": {"entropy": mask * 0.0}, "asft": {"kl": mask * 0.0}}
    name, parameters = loss["name"], {key: value for key, value in loss.items() if key != "name"}
    with pytest.raises(ConfigError, match=next(iter(parameters)).replace("_", ".")):
        LOSSES[name](log_probs, mask, **more.get(name, {}), **parameters)


@pytest.mark.parametrize("change", [{"beta": math.inf}, {"beta": 0}])
def test_beta_is_a_number(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="beta"):
        DpoSettings.model_validate(
            {"model": {"path": "m"}, "data": {"path": "d"}, "train": {"steps": 1}, "loss": change}
        )


def test_folders_that_cannot_be_used(home: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for out in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/none")):
        for use in (
            lambda out=out: begin(settings(home), out),
            lambda out=out: write_page(explain(settings(home), 0), out / "page.html"),
            lambda out=out: train_in_processes("sft", settings(home), out, 2),
        ):
            with pytest.raises(StoreError) as raised:
                use()
            assert "--out" in str(raised.value.hint)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "run.sqlite").write_text("x")
    with pytest.raises(StoreError, match="holds a run of eval"):
        train_in_processes("sft", settings(home), foreign, 2)
    assert [path.name for path in foreign.iterdir()] == ["run.sqlite"]


def test_two_processes_do_not_train_in_one_folder(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    out.mkdir()
    code = "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True)"
    other = subprocess.Popen(
        [sys.executable, "-c", f"{code}; input()", str(out / ".lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout is not None and other.stdout.readline() == "held\n"
    with pytest.raises(ConfigError, match="another process trains"):
        begin(settings(home), out)
    other.communicate("\n")
    begin(settings(home), out)
    begin(settings(home), out)  # this process may come back


def test_a_run_is_not_gone_on_with_on_other_data(home: Path, tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    wanted, out = settings(home, "sft", {"path": str(data)}), tmp_path / "run"
    train_sft(wanted, out)
    before = (out / "data.json").read_text()
    data.write_text("".join(json.dumps(row) + "\n" for row in ROWS[:3]))
    with pytest.raises(ConfigError, match="other data") as raised:
        train_sft(wanted, out)
    assert "--out" in str(raised.value.hint) and (out / "data.json").read_text() == before
    old = json.loads(before)
    del old["fingerprint"]  # a run of an earlier version
    (out / "data.json").write_text(json.dumps(old))
    train_sft(wanted, out)


@pytest.mark.parametrize(
    ("model", "train", "match"),
    [
        ({}, {"schedule": "foo"}, "schedule"),
        ({}, {"report_to": ["foo"]}, "foo"),
        ({"tune": "lora", "lora": {"targets": "foo"}}, {}, "foo"),
    ],
)
def test_what_only_the_libraries_know_is_said_as_a_setting(
    home: Path, tmp_path: Path, model: Any, train: Any, match: str
) -> None:
    with pytest.raises(ConfigError, match=match):
        train_sft(settings(home, "sft", None, model, **train), tmp_path / "run")


@pytest.mark.parametrize("seed", [-1, 99999999999])
def test_seeds_are_those_that_generators_take(home: Path, seed: int) -> None:
    with pytest.raises(ValueError, match="seed"):
        SftSettings.model_validate({**settings_table(home), "seed": seed})


def test_explain_frames_the_window_that_the_loss_uses(home: Path) -> None:
    for window in (1, 2, 8):
        wanted = settings(home, {"name": "cuset", "window": window, "scope": "cuda_only"})
        for number in range(len(ROWS)):
            found = explain(wanted, number)
            framed = [t for t in found.tokens if t.hardest]
            assert all(t.cuda for t in framed)
            mean = sum(t.confidence for t in framed) / len(framed)
            assert mean == pytest.approx(found.stats["hardest"], abs=1e-7)
            cuda = torch.tensor([[t.cuda for t in found.tokens]])
            confidence = torch.tensor([[t.confidence for t in found.tokens]])
            assert mean == pytest.approx(float(regions(confidence, cuda, window).hardest), abs=1e-7)


@pytest.mark.parametrize(("marks", "turns"), [([0, 1, 0, 0], (1,)), ([0, 1, 0, 1], (1, 3)), ([0, 0, 0, 1], (3,))])
def test_explain_shows_the_turns_that_are_trained_on(home: Path, tmp_path: Path, marks: Any, turns: Any) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps({"messages": TWO_TURNS, "actions": marks}) + "\n")
    wanted = settings(home, "sft", {"path": str(tmp_path / "rows.jsonl")})
    found = explain(wanted, 0)
    said = "".join(t.text for t in found.tokens)
    assert said == "".join(TWO_TURNS[at]["content"] + "<|im_end|>" for at in turns)
    sample = prepare(wanted)[0][0]
    assert len(found.tokens) == int(((sample.flags & TARGET) != 0).sum())
    assert encoder_of(wanted).tokenizer.decode(sample.ids[(sample.flags & TARGET) != 0]) == said


def test_a_resumed_run_has_the_same_mean_weight_and_counts_all_updates(home: Path, tmp_path: Path) -> None:
    loss = {"name": "cuset", "window": 16, "sample_weight": "normalised", "reduction": "sum"}
    wanted = settings(home, loss, steps=6, save_every=2, lr=1e-2)
    whole = train_sft(wanted, tmp_path / "run").facts
    losses = [row["loss"] for row in log(tmp_path / "run")]
    last = last_checkpoint(tmp_path / "run")
    assert last is not None
    shutil.rmtree(last)
    (tmp_path / "run" / "training.json").unlink()
    again = train_sft(wanted, tmp_path / "run").facts
    rows = log(tmp_path / "run")
    assert [row["loss"] for row in rows] == losses
    assert again["loss"] == pytest.approx(whole["loss"], rel=1e-4)
    assert again["seconds"] > rows[3]["seconds"] and [r["seconds"] for r in rows] == sorted(r["seconds"] for r in rows)
    assert _mean_loss([{"step": 2, "loss": 1.0}, {"step": 3, "loss": 4.0}, {"step": 3}]) == 2.0


def test_other_settings_are_named_with_what_they_were(tmp_path: Path) -> None:
    from kernelwright.training.fine_tune.run import keep_settings
    from kernelwright.training.rl.settings import RlSettings

    table = {"model": {"path": "none"}, "tasks": {"suite": "none"}}
    keep_settings(RlSettings.model_validate(table), tmp_path)
    (tmp_path / "log.jsonl").write_text("")
    changed = {**table, "seed": 3, "train": {"lr": 0.5, "seconds": 9.0}}
    with pytest.raises(ConfigError, match="other settings: ") as error:
        keep_settings(RlSettings.model_validate(changed), tmp_path)
    for words in ("seed was 0, now 3", "train.lr was 1e-06, now 0.5", "train.seconds was 'not set', now 9.0"):
        assert words in str(error.value)
    many = {**changed, "train": {name: 7 for name in ("updates", "lr", "warm_up", "steps", "save_every")}}
    with pytest.raises(ConfigError, match="; and 2 more"):
        keep_settings(RlSettings.model_validate(many), tmp_path)
    (tmp_path / "settings.toml").write_text("torn =")
    with pytest.raises(ConfigError, match="other settings$"):
        keep_settings(RlSettings.model_validate(table), tmp_path)


@pytest.mark.parametrize("place", ["./none", "../none", "/none/model"])
def test_a_folder_that_is_not_there_is_not_asked_of_the_hub(place: str) -> None:
    from kernelwright.training.fine_tune.run import load_model
    from kernelwright.training.fine_tune.settings import BaseModelSettings

    with pytest.raises(ConfigError, match="there is no folder"):
        load_model(BaseModelSettings(path=place))


def test_nor_by_fine_tuning(home: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no folder"):
        train_sft(settings(home, "sft", None, {"path": str(tmp_path / "none")}), tmp_path / "run")
