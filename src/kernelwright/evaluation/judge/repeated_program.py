"""Judges a candidate on a GPU by repeating its program: what its host code did to the device in a call.

A runner per candidate costs a context on the GPU, and the driver's time for it delays all others. With hundreds of
small kernels to time, as in a step of reinforcement learning, that is most of the time. And a runner on the GPU holds
the values that the candidate could compute on by itself. A program that does not depend on values needs no such runner:
the candidate's process gets handles (`candidate.handle_runner`), a tracing device keeps its records
(`program.tracing`), and a long-lived process repeats them with fresh contents (`candidate.replayer`). Outputs are
checked and times are taken as usual, against the same referee and the same baselines.

This path can only find that a candidate is right, and how fast. In every other case a runner on the GPU decides.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Iterator, Sequence
from typing import Any

from kernelwright.builds import BuildResult
from kernelwright.errors import HarnessError, TaskError
from kernelwright.evaluation.case import Case
from kernelwright.evaluation.failure import Failed
from kernelwright.evaluation.judge.large_sizes import ADDRESSES_MB
from kernelwright.evaluation.processes import messages, program_client
from kernelwright.evaluation.processes.gpu_seats import DeviceFailed, Gpu, Seat, TooLarge, Trusted
from kernelwright.evaluation.processes.messages import CallLaunches, CallTimes, LaunchFacts, Ran, Trace, Traced
from kernelwright.evaluation.processes.pool import ChildLimits
from kernelwright.evaluation.processes.program_client import ProgramClient
from kernelwright.evaluation.tensor_bytes import TensorBytes, shares_memory
from kernelwright.evaluation.trials import TrialData
from kernelwright.records import Task

RESIDENT_MB = 8192
TRACES = 4, 7
"""The least and most times that a call is traced. The number is random, so that a candidate that changes its behaviour
in later calls does not know when tracing ends."""
AFTERWARDS = 8, 16
"""The same once its program has been timed."""


class RepeatedProgram(ProgramClient):
    """A client whose candidate's calls are traced, and whose replayer repeats them."""

    replayed = True
    reports = Traced

    def __init__(self, case: Case, gpu: Gpu) -> None:
        super().__init__(case, None, "tracing_device", ChildLimits(0, ADDRESSES_MB, resident_mb=RESIDENT_MB))
        self.gpu = gpu
        self.replayer: Trusted | None = None
        """Set once the judgement holds a seat."""
        self.layout: dict[str, Any] = {}
        """The referee's description of the call; set once it has prepared the task."""
        self.trace = Trace()
        self.issue_ms = 0.0
        """Milliseconds that the candidate's host code takes for a call: the least of those traced."""
        self._codes: dict[str, dict[str, str | None]] = {}
        self._traced: tuple[Trace, tuple[TensorBytes, ...]] | None = None
        self._problems: list[tuple[str, str]] = []

    @property
    def launch_ms(self) -> float:
        child = self.replayer.child if self.replayer is not None else None
        return child.launch_ms if child is not None else 0.0

    @property
    def moves(self) -> int:
        """The number of a call's records that work on the device and are no launches."""
        return sum(r.kind in ("fill", "copy", "upload", "operator") for r in self.trace.call)

    @property
    def launches(self) -> list[messages.LaunchStep]:
        """The launches of a call."""
        return [r for r in self.trace.call if isinstance(r, messages.LaunchStep)]

    def load(self, task: Task) -> None:
        """Loads the candidate in the runner, and builds its device code if the card is known. Raises `Failed`."""
        super().load(task)
        if self.gpu.architecture is not None:
            self._build_codes()

    def seated(self, seat: Seat) -> None:
        """Takes the replayer of a seat."""
        self.replayer = seat.replayer
        self.replayer.open()

    def exchange(self, handle: str, nbytes: int) -> None:
        """Has the replayer open the block that the referee shares, or close it. Raises `Failed`."""
        self.gpu.architecture = self._replayer({"kind": "exchange", "handle": handle, "nbytes": nbytes})["arch"]

    def release(self) -> None:
        """Has the replayer forget the candidate, and close the block. Raises `Failed`."""
        self._replayer({"kind": "release"})

    def make(self, data: TrialData, weight_seed: int, keep: bool) -> str:
        """Makes the model in the runner, or only changes its weights; traces calls, and loads the program and the
        weights into the replayer. Raises `Failed`."""
        nodes, _ = data.packed(1)
        state = data.state()
        everywhere = program_client.on_the_device(state)
        header = {"kind": "model", "values": nodes, "weight_seed": weight_seed, "keep": keep, "everywhere": everywhere}
        described = [[name, t.dtype, list(t.shape)] for name, t in state]
        made = self._ask(messages.Matched, {**header, "state": described}, (), "in its constructor").facts
        self._device(kind="weights", places=made.places, own=made.own, new=not keep)
        self._traced = None
        self._one_call()  # authors may prepare in the first call on new weights what later calls use
        weights = tuple(t for _, t in state) if made.weights in ("names", "order") else ()
        self._trace(random.Random(self.options.seed).randint(*TRACES))
        self._build_codes()
        assert self._traced is not None
        trace, parts = self._traced
        if keep:
            trace, parts = trace.model_copy(update={"setup": []}), parts[trace.setup_parts :]
        header = {"kind": "load", "keep": keep, "trace": trace.model_dump(), "codes": self._codes}
        self._replayer(header, parts)
        self._replayer({"kind": "weights"}, weights)
        return made.weights

    def run(self, header: dict[str, Any]) -> Ran:
        """Runs full-size calls on shared memory; answers in the form of a runner. Raises `Failed`."""
        answer = self._replayer({"kind": "run", "moves": False, **header})
        counts: dict[str, int] = {}
        for one in self.launches:
            counts[one.entry] = counts.get(one.entry, 0) + 1
        facts = CallLaunches(
            launches=[LaunchFacts(kernel=name, count=count) for name, count in counts.items()], written={"0": 1}
        )
        last = self._last
        return Ran.model_construct(
            kind="ran",
            facts=facts,
            times=CallTimes.model_construct(**answer["times"]),
            copies=CallTimes.model_construct(**answer["copies"]),
            outputs=[(dtype, shape) for dtype, shape in answer["outputs"]],
            mutated=answer["mutated"],
            idle=answer["idle"],
            kernels=[],
            operators=last.operators,
            pieces=last.pieces,
            strangers=last.strangers,
            snooped=self.last.snooped,
            patched=self.last.patched,
            problems=[],
        )

    def note(self) -> str:
        """Returns a summary of a call's program for a result's environment."""
        more = f" and {self.moves} copies, fills or operators" if self.moves else ""
        return f"{len(self.launches)} launches{more} a call"

    def confirm(self) -> None:
        """Traces more calls, to detect host code that changes after its first ones. Raises `Failed`."""
        self._trace(random.Random(self.options.seed).randint(*AFTERWARDS))

    def _trace(self, times: int) -> None:
        """Traces calls on the model's current weights. Raises `Failed` if they differ, or cannot be repeated."""
        for _ in range(times):
            found, parts = self._one_call()
            before = self._traced
            if before is not None and not _same(before, (found, parts)):
                raise Failed("unsupported", "its program differs from call to call")
            self._traced = before or (found, parts)
        assert self._traced is not None
        self.trace = self._traced[0]
        changed = self.layout["changed"]
        expected = [list(place[1:]) for place in self.layout["outputs"][: len(self.layout["outputs"]) - len(changed)]]
        if [[view[1], list(view[2])] for view in self.trace.outputs] != expected:
            raise Failed("unsupported", "its outputs are of another form")
        if not _launched(self.trace, changed):
            raise Failed("unsupported", "an output is in no memory that a kernel of the call was given")

    def _one_call(self) -> tuple[Trace, tuple[TensorBytes, ...]]:
        layout = self.layout
        given = self._device(kind="inputs", forms=layout["forms"]).facts
        where = {"places": given.places, "rooms": given.rooms}
        header = {"kind": "call", "values": [{"l": layout["call"]}], **where, "call_seed": 0}
        started = time.perf_counter()
        returned = self._ask(messages.Returned, header, (), "while its program was traced")
        took = (time.perf_counter() - started) * 1e3
        self.issue_ms = min(took, self.issue_ms or took)
        wanted = [place for place in returned.facts.outputs if place is not None]
        report = self._device(kind="finish", places=wanted)
        if self.seen.error:
            raise self._refusal() or Failed("unsupported", self.seen.error[:500])
        excused = {shares_memory(*pair) for pair in layout["handed"]}
        problems = [rule for rule, evidence in returned.facts.problems if evidence not in excused]
        if problems or len(wanted) < len(returned.facts.outputs):
            rule = problems[0] if problems else "it is in host memory"
            raise Failed("unsupported", f"an output is no plain tensor of the device: {rule}")
        assert isinstance(report.facts, Traced)
        self._last = report.facts
        return report.facts.trace, report.tensors

    def _build_codes(self) -> None:
        """Builds missing machine code, keyed by the name that the launches' records use."""
        for request, result in zip(self.requests, self.builds, strict=True):
            name = hashlib.sha256((result.ptx or "").encode()).hexdigest()
            if result.status == "ok" and result.ptx and name not in self._codes:
                ptx, cubin = self._machine_code(request, result)
                self._codes[name] = {"ptx": ptx, "cubin": cubin}

    def _machine_code(self, request: dict[str, Any], result: BuildResult) -> tuple[str, str | None]:
        """Returns PTX and cubin for the card. Raises `Failed`."""
        started = time.monotonic()
        arch = self.gpu.architecture or ""
        made = self.builder.for_card(request, result, arch, self.options.build_timeout)
        self.build_seconds += time.monotonic() - started
        if isinstance(made, BuildResult):
            raise Failed("unsupported", f"its device code does not compile for {arch}: {made.log}"[:500])
        return made

    def _replayer(self, header: dict[str, Any], tensors: Sequence[TensorBytes] = ()) -> dict[str, Any]:
        assert self.replayer is not None, "there is no seat"
        try:
            return self.replayer.ask("", header, tuple(tensors)).header
        except (HarnessError, TaskError, TooLarge) as error:
            if isinstance(error, DeviceFailed):
                self.gpu.faults.note()
            raise Failed("unsupported", f"its program cannot be repeated: {error}"[:500]) from error


def _same(before: tuple[Trace, tuple[TensorBytes, ...]], now: tuple[Trace, tuple[TensorBytes, ...]]) -> bool:
    """Tells whether two calls did the same. When memory is freed does not matter: the interpreter decides that."""
    one, other = ([r for r in trace.call if not isinstance(r, messages.FreeStep)] for trace in (before[0], now[0]))
    forms = [(trace.blocks, trace.outputs) for trace in (before[0], now[0])]
    return one == other and forms[0] == forms[1] and [p.data for p in before[1]] == [p.data for p in now[1]]


def _launched(trace: Trace, changed: Sequence[int]) -> bool:
    """Tells whether every output is in memory that the call made, and that a kernel was given or that holds what
    operators and copies made of memory which a kernel was given and the program made. The inputs that the reference
    changes count as outputs and as made."""
    weights = {view[0] for step in trace.setup if isinstance(step, messages.WeightsStep) for view in step.places}
    after = {n for n, b in enumerate(trace.blocks) if b.kind == "input" and b.number in changed}
    made = {n for n, b in enumerate(trace.blocks) if b.kind == "made"} - weights | after
    own = {n for n in made if n >= trace.kept} | after
    given: set[int] = set()
    for record in trace.call:
        if isinstance(record, messages.LaunchStep):
            given |= {block for _, _, block, _ in record.pointers}
        elif isinstance(record, messages.CopyStep) and record.source[0] in given & made:
            given.add(record.to[0])
        elif isinstance(record, messages.OperatorStep):
            used = list(_blocks(record.arguments))
            if given & made & set(used):
                given |= {view[0] for view in record.results if view is not None} | set(used[:1])
    return after <= given and all(view[0] in given & own for view in trace.outputs)


def _blocks(value: Any) -> Iterator[int]:
    """Yields the blocks that encoded arguments name."""
    if isinstance(value, dict):
        if "t" in value:
            yield value["t"][0]
        else:
            for item in value.values():
                yield from _blocks(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _blocks(item)
