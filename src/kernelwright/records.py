"""The records that the package passes around: frozen, validated, named by their content.

No torch, no I/O, no behaviour beyond hashing and JSON. A record's identity is the SHA-256 of its canonical JSON, so two
equal records have one name on every machine. `Evaluation` stores observations. Rewards, advantages and ranks are
functions elsewhere, so that they can change without judging anything again.
"""

from __future__ import annotations

import hashlib
import json
import math
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from kernelwright.record import Record as Record

Language = Literal["cuda", "triton", "cpp", "hip", "torch"]
"""The language of a candidate. `torch` marks a candidate without a kernel of its own."""

LIBRARIES = ("torch", "cublas", "cudnn", "cufft", "cusolver", "cusparse", "cub")


def _known_rule(value: str) -> str:
    kind, colon, names = value.partition(":")
    chosen = names.split(",")
    if value == "libraries_allowed":
        return "libraries"
    if value in ("from_scratch", "libraries") or (kind == "libraries" and colon and set(chosen) <= set(LIBRARIES)):
        return value
    known = ", ".join(LIBRARIES)
    raise ValueError(f"not from_scratch, libraries_allowed, or libraries:NAMES with names among {known}")


LibraryRule = Annotated[str, AfterValidator(_known_rule)]
"""The rule about libraries. `from_scratch`: a candidate must compute with kernels of its own. `libraries_allowed`,
stored as `libraries`: it may call torch, cuBLAS and the like. `libraries:cublas,cudnn`: it may call the named ones;
`torch` stands for torch's own kernels. Records and files keep the rule in a field named `policy`: its name is part of
their content hashes."""

Precision = Literal["float32", "tf32"]
"""The precision in which products of float32 operands may be computed. `float32`: with at most float32's error. `tf32`:
with TF32's, for the candidate and the baselines. Tasks in half types, or in float64, declare these by their dtypes."""

VerdictName = Literal[
    "correct", "wrong", "compile_error", "runtime_error", "timeout", "rejected", "unsupported", "harness_error"
]
VERDICTS: tuple[VerdictName, ...] = (
    "correct",
    "wrong",
    "compile_error",
    "runtime_error",
    "timeout",
    "rejected",
    "unsupported",
    "harness_error",
)

Distribution = Literal[
    "own",
    "uniform",
    "normal",
    "heavy_tail",
    "constant_rows",
    "far_below",
    "far_above",
    "tied_rows",
    "scaled_rows",
    "peaked",
    "wide",
    "shifted",
    "near_one",
]
"""A distribution of input values. The last four are only for tasks that a null kernel passes under all the others."""


class Provenance(Record):
    """The origin of a task or a candidate."""

    origin: str = ""
    """File, data set or generator, as the user named it."""
    licence: str | None = None
    """SPDX identifier of the source's licence; None where it is unknown."""
    policy: str | None = None
    """For candidates: the policy that proposed it."""
    parent: str | None = None
    """For candidates: content hash of the candidate it was derived from."""
    prompt_hash: str | None = None
    """For candidates: SHA-256 of the messages that asked for it."""
    note: str | None = None
    """A free remark in one line."""
    family: str | None = Field(default=None, exclude=True)
    """For tasks: the operator family or the level, where the source names it; no part of the task's identity."""


class Workload(Record):
    """One size at which a task is run, as overrides of the reference module's top-level constants.

    Example: `Workload(name="reduced-0", constants={"batch_size": 3}, scope="batch_reduced", elements=49152)`.
    """

    name: str
    constants: dict[str, Any] = Field(default_factory=dict)
    """Module-level constants to replace, by name; empty means the task as written."""
    scope: Literal["declared", "batch_reduced", "reduced"] = "declared"
    """`declared`: the task's own size. `batch_reduced`: only batch-like dimensions are smaller, or other dimensions too
    if they keep the declared remainders modulo a tile's size. `reduced`: odd, prime and other sizes."""
    purpose: Literal["functional", "timing"] = "functional"
    elements: int = 0
    """Elements of all inputs and outputs together (0: unknown)."""
    flops: int = 0
    """Floating-point operations of the reference; a fused multiply-add counts as two (0: unknown)."""


class Gate(Record):
    """The result of the null-kernel gate and the lint for a task (`evaluation.judge.null_kernel_gate`)."""

    protocol: int
    """The gate's protocol; a state of another protocol is not used."""
    of: str
    """Hash of the task's source, sizes and tolerance; the state holds for these alone."""
    state: Literal["sound", "hardened", "quarantined"]
    """`sound`: the usual distributions catch every null kernel. `hardened`: the judge also uses `distributions`, which
    catch the rest. `quarantined`: no distribution catches the null kernel that `reason` names."""
    reason: str = ""
    distributions: tuple[Distribution, ...] = ()
    passed: tuple[str, ...] = ()
    """Null kernels that passed, with workload and distribution, e.g. `identity-input0: declared/own`."""
    notes: tuple[str, ...] = ()
    """The lint's findings, `rule: evidence`."""
    memory_gb: float | None = None
    """Inputs, outputs and weights at the largest declared size, in 1e9 bytes; None where it is unknown."""
    seconds: float = 0.0


class Task(Record):
    """A reference to match: KernelBench's `Model`, `get_inputs`, `get_init_inputs` in one Python source."""

    task_id: str
    source: str
    """Python source of the reference module."""
    policy: LibraryRule = "from_scratch"
    """The library rule, under its stored name."""
    workloads: tuple[Workload, ...] = ()
    """Declared sizes. Empty: they are derived from the reference's constants when the task is judged."""
    tolerance: float | None = None
    """Relative tolerance to use instead of the one measured from the honest run."""
    description: str = ""
    provenance: Provenance = Provenance()
    precision: Precision = Field(default="float32", exclude_if=lambda name: name == "float32")
    """The precision in which products of float32 operands may be computed."""
    function: str = Field(default="forward", exclude_if=lambda name: name == "forward")
    """The function to call in a candidate without Python (a bare `.cu` file) that offers several."""
    gate: Gate | None = Field(default=None, exclude=True)
    """The gate's state in the task's folder; no part of the task's identity, and stored in no run."""

    @model_validator(mode="after")
    def _has_source(self) -> Self:
        if not self.source.strip():
            raise ValueError("a task needs the source of its reference")
        return self

    def at(self, precision: Precision | None) -> Task:
        """Returns the task with another precision of products; itself for None."""
        return self if precision in (None, self.precision) else self.changed(precision=precision)

    @cached_property
    def asked_hash(self) -> str:
        """SHA-256 of the task without its provenance, which changes no verdict."""
        return self.changed(provenance=Provenance()).content_hash

    @cached_property
    def problem_hash(self) -> str:
        """SHA-256 of the task without name and provenance: rows of a data set may name one problem differently."""
        return self.changed(task_id="-", provenance=Provenance()).content_hash


class SourceFile(Record):
    """One text file of a candidate."""

    path: str
    content: str


class Candidate(Record):
    """A proposed replacement of a task's `Model`: text, so that it can be stored, compared and judged again."""

    sources: tuple[SourceFile, ...]
    language: Language
    entry_point: str = "ModelNew"
    provenance: Provenance = Provenance()

    @model_validator(mode="after")
    def _has_sources(self) -> Self:
        if not self.sources:
            raise ValueError("a candidate needs at least one source file")
        return self

    @property
    def text(self) -> str:
        """The first source's text: the whole candidate, unless it has several files."""
        return self.sources[0].content

    @cached_property
    def code_hash(self) -> str:
        """SHA-256 over sources, language and entry point, without provenance, so that equal code is judged once."""
        parts = [self.language, self.entry_point] + [t for s in self.sources for t in (s.path, s.content)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


class Finding(Record):
    """One observation by a rule or by the functional machine, with its evidence."""

    rule: str
    """Name of the rule in kebab-case, e.g. `no-own-kernel`, `out-of-bounds-read`, `data-race`."""
    evidence: str
    """The observation, in words that a person or a model can act on."""
    severity: Literal["info", "warning", "reject", "fault"] = "warning"
    """`reject` turns the verdict to `rejected`; `fault` marks the cause of a `runtime_error` or `wrong`."""
    line: int | None = None
    """Line in the candidate's own source, counted from 1; None where it is unknown."""
    workload: str | None = None


class Errors(Record):
    """The largest and the root mean square error of an output against float64, over the reference's mean magnitude: the
    candidate's, and the reference's own in the precision of the run."""

    largest: float
    rms: float
    reference_largest: float | None = None
    reference_rms: float | None = None

    def told(self) -> str:
        """Describes the errors: `largest 2.1e-05, rms 1.4e-06; the reference's own 3.2e-05, 2e-06`."""
        text = f"largest {self.largest:.2g}, rms {self.rms:.2g}"
        if self.reference_largest is None or self.reference_rms is None:
            return text
        return f"{text}; the reference's own {self.reference_largest:.2g}, {self.reference_rms:.2g}"


class WorkloadResult(Record):
    """The comparison of one call of the candidate with the reference."""

    name: str
    scope: Literal["declared", "batch_reduced", "reduced"] = "declared"
    distribution: Distribution = "own"
    shape: tuple[tuple[int, ...], ...] = ()
    """Shapes of the inputs, in order."""
    dtype: tuple[str, ...] = ()
    """Dtypes of the inputs, in order."""
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    """Largest error relative to |reference| + its row's root mean square (see `evaluation.compare.on_host`)."""
    tolerance: float | None = None
    """Bound on `max_rel_error`; 0 for integer outputs."""
    honest_error: float | None = None
    """The reference's own error by the same measure, when it runs in the task's dtype."""
    forgiven: int = 0
    """Elements beyond the tolerance that the second look accepted (`evaluation.compare.second_look`)."""
    errors: Errors | None = Field(default=None, exclude_if=lambda found: found is None)
    """The errors of the output with the largest; None where no floating output was compared with float64."""
    passed: bool
    reason: str = ""
    """The reason for a failure, in one line."""


class SizeCoverage(Record):
    """Names what of one stated size of a task was compared with the reference."""

    name: str
    """The workload's name; `declared` for the size in the task's own text."""
    shape: str = ""
    """The extents of the largest input, e.g. `4x8x333x333`; empty where they are unknown."""
    values: Literal["all", "sampled", "none"] = "none"
    """`all`: every element of a whole call. `sampled`: the elements that a sample of the blocks wrote. `none`: no
    value; the rules may still have been checked on a sample of the blocks."""
    compared: int = 0
    """Elements that were compared."""
    reason: str = ""
    """Why not all values were compared."""

    def told(self) -> str:
        """Describes the coverage: `declared 4x8x333x333: values not compared (...)`."""
        size = f"{self.name} {self.shape}".strip()
        if self.values == "all":
            return f"{size}: all values compared"
        why = f" ({self.reason})" if self.reason else ""
        if self.values == "sampled":
            return f"{size}: values compared at {self.compared} elements of sampled blocks{why}"
        return f"{size}: values not compared{why}"


class Coverage(Record):
    """Names what was compared at the sizes that a task states, and the extents that were run at their full length."""

    sizes: tuple[SizeCoverage, ...] = ()
    lengths: tuple[str, ...] = ()
    """The names of passed workloads that have a dimension at its declared length and others reduced."""

    @property
    def values(self) -> Literal["all", "sampled", "none"]:
        """Returns the least of the stated sizes' coverage; `none` if no size is stated."""
        found = {s.values for s in self.sizes}
        return "none" if not found or "none" in found else "sampled" if "sampled" in found else "all"

    def told(self) -> list[str]:
        """Returns one line for each stated size, in words."""
        return [s.told() for s in self.sizes]


class Timing(Record):
    """Measured times in milliseconds; None where nothing was measured."""

    candidate_ms: float
    eager_ms: float | None = None
    compile_ms: float | None = None
    cupti_ms: float | None = None
    """Time from the start of a profiled call's first kernel to the end of its last one, on any stream."""
    graph_ms: float | None = None
    """Time of a CUDA graph replay of the candidate's call, for short calls that can be captured; timed for 1 s."""
    baseline_graph_ms: float | None = None
    speedup: float | None = None
    interval: tuple[float, float] | None = None
    """95 % bootstrap interval of `speedup`."""
    samples: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    """Raw samples by name (`candidate`, `eager`, `compile`)."""


class Seconds(Record):
    """Wall seconds spent on one evaluation, by stage."""

    build: float = 0.0
    check: float = 0.0
    time: float = 0.0
    total: float = 0.0


class Hotspot(Record):
    """A line whose memory accesses take more sectors or wavefronts than ideal, summed over watched launches."""

    kind: Literal["global_load", "global_store", "shared_load", "shared_store"]
    line: int | None = None
    """Line in the candidate's own source; None where it is unknown."""
    accesses: int
    """Warp instructions."""
    actual: int
    """Sectors of 32 bytes of global memory, or wavefronts of shared memory."""
    ideal: int
    """The fewest sectors or wavefronts that could carry the same bytes."""


class Touched(Record):
    """The most bytes of one allocation that a kernel touched in one launch."""

    name: str
    """`argument 0 ('x', input 0 (16, 700))`: the kernel's parameter, and the task's tensor."""
    bytes: int
    read: int
    """Distinct bytes read."""
    written: int


def _none(values: tuple[Any, ...]) -> bool:
    return not values


class Launch(Record):
    """One kernel of the candidate that ran, summed over its launches in the checked calls."""

    kernel: str
    count: int = 1
    instructions: int = 0
    """Thread instructions executed on the functional machine (0 on a GPU)."""
    counters: dict[str, int] = Field(default_factory=dict)
    hotspots: tuple[Hotspot, ...] = Field(default=(), exclude_if=_none)
    memory: tuple[Touched, ...] = Field(default=(), exclude_if=_none)
    """Bytes that a launch on the functional machine read and wrote, by allocation."""


class BeforeAfter(Record):
    """A reading of the card before and after timing."""

    before: float | str | None = None
    after: float | str | None = None


class KernelBenchResult(Record):
    """The fields of KernelBench's own result; times in milliseconds, -1 where nothing was timed."""

    compiled: bool
    correctness: bool
    runtime: float = -1.0
    ref_runtime: float = -1.0
    runtime_stats: dict[str, float] = Field(default_factory=dict, exclude_if=_none)
    ref_runtime_stats: dict[str, float] = Field(default_factory=dict, exclude_if=_none)


class Environment(Record):
    """The machine that a candidate was judged on, and facts of its judgement; facts that do not apply are left out.

    It reads the records of older runs, where every fact was a string.
    """

    python: str = Field(default="", exclude_if=_none)
    machine: str = Field(default="", exclude_if=_none)
    """The processor's architecture."""
    system: str = Field(default="", exclude_if=_none)
    gpu: str = Field(default="", exclude_if=_none)
    """The card's name."""
    gpu_index: str = Field(default="", exclude_if=_none)
    """The GPU as CUDA_VISIBLE_DEVICES names it."""
    built_by: tuple[str, ...] = Field(default=(), exclude_if=_none)
    builds: int | None = Field(default=None, exclude_if=_none)
    """The candidate's builds that succeeded; None where none could be counted, and in records of older versions."""
    gpu_seconds: dict[str, float] = Field(default_factory=dict, exclude_if=_none)
    """Wall seconds by what was waited for: the lease, the seat, the runner, the referee's work by kind."""
    road: str = Field(default="", exclude_if=_none)
    """`program` where the candidate's process held no values, `in-process` where it held them."""
    replayed: str = Field(default="", exclude_if=_none)
    """What a call consists of where its program was repeated, or `no: ` and why it was not."""
    own_kernel_share: float | None = Field(default=None, exclude_if=_none)
    """The share of a call's device time that the candidate's own kernels take."""
    checked_in_slices: int | None = Field(default=None, exclude_if=_none)
    """Rows of a slice, where outputs were checked slice by slice."""
    sampled_size: str = Field(default="", exclude_if=_none)
    """The size of which a sample of the blocks was run, and what was found there."""
    issue_ms: float | None = Field(default=None, exclude_if=_none)
    """Median host milliseconds to issue a call; the least, with messages, where a program was repeated."""
    launch_us: float | None = Field(default=None, exclude_if=_none)
    """Microseconds of an empty launch in the runner."""
    launches_a_call: int | None = Field(default=None, exclude_if=_none)
    inputs_needed: float | None = Field(default=None, exclude_if=_none)
    """The share of its inputs that the reference depends on."""
    cuda_graph: str = Field(default="", exclude_if=_none)
    """`replayed`, or why the call was not captured as a CUDA graph."""
    sm_mhz: BeforeAfter | None = Field(default=None, exclude_if=_none)
    memory_mhz: BeforeAfter | None = Field(default=None, exclude_if=_none)
    throttle_reasons: BeforeAfter | None = Field(default=None, exclude_if=_none)
    protocol: str = Field(default="", exclude_if=_none)
    """`kernelbench` for a claim by KernelBench's own protocol."""
    kernelbench: KernelBenchResult | None = Field(default=None, exclude_if=_none)
    notes: dict[str, str] = Field(default_factory=dict, exclude_if=_none)
    """Facts of older runs that have no field."""

    @model_validator(mode="before")
    @classmethod
    def _from_strings(cls, value: Any) -> Any:
        """Reads facts that older versions stored as text."""
        if not isinstance(value, dict):
            return value
        known = {k: _fact(k, v) if isinstance(v, str) else v for k, v in value.items() if k in cls.model_fields}
        others = {k: str(v) for k, v in value.items() if k not in cls.model_fields}
        return {**known, "notes": {**value.get("notes", {}), **others}} if others else known


def _fact(name: str, text: str) -> Any:
    """Returns the value of a fact that was stored as text; None for a number that cannot be read."""
    if name == "built_by":
        return () if text == "nothing was built" else tuple(text.split(", "))
    if name == "gpu_seconds":
        pairs = [part.rpartition(" ") for part in text.split(", ")]
        return {stage: seconds for stage, _, s in pairs if (seconds := _number(s)) is not None}
    if name in ("own_kernel_share", "issue_ms", "inputs_needed", "launch_us"):
        return _number(text.partition(",")[0])
    if name == "checked_in_slices":
        return _number(text.removeprefix("of ").removesuffix(" rows"))
    if name in ("sm_mhz", "memory_mhz", "throttle_reasons"):
        before, _, after = text.removesuffix(" after").partition(" before, ")
        return {"before": before, "after": after}
    if name == "kernelbench":
        return json.loads(text)
    return text


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


class Evaluation(Record):
    """A verdict with its evidence, as `evaluate(task, candidate)` returns it.

    Example: `Evaluation(task_id="relu", task_hash=t.content_hash, candidate_id=c.content_hash, verdict="wrong",
    reason="...", backend="cpu", sandbox="landlock+seccomp", ...)`.
    """

    task_id: str
    task_hash: str
    candidate_id: str
    """Content hash of the candidate."""
    verdict: VerdictName
    reason: str = ""
    """The reason in one line; it starts with the rule's name when the verdict is `rejected` or `unsupported`."""
    backend: str = "cpu"
    sandbox: str = "none"
    """The isolation that the runner reached, strongest layers joined by `+`."""
    workloads: tuple[WorkloadResult, ...] = ()
    coverage: Coverage | None = Field(default=None, exclude_if=lambda found: found is None)
    """What was compared at the sizes that the task states; None in records of older versions."""
    timing: Timing | None = None
    findings: tuple[Finding, ...] = ()
    launches: tuple[Launch, ...] = ()
    library_ops: tuple[str, ...] = ()
    """Names of the library operators that computed inside the candidate's forward."""
    seconds: Seconds = Seconds()
    log: str = ""
    """Compiler output, traceback and the candidate's own prints, truncated."""
    environment: Environment = Environment()
    options: dict[str, Any] = Field(default_factory=dict)
    """The options that can change a verdict: `policy` (the library rule), trials, seed commitment, backend."""

    @property
    def compiled(self) -> bool:
        """True if a build of the candidate's code succeeded, or a kernel of its own was launched.

        An exception before any build is no evidence. Records of older versions do not count builds: there only
        `correct` and `wrong` are evidence without a launch.
        """
        if self.verdict in ("unsupported", "harness_error", "compile_error"):
            return False
        if self.launches or self.environment.builds:
            return True
        return self.environment.builds is None and self.verdict in ("correct", "wrong")

    @property
    def errors(self) -> tuple[WorkloadResult, Errors] | None:
        """The call whose errors stand for the candidate's, with them: on the task's own values, at a stated size where
        one was run, else at the largest. None where no floating output was compared."""
        own = [(w, w.errors) for w in self.workloads if w.distribution == "own" and w.errors is not None]
        elements = {id(w): sum(math.prod(shape) for shape in w.shape) for w, _ in own}
        return max(own, key=lambda pair: (pair[0].scope == "declared", elements[id(pair[0])]), default=None)

    def told_errors(self) -> str:
        """Describes in one line the candidate's errors beside the reference's own; empty where there are none."""
        if self.errors is None:
            return ""
        (result, errors), precision = self.errors, self.options.get("precision", "float32")
        return f"error against float64 at {result.name}, precision {precision}: {errors.told()}"

    @model_validator(mode="after")
    def _verdict_fits_evidence(self) -> Self:
        if self.verdict == "correct" and not (self.workloads and all(w.passed for w in self.workloads)):
            raise ValueError("a correct evaluation needs workloads, all of them passed")
        if self.verdict == "rejected" and not any(f.severity == "reject" for f in self.findings):
            raise ValueError("a rejected evaluation needs a finding that rejects")
        if self.verdict != "correct" and not self.reason:
            raise ValueError(f"a {self.verdict} evaluation needs a reason")
        if self.timing is not None and self.verdict != "correct":
            raise ValueError("only a correct candidate is timed")
        return self


class Usage(Record):
    """The cost of one answer of a policy."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float | None = None
    seconds: float = 0.0
    cached: bool = False


class Message(Record):
    """One chat message."""

    role: Literal["system", "user", "assistant"]
    content: str


class Turn(Record):
    """One turn of a rollout: the messages, the policy's answer, and its evaluation."""

    index: int
    messages: tuple[Message, ...]
    answer: str
    finish_reason: str = Field(default="stop", exclude_if=lambda reason: reason == "stop")
    """The policy's reason for the end of the answer: `length` when it was cut off."""
    parse_failure: str | None = None
    """The reason why the answer holds no candidate; None when it holds one."""
    candidate_id: str | None = None
    evaluation: Evaluation | None = None
    usage: Usage = Usage()


class Trajectory(Record):
    """The turns of one rollout on one task by one policy."""

    task_id: str
    task_hash: str
    policy: str
    seed: int = 0
    turns: tuple[Turn, ...] = ()
    stop_reason: str = ""
    best_candidate_id: str | None = None
