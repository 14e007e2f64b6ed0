"""Classifies a kernel by its bounding resource and computes the physical floor of its time.

The roofline model (Williams, Waterman, Patterson, 2009), with one roof per resource and the card's own ceilings. A
kernel far below every roof is bound by latency: too few requests in flight, too few warps, or synchronisation.
"""

from __future__ import annotations

from kernelwright.profile.ceilings import Ceilings
from kernelwright.profile.facts import Bound, KernelProfile, Roofline

BUSY = 0.6
"""The share of a roof at which a kernel counts as bound by it (KernelAgent's threshold)."""
LAUNCH_FACTOR = 3.0
"""A kernel of at most this many launch latencies is launch-bound unless it reaches a roof."""


def floor_ms(nbytes: float, flops: float, dtype: str, ceilings: Ceilings) -> float:
    """Returns the least milliseconds for `nbytes` bytes of device memory traffic and `flops` operations on this card.

    float32 work uses the tf32 rate, since an honest candidate may use tf32. A caller that rejects by this floor must
    pass only bytes that cannot come from L2 and operations that no algorithm avoids, and must leave a margin: a
    measured ceiling is only what one program reached.
    """
    rate = ceilings.rate(dtype)
    if dtype == "float32":
        rate = max(rate, ceilings.flops.get("tf32", 0.0))
    return max(nbytes / ceilings.dram_bytes, flops / rate) * 1e3


def classify(
    nbytes: float, flops: float, time_ms: float, dtype: str, ceilings: Ceilings, l2_share: float = 0.0
) -> Roofline:
    """Classifies work that took `time_ms`; `l2_share` (0 to 1) is the L2 utilisation, if counters give it."""
    seconds = time_ms / 1e3
    bandwidth = nbytes / seconds / ceilings.dram_bytes if seconds > 0 else 0.0
    compute = flops / seconds / ceilings.rate(dtype) if seconds > 0 else 0.0
    return Roofline(
        bound=_bound(bandwidth, compute, l2_share, time_ms, ceilings),
        time_ms=time_ms,
        floor_ms=floor_ms(nbytes, flops, dtype, ceilings),
        bytes=int(nbytes),
        flops=int(flops),
        dtype=dtype,
        bandwidth_share=bandwidth,
        compute_share=compute,
    )


def _bound(bandwidth: float, compute: float, l2: float, time_ms: float, ceilings: Ceilings) -> Bound:
    if time_ms <= 0:
        return "unknown"
    best = max(bandwidth, compute, l2)
    if best < BUSY:
        return "launch" if time_ms * 1e3 <= LAUNCH_FACTOR * ceilings.launch_us else "latency"
    if best == compute:
        return "compute"
    return "memory" if best == bandwidth else "l2"


def of_counters(kernel: KernelProfile, ceilings: Ceilings) -> Roofline | None:
    """Classifies a kernel by its hardware counters, per launch; None if required counters are missing.

    Tensor-core work has no operation count: its roof is the share of busy tensor-core cycles.
    """
    values = kernel.metrics
    if kernel.time_us is None or not {"dram_read", "dram_write"} <= values.keys():
        return None
    count = max(1, kernel.launches)
    flops = values.get("fadd", 0.0) + values.get("fmul", 0.0) + 2 * values.get("ffma", 0.0)
    nbytes = (values["dram_read"] + values["dram_write"]) / count
    time_ms = kernel.time_us / count / 1e3
    found = classify(nbytes, flops / count, time_ms, "float32", ceilings, values.get("l2_share", 0.0) / 100)
    tensor = values.get("tensor_share", 0.0) / 100
    update: dict[str, object] = {"source": "ncu"}
    if tensor > found.compute_share:
        bound = _bound(found.bandwidth_share, tensor, values.get("l2_share", 0.0) / 100, time_ms, ceilings)
        update |= {"bound": bound, "compute_share": tensor, "dtype": "tensor"}
    return found.model_copy(update=update)
