"""The records of a profile: frozen and validated like `records`, with units in the name or docstring."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kernelwright.records import Record

Rung = Literal["ncu", "trace", "static"]
Bound = Literal["memory", "l2", "compute", "latency", "launch", "unknown"]
"""The resource that bounds a kernel's time: device memory bandwidth, L2 bandwidth, arithmetic, latency, or launch
overhead."""


class Resources(Record):
    """A kernel's resources as allocated by the compiler, read from its machine code."""

    kernel: str
    """The mangled name in the cubin."""
    arch: int
    """Compute capability times ten: 90 for sm_90 and sm_90a."""
    registers: int
    """Per thread."""
    shared_bytes: int = 0
    """Static shared memory per block, without the driver's reservation."""
    stack_bytes: int = 0
    """Local memory per thread: dynamically indexed arrays and spilled registers."""
    constant_bytes: int = 0
    """Size of constant bank 0, which holds the parameters."""
    max_threads: int | None = None
    """The bound on threads per block from `__launch_bounds__`, if given."""
    instructions: int = 0
    """Machine instructions without padding."""
    mix: dict[str, int] = Field(default_factory=dict)
    """Static instruction counts by kind (`global_load`, `tensor`, …); loop bodies count once."""
    load_bytes: float | None = None
    """Mean width of global load instructions, bytes per thread."""


class Occupancy(Record):
    """Occupancy: the warps of one kernel that fit on a multiprocessor."""

    threads: int
    """Threads per block."""
    blocks: int
    """Blocks that fit on one multiprocessor; 0 when not even one fits."""
    warps: int
    fraction: float
    """Resident warps over the multiprocessor's maximum."""
    limiter: Literal["registers", "shared memory", "warps", "blocks", "block size"]


class Roofline(Record):
    """A measured time compared with the card's ceilings."""

    bound: Bound
    time_ms: float
    floor_ms: float
    """The physical floor: the least time for these bytes and operations on this card."""
    bytes: int = 0
    flops: int = 0
    dtype: str = "float32"
    bandwidth_share: float = 0.0
    """Achieved over attainable bytes per second."""
    compute_share: float = 0.0
    source: Literal["ncu", "task"] = "task"
    """The source of bytes and operations: hardware counters, or the task's minimum."""


class KernelProfile(Record):
    """One kernel. Fields that the rung could not fill are None."""

    name: str
    origin: str = "candidate"
    """The kernel's origin: `candidate`, `torch`, `cublas`, `cudnn`, `cutlass`, `triton`, `cub`, `memory`, `other`."""
    launches: int = 0
    """Launches in one forward call."""
    time_us: float | None = None
    """Total device time of these launches, microseconds."""
    share: float | None = None
    """Share of the device time of all kernels."""
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    resources: Resources | None = None
    occupancy: Occupancy | None = None
    metrics: dict[str, float] = Field(default_factory=dict)
    """Hardware counters, keyed by the short names of `ncu.METRICS`."""
    roofline: Roofline | None = None


class TraceFacts(Record):
    """One forward call as recorded by CUPTI, averaged over `calls`, in milliseconds."""

    calls: int
    device_ms: float
    """Device time summed over kernels and copies."""
    span_ms: float
    """Time from the first start to the last end, over all streams."""
    gap_ms: float
    """Idle device time within the span."""
    copy_ms: float = 0.0
    """Device time of copies and fills."""
    launches: float = 0.0
    own_share: float | None = None
    """Share of the candidate's own kernels in the device time of all kernels."""


class Missed(Record):
    """A rung that was not reached, with the reason."""

    rung: Rung
    reason: str
    """The reason; begins with a name in kebab-case, e.g. `no-permission: …`."""


class Profile(Record):
    """A candidate's performance profile."""

    task_id: str
    task_hash: str
    candidate_id: str
    rung: Rung
    missed: tuple[Missed, ...] = ()
    card: str = ""
    """The GPU's name; empty if none was used."""
    arch: str = ""
    """The target of the machine code, e.g. `sm_90a`."""
    size: str = ""
    """Name of the profiled workload."""
    kernels: tuple[KernelProfile, ...] = ()
    trace: TraceFacts | None = None
    roofline: Roofline | None = None
    """The roofline of the whole forward call."""
    ceilings: str = ""
    """The source of the roofline's ceilings, `measured` or `datasheet`; empty without a roofline."""
    notes: tuple[str, ...] = ()
    """Caveats about the numbers."""
    advice: tuple[str, ...] = ()
    seconds: float = 0.0
