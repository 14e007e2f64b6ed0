"""Ctrl-C in a run of a Trainer: the update that is being made ends, is kept as a checkpoint, and then the run stops."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

from transformers import TrainerCallback


class _AfterTheUpdate(TrainerCallback):
    """Stops with a checkpoint once it was asked to."""

    def __init__(self) -> None:
        self.asked = False

    def ask(self, _number: int, _frame: Any) -> None:
        """Takes SIGINT; a second one is an interrupt like any other."""
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
    """Within, Ctrl-C loses no update: raises `KeyboardInterrupt` when the last one is on disk.

    Of several processes each would stop at another update: there an interrupt ends all at once, as it does in a thread.
    Only where SIGINT has Python's own handler: whoever ignores it, or handles it, goes on doing so.
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
