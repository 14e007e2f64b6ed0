"""`kernelwright train sft`: from settings to a fine-tuned model, resumable, with every bad row named.

Read from top to bottom: rows become samples, samples become a data set, the trainer trains, and the result is saved as
a model that policies can load. Leaves in the run's folder: `settings.toml`, `data.json`, `bad_rows.jsonl`,
`log.jsonl`, `bench/` if requested, Trainer's checkpoints, `training.json` and the model.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from kernelwright.errors import ConfigError
from kernelwright.training.fine_tune import run
from kernelwright.training.fine_tune.samples import CUDA, TARGET, EncodedSamples, load_tokenizer, pack, prepare, split
from kernelwright.training.fine_tune.settings import SftSettings
from kernelwright.training.fine_tune.texts import RowReport


def train_sft(settings: SftSettings, out: Path) -> run.FineTuneResult:
    """Trains, or resumes the run in `out`. Raises `ConfigError`. Ctrl-C leaves a checkpoint of the last update."""
    run.begin(settings, out)
    args = arguments(settings, out)
    with args.main_process_first():  # other processes then find the samples in the cache
        samples, report = prepare(settings)
    training, held_out = split(samples, settings.data.held_out)
    if run.is_main():
        data = {**data_facts(training, held_out, report), "fingerprint": samples.fingerprint}
        run.keep_data(out, data, report)
    trainer = make_trainer(settings, out, args, training, held_out)
    facts = run.train(trainer, settings, out)
    facts |= {"loss_name": settings.loss.name, "samples": len(training), "bad_rows": report.counts}
    facts |= _held_out_facts(trainer, held_out)
    run.finish(trainer, settings.model, out, facts)
    return run.FineTuneResult(facts)


def _held_out_facts(trainer: Any, held_out: EncodedSamples | None) -> dict[str, Any]:
    if held_out is None:
        return {}
    metrics = trainer.evaluate()
    return {"held_out_nll": float(metrics["eval_nll"]), "held_out_loss": float(metrics["eval_loss"])}


def data_facts(training: EncodedSamples, held_out: EncodedSamples | None, report: RowReport) -> dict[str, Any]:
    """Counts the training data."""
    targets = (training.flags & TARGET) != 0
    return {
        "rows": report.rows,
        "bad_rows": report.counts,
        "training": len(training),
        "held_out": len(held_out) if held_out is not None else 0,
        "tokens": int(training.lengths.sum()),
        "target_tokens": int(targets.sum()),
        "cuda_share": round(float(((training.flags & CUDA) != 0).sum() / max(targets.sum(), 1)), 4),
        "longest": int(training.lengths.max()),
    }


def make_trainer(
    settings: SftSettings, out: Path, args: Any, training: EncodedSamples, held_out: EncodedSamples | None
) -> Any:
    """Makes the trainer of a run, ready for `train()`; `args` comes from `arguments`."""
    from kernelwright.training.fine_tune.callbacks import callbacks, settle
    from kernelwright.training.fine_tune.sft_trainer import FlagCollator, WeightedSFTTrainer, check_apart, check_runs

    tokenizer = load_tokenizer(settings.model.path, settings.model.trust_remote_code)
    packing = settings.train.packing
    model = run.load_model(settings.model, joined=packing)
    for part in (training, held_out):
        if part is not None:
            run.check_fits(model, int(part.ids.max()), int(part.lengths.max()))
    reference, called = _reference(settings), callbacks(settings, out)
    with run.refusals("the trainer"):
        trainer = WeightedSFTTrainer(
            loss=settings.loss,
            reference=reference,
            model=model,
            args=args,
            data_collator=FlagCollator(pad_token_id=tokenizer.pad_token_id, padding_free=packing),
            train_dataset=dataset(training, settings.data.length if packing else None),
            eval_dataset=dataset(held_out, settings.data.length if packing else None) if held_out is not None else None,
            processing_class=tokenizer,
            peft_config=run.adapter(settings.model),
            callbacks=called,
        )
    run.check_targets(trainer.model, settings.model)
    check_runs(trainer)
    if packing:  # the rows of a micro-batch are joined into one
        check_apart(trainer, min(settings.data.length * settings.train.micro_batch, int(training.lengths.sum())))
    return settle(trainer)


def arguments(settings: SftSettings, out: Path) -> Any:
    """Returns TRL's configuration. Raises `ConfigError` if rows do not divide evenly over processes."""
    from trl import SFTConfig

    if settings.loss.name == "asft" and settings.train.fsdp != "no":
        raise ConfigError(
            "loss.name = asft applies the head a second time, and train.fsdp has only shards of its weights",
            hint="set train.fsdp=no",
        )
    common = run.arguments(
        settings.train, settings.model, settings.bench, settings.seed, out, bool(settings.data.held_out)
    )
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if settings.loss.reduction == "mask_mean" and settings.train.batch != settings.train.micro_batch:
        raise ConfigError(
            "loss.reduction = mask_mean divides by the weights of a micro-batch, and an update here has several: "
            f"train.batch = {settings.train.batch}, of {settings.train.micro_batch} on {processes} processes",
            hint="make train.micro_batch as large as train.batch on one process, or use token_mean",
        )
    with run.refusals("the trainer's arguments"):
        return SFTConfig(**common, packing=False, dataset_kwargs={"skip_prepare_dataset": True})


def _reference(settings: SftSettings) -> Any:
    if settings.loss.name != "asft" or settings.model.tune == "lora":
        return None
    from trl.trainer.utils import add_fused_lm_head

    model = run.load_model(settings.model, joined=settings.train.packing).requires_grad_(False)
    add_fused_lm_head(model)
    return model


def dataset(samples: EncodedSamples, room: int | None) -> Any:
    """Converts samples to a `datasets.Dataset`; with `room`, packs them into rows of up to `room` tokens."""
    import pyarrow as pa
    from datasets import Dataset

    if room is None:
        ids, flags, bounds = samples.ids, samples.flags, samples.bounds
        columns: dict[str, Any] = {}
    else:
        rows = pack(samples.lengths.tolist(), room)
        order = [sample for row in rows for sample in row]
        packed = samples.chosen(order)
        ids, flags = packed.ids, packed.flags
        sizes = [[int(samples.lengths[sample]) for sample in row] for row in rows]
        bounds = np.concatenate([[0], np.cumsum([sum(row) for row in sizes])])
        columns = {"seq_lengths": pa.array(sizes, type=pa.list_(pa.int64()))}
    offsets = pa.array(bounds, type=pa.int64())
    columns["input_ids"] = pa.LargeListArray.from_arrays(offsets, pa.array(ids))
    columns["flags"] = pa.LargeListArray.from_arrays(offsets, pa.array(flags))
    return Dataset(pa.table(columns)).with_format("numpy")
