"""Applies a causal model's head again to its last hidden states, for what TRL's fused head does not give.

The work is done in tiles of tokens, so that the logits of a batch are never in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from kernelwright.training.losses import top_k_entropy, vocabulary_kl

_TILE = 1024
_SCALES = ("logit_scale", "output_multiplier", "lm_head_multiplier")


class RecordedHead:
    """Records the last hidden states of `model` in the `with` block; its methods apply the head to them."""

    def __init__(self, model: Any) -> None:
        self._model = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._hidden: Tensor | None = None

    def __enter__(self) -> Self:
        self._hook = self._model.base_model.register_forward_hook(self._keep)
        return self

    def __exit__(self, *_error: Any) -> None:
        self._hook.remove()

    def _keep(self, _module: Any, _inputs: Any, outputs: Any) -> None:
        self._hidden = outputs.last_hidden_state

    @torch.no_grad()
    def entropy(self, label_mask: Tensor) -> Tensor:
        """Returns the entropy of the most probable tokens, in nats, of each predicted token in the mask; 0 elsewhere.

        `label_mask` has shape `(batch, length - 1)`, as all masks here.
        """
        hidden, logits = self._targets(label_mask), self._logits()
        return _placed([top_k_entropy(logits(tile)) for tile in hidden.split(_TILE)], label_mask, hidden)

    def divergence(self, label_mask: Tensor, reference: RecordedHead) -> Tensor:
        """Returns KL(reference || this model) over the vocabulary, in nats, of each predicted token in the mask.

        It is 0 elsewhere. Its gradient goes to this model alone; a tile's logits are computed again for it.
        """
        hidden, anchor = self._targets(label_mask), reference._targets(label_mask).detach()
        logits, anchor_logits = self._logits(), reference._logits()

        def of_tile(ours: Tensor, theirs: Tensor) -> Tensor:
            with torch.no_grad():
                before = anchor_logits(theirs)
            return vocabulary_kl(logits(ours), before)

        tiles = zip(hidden.split(_TILE), anchor.split(_TILE), strict=True)
        found = [checkpoint(of_tile, ours, theirs, use_reentrant=False) for ours, theirs in tiles]
        return _placed(found, label_mask, hidden)

    def _targets(self, label_mask: Tensor) -> Tensor:
        """Returns the hidden states that predict the tokens in the mask, `(tokens, width)`; frees the others."""
        assert self._hidden is not None
        hidden, self._hidden = self._hidden[:, :-1][label_mask], None
        return hidden

    def _logits(self) -> Callable[[Tensor], Tensor]:
        """Returns the function from hidden states to logits in float32."""
        head, scale, cap = self._model.get_output_embeddings(), *_of_logits(self._model.config.get_text_config())
        weight, bias = (p.full_tensor() if hasattr(p, "full_tensor") else p for p in (head.weight, head.bias))

        def logits(hidden: Tensor) -> Tensor:
            values = torch.nn.functional.linear(hidden.to(weight.dtype), weight, bias).float() * scale
            return cap * torch.tanh(values / cap) if cap else values

        return logits


def _placed(found: list[Tensor], label_mask: Tensor, hidden: Tensor) -> Tensor:
    """Puts the values of the tokens in the mask, tile by tile, at their places."""
    values = torch.cat([hidden.new_zeros(0, dtype=torch.float32), *found])
    return torch.zeros(label_mask.shape, device=hidden.device).masked_scatter(label_mask, values)


def _of_logits(config: Any) -> tuple[float, float | None]:
    """Returns a model's logit scale and soft cap, from the config names that TRL's head supports."""
    scale = next((s for n in _SCALES if (s := getattr(config, n, None)) is not None), None)
    divisor = getattr(config, "logits_scaling", None)
    if scale is None and divisor is not None:
        scale = divisor if config.model_type == "hyperclovax" else 1 / divisor
    return 1.0 if scale is None else float(scale), getattr(config, "final_logit_softcapping", None)
