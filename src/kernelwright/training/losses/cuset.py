"""CuSeT (arXiv 2606.16231): tokens by confidence and place, samples by their hardest region."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from kernelwright.errors import ConfigError
from kernelwright.training.losses.reduction import LossOutput, checked, confidences, reduced, same_shape
from kernelwright.training.losses.regions import regions

if TYPE_CHECKING:
    from torch import Tensor

Scope = Literal["all", "cuda_only"]
"""The tokens of windows: all target tokens, as in the paper, or only those of a kernel or a launch (all target tokens
in samples without any)."""
SampleWeight = Literal["raw", "normalised", "none"]
"""`raw`: 1 - C, as in the paper. `normalised`: scaled to a mean of 1 over the batch's samples. `none`: 1."""


def cuset(
    log_probs: Tensor,
    target_mask: Tensor,
    cuda_mask: Tensor | None = None,
    *,
    tau: float = 0.1,
    lam: float = 1.0,
    window: int = 256,
    scope: str = "all",
    sample_weight: str = "raw",
    mean_sample_weight: Tensor | float | None = None,
    window_mask: Tensor | None = None,
    reduction: str = "token_mean",
    denominator: Tensor | float | None = None,
) -> LossOutput:
    """`-sum_n sg(1 - C_n) sum_t M_nt log p_nt` with `M = 1[sg(p) > tau] + lam * 1[in a kernel or a launch]`.

    C_n is the least mean confidence of a window of `window` target tokens. `log_probs` (gold tokens, teacher forced)
    and the masks have shape `(batch, length)`. Without `cuda_mask`, no token is in a kernel. `window_mask` is false for
    tokens excluded from windows (reasoning before the code). `mean_sample_weight` is the divisor of normalised weights
    if this batch is part of a larger one. Confidences, masks and sample weights carry no gradient. Raises
    `ConfigError`.
    """
    checked(tau=tau)
    checked(0.0, lam=lam)
    same_shape(log_probs, cuda_mask=cuda_mask, window_mask=window_mask)
    targets = target_mask.bool()
    confidence = confidences(log_probs, targets)
    in_cuda = targets & cuda_mask.bool() if cuda_mask is not None else targets & ~targets
    mask_weights = (confidence > tau).to(confidence.dtype) + lam * in_cuda.to(confidence.dtype)
    windowed = in_windows(targets if window_mask is None else targets & window_mask.bool(), in_cuda, scope)
    hardest = regions(confidence, windowed, window).hardest
    raw = (1.0 - hardest).masked_fill(~windowed.any(dim=1), 0.0)
    weights = _sample_weights(raw, windowed.any(dim=1), sample_weight, mean_sample_weight)
    out = reduced(
        log_probs,
        targets,
        mask_weights,
        reduction=reduction,
        denominator=denominator,
        sample_weights=weights,
    )
    count = targets.sum().clamp(min=1)
    samples = windowed.any(dim=1)
    out.stats["windowed"] = samples.sum()
    out.stats["below_tau"] = (targets & (confidence <= tau)).sum() / count
    out.stats["cuda_share"] = in_cuda.sum() / count
    out.stats["hardest"] = (hardest * samples).sum() / samples.sum().clamp(min=1)
    out.stats["sample_weight"] = (weights * samples).sum() / samples.sum().clamp(min=1)
    out.stats["raw_sample_weight"] = raw.sum() / samples.sum().clamp(min=1)
    return out


def in_windows(windowed: Tensor, in_cuda: Tensor, scope: str) -> Tensor:
    """Restricts the tokens `windowed` to those in the scope; `(batch, length)`. Raises `ConfigError`."""
    if scope not in get_args(Scope):
        raise ConfigError(f"there is no scope {scope!r}", hint=f"use {' or '.join(get_args(Scope))}")
    if scope == "all":
        return windowed
    chosen = windowed & in_cuda
    return chosen.where(chosen.any(dim=1, keepdim=True), windowed)


def _sample_weights(raw: Tensor, samples: Tensor, kind: str, mean: Tensor | float | None) -> Tensor:
    """Returns sample weights `(batch,)` of a kind, from 1 - C; 0 for samples without a window, but 1 for `none`."""
    if kind == "none":
        return raw.new_ones(raw.shape)
    if kind == "raw":
        return raw
    if kind == "normalised":
        # Adding to a zero of `raw` converts a float or a tensor of another dtype.
        divisor = raw.sum() / samples.sum().clamp(min=1) if mean is None else raw.new_zeros(()) + mean
        return raw / divisor.masked_fill(divisor == 0, 1.0)
    raise ConfigError(f"there is no sample weight {kind!r}", hint=f"use {', '.join(get_args(SampleWeight))}")
