"""Measures the cost of a reference at a given size and proves that it runs there.

`measure` runs it on torch's `meta` device, which gives shapes and FLOPs without memory. `prove` runs it on the CPU
under a time limit and checks that its outputs exist, hold finite values, and do not depend on the state of the global
random generator. Both execute a task's code, so they run only where such code may run. Neither chooses sizes.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from kernelwright.errors import TaskError, UnsupportedTask
from kernelwright.tasks import inputs as task_inputs
from kernelwright.tasks import reference_runs
from kernelwright.tasks.reference import instantiate, last_line

Shapes = tuple[tuple[int, ...], ...]


_IMPORT_SECONDS = 120.0
"""Seconds of imports that a time limit does not count."""
_TICK = 0.25
"""Seconds between two checks of a time limit."""


class ReferenceFails(Exception):
    """Raised where a reference does not run as a judge needs it; the message gives the reason in one line."""


class NothingFinite(ReferenceFails):
    """Raised where all values of an output are NaN or infinite."""


@dataclass(frozen=True)
class Signature:
    """Shapes of the input tensors, and the constructor's arguments as text."""

    inputs: Shapes
    init: str


@dataclass(frozen=True)
class Cost:
    """The cost of one forward at one size."""

    inputs: Shapes
    outputs: Shapes
    elements: int
    """Elements of all inputs and outputs."""
    parameters: int
    flops: int
    """Two per multiply-add of matmuls and convolutions, one per element of any other operator."""


class _Convolution(NamedTuple):
    """Holds the arguments of `aten.convolution` in their order."""

    given: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor | None
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    transposed: bool
    output_padding: Sequence[int]
    groups: int

    def check(self) -> None:
        """Raises RuntimeError for extents that torch refuses on every device but `meta`, which checks few of them."""
        weight, groups = self.weight, self.groups
        channels = self.given.shape[1]
        expected = weight.shape[0] if self.transposed else weight.shape[1] * groups
        outputs = weight.shape[1] * groups if self.transposed else weight.shape[0]
        if channels != expected:
            raise RuntimeError(f"a convolution of {expected} channels gets an input of {channels}")
        if channels % groups or outputs % groups:
            raise RuntimeError(f"{groups} groups divide neither {channels} channels nor {outputs}")
        if self.bias is not None and tuple(self.bias.shape) != (outputs,):
            shape = tuple(self.bias.shape)
            raise RuntimeError(f"a convolution that makes {outputs} channels has a bias of shape {shape}")
        sides = zip(self.output_padding, self.stride, self.dilation, strict=False)
        if self.transposed and any(p >= max(s, d) for p, s, d in sides):
            raise RuntimeError("output padding must be smaller than either stride or dilation")


class _Counter(TorchDispatchMode):
    """Adds up FLOPs of the operators that run under it, and refuses convolutions that only `meta` takes."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten.convolution.default:
            _Convolution(*args, **kwargs).check()
        out = func(*args, **kwargs)
        formula = flop_registry.get(func._overloadpacket)
        if formula is not None:
            self.flops += int(formula(*args, **kwargs, out_val=out))
        elif not func.is_view:
            self.flops += max((t.numel() for t in task_inputs.tensors_in([list(args), out])), default=0)
        return out


class _Recurrent(TorchFunctionMode):
    """Computes shapes and FLOPs of LSTM, GRU and RNN layers at once; stepwise on `meta` would take seconds."""

    NAMES = ("lstm", "gru", "rnn_tanh", "rnn_relu")

    def __init__(self, counter: _Counter) -> None:
        super().__init__()
        self.counter = counter

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        # (input, states, weights, has_biases, layers, dropout, train, bidirectional, batch_first), unless packed
        if name not in self.NAMES or len(args) != 9 or args[0].device.type != "meta" or not isinstance(args[3], bool):
            return func(*args, **(kwargs or {}))
        states = args[1] if isinstance(args[1], (list, tuple)) else [args[1]]
        given, hidden = args[0], states[0].shape[-1]
        steps = given.numel() // given.shape[-1]
        self.counter.flops += 2 * steps * sum(w.numel() for w in args[2] if w.dim() == 2)
        out = given.new_empty((*given.shape[:-1], hidden * (2 if args[7] else 1)))
        return (out, *(s.clone() for s in states))


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises `ReferenceFails` after so many seconds; has no effect outside the main thread.

    An import is never interrupted and its time does not count. A half-imported module would break everything that this
    process does later, and torch imports some modules at their first use.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    started = seen = time.monotonic()
    used = 0.0

    def tick(_number: int, frame: FrameType | None) -> None:
        nonlocal seen, used
        now = time.monotonic()
        seen, since = now, now - seen
        if not _importing(frame) or now - started > seconds + _IMPORT_SECONDS:
            used += since
        if used >= seconds:
            raise ReferenceFails(f"it runs for more than {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, tick)
    every = min(_TICK, seconds / 4)
    signal.setitimer(signal.ITIMER_REAL, every, every)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _importing(frame: FrameType | None) -> bool:
    """Tells whether a frame is within the import of a module."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def signature(source: str, overrides: dict[str, Any], device: str, seconds: float = 5.0) -> Signature:
    """Returns input shapes and constructor arguments at one size. Raises `ReferenceFails`."""
    with _failures("get_inputs"), time_limit(seconds):
        namespace = instantiate(source, overrides)
        with torch.no_grad(), task_inputs.OnDevice(device):
            values = _values(namespace)
            init = task_inputs.init_arguments(namespace)
    return Signature(_shapes(values), repr(task_inputs.map_tensors(init, lambda t: tuple(t.shape))))


def outline(source: str, overrides: dict[str, Any], seconds: float = 10.0) -> tuple[Sequence[Any], Any]:
    """Returns the arguments of forward and of the constructor, tensors on `meta`. Raises `ReferenceFails`."""
    with _failures("get_inputs"), time_limit(seconds):
        namespace = instantiate(source, overrides)
        with torch.no_grad(), task_inputs.OnDevice("meta"):
            return _values(namespace), task_inputs.init_arguments(namespace)


def measure(source: str, overrides: dict[str, Any], device: str, seconds: float = 10.0) -> Cost:
    """Runs constructor, `get_inputs` and forward on a device, `meta` or `cpu`. Raises `ReferenceFails`."""
    with _failures("the reference"), time_limit(seconds):
        namespace = instantiate(source, overrides)
        with torch.no_grad():
            model = _model(namespace, device)
            with task_inputs.OnDevice(device):
                values = _values(namespace)
                with _Counter() as counter, _Recurrent(counter):
                    outputs = reference_runs.flatten_outputs(model(*values))
    weights = list(model.parameters()) if isinstance(model, torch.nn.Module) else []
    given = _shapes(values)
    elements = sum(_size(s) for s in given) + sum(t.numel() for t in outputs)
    return Cost(given, _shapes(outputs), elements, sum(p.numel() for p in weights), counter.flops)


def prove(source: str, overrides: dict[str, Any], seconds: float = 10.0, finite: bool = True) -> Cost:
    """Runs the reference on the CPU and returns its cost (FLOPs not counted). Raises `ReferenceFails`; with `finite`
    also where all values of an output are NaN or infinite, as reduced sizes may make them."""
    with _failures("the reference"), time_limit(seconds):
        namespace = instantiate(source, overrides)
        model = task_inputs.construct(namespace, seed=1)
        values = task_inputs.make_inputs(namespace, "own", seed=1)
        outputs = reference_runs.reference_outputs(model, values, call_seed=1)
        again = reference_runs.reference_outputs(model, values, call_seed=2)
    if not outputs or not any(t.numel() for t in outputs):
        raise ReferenceFails("it returns nothing" if not outputs else "its outputs are empty")
    for i, tensor in enumerate(outputs if finite else ()):
        if tensor.numel() and not bool(reference_runs.finite(tensor).any()):
            raise NothingFinite(f"its output {i} holds nothing but NaN or infinities")
    pairs = zip(outputs, again, strict=False)
    if len(outputs) != len(again) or not all(reference_runs.same_values(a, b) for a, b in pairs):
        raise ReferenceFails("two runs on the same inputs and weights differ (dropout or random draws in forward)")
    weights = list(model.parameters()) if isinstance(model, torch.nn.Module) else []
    given = _shapes(values)
    elements = sum(_size(s) for s in given) + sum(t.numel() for t in outputs)
    return Cost(given, _shapes(outputs), elements, sum(p.numel() for p in weights), 0)


@contextmanager
def _failures(what: str) -> Iterator[None]:
    """Turns any exception of a task's code into `ReferenceFails` with one line."""
    try:
        yield
    except (ReferenceFails, UnsupportedTask, KeyboardInterrupt):
        raise
    except TaskError as error:
        raise ReferenceFails(str(error)) from error
    except BaseException as error:
        raise ReferenceFails(f"{what} raises {last_line(error)}") from error


def _values(namespace: dict[str, Any]) -> Sequence[Any]:
    values = namespace["get_inputs"]() if callable(namespace.get("get_inputs")) else None
    if not isinstance(values, (list, tuple)):
        raise TaskError("get_inputs returns no list", hint="return the arguments of forward in a list")
    for number, tensor in enumerate(task_inputs.tensors_in(values)):
        task_inputs.refuse_other_kinds(tensor, f"input {number}")
    return values


def _model(namespace: dict[str, Any], device: str) -> Any:
    def build() -> Any:
        args, named = task_inputs.init_arguments(namespace)
        return namespace["Model"](*args, **named)

    try:
        with task_inputs.OnDevice(device):
            return build()
    except Exception:
        if device != "meta":
            raise
    # Constructors may read values (`.item()` of a linspace), so the model is built on the CPU, then moved.
    with task_inputs.OnDevice("cpu"):
        model = build()
    return model.to("meta")


def _shapes(value: Any) -> Shapes:
    return tuple(tuple(t.shape) for t in task_inputs.tensors_in(value))


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for extent in shape:
        size *= extent
    return size
