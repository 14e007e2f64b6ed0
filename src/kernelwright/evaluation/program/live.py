"""The live device: executes a candidate's records on a GPU as they arrive, whatever the values say.

It is for programs that depend on values: the host waits for a number and goes on by it. The candidate's process holds
handles here, too. Values go to it only where it asks for them, and are counted. The referee shares a block of memory
with this process: inputs come from there, and outputs go there.

What kernels store cannot be seen on a GPU. A launch labels each block that it was given, or that a table leads to which
the host has uploaded. A block that operators or the host have made stays theirs if a watched launch leaves it as it is.

Messages of the judge beside those of `executor`: `exchange` (opens the referee's block), `code` (device code built for
the card). `inputs` and `finish` name slots of the block.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, ClassVar, Literal, cast

import torch

from kernelwright.backends.device_addresses import HIGH, LOW, is_device
from kernelwright.backends.gpu import GpuRuntime, architecture
from kernelwright.builds import BuildRequest, BuildResult, KernelBuildFailed
from kernelwright.errors import DeviceError
from kernelwright.evaluation.device import devices, host_driver
from kernelwright.evaluation.device.card import LiveCard
from kernelwright.evaluation.device.devices import Device
from kernelwright.evaluation.device.timed_calls import TimedCalls
from kernelwright.evaluation.processes import wire
from kernelwright.evaluation.processes.channel import Channel, Frame
from kernelwright.evaluation.program import memory
from kernelwright.evaluation.program.executor import ITEMS, MAX_MODULES, ProgramDevice, serve_devices
from kernelwright.evaluation.program.forms import Place, decode
from kernelwright.evaluation.program.glue import Glue, tensors_in
from kernelwright.evaluation.program.live_memory import LiveMemory
from kernelwright.evaluation.program.live_repeat import MOST_KEPT_BYTES, Before, CallLog, allocates
from kernelwright.evaluation.program.machine_runtime import RepeatingMachine
from kernelwright.evaluation.program.memory import GIVEN_LOW, BadAddress, Block
from kernelwright.evaluation.program.moved_labels import Execution
from kernelwright.evaluation.program.stream import StreamRecord
from kernelwright.machine import LaunchAttributes, driver
from kernelwright.records import LibraryRule
from kernelwright.tasks import draws

SUSPECT = (memory.GLUE, memory.HOST, memory.MOVED)
"""Labels that a block keeps if a watched launch leaves it unchanged."""
MOST_MARKS = 100_000
"""The most points in time that a candidate may record."""
SPIN_SECONDS = 0.001
"""Seconds after a record in which the next one is looked for without sleep; waking up would be part of the time."""
UNREPEATABLE = frozenset(("module", "count", "shaped"))
"""Records after which a call's log cannot be repeated: device code that is loaded in a call has its variables then."""
BETWEEN_CALLS = frozenset(("alloc", "free", "integers"))
"""Records that may follow the end of a call, until the next one begins or a model is constructed."""


_IN_PLACE: dict[str, Callable[[torch.Tensor, list[Any]], Any]] = {
    **dict.fromkeys(("zeros", "zeros_like", "new_zeros"), lambda made, _args: made.zero_()),
    **dict.fromkeys(("ones", "ones_like", "new_ones"), lambda made, _args: made.fill_(1)),
    **dict.fromkeys(("full", "full_like"), lambda made, args: made.fill_(args[1])),
    "new_full": lambda made, args: made.fill_(args[2]),
    **dict.fromkeys(("clone", "_to_copy"), lambda made, args: made.copy_(args[0])),
}
"""Writes the only result of an operator into a tensor, from the operator's positional arguments, by its name."""
_NO_TIMES = devices.Times(0.0, 0.0, 0.0, False)


def card_of(device: Device) -> LiveCard:
    """Returns the card behind a device. Raises `DeviceError`."""
    firsts = (LOW, GIVEN_LOW)
    if device.name == "cuda":
        return LiveCard(driver.load(), devices.bytes_at, "cuda", firsts)
    return LiveCard(host_driver.HostDriver(), host_driver.view, "cpu", firsts)


def _no_builds(_request: BuildRequest) -> BuildResult:
    return BuildResult("compile_error", log="a device builds nothing")


class LiveGlue(Glue):
    """Runs operators on the card, and labels each tensor as a whole."""

    element_labels = False

    def __init__(self, blocks: LiveMemory, rule: LibraryRule, log: CallLog) -> None:
        super().__init__(blocks, rule)
        self.log = log

    def execute(
        self, function: Any, arguments: list[Any], results: list[Any], parts: Sequence[bytearray]
    ) -> Execution | None:
        """Executes an operator. What only fills or copies one tensor does so at its place, as torch's allocator would
        have it: another copy would be timed."""
        place = results[0] if len(results) == 1 else None
        write = _IN_PLACE.get(function.overloadpacket.__name__)
        if place is None or write is None or 0 in place[2]:
            done = super().execute(function, arguments, results, parts)
            if done is not None:
                views = [self.blocks.view(p) if p is not None else None for p in results]
                self.log.add(functools.partial(_operated, function, done.plain, done.named, views))
            return done
        plain = decode(arguments[0], self.blocks.view, self._host(parts), self.blocks.device)
        made = self.blocks.view(place)
        with torch.no_grad():
            write(made, plain)
        self.log.add(functools.partial(_written, write, made, plain))
        return Execution(plain, {}, made)

    def seed_again(self) -> None:
        """Sets the generators of the call back to their seeds."""
        for generator in self._generators.values():
            generator.manual_seed(generator.initial_seed())


@torch.no_grad()
def _operated(function: Any, plain: list[Any], named: dict[str, Any], views: list[torch.Tensor | None]) -> None:
    """Executes an operator again, and copies its new tensors to their places."""
    for view, tensor in zip(views, tensors_in(function(*plain, **named)), strict=True):
        if view is not None:
            view.copy_(tensor)


@torch.no_grad()
def _written(write: Callable[[torch.Tensor, list[Any]], Any], made: torch.Tensor, plain: list[Any]) -> None:
    write(made, plain)


def _fetched(tensor: torch.Tensor) -> None:
    tensor.resolve_conj().resolve_neg().cpu()


class LiveDevice(ProgramDevice):
    """The memory, the device code and the facts of one candidate on a GPU."""

    records: ClassVar[dict[str, str]] = {**ProgramDevice.records, "end": "_end", "mark": "_mark", "elapsed": "_elapsed"}
    answering: ClassVar[frozenset[str]] = ProgramDevice.answering | {"mark", "elapsed"}

    card: LiveCard
    live: LiveMemory

    def __init__(self, device: Device, opened: Callable[[], LiveCard]) -> None:
        """Takes the card that `opened` returns once a candidate comes."""
        super().__init__()
        self.place, self._opened = device, opened
        self.calls = TimedCalls(device)
        self.codes: dict[str, tuple[str, str | None]] = {}
        """PTX and machine code by the name that records use."""
        self.broken = False
        """True after a fault that the GPU's context does not survive."""
        self._held: list[Block] = []
        self._places: list[Place] = []
        self._tables: dict[int, set[int]] = {}
        """The blocks that addresses uploaded into a block lead to, by address."""
        self._changed: frozenset[int] = frozenset()
        """The blocks of inputs that the reference changes."""
        self._watched = self._timed = False
        self._phase: Literal["setup", "call", "ended"] = "setup"
        self._waited, self._times = 0.0, _NO_TIMES
        self._launches: dict[str, int] = {}
        self._log = CallLog()
        self._before: Before | None = None
        """The memory before the call, if it may be repeated."""
        self._heap = False
        """True if any device code allocates memory by itself."""

    def open(self, header: dict[str, Any]) -> None:
        """Sets the library rule, and opens the card."""
        cuda = self.place.name == "cuda"
        self.card = self._opened()
        self.blocks = self.live = LiveMemory(HIGH - LOW, self.card)
        self.runtime: Any = GpuRuntime(_no_builds) if cuda else RepeatingMachine(self.blocks)
        self.glue = LiveGlue(self.live, header["rule"], self._log)
        self.answers |= {"exchange": self.exchange, "code": self.code, "setup": self.setup}

    # The judge's messages.

    def exchange(self, message: Frame) -> dict[str, Any]:
        """Opens the block that the referee shares, or closes it; tells the architecture to build device code for."""
        self.calls.exchange(message.header["handle"], message.header["nbytes"])
        return {"arch": architecture() if self.place.name == "cuda" else ""}

    def setup(self, _message: Frame) -> dict[str, Any]:
        """Lets the constructor of a model work on the device."""
        self._phase = "setup"
        return {}

    def code(self, message: Frame) -> dict[str, Any]:
        """Takes device code that a builder has made for the card, before a record names it."""
        header = message.header
        if len(self.codes) < MAX_MODULES:
            self.codes[header["name"]] = header["ptx"], header["cubin"]
            self._heap |= allocates(header["ptx"])
        return {}

    def inputs(self, message: Frame) -> dict[str, Any]:
        """Copies the inputs of one slot into memory of the candidate; returns their places. A call that is timed
        begins here."""
        self._drain()
        header = message.header
        if header["fresh"]:
            self.calls.refresh()
        before, forms = self._held, header["forms"]
        shared = [self.calls.view(header["slot"] * header["stride"], *place) for place in header["inputs"]]
        reused = header["reuse"] and [b.nbytes for b in before] == [max(1, len(m)) for m in shared]
        if not reused:
            self._held = [self.live.given(max(1, len(m)), f"input {k}") for k, m in enumerate(shared)]
            for block in before:  # afterwards, so that addresses change from call to call
                self.live.free(block.address)
        self._fill_inputs(header)
        for block in self._held:
            block.mark(memory.GIVEN)
        self._places = [
            [
                self._held[f["memory"]].address if f["nbytes"] else 0,
                f["dtype"],
                f["shape"],
                f["strides"],
                f["offset"],
                0,
            ]
            for f in forms
        ]
        self._changed = frozenset(self._places[k][0] for k in header["changed"])
        self._begin_call(header)
        return {"places": self._places, "rooms": [self._room(p) for p in self._places]}

    def _fill_inputs(self, header: dict[str, Any]) -> None:
        """Copies the inputs of one slot to their places."""
        for block, place in zip(self._held, header["inputs"], strict=True):
            source = self.calls.view(header["slot"] * header["stride"], *place)
            self.live.flat(block)[: len(source)].copy_(source)

    def _room(self, place: Place) -> int:
        return self.live.holding(place[0], 1).nbytes if place[0] else 0

    def _begin_call(self, header: dict[str, Any]) -> None:
        self.error = ""
        self.glue.begin()
        self._seeded(header)
        self._watched, self._timed, self._phase = header["watch"], not header["watch"], "call"
        self._waited, self._times, self._launches = 0.0, _NO_TIMES, {}
        self.live.poisoned = self._watched
        self._before = self._kept() if self._timed and not header["fresh"] else None
        self._log.begin(self._before is not None)
        self.live.poison_free()
        self.place.poison_chip()
        if self._timed:
            self.place.begin("live")

    def _seeded(self, header: dict[str, Any]) -> None:
        self.runtime.begin_call(header["call_seed"])
        draws.seed_all(header["call_seed"])

    def _kept(self) -> Before | None:
        """Returns a copy of the candidate's memory; None if it cannot be copied, or if kernels keep memory of their
        own."""
        if self._heap or Before.nbytes(self.live, self._held) > MOST_KEPT_BYTES:
            return None
        with contextlib.suppress(torch.OutOfMemoryError, DeviceError):
            return Before(self.live, self._held)
        return None

    def finish(self, message: Frame) -> tuple[dict[str, Any], list[Any]]:
        """Waits for the call; copies the tensors at the given places into the slot, and returns the call's facts."""
        self._drain()
        header = message.header
        if header["places"] is None:
            return self.report(self.runtime.end_call(), []), []
        if self._phase != "ended":
            self._end_call()
        facts = self.runtime.end_call()
        self.glue.fresh_weights = False
        self.live.poisoned = True
        if self._log.whole and not self.error and not self._times.hidden:
            self._repeat(header)
        self._before = None
        self._log.drop()
        found = {} if self.error else self._handed_back(header)
        report = self.report(facts, found.pop("mutated", []))
        return {**report, **found, "times": dataclasses.asdict(self._times), "broken": self.broken}, []

    def _repeat(self, header: dict[str, Any]) -> None:
        """Times the call again by its log, on the same inputs and the memory before it. The outputs are then those of
        the log, and so is the device's time; the host's time stays that of the call."""
        assert self._before is not None
        self._before.restore()
        self._fill_inputs(header)
        self._seeded(header)
        cast(LiveGlue, self.glue).seed_again()
        self.place.poison_chip()
        try:
            self.place.begin("repeat")
            again = self.place.end(self._log.run())
            self.card.wait()
        except (RuntimeError, DeviceError) as error:
            self._broke(error)
        else:
            self._times = dataclasses.replace(again, issue_ms=self._times.issue_ms)
        self.runtime.end_call()

    def _broke(self, error: BaseException) -> None:
        self.broken = self.place.name == "cuda"
        self.error = self.error or str(error)[:2000]

    def _handed_back(self, header: dict[str, Any]) -> dict[str, Any]:
        """Copies outputs into the shared block; returns their forms, who made them, and inputs with other values."""
        places = [*header["places"], *(self._places[k] for k in header["changed"])]
        outputs = [self._output(p) for p in places]
        tensors = [tensor for _, tensor in outputs]
        forms = [[wire.dtype_name(t.dtype), list(t.shape)] for t in tensors]
        base = header["slot"] * header["stride"]
        if forms == [[dtype, shape] for _, dtype, shape in header["outputs"]]:
            for place, tensor in zip(header["outputs"], tensors, strict=True):
                self.calls.view(base, *place).copy_(tensor)
        mutated: list[int] = []
        if self._watched:
            shared = [self.calls.view(base, *place) for place in header["inputs"]]
            given = zip(self._held, shared, strict=True)
            other = {b.address for b, m in given if not torch.equal(self.live.flat(b)[: len(m)], m)}
            mutated = [k for k, place in enumerate(self._places) if place[0] in other]
        self.place.synchronize()
        return {"outputs": forms, "mutated": mutated, **self.makers(outputs)}

    def report(self, facts: Any, mutated: list[int]) -> dict[str, Any]:
        """Returns the facts of the call that ended. A kernel's stores are not measured on a GPU."""
        told = super().report(facts, mutated)
        counts = [{"kernel": name, "count": count} for name, count in self._launches.items()]
        told["facts"] = {"launches": counts, "written": {"0": 1} if counts else {}}
        return told

    def forget(self) -> None:
        """Returns all memory to the GPU, and closes the stream and the referee's block."""
        self.calls.exchange("", 0)
        self.codes.clear()
        if self.place.name == "cuda":
            for program in self.modules.values():
                cast(driver.LoadedModule, program).unload()
        super().forget()

    # The candidate's records.

    def _drain(self) -> None:
        """Executes every record that has arrived. While a call is timed, it looks for the next one for a moment."""
        until = 0.0
        while True:
            record = self.stream.next()
            if record is not None:
                self.execute(record)
                until = time.perf_counter() + SPIN_SECONDS
            elif not (self._timed and self._phase == "call") or time.perf_counter() > until:
                return

    def execute(self, record: StreamRecord) -> None:
        """Executes one record. Work between calls, when no clock runs, is a fault."""
        if self._phase == "ended" and record.kind not in BETWEEN_CALLS and not self.error:
            self.error = f"a record of kind {record.kind[:40]!r} between calls"
            self.runtime.findings.append(_forged(self.error))
        if record.kind in UNREPEATABLE:
            self._log.drop()
        super().execute(record)

    def _end(self, _record: StreamRecord) -> None:
        self._end_call()

    def _end_call(self) -> None:
        """Stops the clock, and waits for the device; a fault of an earlier launch is the call's."""
        self._phase = "ended"
        try:
            if self._timed:
                self._times = self.place.end(self._waited)
            self.card.wait()
        except RuntimeError as error:  # ours and torch's about the device
            self._broke(error)

    def _module(self, record: StreamRecord) -> None:
        """Loads device code that a builder has made; the answer describes its kernels and variables."""
        name = hashlib.sha256(bytes(record.parts[0])).hexdigest()
        if name not in self.codes:
            raise KernelBuildFailed("it loads device code that was not built for it")
        ptx, cubin = self.codes[name]
        source = bytes(record.parts[1]).decode("utf-8", "replace")
        program = self.runtime.program(BuildResult("ok", ptx=ptx, cubin=cubin, device_source=source))
        self.modules[name] = program
        kernels = [[k.name, k.params, k.static_shared, k.max_threads] for k in program.kernels.values()]
        self.blocks.add_variables(program)
        self._answer(kernels, {name: (v.address, v.nbytes) for name, v in program.variables().items()})

    def _launch(self, record: StreamRecord) -> None:
        module, kernel, grid, block, shared, args, own_shared, cooperative, cluster = record.fields
        program = self.modules[module]
        if kernel not in program.kernels:
            raise BadAddress(f"the module has no kernel {str(kernel)[:100]!r}")
        packed = [bytes.fromhex(a) for a in args]
        if [len(data) for data in packed] != [size for size, _ in program.kernels[kernel].params]:
            raise BadAddress(f"the arguments of {str(kernel)[:100]!r} do not fit its parameters")
        given = self._reached(packed)
        before = self._suspects(given)
        attributes = LaunchAttributes(bool(cooperative), tuple(cluster) if cluster else None)
        self._launches[kernel] = self._launches.get(kernel, 0) + 1
        where = program, kernel, grid, block, int(shared), [self.card.translated(data) for data in packed]
        self.runtime.launch(*where, own_shared=bool(own_shared), attributes=attributes)
        if self._log.whole:
            self._log.add(self.runtime.prepared(*where, own_shared=bool(own_shared), attributes=attributes))
        for one in given:
            unchanged = one.address in before and torch.equal(before[one.address], self.live.flat(one))
            if not unchanged and (not one.given or one.address in self._changed):
                one.mark(memory.KERNEL)
        self._stored_in_variables(program)

    def _suspects(self, given: list[Block]) -> dict[int, torch.Tensor]:
        """Returns copies of the blocks that others than kernels have made, by address, if the call is watched."""
        if not self._watched:
            return {}
        return {one.address: self.live.flat(one).clone() for one in given if one.label in SUSPECT and not one.given}

    def _reached(self, packed: list[bytes]) -> list[Block]:
        """Returns the blocks to which addresses among arguments lead, and those to which tables in them lead."""
        waiting = [address for data in packed for address in _addresses(data)]
        found: dict[int, Block] = {}
        while waiting:
            address = waiting.pop()
            block = self.live.at(address) or self.live.at(address - 1)
            if block is not None and block.address not in found:
                found[block.address] = block
                waiting += self._tables.get(block.address, ())
        return list(found.values())

    def _upload(self, record: StreamRecord) -> None:
        address, data = int(record.fields[0]), bytes(record.parts[0])
        super()._upload(record)
        self._log.add(functools.partial(self.live.put, address, data))
        block = self.live.at(address)
        led = set(_addresses(data)) if block is not None else set()
        if block is not None and led:
            self._tables.setdefault(block.address, set()).update(led)

    def _free(self, record: StreamRecord) -> None:
        self._tables.pop(int(record.fields[0]), None)
        super()._free(record)

    def _fill(self, record: StreamRecord) -> None:
        super()._fill(record)
        address, value, nbytes = map(int, record.fields)
        self._log.add(functools.partial(self.live.fill, address, value & 0xFF, nbytes))

    def _copy(self, record: StreamRecord) -> None:
        super()._copy(record)
        self._log.add(functools.partial(self.live.copy, *map(int, record.fields)))

    def _seed(self, record: StreamRecord) -> None:
        super()._seed(record)
        self._log.add(functools.partial(super()._seed, record))

    def _value(self, record: StreamRecord) -> None:
        self._waiting(self._value_now, record)

    def _value_now(self, record: StreamRecord) -> None:
        super()._value(record)
        if str(record.fields[0]).split(".")[0] in ITEMS:  # any other operator is in the log already
            self._log.add(self.blocks.view(record.fields[2][0][0]["t"]).item)

    def _fetch(self, record: StreamRecord) -> None:
        self._waiting(super()._fetch, record, functools.partial(_fetched, self.blocks.view(record.fields[0])))

    def _download(self, record: StreamRecord) -> None:
        self._waiting(super()._download, record, functools.partial(self.card.read, *map(int, record.fields)))

    def _sync(self, record: StreamRecord) -> None:
        self._waiting(lambda _record: self.card.wait(), record, self.card.wait)
        self._answer()

    def _waiting(self, act: Any, record: StreamRecord, again: Callable[[], Any] | None = None) -> None:
        """Executes a record that waits for the device, and adds to the log what executes it `again`. Its fault ends
        this process's use of the GPU."""
        began = time.perf_counter()
        self._log.waiting = True
        try:
            act(record)
            if again is not None:
                self._log.add(again)
        except (DeviceError, torch.AcceleratorError) as error:
            self._broke(error)
            raise DeviceError(str(error)) from error
        finally:
            self._log.waiting = False
            self._waited += time.perf_counter() - began

    def _mark(self, _record: StreamRecord) -> None:
        """Records the present point of the device's work; the answer is its number."""
        number = self.card.mark()
        if number > MOST_MARKS:
            raise BadAddress(f"more than {MOST_MARKS} events")
        self._log.add(functools.partial(self.card.mark_again, number))
        self._answer(number)

    def _elapsed(self, record: StreamRecord) -> None:
        first, second = map(int, record.fields)
        again = functools.partial(self.card.elapsed, first, second)
        self._waiting(lambda _record: self._answer(again()), record, again)


def _addresses(data: bytes) -> Iterator[int]:
    """Yields the aligned words among bytes that are addresses of the device."""
    for at in range(0, len(data) - 7, 8):
        word = int.from_bytes(data[at : at + 8], "little")
        if is_device(word):
            yield word


def _forged(text: str) -> dict[str, Any]:
    return {"rule": "bad-record", "evidence": text, "severity": "fault", "kernel": "", "line": None}


def serve(channel: Channel, level: str, device: Device, control: socket.socket) -> None:
    """Executes records and answers the judge until it closes the channel."""
    draws.home = device.name
    made = functools.partial(LiveDevice, device, cache(lambda: card_of(device)))
    serve_devices(channel, level, control, made, device.launch_ms)
