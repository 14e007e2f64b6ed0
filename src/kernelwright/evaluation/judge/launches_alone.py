"""Judges a candidate on a GPU by its launches: traces its host code without a GPU, and replays its launches on one.

A runner per candidate costs a context on the GPU, and the driver's time for it delays all others. With hundreds of
small kernels to time, as in a step of reinforcement learning, that is most of the time. A candidate needs no runner on
the GPU if its host code only allocates, fills or copies memory, reads shapes and launches kernels. Its call is traced
at full size (`traced_runner`), and a long-lived process (`replayer`) replays it. Outputs are checked and times are
taken as usual, against the same referee and the same baselines. No host code of the candidate runs while it is timed,
so the checks on host code that watch it on a GPU are not needed.

This path can only find that a candidate is right, and how fast. In every other case a runner on the GPU decides.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from kernelwright.builds import BuildRequest, BuildResult
from kernelwright.errors import HarnessError, TaskError
from kernelwright.evaluation.case import Case
from kernelwright.evaluation.failure import Failed
from kernelwright.evaluation.judge.large_sizes import ADDRESSES_MB
from kernelwright.evaluation.processes.candidate_client import CandidateClient
from kernelwright.evaluation.processes.gpu_seats import DeviceFailed, Gpu, TooLarge, Trusted
from kernelwright.evaluation.processes.messages import CallLaunches, CallTimes, LaunchFacts, Ran, Traced
from kernelwright.evaluation.processes.pool import ChildLimits
from kernelwright.evaluation.tensor_bytes import TensorBytes
from kernelwright.evaluation.trials import TrialData
from kernelwright.machine.tracing import code_name
from kernelwright.records import Task

RESIDENT_MB = 8192
TRACES = 4, 7
"""The least and most times that a call is traced. The number is random, so that a candidate that changes its behaviour
in later calls does not know when tracing ends."""


class ReplayClient(CandidateClient):
    """A client whose runner traces the candidate's calls, and whose replayer makes them."""

    replayed = True

    def __init__(self, case: Case, gpu: Gpu) -> None:
        cpu = int(case.options.timeout * 2) + 5
        limits = ChildLimits(cpu, ADDRESSES_MB, resident_mb=RESIDENT_MB)
        child = case.pool.spawn("tracer", limits)
        super().__init__(case.candidate, case.reading, case.options, case.pool, case.builder, child)
        self.gpu = gpu
        self.replayer: Trusted | None = None
        """Set once the judgement holds a seat."""
        self.layout: dict[str, Any] = {}
        """The referee's description of the call; set once it has prepared the task."""
        self.trace: dict[str, Any] = {}
        self._codes: dict[str, dict[str, str | None]] = {}

    @property
    def launch_ms(self) -> float:
        child = self.replayer.child if self.replayer is not None else None
        return child.launch_ms if child is not None else 0.0

    def load(self, task: Task) -> None:
        """Loads the candidate in the runner, and builds its device code if the card is known. Raises `Failed`."""
        super().load(task)
        if self.gpu.architecture is not None:
            self._build_codes()

    def exchange(self, handle: str, nbytes: int) -> None:
        """Has the replayer open the block that the referee shares, or close it. Raises `Failed`."""
        self.gpu.architecture = self._replayer({"kind": "exchange", "handle": handle, "nbytes": nbytes})["arch"]

    def release(self) -> None:
        """Has the replayer forget the candidate, and close the block. Raises `Failed`."""
        self._replayer({"kind": "release"})

    def make(self, data: TrialData, weight_seed: int, keep: bool) -> str:
        """Makes the model in the runner, traces a call and loads it into the replayer. Raises `Failed`."""
        made = super().make(data, weight_seed, keep)
        self._note()
        return made

    def run(self, header: dict[str, Any]) -> Ran:
        """Runs full-size calls on shared memory; answers in the form of a runner. Raises `Failed`."""
        answer = self._replayer({"kind": "run", "moves": False, **header})
        launches: dict[str, int] = {}
        for one in self.trace["launches"]:
            launches[one["entry"]] = launches.get(one["entry"], 0) + 1
        counts = [LaunchFacts(kernel=name, count=count) for name, count in launches.items()]
        return Ran.model_construct(
            kind="ran",
            facts=CallLaunches(launches=counts, written={"0": 1}),
            times=CallTimes.model_construct(**answer["times"]),
            copies=CallTimes.model_construct(**answer["copies"]),
            outputs=[(dtype, shape) for dtype, shape in answer["outputs"]],
            mutated=answer["mutated"],
            idle=answer["idle"],
            kernels=[],
            operators=[],
            problems=[],
        )

    def _note(self) -> None:
        """Traces a call on the model's current weights. Raises `Failed` if the launches cannot represent it."""
        layout = self.layout
        times = 1 if self.trace else random.Random(self.options.seed).randint(*TRACES)
        asked = {"calls": [layout["call"]], "inputs": layout["inputs"], "call_seed": 0, "times": times}
        answer = self._ask(Traced, {"kind": "trace", **asked}, (), "while its launches were noted")
        found = answer.facts.model_dump(include={"launches", "moves", "buffers", "outputs", "sent"})
        if self.trace and found != self.trace:
            raise Failed("unsupported", "its launches differ from call to call")
        expected = [list(place[1:]) for place in layout["outputs"]]
        if [[dtype, list(shape)] for _, dtype, shape, _, _ in found["outputs"]] != expected:
            raise Failed("unsupported", "its outputs are of another form")
        if not _launched(found):
            raise Failed("unsupported", "an output is in no memory that a kernel was given")
        self.trace = found
        self._build_codes()
        self._replayer({"kind": "load", **found, "codes": self._codes}, answer.tensors)

    def _build_codes(self) -> None:
        """Builds missing machine code, keyed by the code name that launches use."""
        for request, result in zip(self.requests, self.builds, strict=True):
            if result.status == "ok" and result.ptx and (name := code_name(result.ptx)) not in self._codes:
                ptx, cubin = self._machine_code(request, result)
                self._codes[name] = {"ptx": ptx, "cubin": cubin}

    def _machine_code(self, request: dict[str, Any], result: BuildResult) -> tuple[str, str | None]:
        """Returns PTX and cubin for the card, built from the same device text as the functional machine's PTX."""
        arch = self.gpu.architecture
        if not arch:
            return result.ptx or "", None
        started = time.monotonic()
        text, names = result.device_source or "", tuple(result.lowered)
        if request["kind"] == "device":
            asked = BuildRequest("device", cuda_source=text, cuda_flags=tuple(request["cuda_flags"]), expressions=names)
        else:  # its compile flags are in the text
            asked = BuildRequest("instances", cuda_source=text, expressions=names)
        asked = replace(asked, arch=arch)
        made = self.builder.build(asdict(asked), self.options.build_timeout)
        self.build_seconds += time.monotonic() - started
        if made.status != "ok" or made.ptx is None:
            raise Failed("unsupported", f"its device code does not compile for {arch}: {made.log}"[:500])
        return made.ptx, made.cubin

    def _replayer(self, header: dict[str, Any], tensors: Sequence[TensorBytes] = ()) -> dict[str, Any]:
        assert self.replayer is not None, "there is no seat"
        try:
            return self.replayer.ask("", header, tuple(tensors)).header
        except (HarnessError, TaskError, TooLarge) as error:
            if isinstance(error, DeviceFailed):
                self.gpu.faults.note()
            raise Failed("unsupported", f"its launches cannot be repeated: {error}"[:500]) from error


def _launched(trace: dict[str, Any]) -> bool:
    """Tells whether kernels were given the memory of every output, or the memory that it was copied from."""
    made = {number for number, (kind, _, _) in enumerate(trace["buffers"]) if kind == "made"}
    given = made & {buffer for launch in trace["launches"] for _, _, buffer, _ in launch["places"]}
    for move in trace["moves"]:
        if not isinstance(move["source"], float) and move["source"][0] in given and move["after"] > 0:
            given.add(move["to"][0])
    return all(output[0] in given for output in trace["outputs"])


def note(trace: dict[str, Any]) -> str:
    """Returns a summary of the trace for a result's environment."""
    moves = f" and {len(trace['moves'])} copies or fills" if trace["moves"] else ""
    return f"{len(trace['launches'])} launches{moves} a call"
