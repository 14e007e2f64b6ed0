"""`kernelwright train dpo`: direct preference optimisation on pairs of answers, or of whole rollouts (M-DPO).

Rows become tokenised pairs, TRL's DPO trainer trains, and the result is saved as a model that policies can load. The
reference is the model before training: with an adapter the base model, else a frozen copy. The run's folder has the
same files as one of `train sft`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernelwright.training.fine_tune import run
from kernelwright.training.fine_tune.pairs import PreferencePair, fingerprint, read_pairs, split_pairs
from kernelwright.training.fine_tune.samples import load_tokenizer
from kernelwright.training.fine_tune.settings import DpoSettings


def train_dpo(settings: DpoSettings, out: Path) -> run.FineTuneResult:
    """Trains, or resumes the run in `out`. Raises `ConfigError`. Ctrl-C leaves a checkpoint of the last update."""
    run.begin(settings, out)
    args = arguments(settings, out)
    pairs, report = read_pairs(settings)
    training, held_out = split_pairs(pairs, settings.data.held_out)
    if run.is_main():
        data = {"rows": report.rows, "bad_rows": report.counts, **data_facts(training), "held_out": len(held_out)}
        data["fingerprint"] = fingerprint(pairs)
        run.keep_data(out, data, report)
    trainer = make_trainer(settings, out, args, training, held_out)
    facts = run.train(trainer, settings, out)
    facts |= {"loss_name": f"dpo-{settings.loss.kind}", "pairs": len(training), "bad_rows": report.counts}
    if held_out:
        found = trainer.evaluate()
        facts["held_out_loss"] = float(found["eval_loss"])
        facts["held_out_accuracy"] = float(found["eval_rewards/accuracies"])
    run.finish(trainer, settings.model, out, facts)
    return run.FineTuneResult(facts)


def data_facts(pairs: list[PreferencePair]) -> dict[str, Any]:
    """Counts the training data. `own_share`: the share of the policy's own tokens after the prompt."""
    sides = [side for pair in pairs for side in (pair.chosen, pair.rejected)]
    tokens = sum(len(side.ids) for side in sides)
    return {
        "training": len(pairs),
        "prompts": len({pair.key for pair in pairs}),
        "tokens": tokens,
        "own_share": round(sum(sum(side.own) for side in sides) / max(tokens, 1), 4),
        "longest": max(len(pair.prompt) + max(len(pair.chosen.ids), len(pair.rejected.ids)) for pair in pairs),
    }


def arguments(settings: DpoSettings, out: Path) -> Any:
    """Returns TRL's configuration. Raises `ConfigError` if rows do not divide evenly over processes."""
    from trl import DPOConfig

    loss = settings.loss
    common = run.arguments(
        settings.train, settings.model, settings.bench, settings.seed, out, bool(settings.data.held_out)
    )
    with run.refusals("the trainer's arguments"):
        return DPOConfig(
            **common,
            beta=loss.beta,
            label_smoothing=loss.label_smoothing,
            loss_type=[loss.kind, "sft"] if loss.sft_weight else [loss.kind],
            loss_weights=[1.0, loss.sft_weight] if loss.sft_weight else None,
        )


def make_trainer(
    settings: DpoSettings, out: Path, args: Any, training: list[PreferencePair], held_out: list[PreferencePair]
) -> Any:
    """Makes the trainer of a run, ready for `train()`; `args` comes from `arguments`."""
    from kernelwright.training.fine_tune.callbacks import callbacks, settle
    from kernelwright.training.fine_tune.dpo_trainer import PairCollator, PairTrainer

    tokenizer = load_tokenizer(settings.model.path, settings.model.trust_remote_code)
    full = settings.model.tune == "full"
    model = run.load_model(settings.model)
    run.check_fits(model, *_largest([*training, *held_out]))
    reference = run.load_model(settings.model).requires_grad_(False) if full else None
    called = callbacks(settings, out)
    with run.refusals("the trainer"):
        trainer = PairTrainer(
            model=model,
            ref_model=reference,
            args=args,
            data_collator=PairCollator(pad_token_id=tokenizer.pad_token_id),
            train_dataset=dataset(training),
            eval_dataset=dataset(held_out) if held_out else None,
            processing_class=tokenizer,
            peft_config=run.adapter(settings.model),
            callbacks=called,
        )
    run.check_targets(trainer.model, settings.model)
    return settle(trainer)


def _largest(pairs: list[PreferencePair]) -> tuple[int, int]:
    """Returns the largest token id, and the most tokens of a prompt with one of its answers."""
    rows = [[*pair.prompt, *side.ids] for pair in pairs for side in (pair.chosen, pair.rejected)]
    return max(max(row) for row in rows), max(len(row) for row in rows)


def dataset(pairs: list[PreferencePair]) -> Any:
    """Converts pairs to a `datasets.Dataset`."""
    from datasets import Dataset

    rows = [
        {
            "prompt_ids": pair.prompt,
            "chosen_ids": pair.chosen.ids,
            "rejected_ids": pair.rejected.ids,
            "chosen_own": pair.chosen.own,
            "rejected_own": pair.rejected.own,
        }
        for pair in pairs
    ]
    return Dataset.from_list(rows)
