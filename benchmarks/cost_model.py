"""Compares the cost model's estimates with times on this machine's GPU: products and convolutions by every way.

    python benchmarks/cost_model.py [--out OUT.json] [--from EARLIER.json ...] [--seconds 120] [--part 1/1]
        [--only TEXT] [--timing-seconds 0.05] [--check]

The cases are those of `products.py` and `convolutions.py` in float32. A row has the estimated and measured microseconds
of each way whose estimate is at most 2.5 times the least, the way that `auto` takes, and its regret: its time over the
fastest way's. `docs/make_cost_picture.py` draws them. `--check` judges a tiny case on the functional machine instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import convolutions
import products
from speed_common import GpuClock, compare, loaded, medians

from kernelwright.solutions import write
from kernelwright.solutions.kernels import cost
from kernelwright.solutions.kernels.schedule import AUTO, Schedule
from kernelwright.solutions.kernels.split.convolutions import MOST_PLACES
from kernelwright.solutions.kernels.window_tiles import Window

SEED = 43
MOST_TIMES = 2.5
"""Ways whose estimate is more than so many times the least are not timed."""


@dataclass(frozen=True)
class Swept:
    """A product or a convolution, and the estimated microseconds of each way."""

    of: products.Product | convolutions.Convolution

    @property
    def name(self) -> str:
        return self.of.name

    @property
    def kind(self) -> str:
        return "product" if self.is_product else "convolution"

    @property
    def is_product(self) -> bool:
        return isinstance(self.of, products.Product)

    def source(self) -> str:
        return self.of.source()

    def estimates(self) -> Mapping[str, float]:
        """Returns the estimated microseconds of each way."""
        if isinstance(self.of, products.Product):
            size = cost.ProductSizes(self.of.m, self.of.n, self.of.k, self.of.batch or 1)
            return cost.product_times(size, along_k=self.of.layout[1] == "t")
        return cost.convolution_times(_windows(self.of), MOST_PLACES, kept=True)

    def answers(self) -> dict[str, str]:
        """Returns the answers by way; ways with equal texts once."""
        found: dict[str, str] = {}
        estimates = self.estimates()
        for way, estimate in estimates.items():
            if estimate > MOST_TIMES * min(estimates.values()):
                continue
            text = self.answer(way)
            if text not in found.values():
                found[way] = text
        return found

    def answer(self, way: str) -> str:
        """Returns the answer that computes the case in a way."""
        field = "product" if self.is_product else "conv"
        return write(self.source(), Schedule(block=512, memory="wide", **{field: way}))

    def taken(self) -> str:
        """Returns the way that `auto` takes: it gives the same answer."""
        chosen = self.answer(AUTO)
        return next(way for way, text in self.answers().items() if text == chosen)


def _windows(c: convolutions.Convolution) -> cost.ConvolutionSizes:
    """Returns a convolution's sizes as the cost model takes them."""
    outputs, inputs = c.batch * prod(c.results()), c.batch * prod(c.extents)
    places = prod(-(-kernel // c.stride) if c.transposed else kernel for kernel in c.kernel)
    out, channels = c.outer // c.groups, c.inner // c.groups
    steps = [(number,) * c.rank for number in (c.stride, c.dilation, c.padding)]
    thin = Window(c.transposed, out, channels, c.kernel, *steps)
    return cost.ConvolutionSizes(out, channels, c.groups, places, outputs, inputs, thin.results if thin.fits else 0)


def cases() -> list[Swept]:
    """Returns the float32 cases: products, then convolutions."""
    found = [Swept(p) for p in products.cases() if p.dtype == "float32" and not p.sliced and p.m < 8192]
    return found + [Swept(c) for c in convolutions.cases()]


def measured(swept: Swept, clock: GpuClock, seconds: float) -> dict[str, Any]:
    """Returns the estimated and the measured microseconds of a case's ways."""
    import torch

    task = loaded(swept.source(), "task")
    torch.manual_seed(SEED)
    inputs = [x.cuda() for x in task.get_inputs()]
    calls = {}
    for way, text in swept.answers().items():
        model = loaded(text, "swept").ModelNew(*task.get_init_inputs()).cuda()
        calls[way] = lambda model=model: model(*inputs)
    with torch.no_grad():
        times = {way: 1e3 * ms for way, ms in medians(clock.interleaved(calls, seconds)).items()}
    estimates = swept.estimates()
    taken = swept.taken()
    return {
        "us": times,
        "ms": {"ours": times[taken] / 1e3},
        "estimated_us": {way: estimates[way] for way in times},
        "taken": taken,
        "regret": times[taken] / min(times.values()),
    }


if __name__ == "__main__":
    raise SystemExit(compare(__doc__, "cost_model", cases(), [Swept(products.small()[0])], measured))
