"""Compares the library's attention forward with torch's on this machine's GPU: time, and error against float64.

    python benchmarks/attention_speed.py [--out OUT.json] [--from EARLIER.json ...] [--seconds 240] [--part 1/1]
        [--timing-seconds 0.4] [--check]

16-bit and float32 scaled dot-product attention, causal and whole, at lengths of 1 to 4 thousand. `flash` is torch's
flash attention (16-bit only), `torch` is what `scaled_dot_product_attention` picks by itself. `--check` judges tiny
attentions on the functional machine instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from speed_common import GpuClock, compare, errors, library_answer, loaded, medians

SEED = 43


@dataclass(frozen=True)
class Attention:
    """An attention of `heads` heads over `length` positions of `width` features each."""

    dtype: str
    batch: int
    heads: int
    length: int
    width: int
    causal: bool

    @property
    def kind(self) -> str:
        """`causal` or `whole`."""
        return "causal" if self.causal else "whole"

    @property
    def name(self) -> str:
        """All parameters in one line."""
        return f"{self.dtype} {self.batch}x{self.heads}x{self.length}x{self.width} {self.kind}"

    @property
    def flops(self) -> int:
        """Operations of both products; half of them where the attention is causal."""
        whole = 4 * self.batch * self.heads * self.length**2 * self.width
        return whole // 2 if self.causal else whole

    def source(self) -> str:
        """Returns the attention as a task."""
        dtype = "" if self.dtype == "float32" else f", dtype=torch.{self.dtype}"
        one = f"torch.randn(B, H, N, D{dtype})"
        return (
            "import torch\nimport torch.nn.functional as F\n\n"
            f"B, H, N, D = {self.batch}, {self.heads}, {self.length}, {self.width}\n\n\n"
            "class Model(torch.nn.Module):\n    def forward(self, q, k, v):\n"
            f"        return F.scaled_dot_product_attention(q, k, v{', is_causal=True' if self.causal else ''})\n\n\n"
            f"def get_inputs():\n    return [{one}, {one}, {one}]\n\n\ndef get_init_inputs():\n    return []\n"
        )


def cases() -> list[Attention]:
    """Returns all attentions."""
    return [
        Attention("float16", 4, 16, 4096, 64, True),
        Attention("float16", 4, 16, 4096, 128, True),
        Attention("bfloat16", 4, 16, 4096, 128, True),
        Attention("float16", 4, 16, 4096, 64, False),
        Attention("float16", 8, 16, 1024, 64, True),
        Attention("float16", 2, 8, 3000, 96, True),
        Attention("float32", 4, 16, 2048, 64, True),
        Attention("float32", 8, 12, 1024, 64, False),
    ]


def small() -> list[Attention]:
    """Returns one tiny attention of each dtype and kind."""
    kinds = {(a.dtype, a.causal): a for a in cases()}
    return [replace(a, batch=1, heads=2, length=37, width=16) for a in kinds.values()]


def measured(a: Attention, clock: GpuClock, seconds: float) -> dict[str, Any]:
    """Returns one attention's times and errors."""
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    torch.manual_seed(SEED)
    shape = (a.batch, a.heads, a.length, a.width)
    q, k, v = (torch.randn(shape, device="cuda").to(getattr(torch, a.dtype)) for _ in range(3))
    model = loaded(library_answer(a.source()), "attention").ModelNew()

    def flash() -> Any:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return F.scaled_dot_product_attention(q, k, v, is_causal=a.causal)

    calls: dict[str, Callable[[], Any]] = {
        "ours": lambda: model(q, k, v),
        "torch": lambda: F.scaled_dot_product_attention(q, k, v, is_causal=a.causal),
    }
    if a.dtype != "float32":
        calls["flash"] = flash
    first = [t[:1, :2] for t in (q, k, v)]
    exact = F.scaled_dot_product_attention(*(t.double() for t in first), is_causal=a.causal)
    with torch.no_grad():
        found = {name: errors(call()[:1, :2], exact) for name, call in calls.items()}
        samples = clock.interleaved(calls, seconds)
    ms = medians(samples)
    return {
        "flops": a.flops,
        "dtype": a.dtype,
        "ms": ms,
        "ratio": ms.get("flash", ms["torch"]) / ms["ours"],
        "tflops": {name: a.flops / value / 1e9 for name, value in ms.items()},
        "errors": found,
        "samples": samples,
    }


if __name__ == "__main__":
    raise SystemExit(compare(__doc__, "attention_speed", cases(), small(), measured))
