"""KernelBench's own way of checking a candidate, inside a runner: reference and candidate in one process.

Seeds, the same inputs for both without a copy, `torch.allclose`, CUDA events: all as in KernelBench's evaluator, holes
included. The result is that evaluator's verdict; a candidate can reach everything here, and decide it. Runs in the
confined child only.

Steps, one message each: `load`, `make`, `check`, `time`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from kernelwright.evaluation.processes import wire
from kernelwright.tasks import reference
from kernelwright.tasks.inputs import init_arguments

if TYPE_CHECKING:
    from kernelwright.evaluation.candidate.runner import Runner
    from kernelwright.evaluation.processes.channel import Frame

SEED = 42
TOLERANCES = {torch.float16: 1e-2, torch.bfloat16: 1e-2}
TOLERANCE = 1e-4
"""Absolute and relative, for all other dtypes."""
WARM_UPS = 3
L2_WORDS = 32 << 20
"""64-bit words that are written before each timed call: 256 MiB."""

Facts = dict[str, Any]


class ReferenceUnusable(Exception):
    """The reference raised, or returns a value that this protocol cannot compare."""


@dataclass
class SharedPair:
    """Reference and candidate, side by side."""

    namespace: dict[str, Any]
    init: Any
    model: Any
    custom: Any = None

    def inputs(self, runner: Runner, seed: int) -> list[Any]:
        """Returns the result of `get_inputs` after this seed, on the models' device."""
        _seed(seed)
        return list(runner.received(list(self.namespace["get_inputs"]())))


def answer(runner: Runner, message: Frame) -> tuple[Facts, list[Any]]:
    """Returns one step's facts; raises the candidate's exceptions, and reports the reference's faults in `problem`."""
    steps: dict[str, Callable[[Runner, Facts], Facts]] = {"load": _load, "make": _make, "check": _check, "time": _time}
    try:
        return steps[message.header["step"]](runner, message.header), []
    except ReferenceUnusable as failure:
        return {"problem": str(failure)[:500]}, []


def _load(runner: Runner, header: Facts) -> Facts:
    """Constructs the reference first; then loads the candidate's module."""
    torch.backends.cudnn.allow_tf32 = True  # torch's default, which KernelBench leaves as it is
    runner.install()
    try:
        with _believing(runner), torch.no_grad():
            namespace = reference.instantiate(header["reference"])
            _seed(SEED)
            init = runner.received(init_arguments(namespace))
            _seed(SEED)
            model = _built(namespace["Model"], init)
    except Exception as error:
        raise ReferenceUnusable(reference.last_line(error)) from error
    runner.pair = SharedPair(namespace, init, model)
    runner.load_candidate(header)
    return {}


def _make(runner: Runner, _header: Facts) -> Facts:
    """Makes the candidate's model after the same seed; weights agree as far as both draw them in one order."""
    pair: SharedPair = runner.pair
    with _believing(runner), torch.no_grad():
        _seed(SEED)
        pair.custom = _built(runner.candidate_class(), pair.init)
    return {}


def _built(kind: Any, init: Any) -> Any:
    args, named = init
    return kind(*args, **named)


def _check(runner: Runner, header: Facts) -> Facts:
    """Runs trials with seeds derived from 42: reference, then candidate, on the very same tensors."""
    trials: list[Facts] = []
    facts: Facts = {"trials": trials}
    with _believing(runner), torch.no_grad():
        _seed(SEED)
        seeds = [int(torch.randint(0, 2**32 - 1, (1,)).item()) for _ in range(header["trials"])]
        for seed in seeds:
            inputs, expected = _expected(runner, seed)
            got = _candidate_call(runner, inputs)
            tolerance = header["tolerance"] or TOLERANCES.get(expected.dtype, TOLERANCE)
            trials.append(_compared(expected, got, tolerance))
            given = wire.tensors_of(inputs)
            facts |= {"shapes": [list(t.shape) for t in given], "dtypes": [wire.dtype_name(t.dtype) for t in given]}
            if trials[-1]["max_abs_error"] is None and not trials[-1]["passed"]:
                break  # another shape: KernelBench stops here
    return facts


def _expected(runner: Runner, seed: int) -> tuple[list[Any], torch.Tensor]:
    """Returns one trial's inputs and the reference's output."""
    pair: SharedPair = runner.pair
    try:
        inputs = pair.inputs(runner, seed)
        _seed(seed)
        pair.model = runner.placed(pair.model)
        _seed(seed)  # once more for the other model, not between the calls: a reference that draws moves on
        pair.custom = runner.placed(pair.custom)
        output = pair.model(*inputs)
        runner.settle()
    except Exception as error:
        raise ReferenceUnusable(reference.last_line(error)) from error
    if not isinstance(output, torch.Tensor):
        raise ReferenceUnusable(f"KernelBench compares one tensor, and the reference returns a {type(output).__name__}")
    return inputs, output


def _candidate_call(runner: Runner, inputs: list[Any]) -> Any:
    """Calls the candidate once, with the preparation that the functional machine needs."""
    pair: SharedPair = runner.pair
    weights = [*pair.custom.parameters(), *pair.custom.buffers()] if isinstance(pair.custom, torch.nn.Module) else []
    for tensor in (*wire.tensors_of(inputs), *weights):
        runner.runtime.register(tensor)
    runner.runtime.begin_call()
    output = pair.custom(*inputs)
    runner.settle()
    runner.runtime.end_call()
    return output


def _compared(expected: torch.Tensor, got: Any, tolerance: float) -> Facts:
    """Compares the shape and by `allclose`, nothing else; a value that is no tensor raises, as in KernelBench."""
    if expected.shape != got.shape:
        reason = f"Output shape mismatch: expected {tuple(expected.shape)}, got {tuple(got.shape)}"
        return {"passed": False, "max_abs_error": None, "tolerance": tolerance, "reason": reason}
    passed = torch.allclose(expected, got, atol=tolerance, rtol=tolerance)
    worst = float((expected - got).abs().max()) if expected.numel() and expected.dtype != torch.bool else 0.0
    reason = "" if passed else f"Output mismatch: the largest difference is {worst:.6g}"
    finite = worst if math.isfinite(worst) else 3.4e38
    return {"passed": passed, "max_abs_error": finite, "tolerance": tolerance, "reason": reason}


def _time(runner: Runner, header: Facts) -> Facts:
    """Times the candidate, then the reference, each on one set of inputs for all calls."""
    pair: SharedPair = runner.pair
    facts = {}
    with _believing(runner), torch.no_grad():
        for name, model in (("candidate_ms", pair.custom), ("reference_ms", pair.model)):
            inputs = pair.inputs(runner, SEED)
            facts[name] = _event_times(model, inputs, header["calls"], on_gpu=header["on_gpu"])
    return facts


def _event_times(model: Any, inputs: list[Any], calls: int, on_gpu: bool) -> list[float]:
    """Returns milliseconds by CUDA events, with L2 filled with other data before each; the first call is discarded."""
    for _ in range(WARM_UPS):
        model(*inputs)
        torch.cuda.synchronize()
    torch.cuda.empty_cache()
    found = []
    for _ in range(calls + 1):
        torch.cuda.synchronize()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        if on_gpu:
            torch.empty(L2_WORDS, dtype=torch.int64, device="cuda").fill_(42)
        start.record()
        model(*inputs)
        end.record()
        torch.cuda.synchronize()
        found.append(float(start.elapsed_time(end)))
    return found[1:]


def _seed(seed: int) -> None:
    torch.manual_seed(seed)
    torch.cuda.manual_seed(seed)


def _believing(runner: Runner) -> Any:
    """Watches as for other candidate calls, but without the operator log: nothing is attested here."""
    watch = runner._watching()
    watch.modes = runner.pretend()
    return watch
