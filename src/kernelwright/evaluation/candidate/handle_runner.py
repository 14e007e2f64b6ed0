"""The runner whose tensors are handles: it loads one candidate and calls it, and holds no value of the device.

Inputs and weights arrive as places in device memory, and outputs leave as places. What the candidate does to the device
goes to the device process as records (`evaluation.program`). Host code computes in this process, on values that it made
itself or has fetched from the device, which the device process counts.
"""

from __future__ import annotations

import contextlib
import gc
import socket
from typing import Any

import torch

from kernelwright.evaluation.candidate import handle_torch, runner, watched_threads
from kernelwright.evaluation.candidate.device_functions import META, DeviceFunctions
from kernelwright.evaluation.candidate.device_operators import DeviceOperators
from kernelwright.evaluation.candidate.handles import is_handle
from kernelwright.evaluation.candidate.recording_runtime import RecordingRuntime
from kernelwright.evaluation.candidate.runner_loop import serve as serve_runner
from kernelwright.evaluation.processes import wire
from kernelwright.evaluation.processes.channel import Channel, Frame
from kernelwright.evaluation.program.forms import Place, dtype_of
from kernelwright.evaluation.program.stream import RecordStream
from kernelwright.evaluation.program.weight_copies import copies_among, held_tensors, own_tensors
from kernelwright.tasks import gradients

SPIN_SECONDS = 0.001
"""Seconds that it looks for an answer before it sleeps, where the time of a call is measured."""


class HandleRunner(runner.Runner):
    """The state of one candidate with handles."""

    fenced = False

    def __init__(self, channel: Channel, link: socket.socket) -> None:
        self.stream = RecordStream(link)
        super().__init__(channel)
        gradients.device = "meta"

    def make_runtime(self) -> RecordingRuntime:
        """Returns a runtime that records."""
        return RecordingRuntime(self._build, self.stream)

    def load(self, message: Frame) -> dict[str, Any]:
        """Executes the candidate's module; success returns no facts."""
        self.runtime.card_code = bool(message.header["card_code"])
        self.runtime.live = self.runtime.tensors.addresses.reused = bool(message.header["live"])
        self.stream.spin = SPIN_SECONDS if self.runtime.live else 0.0
        return super().load(message)

    def modes(self) -> list[Any]:
        """Returns the modes under which candidate code runs."""
        functions = DeviceFunctions(self.runtime.tensors, self.runtime.unsupported)
        self.device_operators = DeviceOperators(self.runtime.tensors, self.runtime)
        self.runtime.standing_for = self.device_operators.standing_for
        return [functions, self.device_operators]

    def install(self) -> None:
        """Makes torch answer as on a GPU."""
        handle_torch.install(self.runtime)

    def watch(self) -> None:
        """Applies the modes to threads too; values need no watching, since there are none."""
        watched_threads.install(lambda: self.active)
        self.runtime.watched = lambda: watched_threads.entered(self.active)

    def placed(self, model: Any) -> Any:
        """Moves the model's parameters and buffers to the device."""
        return model.to(META) if isinstance(model, torch.nn.Module) else model

    def make(self, message: Frame) -> dict[str, Any]:
        """Constructs the model; returns how its weights are to be set, and the places of weights and of copies."""
        header = message.header
        args, named = wire.unpack_values(message)[0]
        new = not (header["keep"] and self.model is not None)
        if new:
            self.model = None
            gc.collect()
            torch.manual_seed(header["weight_seed"])
            # At a size that no host memory holds, weights are the device's from the start.
            place = torch.device("meta") if header.get("everywhere") else contextlib.nullcontext()
            with self._watching(), place:
                made = self.candidate_class()(*args, **named)
                _follow_weights(made)
                self.model = self.placed(made)
        how, weights = self._matched(header["state"])
        with torch.no_grad():
            for weight in weights:
                weight.zero_()  # outside of all modes: only torch's version counter changes
            own = [t for t in own_tensors(self.model, packed=new) if t.is_meta] if self._has_weights() else []
        places = self.runtime.tensors.place
        found = {"places": [places(w.detach()) for w in weights], "own": [places(t) for t in own]}
        self.stream.flush()
        return {"weights": how, **found}

    def _has_weights(self) -> bool:
        return isinstance(self.model, torch.nn.Module)

    def _matched(self, state: list[list[Any]]) -> tuple[str, list[torch.Tensor]]:
        """Returns how the reference's weights reach the model, and the model's tensors for them: in the reference's
        order, or all of its own where they keep the values of their seed."""
        if not self._has_weights():
            return "none", []
        model = self.model
        own = torch.nn.Module.state_dict(model)
        if hasattr(model, "reference_weights") and not own and state:
            given = getattr(model, "reference_weights", None) or {}
            if [(n, list(t.shape)) for n, t in given.items()] != [(n, s) for n, _, s in state]:
                given = {n: torch.empty(s, dtype=dtype_of(d), device="meta") for n, d, s in state}
                model.reference_weights = given
            return "names", list(given.values())
        if not state:
            return "none", list(own.values())
        if all(name in own and list(own[name].shape) == shape for name, _, shape in state):
            return "names", [own[name] for name, _, _ in state]
        if [list(t.shape) for t in own.values()] == [shape for _, _, shape in state]:
            return "order", list(own.values())
        return "seed", list(own.values())

    def call(self, message: Frame) -> tuple[dict[str, Any], list[Any]]:
        """Runs one forward pass; returns the places of its outputs. Outputs in host memory come as bytes."""
        tensors = self.runtime.tensors
        where = list(zip(message.header["places"], message.header["rooms"], strict=True))
        inputs = wire.unpacked(message.header["values"], lambda k: self._input(*where[k], k))[0]
        given = wire.tensors_of(inputs)
        torch.manual_seed(message.header["call_seed"])
        with self._watching(), torch.no_grad():
            result = self.model(*inputs)
            if self.runtime.live:
                self.stream.write("end")  # at once: a clock runs until then
                self.stream.flush()
            outputs, problems = runner.plain_outputs(result, given)
            places: list[Place | None] = [tensors.place(t) if is_handle(t) else None for t in outputs]
        host = [wire.pack_tensor(t, runner.read_bytes(t)) for t in outputs if not is_handle(t)]
        self.stream.flush()
        return {"outputs": places, "problems": problems}, host

    def _input(self, place: Place, room: int, number: int) -> torch.Tensor:
        """Returns the handle of an input in a block of `room` bytes: the previous call's where it lies at the same
        place."""
        kept = self.kept_inputs.get(number)
        if kept is None or kept[0] != place:
            kept = self.kept_inputs[number] = (place, self.runtime.tensors.bound(place, room))
        return kept[1]


def _follow_weights(model: Any) -> None:
    """Moves the copies of weights that a constructor has made on the host to the device, where they follow the weights
    that the judge sets. Values of the constructor are no secret: it has drawn them here."""
    if not isinstance(model, torch.nn.Module):
        return
    with torch.no_grad(), torch._C.DisableTorchFunction():
        weights = {n: p.detach() for n, p in torch.nn.Module.named_parameters(model) if not p.is_meta}
        own = [t for t in held_tensors(model, packed=True) if not t.is_meta]
        found = {
            c.untyped_storage().data_ptr()
            for c, _, _ in copies_among([t.detach() for t in own], list(weights.values()))
        }
        for tensor in own:
            if tensor.untyped_storage().data_ptr() in found:
                torch.utils.swap_tensors(tensor, tensor.to(META))


def serve(channel: Channel, level: str, link: socket.socket) -> None:
    """Answers the judge until it closes the channel."""
    serve_runner(channel, level, HandleRunner(channel, link))
