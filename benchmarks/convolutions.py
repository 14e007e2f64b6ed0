"""Compares the library's convolutions with cuDNN in float32 (TF32 off) on this machine's GPU: time and error.

    python benchmarks/convolutions.py [--out OUT.json] [--from EARLIER.json ...] [--seconds 480] [--part 1/1]
        [--only TEXT] [--timing-seconds 0.4] [--check]

30 shapes: 1D to 3D, plain, strided, dilated, grouped, depthwise, transposed. cuDNN is timed as torch calls it by
default (`cudnn`) and with the fastest of its algorithms (`cudnn_best`, `torch.backends.cudnn.benchmark`); the ratio is
against the former. Errors are against float64, over the mean magnitude of the result, on the first samples of a batch.
`--check` judges tiny convolutions of the same kinds on the functional machine instead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from speed_common import GpuClock, compare, errors, library_answer, loaded, medians

SEED = 43
EXACT_SAMPLES = 2
"""Samples of the batch that are compared with float64."""


@dataclass(frozen=True)
class Convolution:
    """A convolution of a batch of maps with `inner` channels of given extents to `outer` channels."""

    kind: str
    batch: int
    inner: int
    outer: int
    extents: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1
    bias: bool = True

    @property
    def rank(self) -> int:
        """The number of extents."""
        return len(self.extents)

    @property
    def transposed(self) -> bool:
        """True for a transposed convolution."""
        return self.kind == "transposed"

    @property
    def name(self) -> str:
        """All parameters in one line."""
        extents, kernel = "x".join(map(str, self.extents)), "x".join(map(str, self.kernel))
        more = [f"{n[0]}{v}" for n, v in self._words() if n != "bias"]
        return " ".join(
            [f"{self.kind}{self.rank}d {self.batch}x{self.inner}x{extents}", f"{self.outer}@{kernel}", *more]
        )

    def _words(self) -> list[tuple[str, int | bool]]:
        usual = (("stride", 1), ("padding", 0), ("dilation", 1), ("groups", 1), ("bias", True))
        return [(name, getattr(self, name)) for name, value in usual if getattr(self, name) != value]

    def results(self) -> list[int]:
        """Returns the extents of the result."""
        pairs = zip(self.extents, self.kernel, strict=True)
        if self.transposed:
            return [(n - 1) * self.stride - 2 * self.padding + self.dilation * (k - 1) + 1 for n, k in pairs]
        return [(n + 2 * self.padding - self.dilation * (k - 1) - 1) // self.stride + 1 for n, k in pairs]

    @property
    def flops(self) -> int:
        """Operations; a multiply-add counts as two."""
        places = prod(self.extents) if self.transposed else prod(self.results())
        return 2 * self.batch * places * self.inner * self.outer // self.groups * prod(self.kernel)

    @property
    def bytes(self) -> int:
        """Bytes of input, weights and result."""
        weights = self.inner * self.outer // self.groups * prod(self.kernel)
        maps = self.inner * prod(self.extents) + self.outer * prod(self.results())
        return 4 * (self.batch * maps + weights)

    def source(self) -> str:
        """Returns the convolution as a task."""
        layer = f"nn.Conv{'Transpose' if self.transposed else ''}{self.rank}d"
        kernel = self.kernel[0] if len(set(self.kernel)) == 1 else self.kernel
        words = "".join(f", {name}={value}" for name, value in self._words())
        extents = ", ".join("LDHW"[-self.rank :] if self.rank > 1 else "L")
        sizes = ", ".join(map(str, (self.batch, self.inner, self.outer, *self.extents)))
        return (
            f"import torch\nimport torch.nn as nn\n\nB, C, O, {extents} = {sizes}\n\n\n"
            f"class Model(nn.Module):\n    def __init__(self, inner, outer):\n        super().__init__()\n"
            f"        self.conv = {layer}(inner, outer, {kernel}{words})\n\n"
            f"    def forward(self, x):\n        return self.conv(x)\n\n\n"
            f"def get_inputs():\n    return [torch.randn(B, C, {extents})]\n\n\n"
            f"def get_init_inputs():\n    return [C, O]\n"
        )


def cases() -> list[Convolution]:
    """Returns the 30 convolutions."""
    c = Convolution
    return [
        c("plain", 32, 64, 128, (8192,), (3,), padding=1),
        c("plain", 16, 128, 256, (4096,), (9,), stride=2, padding=4),
        c("dilated", 16, 64, 64, (16384,), (5,), padding=8, dilation=4),
        c("depthwise", 32, 256, 256, (4096,), (7,), padding=3, groups=256),
        c("transposed", 16, 128, 64, (4096,), (4,), stride=2, padding=1),
        c("plain", 128, 64, 128, (128, 128), (3, 3), padding=1),
        c("plain", 64, 128, 256, (56, 56), (3, 3), padding=1),
        c("plain", 32, 256, 512, (28, 28), (3, 3), stride=2, padding=1),
        c("plain", 64, 3, 64, (224, 224), (7, 7), stride=2, padding=3),
        c("plain", 128, 8, 64, (256, 256), (3, 3)),
        c("plain", 32, 64, 96, (112, 100), (5, 5), padding=2),
        c("plain", 16, 48, 80, (127, 131), (3, 5), padding=1),
        c("pointwise", 64, 256, 512, (56, 56), (1, 1)),
        c("pointwise", 128, 64, 64, (112, 112), (1, 1), bias=False),
        c("dilated", 32, 64, 128, (96, 96), (3, 3), padding=2, dilation=2),
        c("grouped", 64, 128, 128, (56, 56), (3, 3), padding=1, groups=8),
        c("grouped", 32, 256, 256, (28, 28), (3, 3), padding=1, groups=32),
        c("depthwise", 64, 128, 128, (112, 112), (3, 3), padding=1, groups=128),
        c("depthwise", 32, 64, 64, (256, 256), (7, 7), padding=3, groups=64),
        c("transposed", 32, 64, 64, (64, 64), (4, 4), stride=2, padding=1),
        c("transposed", 16, 64, 128, (128, 128), (3, 3)),
        c("transposed", 64, 128, 64, (32, 32), (5, 5), stride=3, padding=1),
        c("plain", 16, 32, 64, (24, 64, 64), (3, 3, 3), padding=1),
        c("plain", 8, 3, 48, (32, 96, 96), (3, 5, 7)),
        c("plain", 16, 64, 128, (16, 32, 32), (3, 3, 3), stride=2, padding=1),
        c("plain", 64, 16, 32, (16, 32, 32), (3, 3, 3)),
        c("grouped", 16, 32, 64, (16, 48, 48), (3, 3, 3), padding=1, groups=4),
        c("transposed", 16, 32, 16, (16, 32, 32), (3, 3, 3), stride=2, padding=1),
        c("transposed", 8, 32, 64, (16, 32, 32), (3, 3, 3), padding=1),
        c("transposed", 16, 64, 32, (12, 24, 24), (4, 4, 4), stride=2, padding=1),
    ]


def small() -> list[Convolution]:
    """Returns one tiny convolution of each kind and rank."""
    found = {}
    for c in cases():
        groups = min(c.groups, 3)
        inner, outer = (groups, groups) if c.groups == c.inner else (2 * groups, 3 * groups)
        extents = tuple(k * c.dilation + 3 + i for i, k in enumerate(c.kernel))
        found[c.kind, c.rank] = replace(c, batch=2, inner=inner, outer=outer, extents=extents, groups=groups)
    return list(found.values())


def measured(c: Convolution, clock: GpuClock, seconds: float) -> dict[str, Any]:
    """Returns one convolution's times and errors."""
    import torch

    task = loaded(c.source(), "task")
    torch.manual_seed(SEED)
    reference = task.Model(*task.get_init_inputs()).cuda()
    ours = loaded(library_answer(c.source()), "convolution").ModelNew(*task.get_init_inputs()).cuda()
    ours.load_state_dict(reference.state_dict())
    x = torch.randn(c.batch, c.inner, *c.extents, device="cuda")

    def best() -> Any:
        with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=False):
            return reference(x)

    with torch.no_grad():
        results = {"ours": ours(x), "cudnn": reference(x)}
        exact = reference.double()(x[:EXACT_SAMPLES].double())
        reference.float()
        reference.load_state_dict(ours.state_dict())
        found = {name: errors(value[:EXACT_SAMPLES], exact) for name, value in results.items()}
        del results, exact
        samples = clock.interleaved(
            {"ours": lambda: ours(x), "cudnn": lambda: reference(x), "cudnn_best": best}, seconds
        )
    ms = medians(samples)
    return {
        "flops": c.flops,
        "bytes": c.bytes,
        "ms": ms,
        "ratio": ms["cudnn"] / ms["ours"],
        "ratio_best": ms["cudnn_best"] / ms["ours"],
        "tflops": {name: c.flops / value / 1e9 for name, value in ms.items()},
        "errors": found,
        "samples": samples,
    }


if __name__ == "__main__":
    raise SystemExit(compare(__doc__, "convolutions", cases(), small(), measured))
