"""The common part of all losses: a weighted sum of the gold tokens' negative log-probabilities, and its divisor.

A gold token with a non-finite log-probability (probability 0, or a diverged model) has confidence 0, is left out of the
sum, and is counted in `stats["non_finite"]`, so that no loss is NaN or infinite.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

from kernelwright.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

Reduction = Literal["token_mean", "mask_mean", "sum", "sample_mean"]
"""The divisor of the weighted sum over all tokens of the batch: `token_mean` the number of target tokens, regardless of
their weights; `mask_mean` the sum of token weights; `sum` 1; `sample_mean` the number of samples with target tokens (an
expectation over samples of token sums, as in the papers)."""


@dataclass(frozen=True)
class LossOutput:
    """A loss with its statistics for the log."""

    loss: Tensor
    """Scalar, float32 or float64; part of the graph of `log_probs` even if no token counts."""
    stats: dict[str, Tensor] = field(default_factory=dict)
    """Detached scalars by name; reading one synchronises with the device."""
    token_weights: Tensor | None = None
    """`(batch, length)`, detached: the factor of each token's negative log-probability."""


def checked(least: float | None = None, **values: float) -> None:
    """Raises `ConfigError` for a parameter that is not finite or less than `least`."""
    for name, value in values.items():
        if not math.isfinite(value) or (least is not None and value < least):
            range_ = "finite" if least is None else f"finite, and at least {least:g}"
            raise ConfigError(f"{name} = {value} must be {range_}")


def same_shape(log_probs: Tensor, **given: Tensor | None) -> None:
    """Raises `ConfigError` for a tensor of another shape than the log-probabilities: it would be broadcast."""
    for name, tensor in given.items():
        if tensor is not None and tensor.shape != log_probs.shape:
            raise ConfigError(
                f"log-probabilities of shape {tuple(log_probs.shape)} and {name} of shape {tuple(tensor.shape)}",
                hint="both must be (batch, length)",
            )


def finite_targets(log_probs: Tensor, target_mask: Tensor) -> Tensor:
    """Marks targets with a finite log-probability: boolean `(batch, length)`. Raises `ConfigError`."""
    if log_probs.dim() != 2:
        raise ConfigError(f"log-probabilities of shape {tuple(log_probs.shape)}", hint="they must be (batch, length)")
    same_shape(log_probs, target_mask=target_mask)
    return target_mask.bool() & log_probs.isfinite()


def confidences(log_probs: Tensor, target_mask: Tensor) -> Tensor:
    """Returns the gold tokens' probabilities, detached, in [0, 1]; 0 outside the targets and for non-finite values."""
    usable = finite_targets(log_probs, target_mask)
    return wide(log_probs.detach()).masked_fill(~usable, float("-inf")).exp().clamp(max=1.0)


def reduced(
    log_probs: Tensor,
    target_mask: Tensor,
    mask_weights: Tensor,
    *,
    reduction: str,
    denominator: Tensor | float | None,
    sample_weights: Tensor | None = None,
    added: Tensor | None = None,
) -> LossOutput:
    """`sum_n w_n sum_t (M_nt * -log p_nt + added_nt)`, divided by the divisor of `reduction`, with common statistics.

    `mask_weights` M and `added` have shape `(batch, length)`, `sample_weights` w `(batch,)`. `denominator` replaces the
    reduction's divisor, e.g. by the number of target tokens of a whole accumulated batch. Raises `ConfigError`.
    """
    if reduction not in get_args(Reduction):
        raise ConfigError(f"there is no reduction {reduction!r}", hint=f"use {', '.join(get_args(Reduction))}")
    usable = finite_targets(log_probs, target_mask)
    targets = target_mask.bool()
    values = wide(log_probs).masked_fill(~usable, 0.0)
    weights = mask_weights.detach().to(values.dtype).masked_fill(~usable, 0.0)
    terms = -weights * values
    if added is not None:
        terms = terms + added.masked_fill(~usable, 0.0)
    token_weights = weights
    if sample_weights is not None:
        scale = sample_weights.detach().to(values.dtype)[:, None]
        terms, token_weights = terms * scale, weights * scale
    divisor = _divisor(reduction, denominator, targets, weights)
    stats = {
        "tokens": targets.sum(),
        "samples": targets.any(dim=1).sum(),
        "non_finite": (targets & ~usable).sum(),
        "confidence": _mean(confidences(log_probs, targets), targets),
        "kept": _mean((token_weights != 0).to(values.dtype), targets),
        "token_weight": _mean(token_weights, targets),
        "nll": _mean(-values.detach(), usable),
    }
    return LossOutput(terms.sum() / divisor, stats, token_weights)


def _divisor(reduction: str, denominator: Tensor | float | None, targets: Tensor, weights: Tensor) -> Tensor | float:
    if denominator is not None:
        divisor = weights.new_zeros(()) + denominator
        return divisor.masked_fill(divisor == 0, 1.0)  # avoid 0 / 0 if no token counts
    if reduction == "sum":
        return 1.0
    if reduction == "sample_mean":
        return targets.any(dim=1).sum().clamp(min=1)
    if reduction == "token_mean":
        return targets.sum().clamp(min=1)
    total = weights.sum()
    return total.masked_fill(total == 0, 1.0)


def _mean(values: Tensor, mask: Tensor) -> Tensor:
    """Returns the mean over the mask; 0 if it is empty."""
    return values.masked_fill(~mask, 0.0).sum() / mask.sum().clamp(min=1)


def wide(values: Tensor) -> Tensor:
    """Converts half precision to float32: sums over thousands of tokens exceed half precision."""
    return values if values.element_size() == 8 else values.float()
