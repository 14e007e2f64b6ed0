"""A runner that calls a candidate at a size that is too large to run: on sparse memory, a few blocks of each launch.

It takes the runner's messages; `model` and `call` bring the tensors' shapes and a few values of each. There are no
outputs: it reports the faults of the launches.
"""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Sequence
from typing import Any

import torch

from kernelwright.backends.host_library import TO_HOST
from kernelwright.evaluation.candidate import runner, sparse_tensors
from kernelwright.evaluation.candidate.runner_loop import serve as serve_runner
from kernelwright.evaluation.processes import wire
from kernelwright.evaluation.processes.channel import Channel, Frame
from kernelwright.machine.sampled import SampledRuntime

_READS = ("numpy", "tolist", TO_HOST)


class SampledRunner(runner.Runner):
    """The state of one candidate's sampled call."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        self.operators = self.sparse = sparse_tensors.SparseOperators()
        self.runtime.doubt = self._doubt

    def make_runtime(self) -> SampledRuntime:
        """Returns a runtime that runs a few blocks of each launch."""
        return SampledRuntime(self._build)

    def _doubt(self) -> bool:
        """Tells whether host code has read values, after which its launches may differ in size from those of a whole
        call."""
        read = [name for name, _ in (*self.sparse.seen, *self.runtime.library_ops)]
        return self.sparse.asked or any(name in _READS for name in read)

    def make(self, message: Frame) -> dict[str, Any]:
        """Constructs the model with weights of its own."""
        init = wire.unpack_values(message)[0]
        self.model = None
        gc.collect()
        torch.manual_seed(message.header["weight_seed"])
        with self._watching():
            build = self.candidate_class()
            self.model = build(**init) if isinstance(init, dict) else build(*init)
        return {"weights": "none"}

    def call(self, message: Frame) -> tuple[dict[str, Any], list[Any]]:
        """Runs one forward pass; the facts hold the launches, and there are no outputs."""
        inputs, shapes, exact = wire.unpack_values(message)[0], message.header["shapes"], message.header["exact"]
        whole = _enlarged(wire.tensors_of(inputs), shapes)
        self.runtime.given(whole, runner.weights_of(self.model))
        for tensor, known in zip(whole, exact, strict=True):
            if known:
                self.runtime.exact(tensor)
        self.operators.adopt((*whole, *runner.weights_of(self.model)))
        self.sparse.seen.clear()
        self.sparse.doubtful = True
        self.runtime.begin_call()
        torch.manual_seed(message.header["call_seed"])
        with self._watching(), torch.no_grad():
            self.model(*wire.replace_tensors(inputs, whole))
        facts = dataclasses.asdict(self.runtime.end_call())
        return {"facts": facts, "operators": [], "mutated": [], "problems": []}, []


def _enlarged(samples: Sequence[torch.Tensor], shapes: Sequence[Sequence[int]]) -> list[torch.Tensor]:
    return [sparse_tensors.filled(t, shape) for t, shape in zip(samples, shapes, strict=True)]


def serve(channel: Channel, level: str) -> None:
    """Answers the judge until it closes the channel."""
    serve_runner(channel, level, SampledRunner(channel))
