"""The device process: owns the memory of one candidate, and executes the records that its process writes.

It runs no code of the candidate but its kernels, on the functional machine. It knows neither seeds nor expected
outputs. The judge writes inputs and weights here and reads outputs and facts from here; the candidate's process sees
addresses.

Messages of the judge: `open` (limits and the rule), `inputs`, `weights`, `finish`, `moved`. Records of the candidate:
see `ProgramDevice.records`. A record that makes no sense, or names memory that the candidate does not have, is a fault
of the candidate.
"""

from __future__ import annotations

import hashlib
import select
import socket
import traceback
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch

from kernelwright.builds import BuildResult
from kernelwright.errors import DeviceError
from kernelwright.evaluation.processes import wire
from kernelwright.evaluation.processes.channel import Channel, ChannelClosed, Frame
from kernelwright.evaluation.program import memory, moved_labels, origins
from kernelwright.evaluation.program.forms import Place, of_bytes
from kernelwright.evaluation.program.glue import Glue, OperatorRefused
from kernelwright.evaluation.program.machine_runtime import MachineRuntime, SampledMachine, label_stores
from kernelwright.evaluation.program.memory import BadAddress, DeviceMemory, OutOfMemory
from kernelwright.evaluation.program.stream import RecordStream, StreamClosed, StreamRecord
from kernelwright.evaluation.program.tensor_contents import same_bits
from kernelwright.evaluation.program.weight_copies import Copies, copies_among, follow
from kernelwright.machine import LaunchAttributes, Program, set_heap_limit
from kernelwright.machine.runtime import CallFacts, KernelBuildFailed
from kernelwright.tasks import storages
from kernelwright.tasks.draws import seed_all

MAX_MODULES = 256
HEAP_BYTES = 8 << 20
"""CUDA's initial limit on the heap of in-kernel malloc."""

ITEMS = frozenset(("_local_scalar_dense", "item"))
"""The operators that return the value of a tensor of one element."""


class NotDecided(DeviceError):
    """The candidate asks for a value that its device does not have. It goes on, and what it does then still counts."""


class ProgramDevice:
    """The memory, the programs and the facts of one candidate."""

    records: ClassVar[dict[str, str]] = {
        "alloc": "_alloc",
        "free": "_free",
        "integers": "_integers",
        "op": "_op",
        "value": "_value",
        "shaped": "_shaped",
        "fetch": "_fetch",
        "download": "_download",
        "upload": "_upload",
        "fill": "_fill",
        "copy": "_copy",
        "seed": "_seed",
        "module": "_module",
        "launch": "_launch",
        "sync": "_sync",
        "count": "_count",
    }
    """The methods by the kind of record that they execute."""
    answering: ClassVar[frozenset[str]] = frozenset(("value", "shaped", "fetch", "download", "module", "sync", "count"))
    """The kinds of records that get an answer."""

    def __init__(self) -> None:
        self.blocks = DeviceMemory(1 << 30)
        self.runtime: MachineRuntime | SampledMachine = MachineRuntime(self.blocks)
        self.glue = Glue(self.blocks)
        self.error = ""
        """The first fault of the call, as a GPU's message; nothing runs after it."""
        self.first_traceback = ""
        """The traceback of the first fault, for our own eyes."""
        self.modules: dict[str, Program] = {}
        self._inputs: list[tuple[Place, torch.Tensor]] = []
        self._copies: Copies = []
        self.answers: dict[str, Callable[[Frame], Any]] = {
            "inputs": self.inputs,
            "weights": self.weights,
            "moved": lambda _message: self.moved(),
            "finish": self.finish,
        }
        """The answers to the judge's messages beside `open` and `forget`: facts, or facts and tensors."""
        self.stream: RecordStream

    def open(self, header: dict[str, Any]) -> None:
        """Sets the limit on memory, the library rule, and the kind of device."""
        self.blocks = DeviceMemory(int(header["memory_mb"]) << 20)
        self.runtime = MachineRuntime(self.blocks)
        self.runtime.budget = int(header["budget"])
        self.glue = Glue(self.blocks, header["rule"])

    # The judge's messages.

    def inputs(self, message: Frame) -> dict[str, Any]:
        """Stores the inputs of the next call, at the addresses of the previous ones if asked and possible; returns
        their places."""
        tensors = wire.unpack_tensors(message.tensors)
        parts = storages.held(tensors)
        if not (message.header["reuse"] and storages.forms(tensors) == storages.forms([t for _, t in self._inputs])):
            self._forget_inputs()
            places: dict[int, Place] = {}
            for part in parts:
                places |= self._given(tensors, part)
            self._inputs = [(places[k], t) for k, t in enumerate(tensors)]
        else:
            self._inputs = [(place, t) for (place, _), t in zip(self._inputs, tensors, strict=True)]
        for part in parts:
            first = part.numbers[0]
            if tensors[first].numel():
                block = self.blocks.holding(self._inputs[first][0][0], 1)
                block.flat.copy_(storages.bytes_of(tensors[first].untyped_storage(), part))
                block.mark(memory.GIVEN)
        self.error = ""
        self.glue.begin()
        self.runtime.begin_call(message.header["call_seed"])
        seed_all(message.header["call_seed"])
        return {"places": [place for place, _ in self._inputs], "rooms": self._rooms()}

    def _given(self, tensors: Sequence[torch.Tensor], part: storages.Held) -> dict[int, Place]:
        """Returns the places of tensors that share memory, in a fresh block."""
        first = tensors[part.numbers[0]]
        address = 0
        if first.numel():
            name = ", ".join(f"input {k}" for k in part.numbers) + f" {tuple(first.shape)}"
            address = self.blocks.given(part.stop - part.start, name).address
        return {
            k: [address, wire.dtype_name(t.dtype), list(t.shape), list(t.stride()), part.offset(t), 0]
            for k in part.numbers
            for t in (tensors[k],)
        }

    def _rooms(self) -> list[int]:
        """Returns the bytes of the block that holds each input."""
        return [self.blocks.holding(place[0], 1).nbytes if place[0] else 0 for place, _ in self._inputs]

    def _forget_inputs(self) -> None:
        for address in {place[0] for place, _ in self._inputs}:
            self.blocks.free(address)
        self._inputs = []

    def weights(self, message: Frame) -> dict[str, Any]:
        """Writes the judge's weights to the model's places, and into the copies that the model has made of them."""
        self._drain()
        header = message.header
        places = header["places"]
        if header["new"]:
            own = [self.blocks.view(p) for p in header["own"]]
            self._copies = copies_among(own, [self.blocks.view(p) for p in places]) if places else []
        else:
            own = [self.blocks.view(p) for p in header["own"]]
            self._copies += copies_among(own, [self.blocks.view(p) for p in places]) if own else []
        for number, place in enumerate(places):
            if 0 in place[2]:
                continue
            if message.tensors:  # without any, the model keeps the weights of its constructor
                self.blocks.view(place).copy_(wire.unpack_tensor(message.tensors[number]))
            block = self.blocks.holding(place[0], 1)
            block.mark(memory.FIXED)
            block.given, block.name = True, f"weight {number} {tuple(place[2])}"
        follow(self._copies)
        self.blocks.changed()
        self.glue.fresh_weights = True
        return {"keeps": self._keeps()}

    def _keeps(self) -> bool:
        """Tells whether the model has memory that may hold what a call has computed, beside the judge's."""
        own = (of_bytes(b.address, b.nbytes) for b in self.blocks.blocks.values() if not b.given)
        return any(self.glue.label(p) not in (memory.UNWRITTEN, memory.CONSTANT, memory.FIXED) for p in own)

    def finish(self, message: Frame) -> tuple[dict[str, Any], list[Any]]:
        """Executes what the call has left to do; returns its facts, and the outputs at the given places."""
        self._drain()
        facts = self.runtime.end_call()
        self.glue.fresh_weights = False
        outputs = [self._output(p) for p in message.header["places"] or ()]
        mutated = [k for k, (p, t) in enumerate(self._inputs) if not same_bits(self.blocks.view(p), t)]
        return {**self.report(facts, mutated), **self.makers(outputs)}, [wire.pack_tensor(t) for _, t in outputs]

    def makers(self, outputs: Sequence[tuple[Place, torch.Tensor]]) -> dict[str, Any]:
        """Returns the facts about who made outputs: they may also be what the host has made of a few values."""
        few = self.glue.work.reads <= origins.FEW and sum(t.numel() for _, t in outputs) <= origins.FEW
        return {"origins": [origins.of(self.blocks, p) for p, _ in outputs], "served": few and self.glue.work.served}

    def moved(self) -> tuple[dict[str, Any], list[Any]]:
        """Returns the copies of memory in which operators have moved anything in the last call."""
        kept = self.glue.work.moved
        lists = (kept.inputs, kept.carried, kept.sources)
        told = {"kept": [len(one) for one in lists], "kept_full": kept.full}
        return told, [wire.pack_tensor(t) for one in lists for t in one]

    def report(self, facts: CallFacts, mutated: list[int]) -> dict[str, Any]:
        """Returns the facts of the call that ended."""
        work = self.glue.work
        reads = [("values read by the host", work.reads)] if work.reads > origins.FEW else []
        pieces: list[tuple[str, int]] = sorted(work.pieces.items(), key=lambda s: -s[1])
        return {
            "facts": facts.fields(),
            "operators": sorted([*work.seen, *reads], key=lambda s: -s[1])[:50],
            "pieces": pieces[:50],
            "operators_run": sorted(work.run.items(), key=lambda s: -s[1])[:50],
            "aside": work.aside,
            "strangers": work.uploads,
            "downloaded": work.downloaded,
            "uploaded": work.uploaded,
            "records": work.records,
            "moved_bytes": work.moved.nbytes,
            "mutated": mutated,
            **self.state(),
        }

    def _output(self, place: Place) -> tuple[Place, torch.Tensor]:
        try:
            return place, self.blocks.view(place).resolve_conj().resolve_neg()
        except (ValueError, RuntimeError, KeyError) as error:
            raise BadAddress(f"an output is in no memory of the device: {error}") from error

    def state(self) -> dict[str, Any]:
        """Returns the facts that do not belong to one call."""
        runtime = self.runtime
        return {
            "unsupported": [str(name)[:500] for name in runtime.unsupported[:100]],
            "findings": list(runtime.findings),
            "library_ops": [],
            "prints": "".join(runtime.printed)[-20_000:],
            "refused": self.glue.refused[:20],
            "error": self.error,
            "first_traceback": self.first_traceback,
        }

    # The candidate's records.

    def execute(self, record: StreamRecord) -> None:
        """Executes one record. What is wrong with it becomes the call's fault."""
        self.glue.work.records += 1
        handler = self.records.get(record.kind)
        answers = record.kind in self.answering
        if self.error and not answers:
            return
        try:
            if handler is None:
                raise BadAddress(f"a record of kind {record.kind[:40]!r}")
            if self.error and record.kind != "module":
                raise DeviceError(self.error)
            getattr(self, handler)(record)
        except OperatorRefused as refused:
            self._fail(refused, "refused", record.kind, answers)
        except KernelBuildFailed as error:
            self._fail(error, "build", record.kind, answers, lasting=False)
        except DeviceError as error:
            self._fail(error, "device", record.kind, answers, lasting=not isinstance(error, NotDecided))
        except (OutOfMemory, MemoryError) as error:
            self._fail(error, "memory", record.kind, answers)
        except (BadAddress, ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
            self._fail(error, "record", record.kind, answers)
        except RuntimeError as error:  # torch's, about the operator's arguments
            self._fail(error, "operator", record.kind, answers)

    def _fail(self, error: BaseException, cause: str, kind: str, answers: bool, lasting: bool = True) -> None:
        text = str(error)[:2000]
        self.first_traceback = self.first_traceback or traceback.format_exc(limit=-8)[-4000:]
        if lasting and not self.error:
            self.error = text
            if cause in ("record", "memory") and not isinstance(error, DeviceError):
                self.runtime.findings.append(_finding(cause, text))
        if answers:
            self.stream.write("failed", cause, text, type(error).__name__)
            self.stream.flush()

    def _answer(self, *fields: Any, parts: Sequence[bytes] = ()) -> None:
        self.stream.write("answer", *fields, parts=parts)
        self.stream.flush()

    def _alloc(self, record: StreamRecord) -> None:
        address, nbytes, *shape = map(int, record.fields)
        self.blocks.add(address, nbytes, f"tensor {tuple(shape[:8])}" if shape else "tensor")

    def _integers(self, record: StreamRecord) -> None:
        block = self.blocks.at(int(record.fields[0]))
        if block is not None:
            block.floating = False

    def _free(self, record: StreamRecord) -> None:
        block = self.blocks.at(int(record.fields[0]))
        if block is not None and not (block.given or block.variable):
            self.blocks.free(block.address)

    def _op(self, record: StreamRecord) -> None:
        name, library, arguments, results = record.fields
        self.glue.run(str(name), str(library), arguments, results, record.parts)

    def _value(self, record: StreamRecord) -> None:
        """Executes an operator whose result the host needs: a value, or tensors of a shape that values decide."""
        name, library, arguments = record.fields
        if str(name).split(".")[0] not in ITEMS:
            made = self.glue.run(str(name), str(library), arguments, [], record.parts)
        else:
            made = self.blocks.view(arguments[0][0]["t"]).item()
        self._read_place(arguments, 8)
        self._answer(made if isinstance(made, (int, float, bool)) else str(made))

    def _shaped(self, record: StreamRecord) -> None:
        raise OperatorRefused(str(record.fields[0]).split(".")[0], self.glue.rule)

    def _read_place(self, arguments: Any, nbytes: int) -> None:
        places = list(origins.places(arguments))
        self.glue.work.downloaded += nbytes
        if any(self.blocks.uniform(p) not in (memory.FIXED, memory.CONSTANT) for p in places):
            self.glue.work.reads += 1
            self.glue.work.served |= any(map(self.blocks.of_kernels, places))

    def _fetch(self, record: StreamRecord) -> None:
        """Sends a tensor's values to the host, in row-major order."""
        place = record.fields[0]
        tensor = self.blocks.view(place).resolve_conj().resolve_neg()
        data = wire.pack_tensor(tensor.cpu()).data
        self._downloaded(place, len(data))
        self._answer(parts=(bytes(data),))

    def _download(self, record: StreamRecord) -> None:
        address, nbytes = map(int, record.fields)
        self.blocks.holding(address, nbytes)
        self._downloaded(of_bytes(address, nbytes), nbytes)
        self._answer(parts=(self.blocks.read(address, nbytes),))

    def _downloaded(self, place: Place, nbytes: int) -> None:
        work = self.glue.work
        work.downloaded += nbytes
        if self.blocks.uniform(place) not in (memory.FIXED, memory.CONSTANT):
            work.reads += -(-nbytes // 4)
            work.served |= self.blocks.of_kernels(place)

    def _upload(self, record: StreamRecord) -> None:
        """Writes bytes of the host. They count as the host's once it has read values of the call."""
        address, data = int(record.fields[0]), record.parts[0]
        work = self.glue.work
        work.uploaded += len(data)
        if work.reads:
            work.uploads += len(data) // 4
        self.blocks.write(address, len(data), memory.HOST if work.reads else memory.CONSTANT)
        self.blocks.put(address, data)

    def _fill(self, record: StreamRecord) -> None:
        address, value, nbytes = map(int, record.fields)
        self.blocks.write(address, nbytes, memory.CONSTANT)
        self.blocks.fill(address, value & 0xFF, nbytes)

    def _copy(self, record: StreamRecord) -> None:
        to, source, nbytes = map(int, record.fields)
        self.glue.keep_sources([of_bytes(source, nbytes)])
        self.blocks.write(to, nbytes, moved_labels.moved(self.blocks.written(source, nbytes)))
        self.blocks.copy(to, source, nbytes)

    def _seed(self, record: StreamRecord) -> None:
        seed_all(int(record.fields[0]) & (2**63 - 1))

    def _module(self, record: StreamRecord) -> None:
        """Loads device code; the answer describes its kernels and variables."""
        text = bytes(record.parts[0]).decode("utf-8", "replace")
        source = bytes(record.parts[1]).decode("utf-8", "replace")
        if len(self.modules) >= MAX_MODULES:
            raise BadAddress(f"more than {MAX_MODULES} modules")
        name = hashlib.sha256(text.encode()).hexdigest()
        if name not in self.modules:  # a program's variables are in its memory: it is kept
            self.modules[name] = self.runtime.program(BuildResult("ok", ptx=text, device_source=source))
        program = self.modules[name]
        self.blocks.add_variables(program)
        kernels = [[k.name, k.params, k.static_shared, k.max_threads] for k in program.kernels.values()]
        self._answer(kernels, {name: (v.address, v.nbytes) for name, v in program.variables().items()})

    def _launch(self, record: StreamRecord) -> None:
        module, kernel, grid, block, shared, args, own_shared, cooperative, cluster = record.fields
        program = self.modules[module]
        if kernel not in program.kernels:
            raise BadAddress(f"the module has no kernel {str(kernel)[:100]!r}")
        self.glue.keep_moved()
        before = dict(self.runtime.written())
        packed = [bytes.fromhex(a) for a in args]
        attributes = LaunchAttributes(bool(cooperative), tuple(cluster) if cluster else None)
        try:
            self.runtime.launch(
                program, kernel, grid, block, int(shared), packed, own_shared=bool(own_shared), attributes=attributes
            )
        finally:
            label_stores(self.blocks, self.runtime.written().items(), before)

    def _stored_in_variables(self, program: Program) -> None:
        """Labels the variables into which a launch may have stored, where stores cannot be seen."""
        for variable in program.variables().values():
            if not variable.constant:
                self.blocks.blocks[variable.address].mark(memory.KERNEL)

    def _sync(self, _record: StreamRecord) -> None:
        self._answer()

    def _count(self, _record: StreamRecord) -> None:
        self._answer(self.runtime.instructions())

    # Both.

    def drained(self) -> bool:
        """Executes every record that has arrived; returns False once the candidate has closed its stream."""
        try:
            self._drain()
        except StreamClosed:
            return False
        return True

    def forget(self) -> None:
        """Unmaps all memory and closes the stream."""
        self.blocks.clear()
        for program in self.modules.values():
            if isinstance(program, Program):  # the next candidate's variables may lie at the same addresses
                program.unload()
        self.modules.clear()
        set_heap_limit(HEAP_BYTES)
        if hasattr(self, "stream"):
            self.stream.sock.close()

    def _drain(self) -> None:
        """Executes every record that has arrived."""
        while (record := self.stream.next()) is not None:
            self.execute(record)


def _finding(cause: str, text: str) -> dict[str, Any]:
    rule = "out-of-memory" if cause == "memory" else "bad-record"
    return {"rule": rule, "evidence": text, "severity": "fault", "kernel": "", "line": None}


def serve(channel: Channel, level: str, link: socket.socket) -> None:
    """Executes records and answers the judge until it closes the channel."""
    serve_devices(channel, level, link, ProgramDevice)


def serve_devices(
    channel: Channel, level: str, control: socket.socket, kind: Callable[[], ProgramDevice], launch_ms: float = 0.0
) -> None:
    """Serves one candidate after the other, each with a device and a record stream of its own. The judge sends the
    stream's descriptor through `control` before it sends `open`."""
    channel.send({"kind": "ready", "level": level, "launch_ms": launch_ms})
    device = kind()
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    watched: int | None = None
    while True:
        ready = {fd for fd, _ in poll.poll()}
        if watched is not None and watched in ready and not device.drained():
            poll.unregister(watched)
            watched = None
        if channel.fileno() not in ready:
            continue
        try:
            message = channel.receive()
        except ChannelClosed:
            return
        if message.kind in ("open", "forget") and watched is not None:
            poll.unregister(watched)
            watched = None
        if message.kind == "open":
            device.forget()
            device = kind()
            device.stream = RecordStream(_received(control))
            watched = device.stream.fileno()
            poll.register(watched, select.POLLIN)
        _obey(device, channel, message)


def _received(control: socket.socket) -> socket.socket:
    _, fds, _, _ = socket.recv_fds(control, 16, 1)
    return socket.socket(fileno=fds[0])


def _obey(device: ProgramDevice, channel: Channel, message: Frame) -> None:
    tensors: list[Any] = []
    try:
        if message.kind == "open":
            device.open(message.header)
            answer: dict[str, Any] = {}
        elif message.kind == "forget":
            device.forget()
            answer = {}
        else:
            made = device.answers[message.kind](message)
            answer, tensors = made if isinstance(made, tuple) else (made, [])
    except StreamClosed:
        answer = {"problem": "the candidate closed the record stream", **device.state()}
    except (BadAddress, OutOfMemory, RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
        device.first_traceback = device.first_traceback or traceback.format_exc(limit=-8)[-4000:]
        answer = {"problem": str(error)[:500], **device.state()}
    channel.send({"kind": "device", **answer}, tuple(tensors))
