"""A device that executes nothing: it keeps a call's records in order, so that a replayer can repeat them on a GPU.

Inputs and weights get addresses and no values. A record that asks for a value ends the trace, since the program then
depends on values. Addresses are kept as places in blocks, and blocks are numbered in the order of their allocation, so
that calls which do the same have the same trace.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from kernelwright.backends.device_addresses import is_device
from kernelwright.builds import BuildResult
from kernelwright.errors import DeviceError
from kernelwright.evaluation.processes import messages
from kernelwright.evaluation.processes.channel import Channel, Frame
from kernelwright.evaluation.processes.messages import Spot, Trace, TracedBlock, View
from kernelwright.evaluation.program import glue_table, memory, origins
from kernelwright.evaluation.program.executor import ProgramDevice, serve_devices
from kernelwright.evaluation.program.forms import Place, dtype_of
from kernelwright.evaluation.program.glue import Glue
from kernelwright.evaluation.program.machine_runtime import MachineRuntime
from kernelwright.evaluation.program.memory import DeviceMemory
from kernelwright.evaluation.program.sampled import LIMIT
from kernelwright.evaluation.program.stream import StreamRecord
from kernelwright.evaluation.tensor_bytes import TensorBytes
from kernelwright.machine import KernelInfo, Program, PTXError, UnsupportedPTX, Variable
from kernelwright.machine.ptx_signatures import signatures

Phase = Literal["setup", "warm", "call"]
PHASES: tuple[Phase, ...] = ("setup", "warm", "call")
"""Before the first call; the first call on new weights, in which an author may prepare what later calls use; others."""
MOST_LAUNCHES = 1000
MOST_RECORDS = 5000


class Untraceable(DeviceError):
    """Repeating the program would not reproduce the call."""


class TracingGlue(Glue):
    """Accounts for operators and runs none."""

    in_call = False
    """True during a call that is repeated, in which only operators of the table may be traced."""

    def execute(self, function: Any, arguments: list[Any], results: list[Any], parts: Sequence[bytearray]) -> Any:
        """Runs nothing."""
        return None

    def run(self, name: str, library: str, arguments: list[Any], results: list[Any], parts: Sequence[bytearray]) -> Any:
        """Labels what an operator would write. Raises `OperatorRefused`, and `Untraceable` for a library's operator,
        or for one that indexes by values which the call computes."""
        places = [*origins.places(arguments)]
        plain = glue_table.base_name(name)
        if self.in_call and not glue_table.moves(name, accumulates=False):
            integers = not any(dtype_of(p[1]).is_floating_point or dtype_of(p[1]).is_complex for p in places)
            if library or not glue_table.is_glue(name, integers):
                raise Untraceable(f"it calls {library or plain} of torch")
        if self.in_call and (plain in glue_table.INDEXING or name.startswith("index_put")):
            if any(self._computed_index(p) for p in places):
                raise Untraceable(f"torch's {plain} indexes by values that the call computes")
        return super().run(name, library, arguments, results, parts)

    def _computed_index(self, place: Place) -> bool:
        kind = dtype_of(place[1])
        floating = kind.is_floating_point or kind.is_complex
        return not floating and self.label(place) in (*memory.OF_KERNELS, memory.GLUE, memory.UNWRITTEN)


@dataclass(frozen=True)
class CardProgram:
    """Device code for the card alone: the functional machine does not know its instructions."""

    kernels: dict[str, KernelInfo]

    def variables(self) -> dict[str, Variable]:
        """Returns no variable: only the card knows their addresses."""
        return {}


class TracedCode(MachineRuntime):
    """Loads device code, which nothing runs here."""

    def program(self, result: BuildResult) -> Any:
        """Returns the code of a build, or only its kernels' signatures."""
        try:
            return Program.load(result.ptx or "", self.room())
        except (UnsupportedPTX, PTXError):
            return CardProgram(signatures(result.ptx or ""))


class TracingDevice(ProgramDevice):
    """The device of one candidate's traced calls."""

    records: ClassVar[dict[str, str]] = {**ProgramDevice.records, "mark": "_mark", "elapsed": "_elapsed"}
    answering: ClassVar[frozenset[str]] = ProgramDevice.answering | {"mark", "elapsed"}
    glue: TracingGlue

    def open(self, header: dict[str, Any]) -> None:
        """Sets the library rule, and reserves memory without touching it."""
        self.blocks = DeviceMemory(LIMIT, sparse=True)
        self.runtime = TracedCode(self.blocks)
        self.glue = TracingGlue(self.blocks, header["rule"])
        self._records: dict[Phase, list[Any]] = {phase: [] for phase in PHASES}
        self._parts: dict[Phase, list[bytes]] = {phase: [] for phase in PHASES}
        self._table: list[TracedBlock] = []
        self._base = self._kept = 0
        self._numbers: dict[int, int] = {}
        self._forms: list[dict[str, Any]] = []
        """The forms of the call's inputs (`wire.forms_of`)."""
        self._places: list[Place] = []
        self._phase: Phase | None = "setup"
        """None between calls."""
        self._own: list[View] = []
        self._cold = True
        """True until a call on the present weights has ended."""
        self._launches = 0

    def inputs(self, message: Frame) -> dict[str, Any]:
        """Reserves addresses for the inputs of the next call, the previous ones if their forms are the same."""
        self._drain()
        forms = message.header["forms"]
        if forms != self._forms:
            for address in {place[0] for place in self._places}:
                self.blocks.free(address)
            self._forms, self._places = forms, []
            for number, form in enumerate(forms):
                self._places.append(self._reserved(form, number))
        self._begin()
        rooms = [self.blocks.holding(p[0], 1).nbytes if p[0] else 0 for p in self._places]
        return {"places": self._places, "rooms": rooms}

    def _reserved(self, form: dict[str, Any], number: int) -> Place:
        """Returns a place for an input, in the block of an earlier input whose memory it shares."""
        address = self._places[form["owner"]][0] if form["owner"] < number else 0
        if form["nbytes"] and not address:
            address = self.blocks.given(form["nbytes"], f"input {number} {tuple(form['shape'])}").address
        return [address, form["dtype"], form["shape"], form["strides"], form["offset"], 0]

    def _begin(self) -> None:
        """Starts the trace of a call. Its own blocks are numbered anew; those of the setup and of first calls on new
        weights keep their numbers."""
        if self._phase == "setup":
            self._base = self._kept = len(self._table)
        self._phase = "warm" if self._cold else "call"
        del self._table[self._kept :]
        self._numbers = {address: n for address, n in self._numbers.items() if n < self._kept}
        for number, place in enumerate(self._places):
            if place[0]:
                block = self.blocks.holding(place[0], 1)
                block.mark(memory.GIVEN)
                if place[0] not in self._numbers:
                    self._numbers[place[0]] = len(self._table)
                    self._table.append(TracedBlock(kind="input", nbytes=block.nbytes, number=number))
        self._records[self._phase], self._parts[self._phase], self._launches = [], [], 0
        self.glue.begin()
        self.glue.in_call = not self._cold
        self.runtime.begin_call()

    def weights(self, message: Frame) -> dict[str, Any]:
        """Notes the places to which the replayer writes the judge's weights."""
        self._drain()
        header = message.header
        self._cold = self.glue.fresh_weights = True
        if not header["new"]:
            live = (p for p in header["own"] if 0 not in p[2] and self._kept_block(p))
            self._own = [self._view(p) for p in live]
            return {}
        self._own = []
        places = [p for p in header["places"] if 0 not in p[2]]
        for place in places:
            block = self.blocks.holding(place[0], 1)
            block.mark(memory.FIXED)
            block.given = True
        setup = [r for r in self._records["setup"] if r.kind != "weights"]
        own = [self._view(p) for p in header["own"] if 0 not in p[2]]
        step = messages.WeightsStep(places=[self._view(p) for p in header["places"]], own=own)
        self._records["setup"] = [*setup, step]
        return {}

    def _kept_block(self, place: Place) -> bool:
        block = self.blocks.at(place[0])
        return block is not None and self._numbers.get(block.address, self._kept) < self._kept

    def finish(self, message: Frame) -> tuple[dict[str, Any], list[Any]]:
        """Ends a call; returns its facts and its trace, and the bytes that the trace names."""
        self._drain()
        report = self.report(self.runtime.end_call(), [])
        ended, self._phase, self.glue.in_call = self._phase, None, False
        if message.header["places"] is None or self.error:
            return report, []
        trace = Trace(
            blocks=self._table,
            base=self._base,
            kept=self._kept if ended == "call" else len(self._table),
            setup_parts=len(self._parts["setup"]),
            setup=self._records["setup"],
            warm=self._records["warm"],
            call=self._records["call"] if ended == "call" else [],
            own=self._own,
            outputs=[self._view(p) for p in message.header["places"]],
        )
        self._kept, self._cold, self.glue.fresh_weights = trace.kept, False, False
        parts = [part for phase in PHASES for part in self._parts[phase]]
        return {**report, "trace": trace.model_dump()}, [TensorBytes(p, "uint8", (len(p),)) for p in parts]

    def _note(self, record: Any) -> None:
        """Adds a record to its phase. Raises `Untraceable` for one between calls, or too many."""
        if self._phase is None:
            if record.kind == "free":
                return
            raise Untraceable("it works on the device between calls")
        kept = self._records[self._phase]
        if len(kept) >= MOST_RECORDS:
            raise Untraceable(f"it has more than {MOST_RECORDS} records")
        kept.append(record)

    def _part(self, data: bytes) -> int:
        """Returns the number of these bytes among all that the trace names."""
        if self._phase is None:
            raise Untraceable("it works on the device between calls")
        self._parts[self._phase].append(data)
        return sum(len(self._parts[phase]) for phase in PHASES[: PHASES.index(self._phase) + 1]) - 1

    # Places.

    def _spot(self, address: int, nbytes: int = 1) -> Spot:
        """Returns the block and the offset of an address. Raises `BadAddress`, and `Untraceable` for memory of an
        earlier call."""
        found = self._variable_spot(address)
        if found is not None:
            return found
        block = self.blocks.holding(address, nbytes)
        return self._number(block), address - block.address

    def _number(self, block: memory.Block) -> int:
        number = self._numbers.get(block.address)
        if number is None:
            raise Untraceable("it uses memory that is neither an input, nor a weight, nor made in the call")
        return number

    def _variable_spot(self, address: int) -> Spot | None:
        """Returns the number of a variable of device code, noted on first sight, and the offset in it."""
        block = self.blocks.at(address)
        if block is None or not block.variable:
            return None
        start = block.address
        if start not in self._numbers:
            named = ((module, n, v) for module, program in self.modules.items() for n, v in program.variables().items())
            module, name = next((module, n) for module, n, v in named if v.address == start)
            self._numbers[start] = len(self._table)
            self._table.append(TracedBlock(kind="variable", nbytes=block.nbytes, module=module, variable=name))
        return self._numbers[start], address - start

    def _view(self, place: Place) -> View:
        address, dtype, sizes, strides, offset, bits = place
        if 0 in sizes or not address:
            return 0, dtype, sizes, strides, offset, bits, 0
        block, into = self._spot(address)
        return block, dtype, sizes, strides, offset, bits, into

    def _pointers(self, data: bytes) -> list[tuple[int, int, int]]:
        """Returns the addresses among bytes: the offset of each, its block, and the offset in that. An address may
        point to the end of a block."""
        found = []
        for offset in range(0, len(data) - 7, 8):
            word = int.from_bytes(data[offset : offset + 8], "little")
            if (spot := self._variable_spot(word)) is not None:
                found.append((offset, *spot))
            elif is_device(word):
                block = self.blocks.at(word) or self.blocks.at(word - 1)
                if block is None:
                    raise Untraceable("a kernel is given an address where there is no memory")
                found.append((offset, self._number(block), word - block.address))
        return found

    # The candidate's records.

    def _alloc(self, record: StreamRecord) -> None:
        super()._alloc(record)
        address, nbytes, *_ = map(int, record.fields)
        if self._phase is None:
            return  # only its use in a call would matter
        self._numbers[address] = len(self._table)
        self._table.append(TracedBlock(kind="made", nbytes=nbytes))
        self._note(messages.AllocateStep(block=self._numbers[address]))

    def _free(self, record: StreamRecord) -> None:
        block = self.blocks.at(int(record.fields[0]))
        number = self._numbers.pop(block.address, None) if block is not None and not block.given else None
        super()._free(record)
        first = {"setup": 0, None: len(self._table)}.get(self._phase, self._kept)
        if number is not None and number >= first:  # what an earlier phase made may be freed at any time
            self._note(messages.FreeStep(block=number))

    def _op(self, record: StreamRecord) -> None:
        name, library, arguments, results = record.fields
        self.glue.run(str(name), str(library), arguments, results, record.parts)
        self._note(
            messages.OperatorStep(
                name=str(name),
                arguments=self._relocated(arguments),
                results=[None if p is None else self._view(p) for p in results],
                parts=[self._part(bytes(p)) for p in record.parts],
            )
        )

    def _relocated(self, value: Any) -> Any:
        """Returns encoded arguments with places in blocks."""
        if isinstance(value, list):
            return [self._relocated(v) for v in value]
        if isinstance(value, dict):
            return {k: list(self._view(v)) if k == "t" else self._relocated(v) for k, v in value.items()}
        return value

    def _value(self, record: StreamRecord) -> None:
        raise Untraceable(f"it reads values ({str(record.fields[0]).split('.')[0]})")

    def _shaped(self, record: StreamRecord) -> None:
        self._value(record)

    def _fetch(self, record: StreamRecord) -> None:
        raise Untraceable("it reads values")

    _download = _fetch

    def _count(self, record: StreamRecord) -> None:
        raise Untraceable("it tunes itself by the cost of calls")

    def _mark(self, _record: StreamRecord) -> None:
        self._answer(0)

    def _elapsed(self, record: StreamRecord) -> None:
        raise Untraceable("it measures time")

    def _upload(self, record: StreamRecord) -> None:
        address, data = int(record.fields[0]), bytes(record.parts[0])
        to = self._spot(address, len(data))
        self.blocks.write(address, len(data), memory.CONSTANT)
        self.glue.work.uploaded += len(data)
        self._note(messages.UploadStep(to=to, part=self._part(data), pointers=self._pointers(data)))

    def _fill(self, record: StreamRecord) -> None:
        address, value, nbytes = map(int, record.fields)
        to = self._spot(address, nbytes)
        self.blocks.write(address, nbytes, memory.CONSTANT)
        self._note(messages.FillStep(to=to, value=value & 0xFF, nbytes=nbytes))

    def _copy(self, record: StreamRecord) -> None:
        to, source, nbytes = map(int, record.fields)
        spots = self._spot(to, nbytes), self._spot(source, nbytes)
        label = self.glue.label([source - spots[1][1], "uint8", [1], [1], spots[1][1], 0])
        self.blocks.write(to, nbytes, memory.AFTER_MOVE.get(label, label))
        self._note(messages.CopyStep(to=spots[0], source=spots[1], nbytes=nbytes))

    def _seed(self, record: StreamRecord) -> None:
        self._note(messages.SeedStep(seed=int(record.fields[0]) & (2**63 - 1)))

    def _sync(self, record: StreamRecord) -> None:
        self._note(messages.WaitStep())
        super()._sync(record)

    def _launch(self, record: StreamRecord) -> None:
        module, kernel, grid, block, shared, args, own_shared, cooperative, cluster = record.fields
        if kernel not in self.modules[module].kernels:
            raise memory.BadAddress(f"the module has no kernel {str(kernel)[:100]!r}")
        self._launches += 1
        if self._launches > MOST_LAUNCHES:
            raise Untraceable(f"a call has more than {MOST_LAUNCHES} launches")
        packed = [bytes.fromhex(a) for a in args]
        pointers = [(k, *found) for k, data in enumerate(packed) for found in self._pointers(data)]
        for _, _, number, _ in pointers:
            self._stored(number)
        self._stored_in_variables(self.modules[module])
        plain = [bytearray(data) for data in packed]
        for index, offset, _, _ in pointers:
            plain[index][offset : offset + 8] = bytes(8)
        self._note(
            messages.LaunchStep(
                module=module,
                entry=kernel,
                grid=tuple(grid),
                block=tuple(block),
                shared_bytes=int(shared),
                args=[data.hex() for data in plain],
                pointers=pointers,
                own_shared=bool(own_shared),
                cooperative=bool(cooperative),
                cluster=tuple(cluster) if cluster else None,
            )
        )

    def _stored(self, number: int) -> None:
        """Labels a block that a kernel was given, and so may have stored into."""
        address = next(a for a, n in self._numbers.items() if n == number)
        block = self.blocks.at(address)
        if block is not None and not block.given:
            block.mark(memory.KERNEL)


def serve(channel: Channel, level: str, link: socket.socket) -> None:
    """Keeps records and answers the judge until it closes the channel."""
    serve_devices(channel, level, link, TracingDevice)
