"""Models of a runner's answers, which validate each answer of the untrusted child for the judge.

A candidate can write into its runner's channel, so an answer may be of the wrong kind, lack fields, or hold values of
any type and size. A validated answer has the right types and bounded sizes. Its content is still a claim, which the
judge must check.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError


def _encodable(value: Any) -> Any:
    """Replaces lone surrogates, which a candidate may print or raise, by `?`."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


_Count = Annotated[int, Field(ge=0, le=2**62)]
_Text = Annotated[str, BeforeValidator(_encodable), Field(max_length=1 << 16)]
_Names = Annotated[list[_Text], Field(max_length=1000)]
_Sized = Annotated[list[tuple[_Text, _Count]], Field(max_length=1000)]
_Source = Annotated[str, BeforeValidator(_encodable), Field(max_length=16 << 20)]
_SourceNames = Annotated[tuple[_Text, ...], Field(max_length=1000)]


class Unsound(Exception):
    """Raised for an answer that a runner never gives by itself."""


class _Facts(BaseModel):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


class HotspotFacts(_Facts):
    kind: Literal["global_load", "global_store", "shared_load", "shared_store"]
    line: _Count
    accesses: _Count
    actual: _Count
    ideal: _Count


class TouchedFacts(_Facts):
    name: _Text
    bytes: _Count
    read: _Count
    written: _Count


class LineFacts(_Facts):
    line: _Count
    issued: _Count
    threads: _Count
    doubles: _Count = 0
    special: _Count = 0
    barriers: _Count = 0


class SiteFacts(_Facts):
    kind: _Text
    line: _Count
    allocation: _Text = ""
    allocation_bytes: _Count = 0
    accesses: _Count
    actual: _Count
    ideal: _Count
    bytes: _Count


class LaunchFacts(_Facts):
    kernel: _Text = "?"
    count: _Count = 1
    instructions: _Count = 0
    counters: dict[_Text, _Count] = Field(default_factory=dict, max_length=100)
    grid: tuple[_Count, _Count, _Count] | None = None
    block: tuple[_Count, _Count, _Count] | None = None
    shared_bytes: _Count = 0
    watched: _Count = 0
    hotspots: list[HotspotFacts] = Field(default_factory=list, max_length=1000)
    memory: list[TouchedFacts] = Field(default_factory=list, max_length=10_000)
    lines: list[LineFacts] = Field(default_factory=list, max_length=1000)
    sites: list[SiteFacts] = Field(default_factory=list, max_length=1000)


class CallLaunches(_Facts):
    launches: list[LaunchFacts] = Field(default_factory=list, max_length=1000)
    own_calls: _Count = 0
    written: dict[_Text, _Count] = Field(default_factory=dict, max_length=100_000)


class MachineFinding(_Facts):
    rule: _Text = "machine"
    evidence: _Text = ""
    severity: _Text = "warning"
    kernel: _Text = ""
    line: int | None = None
    file: _Text = ""


class CompileFailure(_Facts):
    """A compilation that failed in the runner."""

    type: _Text
    log: _Text
    message: _Text
    source: _Source = ""
    line: int | None = None


class AnswerState(_Facts):
    """The fields of every answer."""

    unsupported: _Names = []
    findings: list[MachineFinding] = Field(default_factory=list, max_length=1000)
    compile_errors: list[CompileFailure] = Field(default_factory=list, max_length=100)
    missing_libraries: _Names = []
    library_ops: _Sized = []
    prints: _Text = ""
    snooped: list[tuple[Literal["frame-walk", "harness-access"], _Text]] = Field(default_factory=list, max_length=1000)
    patched: _Names = []


class Loaded(AnswerState):
    kind: Literal["loaded"]


class Made(AnswerState):
    kind: Literal["made"]
    weights: Literal["none", "names", "order", "seed"]


_Address = Annotated[int, Field(ge=0, lt=2**48)]
_Sizes = Annotated[list[_Count], Field(max_length=64)]
Place = tuple[_Address, _Text, _Sizes, _Sizes, _Count, _Count]
"""A tensor in device memory: address, dtype, sizes, strides, offset in elements, bits for lazy views."""
_Places = Annotated[list[Place], Field(max_length=10_000)]


class Matched(AnswerState):
    """The answer of a runner with handles to `model`: how weights are to be set, their places, and those of copies."""

    kind: Literal["made"]
    weights: Literal["none", "names", "order", "seed"]
    places: _Places
    own: _Places


class Returned(AnswerState):
    """The answer of a runner with handles to `call`: the places of the outputs. An output without a place is in host
    memory, and among the message's tensors."""

    kind: Literal["called"]
    outputs: Annotated[list[Place | None], Field(max_length=1000)]
    problems: list[tuple[_Text, _Text]] = Field(max_length=100_000)


class CallState(AnswerState):
    """The fields of answers to calls, at any size."""

    facts: CallLaunches
    operators: _Sized
    pieces: _Sized = []
    operators_run: _Sized = []
    strangers: _Count = 0
    idle: bool = False
    foreign: list[tuple[_Count, _Count]] = Field(default_factory=list, max_length=1000)
    mutated: list[_Count] = Field(max_length=1000)
    problems: list[tuple[_Text, _Text]] = Field(max_length=100_000)
    stored_share: Annotated[float, Field(ge=0)] | None = None
    """The share that the bytes stored by a sampled call's kernels, extrapolated, are of its outputs' bytes. None where
    that cannot be told."""
    origins: list[dict[_Text, _Count]] | None = None
    """Elements of each output by who made them, where a device process knows."""
    downloaded: _Count = 0
    uploaded: _Count = 0
    records: _Count = 0
    moved_bytes: _Count = 0
    """Bytes that operators have moved, as far as a device process has kept copies."""


class Called(CallState):
    """The answer to a call whose inputs and outputs travel as bytes; its outputs are the message's tensors."""

    kind: Literal["called"]


class DeviceReport(AnswerState):
    """An answer of a device process: the places of inputs, or the facts of a call."""

    kind: Literal["device"] = "device"
    problem: _Text = ""
    """The reason why it cannot answer; a fault of the candidate."""
    error: _Text = ""
    """The first fault of the call, as a GPU's message."""
    refused: _Names = []
    stored_share: Annotated[float, Field(ge=0)] | None = None
    undecided: bool = False
    """True if the candidate asked for a value that is not known at a sampled size."""
    places: _Places = []
    rooms: Annotated[list[_Count], Field(max_length=10_000)] = []
    """The bytes of the block in which each input lies."""
    facts: CallLaunches = CallLaunches()
    operators: _Sized = []
    pieces: _Sized = []
    operators_run: _Sized = []
    strangers: _Count = 0
    served: bool = False
    """True if the outputs are a few values, and the host has read a few, some of which kernels had stored."""
    mutated: list[_Count] = []
    origins: list[dict[_Text, _Count]] = []
    downloaded: _Count = 0
    uploaded: _Count = 0
    records: _Count = 0
    moved_bytes: _Count = 0
    kept: tuple[_Count, _Count, _Count] = (0, 0, 0)
    """The lengths of the lists of copies in an answer to `moved`."""
    kept_full: bool = False
    keeps: bool = False
    """In an answer to `weights`: the model has memory of its own that calls have written."""


class Exchanged(AnswerState):
    kind: Literal["exchanged"]


class CallTimes(_Facts):
    device_ms: Annotated[float, Field(ge=0, le=1e9)]
    issue_ms: Annotated[float, Field(ge=0, le=1e9)]
    slack_ms: float
    hidden: bool


class Ran(CallState):
    """The answer to full-size calls: facts, times and shapes. The outputs are in the shared block."""

    kind: Literal["ran"]
    times: CallTimes
    copies: CallTimes
    kernels: list[tuple[_Text, _Count, float]] = Field(max_length=1000)
    outputs: list[tuple[_Text, list[_Count]]] = Field(max_length=1000)
    same_memory: bool = False
    busy_ms: Annotated[float, Field(ge=0, le=1e9)] = 0.0
    span_ms: Annotated[float, Field(ge=0, le=1e9)] = 0.0
    clock: bool = True
    no_graph: _Text = ""


_Triple = tuple[_Count, _Count, _Count]
_Hex = Annotated[str, Field(pattern=r"^(?:[0-9a-f]{2})*$", max_length=1 << 17)]
Spot = tuple[_Count, _Count]
"""A place in memory: the number of a block, and bytes from its beginning."""
View = tuple[_Count, _Text, _Sizes, _Sizes, _Count, _Count, _Count]
"""A tensor in a block: the block's number, dtype, sizes, strides, offset in elements, bits for lazy views, and bytes
from the block's beginning to the storage's."""
_Pointers = Annotated[list[tuple[_Count, _Count, _Count]], Field(max_length=10_000)]
"""Addresses among bytes: the offset of each, the block that it points into, and the bytes from its beginning."""


class AllocateStep(_Facts):
    kind: Literal["allocate"] = "allocate"
    block: _Count


class FreeStep(_Facts):
    kind: Literal["free"] = "free"
    block: _Count


class FillStep(_Facts):
    kind: Literal["fill"] = "fill"
    to: Spot
    value: Annotated[int, Field(ge=0, le=255)]
    nbytes: _Count


class CopyStep(_Facts):
    kind: Literal["copy"] = "copy"
    to: Spot
    source: Spot
    nbytes: _Count


class UploadStep(_Facts):
    """Bytes of the host; `part` is their number among the message's tensors."""

    kind: Literal["upload"] = "upload"
    to: Spot
    part: _Count
    pointers: _Pointers = []


class OperatorStep(_Facts):
    """An operator of torch. In `arguments`, encoded as in `program.forms`, places are `View`s; `parts` are the numbers
    of its host tensors' bytes."""

    kind: Literal["operator"] = "operator"
    name: _Text
    arguments: tuple[list[Any], dict[str, Any]]
    results: Annotated[list[View | None], Field(max_length=1000)]
    parts: Annotated[list[_Count], Field(max_length=4096)] = []


class LaunchStep(_Facts):
    """A launch. `pointers` has (parameter, offset in it, block, bytes from the block's beginning)."""

    kind: Literal["launch"] = "launch"
    module: _Text
    entry: _Text
    grid: _Triple
    block: _Triple
    shared_bytes: _Count
    args: Annotated[list[_Hex], Field(max_length=4096)]
    pointers: Annotated[list[tuple[_Count, _Count, _Count, _Count]], Field(max_length=10_000)]
    own_shared: bool = True
    cooperative: bool = False
    cluster: _Triple | None = None


class SeedStep(_Facts):
    kind: Literal["seed"] = "seed"
    seed: Annotated[int, Field(ge=0, lt=2**63)]


class WaitStep(_Facts):
    """The host waits for the device."""

    kind: Literal["wait"] = "wait"


class WeightsStep(_Facts):
    """The judge writes weights to these places; `own` are tensors that may be copies of them."""

    kind: Literal["weights"] = "weights"
    places: Annotated[list[View], Field(max_length=10_000)]
    own: Annotated[list[View], Field(max_length=10_000)]


AnyStep = Annotated[
    AllocateStep
    | FreeStep
    | FillStep
    | CopyStep
    | UploadStep
    | OperatorStep
    | LaunchStep
    | SeedStep
    | WaitStep
    | WeightsStep,
    Field(discriminator="kind"),
]
BlockKind = Literal["made", "input", "variable"]


class TracedBlock(_Facts):
    """A block of memory: made by the program, an input of the call (`number`), or a variable of device code."""

    kind: BlockKind
    nbytes: _Count
    number: _Count = 0
    module: _Text = ""
    variable: _Text = ""


class Trace(_Facts):
    """The program of a candidate: `setup` has run once before its first call, `warm` is the first call on new weights,
    `call` is each further one. The setup's blocks come first, then, from `base` on, inputs and the warm calls', and
    from `kept` on the call's own. The first `setup_parts` of the message's tensors are the setup's."""

    blocks: Annotated[list[TracedBlock], Field(max_length=100_000)] = []
    base: _Count = 0
    kept: _Count = 0
    setup_parts: _Count = 0
    setup: Annotated[list[AnyStep], Field(max_length=100_000)] = []
    warm: Annotated[list[AnyStep], Field(max_length=10_000)] = []
    call: Annotated[list[AnyStep], Field(max_length=10_000)] = []
    own: Annotated[list[View], Field(max_length=10_000)] = []
    """Tensors of earlier calls that may be copies of the weights before they changed."""
    outputs: Annotated[list[View], Field(max_length=1000)] = []


class Traced(DeviceReport):
    """The answer of a tracing device to `finish`: what one call did."""

    trace: Trace = Trace()


class LiveReport(DeviceReport):
    """An answer of a live device. `outputs` are the dtypes and shapes of what a call returned."""

    arch: _Text = ""
    first_traceback: _Text = ""
    """The traceback of the first fault."""
    times: CallTimes = CallTimes(device_ms=0.0, issue_ms=0.0, slack_ms=0.0, hidden=False)
    outputs: list[tuple[_Text, list[_Count]]] = Field(default=[], max_length=1000)
    broken: bool = False
    """True if the process can serve no other candidate."""


class StrictTrial(_Facts):
    passed: bool
    max_abs_error: Annotated[float, Field(ge=0)] | None
    tolerance: Annotated[float, Field(ge=0, le=1e6)]
    reason: _Text = ""


_Milliseconds = Annotated[list[Annotated[float, Field(ge=0, le=1e9)]], Field(max_length=1000)]


class StrictStep(AnswerState):
    """A step of KernelBench's protocol; all of it is the candidate's claim."""

    kind: Literal["strict"]
    problem: _Text = ""
    trials: list[StrictTrial] = Field(default_factory=list, max_length=100)
    shapes: list[list[_Count]] = Field(default_factory=list, max_length=1000)
    dtypes: _Names = []
    candidate_ms: _Milliseconds = []
    reference_ms: _Milliseconds = []


class Raised(AnswerState):
    kind: Literal["failed"]
    type: _Text
    message: _Text
    line: int | None = None
    traceback: _Text = ""
    cause: Literal["", "device", "memory"] = ""
    """`device`: an exception of the CUDA runtime or driver; `memory`: out of memory."""


class RequestFields(_Facts):
    """The fields of `builds.BuildRequest`."""

    kind: Literal["extension", "device", "instances", "ptxas"]
    name: _Text = ""
    cuda_source: _Source = ""
    cpp_source: _Source = ""
    functions: _SourceNames = ()
    cuda_flags: _SourceNames = ()
    cpp_flags: _SourceNames = ()
    expressions: _SourceNames = ()
    arch: Annotated[str, Field(pattern=r"^(?:sm_\d{2,3}[af]?)?$")] = ""


Answer = TypeVar("Answer", bound=AnswerState)


def read(wanted: type[Answer], header: dict[str, Any]) -> Answer | Raised:
    """Returns the answer as the wanted model, or as `Raised` if the candidate failed. Raises `Unsound`."""
    if header.get("kind") == "failed":
        return _validated(Raised, header)
    return _validated(wanted, header)


def build_request(header: dict[str, Any]) -> dict[str, Any]:
    """Returns the validated fields of the request in a `build` message. Raises `Unsound`."""
    return _validated(RequestFields, header.get("request")).model_dump()


_Sound = TypeVar("_Sound", bound=_Facts)


def _validated(model: type[_Sound], value: Any) -> _Sound:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "all of it"
        raise Unsound(f"{where}: {first['msg']}"[:300]) from None
