"""Attention within the samples of packed rows, for transformers models, without a mask.

Packed fine-tuning joins samples into one row. With SDPA, transformers makes a mask of the squared row length, which
every layer reads. torch's flash attention over a ragged batch needs only the starts of the samples. `register` adds it
to transformers; rows without packing still use SDPA.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

NAME = "kernelwright_joined"
MODELS = ("llama", "mistral", "qwen2", "qwen3")
"""Model types whose attention has only a scale and an optional window: no soft caps, no sinks."""


def register() -> str:
    """Registers `attn_implementation=NAME` with transformers. Returns the name."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, mask)
    return NAME


def mask(attention_mask: Tensor | None = None, **more: Any) -> Any:
    """Returns the mask of padded rows; None for packed rows, which need none."""
    from transformers.masking_utils import sdpa_mask

    if attention_mask is None and more.get("q_length") == more.get("kv_length"):
        return None
    return sdpa_mask(attention_mask=attention_mask, **more)


def attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **more: Any,
) -> tuple[Tensor, None]:
    """Computes causal attention of `query` (rows, heads, length, width) over `key` and `value` (rows, key heads,
    length, width).

    Returns (rows, length, heads, width) and None. If `more` has the bounds of samples in a packed row
    (`cu_seq_lens_q`, int32), no token attends to another sample.
    """
    bounds = more.get("cu_seq_lens_q")
    if bounds is None or attention_mask is not None:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        found: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout, scaling, **more
        )
        return found
    window = more.get("sliding_window")
    kind = torch.get_autocast_dtype(query.device.type) if torch.is_autocast_enabled(query.device.type) else value.dtype
    q, k, v = (t.to(kind) for t in (query, key, value))  # rotary positions leave float32 behind under autocast
    if q.is_cuda and kind in (torch.bfloat16, torch.float16) and q.shape[-1] % 8 == 0 and _ragged_flash():
        out = flash(q, k, v, bounds, int(more["max_length_q"]), dropout, scaling, window)
    else:
        out = one_by_one(q, k, v, bounds.tolist(), dropout, scaling, window)
    return out.to(value.dtype), None


def flash(
    q: Tensor, k: Tensor, v: Tensor, bounds: Tensor, longest: int, dropout: float, scaling: Any, window: int | None
) -> Tensor:
    """Runs one flash-attention kernel over all samples of a single packed row, in half precision on a GPU."""
    rows, heads, length, width = q.shape
    flat = [t.transpose(1, 2).reshape(rows * length, -1, width) for t in (q, k, v)]
    limits = {"window_size_left": window - 1, "window_size_right": 0} if window else {}
    out: Tensor = torch.ops.aten._flash_attention_forward(
        *flat, bounds, bounds, longest, longest, dropout, True, False, scale=scaling, **limits
    )[0].view(rows, length, heads, width)
    return out


def one_by_one(
    q: Tensor, k: Tensor, v: Tensor, bounds: list[int], dropout: float, scaling: Any, window: int | None
) -> Tensor:
    """Computes one sample after the other: works on any device, with much less work than a mask over the row."""
    parts = []
    for start, end in zip(bounds, bounds[1:], strict=False):
        size = end - start
        if not size:
            continue
        seen = None
        if window and size > window:
            places = torch.arange(size, device=q.device)
            apart = places[:, None] - places
            seen = (apart >= 0) & (apart < window)
        one, others, values = (t[:, :, start:end] for t in (q, k, v))
        parts.append(
            F.scaled_dot_product_attention(
                one, others, values, seen, dropout, seen is None, scale=scaling, enable_gqa=True
            )
        )
    return torch.cat(parts, dim=2).transpose(1, 2)


@cache
def _ragged_flash() -> bool:
    """Tells whether this torch's kernel gives the same result as a mask; checked once."""
    from kernelwright.training.attention import works

    return works("varlen", compiled=False)
