"""The judge's side of a candidate with handles: its runner, and the device process that owns its memory.

Values travel between the judge and the device process. The runner gets places, and answers with places. What a call
did is what the device process executed, so nothing here rests on the runner's word but the identity of its outputs.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from typing import Any

from kernelwright.backends.triton import triton_support
from kernelwright.evaluation.case import Case
from kernelwright.evaluation.failure import Failed
from kernelwright.evaluation.options import EvalOptions
from kernelwright.evaluation.processes import messages
from kernelwright.evaluation.processes.candidate_client import Answered, CandidateClient
from kernelwright.evaluation.processes.channel import ChannelClosed, ChannelTimeout
from kernelwright.evaluation.processes.device_client import Devices, soon
from kernelwright.evaluation.processes.pool import Child, ChildLimits
from kernelwright.evaluation.processes.roles import Role
from kernelwright.evaluation.tensor_bytes import TensorBytes
from kernelwright.evaluation.trials import Kept, Outline, Picked, Trial, TrialData
from kernelwright.machine.runtime import BUDGET
from kernelwright.records import Finding

UNBOUNDED = 1 << 60
"""A launch's bound on thread instructions where time alone is to bound it."""
MOST_DRAWN = 1 << 30
"""The most bytes of weights whose first values the constructor draws on the host."""
OPEN_SECONDS = 20.0
"""Seconds that a device process may take to begin with a candidate on a busy machine."""


class ProgramClient(CandidateClient):
    """The runner and the device process of one candidate."""

    road = "program"
    reports: type[messages.DeviceReport] = messages.DeviceReport
    """The model of the device process's answers."""

    def __init__(
        self,
        case: Case,
        options: EvalOptions | None = None,
        role: Role = "device",
        limits: ChildLimits | None = None,
        devices: Devices | None = None,
    ) -> None:
        options = options or case.options
        self._devices = devices or case.devices
        self.device = self._devices.take(role, limits or ChildLimits(memory_mb=options.memory_mb))
        self.sound = False
        """True while the device process may serve another candidate afterwards."""
        try:
            budget = UNBOUNDED if options.full_size else BUDGET
            link = self.device.open(soon(OPEN_SECONDS), memory_mb=options.memory_mb, rule=case.rule, budget=budget)
            runner = self._runner(case, options, link)
        except BaseException:
            self.device.end()
            raise
        self.sound = True
        super().__init__(case.candidate, case.reading, options, case.pool, case.builder, runner)
        self.seen = messages.DeviceReport()
        """The device process's last report."""
        self.rule = case.rule

    @staticmethod
    def _runner(case: Case, options: EvalOptions, link: socket.socket) -> Child:
        cpu = int(options.timeout * 2) + 5
        preload = ("triton",) if triton_support.wanted(case.source) else ()
        return case.pool.spawn("handles", ChildLimits(cpu, options.memory_mb), preload=preload, link=link)

    def make(self, data: TrialData, weight_seed: int, keep: bool) -> str:
        """Constructs the model, and writes the reference's weights to its places. Raises `Failed`."""
        nodes, tensors = data.packed(1)
        state = data.state()
        header = {"kind": "model", "values": nodes, "weight_seed": weight_seed, "keep": keep}
        header["everywhere"] = self.live and on_the_device(state)
        described = [[name, t.dtype, list(t.shape)] for name, t in state]
        made = self._ask(messages.Matched, {**header, "state": described}, tensors, "in its constructor").facts
        given = tuple(t for _, t in state) if made.weights in ("names", "order") else ()
        told = self.seen.downloaded > 0  # what the call has told the host may be kept there
        self._device(given, kind="weights", places=made.places, own=made.own, new=not keep)
        self._kept = keep and bool(made.places) and (told or self.seen.keeps)
        return made.weights

    def call(self, data: TrialData, call_seed: int, reuse: bool) -> Answered[messages.Called]:
        """Runs one forward pass. Raises `Failed`."""
        nodes, tensors = data.packed(0)
        given = self._device(tensors, kind="inputs", reuse=reuse, call_seed=call_seed).facts
        where = {"places": given.places, "rooms": given.rooms}
        header = {"kind": "call", "values": nodes, **where, "call_seed": call_seed}
        returned = self._ask(messages.Returned, header, (), "in its forward pass")
        wanted = [place for place in returned.facts.outputs if place is not None]
        report = self._device(kind="finish", places=[*wanted, *(given.places[i] for i in data.changed)])
        called = self._called(returned, report.facts)
        self._raise_for(called)
        return Answered(called, _in_order(returned, report.tensors) + report.tensors[len(wanted) :])

    def moved(self) -> Kept:
        """Returns copies of what operators have moved in the last call. Raises `Failed`."""
        before = self.seen
        try:
            answer = self._device(kind="moved")
        finally:
            self.seen = before
        first, second, _ = answer.facts.kept
        tensors = answer.tensors
        lists = tensors[:first], tensors[first : first + second], tensors[first + second :]
        return Kept(*lists, full=answer.facts.kept_full)

    def _raise_for(self, called: messages.Called) -> None:
        """Raises `Failed` for an operator that was refused, or that failed, after the candidate had recorded it."""
        if refusal := self._refusal():
            raise refusal
        if self.seen.error and not any(f.severity == "fault" for f in called.findings):
            raise Failed("runtime_error", f"on the device: {self.seen.error}"[:500], cause="device")

    def sampled_call(self, outline: Outline, trial: Trial) -> tuple[messages.Called, Picked | None]:
        """Constructs the model and calls it at a size of which only a sample is run; returns the facts, and elements of
        the outputs whose values are known. Raises `Failed`."""
        arguments, init = outline.nodes
        state = outline.state or []
        described = [[name, t.dtype, list(t.shape)] for name, t in state]
        header = {"kind": "model", "values": [init], "weight_seed": trial.weight_seed, "keep": False}
        header |= {"state": described, "everywhere": True}
        made = self._ask(messages.Matched, header, (), "in its constructor, at full size").facts
        given = tuple(t for _, t in state) if made.weights in ("names", "order") else ()
        self._device(given, kind="weights", places=made.places, own=made.own if given else [], new=True)
        seed = trial.input_seed
        asked = {"forms": outline.forms, "exact": outline.exact, "call_seed": seed}
        asked["sound"] = outline.state is not None and made.weights != "seed"
        at = self._device(outline.samples, kind="inputs", **asked).facts
        where = {"places": at.places, "rooms": at.rooms}
        header = {"kind": "call", "values": [arguments], **where, "call_seed": seed}
        returned = self._ask(messages.Returned, header, (), "in its forward pass, at full size")
        wanted = [place for place in returned.facts.outputs if place is not None]
        report = self._device(kind="finish", places=wanted)
        called = self._called(returned, report.facts)
        if refusal := self._refusal():
            raise refusal
        if self.seen.undecided:
            raise Failed("unsupported", "it asks for values that are not known at this size")
        pairs = report.tensors
        known = made.weights != "seed" and outline.state is not None and len(pairs) == 2 * len(returned.facts.outputs)
        shapes = [tuple(place[2]) for place in wanted]
        return called, Picked(pairs[::2], pairs[1::2], shapes) if known and pairs else None

    def _called(self, returned: Answered[messages.Returned], report: messages.DeviceReport) -> messages.Called:
        """Returns the facts of a call: those of the device, and the runner's about its objects."""
        origins = iter(report.origins)
        host = iter(returned.tensors)
        made = [
            next(origins) if place is not None else {"host": _count(next(host))} for place in returned.facts.outputs
        ]
        made += list(origins)  # of inputs that the reference changes
        told = {name: value for name, value in report if name not in ("kind", "problem", "places", "origins", "served")}
        told |= {
            "origins": made,
            "foreign": [],  # told by the origins; a default that pydantic makes costs a tenth of a call
            "problems": returned.facts.problems,
            "idle": bool(made) and not (any(map(_of_kernels, made)) or report.served),
        }
        self.last = called = messages.Called.model_construct(**{**told, **self._both(returned.facts), "kind": "called"})
        return called

    def _both(self, runner: messages.AnswerState) -> dict[str, Any]:
        """Returns the observations that runner and device process both make."""
        device = self.seen
        return {
            "unsupported": [*device.unsupported, *runner.unsupported],
            "findings": [*device.findings, *runner.findings],
            "compile_errors": runner.compile_errors,
            "missing_libraries": runner.missing_libraries,
            "library_ops": runner.library_ops,
            "prints": runner.prints + device.prints,
            "snooped": runner.snooped,
            "patched": runner.patched,
        }

    def _device(self, tensors: tuple[TensorBytes, ...] = (), **header: Any) -> Answered[messages.DeviceReport]:
        """Sends one message to the device process. Raises `Failed`."""
        started = time.monotonic()
        try:
            answer = self.device.ask(header, tensors, soon(self.left))
        except ChannelTimeout:
            self.sound = False
            raise Failed("timeout", f"its launches did not end within {self.options.timeout:g} s") from None
        except ChannelClosed:
            self.sound = False
            raise self._device_death() from None
        finally:
            self.left -= time.monotonic() - started
        self.seen = self.reports.model_validate(answer.header)
        if self.seen.problem:
            self.last = messages.AnswerState.model_construct(**self._both(self.last))
            raise self._problem()
        return Answered(self.seen, answer.tensors)

    def _problem(self) -> Failed:
        refused = self._refusal()
        return refused or Failed("runtime_error", self.seen.error or self.seen.problem, cause="device")

    def _refusal(self) -> Failed | None:
        """Returns the verdict on an operator that the rule refuses."""
        if not self.seen.refused:
            return None
        self.refused = tuple(self.seen.refused)
        names = ", ".join(self.seen.refused[:5])
        rule = "library-op" if any(b.status == "ok" for b in self.builds) else "no-own-kernel"
        what = f"computes with {names}, which the rule {self.rule} does not allow on the device"
        finding = Finding(rule=rule, evidence=what, severity="reject")
        return Failed("rejected", f"{rule}: {what}"[:500], finding)

    def _device_death(self) -> Failed:
        fate = self.device.child.natural_fate()
        if fate.rss_mb > self.options.memory_mb * 0.9:
            return Failed("runtime_error", f"out of device memory: it reached {fate.rss_mb} MB", cause="memory")
        return Failed("timeout", f"its launches used up the processor time ({fate})")

    def _failure(self, raised: messages.Raised, where: str) -> Failed:
        """Returns the verdict on an exception, in the light of what the device process saw before it."""
        try:
            self._device(kind="finish", places=None)
        except Failed:
            pass
        self.last = messages.Raised.model_construct(**{**dict(raised), **self._both(raised)})
        return self._refusal() or super()._failure(raised, where)

    def close(self) -> None:
        """Ends the runner, and returns the device process."""
        super().close()
        if self.sound:
            self._devices.give_back(self.device)
        else:
            self.device.end()


def on_the_device(state: Sequence[tuple[str, TensorBytes]]) -> bool:
    """Tells whether a constructor makes its weights on the device: the judge's replace them, and drawing gigabytes on
    the host would take its whole time."""
    return sum(len(t.data) for _, t in state) > MOST_DRAWN


def _of_kernels(made: dict[str, int]) -> bool:
    """Tells whether an output has elements that kernels stored, or that were made of these."""
    return any(made.get(label) for label in ("kernel", "carried", "finished"))


def _count(tensor: TensorBytes) -> int:
    count = 1
    for n in tensor.shape:
        count *= n
    return count


def _in_order(returned: Answered[messages.Returned], device: tuple[TensorBytes, ...]) -> tuple[TensorBytes, ...]:
    """Returns the outputs in order: from the device process by place, and from the runner where they are the host's."""
    there, here = iter(device), iter(returned.tensors)
    return tuple(next(there) if place is not None else next(here) for place in returned.facts.outputs)
