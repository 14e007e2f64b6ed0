"""ProFit: drops tokens whose probability is at most a threshold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelwright.training.losses.reduction import LossOutput, checked, confidences, reduced

if TYPE_CHECKING:
    from torch import Tensor


def profit(
    log_probs: Tensor,
    target_mask: Tensor,
    cuda_mask: Tensor | None = None,
    *,
    tau: float = 0.1,
    reduction: str = "token_mean",
    denominator: Tensor | float | None = None,
) -> LossOutput:
    """`-sum_t 1[sg(p_t) > tau] log p_t`. `log_probs` and the masks: `(batch, length)`; `cuda_mask` is not used."""
    checked(tau=tau)
    weights = confidences(log_probs, target_mask) > tau
    return reduced(log_probs, target_mask, weights, reduction=reduction, denominator=denominator)
