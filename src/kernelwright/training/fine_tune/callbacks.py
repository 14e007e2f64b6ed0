"""Callbacks of a fine-tuning run: its log, a live line, evaluation by execution."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from kernelwright.training.fine_tune.settings import DpoSettings, SftSettings
from kernelwright.training.pretrain.progress import Live, Log, read_log

_SHOWN = (
    *("loss", "nll", "confidence", "sample_weight", "rewards/accuracies", "rewards/margins", "eval_nll"),
    *("eval_compiled@1", "eval_pass@1", "eval_greedy_pass", "grad_norm", "learning_rate"),
)


class LogFile(TrainerCallback):
    """Writes a row of `log.jsonl` each time Trainer logs, and shows it on stderr."""

    def __init__(self, out: Path) -> None:
        self._path = out / "log.jsonl"
        self._log: Log | None = None
        self._live: Live | None = None
        self._started = time.monotonic()

    def on_train_begin(self, args: Any, state: Any, control: Any, **_more: Any) -> None:
        if state.is_world_process_zero:
            self._log = Log(self._path, state.global_step)
            self._live = Live(True)
        # A resumed run continues the count of seconds.
        self._started = time.monotonic() - max((row.get("seconds", 0.0) for row in read_log(self._path)), default=0.0)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_more: Any) -> None:
        if self._log is None or not logs:
            return
        row: dict[str, Any] = {"step": state.global_step, "seconds": round(time.monotonic() - self._started, 2)}
        row |= {k: v for k, v in logs.items() if not isinstance(v, float) or math.isfinite(v)}
        self._log.add(row)
        if self._live is not None:
            parts = [f"{name} {float(logs[name]):.4g}" for name in _SHOWN if name in logs]
            if parts:
                self._live.say(f"step {state.global_step}/{state.max_steps} · " + " · ".join(parts))

    def on_train_end(self, args: Any, state: Any, control: Any, **_more: Any) -> None:
        if self._live is not None:
            how = "done" if state.global_step >= state.max_steps else "stopped"
            self._live.say(f"step {state.global_step}/{state.max_steps}: {how}", last=True)


def callbacks(settings: SftSettings | DpoSettings, out: Path) -> list[Any]:
    """Makes the callbacks of a run. Raises `ConfigError` and `TaskError` for an unreadable suite of `bench`."""
    found: list[Any] = [LogFile(out)]
    if settings.bench is not None:
        from kernelwright.training.fine_tune.execution import ExecutionCallback

        found.append(ExecutionCallback(settings.bench, settings.name, settings.model, out))
    return found


def settle(trainer: Any) -> Any:
    """Gives callbacks their trainer, and removes Trainer's printer: stdout is for data."""
    from transformers import PrinterCallback

    trainer.remove_callback(PrinterCallback)
    for callback in trainer.callback_handler.callbacks:
        if hasattr(callback, "trainer"):
            callback.trainer = trainer
    return trainer
