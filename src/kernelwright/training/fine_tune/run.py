"""The common part of fine-tuning runs on TRL: the base model, Trainer's arguments, the run's folder, resuming, saving.

`sft` and `dpo` build on it. A run may have one process or several (`processes`); only rank 0 writes files.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelwright.config import dump_config
from kernelwright.errors import ConfigError, StoreError, did_you_mean
from kernelwright.runs.folders import claim, make
from kernelwright.training.fine_tune.merging import save_tokenizer_files, write_model
from kernelwright.training.fine_tune.settings import (
    BaseModelSettings,
    BenchSettings,
    UpdateSettings,
    check_there,
    micro_batches,
)
from kernelwright.training.fine_tune.texts import RowReport
from kernelwright.training.pretrain.progress import BENCHES, read_log, writing


@dataclass(frozen=True)
class FineTuneResult:
    """The facts of a run, as plain values for scripts."""

    facts: dict[str, Any]


SETTINGS = "settings.toml"
NAMED = 4
"""The most differing settings in an error message."""
_BEGUN = ("checkpoints", "log.jsonl", "training.json", "rollouts", "state", "config.json")
"""Files and folders of which one exists once a run has begun."""
_held: list[Any] = []
"""Lock files of the folders that this process trains in; open until it exits."""


def begin(settings: Any, out: Path, begun: Sequence[str] = ()) -> None:
    """Checks the libraries, makes the run's folder, and locks it for this process until it exits.

    `begun`: further files that show that a run has begun. Raises `ConfigError`, and `StoreError` for an unusable
    folder.
    """
    _check_libraries()
    _quiet()
    if is_main():
        claim(out, SETTINGS)
        make(out)
        _lock(out)
        keep_settings(settings, out, begun)


def _lock(out: Path) -> None:
    """Locks a folder with a POSIX lock: this process may take it again, and forked children do not inherit it."""
    try:
        file = open(out / ".lock", "a")
    except OSError as error:
        hint = "name a folder of your own with --out"
        raise StoreError(f"{str(out)!r} cannot be locked: {error.strerror}", hint=hint) from error
    _held.append(file)  # closing any file of the lock releases it
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError) as error:
        raise ConfigError(
            f"another process trains in {str(out)!r}", hint="wait for it or end it, or name another folder with --out"
        ) from error
    except OSError:  # the file system has no locks
        pass


def is_main() -> bool:
    """Tells whether this process has rank 0."""
    return os.environ.get("RANK", "0") == "0"


def keep_data(out: Path, data: dict[str, Any], report: RowReport) -> None:
    """Writes the facts of the data and the bad rows, and prints the bad rows.

    Raises `ConfigError` if the run began on other data, by their `fingerprint`.
    """
    kept = _kept_data(out / "data.json") if _begun(out) else {}
    if "fingerprint" in kept and kept["fingerprint"] != data.get("fingerprint"):
        raise ConfigError(
            f"{str(out)!r} holds a run on other data: {kept.get('training')} samples, and not these",
            hint="give the data it was begun with, or another --out",
        )
    (out / "data.json").write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    report.write(out / "bad_rows.jsonl")
    for line in report.lines():
        print(line, file=sys.stderr)


def _kept_data(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _begun(out: Path, more: Sequence[str] = ()) -> bool:
    return any((out / name).exists() for name in (*_BEGUN, *more))


def keep_settings(settings: Any, out: Path, begun: Sequence[str] = ()) -> None:
    """Writes the settings into the run's folder. Raises `ConfigError` if the run has begun with other settings.

    The settings of a run that failed before it began are overwritten.
    """
    path, text = out / SETTINGS, dump_config(settings)
    before = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None
    if before == text:
        return
    if _begun(out, begun) and before is not None:
        raise ConfigError(
            f"{str(out)!r} holds a run with other settings{_differences(before, text)}",
            hint="give the settings it was begun with, or another --out",
        )
    part = out / f"{SETTINGS}.part"
    with writing(path):
        part.write_text(text, encoding="utf-8")
        os.replace(part, path)


def _differences(before: str, now: str) -> str:
    """Describes the first differences between two settings files; empty if the older one cannot be parsed."""
    try:
        old, new = (_flat(tomllib.loads(text)) for text in (before, now))
    except tomllib.TOMLDecodeError:
        return ""
    names = [name for name in {**new, **old} if old.get(name) != new.get(name)]
    words = [f"{name} was {old.get(name, 'not set')!r}, now {new.get(name, 'not set')!r}" for name in names[:NAMED]]
    more = [f"and {len(names) - NAMED} more"] if len(names) > NAMED else []
    return ": " + "; ".join(words + more) if words else ""


def _flat(table: dict[str, Any], above: str = "") -> dict[str, Any]:
    """Flattens nested tables to values by dotted names."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        found |= _flat(value, f"{above}{name}.") if isinstance(value, dict) else {f"{above}{name}": value}
    return found


def _check_libraries() -> None:
    try:
        import datasets  # noqa: F401
        import torch  # noqa: F401
        import trl  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"training needs {error.name}", hint='pip install "kernelwright[trl]"') from error


def _quiet() -> None:
    """Silences transformers' progress bars and deprecation warnings."""
    import warnings

    from transformers.utils import logging

    logging.disable_progress_bar()
    warnings.filterwarnings("ignore", message=".*deprecated and will be removed in v6.*", category=FutureWarning)


def load_model(settings: BaseModelSettings, joined: bool = False) -> Any:
    """The base model, with float32 weights for full tuning. Raises `ConfigError`.

    `joined`: the model will get packed rows. With `attention = "auto"`, model types in `joined.MODELS` then use the
    attention without a mask.
    """
    check_there(settings.path)
    import torch
    from safetensors import SafetensorError
    from transformers import AutoConfig, AutoModelForCausalLM

    from kernelwright.inference.quantised import full_checkpoint
    from kernelwright.training.fine_tune.joined import MODELS, register

    path = full_checkpoint(settings.path)
    dtype = settings.dtype
    if dtype == "auto":
        dtype = "bfloat16" if settings.tune == "lora" and torch.cuda.is_available() else "float32"
    attention = None if settings.attention == "auto" else settings.attention
    try:
        if joined and attention is None:
            config = AutoConfig.from_pretrained(path, trust_remote_code=settings.trust_remote_code)
            attention = register() if config.model_type in MODELS else None
        return AutoModelForCausalLM.from_pretrained(
            path,
            dtype=getattr(torch, dtype),
            attn_implementation=attention,
            trust_remote_code=settings.trust_remote_code,
        )
    except (OSError, ValueError, ImportError, RuntimeError, SafetensorError) as error:
        raise ConfigError(
            f"the model {settings.path!r} cannot be loaded: {str(error).splitlines()[0][:300]}",
            hint="use model.attention=auto"
            if attention is not None and ("attn" in str(error) or "ttention" in str(error))
            else "model.path must be a folder or a Hub id in Hugging Face's format",
        ) from error


def check_fits(model: Any, largest: int, longest: int) -> None:
    """Raises `ConfigError` if the largest token id or the longest sample exceeds the model's embeddings."""
    import torch

    size = model.get_input_embeddings().num_embeddings
    if largest >= size:
        raise ConfigError(
            f"the data has token {largest}, and the model's embedding {size} tokens",
            hint="the tokenizer in model.path is not this model's",
        )
    learnt = any(
        isinstance(module, torch.nn.Embedding) and (name.endswith("wpe") or "pos" in name.rpartition(".")[2])
        for name, module in model.named_modules()
    )
    places = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if learnt and places is not None and longest > places:
        raise ConfigError(
            f"the longest sample has {longest} tokens, and the model has learnt {places} positions",
            hint=f"set data.length={places}",
        )


@contextlib.contextmanager
def refusals(what: str) -> Iterator[None]:
    """Converts errors of transformers, TRL and PEFT about the settings to `ConfigError`."""
    try:
        yield
    except (ValueError, TypeError, RuntimeError, ImportError) as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise ConfigError(
            f"{what} cannot be made of these settings: {first[:300]}", hint="change the settings that it names"
        ) from error


def adapter(settings: BaseModelSettings) -> Any:
    """Returns PEFT's configuration of the adapter; None for full tuning."""
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
    """Returns Trainer's arguments. Raises `ConfigError` if rows do not divide evenly over processes."""
    import torch

    _check_schedule(train.schedule)
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
        "warmup_steps": train.warm_up,  # below 1: the share of all updates
        "weight_decay": train.weight_decay,
        "max_grad_norm": train.clip,
        "adam_beta2": train.beta2,
        "bf16": gpu if train.precision == "auto" else train.precision == "bf16",
        "use_cpu": not gpu,
        "gradient_checkpointing": model.checkpointing,
        "logging_steps": train.log_every,
        "logging_first_step": True,
        "logging_nan_inf_filter": False,  # a non-finite loss ends the run
        "eval_strategy": "steps" if held_out and train.eval_every else "no",
        "eval_steps": train.eval_every,
        "save_strategy": "steps",
        "save_steps": train.save_every,
        "save_total_limit": 2,
        "report_to": train.report_to or "none",
        "disable_tqdm": True,
        "max_length": None,
        "remove_unused_columns": False,
        "ddp_find_unused_parameters": False,  # every update uses every weight
        # The other processes wait while rank 0 evaluates by execution.
        "ddp_timeout": 1800 if bench is None else 24 * 3600,
        **_sharding(train, processes),
    }


def _check_schedule(name: str) -> None:
    """Raises `ConfigError` for a schedule that transformers does not have, or that needs more parameters."""
    import torch
    from transformers import SchedulerType, get_scheduler

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    try:
        get_scheduler(name, optimizer, num_warmup_steps=1, num_training_steps=2)
    except (ValueError, TypeError) as error:
        known = [kind.value for kind in SchedulerType]
        hint = did_you_mean(name, set(known) - {name}, f"use one of {', '.join(known)}")
        raise ConfigError(f"train.schedule = {name!r} cannot be used: {str(error)[:200]}", hint=hint) from error


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
            "state_dict_type": "FULL_STATE_DICT",  # a model in one file, regardless of accelerate's default
        },
    }


def last_checkpoint(out: Path) -> Path | None:
    """Returns the newest complete checkpoint of a run; None if there is none."""
    found = [p for p in (out / "checkpoints").glob("checkpoint-*") if (p / "trainer_state.json").is_file()]
    return max(found, key=lambda p: int(p.name.rpartition("-")[2]), default=None)


def train(trainer: Any, settings: Any, out: Path) -> dict[str, Any]:
    """Trains from the last checkpoint on. Returns the facts of the run as plain values."""
    resumed = last_checkpoint(out)
    begun = json.loads((resumed / "trainer_state.json").read_text(encoding="utf-8"))["global_step"] if resumed else 0
    before = max((row.get("seconds", 0.0) for row in read_log(out / "log.jsonl") if row["step"] <= begun), default=0.0)
    if resumed and _all_done(resumed) and not trainer.is_fsdp_enabled:
        loss, seconds = _take(trainer, resumed), 0.0
    else:
        from kernelwright.training.fine_tune.interrupts import kept_at_interrupt

        with kept_at_interrupt(trainer):
            result = trainer.train(resume_from_checkpoint=str(resumed) if resumed else None)
        loss = _mean_loss(trainer.state.log_history) if resumed else float(result.training_loss)
        seconds = before + float(result.metrics.get("train_runtime", math.nan))
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


def _mean_loss(history: list[dict[str, Any]]) -> float:
    """Returns the mean loss of all logged updates, including those before a resume.

    A row has the mean over the updates since the previous row. After a resume, Trainer's own mean is wrong: it sums
    over the updates since the resume but divides by all updates.
    """
    total, upto = 0.0, 0
    for row in history:
        if "loss" in row and row["step"] > upto:
            total, upto = total + row["loss"] * (row["step"] - upto), row["step"]
    return total / upto if upto else math.nan


def _all_done(checkpoint: Path) -> bool:
    """Tells whether a checkpoint is of the last update: Trainer would make one more."""
    state = json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
    return 0 < state["max_steps"] <= state["global_step"]


def _take(trainer: Any, checkpoint: Path) -> float:
    """Loads weights and state from a checkpoint without training, and runs the callbacks of the run's start and end.

    Returns the mean loss of its updates.
    """
    from transformers import TrainerState

    trainer._load_from_checkpoint(str(checkpoint))
    trainer.state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
    trainer.state.is_world_process_zero = trainer.is_world_process_zero()
    trainer.state.is_local_process_zero = trainer.is_local_process_zero()
    for event in (trainer.callback_handler.on_train_begin, trainer.callback_handler.on_train_end):
        trainer.control = event(trainer.args, trainer.state, trainer.control)
    return _mean_loss(trainer.state.log_history)


def finish(trainer: Any, model: BaseModelSettings, out: Path, facts: dict[str, Any]) -> None:
    """Saves the model and then `training.json`, which marks a finished run. Keeps the facts of an earlier finish."""
    save(trainer, model, out)
    done = out / "training.json"
    if is_main() and facts["seconds"] == 0.0 and done.is_file():
        facts |= json.loads(done.read_text(encoding="utf-8"))
    if is_main():
        (out / "training.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def diverged(what: str, update: int | None = None) -> ConfigError:
    """Returns the error for diverged training."""
    where = "" if update is None else f" at update {update}"
    hint = "lower train.lr, raise train.warm_up, or use train.precision=fp32"
    return ConfigError(f"training has diverged{where}: {what}", hint=hint)


def _check_finite(trainer: Any) -> None:
    import torch

    weights = list(trainer.model.parameters())
    lost = torch.tensor([sum(not bool(w.detach().isfinite().all()) for w in weights)], device=trainer.args.device)
    count = int(trainer.accelerator.gather(lost).max())
    if count:
        raise diverged(f"{count} of {len(weights)} weight tensors are not finite, and are not saved")


def check_targets(model: Any, settings: BaseModelSettings) -> None:
    """Raises `ConfigError` for an adapter target that matches no layer: PEFT ignores it silently."""
    targets = settings.lora.targets
    if settings.tune == "full" or targets == "all-linear":
        return
    found = getattr(model, "targeted_module_names", None)
    for name in [part.strip() for part in targets.split(",")]:
        if found is not None and not any(place == name or place.endswith(f".{name}") for place in found):
            raise ConfigError(f"model.lora.targets: no layer of the model is {name!r}", hint="or use all-linear")


def save(trainer: Any, model: BaseModelSettings, out: Path) -> None:
    """Saves the trained model for policies: with LoRA the adapter in `adapter/`, and the merged model if `merge`.

    Raises `ConfigError` for non-finite weights: an update after the last row of the log may have diverged.
    """
    _check_finite(trainer)
    if model.tune == "full" and trainer.is_fsdp_enabled:
        write_model(trainer, out)  # transformers would write tied weights twice
    elif model.tune == "full":
        trainer.save_model(str(out))
    else:
        trainer.save_model(str(out / "adapter"))
        if model.merge:
            write_model(trainer, out)
    if is_main() and (model.tune == "full" or model.merge):
        trainer.processing_class.save_pretrained(str(out))
        save_tokenizer_files(model.path, out)
