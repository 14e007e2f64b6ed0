"""A device that runs a program at a size too large to run: on sparse memory, a few blocks of each launch.

Faults that do not depend on values decide, as do the rules: operators, missing launches, and outputs that kernels
cannot have written. Outputs have no values.
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

from kernelwright.evaluation.processes.channel import Channel, Frame
from kernelwright.evaluation.program import memory, origins
from kernelwright.evaluation.program.executor import NotDecided, ProgramDevice, serve_devices
from kernelwright.evaluation.program.forms import Place, dtype_of
from kernelwright.evaluation.program.glue import Glue
from kernelwright.evaluation.program.machine_runtime import SampledMachine
from kernelwright.evaluation.program.memory import DeviceMemory
from kernelwright.evaluation.program.stream import StreamRecord
from kernelwright.machine.sampled import BLOCKS
from kernelwright.records import LibraryRule

SMALL = 1 << 20
"""The elements up to which operators compute. Beyond, they give forms, and memory of zeros."""
LIMIT = 1 << 50
"""The bytes of addresses that one candidate's blocks may take together."""
MOST_READ = 64 << 20
"""The bytes that the host may read in one piece."""
MARGIN = 4
"""An output counts as unwritten if kernels have stored less than a quarter of it, as extrapolated from a sample."""
_TILE = 2 << 20
_MAX_MAPPINGS = 4096


class SampledGlue(Glue):
    """Runs operators on small tensors, and skips those on large ones."""

    def __init__(self, blocks: DeviceMemory, rule: LibraryRule) -> None:
        super().__init__(blocks, rule)
        self.doubtful = False
        """True once memory holds other values than those of a whole call."""

    def execute(self, function: Any, arguments: list[Any], results: list[Any], parts: Sequence[bytearray]) -> Any:
        """Executes an operator on at most `SMALL` elements; returns None for one that is skipped."""
        places = [*origins.places(arguments), *(p for p in results if p is not None)]
        if any(math.prod(p[2]) > SMALL for p in places):
            self.doubtful = True
            return None
        return super().execute(function, arguments, results, parts)


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
        self.asked = False

    def inputs(self, message: Frame) -> dict[str, Any]:
        """Makes inputs of full size that repeat a few values each; returns their places."""
        places = []
        header = message.header
        described = zip(message.tensors, header["shapes"], header["exact"], strict=True)
        for k, (sample, shape, exact) in enumerate(described):
            kind = dtype_of(sample.dtype)
            strides = list(torch.empty(tuple(shape), device="meta").stride())
            nbytes = math.prod(shape) * kind.itemsize
            if not nbytes:
                places.append([0, sample.dtype, shape, strides, 0, 0])
                continue
            block = self.blocks.given(nbytes, f"input {k} {tuple(shape)}")
            block.floating = kind.is_floating_point
            _repeat(block.address, nbytes, bytes(sample.data))
            if exact:
                self.sampled.exact_blocks.add(block.address)
            places.append([block.address, sample.dtype, shape, strides, 0, 0])
        self.glue.begin()
        self.glue.doubtful = True
        self.runtime.begin_call()
        torch.manual_seed(header["call_seed"])
        return {"places": places}

    def finish(self, message: Frame) -> tuple[dict[str, Any], list[Any]]:
        """Returns the facts of the call, and for each output the number of its elements if no kernel wrote it."""
        self._drain()
        facts = self.runtime.end_call()
        report = self.report(facts, [])
        report["undecided"] = self.asked
        if not (self._unsure or self.sampled.faulted or self.sampled.doubt()):
            returned = sum(math.prod(p[2]) * dtype_of(p[1]).itemsize for p in message.header["places"] or ())
            report["stored_share"] = sum(self._stored.values()) / returned if returned else None
        report["origins"] = [self._unwritten(p) for p in message.header["places"] or ()]
        return report, []

    def _unwritten(self, place: Place) -> dict[str, int]:
        """Returns an output's elements as `unwritten` if kernels and operators can have written only a part of them."""
        count = math.prod(place[2])
        block = self.blocks.at(place[0]) if count else None
        if block is None or self._unsure or self.sampled.faulted or self.sampled.doubt():
            return {}
        stored = self._stored.get(block.address, 0.0) + block.others
        return {"unwritten": count} if stored * MARGIN < count * dtype_of(place[1]).itemsize else {}

    def _launch(self, record: StreamRecord) -> None:
        before = dict(self.runtime.written())
        counted = self.sampled.atomics
        super()._launch(record)
        grid, args = record.fields[2], record.fields[5]
        self._unsure |= not all(self.sampled.cannot_steer(bytes.fromhex(a)) for a in args)
        total = math.prod(grid)
        share = max(1.0, total / BLOCKS)
        # The last block to arrive may write for all: an atomic tells it that it is the last.
        self._unsure |= total > BLOCKS and self.sampled.atomics > counted
        for address, nbytes in self.runtime.written().items():
            more = nbytes - before.get(address, 0)
            self._stored[address] = self._stored.get(address, 0.0) + more * share

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


def _is_place(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 6 and isinstance(value[0], int)


def _repeat(address: int, nbytes: int, sample: bytes) -> None:
    """Fills memory with copies of a sample. A large block is one file mapped many times: reading it takes no memory."""
    if nbytes <= SMALL * 4:
        ctypes.memmove(address, (sample * (-(-nbytes // len(sample))))[:nbytes], nbytes)
        return
    room = _TILE * max(1, -(-nbytes // (_TILE * _MAX_MAPPINGS)))
    name = f"tile-{os.getpid()}"
    file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.unlink(name)
        for _ in range(-(-room // _TILE)):
            os.write(file, (sample * (-(-_TILE // len(sample))))[:_TILE])
        rounded = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        for offset in range(0, rounded, room):
            memory.map_file(address + offset, min(room, rounded - offset), file)
    finally:
        os.close(file)


def serve(channel: Channel, level: str, link: socket.socket) -> None:
    """Executes records and answers the judge until it closes the channel."""
    serve_devices(channel, level, link, SampledDevice)
