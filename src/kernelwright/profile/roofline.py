"""Which resource a kernel's time is spent on, and the time below which no kernel can be: pure arithmetic.

The roofline (Williams, Waterman, Patterson, 2009) with one roof a resource, and the card's own ceilings. A kernel that
is far under every roof is bound by latency: too little in flight, too few warps, or waiting for one another.
"""

from __future__ import annotations

from kernelwright.profile.ceilings import Ceilings
from kernelwright.profile.facts import Bound, KernelProfile, Roofline

BUSY = 0.6
"""Share of a roof from which a kernel counts as bound by it (KernelAgent's threshold)."""
LAUNCH_FACTOR = 3.0
"""A kernel this many launch latencies long, or shorter, is bound by being launched unless it reaches a roof."""


def floor_ms(nbytes: float, flops: float, dtype: str, ceilings: Ceilings) -> float:
    """Milliseconds below which work of so many bytes of device memory and operations cannot be done on this card.

    float32 work is held to the rate of tf32, which an honest candidate may use. Whoever rejects by this floor passes
    only bytes that cannot lie in L2 and operations that no algorithm saves, and leaves a margin: measured ceilings are
    what one program reached.
    """
    rate = ceilings.rate(dtype)
    if dtype == "float32":
        rate = max(rate, ceilings.flops.get("tf32", 0.0))
    return max(nbytes / ceilings.dram_bytes, flops / rate) * 1e3


def classify(
    nbytes: float, flops: float, time_ms: float, dtype: str, ceilings: Ceilings, l2_share: float = 0.0
) -> Roofline:
    """The class of work that took `time_ms`; `l2_share` (0 to 1) where counters know how busy L2 was."""
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
    """The class of a kernel by its hardware counters (per launch); None where the ones that are needed are missing.

    Operations on tensor cores are not counted in operations: their roof is the share of cycles that they are busy.
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
