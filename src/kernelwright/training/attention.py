"""Causal attention within the pairs of a packed row, by the fastest kernel that works on this machine.

varlen  flash attention over a ragged batch (CUDA): no work between pairs
flex    compiled flex attention with a document mask (CUDA)
dense   one mask per row: works on any device, fast only for short rows
rows    plain causal attention over whole rows: pairs attend to earlier pairs in their row (as GPT-2 was trained)

`choose` compares a kernel with `dense` on a small case before a run relies on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from kernelwright.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

KINDS = ("varlen", "flex", "dense", "rows")


@dataclass
class Spans:
    """The places of a batch's pairs.

    documents  (rows, length) int32: the number of each token's pair, unique within the batch
    bounds     (pairs + 1 and padding,) int32: the pairs' starts in the flattened batch; the last value repeats
    longest    the most tokens of a pair: a constant, so that compiled code is reused
    mask       the mask that `prepare` makes from `documents` for `flex` and `dense`
    """

    documents: Tensor
    bounds: Tensor
    longest: int
    mask: Any = None


def prepare(kind: str, spans: Spans) -> Spans:
    """Sets the mask that a kind of attention needs; returns the same spans."""
    documents = spans.documents
    rows, length = documents.shape
    if kind == "dense":
        same = documents[:, None, :, None] == documents[:, None, None, :]
        spans.mask = same.tril()
    elif kind == "flex":

        def seen(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            return (q >= k) & (documents[b, q] == documents[b, k])

        spans.mask = _block_masks()(seen, rows, None, length, length, device=documents.device)
    return spans


@cache
def _block_masks() -> Any:
    """Compiles flex attention's `create_block_mask`; uncompiled, it materialises the whole mask."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask

    return torch.compile(create_block_mask)


def attend(kind: str, q: Tensor, k: Tensor, v: Tensor, spans: Spans) -> Tensor:
    """Computes attention of q (rows, length, heads, width) over k and v (rows, length, kv heads, width).

    Returns a tensor of q's shape.
    """
    import torch
    from torch.nn import functional as F

    rows, length, heads, width = q.shape
    if kind == "varlen":
        flat = [t.reshape(rows * length, -1, width) for t in (q, k, v)]
        out = torch.ops.aten._flash_attention_forward(
            flat[0], flat[1], flat[2], spans.bounds, spans.bounds, spans.longest, spans.longest, 0.0, True, False
        )[0]
        return out.view(rows, length, heads, width)
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    if kind == "flex":
        from torch.nn.attention.flex_attention import flex_attention

        out = flex_attention(q, k, v, block_mask=spans.mask, enable_gqa=True)
        assert isinstance(out, torch.Tensor)
    elif kind == "dense":
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=spans.mask, enable_gqa=True)
    else:
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return out.transpose(1, 2)


def choose(wanted: str, device: str, compiled: bool) -> str:
    """Returns the kind to use: the wanted one, or for `auto` the first that `works`. Raises `ConfigError`."""
    if wanted != "auto":
        if wanted not in KINDS:
            raise ConfigError(f"attention {wanted!r} is unknown", hint=f"use auto, {', '.join(KINDS)}")
        if device != "cuda" and wanted in ("varlen", "flex"):
            raise ConfigError(f"attention {wanted!r} needs a GPU", hint="use auto")
        return wanted
    if device != "cuda":
        return "dense"
    kinds = ["varlen"] + (["flex"] if compiled else [])  # uncompiled flex attention is slower than `rows`
    return next((kind for kind in kinds if works(kind, compiled)), "rows")


def works(kind: str, compiled: bool) -> bool:
    """Tells whether a kind gives the same outputs and gradients as `dense`, on the GPU in bfloat16."""
    import torch

    torch.manual_seed(0)
    lengths = (100, 156, 37, 219)
    made = [torch.randn(2, 256, heads, 64, device="cuda").bfloat16() for heads in (8, 2, 2, 8)]
    documents = torch.repeat_interleave(torch.arange(4), torch.tensor(lengths)).view(2, 256).int().cuda()
    bounds = torch.tensor([0, 100, 256, 293, 512, 512, 512]).int().cuda()

    def results(one: str) -> list[Tensor]:
        inputs = [t.clone().requires_grad_() for t in made[:3]]
        spans = prepare(one, Spans(documents, bounds, 256))
        function = torch.compile(attend, dynamic=False) if compiled and one != "dense" else attend
        q, k, v = inputs
        out = function(one, q, k, v, spans)
        out.backward(made[3])
        return [out, *(t.grad for t in inputs if t.grad is not None)]

    try:
        found, right = results(kind), results("dense")
    except Exception:  # this torch build lacks the kernel: use another kind
        return False
    return all(torch.allclose(a.float(), b.float(), atol=4e-2, rtol=4e-2) for a, b in zip(found, right, strict=True))
