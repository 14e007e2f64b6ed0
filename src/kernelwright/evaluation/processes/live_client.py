"""The judge's side of a candidate whose records a GPU executes as they arrive.

It takes the place of a runner on the GPU: the same messages of the judge, the same shared block, the same clock. The
candidate's process holds handles alone, so what the GPU did is what the live device tells, and nothing rests on the
runner's word but the identity of its outputs.
"""

from __future__ import annotations

import hashlib
from typing import Any

from kernelwright.builds import BuildResult
from kernelwright.errors import WorkerDied
from kernelwright.evaluation.case import Case
from kernelwright.evaluation.failure import Failed
from kernelwright.evaluation.processes import messages
from kernelwright.evaluation.processes.channel import ChannelClosed, ChannelTimeout
from kernelwright.evaluation.processes.gpu_seats import Gpu, Seat
from kernelwright.evaluation.processes.pool import ChildLimits
from kernelwright.evaluation.processes.program_client import ProgramClient
from kernelwright.evaluation.trials import TrialData


class LiveProgram(ProgramClient):
    """The runner with handles and the live device of one candidate."""

    live = True
    reports = messages.LiveReport

    def __init__(self, case: Case, gpu: Gpu) -> None:
        """Takes a live device. Raises `Failed` if there is none: it is another road's turn then."""
        self.gpu = gpu
        try:
            super().__init__(case, None, "live_device", ChildLimits(), gpu.live)
        except (WorkerDied, ChannelClosed, ChannelTimeout) as error:
            raise Failed("unsupported", f"no live device: {error}"[:2000]) from error
        self.arch = ""
        self.launches, self.downloaded = 0, 0
        """The launches of the last call, and the bytes that it fetched."""

    @property
    def launch_ms(self) -> float:
        return self.device.child.launch_ms

    def seated(self, _seat: Seat) -> None:
        """Does nothing: a live device belongs to no seat."""

    def load(self, task: Any) -> None:
        """Executes the candidate's file. Raises `Failed`."""
        self.arch = self._live(kind="exchange", handle="", nbytes=0).arch
        super().load(task)

    def built(self, request: dict[str, Any], result: BuildResult) -> None:
        """Builds the same device code for the card, and hands it to the live device. Raises `Failed`."""
        if result.status != "ok" or not result.ptx:
            return
        made = self.builder.for_card(request, result, self.arch, self.options.build_timeout)
        if isinstance(made, BuildResult):
            raise Failed("unsupported", f"its device code does not compile for {self.arch}: {made.log}"[:500])
        name = hashlib.sha256(result.ptx.encode()).hexdigest()
        self._live(kind="code", name=name, ptx=made[0], cubin=made[1])

    def exchange(self, handle: str, nbytes: int) -> None:
        """Has the live device open the block that the referee shares, or close it. Raises `Failed`."""
        self._live(kind="exchange", handle=handle, nbytes=nbytes)

    def make(self, data: TrialData, weight_seed: int, keep: bool) -> str:
        """Constructs the model, or only changes its weights. Raises `Failed`."""
        if not keep:
            self._live(kind="setup")
        return super().make(data, weight_seed, keep)

    def run(self, header: dict[str, Any]) -> messages.Ran:
        """Runs full-size calls on shared memory, one after another; answers in the form of a runner. Raises
        `Failed`."""
        if header["profile"] or header["graph"] or header["late"]:
            raise Failed("unsupported", "a live program is neither profiled nor captured")
        ran = [self._call(header, slot, nodes) for slot, nodes in enumerate(header["calls"])]
        return ran[-1]

    def _call(self, header: dict[str, Any], slot: int, nodes: list[Any]) -> messages.Ran:
        wanted = ("stride", "inputs", "forms", "changed", "watch", "reuse", "fresh", "call_seed")
        place = {"slot": slot, **{name: header[name] for name in wanted}}
        given = self._live(kind="inputs", **place)
        asked = {"kind": "call", "values": [{"l": nodes}], "places": given.places, "rooms": given.rooms}
        returned = self._ask(messages.Returned, {**asked, "call_seed": header["call_seed"]}, (), "at full size")
        outputs = returned.facts.outputs
        if None in outputs:
            raise Failed("unsupported", "an output is in host memory")
        kept = outputs if header["returned"] else []
        report = self._live(kind="finish", places=kept, outputs=header["outputs"], **place)
        if report.error:
            raise self._refusal() or Failed("runtime_error", f"on the device: {report.error}"[:500], cause="device")
        called = self._called(returned, report)
        self._raise_for(called)
        self.launches = sum(one.count for one in report.facts.launches)
        self.downloaded = report.downloaded
        told = {name: value for name, value in called if name not in ("kind", "written")}
        return messages.Ran.model_construct(
            **told, kind="ran", times=report.times, copies=report.times, kernels=[], outputs=report.outputs
        )

    def _live(self, **header: Any) -> messages.LiveReport:
        """Sends one message to the live device. Raises `Failed`."""
        facts = self._device(**header).facts
        assert isinstance(facts, messages.LiveReport)
        if facts.broken:
            self.sound = False
            self.gpu.faults.note()
        return facts

    def confirm(self) -> None:
        """Does nothing: all calls ran as they came."""

    def release(self) -> None:
        """Has the live device close the shared block. Raises `Failed`."""
        self.exchange("", 0)

    def note(self) -> str:
        """Returns a summary of a call's program for a result's environment."""
        return f"live: {self.launches} launches a call, {self.downloaded} bytes fetched"
