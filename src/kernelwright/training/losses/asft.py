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

    `kl` is the divergence over the whole vocabulary at each token, `(batch, length)`, with its gradient, as the authors
    use it. With `reference_log_probs` instead, the reference's log-probabilities of the gold tokens, it is replaced by
    the divergence of the event "this token or another": a lower bound, 0 if both agree on the gold token.
    Raises `ConfigError`.
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
    """Computes the KL divergence, in nats, of "the gold token or any other", reference to model: `(batch, length)`.

    Probabilities are clamped to [1e-6, 1 - 1e-6], since the divergence is infinite at 0 and 1.
    """
    least, most = math.log(1e-6), math.log1p(-1e-6)
    model = wide(log_probs).clamp(least, most)
    reference = wide(reference_log_probs.detach()).nan_to_num(nan=0.0).clamp(least, most)
    # 1 - p as -expm1(log p): for p near 1, as in a trained model, 1 - exp(log p) loses precision.
    other, reference_other = -model.expm1(), -reference.expm1()
    return reference.exp() * (reference - model) + reference_other * (reference_other.log() - other.log())
