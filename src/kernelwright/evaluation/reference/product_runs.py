"""Measures on a device the errors of a candidate and of the reference's runs with other products."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch

from kernelwright.evaluation.compare import on_device, on_host
from kernelwright.evaluation.compare.on_host import Comparison
from kernelwright.evaluation.reference import honest_runs
from kernelwright.evaluation.trials import ProductRuns, Summaries
from kernelwright.records import Precision
from kernelwright.tasks import reference_runs, rounded_products

ANY = frozenset((torch.float64, torch.float32, torch.float16, torch.bfloat16))


def summaries(
    outputs: Sequence[torch.Tensor], exact: Sequence[torch.Tensor], only: frozenset[torch.dtype] = ANY
) -> Summaries:
    """Returns the errors of outputs of `only` these dtypes, all floating ones by default; None for others."""
    return [
        on_device.summary(a, b) if a.dtype in only and a.shape == b.shape and b.numel() else None
        for a, b in zip(outputs, exact, strict=True)
    ]


def with_errors(
    results: list[Comparison], got: Sequence[torch.Tensor], exact: Sequence[torch.Tensor], own: Sequence[torch.Tensor]
) -> list[Comparison]:
    """Returns the results with the errors of each floating output beside the reference's own."""
    pairs = zip(results, summaries(got, exact), summaries(own, exact), strict=True)
    return [r if e is None else dataclasses.replace(r, errors=on_host.errors_of(e, o)) for r, e, o in pairs]


def runs(
    model: Any, inputs: Callable[[], Any], exact: Sequence[torch.Tensor], precision: Precision, call_seed: int
) -> ProductRuns:
    """Returns the runs of the reference with other products; `inputs` makes a call's inputs anew."""

    @cache
    def run(noise: int | None) -> Summaries | None:
        operands = rounded_products.nearest(honest_runs.BELOW[precision]) if noise is None else None
        made = rounded_products.outputs(model, inputs(), call_seed, operands=operands, noise_seed=noise)
        return None if made is None else summaries(made, exact)

    return ProductRuns(precision, lambda: run(None), lambda k: run((call_seed << 4) + k))


def looked_at(
    results: list[Comparison], honest: Summaries, exact: Sequence[torch.Tensor], runs: ProductRuns
) -> list[Comparison]:
    """Returns the results after a look at products; `honest` are the errors of the worst honest runs, None for outputs
    that are not float32."""
    return [
        r if h is None else on_host.looked_at_products(k, f"output {k}", r, exact[k].numel(), h[1], runs)
        for k, (r, h) in enumerate(zip(results, honest, strict=True))
    ]


@dataclasses.dataclass(frozen=True)
class HonestCall:
    """The measurements of one call of a reference, for the comparison of a candidate's outputs."""

    honest: list[torch.Tensor]
    """The outputs in the reference's own dtype, each element the worst of several honest runs."""
    low: list[float | None] | None
    """The errors at the next lower precision."""
    slack: list[float | None] | None
    """The errors of honest TF32 runs, where TF32 plays a part."""


def measured(
    model: Any,
    state: dict[str, torch.Tensor],
    values: Any,
    exact: list[torch.Tensor],
    own: list[torch.Tensor],
    precision: Precision,
    call_seed: int,
) -> HonestCall:
    """Runs the reference again in several ways on one call's inputs."""
    worse = honest_runs.worse(model, values, exact, own, precision, call_seed)
    honest = reference_runs.widen_honest(model, state, values, exact, worse or own, call_seed)
    if worse is None:
        low = reference_runs.low_precision_error(model, state, values, exact, call_seed, worst=on_device.worst)
        return HonestCall(honest, low, None)
    slack = honest_runs.largest(honest, exact, on_device.worst)
    return HonestCall(honest, honest_runs.below_tf32(model, values, exact, call_seed, on_device.worst), slack)
