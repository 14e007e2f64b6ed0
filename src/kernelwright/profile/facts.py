"""The records of a profile: frozen and validated like `records`, with every unit in the name or beside it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kernelwright.records import Record

Rung = Literal["ncu", "trace", "static"]
Bound = Literal["memory", "l2", "compute", "latency", "launch", "unknown"]
"""What a kernel's time is spent on: bytes of device memory, bytes of L2, arithmetic, waiting with neither busy, or
being started."""


class Resources(Record):
    """What the compiler gave one kernel, read from its machine code."""

    kernel: str
    """The name as it stands in the cubin."""
    arch: int
    """Compute capability times ten: 90 for sm_90 and sm_90a."""
    registers: int
    """Per thread."""
    shared_bytes: int = 0
    """Static shared memory a block, without what the driver reserves."""
    stack_bytes: int = 0
    """Local memory a thread: arrays that are indexed at run time, and spilled registers."""
    constant_bytes: int = 0
    """Bank 0, which holds the parameters."""
    max_threads: int | None = None
    """Threads a block at most, where `__launch_bounds__` says so."""
    instructions: int = 0
    """Machine instructions without padding."""
    mix: dict[str, int] = Field(default_factory=dict)
    """Instructions in the text by kind (`global_load`, `tensor`, …); loops count once."""
    load_bytes: float | None = None
    """Mean width of the global loads in the text, bytes a thread."""


class Occupancy(Record):
    """How many warps of one kernel fit on a multiprocessor."""

    threads: int
    """Threads a block."""
    blocks: int
    """Blocks that fit on one multiprocessor; 0 when one does not."""
    warps: int
    fraction: float
    """Resident warps over those that the multiprocessor can hold."""
    limiter: Literal["registers", "shared memory", "warps", "blocks", "block size"]


class Roofline(Record):
    """How a measured time compares with what the card could do."""

    bound: Bound
    time_ms: float
    floor_ms: float
    """The least time for these bytes and operations on this card."""
    bytes: int = 0
    flops: int = 0
    dtype: str = "float32"
    bandwidth_share: float = 0.0
    """Achieved over attainable bytes a second."""
    compute_share: float = 0.0
    source: Literal["ncu", "task"] = "task"
    """Whether bytes and operations were counted by the hardware or are the task's own least."""


class KernelProfile(Record):
    """One kernel: fields that no rung filled are None."""

    name: str
    origin: str = "candidate"
    """Whose it is: `candidate`, `torch`, `cublas`, `cudnn`, `cutlass`, `triton`, `cub`, `memory`, `other`."""
    launches: int = 0
    """In one forward call."""
    time_us: float | None = None
    """Device time of these launches together, microseconds."""
    share: float | None = None
    """Of the device time of all kernels."""
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    resources: Resources | None = None
    occupancy: Occupancy | None = None
    metrics: dict[str, float] = Field(default_factory=dict)
    """Hardware counters by the short names of `ncu.METRICS`."""
    roofline: Roofline | None = None


class TraceFacts(Record):
    """One forward call as CUPTI saw it, the mean of `calls`. Milliseconds."""

    calls: int
    device_ms: float
    """Sum over kernels and copies."""
    span_ms: float
    """First start to last end, over all streams."""
    gap_ms: float
    """Time within the span in which nothing ran on the device."""
    copy_ms: float = 0.0
    """Copies and fills."""
    launches: float = 0.0
    own_share: float | None = None
    """Device time of the candidate's own kernels over that of all kernels."""


class Missed(Record):
    """A rung that was not reached, and why."""

    rung: Rung
    reason: str
    """Begins with a name in kebab-case, e.g. `no-permission: …`."""


class Profile(Record):
    """What is known about a candidate's speed."""

    task_id: str
    task_hash: str
    candidate_id: str
    rung: Rung
    missed: tuple[Missed, ...] = ()
    card: str = ""
    """The GPU's name; empty where none was used."""
    arch: str = ""
    """What the machine code was made for, e.g. `sm_90a`."""
    size: str = ""
    """Name of the workload that was run or meant."""
    kernels: tuple[KernelProfile, ...] = ()
    trace: TraceFacts | None = None
    roofline: Roofline | None = None
    """Of the whole forward call."""
    ceilings: str = ""
    """`measured` or `datasheet`: what the roofline compares with; empty without one."""
    notes: tuple[str, ...] = ()
    """What a reader must know about these numbers."""
    advice: tuple[str, ...] = ()
    seconds: float = 0.0
