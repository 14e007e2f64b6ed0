"""TRL's DPO trainer on pairs that are tokens already, with a mask of the policy's own. Import this only to train."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from trl import DPOTrainer
from trl.trainer.dpo_trainer import DataCollatorForPreference

from kernelwright.errors import ConfigError
from kernelwright.training.short_runs import ShortRuns


@dataclass
class PairCollator(DataCollatorForPreference):
    """Pads pairs; a completion's tokens that the policy did not say (`chosen_own`, `rejected_own`: 0) are masked out,
    so that a rollout's log-probability is the sum over the policy's turns, as M-DPO has it."""

    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        batch = super().torch_call(examples)
        rows = [(row["prompt_ids"], row[f"{side}_own"]) for side in ("chosen", "rejected") for row in examples]
        for mask, (prompt, own) in zip(batch["completion_mask"], rows, strict=True):
            mask[len(prompt) : len(prompt) + len(own)] = torch.tensor(own, dtype=mask.dtype)
        return batch


class PairTrainer(ShortRuns, DPOTrainer):
    """`DPOTrainer` on prepared pairs; says so where training has diverged."""

    def _prepare_dataset(self, dataset: Any, *_unused: Any, **_more: Any) -> Any:
        return dataset

    def _set_signature_columns_if_needed(self) -> None:
        names = ("prompt_ids", "chosen_ids", "rejected_ids", "chosen_own", "rejected_own")
        self._signature_columns: Any = list(names)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        super().log(logs, start_time)
        if logs.get("loss") != logs.get("loss"):
            raise ConfigError(
                f"training has diverged at update {self.state.global_step}: the loss is not a number",
                hint="lower train.lr, raise train.warm_up, or use train.precision=fp32",
            )
