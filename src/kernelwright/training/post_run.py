"""What all fine-tuning runs on TRL share: the base model, Trainer's arguments, the run's folder, resuming, saving.

`sft` and `dpo` are recipes over this. A run may be one process or several (`processes`); what is written is written by
the first.
"""

from __future__ import annotations

import json
import math
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelwright.config import dump_config
from kernelwright.errors import ConfigError
from kernelwright.folders import claim
from kernelwright.training.merging import save_tokenizer_files, write_model
from kernelwright.training.post_settings import BaseModelSettings, BenchSettings, UpdateSettings, micro_batches
from kernelwright.training.progress import BENCHES, read_log
from kernelwright.training.texts import Report


@dataclass(frozen=True)
class Result:
    """What a run did, as plain values for scripts."""

    facts: dict[str, Any]


SETTINGS = "settings.toml"
_BEGUN = ("checkpoints", "log.jsonl", "training.json", "rollouts", "state", "config.json")
"""What a run has in its folder once it has done something."""


def begin(settings: Any, out: Path) -> None:
    """Checks what training needs, and makes the run's folder. Raises `ConfigError`."""
    _check_libraries()
    _quiet()
    if is_main():
        claim(out, SETTINGS)
        out.mkdir(parents=True, exist_ok=True)
        keep_settings(settings, out)


def is_main() -> bool:
    """Whether this process is the only one, or the first of several."""
    return os.environ.get("RANK", "0") == "0"


def keep_data(out: Path, data: dict[str, Any], report: Report) -> None:
    """Writes what a run is trained on and what it left out, and says the latter."""
    (out / "data.json").write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    report.write(out / "bad_rows.jsonl")
    for line in report.lines():
        print(line, file=sys.stderr)


def keep_settings(settings: Any, out: Path) -> None:
    """Writes the settings beside the run; a run that was begun with others is not gone on with. One that was refused
    before it did anything is no run."""
    path, text = out / SETTINGS, dump_config(settings)
    begun = any((out / name).exists() for name in _BEGUN)
    if begun and path.is_file() and path.read_text(encoding="utf-8") != text:
        raise ConfigError(
            f"{str(out)!r} holds a run with other settings",
            hint="give the settings it was begun with, or another --out",
        )
    path.write_text(text, encoding="utf-8")


def _check_libraries() -> None:
    try:
        import datasets  # noqa: F401
        import torch  # noqa: F401
        import trl  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"training needs {error.name}", hint='pip install "kernelwright[trl]"') from error


def _quiet() -> None:
    """No progress bars of weights, and no word about names that newer versions of transformers spell otherwise."""
    import warnings

    from transformers.utils import logging

    logging.disable_progress_bar()
    warnings.filterwarnings("ignore", message=".*deprecated and will be removed in v6.*", category=FutureWarning)


def load_model(settings: BaseModelSettings, joined: bool = False) -> Any:
    """The base model, with float32 weights for full tuning. Raises `ConfigError`.

    `joined`: it will see rows of joined samples; with `attention = "auto"`, kinds of models that `joined.MODELS` names
    get attention that needs no mask for these.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from kernelwright.training.joined import MODELS, register

    dtype = settings.dtype
    if dtype == "auto":
        dtype = "bfloat16" if settings.tune == "lora" and torch.cuda.is_available() else "float32"
    try:
        attention = None if settings.attention == "auto" else settings.attention
        if joined and attention is None:
            config = AutoConfig.from_pretrained(settings.path, trust_remote_code=settings.trust_remote_code)
            attention = register() if config.model_type in MODELS else None
        return AutoModelForCausalLM.from_pretrained(
            settings.path,
            dtype=getattr(torch, dtype),
            attn_implementation=attention,
            trust_remote_code=settings.trust_remote_code,
        )
    except (OSError, ValueError, ImportError) as error:
        raise ConfigError(
            f"the model {settings.path!r} cannot be loaded: {str(error).splitlines()[0][:300]}",
            hint="model.path must be a folder or a Hub id in Hugging Face's format",
        ) from error


def adapter(settings: BaseModelSettings) -> Any:
    """PEFT's configuration of the adapter; None for full tuning."""
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


def arguments(
    train: UpdateSettings, model: BaseModelSettings, bench: BenchSettings | None, seed: int, out: Path, held_out: bool
) -> dict[str, Any]:
    """Trainer's arguments for these settings. Raises `ConfigError` where rows do not divide over processes."""
    import torch

    gpu = torch.cuda.is_available()
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    return {
        "output_dir": str(out / "checkpoints"),
        "seed": seed,
        "data_seed": seed,
        "per_device_train_batch_size": train.micro_batch,
        "per_device_eval_batch_size": train.micro_batch,
        "gradient_accumulation_steps": micro_batches(train, processes),
        "num_train_epochs": train.epochs or 1.0,
        "max_steps": train.steps or -1,
        "learning_rate": train.lr,
        "lr_scheduler_type": train.schedule,
        "warmup_steps": train.warm_up,  # below 1: a share of all updates
        "weight_decay": train.weight_decay,
        "max_grad_norm": train.clip,
        "adam_beta2": train.beta2,
        "bf16": gpu if train.precision == "auto" else train.precision == "bf16",
        "use_cpu": not gpu,
        "gradient_checkpointing": model.checkpointing,
        "logging_steps": train.log_every,
        "logging_first_step": True,
        "eval_strategy": "steps" if held_out and train.eval_every else "no",
        "eval_steps": train.eval_every,
        "save_strategy": "steps",
        "save_steps": train.save_every,
        "save_total_limit": 2,
        "report_to": train.report_to or "none",
        "disable_tqdm": True,
        "max_length": None,
        "remove_unused_columns": False,
        "ddp_find_unused_parameters": False,  # every weight has a part in every update
        # Where the first process measures by execution, the others wait.
        "ddp_timeout": 1800 if bench is None else 24 * 3600,
        **_sharding(train, processes),
    }


def _sharding(train: UpdateSettings, processes: int) -> dict[str, Any]:
    if train.fsdp == "no":
        return {}
    import torch

    if processes == 1 or not torch.cuda.is_available():
        raise ConfigError("train.fsdp shards a model over the GPUs of several processes", hint="give --processes N")
    return {
        "fsdp": True,
        "fsdp_config": {
            "version": 2,
            "reshard_after_forward": train.fsdp == "full",
            "state_dict_type": "FULL_STATE_DICT",  # a model in one file, whatever this version of accelerate prefers
        },
    }


def last_checkpoint(out: Path) -> Path | None:
    """The newest whole checkpoint of a run that was stopped; None where there is none."""
    found = [p for p in (out / "checkpoints").glob("checkpoint-*") if (p / "trainer_state.json").is_file()]
    return max(found, key=lambda p: int(p.name.rpartition("-")[2]), default=None)


def train(trainer: Any, settings: Any, out: Path) -> dict[str, Any]:
    """Trains from the last checkpoint on and saves the model. Returns what the run did, as plain values."""
    resumed = last_checkpoint(out)
    if resumed and _all_done(resumed) and not trainer.is_fsdp_enabled:
        loss, seconds = _take(trainer, resumed), 0.0
    else:
        from kernelwright.training.interrupts import kept_at_interrupt

        with kept_at_interrupt(trainer):
            result = trainer.train(resume_from_checkpoint=str(resumed) if resumed else None)
        loss, seconds = float(result.training_loss), float(result.metrics.get("train_runtime", math.nan))
    facts = {
        "name": settings.name,
        "updates": int(trainer.state.global_step),
        "loss": loss,
        "seconds": seconds,
        "processes": int(trainer.accelerator.num_processes),
        "fsdp": bool(trainer.is_fsdp_enabled),
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "trained_parameters": sum(p.numel() for p in trainer.model.parameters() if p.requires_grad),
    }
    benches = read_log(out / BENCHES)
    return {**facts, "bench": benches} if benches else facts


def _all_done(checkpoint: Path) -> bool:
    """Whether a run was stopped after its last update: Trainer would make one more."""
    state = json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
    return 0 < state["max_steps"] <= state["global_step"]


def _take(trainer: Any, checkpoint: Path) -> float:
    """Takes weights and state from a checkpoint, without training, and lets callbacks do what they had not yet done.
    Returns the loss that was logged last."""
    from transformers import TrainerState

    trainer._load_from_checkpoint(str(checkpoint))
    trainer.state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
    trainer.state.is_world_process_zero = trainer.is_world_process_zero()
    trainer.state.is_local_process_zero = trainer.is_local_process_zero()
    for event in (trainer.callback_handler.on_train_begin, trainer.callback_handler.on_train_end):
        trainer.control = event(trainer.args, trainer.state, trainer.control)
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    return float(losses[-1]) if losses else math.nan


def finish(trainer: Any, model: BaseModelSettings, out: Path, facts: dict[str, Any]) -> None:
    """Saves the model and then, as the sign that all is done, `training.json`; of a run that was done before, what that
    said first stays."""
    save(trainer, model, out)
    done = out / "training.json"
    if is_main() and facts["seconds"] == 0.0 and done.is_file():
        facts |= json.loads(done.read_text(encoding="utf-8"))
    if is_main():
        (out / "training.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def save(trainer: Any, model: BaseModelSettings, out: Path) -> None:
    """The trained model, ready for a policy: of a LoRA run the adapter in `adapter/`, and the merged model."""
    if model.tune == "full" and trainer.is_fsdp_enabled:
        write_model(trainer, out)  # transformers would write weights that are tied twice
    elif model.tune == "full":
        trainer.save_model(str(out))
    else:
        trainer.save_model(str(out / "adapter"))
        if model.merge:
            write_model(trainer, out)
    if is_main() and (model.tune == "full" or model.merge):
        trainer.processing_class.save_pretrained(str(out))
        save_tokenizer_files(model.path, out)
