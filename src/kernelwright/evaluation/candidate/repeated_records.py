"""Executes the records of a traced program on real memory of a device, any number of times.

Each record becomes a function of the call's blocks once, when the program is loaded. What the program did before its
first call is executed once, with the judge's weights written where the model keeps them, and its first call on new
weights once after they were written.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernelwright.errors import TaskError
from kernelwright.evaluation.processes import messages
from kernelwright.evaluation.processes.messages import Trace, TracedBlock, View
from kernelwright.evaluation.program import glue_table, origins
from kernelwright.evaluation.program.forms import decode, dtype_of
from kernelwright.evaluation.program.glue import tensors_in
from kernelwright.evaluation.program.weight_copies import Copies, copies_among, follow
from kernelwright.machine import LaunchAttributes

Tensors = list[torch.Tensor]
_POISON = 0xFF


class Blocks:
    """The memory of one run of records: blocks are allocated on first use, or are what an operator returned."""

    def __init__(self, program: Repeated, given: Sequence[torch.Tensor] = (), poisoned: bool = False) -> None:
        self.program, self.given, self.poisoned = program, given, poisoned
        self.own: dict[int, torch.Tensor] = {}

    def flat(self, number: int) -> torch.Tensor:
        """Returns all bytes of a block."""
        described = self.program.trace.blocks[number]
        if described.kind == "input":
            tensor = self.given[described.number]
            whole = torch.empty(0, dtype=torch.uint8, device=tensor.device)
            return whole.set_(tensor.untyped_storage(), 0, (described.nbytes,))  # type: ignore[call-overload,no-any-return]
        if described.kind == "variable":
            raise TaskError("a variable of device code is used as a tensor")
        kept = number < self.program.trace.kept
        held = self.program.kept if kept else self.own
        if number not in held:
            made = torch.empty(described.nbytes, dtype=torch.uint8, device=self.program.device)
            if self.poisoned and not kept:
                made.fill_(_POISON)
            self._hold(held, number, made)
        return held[number]

    def _hold(self, held: dict[int, torch.Tensor], number: int, made: torch.Tensor) -> None:
        self.program.runtime.register(made)
        held[number] = made

    def address(self, number: int) -> int:
        """Returns the address of a block, or of a variable of device code."""
        described = self.program.trace.blocks[number]
        if described.kind == "variable":
            return self.program.variable(described)
        if described.kind == "input":
            return int(self.given[described.number].untyped_storage().data_ptr())
        return int(self.flat(number).data_ptr())

    def view(self, view: View | list[Any]) -> torch.Tensor:
        """Returns the tensor at a place. Raises what torch raises for a view out of bounds."""
        number, dtype, sizes, strides, offset, bits, into = view
        kind = dtype_of(dtype)
        if 0 in sizes:
            return torch.empty_strided(tuple(sizes), tuple(strides), dtype=kind, device=self.program.device)
        flat = self.flat(number)[into:]
        flat = flat[: flat.numel() // kind.itemsize * kind.itemsize].view(kind)
        tensor = flat.as_strided(sizes, strides, offset + flat.storage_offset())
        tensor = tensor.conj() if bits & 1 else tensor
        return torch._neg_view(tensor) if bits & 2 else tensor

    def take(self, view: View, made: torch.Tensor, fresh: bool) -> None:
        """Makes an operator's `fresh` result the memory of its block, if that holds nothing yet and is of the same
        form; copies it there otherwise."""
        number, _, sizes, strides, offset, bits, into = view
        nbytes = self.program.trace.blocks[number].nbytes
        held = self.program.kept if number < self.program.trace.kept else self.own
        storage = made.untyped_storage()
        whole = not (offset or bits or into or made.storage_offset()) and list(made.stride()) == list(strides)
        if fresh and number not in held and whole and list(made.shape) == list(sizes) and storage.nbytes() == nbytes:
            flat = torch.empty(0, dtype=torch.uint8, device=made.device)
            self._hold(held, number, flat.set_(storage))  # type: ignore[call-overload]
        else:
            self.view(view).copy_(made)

    def free(self, number: int) -> None:
        """Returns a block's memory to the allocator."""
        held = self.program.kept if number < self.program.trace.kept else self.own
        held.pop(number, None)


Step = Callable[[Blocks], None]


class Repeated:
    """A program, ready to be repeated. Raises `TaskError` for records that no tracing device makes."""

    def __init__(
        self, trace: Trace, parts: Sequence[bytes], programs: dict[str, Any], runtime: Any, device: str
    ) -> None:
        self.trace, self.programs, self.runtime, self.device = trace, programs, runtime, device
        self.weights: Tensors | None = None
        """The judge's weights until they are written to their places."""
        self.kept: dict[int, torch.Tensor] = {}
        """The blocks that the setup and the first call on these weights made."""
        self._parts = parts
        self._ready = False
        self._copies: Copies = []
        self._named: set[int] = set()
        self._setup = [self._step(record, in_call=False) for record in trace.setup]
        self._warm = [self._step(record, in_call=False) for record in trace.warm]
        outputs = {view[0] for view in trace.outputs}
        self._named.clear()  # what follows names the blocks that calls use
        self._check_views(trace.outputs)
        self._check_views(trace.own)
        self._steps = [
            (isinstance(record, messages.LaunchStep), self._step(record, in_call=True))
            for record in trace.call
            if not (isinstance(record, messages.FreeStep) and record.block in outputs)
        ]

    def follow(self, before: Repeated) -> None:
        """Goes on with the memory of the program as it was on other weights."""
        self._ready, self.kept, self._places, self._copies = True, before.kept, before._places, before._copies

    def prepare(self, given: Sequence[torch.Tensor]) -> None:
        """Executes what the program did before its first call. After new weights have been written to their places, it
        executes the first call on them, on `given` inputs."""
        blocks = Blocks(self, given)
        with torch.no_grad():
            if not self._ready:
                self._ready = True
                for step in self._setup:
                    step(blocks)
            if self.weights is not None:
                self._write(blocks)
                self._warmed(blocks)

    def _warmed(self, blocks: Blocks) -> None:
        self.runtime.given(blocks.given, self.kept.values())
        for step in self._warm:
            step(blocks)
        base = self.trace.base
        self.kept = {number: b for number, b in self.kept.items() if number < base or number in self._named}

    def call(self, blocks: Blocks, launches: bool) -> Tensors:
        """Repeats a call; returns its outputs. Without `launches`, kernels are left out."""
        self.runtime.given(blocks.given, self.kept.values())
        with torch.no_grad():
            for launch, step in self._steps:
                if launches or not launch:
                    step(blocks)
        return [blocks.view(view) for view in self.trace.outputs]

    def variable(self, block: TracedBlock) -> int:
        """Returns the address of a variable of device code."""
        return int(self.programs[block.module].global_symbol(block.variable)[0])

    # Records as functions.

    def _step(self, record: messages.AnyStep, in_call: bool) -> Step:
        make = getattr(self, f"_{record.kind}")
        step: Step = make(record, in_call)
        return step

    def _allocate(self, record: messages.AllocateStep, _in_call: bool) -> Step:
        self._check(record.block)
        return lambda blocks: None  # on first use

    def _free(self, record: messages.FreeStep, _in_call: bool) -> Step:
        self._check(record.block)
        return lambda blocks: blocks.free(record.block)

    def _fill(self, record: messages.FillStep, _in_call: bool) -> Step:
        number, into = self._range(record.to, record.nbytes)
        value, nbytes = record.value, record.nbytes
        if self.trace.blocks[number].kind == "variable":
            return self._sent(record.to, bytes([value]) * nbytes, [])

        def fill(blocks: Blocks) -> None:
            blocks.flat(number)[into : into + nbytes].fill_(value)

        return fill

    def _copy(self, record: messages.CopyStep, _in_call: bool) -> Step:
        (to, at), (source, begin) = self._range(record.to, record.nbytes), self._range(record.source, record.nbytes)
        nbytes = record.nbytes
        if "variable" in (self.trace.blocks[to].kind, self.trace.blocks[source].kind):
            return lambda blocks: self._moved(blocks.address(to) + at, blocks.address(source) + begin, nbytes)

        def copy(blocks: Blocks) -> None:
            blocks.flat(to)[at : at + nbytes].copy_(blocks.flat(source)[begin : begin + nbytes])

        return copy

    def _upload(self, record: messages.UploadStep, _in_call: bool) -> Step:
        return self._sent(record.to, self._part(record.part), record.pointers)

    def _sent(self, to: messages.Spot, data: bytes, pointers: Sequence[tuple[int, int, int]]) -> Step:
        """Returns a step that writes bytes of the host, with addresses filled in."""
        number, into = self._range(to, len(data))
        for offset, block, _ in pointers:
            self._check(block)
            if offset + 8 > len(data):
                raise TaskError("an address lies beyond the bytes of an upload")
        variable = self.trace.blocks[number].kind == "variable"

        def write(blocks: Blocks) -> None:
            changed = bytearray(data)
            for offset, block, within in pointers:
                changed[offset : offset + 8] = (blocks.address(block) + within).to_bytes(8, "little")
            if not changed:
                return
            sent = torch.frombuffer(changed, dtype=torch.uint8)
            if variable:
                self._into_variable(blocks.address(number) + into, sent)
            else:
                blocks.flat(number)[into : into + len(changed)].copy_(sent)

        return write

    def _into_variable(self, address: int, sent: torch.Tensor) -> None:
        if self.device == "cuda":
            from kernelwright.machine import driver

            driver.copy(address, sent.data_ptr(), sent.numel())
        else:
            ctypes.memmove(address, sent.data_ptr(), sent.numel())

    def _moved(self, to: int, source: int, nbytes: int) -> None:
        """Copies bytes on the device, one end of which torch does not know."""
        if self.device == "cuda":
            from kernelwright.machine import driver

            driver.copy_on_device(to, source, nbytes, torch.cuda.current_stream().cuda_stream)
        else:
            ctypes.memmove(to, source, nbytes)

    def _operator(self, record: messages.OperatorStep, in_call: bool) -> Step:
        name = record.name
        packet, _, overload = name.partition(".")
        function = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
        if function is None or glue_table.base_name(name) in glue_table.NEVER:
            raise TaskError(f"an operator {name[:100]} that no program has")
        places = [view for argument in record.arguments for view in origins.places(argument)]
        self._check_views([*places, *(v for v in record.results if v is not None)])
        integers = not any(dtype_of(p[1]).is_floating_point or dtype_of(p[1]).is_complex for p in places)
        if in_call and not (glue_table.moves(name, accumulates=False) or glue_table.is_glue(name, integers)):
            raise TaskError(f"the operator {name[:100]} is no glue")
        data = [self._part(k) for k in record.parts]
        plain, named, results = *record.arguments, record.results

        def host(described: list[Any]) -> torch.Tensor:
            index, dtype, shape = described
            if not data[index]:
                return torch.empty(tuple(shape), dtype=dtype_of(dtype))
            return torch.frombuffer(bytearray(data[index]), dtype=dtype_of(dtype)).reshape(tuple(shape))

        def operate(blocks: Blocks) -> None:
            args = decode(plain, blocks.view, host, self.device)
            keywords = {
                k: decode(v, blocks.view, host, self.device)
                for k, v in named.items()
                if k not in ("pin_memory", "generator")
            }
            made = function(*args, **keywords)
            read = {t.untyped_storage().data_ptr() for t in tensors_in([*args, *keywords.values()])}
            for view, tensor in zip(results, tensors_in(made), strict=False):
                if view is not None and 0 not in view[2]:
                    blocks.take(view, tensor, fresh=tensor.untyped_storage().data_ptr() not in read)

        return operate

    def _launch(self, record: messages.LaunchStep, _in_call: bool) -> Step:
        program = self.programs.get(record.module)
        known = program.kernels.get(record.entry) if program is not None else None
        plain = [bytes.fromhex(value) for value in record.args]
        if known is None or [len(value) for value in plain] != [size for size, _ in known.params]:
            raise TaskError(f"the launch of {record.entry[:100]} does not fit its code")
        for index, offset, block, into in record.pointers:
            self._check(block)
            if index >= len(plain) or offset + 8 > len(plain[index]) or into > self.trace.blocks[block].nbytes:
                raise TaskError(f"an address in the launch of {record.entry[:100]} lies nowhere")
        more: dict[str, Any] = {"own_shared": record.own_shared}
        if record.cooperative or record.cluster:
            more["attributes"] = LaunchAttributes(record.cooperative, record.cluster)

        def launch(blocks: Blocks) -> None:
            args = list(plain)
            for index, offset, block, into in record.pointers:
                address = (blocks.address(block) + into).to_bytes(8, "little")
                args[index] = args[index][:offset] + address + args[index][offset + 8 :]
            self.runtime.launch(program, record.entry, record.grid, record.block, record.shared_bytes, args, **more)

        return launch

    def _seed(self, record: messages.SeedStep, _in_call: bool) -> Step:
        def seed(_blocks: Blocks) -> None:
            torch.manual_seed(record.seed)

        return seed

    def _wait(self, _record: messages.WaitStep, _in_call: bool) -> Step:
        def wait(_blocks: Blocks) -> None:
            if self.device == "cuda":
                torch.cuda.current_stream().synchronize()

        return wait

    def _weights(self, record: messages.WeightsStep, _in_call: bool) -> Step:
        self._check_views([*record.places, *record.own])

        def noted(blocks: Blocks) -> None:
            """Recognises the copies that the model has made of its weights, before those change."""
            own = [blocks.view(v) for v in record.own]
            weights = [blocks.view(v) for v in record.places]
            self._copies = copies_among(own, weights) if own and weights and self.weights else []
            self._places = weights

        return noted

    _places: Sequence[torch.Tensor] = ()

    def _write(self, blocks: Blocks) -> None:
        if self.weights is None:
            return
        if self.trace.own:
            self._copies = [*self._copies, *copies_among([blocks.view(v) for v in self.trace.own], self._places)]
        for place, weight in zip(self._places, self.weights, strict=bool(self.weights)):
            place.copy_(weight)
        follow(self._copies)
        self.weights = None

    # Checks.

    def _part(self, number: int) -> bytes:
        if number >= len(self._parts):
            raise TaskError("a record names bytes that were not sent")
        return self._parts[number]

    def _check(self, number: int) -> None:
        if number >= len(self.trace.blocks):
            raise TaskError("a record names memory that its program does not have")
        self._named.add(number)

    def _check_views(self, views: Sequence[View | list[Any]]) -> None:
        for view in views:
            if len(view) != 7:
                raise TaskError("a record names a tensor in another form than a place in a block")
            if 0 not in view[2]:
                self._check(view[0])

    def _range(self, spot: messages.Spot, nbytes: int) -> messages.Spot:
        """Returns a range's block and beginning. Raises `TaskError` if it leaves the block."""
        number, into = spot
        self._check(number)
        if into + nbytes > self.trace.blocks[number].nbytes:
            raise TaskError("a record names bytes beyond its memory")
        return spot
