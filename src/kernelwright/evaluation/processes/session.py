"""One candidate's life as the judge sees it, and one task's: children asked in turn, their deaths told apart.

A `Failed` is raised wherever the candidate's road ends; the judge turns it into a verdict. Faults of our own raise
`HarnessError`. Builds pass through here, so what was built, and what could not be, is known without asking the runner.
"""

from __future__ import annotations

import dataclasses
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from kernelwright.backends import host_build
from kernelwright.backends.triton import triton_support
from kernelwright.builds import BuildRequest, BuildResult, needs_torch
from kernelwright.errors import HarnessError, TaskError
from kernelwright.evaluation.compare import second_look
from kernelwright.evaluation.options import EvalOptions
from kernelwright.evaluation.processes import messages
from kernelwright.evaluation.processes.channel import ChannelClosed, ChannelTimeout, Message, Tensor
from kernelwright.evaluation.processes.pool import Child, Pool
from kernelwright.records import Candidate, Distribution, Finding, Task, VerdictName, Workload
from kernelwright.tasks.reference import wants_gradients

MAX_BUILDS = 64
KEPT_BYTES = 16 << 20
"""Of trials, by an oracle's session, for candidates that are judged on equal inputs."""
ORACLE_SECONDS = 120.0
ORACLE_MB = 12_288
SLOW_BUILD_SECONDS = 900.0
"""For torch's own build of an extension, by nvcc, with waiting for room and for torch's headers; the candidate's text
itself has less (`backends.torch_build`)."""
KNOWN_LIBRARIES = frozenset(
    """triton cupy numba cutlass tilelang pycuda cuda flash_attn xformers apex einops scipy torchvision torchaudio
    tensorrt pybind11 cppyy bitsandbytes deepspeed transformers jax mlx tvm taichi helion cuquantum nvtx ninja
    """.split()
)
"""Libraries that an honest candidate may ask for; one that is not installed makes it `unsupported` here."""


@dataclass(eq=False)  # not frozen: a traceback is set on an exception that passes a `with`
class Failed(Exception):
    """The candidate's road ends here."""

    verdict: VerdictName
    reason: str
    finding: Finding | None = None
    log: str = ""

    def __post_init__(self) -> None:
        super().__init__(self.reason)


def missing_library(names: Sequence[str]) -> str:
    """The reason for a verdict on a candidate that needs libraries which are not here."""
    hint = f"; {triton_support.HINT}" if "triton" in names else ""
    return f"missing-library: {', '.join(names)} is not installed here{hint}"


@dataclass(frozen=True)
class Trial:
    """One call to be checked."""

    workload: Workload
    distribution: Distribution
    weight_seed: int
    input_seed: int
    reuse: bool = False
    """Call the same model again, with new contents at the addresses of the previous call."""


@dataclass(frozen=True)
class TrialData:
    """What the oracle made of a trial. `nodes` are the packed values: inputs, constructor arguments, weights."""

    nodes: list[Any]
    tensors: tuple[Tensor, ...]
    exact: tuple[Tensor, ...]
    honest: tuple[Tensor, ...]
    low_error: list[float | None] | None
    input_scale: float
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    nearby: Callable[[int], list[np.ndarray] | None] | None = None
    """Asks the oracle for the expected outputs on inputs moved by noise: a run of the second look, by number."""
    handed: Sequence[Sequence[int]] = ()
    """Output and input, by number, where the reference hands an input's memory through."""

    def packed(self, *which: int) -> tuple[list[Any], tuple[Tensor, ...]]:
        """The chosen values with just the tensors that they use, renumbered."""
        used: list[Tensor] = []

        def renumber(node: dict[str, Any]) -> dict[str, Any]:
            ((kind, value),) = node.items()
            if kind == "t":
                used.append(self.tensors[value])
                return {"t": len(used) - 1}
            if kind in "lp":
                return {kind: [renumber(v) for v in value]}
            if kind == "d":
                return {"d": [[k, renumber(v)] for k, v in value]}
            return node

        return [renumber(self.nodes[i]) for i in which], tuple(used)

    @property
    def nbytes(self) -> int:
        return sum(len(t.data) for t in (*self.tensors, *self.exact, *self.honest))

    @property
    def largest_input(self) -> int:
        return max((_count(s) for s in self.shapes), default=0)


def _forged(where: str, error: Exception) -> Failed:
    """For an answer that only a candidate that writes into the channel itself can give."""
    finding = Finding(
        rule="forged-answer", evidence=f"an answer that the runner does not give: {error}", severity="reject"
    )
    return Failed("rejected", f"forged-answer: {finding.evidence} ({where})"[:500], finding)


def _count(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


@dataclass(frozen=True)
class Outline:
    """One call at a size that is too large to make. `nodes` are its packed arguments and constructor's arguments, whose
    tensors are `samples` of flat values; `shapes` are those that they stand for, `exact` whether a sample is all."""

    nodes: list[Any]
    samples: tuple[Tensor, ...]
    shapes: list[list[int]]
    exact: list[bool]


@dataclass
class Plan:
    """The sizes and value distributions at which a task is judged; `large`: stated ones that are too large to run."""

    workloads: list[Workload]
    declared: Workload | None
    distributions: list[Distribution]
    notes: list[str] = field(default_factory=list)
    large: list[Workload] = field(default_factory=list)


class TaskSession:
    """The oracle of one task. Started when first asked, restarted when it dies."""

    def __init__(self, task: Task, pool: Pool) -> None:
        self.task = task
        self.pool = pool
        self.child: Child | None = None
        self._made: dict[str, TrialData] = {}
        """The last trials, by what was asked, as far as they are small."""

    def _ask(self, header: dict[str, Any]) -> Message:
        if self.child is None:
            self.child = self.pool.spawn("oracle", cpu_seconds=int(ORACLE_SECONDS * 4), memory_mb=ORACLE_MB)
        try:
            answer = self.child.ask(header, deadline=time.monotonic() + ORACLE_SECONDS)
        except ChannelTimeout as error:
            self.close()
            raise TaskError(
                f"the reference of task {self.task.task_id!r} did not finish within {ORACLE_SECONDS:.0f} s",
                hint="make the task's sizes smaller, or state smaller workloads in its task.toml",
            ) from error
        except ChannelClosed as error:
            fate = self.child.natural_fate()
            self.close()
            raise TaskError(
                f"the reference of task {self.task.task_id!r} ended its process: it {fate}",
                hint="run the reference by itself to see why; it may need more memory than there is",
            ) from error
        if answer.kind == "failed":
            raise TaskError(
                f"task {self.task.task_id!r}: {answer.header['message']}",
                hint=answer.header.get("hint") or "run the reference by itself to see the whole error",
            )
        return answer

    def plan(self, budget: dict[str, int], seed: int) -> Plan:
        """Sizes and distributions of this task; raises `TaskError` when its reference does not run."""
        declared = [w.model_dump(mode="json") for w in self.task.workloads if w.purpose == "functional"]
        header = {"kind": "plan", "source": self.task.source, "workloads": declared, "budget": budget, "seed": seed}
        answer = self._ask(header).header
        return Plan(
            [Workload.model_validate(w) for w in answer["workloads"]],
            Workload.model_validate(answer["declared"]) if answer["declared"] else None,
            answer["distributions"],
            answer["notes"],
            [Workload.model_validate(w) for w in answer["large"]],
        )

    def trial(self, trial: Trial, call_seed: int, randomise: bool = True) -> TrialData:
        """Inputs and expected outputs of one call; without `randomise`, with weights as the constructor leaves them."""
        asked = self._call(trial, call_seed, randomise)
        key = repr({**asked, "source": ""})
        if key in self._made:
            return self._made[key]
        answer = self._ask({"kind": "trial", **asked})
        facts, tensors = answer.header, answer.tensors
        first, count = facts["input_count"], facts["output_count"]
        made = self._made[key] = TrialData(
            facts["values"],
            tensors[:first],
            tensors[first : first + count],
            tensors[first + count :],
            facts["low_error"],
            facts["input_scale"],
            tuple(tuple(s) for s in facts["shapes"]),
            tuple(facts["dtypes"]),
            lambda run: self._nearby(trial, call_seed, randomise, run),
            facts["handed"],
        )
        while sum(one.nbytes for one in self._made.values()) > KEPT_BYTES:
            del self._made[next(iter(self._made))]
        return made

    def _nearby(self, trial: Trial, call_seed: int, randomise: bool, run: int) -> list[np.ndarray] | None:
        """A trial's outputs in float64 on inputs moved by noise: runs 2k and 2k + 1 by opposite noise."""
        noise, sign = second_look.noise(trial.input_seed, run)
        call = self._call(trial, call_seed, randomise)
        answer = self._ask({"kind": "nearby", **call, "noise": noise, "sign": sign})
        return [t.array() for t in answer.tensors] if answer.header["worked"] else None

    def outline(self, size: Workload, trial: Trial) -> Outline | str:
        """The arguments of a call at `size`, with samples of a trial's values; or why they cannot be had."""
        answer = self._ask({"kind": "outline", **self._call(trial, trial.input_seed), "large": size.constants})
        facts = answer.header
        if facts["problem"]:
            return str(facts["problem"])
        return Outline(facts["values"], answer.tensors, facts["shapes"], facts["exact"])

    def _call(self, trial: Trial, call_seed: int, randomise: bool = True) -> dict[str, Any]:
        return {
            "source": self.task.source,
            "constants": trial.workload.constants,
            "distribution": trial.distribution,
            "seed": trial.input_seed,
            "weight_seed": trial.weight_seed,
            "call_seed": call_seed,
            "randomise": randomise,
        }

    def shortcuts(
        self, trial: Trial, call_seed: int, only: list[str] | None, ignored: list[int]
    ) -> dict[str, tuple[Tensor, ...]]:
        """Outputs of the reference on less than a trial's inputs, by the null kernel's name (`tasks.shortcuts`)."""
        header = {"kind": "shortcuts", **self._call(trial, call_seed), "only": only, "ignored": ignored}
        answer = self._ask(header)
        count = answer.header["output_count"]
        return {n: answer.tensors[i * count : (i + 1) * count] for i, n in enumerate(answer.header["names"])}

    def lint(self, workload: Workload, declared: list[dict[str, Any]], seed: int) -> dict[str, Any]:
        """What `tasks.lint` finds: `notes`, `unread`, `memory_gb`, and `hardening`, the values the task can take."""
        header = {"kind": "lint", "source": self.task.source, "constants": workload.constants}
        return self._ask({**header, "declared": declared, "seed": seed}).header

    def close(self) -> None:
        if self.child is not None:
            self.child.end()
            self.child = None


class Builder:
    """The builder child of one worker, replaced when a build hangs or kills it."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.child: Child | None = None
        self.level = "none"

    def build(self, request: dict[str, Any], timeout: float) -> BuildResult:
        """One build, in bounded time. A compiler that crashes or hangs on a text twice is that text's fault.

        For a GPU, torch's own build follows where ours lacks something; it has `SLOW_BUILD_SECONDS`.
        """
        result = self._built({"kind": "build", "request": request}, timeout)
        if needs_torch(BuildRequest.from_fields(request), result):
            header = {"kind": "build_by_torch", "request": request, "first": dataclasses.asdict(result)}
            return self._built(header, max(timeout, SLOW_BUILD_SECONDS))
        return result

    def _built(self, header: dict[str, Any], timeout: float) -> BuildResult:
        for attempt in (1, 2):
            if self.child is None:
                if header["request"].get("kind") == "extension":
                    _built_ahead(self.pool.cache)
                self.child = self.pool.spawn("builder", cpu_seconds=0, memory_mb=0)
                self.level = self.child.level
            try:
                answer = self.child.ask({**header, "cache": str(self.pool.cache)}, deadline=time.monotonic() + timeout)
            except ChannelTimeout:
                self.close()
                return BuildResult("compile_error", log=f"the compiler did not finish within {timeout:.0f} s")
            except ChannelClosed:
                fate = self.child.natural_fate()
                self.close()
                if attempt == 2:
                    return BuildResult("compile_error", log=f"the compiler died on this source: it {fate}")
                continue
            return BuildResult.from_fields(answer.header["result"])
        raise HarnessError("unreachable: a build ends within two attempts")

    def close(self) -> None:
        if self.child is not None:
            self.child.end()
            self.child = None


@cache
def _built_ahead(folder: Path) -> None:
    """Makes what host code is compiled and linked with, which takes half a minute the first time: before a candidate's
    clock runs. Raises `HarnessError` without a compiler."""
    host_build.host_library(folder)
    host_build.precompiled_header(folder, host_build.DEFAULT_FLAGS)


class CandidateSession:
    """The runner of one candidate, with a budget of wall seconds that builds do not use up."""

    replayed = False
    """Whether only launches are repeated on a GPU: then host code needs none, and none of it needs to be watched."""

    def __init__(
        self,
        candidate: Candidate,
        source: str,
        options: EvalOptions,
        pool: Pool,
        builder: Builder,
        child: Child | None = None,
    ) -> None:
        self.candidate = candidate
        self.options = options
        self.builder = builder
        self.builds: list[BuildResult] = []
        self.requests: list[dict[str, Any]] = []  # what each build was asked for, as the untrusted runner said it
        self.build_seconds = 0.0
        self.last: dict[str, Any] = {}
        self.left = options.timeout
        # The processor limit is the second line of defence, behind the wall clock that is watched here.
        cpu = int(options.timeout * 2) + 5
        preload = ("triton",) if triton_support.wanted(source) else ()
        self.child = child or pool.spawn("runner", cpu_seconds=cpu, memory_mb=options.memory_mb, preload=preload)
        self.level = self.child.level
        self.source = source

    @property
    def launch_ms(self) -> float:
        """What an empty launch takes in the process whose calls are timed."""
        return self.child.launch_ms

    def load(self, task: Task) -> None:
        """Executes the candidate's file. Raises `Failed`."""
        header = {
            "kind": "load",
            "source": self.source,
            "entry_point": self.candidate.entry_point,
            "language": self.candidate.language,
            "gradients": wants_gradients(task.source),
            "fence": str(host_build.host_library(self.builder.pool.cache)) if self.candidate.language == "cuda" else "",
        }
        self._ask(header, (), "while it was loaded")

    def make(self, data: TrialData, weight_seed: int, keep: bool) -> str:
        """Constructs the model with the reference's weights, or only resets them. Raises `Failed`."""
        nodes, tensors = data.packed(1, 2)
        header = {"kind": "model", "values": nodes, "weight_seed": weight_seed, "keep": keep}
        return str(self._ask(header, tensors, "in its constructor").header["weights"])

    def call(self, data: TrialData, call_seed: int, reuse: bool) -> Message:
        """One forward pass. Raises `Failed`."""
        nodes, tensors = data.packed(0)
        header = {"kind": "call", "values": nodes, "call_seed": call_seed, "reuse": reuse}
        return self._ask(header, tensors, "in its forward pass")

    def sampled(self, outline: Outline, trial: Trial) -> None:
        """Constructs the model and calls it at a size of which only a part is run. Raises `Failed`."""
        arguments, init = outline.nodes
        header = {"kind": "model", "values": [init], "weight_seed": trial.weight_seed, "keep": False}
        self._ask(header, (), "in its constructor, at full size")
        header = {"kind": "call", "values": [arguments], "call_seed": trial.input_seed}
        header |= {"shapes": outline.shapes, "exact": outline.exact}
        self._ask(header, outline.samples, "in its forward pass, at full size")

    def exchange(self, handle: str, nbytes: int) -> None:
        """Has the runner open memory that the referee shares, or, with an empty handle, close it. Raises `Failed`."""
        self._ask({"kind": "exchange", "handle": handle, "nbytes": nbytes}, (), "while it was prepared")

    def run(self, header: dict[str, Any]) -> dict[str, Any]:
        """One full-size call on shared memory. Raises `Failed`."""
        return self._ask({"kind": "run", **header}, (), "at full size").header

    def strict(self, step: str, where: str, **header: Any) -> dict[str, Any]:
        """One step of KernelBench's own protocol (`kernelbench_runner`). Raises `Failed`."""
        return self._ask({"kind": "strict", "step": step, **header}, (), where).header

    def _ask(self, header: dict[str, Any], tensors: tuple[Tensor, ...], where: str) -> Message:
        started = time.monotonic()
        built = 0.0
        try:
            self.child.channel.send(header, tensors, started + self.left)
            while True:
                answer = self.child.channel.receive(started + self.left + built)
                if answer.kind != "build":
                    break
                built += self._build(answer)
        except ChannelTimeout:
            raise Failed("timeout", f"no answer within {self.options.timeout:g} s, {where}") from None
        except ChannelClosed as error:
            raise self._death(where, str(error)) from None
        finally:
            self.left -= time.monotonic() - started - built
            self.build_seconds += built
        try:
            self.last = messages.read(header["kind"], answer.header)
        except messages.Unsound as error:
            raise _forged(where, error) from None
        if answer.kind == "failed":
            raise self._failure(self.last, where)
        return Message(self.last, answer.tensors)

    def _build(self, message: Message) -> float:
        started = time.monotonic()
        try:
            request = messages.build_request(message.header)
        except messages.Unsound as error:
            raise _forged("in a build request", error) from None
        if len(self.builds) >= MAX_BUILDS:
            result = BuildResult("compile_error", log=f"more than {MAX_BUILDS} builds for one candidate")
        else:
            result = self.builder.build(request, self.options.build_timeout)
        self.builds.append(result)
        self.requests.append(request)
        seconds = time.monotonic() - started
        self.child.channel.send({"kind": "built", "result": dataclasses.asdict(result)}, (), time.monotonic() + 10)
        return seconds

    def _death(self, where: str, detail: str) -> Failed:
        fate = self.child.natural_fate()
        if fate.signal == signal.SIGXCPU or (fate.signal == signal.SIGKILL and self.left <= 0):
            return Failed("timeout", f"used up its processor time {where}")
        if fate.full:
            return Failed("runtime_error", f"its files took more room than they may {where}")
        if fate.rss_mb > self.options.memory_mb * 0.9:
            return Failed("runtime_error", f"out of memory {where}: it reached {fate.rss_mb} MB")
        if fate.signal is not None:
            name = signal.Signals(fate.signal).name if fate.signal in set(signal.Signals) else str(fate.signal)
            return Failed("runtime_error", f"its process was killed by {name} {where}")
        if fate.exit is not None:
            return Failed("runtime_error", f"it ended its process with status {fate.exit} {where}")
        return Failed("runtime_error", f"it broke off the conversation {where} ({detail})")

    def _failure(self, header: dict[str, Any], where: str) -> Failed:
        kind, message = header["type"], header["message"]
        # Of a file without Python the lines that ran are the wrapper's.
        line = header.get("line") if self.candidate.sources[0].path.endswith(".py") else None
        at = f" (line {line})" if line else ""
        log = str(header.get("traceback", ""))
        if kind in ("MemoryError", "OutOfMemoryError") or "can't allocate memory" in message:
            return Failed("runtime_error", f"out of memory {where}{at}", log=log)
        if kind == "NoEntryPoint":
            return Failed("compile_error", f"{message}; a candidate defines class ModelNew(nn.Module)", log=log)
        missing = [n for n in header.get("missing_libraries", []) if n in KNOWN_LIBRARIES]
        if kind in ("ModuleNotFoundError", "ImportError") and missing:
            return Failed("unsupported", missing_library(missing), log=log)
        first = message.strip().splitlines()[0] if message.strip() else ""
        finding = Finding(rule="exception", evidence=f"{kind}: {first}"[:500], severity="fault", line=line)
        return Failed("runtime_error", f"{kind} {where}{at}: {first}"[:500], finding, log)

    def close(self) -> None:
        self.child.end()
