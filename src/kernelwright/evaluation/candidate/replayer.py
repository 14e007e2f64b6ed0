"""The replayer: a trusted child that repeats the launches of traced calls, of one candidate after another.

Only a candidate's device code comes here; its host code stays in the runner that traced it (`traced_runner`). So one
process, with the GPU opened once, serves many candidates. Their kernels can do no more here than in any process that
shares a block with the referee: the referee does not trust the inputs there, and expected outputs are elsewhere. A
kernel that meets a fault ends this process, and another one takes its place.

Messages in: `load`, `exchange`, `run`, `release`. Out: `ready`, `loaded`, `exchanged`, `ran`, `released`, `failed`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import torch

from kernelwright.backends.gpu import GpuRuntime, architecture
from kernelwright.builds import BuildRequest, BuildResult
from kernelwright.errors import TaskError
from kernelwright.evaluation.device import devices
from kernelwright.evaluation.device.devices import Device
from kernelwright.evaluation.device.timed_calls import TimedCalls
from kernelwright.evaluation.processes import wire
from kernelwright.evaluation.processes.channel import Channel, Frame
from kernelwright.evaluation.processes.serving import answer_all
from kernelwright.evaluation.program.tensor_contents import changed, overwritten, same_bits
from kernelwright.machine.runtime import Runtime

Tensors = list[torch.Tensor]
_NO_TIMES = devices.Times(0.0, 0.0, 0.0, False)


@dataclasses.dataclass
class ReplayedLaunch:
    """One launch, complete except for addresses: `places` has (parameter, offset in it, buffer, bytes into the
    buffer)."""

    program: Any
    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    args: list[bytes]
    places: list[tuple[int, int, int, int]]

    def arguments(self, addresses: Sequence[int]) -> list[bytes]:
        """Returns the parameters' bytes, with each buffer's address filled in."""
        args = list(self.args)
        for index, offset, buffer, into in self.places:
            address = (addresses[buffer] + into).to_bytes(8, "little")
            args[index] = args[index][:offset] + address + args[index][offset + 8 :]
        return args


class Replayer:
    """The current candidate: its device code, the launches of a call, and their buffers."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.calls = TimedCalls(device)
        self.programs: dict[str, Any] = {}
        self.launches: list[ReplayedLaunch] = []
        self.buffers: list[tuple[str, int, int]] = []
        self.moves: list[dict[str, Any]] = []
        self.outputs: list[list[Any]] = []
        self.weights: dict[int, torch.Tensor] = {}
        self.checked: Tensors = []
        self.runtime: Any = self._fresh_runtime()

    def _fresh_runtime(self) -> Any:
        return GpuRuntime(_refused) if self.device.name == "cuda" else Runtime(_refused)

    def load(self, message: Frame) -> dict[str, Any]:
        """Loads a trace in place of the previous one, with its device code and weights. The first call puts the weights
        on the device. Raises `TaskError` for a trace that no runner makes."""
        header = message.header
        self._forget()
        for name, code in header["codes"].items():
            self.programs[name] = self.runtime.program(BuildResult("ok", ptx=code["ptx"], cubin=code["cubin"]))
        self.buffers = [(kind, number, nbytes) for kind, number, nbytes in header["buffers"]]
        self.moves, self.outputs = header["moves"], header["outputs"]
        self.launches = [self._launch(one) for one in header["launches"]]
        sent = [wire.unpack_tensor(t) for t in message.tensors]
        self.weights = dict(zip(header["sent"], sent, strict=True))
        return {}

    def _launch(self, one: dict[str, Any]) -> ReplayedLaunch:
        program = self.programs.get(one["code"])
        known = program.kernels.get(one["entry"]) if program is not None else None
        args = [bytes.fromhex(value) for value in one["args"]]
        if known is None or [len(value) for value in args] != [size for size, _ in known.params]:
            raise TaskError(f"the launch of {one['entry']} does not fit its code")
        for index, offset, buffer, into in one["places"]:
            if index >= len(args) or offset + 8 > len(args[index]) or buffer >= len(self.buffers):
                raise TaskError(f"an address in the launch of {one['entry']} lies nowhere")
            if into >= self.buffers[buffer][2]:
                raise TaskError(f"an address in the launch of {one['entry']} is beyond its memory")
        sizes = tuple(one["grid"]), tuple(one["block"]), one["shared_bytes"]
        return ReplayedLaunch(program, one["entry"], *sizes, args, [tuple(place) for place in one["places"]])

    def _forget(self) -> None:
        self.checked, self.launches, self.weights = [], [], {}
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
        With `moves` it only fills and copies, after calls have run: `idle` tells whether launches change nothing."""
        header = message.header
        self.weights = {number: tensor.to(self.device.name) for number, tensor in self.weights.items()}
        if header["fresh"]:
            self.checked = []
            self.calls.refresh()
        given = self.calls.decoys(header) if header["late"] else self.calls.given(header)
        if header["reuse"] and self.checked:
            given = [[overwritten(old, new) for old, new in zip(self.checked, given[0], strict=True)]]
        self.checked = given[0] if header["watch"] else []
        self.calls.keep(given)
        devices.poison(self.device, header["outputs"], len(given))
        self.device.poison_chip()
        results, times, copies = self._called(header, given)
        if header["moves"]:  # memory that was never written may still hold results of the launches
            results = [self._replay(tensors, launches=False, poisoned=True) for tensors in given]
        places = [[(slot * header["stride"], *place) for place in header["outputs"]] for slot in range(len(results))]
        pairs = [pair for row, result in zip(places, results, strict=True) for pair in zip(row, result, strict=True)]
        idle = header["moves"] and all(same_bits(self.calls.view(*place), out) for place, out in pairs)
        for place, out in [] if header["moves"] else pairs:
            self.calls.view(*place).copy_(out)
        mutated: list[int] = []
        if header["watch"]:
            mutated = changed([self.calls.view(0, *place) for place in header["inputs"]], given[0])
        self.device.synchronize()
        forms = [[wire.dtype_name(t.dtype), list(t.shape)] for t in results[-1]]
        clocks = {"times": dataclasses.asdict(times), "copies": dataclasses.asdict(copies)}
        return {**clocks, "outputs": forms, "mutated": mutated, "idle": idle}

    def _called(
        self, header: dict[str, Any], given: list[Tensors]
    ) -> tuple[list[Tensors], devices.Times, devices.Times]:
        calls = [functools.partial(self._replay, tensors, not header["moves"]) for tensors in given]
        if header["watch"]:
            return [calls[0]()], _NO_TIMES, _NO_TIMES
        if header["late"]:
            return self.calls.measure_late(header, calls, given)
        results, times = self.device.measure(calls)
        return results, times, times

    def _replay(self, given: Tensors, launches: bool = True, poisoned: bool = False) -> Tensors:
        """Replays one call: allocates memory, launches kernels, and returns the outputs as views of that memory.
        Without `launches`, only fills and copies; with `poisoned`, allocated memory holds NaN."""
        blocks = [self._block(given, number) for number in range(len(self.buffers))]
        addresses = [block.data_ptr() if block is not None else 0 for block in blocks]
        self.runtime.given(given, self.weights.values())
        for block, (kind, _, _) in zip(blocks, self.buffers, strict=True):
            if kind == "made" and block is not None:
                self.runtime.register(block)
                if poisoned:
                    block.fill_(0xFF)
        for index, one in enumerate(self.launches):
            self._move(blocks, index)
            if launches:
                args = one.arguments(addresses)
                self.runtime.launch(one.program, one.entry, one.grid, one.block, one.shared_bytes, args)
        self._move(blocks, len(self.launches))
        return [self._view(blocks, place) for place in self.outputs]

    def _move(self, blocks: list[torch.Tensor | None], after: int) -> None:
        """Fills and copies the memory whose turn is after this number of launches."""
        for one in self.moves:
            if one["after"] == after:
                to, source = self._view(blocks, one["to"]), one["source"]
                to.fill_(source) if isinstance(source, float) else to.copy_(self._view(blocks, source))

    def _block(self, given: Tensors, number: int) -> torch.Tensor | None:
        kind, index, nbytes = self.buffers[number]
        if kind == "input":
            return given[index]
        if kind == "weight":
            return self.weights.get(number)
        return torch.empty(nbytes, dtype=torch.uint8, device=self.device.name)

    def _view(self, blocks: list[torch.Tensor | None], place: list[Any]) -> torch.Tensor:
        number, dtype, shape, strides, offset = place
        block = blocks[number]
        assert block is not None
        kind, flat = getattr(torch, dtype), block.reshape(-1).view(torch.uint8)
        return flat[: flat.numel() // kind.itemsize * kind.itemsize].view(kind).as_strided(shape, strides, offset)


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
            "exchange": ("exchanged", replayer.exchange),
            "run": ("ran", replayer.run),
            "release": ("released", replayer.release),
        },
    )
