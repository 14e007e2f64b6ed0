"""A device that runs a program at a size too large to run: on sparse memory, a few blocks of each launch.

Faults that do not depend on values decide, as do the rules: operators, missing launches, and outputs that kernels
cannot have written. Of the outputs, the elements whose values are those of a whole call are returned (`known_values`).
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import socket
from collections.abc import Sequence
from typing import Any

import torch

from kernelwright.evaluation import repeated_values
from kernelwright.evaluation.processes import wire
from kernelwright.evaluation.processes.channel import Channel, Frame
from kernelwright.evaluation.program import known_values, memory, origins
from kernelwright.evaluation.program.executor import NotDecided, ProgramDevice, serve_devices
from kernelwright.evaluation.program.forms import Place, dtype_of
from kernelwright.evaluation.program.glue import Glue
from kernelwright.evaluation.program.machine_runtime import SampledMachine
from kernelwright.evaluation.program.memory import DeviceMemory
from kernelwright.evaluation.program.stream import StreamRecord
from kernelwright.machine.sampled import BLOCKS
from kernelwright.records import LibraryRule
from kernelwright.tasks.draws import seed_all

SMALL = 1 << 20
"""The elements up to which operators compute. Beyond, they give forms, and memory of zeros."""
LIMIT = 1 << 50
"""The bytes of addresses that one candidate's blocks may take together."""
MOST_READ = 64 << 20
"""The bytes that the host may read in one piece."""
MARGIN = 4
"""An output counts as unwritten if kernels have stored less than a quarter of it, as extrapolated from a sample."""
EVEN_MARGIN = 1 / 0.93
"""The same where all blocks store equally much, so that the extrapolation is nearly exact."""
_MAX_MAPPINGS = 4096


class SampledGlue(Glue):
    """Runs operators on small tensors, and skips those on large ones."""

    def __init__(self, blocks: DeviceMemory, rule: LibraryRule) -> None:
        super().__init__(blocks, rule)
        self.doubtful = False
        """True once memory holds other values than those of a whole call."""
        self._skipped = False

    def execute(self, function: Any, arguments: list[Any], results: list[Any], parts: Sequence[bytearray]) -> Any:
        """Executes an operator on at most `SMALL` elements; returns None for one that is skipped."""
        places = [*origins.places(arguments), *(p for p in results if p is not None)]
        if any(math.prod(p[2]) > SMALL for p in places):
            self.doubtful = True
            self._skipped = True
            return None
        return super().execute(function, arguments, results, parts)

    def run(self, name: str, library: str, arguments: list[Any], results: list[Any], parts: Sequence[bytearray]) -> Any:
        """Executes an operator, and notes whether what it wrote is what a whole call would write."""
        args, kwargs = arguments
        given = [*origins.places(args), *origins.places(kwargs)]
        self._skipped = False
        fitting = sum(math.prod(p[2]) for p in given) <= 4 * SMALL
        sure = fitting and known_values.known(self.blocks, given)
        made = super().run(name, library, arguments, results, parts)
        written = [*(p for p in results if p is not None), *self.written_in_place(name, args, kwargs)]
        known_values.note(self.blocks, written, sure and not self._skipped)
        return made


class SampledDevice(ProgramDevice):
    """The device of one sampled call."""

    glue: SampledGlue

    def open(self, header: dict[str, Any]) -> None:
        """Sets the library rule, and reserves memory on touch."""
        self.blocks = DeviceMemory(LIMIT, sparse=True)
        self.runtime = self.sampled = SampledMachine(self.blocks)
        self.glue = SampledGlue(self.blocks, header["rule"])
        self.sampled.doubt = lambda: self.asked or self.glue.work.reads > 0
        self._stored: dict[int, float] = {}
        self._unsure = False
        self._even = True
        """True while the blocks of every launch have stored equally much, or all have run."""
        self.asked = False

    def inputs(self, message: Frame) -> dict[str, Any]:
        """Makes inputs of full size, which repeat a few values each or hold all of theirs; returns their places."""
        header: dict[str, Any] = message.header
        places: list[Place] = []
        partly: set[int] = set()
        for k, (sample, form, exact) in enumerate(zip(message.tensors, header["forms"], header["exact"], strict=True)):
            kind = dtype_of(sample.dtype)
            address = places[form["owner"]][0] if form["owner"] < k else 0
            if form["nbytes"] and not address:
                address = self._repeated(k, form, bytes(sample.data))
            place = [address, sample.dtype, form["shape"], form["strides"], form["offset"], 0]
            places.append(place)
            if not address:
                continue
            block = self.blocks.holding(address, 1)
            block.floating &= kind.is_floating_point
            if not exact:
                partly.add(address)
            elif len(sample.data) < form["nbytes"] or not _row_major(form):
                apart = tuple(slice(0, 1) if s == 0 else slice(None) for s in form["strides"])
                self.blocks.view(place)[apart].copy_(wire.unpack_tensor(sample).reshape(form["shape"])[apart])
        self.sampled.exact_blocks |= {place[0] for place in places if place[0]} - partly
        rooms = [self.blocks.holding(p[0], 1).nbytes if p[0] else 0 for p in places]
        self.sampled.sound = header["sound"]
        self.glue.begin()
        self.glue.doubtful = True
        self.runtime.begin_call()
        seed_all(header["call_seed"])
        return {"places": places, "rooms": rooms}

    def _repeated(self, number: int, form: dict[str, Any], sample: bytes) -> int:
        """Returns the address of a fresh block that holds copies of a sample."""
        block = self.blocks.given(form["nbytes"], f"input {number} {tuple(form['shape'])}")
        if len(sample) == form["nbytes"]:
            ctypes.memmove(block.address, sample, len(sample))
        else:
            _repeat(block.address, form["nbytes"], sample)
        return block.address

    def weights(self, message: Frame) -> dict[str, Any]:
        """Writes the judge's weights, every byte of which is then known."""
        answer = super().weights(message)
        for place in message.header["places"] if message.tensors else ():
            if 0 not in place[2]:
                self.blocks.holding(place[0], 1).shadow = None
        self.blocks.changed()
        return answer

    def finish(self, message: Frame) -> tuple[dict[str, Any], list[Any]]:
        """Returns the facts of the call: for each output the number of its elements if no kernel wrote it, and as
        tensors the flat indices and the values of elements that are known."""
        self._drain()
        facts = self.runtime.end_call()
        report = self.report(facts, [])
        report["undecided"] = self.asked
        if not (self._unsure or self.sampled.faulted or self.sampled.doubt()):
            returned = sum(math.prod(p[2]) * dtype_of(p[1]).itemsize for p in message.header["places"] or ())
            report["stored_share"] = sum(self._stored.values()) / returned if returned else None
        places = message.header["places"] or ()
        report["origins"] = [self._unwritten(p) for p in places]
        picked: list[torch.Tensor] = []
        if not (self.asked or self.sampled.faulted or self.sampled.doubt()):
            for place in places:
                indices, values = known_values.pick(self.blocks, place)
                picked += [torch.from_numpy(indices), values]
        return report, [wire.pack_tensor(t) for t in picked]

    def _unwritten(self, place: Place) -> dict[str, int]:
        """Returns an output's elements as `unwritten` if kernels and operators can have written only a part of them."""
        count = math.prod(place[2])
        block = self.blocks.at(place[0]) if count else None
        if block is None or block.given or self._unsure or self.sampled.faulted or self.sampled.doubt():
            return {}
        stored = self._stored.get(block.address, 0.0) + block.others
        margin = EVEN_MARGIN if self._even else MARGIN
        return {"unwritten": count} if stored * margin < count * dtype_of(place[1]).itemsize else {}

    def _launch(self, record: StreamRecord) -> None:
        before = dict(self.runtime.written())
        seen = (self.sampled.atomics, self.sampled.unknown_reads, self.sampled.faulted)
        grid, args = record.fields[2], record.fields[5]
        partial = known_values.PartialLaunch.begin(self.blocks) if math.prod(grid) > BLOCKS else None
        super()._launch(record)
        stored = {a for a, n in self.runtime.written().items() if n > before.get(a, 0) and a in self.blocks.blocks}
        sure = seen[1:] == (self.sampled.unknown_reads, self.sampled.faulted)
        if partial is not None:
            partial.end(stored, sure and seen[0] == self.sampled.atomics)
        elif not sure:
            known_values.spoil(self.blocks, stored)
        known_values.spoil(self.blocks, [a for a in stored if partial is not None and self.blocks.blocks[a].given])
        self._unsure |= not all(self.sampled.cannot_steer(bytes.fromhex(a)) for a in args)
        total = math.prod(grid)
        share = max(1.0, total / BLOCKS)
        # The last block to arrive may write for all: an atomic tells it that it is the last.
        self._unsure |= total > BLOCKS and self.sampled.atomics > seen[0]
        self._even &= total <= BLOCKS or self.sampled.even_stores is not None
        share = self.sampled.even_stores or share
        for address, nbytes in self.runtime.written().items():
            more = nbytes - before.get(address, 0)
            self._stored[address] = self._stored.get(address, 0.0) + more * share

    def _copy(self, record: StreamRecord) -> None:
        to, source, nbytes = map(int, record.fields)
        if nbytes <= MOST_READ:
            super()._copy(record)
            known_values.carry(self.blocks, to, source, nbytes)
        else:
            block = self.blocks.holding(to, nbytes)
            block.others += nbytes
            self.blocks.forget(block)
            self.glue.doubtful = True

    def _value(self, record: StreamRecord) -> None:
        self._known(record.fields[2])
        super()._value(record)

    def _fetch(self, record: StreamRecord) -> None:
        place = record.fields[0]
        self._known(place)
        if math.prod(place[2]) * dtype_of(place[1]).itemsize > MOST_READ:
            self.asked = True
            raise NotDecided("the host reads values that are not there")
        super()._fetch(record)

    def _known(self, arguments: Any) -> None:
        """Raises `NotDecided` for values that are not those of a whole call."""
        for place in [arguments] if _is_place(arguments) else origins.places(arguments):
            block = self.blocks.at(place[0])
            known = block is not None and (block.address in self.sampled.exact_blocks or block.label == memory.CONSTANT)
            if not known and self.glue.doubtful:
                self.asked = True
                raise NotDecided("the host asks for values that are not there")


def _row_major(form: dict[str, Any]) -> bool:
    plain = torch.empty(form["shape"], device="meta").stride()
    return not form["offset"] and list(plain) == form["strides"]


def _is_place(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 6 and isinstance(value[0], int)


def _repeat(address: int, nbytes: int, sample: bytes) -> None:
    """Fills memory with copies of a sample. A large block is one file mapped many times: reading it takes no memory."""
    filled = repeated_values.pattern(sample)
    if nbytes <= SMALL * 4:
        ctypes.memmove(address, (filled * (-(-nbytes // len(filled))))[:nbytes], nbytes)
        return
    room = repeated_values.PATTERN * max(1, -(-nbytes // (repeated_values.PATTERN * _MAX_MAPPINGS)))
    name = f"tile-{os.getpid()}"
    file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.unlink(name)
        for _ in range(room // repeated_values.PATTERN):
            os.write(file, filled)
        rounded = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        for offset in range(0, rounded, room):
            memory.map_file(address + offset, min(room, rounded - offset), file)
    finally:
        os.close(file)


def serve(channel: Channel, level: str, link: socket.socket) -> None:
    """Executes records and answers the judge until it closes the channel."""
    serve_devices(channel, level, link, SampledDevice)
