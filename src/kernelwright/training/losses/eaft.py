"""EAFT (arXiv 2601.02151): weighs each token by the entropy of the model's prediction."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kernelwright.errors import ConfigError
from kernelwright.training.losses.reduction import LossOutput, checked, reduced, same_shape, wide

if TYPE_CHECKING:
    from torch import Tensor

TOP_K = 20
"""The number of most probable tokens in the entropy of the authors' code."""


def eaft(
    log_probs: Tensor,
    target_mask: Tensor,
    cuda_mask: Tensor | None = None,
    *,
    entropy: Tensor | None = None,
    max_entropy: float = math.log(TOP_K),
    alpha: float = 1.0,
    reduction: str = "token_mean",
    denominator: Tensor | float | None = None,
) -> LossOutput:
    """`-sum_t sg(H_t / max_entropy)^alpha log p_t`, the share of the entropy clipped to [0, 1].

    `entropy` is the entropy of the predictive distribution at each target token, in nats, `(batch, length)`.
    `max_entropy` is its upper bound: ln 20 for `top_k_entropy`, ln of the vocabulary size for the full entropy.
    `cuda_mask` is not used. Raises `ConfigError`.
    """
    if entropy is None:
        raise ConfigError(
            "eaft needs `entropy`, the predictive distribution's at each token",
            hint="give a (batch, length) tensor in nats, e.g. of top_k_entropy(logits)",
        )
    checked(0.0, alpha=alpha, max_entropy=max_entropy)
    if max_entropy == 0:
        raise ConfigError(f"max_entropy = {max_entropy} must be positive")
    same_shape(log_probs, entropy=entropy)
    share = (wide(entropy.detach()) / max_entropy).nan_to_num(nan=0.0).clamp(0.0, 1.0)
    return reduced(log_probs, target_mask, share**alpha, reduction=reduction, denominator=denominator)


def top_k_entropy(logits: Tensor, k: int = TOP_K) -> Tensor:
    """Computes the entropy, in nats, of the `k` most probable tokens renormalised: `(..., vocabulary)` -> `(...)`.

    The result is detached.
    """
    values = logits.detach().float().topk(min(k, logits.shape[-1]), dim=-1).values.log_softmax(dim=-1)
    return -(values.exp() * values).nan_to_num(nan=0.0).sum(dim=-1)
