"""What happens beside the updates of a fine-tuning run: its log, a live line, and evaluation by execution."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from kernelwright.training.post_settings import SftSettings
from kernelwright.training.progress import Live, Log

_SHOWN = ("loss", "nll", "confidence", "sample_weight", "eval_nll", "grad_norm", "learning_rate")


class LogFile(TrainerCallback):
    """Writes `log.jsonl`, a row each time Trainer logs, and says the same on stderr."""

    def __init__(self, out: Path) -> None:
        self._path = out / "log.jsonl"
        self._log: Log | None = None
        self._live: Live | None = None
        self._started = time.monotonic()

    def on_train_begin(self, args: Any, state: Any, control: Any, **_more: Any) -> None:
        if state.is_world_process_zero:
            self._log = Log(self._path, state.global_step)
            self._live = Live(True)
        self._started = time.monotonic()

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
            self._live.say(f"step {state.global_step}/{state.max_steps}: done", last=True)


def callbacks(settings: SftSettings, out: Path) -> list[Any]:
    """Those of a run."""
    return [LogFile(out)]


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a `log.jsonl`."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
