"""The judge's side of a runner: sends messages to one candidate's process, and classifies the ways in which it can die.

`Failed` ends the judgement of the candidate; the judge turns it into a verdict. Faults of ours raise `HarnessError`.
Build requests pass through here, so the judge knows all builds without asking the runner.
"""

from __future__ import annotations

import dataclasses
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

from kernelwright.backends import host_build, host_imports
from kernelwright.backends.triton import triton_support
from kernelwright.builds import BuildResult
from kernelwright.evaluation.failure import Failed, missing_library
from kernelwright.evaluation.options import EvalOptions
from kernelwright.evaluation.processes import messages
from kernelwright.evaluation.processes.builder_client import BuilderClient
from kernelwright.evaluation.processes.channel import ChannelClosed, ChannelTimeout, Frame
from kernelwright.evaluation.processes.pool import Child, ChildLimits, Pool
from kernelwright.evaluation.processes.reader_client import Reading
from kernelwright.evaluation.tensor_bytes import TensorBytes
from kernelwright.evaluation.trials import Kept, TrialData
from kernelwright.records import Candidate, Finding, Task
from kernelwright.tasks.reference import wants_gradients

MAX_BUILDS = 64
KNOWN_LIBRARIES = frozenset(
    """triton cupy numba cutlass tilelang pycuda cuda flash_attn xformers apex einops scipy torchvision torchaudio
    tensorrt pybind11 cppyy bitsandbytes deepspeed transformers jax mlx tvm taichi helion cuquantum nvtx ninja
    """.split()
)
"""Libraries that an honest candidate may ask for; one that is not installed makes it `unsupported` here."""


def _forged(where: str, error: Exception) -> Failed:
    """Returns the failure for an answer that a candidate must have written into the channel itself."""
    finding = Finding(
        rule="forged-answer", evidence=f"an answer that the runner does not give: {error}", severity="reject"
    )
    return Failed("rejected", f"forged-answer: {finding.evidence} ({where})"[:500], finding)


_MIXED = Finding(
    rule="hidden-device-code",
    evidence="its text is C++ for the CPU, which works on values, and it builds device code all the same",
    severity="reject",
)


def _has_device_code(request: dict[str, Any]) -> bool:
    return request["kind"] in ("device", "instances", "ptxas")


@dataclass(frozen=True)
class Answered(Generic[messages.Answer]):
    """One answer of the runner: its validated facts, and the tensors that came with them."""

    facts: messages.Answer
    tensors: tuple[TensorBytes, ...]


class CandidateClient:
    """The runner of one candidate, with a budget of wall seconds that builds do not use up."""

    road = "in-process"
    """`program` if the candidate's process holds no values of the device."""
    refused: Sequence[str] = ()
    """Operators that the library rule refused on the device."""
    replayed = False
    """True if the candidate's program is repeated on a GPU: host code then needs no GPU and no watching."""
    live = False
    """True if a GPU executes the candidate's program as its host code writes it."""

    def __init__(
        self,
        candidate: Candidate,
        reading: Reading,
        options: EvalOptions,
        pool: Pool,
        builder: BuilderClient,
        child: Child | None = None,
    ) -> None:
        self.candidate = candidate
        self.options = options
        self.builder = builder
        self.builds: list[BuildResult] = []
        self.requests: list[dict[str, Any]] = []  # each build's request, as the untrusted runner sent it
        self.build_seconds = 0.0
        self.last = messages.AnswerState()
        """The last answer."""
        self._kept = False
        self.left = options.timeout
        # The CPU-time limit backs up the wall-clock deadline that this class enforces.
        cpu = int(options.timeout * 2) + 5
        preload = ("triton",) if triton_support.wanted(reading.source) else ()
        self.child = child or pool.spawn("runner", ChildLimits(cpu, options.memory_mb), preload=preload)
        self.level = self.child.level
        self.source = reading.source
        self.reading = reading

    @property
    def card_code(self) -> bool:
        """True if the candidate's process holds no values and a GPU executes its program."""
        return self.replayed or self.live

    def moved(self) -> Kept:
        """Returns copies of what operators have moved in the last call, where a device process keeps them."""
        return Kept()

    @property
    def launch_ms(self) -> float:
        """Returns the milliseconds of an empty launch in the process whose calls are timed."""
        return self.child.launch_ms

    def load(self, task: Task) -> None:
        """Executes the candidate's file. Raises `Failed`."""
        header = {
            "kind": "load",
            "source": self.source,
            "files": [[file.path, file.content] for file in self.candidate.sources[1:]],
            "entry_point": self.candidate.entry_point,
            "language": self.candidate.language,
            "gradients": wants_gradients(task.source),
            "precision": self.options.precise(task),
            "card_code": self.card_code,
            "live": self.live,
        }
        self._ask(messages.Loaded, header, (), "while it was loaded")

    @property
    def keeps(self) -> bool:
        """Tells whether the model may hold results under the version of weights that `make` has just changed.

        Without such weights, another call would be as the one that follows: other inputs, and all else the same.
        """
        return self._kept

    def make(self, data: TrialData, weight_seed: int, keep: bool) -> str:
        """Constructs the model with the reference's weights, or only resets them. Raises `Failed`."""
        nodes, tensors = data.packed(1, 2)
        header = {"kind": "model", "values": nodes, "weight_seed": weight_seed, "keep": keep}
        how = self._ask(messages.Made, header, tensors, "in its constructor").facts.weights
        self._kept = keep and how in ("names", "order")
        return how

    def call(self, data: TrialData, call_seed: int, reuse: bool) -> Answered[messages.Called]:
        """Runs one forward pass. Raises `Failed`."""
        nodes, tensors = data.packed(0)
        header = {"kind": "call", "values": nodes, "call_seed": call_seed, "reuse": reuse, "changed": data.changed}
        return self._ask(messages.Called, header, tensors, "in its forward pass")

    def exchange(self, handle: str, nbytes: int) -> None:
        """Has the runner open memory that the referee shares, or, with an empty handle, close it. Raises `Failed`."""
        header = {"kind": "exchange", "handle": handle, "nbytes": nbytes}
        self._ask(messages.Exchanged, header, (), "while it was prepared")

    def run(self, header: dict[str, Any]) -> messages.Ran:
        """Runs full-size calls on shared memory. Raises `Failed`."""
        return self._ask(messages.Ran, {"kind": "run", **header}, (), "at full size").facts

    def strict(self, step: str, where: str, **header: Any) -> messages.StrictStep:
        """Runs one step of KernelBench's own protocol (`kernelbench_runner`). Raises `Failed`."""
        return self._ask(messages.StrictStep, {"kind": "strict", "step": step, **header}, (), where).facts

    def _ask(
        self, wanted: type[messages.Answer], header: dict[str, Any], tensors: tuple[TensorBytes, ...], where: str
    ) -> Answered[messages.Answer]:
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
            read = messages.read(wanted, answer.header)
        except messages.Unsound as error:
            raise _forged(where, error) from None
        self.last = read
        if isinstance(read, messages.Raised):
            raise self._failure(read, where)
        return Answered(read, answer.tensors)

    def _build(self, message: Frame) -> float:
        started = time.monotonic()
        try:
            request = messages.build_request(message.header)
        except messages.Unsound as error:
            raise _forged("in a build request", error) from None
        if self.candidate.language == "cpp" and self.road == "in-process" and _has_device_code(request):
            raise Failed("rejected", f"{_MIXED.rule}: {_MIXED.evidence}", _MIXED)
        if len(self.builds) >= MAX_BUILDS:
            result = BuildResult("compile_error", log=f"more than {MAX_BUILDS} builds for one candidate")
        else:
            result = self.builder.build(request, self.options.build_timeout)
        self.builds.append(result)
        self.requests.append(request)
        self.built(request, result)
        if result.library and self.candidate.language == "cpp" and result.built_by == "stand-in":
            self._check_imports(Path(result.library))
        seconds = time.monotonic() - started
        self.child.channel.send({"kind": "built", "result": dataclasses.asdict(result)}, (), time.monotonic() + 10)
        return seconds

    def built(self, request: dict[str, Any], result: BuildResult) -> None:
        """Called with each build, before the runner learns of it."""

    def _check_imports(self, library: Path) -> None:
        """Raises `Failed` for host code with values that names what it may not call, such as `dlsym` or BLAS."""
        host = host_build.host_library(self.builder.pool.cache)
        try:
            names = host_imports.foreign_imports(library, host)
        except ValueError as error:
            raise Failed("runtime_error", str(error)[:500]) from error
        if names:
            what = f"host code takes {', '.join(names[:5])} from libraries, which may do a kernel's work"
            finding = Finding(rule="foreign-symbol", evidence=what, severity="reject")
            raise Failed("rejected", f"foreign-symbol: {what}"[:500], finding)

    def _death(self, where: str, detail: str) -> Failed:
        fate = self.child.natural_fate()
        if fate.signal == signal.SIGXCPU or (fate.signal == signal.SIGKILL and self.left <= 0):
            return Failed("timeout", f"used up its processor time {where}")
        if fate.full:
            return Failed("runtime_error", f"its files took more room than they may {where}")
        if fate.rss_mb > self.options.memory_mb * 0.9:
            return Failed("runtime_error", f"out of memory {where}: it reached {fate.rss_mb} MB", cause="memory")
        if fate.signal is not None:
            name = signal.Signals(fate.signal).name if fate.signal in set(signal.Signals) else str(fate.signal)
            return Failed("runtime_error", f"its process was killed by {name} {where}", cause="killed")
        if fate.exit is not None:
            return Failed("runtime_error", f"it ended its process with status {fate.exit} {where}")
        return Failed("runtime_error", f"it broke off the conversation {where} ({detail})", cause="closed")

    def _failure(self, raised: messages.Raised, where: str) -> Failed:
        kind, message = raised.type, raised.message
        for rule, evidence in raised.snooped:
            if rule == "harness-access":  # the exception is that it was refused
                finding = Finding(rule=rule, evidence=evidence[:500], severity="reject")
                return Failed("rejected", f"{rule}: {evidence} {where}"[:500], finding, raised.traceback)
        # If the file is not Python, the lines that ran are the wrapper's.
        line = raised.line if self.candidate.sources[0].path.endswith(".py") else None
        at = f" (line {line})" if line else ""
        if raised.cause == "memory":
            return Failed("runtime_error", f"out of memory {where}{at}", log=raised.traceback, cause="memory")
        if kind == "NoEntryPoint":
            reason = f"{message}; a candidate defines class ModelNew(nn.Module)"
            return Failed("compile_error", reason, log=raised.traceback)
        missing = [n for n in raised.missing_libraries if n in KNOWN_LIBRARIES]
        if kind in ("ModuleNotFoundError", "ImportError") and missing:
            return Failed("unsupported", missing_library(missing), log=raised.traceback)
        first = message.strip().splitlines()[0] if message.strip() else ""
        finding = Finding(rule="exception", evidence=f"{kind}: {first}"[:500], severity="fault", line=line)
        reason = f"{kind} {where}{at}: {first}"[:500]
        return Failed("runtime_error", reason, finding, raised.traceback, kind, raised.cause)

    def close(self) -> None:
        self.child.end()
