"""Preference pairs: the trained tokens of a row, and a model that learns to prefer correct answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from tiny_model import ROWS, log, weights  # noqa: E402
from undecided_model import ANSWER, EXPRESSIONS, REFERENCE, TASKS  # noqa: E402

from kernelwright.config import load_config  # noqa: E402
from kernelwright.errors import ConfigError, TaskError  # noqa: E402
from kernelwright.inference.chat import task_prompt  # noqa: E402
from kernelwright.runs.store import Store  # noqa: E402
from kernelwright.training.fine_tune.dpo import train_dpo  # noqa: E402
from kernelwright.training.fine_tune.pairs import read_pairs, split_pairs  # noqa: E402
from kernelwright.training.fine_tune.settings import DpoSettings, recipe_path  # noqa: E402
from kernelwright.training.pretrain.progress import read_log  # noqa: E402


def say(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def row(name: str, chosen: str, rejected: str, reference: str = "the task") -> dict[str, Any]:
    """Returns a pair as `curate --method preferences` writes it."""
    asked = [say("user", task_prompt(reference))]
    sides = {"chosen": [say("assistant", chosen)], "rejected": [say("assistant", rejected)]}
    return {"prompt": asked, **sides, "task_id": name, "reference": reference}


def settings(path: Path, model: Path, rows: list[Any], data: Any = None, tune: str = "full", **more: Any) -> Any:
    path.mkdir(exist_ok=True)
    text = "".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows)
    (path / "pairs.jsonl").write_text(text)
    table = {
        "model": {"path": str(model), "tune": tune},
        "data": {"path": str(path / "pairs.jsonl"), "length": 1024, **(data or {})},
        "train": {"steps": 2, "batch": 4, "micro_batch": 2, "lr": 1e-3, "log_every": 1, **more.pop("train", {})},
    }
    return DpoSettings.model_validate({**table, **more})


A, B = ROWS[0]["answer"], ROWS[1]["answer"]


def test_only_the_policy_s_own_turns_count(home: Path, tmp_path: Path) -> None:
    from kernelwright.training.fine_tune.dpo import dataset
    from kernelwright.training.fine_tune.dpo_trainer import PairCollator
    from kernelwright.training.fine_tune.samples import load_tokenizer

    rollout = row("mdpo", A, B)
    rollout["chosen"] = [say("assistant", B), say("user", "It is wrong."), say("assistant", A)]
    pairs, _ = read_pairs(settings(tmp_path, home / "base", [row("plain", A, B), rollout]))
    tokenizer = load_tokenizer(str(home / "base"))
    plain, multi = pairs
    own = [t for t, mine in zip(multi.chosen.ids, multi.chosen.own, strict=True) if mine]
    assert tokenizer.decode(own) == f"{B}<|im_end|>{A}<|im_end|>"
    said = tokenizer.decode(multi.prompt + multi.chosen.ids)
    whole = tokenizer.apply_chat_template(rollout["prompt"] + rollout["chosen"], tokenize=False)
    assert said == whole.removesuffix("\n")  # text after the last answer is not trained on
    assert all(plain.chosen.own) and plain.prompt == multi.prompt and plain.rejected == multi.rejected
    batch = PairCollator(pad_token_id=0)(dataset(pairs).to_list())
    assert tokenizer.decode(batch["input_ids"][1][batch["completion_mask"][1] == 1]) == tokenizer.decode(own)
    assert batch["completion_mask"].sum() == len(own) + len(plain.chosen.ids) + 2 * len(plain.rejected.ids)


def test_bad_pairs_are_named(home: Path, tmp_path: Path) -> None:
    lost = {k: v for k, v in row("lost", A, B).items() if k != "rejected"}
    bad = [
        (row("same", A, A), "same-answers"),
        (row("blank", A, " "), "empty-answer"),
        ({**row("nothing asked", A, B), "prompt": ""}, "empty-prompt"),
        (row("words", "no kernel", B), "no-cuda"),
        (row("long", A * 9, B), "too-long"),
        (
            {**row("gap", A, B), "rejected": [say("assistant", ""), say("user", "go on"), say("assistant", B)]},
            "empty-answer",
        ),
        (row("torn \ufffd", A, B + "\ufffd"), "broken-utf8"),
        (row("special", A, B + "<|im_end|>"), "special-token"),
        (lost, "no-field"),
        ('{"prompt": ', "unreadable"),
    ]
    wanted = settings(tmp_path, home / "base", [row("good", A, B), *(r for r, _ in bad), row("words too", A, "none")])
    pairs, report = read_pairs(wanted)
    assert [pair.name for pair in pairs] == ["good", "words too"]  # a rejected answer may lack a kernel
    reasons = [reason for _, reason in bad]
    assert report.counts == {r: reasons.count(r) for r in sorted(reasons)} and report.rows == len(bad) + 2
    with pytest.raises(ConfigError, match="no pairs to train on.*same-answers"):
        read_pairs(settings(tmp_path, home / "base", [bad[0][0]]))
    training, out = split_pairs(pairs * 2, 0)
    assert (len(training), out) == (4, [])
    with pytest.raises(ConfigError, match="leaves none"):
        split_pairs(pairs, 2)


def test_micro_batches_do_not_matter_and_lora_is_merged(home: Path, tmp_path: Path) -> None:
    rows = [row(r["row_id"], r["answer"], ROWS[i - 1]["answer"], r["reference"]) for i, r in enumerate(ROWS[:4])]
    found = {}
    for size in (1, 4):
        wanted = settings(tmp_path, home / "base", rows, train={"micro_batch": size, "warm_up": 0.0})
        train_dpo(wanted, tmp_path / f"by{size}")
        found[size] = log(tmp_path / f"by{size}")
    assert [r["loss"] for r in found[1]] == pytest.approx([r["loss"] for r in found[4]], rel=1e-3)
    assert found[1][1]["loss"] < 0.69
    assert found[1][0]["loss"] == pytest.approx(0.6931, abs=1e-4)  # the model is its own reference at first
    lora = settings(tmp_path, home / "base", rows, tune="lora", train={"lr": 1e-2, "save_every": 1})
    facts = train_dpo(lora, tmp_path / "lora").facts
    assert facts["trained_parameters"] < 0.5 * facts["parameters"] and facts["pairs"] == 4
    merged, base = weights(tmp_path / "lora"), weights(home / "base")
    assert set(merged) == set(base) and any(not torch.equal(merged[n], base[n]) for n in base)
    with pytest.raises(ConfigError, match="other settings"):
        train_dpo(settings(tmp_path, home / "base", rows), tmp_path / "lora")


def test_pairs_of_an_update_count_alike_and_a_loss_that_is_no_number_ends_it(home: Path, tmp_path: Path) -> None:
    """Three pairs form a micro-batch of two and one of one."""
    rows = [row(r["row_id"], r["answer"], ROWS[i - 1]["answer"], r["reference"]) for i, r in enumerate(ROWS[:3])]
    norms = {}
    for size in (1, 2, 4):
        train_dpo(settings(tmp_path, home / "base", rows, train={"micro_batch": size}), tmp_path / f"by{size}")
        norms[size] = log(tmp_path / f"by{size}")[0]["grad_norm"]
    assert norms[2] == pytest.approx(norms[4], rel=1e-4) and norms[1] == pytest.approx(norms[4], rel=1e-4)
    with pytest.raises(ConfigError, match="diverged"):
        train_dpo(settings(tmp_path, home / "base", rows, train={"lr": 1e20, "steps": 6}), tmp_path / "lost")


def test_a_run_of_one_update_has_a_rate(home: Path, tmp_path: Path) -> None:
    """Warm-up starts at rate 0 and would cover the whole run."""
    wanted = settings(tmp_path, home / "base", [row("one", A, B)], train={"steps": 1})
    assert 0 < wanted.train.warm_up < 1
    train_dpo(wanted, tmp_path / "one")
    tuned, base = weights(tmp_path / "one"), weights(home / "base")
    assert log(tmp_path / "one")[0]["learning_rate"] > 0 and any(not torch.equal(tuned[n], base[n]) for n in base)


def test_pairs_teach_what_was_judged_right(undecided: Path, tmp_path: Path) -> None:
    """Measured by execution: the model first gives either kernel for either task, afterwards mostly the correct one."""
    right, other = dict(zip(TASKS, EXPRESSIONS, strict=True)), dict(zip(TASKS, EXPRESSIONS[::-1], strict=True))
    rows = [
        row(name, ANSWER.format(right[name]), ANSWER.format(other[name]), REFERENCE.format(body))
        for name, body in TASKS.items()
    ]
    bench = {"suite": str(undecided / "tasks.jsonl"), "every": 100, "at_start": True, "samples": 4, "trials": 2}
    wanted = settings(
        tmp_path,
        undecided / "model",
        rows,
        bench=bench,
        train={"steps": 48, "batch": 2, "lr": 2e-4, "schedule": "linear", "warm_up": 0.0},
        loss={"sft_weight": 5.0},
    )
    out = tmp_path / "run"
    facts = train_dpo(wanted, out).facts
    rows_of_bench = facts["bench"]
    assert [r["step"] for r in rows_of_bench] == [0, 48]  # before the first and after the last
    first, last = rows_of_bench[0], rows_of_bench[-1]
    assert last["pass@1"] > first["pass@1"] + 0.1 and last["compiled@1"] > 0.8
    assert first["pass@1_low"] <= first["pass@1"] <= first["pass@4"]
    assert sum(last["verdicts"].values()) == 8
    logged = [r for r in read_log(out / "log.jsonl") if "eval_pass@1" in r]
    assert [(r["step"], r["eval_pass@1"]) for r in logged] == [(r["step"], r["pass@1"]) for r in rows_of_bench]
    with Store.open(out / "bench" / "step-000048", writable=False) as store:  # `report` and `compare` read this run
        assert store.meta["verb"] == "bench" and len(store.turns()) == 8
    assert json.loads((out / "training.json").read_text())["bench"] == rows_of_bench
    # A run killed at its last measurement, before the numbers were written, measures again from the stored verdicts.
    kept = (out / "bench" / "results.jsonl").read_text().splitlines()
    (out / "bench" / "results.jsonl").write_text(kept[0] + "\n" + kept[1][:20])
    again = train_dpo(wanted, out).facts
    assert again["updates"] == 48 and again["bench"] == rows_of_bench
    with Store.open(out / "bench" / "step-000048", writable=False) as store:
        assert [event.kind for event in store.events()].count("session") == 2 and len(store.turns()) == 8


def test_when_it_is_measured_and_what_cannot_be(undecided: Path, tmp_path: Path) -> None:
    from transformers import TrainerControl, TrainerState

    from kernelwright.training.fine_tune.execution import ExecutionCallback
    from kernelwright.training.fine_tune.settings import BaseModelSettings, BenchSettings

    bench = BenchSettings(suite=str(undecided / "tasks.jsonl"), every=4)
    model = BaseModelSettings(path=str(undecided / "model"))
    callback = ExecutionCallback(bench, "test", model, tmp_path)
    saved = []
    for step in range(1, 11):
        control = TrainerControl()
        callback.on_step_end(None, TrainerState(global_step=step, max_steps=10), control)
        saved += [step] if control.should_save else []
    assert saved == [4, 8, 10]  # a checkpoint is saved first, so a measurement can be resumed
    with pytest.raises(TaskError, match="cannot be read"):
        ExecutionCallback(bench.model_copy(update={"suite": str(tmp_path / "none.jsonl")}), "test", model, tmp_path)
    with pytest.raises(ValueError, match="draws nothing"):
        BenchSettings(suite="starter", every=1, samples=0)


@pytest.mark.parametrize("recipe", ["dpo", "mdpo"])
def test_shipped_recipes_load(recipe: str) -> None:
    loaded = load_config(recipe_path(recipe), ["model.path=somewhere"], DpoSettings)
    assert loaded.name == recipe and loaded.loss.kind == "sigmoid" and loaded.loss.beta == 0.1
