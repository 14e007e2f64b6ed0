"""The replayer: a trusted child that repeats the programs of traced calls, of one candidate after another.

Only a candidate's device code comes here; its host code stays in the process that was traced (`handle_runner`). So one
process, with the GPU opened once, serves many candidates. Their kernels can do no more here than in any process that
shares a block with the referee: the referee does not trust the inputs there, and expected outputs are elsewhere. A
kernel that meets a fault ends this process, and another one takes its place.

Messages in: `load`, `weights`, `exchange`, `run`, `release`. Out: `ready`, `loaded`, `weighed`, `exchanged`, `ran`,
`released`, `failed`.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import torch

from kernelwright.backends.gpu import GpuRuntime, architecture
from kernelwright.builds import BuildRequest, BuildResult
from kernelwright.evaluation.candidate.repeated_records import Blocks, Repeated
from kernelwright.evaluation.device import devices
from kernelwright.evaluation.device.devices import Device
from kernelwright.evaluation.device.timed_calls import TimedCalls
from kernelwright.evaluation.processes import wire
from kernelwright.evaluation.processes.channel import Channel, Frame
from kernelwright.evaluation.processes.messages import Trace
from kernelwright.evaluation.processes.serving import answer_all
from kernelwright.evaluation.program.tensor_contents import changed, overwritten, same_bits
from kernelwright.machine.runtime import Runtime
from kernelwright.tasks import storages

Tensors = list[torch.Tensor]
_NO_TIMES = devices.Times(0.0, 0.0, 0.0, False)


class Replayer:
    """The current candidate: its device code and its program."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.calls = TimedCalls(device)
        self.programs: dict[str, Any] = {}
        self.repeated: Repeated | None = None
        self.checked: Tensors = []
        self.runtime: Any = self._fresh_runtime()

    def _fresh_runtime(self) -> Any:
        return GpuRuntime(_refused) if self.device.name == "cuda" else Runtime(_refused)

    def load(self, message: Frame) -> dict[str, Any]:
        """Loads a program in place of the previous one, with its device code. Raises `TaskError` for a program that no
        runner makes. The first call executes what the constructor did. With `keep`, it is the previous program on new
        weights."""
        header = message.header
        before = self.repeated if header["keep"] else None
        if before is None:
            self._forget()
        for name, code in header["codes"].items():
            if name not in self.programs:
                self.programs[name] = self.runtime.program(BuildResult("ok", ptx=code["ptx"], cubin=code["cubin"]))
        trace = Trace.model_validate(header["trace"])
        absent = [b""] * (trace.setup_parts if before is not None else 0)
        parts = [*absent, *(bytes(t.data) for t in message.tensors)]
        self.repeated = Repeated(trace, parts, self.programs, self.runtime, self.device.name)
        if before is not None:
            self.repeated.follow(before)
        return {}

    def weights(self, message: Frame) -> dict[str, Any]:
        """Takes the judge's weights, which the next call writes to their places."""
        assert self.repeated is not None
        self.repeated.weights = [wire.unpack_tensor(t) for t in message.tensors]
        return {}

    def _forget(self) -> None:
        self.checked, self.repeated = [], None
        self.calls.kept = []
        for program in self.programs.values():
            if self.device.name == "cuda":
                program.unload()
        self.programs = {}
        self.runtime = self._fresh_runtime()

    def exchange(self, message: Frame) -> dict[str, Any]:
        """Opens the block that the referee shares, in place of the previous one; an empty handle only closes. Returns
        the architecture to build device code for; empty without a GPU."""
        self._forget()
        self.calls.exchange(message.header["handle"], message.header["nbytes"])
        return {"arch": architecture() if self.device.name == "cuda" else ""}

    def release(self, message: Frame) -> dict[str, Any]:
        """Forgets the previous candidate; with `all`, returns all of its memory to the device."""
        self._forget()
        self.calls.exchange("", 0)
        devices.give_back(self.device.name, everything=message.header.get("all", False))
        return {}

    def run(self, message: Frame) -> dict[str, Any]:
        """Runs full-size calls, one per slot, on copies of the shared inputs; outputs are copied to the shared block.
        With `moves` it runs all but launches, after calls have run: `idle` tells whether launches change nothing."""
        header = message.header
        assert self.repeated is not None
        if header["fresh"]:
            self.checked = []
            self.calls.refresh()
        given = self.calls.decoys(header) if header["late"] else self.calls.given(header)
        if header["reuse"] and self.checked:
            given = [overwritten(self.checked, given[0])]
        self.checked = given[0] if header["watch"] else []
        self.calls.keep(given)
        self.repeated.prepare(storages.copies(given[0]) if self.repeated.weights is not None else ())
        devices.poison(self.device, header["outputs"], len(given))
        self.device.poison_chip()
        torch.manual_seed(header["call_seed"])
        results, times, copies = self._called(header, given)
        if header["moves"]:  # memory that was never written may still hold results of the launches
            results = [self._replay(tensors, header["changed"], launches=False, poisoned=True) for tensors in given]
        places = [[(slot * header["stride"], *place) for place in header["outputs"]] for slot in range(len(results))]
        pairs = [pair for row, result in zip(places, results, strict=True) for pair in zip(row, result, strict=True)]
        idle = header["moves"] and all(same_bits(self.calls.view(*place), out) for place, out in pairs)
        for place, out in [] if header["moves"] else pairs:
            self.calls.view(*place).copy_(out)
        mutated: list[int] = []
        if header["watch"]:
            mutated = changed(self.calls.inputs(header, 0), given[0])
        self.device.synchronize()
        forms = [[wire.dtype_name(t.dtype), list(t.shape)] for t in results[-1]]
        clocks = {"times": dataclasses.asdict(times), "copies": dataclasses.asdict(copies)}
        return {**clocks, "outputs": forms, "mutated": mutated, "idle": idle}

    def _called(
        self, header: dict[str, Any], given: list[Tensors]
    ) -> tuple[list[Tensors], devices.Times, devices.Times]:
        after = header["changed"]
        calls = [functools.partial(self._replay, tensors, after, not header["moves"]) for tensors in given]
        if header["watch"]:
            return [calls[0]()], _NO_TIMES, _NO_TIMES
        if header["late"]:
            return self.calls.measure_late(header, calls, given)
        results, times = self.device.measure(calls)
        return results, times, times

    def _replay(self, given: Tensors, after: list[int], launches: bool = True, poisoned: bool = False) -> Tensors:
        """Repeats one call, and returns its outputs and the inputs of the numbers `after`. Without `launches`, only
        fills, copies and operators; with `poisoned`, allocated memory holds NaN."""
        assert self.repeated is not None
        return self.repeated.call(Blocks(self.repeated, given, poisoned), launches) + [given[i] for i in after]


def _refused(_request: BuildRequest) -> BuildResult:
    return BuildResult("compile_error", log="a replayer builds nothing")


def serve(channel: Channel, level: str, device: Device) -> None:
    """Answers the judge until it closes the channel."""
    replayer = Replayer(device)
    channel.send({"kind": "ready", "level": level, "launch_ms": device.launch_ms})
    answer_all(
        channel,
        {
            "load": ("loaded", replayer.load),
            "weights": ("weighed", replayer.weights),
            "exchange": ("exchanged", replayer.exchange),
            "run": ("ran", replayer.run),
            "release": ("released", replayer.release),
        },
    )
