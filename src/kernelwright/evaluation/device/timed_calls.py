"""Full-size calls in one process, by the same steps for a candidate and for the baselines beside it.

What a kernel takes depends by some percent on where its operands lie, and so on everything that its process has
allocated before. A candidate and its baseline therefore get their inputs through this one class: copies of what the
referee left in a block that it shares, in memory from the same allocator, emptied at the same moments.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from kernelwright.evaluation.device import devices
from kernelwright.evaluation.device.devices import Device

KEPT_CALLS = 2
"""Inputs of so many earlier calls stay allocated, so that addresses change."""
KEPT_BYTES = 2 << 30
REPLAYS = 8
"""Replays of a captured graph that are timed together."""

Tensors = list[torch.Tensor]
_COPY = torch.Tensor.copy_
"""Taken before a candidate can put another function in its place."""


class NoGraph(Exception):
    """A call cannot be captured in a CUDA graph."""


class TimedCalls:
    """The block that the referee shares with this process, and the inputs that were copied from it."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.shared: torch.Tensor | None = None
        self.kept: list[Tensors] = []

    def exchange(self, handle: str, nbytes: int) -> None:
        """Opens a block in place of the one before; with an empty handle, none."""
        if self.shared is not None:
            self.device.release(self.shared, owner=False)
            self.shared = None
        self.kept = []
        if handle:
            self.shared = self.device.open(handle, nbytes)

    def view(self, base: int, offset: int, dtype: str, shape: list[int]) -> torch.Tensor:
        """A tensor of the shared block."""
        assert self.shared is not None
        return devices.view(self.shared, base + offset, getattr(torch, dtype), shape)

    def given(self, header: dict[str, Any]) -> list[Tensors]:
        """The inputs of each call, copied. All are copied before the first call, so that none finds what an earlier one
        has touched."""
        bases = [slot * header["stride"] for slot in range(len(header["calls"]))]
        return [[self.view(base, *place).clone() for place in header["inputs"]] for base in bases]

    def decoys(self, header: dict[str, Any]) -> list[Tensors]:
        """The first call's inputs, and for each later call those of the one before it in place of its own."""
        bases = [max(slot - 1, 0) * header["stride"] for slot in range(len(header["calls"]))]
        return [[self.view(base, *place).clone() for place in header["inputs"]] for base in bases]

    def placements(self, header: dict[str, Any], given: list[Tensors]) -> list[Callable[[], None]]:
        """For each call, what puts its own inputs where `given` has decoys."""
        return [functools.partial(self._place, header, slot, tensors) for slot, tensors in enumerate(given)]

    def _place(self, header: dict[str, Any], slot: int, tensors: Tensors) -> None:
        for place, tensor in zip(header["inputs"], tensors, strict=True):
            _COPY(tensor, self.view(slot * header["stride"], *place))

    def measure_late(
        self, header: dict[str, Any], calls: Sequence[Callable[[], Any]], given: list[Tensors]
    ) -> tuple[list[Any], devices.Times, devices.Times]:
        """A row of calls whose inputs are put in place right before each: results, times, and what the copies take."""
        places = self.placements(header, given)

        def one(place: Callable[[], None], call: Callable[[], Any]) -> Any:
            place()
            return call()

        both = [functools.partial(one, place, call) for place, call in zip(places, calls, strict=True)]
        results, times = self.device.measure(both, "late")
        return results, times, self.device.measure(places, "copies")[1]

    def keep(self, given: list[Tensors]) -> None:
        """Holds inputs back from the allocator for some calls."""
        flat = [t for call in given for t in call]
        if sum(t.nbytes for t in flat) * KEPT_CALLS > KEPT_BYTES:
            self.kept = []
            return
        self.kept = [*self.kept, flat][-KEPT_CALLS:]

    def refresh(self) -> None:
        """Empties the allocator, so that what follows does not lie where checks have left room."""
        self.kept = []
        gc.collect()
        if self.device.name == "cuda":
            torch.cuda.empty_cache()

    def measure_graph(self, call: Callable[[], Any]) -> tuple[Any, devices.Times]:
        """A call captured in a CUDA graph, and what one replay of it takes. Raises `NoGraph`."""
        if self.device.name != "cuda":
            raise NoGraph("there is no GPU")
        try:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                call()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                result = call()
            _, times = self.device.measure([graph.replay] * REPLAYS)
            return result, times
        except RuntimeError as error:
            raise NoGraph(str(error).strip().splitlines()[0][:200]) from error


def arguments(nodes: list[Any], given: Tensors) -> list[Any]:
    """A call's arguments, from their structure and the tensors in their order."""
    queue = iter(given)
    return [_unpacked(node, queue) for node in nodes]


def bound(call: Callable[..., Any], header: dict[str, Any], given: list[Tensors]) -> list[Callable[[], Any]]:
    """One function without arguments for each call of the message."""
    return [
        functools.partial(call, *arguments(nodes, tensors))
        for nodes, tensors in zip(header["calls"], given, strict=True)
    ]


def _unpacked(node: dict[str, Any], tensors: Iterator[torch.Tensor]) -> Any:
    """A value of `wire.pack_values` whose tensors come in order."""
    ((kind, value),) = node.items()
    if kind == "t":
        return next(tensors)
    if kind == "l":
        return [_unpacked(v, tensors) for v in value]
    if kind == "p":
        return tuple(_unpacked(v, tensors) for v in value)
    if kind == "d":
        return {k: _unpacked(v, tensors) for k, v in value}
    return getattr(torch, value) if kind == "y" else value
