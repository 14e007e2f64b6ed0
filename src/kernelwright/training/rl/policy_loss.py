"""The clipped policy gradient on sampled tokens: one pure function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelwright.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class PolicyLoss:
    """A loss with its counts of clipped and of all tokens; add up the counts of several batches for their share."""

    loss: Tensor
    clipped: Tensor
    tokens: Tensor


def policy_loss(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantage: Tensor,
    mask: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    normalise: str = "token",
    denominator: float | None = None,
) -> PolicyLoss:
    """`-sum_t min(rho A, clip(rho, 1 - clip_low, 1 + clip_high) A)` with `rho = exp(log p - log p_old)`.

    `log_probs`, `old_log_probs` and `mask` (true for sampled tokens) have shape `(rows, length)`, `advantage`
    `(rows,)`. `normalise`: `token` divides by the number of masked tokens, `row` by each row's tokens and then by the
    number of rows, `constant` by `denominator`. A `denominator` also replaces the divisor of `token` and `row`, for a
    micro-batch of a larger batch. Raises `ConfigError`.
    """
    if normalise not in ("token", "row", "constant") or (normalise == "constant" and denominator is None):
        raise ConfigError(f"normalise = {normalise!r}", hint="use token, row, or constant with a denominator")
    mask = mask.bool()
    ratio = (log_probs - old_log_probs).masked_fill(~mask, 0.0).float().clamp(-20.0, 20.0).exp()
    weight = advantage.float()[:, None]
    bounded = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    terms = -(ratio * weight).minimum(bounded * weight).masked_fill(~mask, 0.0)
    tokens = mask.sum()
    if normalise == "row":
        total = (terms.sum(dim=1) / mask.sum(dim=1).clamp(min=1)).sum()
        divisor = denominator if denominator is not None else mask.any(dim=1).sum().clamp(min=1)
    else:
        total, divisor = terms.sum(), denominator if denominator is not None else tokens.clamp(min=1)
    clipped = ((ratio * weight > bounded * weight) & mask).sum()
    return PolicyLoss(total / divisor, clipped.detach(), tokens)
