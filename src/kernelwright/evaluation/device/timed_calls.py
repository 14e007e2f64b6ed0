"""Full-size calls in one process, by the same steps for a candidate and for the baselines beside it.

A kernel's time depends by some percent on the addresses of its operands, and so on everything that its process has
allocated before. A candidate and its baseline therefore get their inputs through this one class: copies from a block
that the referee shares, in memory from the same allocator, emptied at the same moments.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from kernelwright.evaluation.device import devices
from kernelwright.evaluation.device.devices import Device
from kernelwright.tasks import storages

KEPT_CALLS = 2
"""The number of earlier calls whose inputs stay allocated, so that addresses change."""
KEPT_BYTES = 2 << 30
REPLAYS = 8
"""Replays of a captured graph that are timed together."""

Tensors = list[torch.Tensor]
_COPY = torch.Tensor.copy_
"""Saved before a candidate can replace it."""


class NoGraph(Exception):
    """A call cannot be captured in a CUDA graph."""


class TimedCalls:
    """The block that the referee shares with this process, and the inputs copied from it."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.shared: torch.Tensor | None = None
        self.kept: list[Tensors] = []

    def exchange(self, handle: str, nbytes: int) -> None:
        """Opens a block in place of the previous one; an empty handle only closes."""
        if self.shared is not None:
            self.device.release(self.shared, owner=False)
            self.shared = None
        self.kept = []
        if handle:
            self.shared = self.device.open(handle, nbytes)

    def view(self, base: int, offset: int, dtype: str, shape: list[int]) -> torch.Tensor:
        """Returns a tensor of the shared block."""
        assert self.shared is not None
        return devices.view(self.shared, base + offset, getattr(torch, dtype), shape)

    def given(self, header: dict[str, Any]) -> list[Tensors]:
        """Returns copies of each call's inputs. All are copied before the first call, so that no call sees inputs that
        an earlier one has changed."""
        return [self._copied(header, slot) for slot in range(len(header["calls"]))]

    def inputs(self, header: dict[str, Any], slot: int) -> Tensors:
        """Returns a call's inputs in the shared block."""
        return devices.laid_out(self._memories(header, slot), header["forms"])

    def _memories(self, header: dict[str, Any], slot: int) -> Tensors:
        return [self.view(slot * header["stride"], *place) for place in header["inputs"]]

    def _copied(self, header: dict[str, Any], slot: int) -> Tensors:
        return devices.laid_out([memory.clone() for memory in self._memories(header, slot)], header["forms"])

    def decoys(self, header: dict[str, Any]) -> list[Tensors]:
        """Returns the first call's inputs, and for each later call the inputs of the call before it in place of its
        own."""
        return [self._copied(header, max(slot - 1, 0)) for slot in range(len(header["calls"]))]

    def placements(self, header: dict[str, Any], given: list[Tensors]) -> list[Callable[[], None]]:
        """Returns, for each call, a function that copies the call's own inputs over the decoys in `given`."""
        own = [devices.memories_of(tensors, header["forms"]) for tensors in given]
        return [functools.partial(_place, to, self._memories(header, slot)) for slot, to in enumerate(own)]

    def measure_late(
        self, header: dict[str, Any], calls: Sequence[Callable[[], Any]], given: list[Tensors]
    ) -> tuple[list[Any], devices.Times, devices.Times]:
        """Measures back-to-back calls whose inputs are copied in right before each call; returns the results, the
        times, and the times of the copies alone."""
        places = self.placements(header, given)

        def one(place: Callable[[], None], call: Callable[[], Any]) -> Any:
            place()
            return call()

        both = [functools.partial(one, place, call) for place, call in zip(places, calls, strict=True)]
        results, times = self.device.measure(both, "late")
        if header["changed"]:  # these inputs are outputs now
            places = self.placements(header, [storages.copies(tensors) for tensors in given])
        return results, times, self.device.measure(places, "copies")[1]

    def keep(self, given: list[Tensors]) -> None:
        """Keeps inputs allocated for `KEPT_CALLS` calls."""
        flat = [t for call in given for t in call]
        if sum(t.nbytes for t in flat) * KEPT_CALLS > KEPT_BYTES:
            self.kept = []
            return
        self.kept = [*self.kept, flat][-KEPT_CALLS:]

    def refresh(self) -> None:
        """Empties the allocator, so that later inputs do not land in gaps that checks have left."""
        self.kept = []
        gc.collect()
        if self.device.name == "cuda":
            torch.cuda.empty_cache()

    def measure_graph(self, call: Callable[[], Any]) -> tuple[Any, devices.Times]:
        """Captures a call in a CUDA graph; returns its result and the time of one replay. Raises `NoGraph`."""
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


def _place(to: Tensors, source: Tensors) -> None:
    for one, other in zip(to, source, strict=True):
        _COPY(one, other)


def arguments(nodes: list[Any], given: Tensors) -> list[Any]:
    """Returns a call's arguments, from their structure and the tensors in their order."""
    queue = iter(given)
    return [_unpacked(node, queue) for node in nodes]


def bound(call: Callable[..., Any], header: dict[str, Any], given: list[Tensors]) -> list[Callable[[], Any]]:
    """Returns one function without arguments for each call of the message."""
    return [
        functools.partial(call, *arguments(nodes, tensors))
        for nodes, tensors in zip(header["calls"], given, strict=True)
    ]


def _unpacked(node: dict[str, Any], tensors: Iterator[torch.Tensor]) -> Any:
    """Unpacks a value of `wire.pack_values`; its tensors come in order."""
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
