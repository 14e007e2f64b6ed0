"""A trainer base class for runs of few updates. Import this only to train."""

from __future__ import annotations

from typing import Any

from transformers import Trainer


class ShortRuns(Trainer):
    """Disables warm-up for runs so short that all updates would be warm-up."""

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        if self.args.get_warmup_steps(num_training_steps) >= num_training_steps:
            self.args.warmup_steps = 0
        return super().create_scheduler(num_training_steps, optimizer)
