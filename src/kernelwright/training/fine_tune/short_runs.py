"""What our trainers have besides TRL's for runs of few updates. Import this only to train."""

from __future__ import annotations

from typing import Any

from transformers import Trainer


class ShortRuns(Trainer):
    """None of the updates is left without a rate where they are so few that all of them would be warm-up."""

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        if self.args.get_warmup_steps(num_training_steps) >= num_training_steps:
            self.args.warmup_steps = 0
        return super().create_scheduler(num_training_steps, optimizer)
