"""What a runner may say: each answer of the untrusted child is read through these models before the judge uses it.

A candidate can write into its runner's channel, so an answer may be of the wrong kind, lack fields, or hold values of
any type and size. What is read here has the right types and bounded sizes; whether it is true is for others to doubt.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError


def _encodable(value: Any) -> Any:
    """Lone surrogates, which a candidate may print or raise, become `?`."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


_Count = Annotated[int, Field(ge=0, le=2**62)]
_Text = Annotated[str, BeforeValidator(_encodable), Field(max_length=1 << 16)]
_Names = Annotated[list[_Text], Field(max_length=1000)]
_Sized = Annotated[list[tuple[_Text, _Count]], Field(max_length=1000)]
_Source = Annotated[str, BeforeValidator(_encodable), Field(max_length=16 << 20)]
_SourceNames = Annotated[tuple[_Text, ...], Field(max_length=1000)]


class Unsound(Exception):
    """An answer that no runner gives by itself."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


class _Hotspot(_Model):
    kind: Literal["global_load", "global_store", "shared_load", "shared_store"]
    line: _Count
    accesses: _Count
    actual: _Count
    ideal: _Count


class _Touched(_Model):
    name: _Text
    bytes: _Count
    read: _Count
    written: _Count


class _Launch(_Model):
    kernel: _Text = "?"
    count: _Count = 1
    instructions: _Count = 0
    counters: dict[_Text, _Count] = Field(default_factory=dict, max_length=100)
    grid: tuple[_Count, _Count, _Count] | None = None
    block: tuple[_Count, _Count, _Count] | None = None
    shared_bytes: _Count = 0
    watched: _Count = 0
    hotspots: list[_Hotspot] = Field(default_factory=list, max_length=1000)
    memory: list[_Touched] = Field(default_factory=list, max_length=10_000)


class _CallFacts(_Model):
    launches: list[_Launch] = Field(default_factory=list, max_length=1000)
    own_calls: _Count = 0
    written: dict[_Text, _Count] = Field(default_factory=dict, max_length=100_000)


class _Observed(_Model):
    rule: _Text = "machine"
    evidence: _Text = ""
    severity: _Text = "warning"
    kernel: _Text = ""
    line: int | None = None
    file: _Text = ""


class _CompileError(_Model):
    """A compilation that failed in the runner."""

    type: _Text
    log: _Text
    message: _Text
    source: _Source = ""
    line: int | None = None


class _State(_Model):
    """What every answer carries."""

    unsupported: _Names = []
    findings: list[_Observed] = Field(default_factory=list, max_length=1000)
    compile_errors: list[_CompileError] = Field(default_factory=list, max_length=100)
    missing_libraries: _Names = []
    library_ops: _Sized = []
    prints: _Text = ""
    snooped: _Names = []
    patched: _Names = []


class _Loaded(_State):
    kind: Literal["loaded"]


class _Made(_State):
    kind: Literal["made"]
    weights: Literal["none", "names", "order", "seed"]


class _Called(_State):
    kind: Literal["called"]
    facts: _CallFacts
    operators: _Sized
    pieces: _Sized = []
    strangers: _Count = 0
    idle: bool = False
    host_access: _Count = 0
    foreign: list[tuple[_Count, _Count]] = Field(default_factory=list, max_length=1000)
    mutated: list[_Count] = Field(max_length=1000)
    problems: list[tuple[_Text, _Text]] = Field(max_length=100_000)


class _Exchanged(_State):
    kind: Literal["exchanged"]


class _Times(_Model):
    device_ms: Annotated[float, Field(ge=0, le=1e9)]
    issue_ms: Annotated[float, Field(ge=0, le=1e9)]
    slack_ms: float
    hidden: bool


class _Ran(_State):
    """Full-size calls: facts, times and shapes; the outputs are in the shared block."""

    kind: Literal["ran"]
    facts: _CallFacts
    times: _Times
    copies: _Times
    kernels: list[tuple[_Text, _Count, float]] = Field(max_length=1000)
    outputs: list[tuple[_Text, list[_Count]]] = Field(max_length=1000)
    operators: _Sized
    pieces: _Sized = []
    strangers: _Count = 0
    host_access: _Count = 0
    foreign: list[tuple[_Count, _Count]] = Field(default_factory=list, max_length=1000)
    mutated: list[_Count] = Field(max_length=1000)
    problems: list[tuple[_Text, _Text]] = Field(max_length=100_000)
    same_memory: bool = False
    busy_ms: Annotated[float, Field(ge=0, le=1e9)] = 0.0
    span_ms: Annotated[float, Field(ge=0, le=1e9)] = 0.0
    clock: bool = True
    no_graph: _Text = ""


_Triple = tuple[_Count, _Count, _Count]
_Hex = Annotated[str, Field(pattern=r"^(?:[0-9a-f]{2})*$", max_length=8192)]


class _TracedLaunch(_Model):
    code: _Text
    entry: _Text
    grid: _Triple
    block: _Triple
    shared_bytes: _Count
    args: Annotated[list[_Hex], Field(max_length=1000)]
    places: Annotated[list[tuple[_Count, _Count, _Count, _Count]], Field(max_length=1000)]


_View = tuple[_Count, _Text, list[_Count], list[_Count], _Count]


class _Move(_Model):
    after: _Count
    to: _View
    source: _View | float


class _Traced(_State):
    """The launches of a call: a claim, which what they compute bears out or not."""

    kind: Literal["traced"]
    launches: Annotated[list[_TracedLaunch], Field(min_length=1, max_length=1000)]
    moves: Annotated[list[_Move], Field(max_length=1000)]
    outputs: Annotated[list[_View], Field(max_length=1000)]
    buffers: Annotated[list[tuple[Literal["input", "weight", "made"], _Count, _Count]], Field(max_length=10_000)]
    sent: Annotated[list[_Count], Field(max_length=10_000)]


class _StrictTrial(_Model):
    passed: bool
    max_abs_error: Annotated[float, Field(ge=0)] | None
    tolerance: Annotated[float, Field(ge=0, le=1e6)]
    reason: _Text = ""


_Milliseconds = Annotated[list[Annotated[float, Field(ge=0, le=1e9)]], Field(max_length=1000)]


class _Strict(_State):
    """A step of KernelBench's protocol; all of it is the candidate's claim."""

    kind: Literal["strict"]
    problem: _Text = ""
    trials: list[_StrictTrial] = Field(default_factory=list, max_length=100)
    shapes: list[list[_Count]] = Field(default_factory=list, max_length=1000)
    dtypes: _Names = []
    candidate_ms: _Milliseconds = []
    reference_ms: _Milliseconds = []


class _Failed(_State):
    kind: Literal["failed"]
    type: _Text
    message: _Text
    line: int | None = None
    traceback: _Text = ""


class _Request(_Model):
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


_ANSWERS: dict[str, type[_State]] = {
    "load": _Loaded,
    "model": _Made,
    "call": _Called,
    "exchange": _Exchanged,
    "run": _Ran,
    "strict": _Strict,
    "trace": _Traced,
}


def read(asked: str, header: dict[str, Any]) -> dict[str, Any]:
    """The answer to a message of kind `asked`, with sound types; raises `Unsound`."""
    model = _Failed if header.get("kind") == "failed" else _ANSWERS[asked]
    return _validated(model, header)


def build_request(header: dict[str, Any]) -> dict[str, Any]:
    """The request in a `build` message, with sound types; raises `Unsound`."""
    return _validated(_Request, header.get("request"))


def _validated(model: type[_Model], value: Any) -> dict[str, Any]:
    try:
        return model.model_validate(value).model_dump()
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "all of it"
        raise Unsound(f"{where}: {first['msg']}"[:300]) from None
