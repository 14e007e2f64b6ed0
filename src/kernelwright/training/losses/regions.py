"""Windows of target tokens, and the window of least mean confidence, by which CuSeT weighs samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelwright.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Regions:
    """Window confidences of a batch. Rows without tokens have confidence 1 everywhere and the region (0, 0)."""

    window: Tensor
    """Mean confidence of the window centred on each token, `(batch, length)`; 1 outside the mask."""
    hardest: Tensor
    """The smallest window confidence of each row, `(batch,)`."""
    start: Tensor
    """The index of the hardest window's first token in the row, `(batch,)`."""
    end: Tensor
    """The index after the hardest window's last token, `(batch,)`."""


MOST = 1_000_000
"""The most tokens of a window."""


def regions(confidence: Tensor, mask: Tensor, window: int) -> Regions:
    """Computes window confidences of each row's tokens in `mask`. Gaps in the mask are closed first.

    With tokens counted from 1 to T, the window of token t is `max(1, t - floor(l/2)) .. min(T, t + ceil(l/2) - 1)`,
    and the whole row where T < l. Both tensors have shape `(batch, length)`. Raises `ConfigError`.
    """
    if not isinstance(window, int | float) or not 1 <= window <= MOST or window != int(window):
        raise ConfigError(f"a window of {window} tokens", hint="use a whole number, at least 1")
    window = int(window)
    batch, length = mask.shape
    if length == 0:
        empty = confidence.new_ones(batch)
        nowhere = mask.long().sum(dim=1)
        return Regions(confidence, empty, nowhere, nowhere)
    count = mask.sum(dim=1, keepdim=True)
    order = (~mask).long().argsort(dim=1, stable=True)  # a row's tokens first, in their order
    index = mask.new_ones(mask.shape).long().cumsum(dim=1) - 1
    inside = index < count
    values = confidence.double().gather(1, order).masked_fill(~inside, 0.0)
    # Window sums are differences of prefix sums; in float64, since errors of prefix sums grow over long rows.
    upto = values.cumsum(dim=1)
    low = (index - window // 2).clamp(min=0).masked_fill(count < window, 0)
    high = (index + (window + 1) // 2 - 1).minimum((count - 1).clamp(min=0))
    high = high.where(count >= window, (count - 1).clamp(min=0))
    low = low.minimum(high)
    total = upto.gather(1, high) - upto.gather(1, low) + values.gather(1, low)
    means = (total / (high - low + 1)).clamp(0.0, 1.0).masked_fill(~inside, 1.0)
    hardest, at = means.min(dim=1, keepdim=True)
    start = order.gather(1, low.gather(1, at))
    end = order.gather(1, high.gather(1, at)) + 1
    spread = means.scatter(1, order, means).to(confidence.dtype)
    some = count[:, 0] > 0
    return Regions(spread, hardest[:, 0].to(confidence.dtype), start[:, 0] * some, end[:, 0] * some)
