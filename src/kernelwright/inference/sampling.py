"""Draws tokens from logits: greedy, by temperature, with top-p and top-k; a row's tokens do not depend on its batch.

A request's seed gives one uniform number per token in advance. So a sample depends neither on the device nor on the
other requests of its batch, except for rounding of the logits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from kernelwright.errors import ConfigError


@dataclass(frozen=True)
class Sampling:
    """The sampling settings of one request.

    `temperature` 0 is greedy; `top_k` 0 and `top_p` 1 keep all tokens; `stop` lists texts that end the answer.
    """

    temperature: float = 0.8
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 2048
    seed: int = 0
    stop: tuple[str, ...] = ()

    def checked(self) -> Sampling:
        """Returns itself. Raises `ConfigError` that names a field out of range."""
        ranges = (
            ("temperature", 0 <= self.temperature <= 100, "from 0 to 100"),
            ("top_p", 0 < self.top_p <= 1, "above 0, at most 1"),
            ("top_k", self.top_k >= 0, "0 or more"),
            ("max_tokens", self.max_tokens >= 1, "1 or more"),
        )
        for name, right, said in ranges:
            if not right:
                raise ConfigError(f"{name} {getattr(self, name)} is out of range", hint=f"it is {said}")
        return self

    def uniforms(self, count: int) -> np.ndarray:
        """Returns `count` numbers in [0, 1) (float32), one per token, the same for equal seeds."""
        return np.random.default_rng(self.seed % 2**63).random(count, dtype=np.float32)


def draw(
    logits: Tensor,
    uniform: Tensor,
    temperature: Tensor,
    top_p: Tensor,
    top_k: Tensor,
    filtered: bool,
    tempered: bool = False,
) -> tuple[Tensor, Tensor]:
    """Draws ids with their log-probabilities, (rows,) each, from float32 logits (rows, vocabulary).

    All other tensors are (rows,). Log-probabilities are before temperature and filters; with `tempered` they are after
    the temperature, which is the sampled distribution where there is no filter. `filtered` is true where any row has a
    top_p below 1 or a top_k.
    """
    greedy = logits.argmax(-1)
    scaled = logits / temperature.clamp(min=1e-4)[:, None]
    plain = _inverse(scaled.softmax(-1), uniform)
    if filtered:
        values, order = scaled.sort(-1, descending=True)
        likely = values.softmax(-1)
        rank = torch.arange(logits.shape[-1], device=logits.device)
        kept = (likely.cumsum(-1) - likely < top_p[:, None]) & (rank < top_k[:, None])
        kept[:, 0] = True
        chosen = order.gather(-1, _inverse(likely * kept, uniform)[:, None])[:, 0]
        plain = torch.where((top_p < 1) | (top_k < logits.shape[-1]), chosen, plain)
    ids = torch.where(temperature == 0, greedy, plain)
    said = scaled if tempered else logits
    log_probs = said.gather(-1, ids[:, None])[:, 0] - said.logsumexp(-1)
    return ids, log_probs


def _inverse(weights: Tensor, uniform: Tensor) -> Tensor:
    """Samples by the inverse cumulative sum: the first index where it exceeds `uniform` times the total.

    Never returns an index of weight zero.
    """
    sums = weights.cumsum(-1)
    wanted = uniform[:, None] * sums[:, -1:]
    first = (sums <= wanted).sum(-1)
    last = weights.shape[-1] - 1 - (weights.flip(-1) > 0).to(torch.uint8).argmax(-1)
    return torch.minimum(first, last)
