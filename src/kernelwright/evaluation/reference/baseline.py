"""The baseline: times eager and compiled references in a process that no candidate ever enters.

It gets a call's inputs as a candidate does, through a block of its own that the referee fills, and goes through the
same steps (`timed_calls`). One process serves many tasks, one after another. It keeps a task's compiled references for
a while, for the next candidate that answers it: compiling takes seconds, during which the GPU is held.

Messages in: `construct`, `time`, `graph`, `release`. Out: `ready`, `constructed`, `timed`, `graphed`, `released`,
`failed`.
"""

from __future__ import annotations

import copy
import dataclasses
import gc
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch

from kernelwright.evaluation.device import devices, timed_calls
from kernelwright.evaluation.device.devices import Device
from kernelwright.evaluation.device.timed_calls import NoGraph, TimedCalls
from kernelwright.evaluation.processes.channel import Channel, Frame
from kernelwright.evaluation.processes.serving import answer_all
from kernelwright.tasks import draws, gradients
from kernelwright.tasks import inputs as task_inputs
from kernelwright.tasks import workloads as task_workloads

KEPT_TASKS = 16
"""The number of tasks whose compiled references are kept."""
KEPT_BYTES = 64 << 20
"""A bound on the bytes of a kept task's weights: they stay on the device."""


class Baseline:
    """The reference of the current task, on the device."""

    def __init__(self, device: Device) -> None:
        self.device = device
        draws.home = gradients.device = device.name
        self.calls = TimedCalls(device)
        self.model: Any = None
        self.callables: dict[str, Any] = {}
        self.key: tuple[str, str] = ("", "")
        self.kept: OrderedDict[tuple[str, str], dict[str, Any]] = OrderedDict()
        """The results of `torch.compile`, by task, size and precision, the latest last."""

    def construct(self, message: Frame) -> dict[str, Any]:
        """Makes the model with the weights that referee and candidate have, and opens the block of inputs. Computes
        nothing on the device; the first call puts the model there."""
        header = message.header
        self.release(message)
        devices.allow_tf32(header["precision"] == "tf32")
        namespace = task_workloads.instantiate(header["source"], header["constants"])
        model = task_inputs.construct(namespace, header["weight_seed"])
        if header["randomise"] and isinstance(model, torch.nn.Module):
            task_inputs.randomise_weights(model, header["weight_seed"])
        self.model = model
        self.key = (header["source"], f"{header['constants']} {header['precision']}")
        kept = self.kept.pop(self.key, {})
        self.callables = {name: compiled for name, compiled in kept.items() if _given_state(compiled, self.model)}
        self.calls.exchange(header["handle"], header["nbytes"])
        return {}

    def release(self, message: Frame) -> dict[str, Any]:
        """Forgets the previous task; with `all`, frees all memory that does not belong to a kept model."""
        if self.model is not None:
            if sum(t.nbytes for t in _state(self.model).values()) <= KEPT_BYTES:
                self.kept[self.key] = {name: call for name, call in self.callables.items() if name != "eager"}
            while len(self.kept) > KEPT_TASKS:
                self.kept.popitem(last=False)
            self.model, self.callables = None, {}
            self.calls.exchange("", 0)
            gc.collect()
        devices.give_back(self.device.name, everything=message.header.get("all", False))
        return {}

    def time(self, message: Frame) -> dict[str, Any]:
        """Times a baseline on the block's contents."""
        calls = self._bound(message.header)
        if message.header["fresh"]:
            with torch.no_grad(), draws.OnDevice(self.device.name):
                calls[0]()
        # Timed without our own mode, which would slow the host down.
        with torch.no_grad(), torch.device(self.device.name):
            _, times = self.device.measure(calls)
        return {"times": dataclasses.asdict(times)}

    def graph(self, message: Frame) -> dict[str, Any]:
        """Times a replay of a baseline captured in a CUDA graph."""
        calls = self._bound(message.header)
        try:
            with torch.no_grad(), torch.device(self.device.name):
                _, times = self.calls.measure_graph(calls[0])
        except NoGraph as error:
            return {"times": None, "problem": str(error)}
        return {"times": dataclasses.asdict(times), "problem": ""}

    def _bound(self, header: dict[str, Any]) -> list[Callable[[], Any]]:
        if header["fresh"]:
            self.calls.refresh()
        given = self.calls.given(header)
        self.calls.keep(given)
        calls = timed_calls.bound(self._baseline(header["baseline"]), header, given)
        devices.poison(self.device, header["outputs"], len(given))
        self.device.poison_chip()
        draws.seed_all(header["call_seed"])
        return calls

    def _baseline(self, name: str) -> Callable[..., Any]:
        if name not in self.callables:
            twin = copy.deepcopy(self.model)  # a module in training mode changes itself when called
            twin = twin.to(self.device.name) if isinstance(twin, torch.nn.Module) else twin
            mode = None if name == "compile" else "max-autotune-no-cudagraphs"
            self.callables[name] = twin if name == "eager" else torch.compile(twin, mode=mode)
        return self.callables[name]  # type: ignore[no-any-return]


def _state(model: Any) -> dict[str, torch.Tensor]:
    """Returns parameters and buffers by name."""
    if not isinstance(model, torch.nn.Module):
        return {}
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _given_state(compiled: Any, model: Any) -> bool:
    """Copies a model's state into a compiled model of the same kind; returns False if the kinds differ."""
    old, new = _state(getattr(compiled, "_orig_mod", None)), _state(model)
    if [(n, t.shape, t.dtype) for n, t in old.items()] != [(n, t.shape, t.dtype) for n, t in new.items()]:
        return False
    with torch.no_grad():
        for name, tensor in old.items():
            tensor.copy_(new[name])
    return True


def serve(channel: Channel, level: str, device: Device) -> None:
    """Answers the judge until it closes the channel."""
    baseline = Baseline(device)
    channel.send({"kind": "ready", "level": level, "launch_ms": device.launch_ms})
    answer_all(
        channel,
        {
            "construct": ("constructed", baseline.construct),
            "time": ("timed", baseline.time),
            "graph": ("graphed", baseline.graph),
            "release": ("released", baseline.release),
        },
    )
