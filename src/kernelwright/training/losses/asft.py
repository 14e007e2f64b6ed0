"""ASFT (arXiv 2509.23753): DFT with an anchor to the model that training began with."""

from __future__ import annotations

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
    kl_weight: float = 0.1,
    reduction: str = "token_mean",
    denominator: Tensor | float | None = None,
) -> LossOutput:
    """`-sum_t sg(p_t) log p_t + kl_weight * KL(reference || model)_t`; `cuda_mask` is not used.

    `kl` is the divergence over the whole vocabulary at each token, `(batch, length)`, in nats, with its gradient: the
    term and the weight of the authors' code (`vocabulary_kl` computes it from logits). Raises `ConfigError`.
    """
    if kl is None:
        raise ConfigError(
            "asft needs `kl`, the divergence from the model before training at each token",
            hint="give a (batch, length) tensor in nats, e.g. of vocabulary_kl(logits, reference_logits)",
        )
    checked(0.0, kl_weight=kl_weight)
    same_shape(log_probs, kl=kl)
    usable = finite_targets(log_probs, target_mask)
    weights = confidences(log_probs, target_mask)
    anchor = kl.masked_fill(~usable | ~kl.isfinite(), 0.0)
    out = reduced(
        log_probs, target_mask, weights, reduction=reduction, denominator=denominator, added=kl_weight * anchor
    )
    out.stats["kl"] = anchor.detach().sum() / target_mask.sum().clamp(min=1)
    return out


def vocabulary_kl(logits: Tensor, reference_logits: Tensor) -> Tensor:
    """Computes KL(reference || model) over the vocabulary, in nats: `(..., vocabulary)` twice -> `(...)`.

    The gradient goes to `logits` alone. A token that the reference excludes (logit minus infinity) adds nothing.
    """
    model = wide(logits).log_softmax(dim=-1)
    reference = wide(reference_logits.detach()).log_softmax(dim=-1)
    share = reference.exp()
    return (share * (reference - model)).masked_fill(share == 0, 0.0).sum(dim=-1)
