"""Executes a candidate's torch operators on the device's memory, and accounts for them.

The table (`glue_table`) says which operators may run. Each execution labels the bytes that it writes, and is added to
the call's record of work: elements by operator, with lists counted by their sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelwright.evaluation.processes.channel import MAX_BUFFERS
from kernelwright.evaluation.program import glue_table, memory, moved_labels, origins
from kernelwright.evaluation.program.forms import Place, decode, dtype_of, once
from kernelwright.evaluation.program.memory import DeviceMemory
from kernelwright.evaluation.program.moved_labels import Execution, Move
from kernelwright.evaluation.text import library_ops
from kernelwright.evaluation.text.library_ops import owner
from kernelwright.records import LibraryRule
from kernelwright.tasks.storages import extent

FEW_FIXED = 4096
"""A bound on the elements of weights that an operator may work on in a call, as in the sum of two biases."""
SNAPSHOT_BYTES = 256 << 20
"""A bound on the bytes kept of a call to recognise kernels that only copy what operators moved."""


class OperatorRefused(RuntimeError):
    """The rule does not allow an operator; `name` tells which."""

    def __init__(self, name: str, rule: str) -> None:
        super().__init__(f"torch's operator {name} is refused on the device by the rule {rule}: write a kernel for it")
        self.name = name


@dataclass
class Snapshots:
    """Copies of memory, as flat bytes in the order of memory, to tell what operators have moved."""

    inputs: list[torch.Tensor] = field(default_factory=list)
    """Blocks into which operators had moved inputs when a kernel was launched."""
    carried: list[torch.Tensor] = field(default_factory=list)
    """Blocks into which operators had moved what kernels had stored, when a kernel was launched."""
    sources: list[torch.Tensor] = field(default_factory=list)
    """What kernels had stored, as it was when operators moved it: the memory of the moved tensor, in its dtype, from
    its first element to its last."""
    full: bool = False
    """True if a copy did not fit into `SNAPSHOT_BYTES`, or all copies not into one message."""
    nbytes: int = 0
    """The bytes of all copies."""
    count: int = 0

    def keep(self, among: list[torch.Tensor], memory: torch.Tensor) -> None:
        """Adds a copy of memory to a list."""
        self.full |= self.nbytes + memory.nbytes > SNAPSHOT_BYTES or self.count == MAX_BUFFERS
        if not self.full:
            among.append(memory.clone())
            self.nbytes += memory.nbytes
            self.count += 1


@dataclass
class Work:
    """The operators of one call: the largest ones, all elements by operator, and the values that the host has read."""

    seen: list[tuple[str, int]] = field(default_factory=list)
    pieces: dict[str, int] = field(default_factory=dict)
    run: dict[str, int] = field(default_factory=dict)
    """All elements that operators have read or moved, by operator."""
    aside: int = 0
    reads: int = 0
    """Elements of four bytes that went to the host, weights not counted."""
    served: bool = False
    """True once the host has read what kernels had stored."""
    uploads: int = 0
    """Elements of four bytes that came from the host after it had read values of the call."""
    records: int = 0
    downloaded: int = 0
    uploaded: int = 0
    """All bytes that went down and came up."""
    moved: Snapshots = field(default_factory=Snapshots)


class Glue:
    """The operators of one candidate. `rule` decides which run; `fresh_weights` is true until the first call on new
    weights has ended."""

    element_labels = True
    """False where one label for each tensor is enough."""

    def __init__(self, blocks: DeviceMemory, rule: LibraryRule = "from_scratch") -> None:
        self.blocks = blocks
        self.rule = rule
        self.work = Work()
        self.refused: list[str] = []
        self.fresh_weights = True
        self._generators: dict[str, torch.Generator] = {}

    def begin(self) -> None:
        """Starts the record of a call."""
        self.work = Work()
        self._generators.clear()

    def run(self, name: str, library: str, arguments: list[Any], results: list[Any], parts: Sequence[bytearray]) -> Any:
        """Executes one operator of `aten`. `results` holds a place for each tensor that it returns, or None where that
        is an argument. Returns what it returned. Raises `OperatorRefused`, and what torch raises."""
        function = _operator(name)
        args, kwargs = arguments
        places = [*origins.places(args), *origins.places(kwargs)]
        hosts = [*_hosts(args), *_hosts(list(kwargs.values()))]
        accumulates = name.startswith("index_put") and len(args) > 3 and bool(args[3])
        labels = [self.label(p) for p in places]
        if places:
            read = max([*map(_count, places), *(_count(p) for p in results if p is not None)])
            self.work.run[name] = self.work.run.get(name, 0) + read
        moved = glue_table.moves(name, accumulates)
        if not moved:
            self._allow(name, library, places, labels)
            self._account(library or name.split(".")[0], places, labels, results)
        label = self._result_label(name, labels, moved, bool(hosts))
        written = _written(function, args, kwargs)
        if moved:
            self.keep_sources([p for p in places if not any(p is w for w in written)])
        call = self.execute(function, arguments, results, parts)
        follows = moved and call is not None and self.element_labels
        move = Move(name.split(".")[0], function, args, call, places, labels) if follows and call else None
        for place in results:
            if place is not None:
                spread = moved_labels.result(self.blocks, move, place[2]) if move is not None else None
                self.blocks.mark(place, label if spread is None else spread)
        for place in written:
            known = move if not (hosts and self.work.reads) else None
            self.blocks.mark(place, moved_labels.in_place(self.blocks, known, place) if known else label)
        return call.made if call is not None else None

    def execute(
        self, function: Any, arguments: list[Any], results: list[Any], parts: Sequence[bytearray]
    ) -> Execution | None:
        """Executes an operator, and copies its new tensors to their places."""
        args, kwargs = arguments
        host = self._host(parts)
        plain = decode(args, self.blocks.view, host, self.blocks.device)
        named = {k: self._named(k, v, host) for k, v in kwargs.items() if k != "pin_memory"}
        with torch.no_grad():
            made = function(*plain, **named)
        tensors = list(tensors_in(made))
        if len(tensors) != len(results):  # a place without a tensor would be labelled, and not written
            raise ValueError(f"{len(results)} places for {len(tensors)} results of an operator")
        for place, tensor in zip(results, tensors, strict=True):
            if place is not None:
                self.blocks.view(place).copy_(tensor)
        return Execution(plain, named, made)

    @staticmethod
    def written_in_place(name: str, args: list[Any], kwargs: dict[str, Any]) -> list[Place]:
        """Returns the places of the arguments that an operator writes."""
        return _written(_operator(name), args, kwargs)

    def label(self, place: Place) -> int:
        """Returns the strongest label of the elements at a place."""
        uniform = self.blocks.uniform(place)
        if uniform is not None:
            return uniform
        labels = self.blocks.labels(once(place))
        return memory.strongest(labels.numpy()) if labels.numel() else memory.CONSTANT

    def _allow(self, name: str, library: str, places: list[Place], labels: list[int]) -> None:
        plain = glue_table.base_name(name)
        allowed = library_ops.allowed(self.rule)
        if plain in glue_table.NEVER:
            raise self._refusal(name)
        if self.rule == "libraries" or owner(library or plain) in allowed:
            return
        fixed = all(label in (memory.UNWRITTEN, memory.CONSTANT, memory.FIXED) for label in labels)
        if fixed and (self.fresh_weights or all(label == memory.CONSTANT for label in labels)):
            return
        integers = not any(dtype_of(p[1]).is_floating_point or dtype_of(p[1]).is_complex for p in places)
        if library or not glue_table.is_glue(name, integers):
            raise self._refusal(library or name.split(".")[0])

    def _refusal(self, name: str) -> OperatorRefused:
        if name not in self.refused:
            self.refused.append(name)
        return OperatorRefused(name, self.rule)

    def _account(self, name: str, places: list[Place], labels: list[int], results: list[Any]) -> None:
        given = sum(_count(p) for p in places) if len(places) > 4 else max(map(_count, places), default=0)
        numel = max(given, max((_count(p) for p in results if p is not None), default=0))
        work = self.work
        bare = all(label == memory.CONSTANT for label in labels) and not work.reads
        fixed = all(label in (memory.CONSTANT, memory.FIXED) for label in labels)
        if bare or (fixed and not work.reads and (self.fresh_weights or numel <= FEW_FIXED)):
            work.aside += 1
        else:
            work.seen.append((name, numel))
        if not fixed:
            work.pieces[name] = work.pieces.get(name, 0) + numel

    def _result_label(self, name: str, labels: list[int], moved: bool, host: bool) -> int:
        if host and self.work.reads:
            return memory.HOST
        if moved and glue_table.base_name(name) in glue_table.CREATES and len(labels) <= 1:
            return memory.CONSTANT
        worst = memory.strongest(labels or [memory.CONSTANT])
        if moved or worst == memory.HOST or all(label in (memory.CONSTANT, memory.FIXED) for label in labels):
            return memory.AFTER_MOVE.get(worst, worst)
        return memory.FINISHED if memory.OF_KERNELS & set(labels) else memory.GLUE

    def keep_sources(self, places: Sequence[Place]) -> None:
        """Keeps copies of what kernels have stored at places that an operator is about to move."""
        if self.blocks.sparse:
            return
        for place in places:
            if 0 not in place[2] and self.blocks.anything(place, memory.KERNEL):
                address, dtype, sizes, strides, offset, bits = place
                # With what lies between its elements: a slice across rows has none of its elements side by side.
                whole = self.blocks.view([address, dtype, [extent(sizes, strides)], [1], offset, bits])
                self.work.moved.keep(self.work.moved.sources, whole.resolve_conj().resolve_neg())

    def keep_moved(self) -> None:
        """Keeps copies of the blocks into which operators have moved anything since the last launch."""
        moved = {} if self.blocks.sparse else self.blocks.moved
        for address, inputs in moved.items():
            kept = self.work.moved
            kept.keep(kept.inputs if inputs else kept.carried, self.blocks.flat(self.blocks.blocks[address]))
        moved.clear()

    def _host(self, parts: Sequence[bytearray]) -> Callable[[list[Any]], torch.Tensor]:
        def host(described: list[Any]) -> torch.Tensor:
            index, dtype, shape = described
            data = parts[index]
            self.work.uploaded += len(data)
            if self.work.reads:
                self.work.uploads += len(data) // 4
            if not data:
                return torch.empty(tuple(shape), dtype=dtype_of(dtype))
            return torch.frombuffer(data, dtype=dtype_of(dtype)).reshape(tuple(shape))

        return host

    def _named(self, key: str, value: Any, host: Callable[[list[Any]], torch.Tensor]) -> Any:
        if key == "generator":
            return self._generator(value)
        return decode(value, self.blocks.view, host, self.blocks.device)

    def _generator(self, value: Any) -> torch.Generator | None:
        """Returns the generator that stands for one of the candidate's: it has the seed of that one's first use."""
        if value is None:
            return None
        number, seed = value
        key = f"{number}:{seed}"
        if key not in self._generators:
            self._generators[key] = torch.Generator(self.blocks.device).manual_seed(int(seed))
        return self._generators[key]


def _operator(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _hosts(value: Any) -> Iterator[Any]:
    if isinstance(value, dict) and "h" in value:
        yield value["h"]
    elif isinstance(value, list):
        for item in value:
            yield from _hosts(item)


def _count(place: Place) -> int:
    count = 1
    for n in place[2]:
        count *= n
    return count


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yields the tensors of a nest of lists and tuples."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)


def _written(function: Any, args: list[Any], kwargs: dict[str, Any]) -> list[Place]:
    """Returns the places of the arguments that an operator writes in place."""
    found: list[Place] = []
    for index, argument in enumerate(function._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            found += origins.places([args[index] if index < len(args) else kwargs.get(argument.name)])
    return found
