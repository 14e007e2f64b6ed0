"""TRL's DPO trainer on tokenised pairs, with a mask of the policy's own tokens. Import this only to train."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from trl import DPOTrainer
from trl.trainer.dpo_trainer import DataCollatorForPreference

from kernelwright.training.fine_tune.run import diverged
from kernelwright.training.fine_tune.short_runs import ShortRuns


@dataclass
class PairCollator(DataCollatorForPreference):
    """Pads pairs and masks out completion tokens that are not the policy's (`chosen_own`, `rejected_own`: 0).

    A rollout's log-probability is then the sum over the policy's turns, as in M-DPO.
    """

    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        batch = super().torch_call(examples)
        rows = [(row["prompt_ids"], row[f"{side}_own"]) for side in ("chosen", "rejected") for row in examples]
        for mask, (prompt, own) in zip(batch["completion_mask"], rows, strict=True):
            mask[len(prompt) : len(prompt) + len(own)] = torch.tensor(own, dtype=mask.dtype)
        return batch


class PairTrainer(ShortRuns, DPOTrainer):
    """`DPOTrainer` on prepared pairs. Raises `ConfigError` if training diverges.

    Every pair of an update has the same weight, also in a smaller last micro-batch.
    """

    _pairs: tuple[int, int] = (0, 0)
    """The numbers of pairs and of micro-batches of this update."""

    def _prepare_dataset(self, dataset: Any, *_unused: Any, **_more: Any) -> Any:
        return dataset

    def _set_signature_columns_if_needed(self) -> None:
        names = ("prompt_ids", "chosen_ids", "rejected_ids", "chosen_own", "rejected_own")
        self._signature_columns: Any = list(names)

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[Any], Any]:
        batches, items = super().get_batch_samples(epoch_iterator, num_batches, device)
        self._pairs = (sum(map(_pairs_in, batches)), len(batches))
        return batches, items

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Scales the micro-batch's mean by its share of the update's pairs, and by the number of micro-batches, since
        Trainer divides by it."""
        found = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        pairs, batches = self._pairs
        if not model.training or not pairs:
            return found
        share = _pairs_in(inputs) * batches / pairs
        return (found[0] * share, found[1]) if return_outputs else found * share

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        super().log(logs, start_time)
        if not math.isfinite(logs.get("loss", 0.0)):
            raise diverged("the loss is not a number", self.state.global_step)


def _pairs_in(batch: Any) -> int:
    """Counts the pairs of a batch: its rows are the preferred answers, then the rejected ones."""
    return len(batch["input_ids"]) // 2
