"""Compares the library's matrix products with cuBLAS on this machine's GPU: time, and error against float64.

    python benchmarks/products.py [--out OUT.json] [--from EARLIER.json ...] [--seconds 480] [--part 1/1] [--only TEXT]
        [--timing-seconds 0.4] [--check]

float32 products (TF32 off) are square, tall, wide, batched, of odd sizes, in all layouts (`nn`, `nt`, `tn`, `tt`: a `t`
is a transposed operand) and with a first operand that is a slice of a wider one. 16-bit products are 4096³ and 8192³.
Ours is the library's first answer, launched by `kernelwright.cuda.Module`. Errors are over the mean magnitude of the
result, for six distributions of operands. `--check` judges tiny products on the functional machine instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from speed_common import GpuClock, compare, errors, library_answer, loaded, medians

SEED = 43
PITCH = 64
"""Elements by which the rows of a sliced operand lie further apart than they are long."""
TORCH_NAMES = {"float32": "torch.float32", "float16": "torch.float16", "bfloat16": "torch.bfloat16"}


@dataclass(frozen=True)
class Product:
    """A product of an M × K and a K × N operand, `batch` of them if positive."""

    kind: str
    m: int
    k: int
    n: int
    layout: str = "nn"
    batch: int = 0
    sliced: bool = False
    dtype: str = "float32"

    @property
    def name(self) -> str:
        """The product's sizes and layout in one word."""
        batch = f"{self.batch}x" if self.batch else ""
        return f"{self.dtype} {batch}{self.m}x{self.k}x{self.n} {self.layout}{' sliced' if self.sliced else ''}"

    @property
    def flops(self) -> int:
        """Operations; a multiply-add counts as two."""
        return 2 * max(1, self.batch) * self.m * self.k * self.n

    def source(self) -> str:
        """Returns the product as a task."""
        axes = ("M, K", "K, N")
        stored = [", ".join(reversed(a.split(", "))) if t == "t" else a for a, t in zip(axes, self.layout, strict=True)]
        batch = "B, " if self.batch else ""
        turned = ".transpose(1, 2)" if self.batch else ".T"
        a, b = (f"{v}{turned if t == 't' else ''}" for v, t in zip("ab", self.layout, strict=True))
        dtype = "" if self.dtype == "float32" else f", dtype={TORCH_NAMES[self.dtype]}"
        made = [f"torch.randn({batch}{s}{dtype})" for s in stored]
        if self.sliced:
            last = stored[0].split(", ")[-1]
            made[0] = f"torch.randn({batch}{stored[0]} + {PITCH}{dtype})[..., :{last}]"
        head = f"B, M, K, N = {self.batch}, {self.m}, {self.k}, {self.n}" if self.batch else ""
        sizes = head or f"M, K, N = {self.m}, {self.k}, {self.n}"
        return (
            f"import torch\n\n{sizes}\n\n\nclass Model(torch.nn.Module):\n    def forward(self, a, b):\n"
            f"        return torch.matmul({a}, {b})\n\n\n"
            f"def get_inputs():\n    return [{made[0]}, {made[1]}]\n\n\ndef get_init_inputs():\n    return []\n"
        )


def cases() -> list[Product]:
    """Returns all products, those of 8192³ last."""
    found = [Product("square", n, n, n) for n in (1024, 1536, 2048, 4096)]
    found += [Product("layout", 4096, 4096, 4096, layout) for layout in ("nt", "tn", "tt")]
    found += [Product("layout", 2048, 1024, 3072, layout) for layout in ("nt", "tn", "tt")]
    found += [Product("sliced", 4096, 4096, 4096, layout, sliced=True) for layout in ("nn", "tn")]
    found += [Product("tall", 32768, 512, 256), Product("tall", 16384, 1024, 1024), Product("tall", 65536, 128, 64)]
    found += [
        Product("wide", 128, 8192, 8192),
        Product("wide", 16, 4096, 16384, "nt"),
        Product("wide", 512, 2048, 8192),
    ]
    found += [Product("deep", 256, 131072, 256), Product("deep", 1024, 32768, 512, "tn")]
    found += [Product("odd", 4095, 4097, 2049), Product("odd", 1000, 3001, 777, "nt")]
    found += [Product("batched", 512, 256, 512, batch=64), Product("batched", 1024, 1024, 1024, batch=16)]
    found += [Product("batched", 128, 64, 128, "nt", batch=512), Product("batched", 2048, 2048, 2048, "tn", batch=4)]
    found += [Product("half", 4096, 4096, 4096, layout, dtype="float16") for layout in ("nn", "nt")]
    found += [Product("half", 4096, 4096, 4096, dtype="bfloat16")]
    found += [Product("square", 8192, 8192, 8192), Product("layout", 8192, 8192, 8192, "nt")]
    found += [Product("half", 8192, 8192, 8192, dtype=dtype) for dtype in ("float16", "bfloat16")]
    return found


def small() -> list[Product]:
    """Returns one tiny product of each kind, layout and dtype."""
    kinds = {(p.kind, p.layout, p.dtype): p for p in reversed(cases())}
    return [replace(p, m=37, k=50, n=45, batch=3 if p.batch else 0) for p in kinds.values()]


def distributions() -> dict[str, Callable[..., Any]]:
    """Returns the distributions of operands: functions of a shape, a generator and the axis of the product's rows."""
    import torch

    def normal(shape: Any, g: Any, axis: int) -> Any:
        return torch.randn(shape, generator=g, device=g.device)

    def rows(shape: Any, g: Any, axis: int) -> Any:
        each = [n if a == axis % len(shape) else 1 for a, n in enumerate(shape)]
        return normal(shape, g, axis) * 10.0 ** (12 * torch.rand(each, generator=g, device=g.device) - 6)

    return {
        "normal": normal,
        "uniform": lambda shape, g, axis: torch.rand(shape, generator=g, device=g.device),
        "heavy-tailed": lambda shape, g, axis: normal(shape, g, axis) * torch.exp(2.5 * normal(shape, g, axis)),
        "mixed rows": rows,
        "tiny": lambda shape, g, axis: 1e-15 * normal(shape, g, axis),
        "huge": lambda shape, g, axis: 1e15 * normal(shape, g, axis),
    }


def operands(p: Product, make: Callable[..., Any], device: str) -> tuple[Any, Any]:
    """Returns the operands as the task stores them."""
    import torch

    g = torch.Generator(device).manual_seed(SEED)
    batch = (p.batch,) if p.batch else ()
    dtype = getattr(torch, p.dtype)
    a, b = make((*batch, p.m, p.k), g, -2).to(dtype), make((*batch, p.k, p.n), g, -1).to(dtype)
    a, b = (v.transpose(-1, -2).contiguous() if t == "t" else v for v, t in zip((a, b), p.layout, strict=True))
    if p.sliced:
        wide = torch.zeros((*a.shape[:-1], a.shape[-1] + PITCH), dtype=dtype, device=device)
        wide[..., : a.shape[-1]] = a
        a = wide[..., : a.shape[-1]]
    return a, b


def torch_product(p: Product, a: Any, b: Any) -> Any:
    """Returns the product by torch, in the operands' dtype."""
    import torch

    return torch.matmul(*(v.transpose(-1, -2) if t == "t" else v for v, t in zip((a, b), p.layout, strict=True)))


def measured(p: Product, clock: GpuClock, seconds: float) -> dict[str, Any]:
    """Returns one product's times and errors."""
    ours = loaded(library_answer(p.source()), "product").ModelNew()
    found: dict[str, Any] = {}
    for name, make in distributions().items():
        if p.dtype == "float16" and name in ("heavy-tailed", "mixed rows", "tiny", "huge"):
            continue  # beyond the range of float16
        a, b = operands(p, make, "cuda")
        exact = torch_product(p, a.double(), b.double())
        found[name] = {"ours": errors(ours(a, b), exact), "cublas": errors(torch_product(p, a, b), exact)}
    del exact
    a, b = operands(p, distributions()["normal"], "cuda")
    samples = clock.interleaved({"ours": lambda: ours(a, b), "cublas": lambda: torch_product(p, a, b)}, seconds)
    ms = medians(samples)
    return {
        "flops": p.flops,
        "dtype": p.dtype,
        "ms": ms,
        "ratio": ms["cublas"] / ms["ours"],
        "tflops": {name: p.flops / value / 1e9 for name, value in ms.items()},
        "errors": found,
        "as_exact": as_exact(found),
        "samples": samples,
    }


def as_exact(found: dict[str, Any]) -> bool:
    """Tells whether ours has at most cuBLAS's largest and rms error on every distribution; not for 16-bit results."""
    names = {d: ("largest_by_row", "rms_by_row") if d == "mixed rows" else ("largest", "rms") for d in found}
    return all(
        found[d]["ours"][n] <= found[d]["cublas"][n] and math.isfinite(found[d]["ours"][n])
        for d, both in names.items()
        for n in both
    )


if __name__ == "__main__":
    raise SystemExit(compare(__doc__, "products", cases(), small(), measured))
