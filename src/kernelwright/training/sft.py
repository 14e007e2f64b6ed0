"""`kernelwright train sft`: from settings to a fine-tuned model, resumable, with every bad row named.

The recipe, to be read from top to bottom: rows become samples, samples become a data set, the trainer trains, the
result is saved as a model that policies can use. Leaves in the run's folder: `settings.toml`, `data.json`,
`bad_rows.jsonl`, `log.jsonl`, Trainer's checkpoints, and the model.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernelwright.config import dump_config
from kernelwright.errors import ConfigError
from kernelwright.training.post_settings import BaseModelSettings, SftSettings
from kernelwright.training.samples import CUDA, TARGET, Samples, load_tokenizer, pack, prepare, split
from kernelwright.training.texts import Report

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")


@dataclass(frozen=True)
class SftResult:
    """What a run did, as plain values for scripts."""

    facts: dict[str, Any]


def train_sft(settings: SftSettings, out: Path) -> SftResult:
    """Trains, or goes on with what is in `out`. Raises `ConfigError`; Ctrl-C leaves the last checkpoint."""
    _check_libraries()
    out.mkdir(parents=True, exist_ok=True)
    keep_settings(settings, out)
    samples, report = prepare(settings)
    training, held_out = split(samples, settings.data.held_out)
    data = data_facts(training, held_out, report)
    (out / "data.json").write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    report.write(out / "bad_rows.jsonl")
    for line in report.lines():
        print(line, file=sys.stderr)
    trainer = make_trainer(settings, out, training, held_out)
    resumed = last_checkpoint(out)
    result = trainer.train(resume_from_checkpoint=str(resumed) if resumed else None)
    facts = {
        "name": settings.name,
        "loss_name": settings.loss.name,
        "updates": int(trainer.state.global_step),
        "loss": float(result.training_loss),
        "samples": len(training),
        "bad_rows": report.counts,
        "seconds": float(result.metrics.get("train_runtime", math.nan)),
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "trained_parameters": sum(p.numel() for p in trainer.model.parameters() if p.requires_grad),
        **_held_out_facts(trainer, held_out),
    }
    save(trainer, settings, out)
    if trainer.is_world_process_zero():
        (out / "training.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return SftResult(facts)


def _held_out_facts(trainer: Any, held_out: Samples | None) -> dict[str, Any]:
    if held_out is None:
        return {}
    metrics = trainer.evaluate()
    return {"held_out_nll": float(metrics["eval_nll"]), "held_out_loss": float(metrics["eval_loss"])}


def keep_settings(settings: Any, out: Path) -> None:
    """Writes the settings beside the run; a run that was begun with others is not gone on with."""
    path, text = out / "settings.toml", dump_config(settings)
    if path.is_file() and path.read_text(encoding="utf-8") != text:
        raise ConfigError(
            f"{str(out)!r} holds a run with other settings",
            hint="give the settings it was begun with, or another --out",
        )
    path.write_text(text, encoding="utf-8")


def data_facts(training: Samples, held_out: Samples | None, report: Report) -> dict[str, Any]:
    """What a run is trained on, in numbers."""
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


def make_trainer(settings: SftSettings, out: Path, training: Samples, held_out: Samples | None) -> Any:
    """The trainer of a run, ready for `train()`."""
    from transformers import PrinterCallback

    from kernelwright.training.sft_callbacks import callbacks
    from kernelwright.training.sft_trainer import FlagCollator, WeightedSFTTrainer

    _quiet()
    tokenizer = load_tokenizer(settings.model.path, settings.model.trust_remote_code)
    packing = settings.train.packing
    trainer = WeightedSFTTrainer(
        loss=settings.loss,
        reference=_reference(settings),
        model=load_model(settings.model),
        args=arguments(settings, out, held_out is not None),
        data_collator=FlagCollator(pad_token_id=tokenizer.pad_token_id, padding_free=packing),
        train_dataset=dataset(training, settings.data.length if packing else None),
        eval_dataset=dataset(held_out, settings.data.length if packing else None) if held_out is not None else None,
        processing_class=tokenizer,
        peft_config=lora_adapter(settings.model),
        callbacks=callbacks(settings, out),
    )
    trainer.remove_callback(PrinterCallback)  # it writes to stdout, which is for data
    return trainer


def _quiet() -> None:
    """No progress bars of weights, and no word about names that newer versions of transformers spell otherwise."""
    import warnings

    from transformers.utils import logging

    logging.disable_progress_bar()
    warnings.filterwarnings("ignore", message=".*deprecated and will be removed in v6.*", category=FutureWarning)


def load_model(settings: BaseModelSettings) -> Any:
    """The base model, with float32 weights for full tuning. Raises `ConfigError`."""
    import torch
    from transformers import AutoModelForCausalLM

    dtype = settings.dtype
    if dtype == "auto":
        dtype = "bfloat16" if settings.tune == "lora" and torch.cuda.is_available() else "float32"
    try:
        return AutoModelForCausalLM.from_pretrained(
            settings.path,
            dtype=getattr(torch, dtype),
            attn_implementation=settings.attention,
            trust_remote_code=settings.trust_remote_code,
        )
    except (OSError, ValueError, ImportError) as error:
        raise ConfigError(
            f"the model {settings.path!r} cannot be loaded: {str(error).splitlines()[0][:300]}",
            hint="model.path must be a folder or a Hub id in Hugging Face's format",
        ) from error


def _reference(settings: SftSettings) -> Any:
    if settings.loss.name != "asft" or settings.model.tune == "lora":
        return None
    from trl.trainer.utils import add_fused_lm_head

    model = load_model(settings.model).requires_grad_(False)
    add_fused_lm_head(model)
    return model


def lora_adapter(settings: BaseModelSettings) -> Any:
    """peft's configuration of the adapter; None for full tuning."""
    if settings.tune == "full":
        return None
    from peft import LoraConfig

    targets = settings.lora.targets
    return LoraConfig(
        r=settings.lora.r,
        lora_alpha=settings.lora.alpha,
        lora_dropout=settings.lora.dropout,
        target_modules=targets if targets == "all-linear" else [name.strip() for name in targets.split(",")],
        task_type="CAUSAL_LM",
    )


def arguments(settings: SftSettings, out: Path, held_out: bool) -> Any:
    """TRL's configuration for these settings. Raises `ConfigError` where rows do not divide over devices."""
    import torch
    from trl import SFTConfig

    train = settings.train
    gpu = torch.cuda.is_available()
    bf16 = gpu if train.precision == "auto" else train.precision == "bf16"
    processes = _processes()
    accumulate, rest = divmod(train.batch, train.micro_batch * processes)
    if rest or not accumulate:
        raise ConfigError(
            f"train.batch = {train.batch} rows cannot be made of micro-batches of {train.micro_batch} on "
            f"{processes} processes",
            hint="make train.batch a multiple of train.micro_batch times the processes",
        )
    return SFTConfig(
        output_dir=str(out / "checkpoints"),
        seed=settings.seed,
        data_seed=settings.seed,
        per_device_train_batch_size=train.micro_batch,
        per_device_eval_batch_size=train.micro_batch,
        gradient_accumulation_steps=accumulate,
        num_train_epochs=train.epochs or 1.0,
        max_steps=train.steps or -1,
        learning_rate=train.lr,
        lr_scheduler_type=train.schedule,
        warmup_steps=train.warm_up,  # below 1: a share of all updates
        weight_decay=train.weight_decay,
        max_grad_norm=train.clip,
        adam_beta2=train.beta2,
        bf16=bf16,
        use_cpu=not gpu,
        gradient_checkpointing=settings.model.checkpointing,
        logging_steps=train.log_every,
        logging_first_step=True,
        eval_strategy="steps" if held_out and train.eval_every else "no",
        eval_steps=train.eval_every,
        save_strategy="steps",
        save_steps=train.save_every,
        save_total_limit=2,
        report_to=train.report_to or "none",
        disable_tqdm=True,
        max_length=None,
        packing=False,
        dataset_kwargs={"skip_prepare_dataset": True},
        remove_unused_columns=False,
    )


def _processes() -> int:
    import os

    return int(os.environ.get("WORLD_SIZE", "1"))


def dataset(samples: Samples, room: int | None) -> Any:
    """Samples as a `datasets.Dataset`; with `room`, packed into rows of so many tokens."""
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
    return Dataset(pa.table(columns))


def last_checkpoint(out: Path) -> Path | None:
    """The newest whole checkpoint of a run that was stopped; None where there is none."""
    found = [p for p in (out / "checkpoints").glob("checkpoint-*") if (p / "trainer_state.json").is_file()]
    return max(found, key=lambda p: int(p.name.rpartition("-")[2]), default=None)


def save(trainer: Any, settings: SftSettings, out: Path) -> None:
    """The trained model, ready for a policy: of a LoRA run the adapter in `adapter/`, and the merged model."""
    if not trainer.is_world_process_zero() and not trainer.is_fsdp_enabled:
        return
    if settings.model.tune == "full":
        trainer.save_model(str(out))
    else:
        trainer.save_model(str(out / "adapter"))
        if settings.model.merge and trainer.is_world_process_zero():
            merged = trainer.accelerator.unwrap_model(trainer.model).merge_and_unload()
            merged.save_pretrained(str(out))
    if trainer.is_world_process_zero() and (settings.model.tune == "full" or settings.model.merge):
        trainer.processing_class.save_pretrained(str(out))
        save_tokenizer_files(settings.model.path, out)


def save_tokenizer_files(source: str, out: Path) -> None:
    """Copies a folder's tokenizer word for word: what was trained with is what is used."""
    for name in _TOKENIZER_FILES:
        if (Path(source) / name).is_file():
            shutil.copyfile(Path(source) / name, out / name)


def _check_libraries() -> None:
    try:
        import datasets  # noqa: F401
        import torch  # noqa: F401
        import trl  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"training needs {error.name}", hint='pip install "kernelwright[trl]"') from error
