"""Ctrl-C in a Trainer's run: the current update is finished and saved as a checkpoint, then the run stops."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

from transformers import TrainerCallback


class _AfterTheUpdate(TrainerCallback):
    """Saves a checkpoint and stops after the update in which it was asked."""

    def __init__(self) -> None:
        self.asked = False

    def ask(self, _number: int, _frame: Any) -> None:
        """Handles SIGINT; a second one raises `KeyboardInterrupt` at once."""
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        print("stopping after this update, which is kept; Ctrl-C again stops at once", file=sys.stderr, flush=True)

    def on_step_end(self, args: Any, state: Any, control: Any, **_more: Any) -> Any:
        if self.asked:
            control.should_save = control.should_training_stop = True
        return control


@contextlib.contextmanager
def kept_at_interrupt(trainer: Any) -> Iterator[None]:
    """Delays Ctrl-C in the block until the current update is on disk, then raises `KeyboardInterrupt`.

    With several processes, or outside the main thread, an interrupt ends the run at once: the processes would stop at
    different updates. A SIGINT handler other than Python's default is left in place.
    """
    own = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if trainer.accelerator.num_processes > 1 or threading.current_thread() is not threading.main_thread() or not own:
        yield
        return
    stop = _AfterTheUpdate()
    trainer.add_callback(stop)
    signal.signal(signal.SIGINT, stop.ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        trainer.remove_callback(stop)
    if stop.asked:
        raise KeyboardInterrupt
