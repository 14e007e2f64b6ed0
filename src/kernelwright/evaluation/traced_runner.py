"""A runner that notes what a call would launch, at full size, and runs nothing: on memory that nothing stands behind.

Messages as the runner's, with `trace` in place of `call`: the arguments of a full-size call come without their values.
A call whose host code does no more than make memory, look at shapes and launch kernels launches the same whatever the
values are; then its launches stand for it, and can be repeated on a GPU by a process that never runs its host code
(`replayer`). Whatever else host code does, reading or computing or keeping something for the next call, is told as an
error, and such a candidate goes the usual way.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import torch

from kernelwright.backends import values
from kernelwright.evaluation import fakecuda, timed_calls, wire
from kernelwright.evaluation.channel import Channel, Message
from kernelwright.evaluation.runner import Runner, plain_outputs, weights_of
from kernelwright.evaluation.runner import serve as serve_runner
from kernelwright.machine.tracing import TracingRuntime, Untraceable

_MAKING = frozenset(("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"))
_LOOKING = frozenset(("detach", "alias", "is_same_size"))
"""Operators that are no views by their schema's word, and touch no value."""


class TracedOperators(fakecuda.OperatorLog):
    """Lets a call make memory and views; in `tracing`, whatever else an operator would do raises `Untraceable`."""

    def __init__(self) -> None:
        super().__init__()
        self.tracing = False
        self.made: list[torch.Tensor] = []
        """Memory that the call made. It lives as long as the trace, so that no address is given twice."""

    def compute(self, func: Any, args: Any, kwargs: Any) -> Any:
        """As torch does it, within those bounds."""
        name = func.overloadpacket.__name__
        if not self.tracing or func.is_view or name in _LOOKING:
            return func(*args, **kwargs)
        if name not in _MAKING:
            raise Untraceable(f"torch's {name} is called")
        result = func(*args, **kwargs)
        self.made.append(result)
        return result


class TracedRunner(Runner):
    """State of one candidate whose calls are traced."""

    more: ClassVar[dict[str, str]] = {**Runner.more, "trace": "traced"}

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        self.operators = self.traced = TracedOperators()
        self.ranges: list[tuple[int, int]] = []
        self.runtime.find = self._find
        values.bare = True  # what an allocation holds is nothing to a trace, and filling it would take its memory

    def make_runtime(self) -> TracingRuntime:
        """Notes launches."""
        return TracingRuntime(self._build)

    def pretend(self) -> list[Any]:
        """As ever, without NaN in fresh memory."""
        return [fakecuda.FakeCuda(self.runtime.register, fresh=lambda tensor: tensor)] if self.on_cuda else []

    def trace(self, message: Message) -> tuple[dict[str, Any], list[Any]]:
        """The launches of a call, its buffers and outputs; with them the weights that launches are given."""
        first, second = (self._traced(message.header) for _ in range(2))
        if first != second:
            raise Untraceable("two calls in a row launch different things")
        used = {place[2] for launch in first["launches"] for place in launch["places"]}
        kept = [k for k, (kind, _, _) in enumerate(first["buffers"]) if kind == "weight" and k in used]
        weights = [wire.pack_tensor(_bytes_of(self._given[k])) for k in kept]
        return {**first, "sent": kept}, weights

    def _traced(self, header: dict[str, Any]) -> dict[str, Any]:
        inputs = [torch.zeros(tuple(shape), dtype=getattr(torch, dtype)) for _, dtype, shape in header["inputs"]]
        weights = weights_of(self.model)
        self._given = [*inputs, *weights]
        self.ranges = [_range(t) for t in self._given]
        self.traced.made, self.runtime.launches = [], []
        self.runtime.given(inputs, weights)
        torch.manual_seed(header["call_seed"])
        arguments = timed_calls.arguments(header["calls"][0], inputs)
        with self._watching(), torch.no_grad():
            self.traced.tracing = True
            try:
                result = self.model(*arguments)
            finally:
                self.traced.tracing = False
        outputs, problems = plain_outputs(result, inputs)
        if problems:
            raise Untraceable(f"an output is no plain tensor: {problems[0]}")
        launches = [dataclasses.asdict(launch) for launch in self.runtime.launches]
        places = [self._place(output) for output in outputs]
        # Made memory that is used nowhere is left out of account, as long as it comes last.
        made = [["made", k, _range(t)[1]] for k, t in enumerate(self.traced.made)]
        given = [["input", k, _range(t)[1]] for k, t in enumerate(inputs)]
        given += [["weight", k, _range(t)[1]] for k, t in enumerate(weights)]
        return {"launches": launches, "outputs": places, "buffers": given + made}

    def _find(self, address: int) -> tuple[int, int] | None:
        """The buffer that holds an address, and the bytes into it. Raises `Untraceable` for other memory of torch's
        that device code was given."""
        ranges = [*self.ranges, *map(_range, self.traced.made)]
        for number, (start, nbytes) in enumerate(ranges):
            if start <= address < start + nbytes:
                return number, address - start
        if any(a.address <= address < a.address + a.nbytes for a in self.runtime.allocations()):
            raise Untraceable("a kernel is given memory that is neither an input, nor a weight, nor made in the call")
        return None

    def _place(self, output: torch.Tensor) -> list[Any]:
        """An output as a view of a buffer: its number, dtype, shape, strides, and offset in elements."""
        found = self._find(output.untyped_storage().data_ptr()) if output.untyped_storage().nbytes() else None
        if found is None or found[0] < len(self.ranges):
            raise Untraceable("an output is not made in the call")
        form = list(output.shape), list(output.stride()), output.storage_offset()
        return [found[0], wire.dtype_name(output.dtype), *form]


def _range(tensor: torch.Tensor) -> tuple[int, int]:
    """Address and bytes of the memory that a tensor lies in."""
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.nbytes()


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """All of the memory that a tensor lies in."""
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())  # type: ignore[call-overload,no-any-return]


def serve(channel: Channel, level: str) -> None:
    """Answers the judge until it closes the channel."""
    serve_runner(channel, level, TracedRunner(channel))
