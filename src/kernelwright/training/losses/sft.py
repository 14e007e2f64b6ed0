"""SFT: every target token counts the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelwright.training.losses.reduction import LossOutput, reduced

if TYPE_CHECKING:
    from torch import Tensor


def sft(
    log_probs: Tensor,
    target_mask: Tensor,
    cuda_mask: Tensor | None = None,
    *,
    reduction: str = "token_mean",
    denominator: Tensor | float | None = None,
) -> LossOutput:
    """`-sum_t log p_t`. `log_probs` and the masks have shape `(batch, length)`; `cuda_mask` is not used."""
    return reduced(log_probs, target_mask, target_mask, reduction=reduction, denominator=denominator)
