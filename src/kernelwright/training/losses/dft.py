"""DFT: weighs each token by the model's confidence in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelwright.training.losses.reduction import LossOutput, confidences, reduced

if TYPE_CHECKING:
    from torch import Tensor


def dft(
    log_probs: Tensor,
    target_mask: Tensor,
    cuda_mask: Tensor | None = None,
    *,
    reduction: str = "token_mean",
    denominator: Tensor | float | None = None,
) -> LossOutput:
    """`-sum_t sg(p_t) log p_t`. `log_probs` and the masks have shape `(batch, length)`; `cuda_mask` is not used."""
    weights = confidences(log_probs, target_mask)
    return reduced(log_probs, target_mask, weights, reduction=reduction, denominator=denominator)
