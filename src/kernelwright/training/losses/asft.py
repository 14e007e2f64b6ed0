"""ASFT (arXiv 2509.23753): DFT with an anchor to the model that training began with."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kernelwright.errors import ConfigError
from kernelwright.training.losses.reduction import (
    LossOutput,
    checked,
    confidences,
    finite_targets,
    reduced,
    same_shape,
    wide,
)

if TYPE_CHECKING:
    from torch import Tensor


def asft(
    log_probs: Tensor,
    target_mask: Tensor,
    cuda_mask: Tensor | None = None,
    *,
    kl: Tensor | None = None,
    reference_log_probs: Tensor | None = None,
    kl_weight: float = 0.1,
    reduction: str = "token_mean",
    denominator: Tensor | float | None = None,
) -> LossOutput:
    """`-sum_t sg(p_t) log p_t + kl_weight * KL(reference || model)_t`; `cuda_mask` is not used.

    `kl` is the divergence over the whole vocabulary at each token, `(batch, length)`, with its gradient: what the
    authors use. Where only the reference's log-probabilities of the gold tokens are known, `reference_log_probs`, the
    divergence of the event "this token or another" stands in: a lower bound, 0 where both agree on the gold token.
    """
    if kl is None and reference_log_probs is None:
        raise ConfigError(
            "asft needs `kl`, or `reference_log_probs`: those of the gold tokens under the model before training",
            hint="give a (batch, length) tensor",
        )
    checked(0.0, kl_weight=kl_weight)
    same_shape(log_probs, kl=kl, reference_log_probs=reference_log_probs)
    usable = finite_targets(log_probs, target_mask)
    if kl is None:
        assert reference_log_probs is not None
        kl = gold_event_kl(log_probs.masked_fill(~usable, 0.0), reference_log_probs)
    weights = confidences(log_probs, target_mask)
    anchor = kl.masked_fill(~usable | ~kl.isfinite(), 0.0)
    out = reduced(
        log_probs, target_mask, weights, reduction=reduction, denominator=denominator, added=kl_weight * anchor
    )
    out.stats["kl"] = anchor.detach().sum() / target_mask.sum().clamp(min=1)
    return out


def gold_event_kl(log_probs: Tensor, reference_log_probs: Tensor) -> Tensor:
    """KL divergence, nats, of "the gold token or any other" from the reference to the model: `(batch, length)`.

    Probabilities are kept 1e-6 away from 0 and 1, where the divergence is infinite.
    """
    least, most = math.log(1e-6), math.log1p(-1e-6)
    model = wide(log_probs).clamp(least, most)
    reference = wide(reference_log_probs.detach()).nan_to_num(nan=0.0).clamp(least, most)
    # 1 - p as -expm1(log p): near 1, where a trained model is, the difference itself would keep few digits.
    other, reference_other = -model.expm1(), -reference.expm1()
    return reference.exp() * (reference - model) + reference_other * (reference_other.log() - other.log())
