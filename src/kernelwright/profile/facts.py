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


class LineCounts(Record):
    """The instructions that one source line executes in a call, counted on the functional machine."""

    line: int | None
    """The line of the candidate's file; None where it is unknown."""
    issued: int
    """Warp instructions."""
    threads: int
    """Thread instructions: those of active lanes."""
    doubles: int = 0
    special: int = 0
    barriers: int = 0
    """Warp instructions in double precision; divisions, roots and transcendental functions; barriers."""


class SiteCounts(Record):
    """The accesses of one source line to one allocation in a call, counted on the functional machine."""

    kind: str
    """A memory and an access: `global_load`, `global_atomic`, `shared_store`, `local_load`, …"""
    line: int | None
    allocation: str = ""
    allocation_bytes: int = 0
    accesses: int
    """Warp instructions."""
    actual: int
    """Sectors of 32 bytes of global memory, or wavefronts of shared memory."""
    ideal: int
    """The fewest that could carry the same bytes."""
    bytes: int = 0
    """Bytes of all lanes; 0 for shared memory."""


class KernelWork(Record):
    """All launches of one kernel in a call, counted on the functional machine and scaled to all blocks."""

    launches: int = 0
    blocks: int = 0
    warps: int = 0
    issued: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    """Distinct bytes of global memory that each launch reads and writes, summed over launches."""
    bytes_handed: int = 0
    """Those of `bytes_read` that an earlier launch of the call has written."""
    lines: tuple[LineCounts, ...] = ()
    sites: tuple[SiteCounts, ...] = ()


WasteKind = Literal[
    "global_load",
    "global_store",
    "bank_conflicts",
    "rereads",
    "divergence",
    "double",
    "special",
    "local",
    "atomics",
    "barriers",
    "narrow",
    "occupancy",
    "parallelism",
    "launches",
    "copies",
]


class Waste(Record):
    """One avoidable cost of a call, as estimated from counts."""

    kind: WasteKind
    kernel: str = ""
    """Empty for a waste of the whole call."""
    line: int | None = None
    saved: float
    """The share of the call's estimated time that its removal saves."""
    text: str


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
    work: KernelWork | None = None
    """Counts of the functional machine, where no GPU has counted."""


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
    wastes: tuple[Waste, ...] = ()
    """What could be saved, most first; from the counts of the functional machine."""
    advice: tuple[str, ...] = ()
    seconds: float = 0.0
