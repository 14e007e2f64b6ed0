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
from typing import Any

import convolutions
import products
from speed_common import GpuClock, begun, checked, loaded, measure, medians, parser

from kernelwright.solutions import write
from kernelwright.solutions.kernels import cost
from kernelwright.solutions.kernels.schedule import Schedule
from kernelwright.solutions.kernels.split.convolutions import MOST_PLACES
from kernelwright.solutions.kernels.split.products import SHAPES

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

    def estimates(self) -> Mapping[str, float]:
        """Returns the estimated microseconds of each way."""
        if isinstance(self.of, products.Product):
            size = cost.ProductSizes(self.of.m, self.of.n, self.of.k, self.of.batch or 1)
            return cost.product_times(size, along_k=self.of.layout[1] == "t")
        return cost.convolution_times(_windows(self.of), MOST_PLACES, kept=True)

    def answers(self) -> dict[str, str]:
        """Returns the answers by way; ways with equal texts once."""
        field, plain = ("product", "double64") if self.is_product else ("conv", "gemm64")
        found: dict[str, str] = {}
        estimates = self.estimates()
        for way in (plain, *SHAPES):
            if estimates.get(way, 0.0) > MOST_TIMES * min(estimates.values()):
                continue
            text = write(self.of.source(), Schedule(block=512, memory="wide", **{field: way}))
            if text not in found.values():
                found[way] = text
        return found


def _windows(c: convolutions.Convolution) -> cost.ConvolutionSizes:
    """Returns a convolution's sizes as the cost model takes them."""
    outputs, inputs, places = c.batch, c.batch, 1
    for extent, kernel in zip(c.extents, c.kernel, strict=True):
        inputs *= extent
        if c.transposed:
            outputs *= (extent - 1) * c.stride - 2 * c.padding + c.dilation * (kernel - 1) + 1
            places *= -(-kernel // c.stride)
        else:
            outputs *= (extent + 2 * c.padding - c.dilation * (kernel - 1) - 1) // c.stride + 1
            places *= kernel
    return cost.ConvolutionSizes(c.outer // c.groups, c.inner // c.groups, c.groups, places, outputs, inputs)


def cases() -> list[Swept]:
    """Returns the float32 cases, small ones first."""
    found = [Swept(p) for p in products.cases() if p.dtype == "float32" and not p.sliced and p.m < 8192]
    return found + [Swept(c) for c in convolutions.cases()]


def measured(swept: Swept, clock: GpuClock, seconds: float) -> dict[str, Any]:
    """Returns the estimated and the measured microseconds of a case's ways."""
    import torch

    reference = _namespace(swept.of.source())
    torch.manual_seed(SEED)
    inputs = [x.cuda() for x in reference["get_inputs"]()]
    calls = {}
    for way, text in swept.answers().items():
        model = loaded(text, "swept")(*reference["get_init_inputs"]()).cuda()
        calls[way] = lambda model=model: model(*inputs)
    with torch.no_grad():
        times = {way: 1e3 * ms for way, ms in medians(clock.interleaved(calls, seconds)).items()}
    estimates = swept.estimates()
    known = {way: estimates[way] for way in times if way in estimates}
    taken = min(known, key=known.__getitem__)
    return {
        "us": times,
        "ms": {"ours": times[taken] / 1e3},
        "estimated_us": known,
        "taken": taken,
        "regret": times[taken] / min(times.values()),
    }


def _namespace(source: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    exec(compile(source, "<task>", "exec"), found)
    return found


def main() -> int:
    asked = parser(__doc__, "cost_model.json").parse_args()
    results = begun(asked, "cost_model", ("case",))
    if asked.check:
        return checked({p.name: p.source() for p in products.small()[:1]}, results)
    return measure(asked, results, cases(), measured)


if __name__ == "__main__":
    raise SystemExit(main())
