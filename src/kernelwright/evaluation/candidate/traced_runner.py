"""A runner that records a call's launches at full size and runs nothing: its tensors have no memory behind them.

It takes the runner's messages, with `trace` in place of `call`: the arguments of a full-size call come without their
values. If a call's host code only allocates, fills or copies memory, reads shapes and launches kernels, its launches do
not depend on the values. Then they stand for the call, and a process that never runs its host code can repeat them on a
GPU (`replayer`). Anything else in host code, such as reading or computing values or keeping state for the next call,
raises an error, and the candidate is judged the usual way.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import torch

from kernelwright.evaluation.candidate import fake_cuda, sparse_tensors
from kernelwright.evaluation.candidate.runner import Runner, plain_outputs, weights_of
from kernelwright.evaluation.candidate.runner_loop import serve as serve_runner
from kernelwright.evaluation.device import timed_calls
from kernelwright.evaluation.processes import wire
from kernelwright.evaluation.processes.channel import Channel, Frame
from kernelwright.machine.tracing import TracingRuntime, Untraceable

_MAKING = frozenset(("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"))
_LOOKING = frozenset(("detach", "alias", "is_same_size"))
"""Operators that are no views by their schema, and touch no value."""
_ZEROS = frozenset(("zeros", "zeros_like", "new_zeros"))


@dataclasses.dataclass
class Move:
    """A fill of memory with a value, or a copy to it, after the call's first `after` launches."""

    after: int
    to: torch.Tensor
    source: torch.Tensor | float


class TracedOperators(fake_cuda.OperatorLog):
    """Lets a call allocate memory and make views, and records fills and copies.

    While `tracing`, any other operator raises `Untraceable`.
    """

    def __init__(self, launched: Callable[[], int]) -> None:
        """Takes `launched`, which returns the number of launches so far."""
        super().__init__()
        self.launched = launched
        self.tracing = False
        self.moves: list[Move] = []
        self.made: list[torch.Tensor] = []
        """Memory that the call allocated. It lives as long as the trace, so that no address is used twice."""

    def compute(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Runs an operator as torch does, within those bounds."""
        name = func.overloadpacket.__name__
        if not self.tracing or func.is_view or name in _LOOKING:
            return func(*args, **kwargs)
        if name in _MAKING:
            return self._new(func(*args, **kwargs))
        if name in _ZEROS:
            return self._moved(self._new(_form(func, args, kwargs)), 0.0)
        if name == "clone":
            return self._moved(self._new(_form(func, args, kwargs)), args[0])
        if name == "copy_" or (name == "fill_" and isinstance(args[1], (int, float))):
            return self._moved(args[0], args[1])
        if name == "zero_":
            return self._moved(args[0], 0.0)
        raise Untraceable(f"torch's {name} is called")

    def _new(self, tensor: torch.Tensor) -> torch.Tensor:
        self.made.append(tensor)
        return tensor

    def _moved(self, to: torch.Tensor, source: torch.Tensor | float) -> torch.Tensor:
        if any(isinstance(t, torch.Tensor) and (t.is_conj() or t.is_neg()) for t in (to, source)):
            raise Untraceable("a lazily conjugated tensor is copied")
        self.moves.append(Move(self.launched(), to, source))
        return to


def _form(func: Any, args: Any, kwargs: Any) -> torch.Tensor:
    """Returns an operator's result without values. Raises `Untraceable` if its form depends on values."""
    shapes = sparse_tensors.shapes(func, args, kwargs)
    if shapes is None:
        raise Untraceable(f"{func} makes what cannot be known")
    return torch.empty_strided(shapes.shape, shapes.stride(), dtype=shapes.dtype)


class TracedRunner(Runner):
    """The state of one candidate whose calls are traced."""

    more: ClassVar[dict[str, str]] = {**Runner.more, "trace": "traced"}

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        self.operators = self.traced = TracedOperators(lambda: len(self.runtime.launches))
        self.ranges: list[tuple[int, int]] = []
        self._given: list[torch.Tensor] = []
        self.runtime.find = self._find

    def make_runtime(self) -> TracingRuntime:
        """Returns a runtime that records launches."""
        return TracingRuntime(self._build)

    def trace(self, message: Frame) -> tuple[dict[str, Any], list[Any]]:
        """Returns the launches of a call, its buffers and outputs; with them the weights that launches use."""
        first = self._traced(message.header)
        if any(self._traced(message.header) != first for _ in range(message.header["times"] - 1)):
            raise Untraceable("calls in a row launch different things")
        used = {place[2] for launch in first["launches"] for place in launch["places"]}
        used |= {move["source"][0] for move in first["moves"] if isinstance(move["source"], list)}
        kept = [k for k, (kind, _, _) in enumerate(first["buffers"]) if kind == "weight" and k in used]
        weights = [wire.pack_tensor(_bytes_of(self._given[k])) for k in kept]
        return {**first, "sent": kept}, weights

    def _traced(self, header: dict[str, Any]) -> dict[str, Any]:
        inputs = [sparse_tensors.zeros(tuple(shape), getattr(torch, dtype)) for _, dtype, shape in header["inputs"]]
        weights = weights_of(self.model)
        self._given = [*inputs, *weights]
        self.ranges = [_range(t) for t in self._given]
        self.traced.made, self.traced.moves, self.runtime.launches = [], [], []
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
        places = [self._place(output, made=True) for output in outputs]
        moves = [
            {"after": m.after, "to": self._place(m.to, made=True), "source": self._source(m.source)}
            for m in self.traced.moves
        ]
        made = [["made", k, _range(t)[1]] for k, t in enumerate(self.traced.made)]
        given = [["input", k, _range(t)[1]] for k, t in enumerate(inputs)]
        given += [["weight", k, _range(t)[1]] for k, t in enumerate(weights)]
        return {"launches": launches, "moves": moves, "outputs": places, "buffers": given + made}

    def _find(self, address: int) -> tuple[int, int] | None:
        """Returns the buffer that holds an address, and the bytes into it. Raises `Untraceable` for other memory of
        torch's that device code was given."""
        ranges = [*self.ranges, *map(_range, self.traced.made)]
        for number, (start, nbytes) in enumerate(ranges):
            if start <= address < start + nbytes:
                return number, address - start
        if any(a.address <= address < a.address + a.nbytes for a in self.runtime.allocations()):
            raise Untraceable("a kernel is given memory that is neither an input, nor a weight, nor made in the call")
        return None

    def _place(self, tensor: torch.Tensor, made: bool = False) -> list[Any]:
        """Returns a tensor as a view of a buffer: its number, dtype, shape, strides, and offset in elements. Raises
        `Untraceable` for a tensor in no buffer, or, with `made`, in one that the call did not allocate."""
        found = self._find(tensor.untyped_storage().data_ptr()) if tensor.untyped_storage().nbytes() else None
        if found is None or (made and found[0] < len(self.ranges)):
            raise Untraceable("an output or a copy is not made in the call")
        form = list(tensor.shape), list(tensor.stride()), tensor.storage_offset()
        return [found[0], wire.dtype_name(tensor.dtype), *form]

    def _source(self, source: torch.Tensor | float) -> list[Any] | float:
        return self._place(source) if isinstance(source, torch.Tensor) else float(source)


def _range(tensor: torch.Tensor) -> tuple[int, int]:
    """Returns address and bytes of the memory that a tensor lies in."""
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.nbytes()


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """Returns all of the memory that a tensor lies in."""
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())  # type: ignore[call-overload,no-any-return]


def serve(channel: Channel, level: str) -> None:
    """Answers the judge until it closes the channel."""
    serve_runner(channel, level, TracedRunner(channel))
