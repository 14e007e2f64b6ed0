"""The baselines' child: eager and compiled references, timed in a process that no candidate ever enters.

It gets a call's inputs as a candidate does, through a block of its own that the referee fills, and goes through the
same steps (`timed_calls`). One serves many tasks, one after another.

Messages in: `prepare`, `time`, `graph`, `release`. Out: `ready`, `prepared`, `timed`, `graphed`, `released`, `failed`.
"""

from __future__ import annotations

import copy
import dataclasses
import gc
from collections.abc import Callable
from typing import Any

import torch

from kernelwright.evaluation import devices, timed_calls
from kernelwright.evaluation.channel import Channel, Message
from kernelwright.evaluation.devices import Device
from kernelwright.evaluation.referee import answer_all
from kernelwright.evaluation.timed_calls import NoGraph, TimedCalls
from kernelwright.tasks import draws, gradients
from kernelwright.tasks import inputs as task_inputs
from kernelwright.tasks import workloads as task_workloads


class Baseline:
    """The reference of the task at hand, on the device."""

    def __init__(self, device: Device) -> None:
        self.device = device
        draws.home = gradients.device = device.name
        self.calls = TimedCalls(device)
        self.model: Any = None
        self.compiled: dict[str, Any] = {}

    def prepare(self, message: Message) -> dict[str, Any]:
        """Makes the model with the weights that referee and candidate have, and opens the block of inputs."""
        header = message.header
        self.release(message)
        namespace = task_workloads.instantiate(header["source"], header["constants"])
        model = task_inputs.construct(namespace, header["weight_seed"])
        if header["randomise"] and isinstance(model, torch.nn.Module):
            task_inputs.randomise_weights(model, header["weight_seed"])
        self.model = model.to(self.device.name) if isinstance(model, torch.nn.Module) else model
        self.calls.exchange(header["handle"], header["nbytes"])
        return {}

    def release(self, _message: Message) -> dict[str, Any]:
        """Forgets the task before."""
        if self.model is not None:
            self.model, self.compiled = None, {}
            self.calls.exchange("", 0)
            gc.collect()
            devices.give_back(self.device.name)
        return {}

    def time(self, message: Message) -> dict[str, Any]:
        """A baseline timed on what lies in the block."""
        calls = self._bound(message.header)
        if message.header["fresh"]:
            with torch.no_grad(), draws.OnDevice(self.device.name):
                calls[0]()
        # Timed without our own mode, which would slow the host down.
        with torch.no_grad(), torch.device(self.device.name):
            _, times = self.device.measure(calls)
        return {"times": dataclasses.asdict(times)}

    def graph(self, message: Message) -> dict[str, Any]:
        """What a replay takes of a baseline captured in a CUDA graph."""
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
        self.device.soil()
        draws.seed_all(header["call_seed"])
        return calls

    def _baseline(self, name: str) -> Callable[..., Any]:
        if name not in self.compiled:
            twin = copy.deepcopy(self.model)  # a module in training mode changes itself when called
            mode = None if name == "compile" else "max-autotune-no-cudagraphs"
            self.compiled[name] = twin if name == "eager" else torch.compile(twin, mode=mode)
        return self.compiled[name]  # type: ignore[no-any-return]


def serve(channel: Channel, level: str, device: Device) -> None:
    """Answers the judge until it closes the channel."""
    baseline = Baseline(device)
    channel.send({"kind": "ready", "level": level, "launch_ms": device.launch_ms})
    answer_all(
        channel,
        {
            "prepare": ("prepared", baseline.prepare),
            "time": ("timed", baseline.time),
            "graph": ("graphed", baseline.graph),
            "release": ("released", baseline.release),
        },
    )
