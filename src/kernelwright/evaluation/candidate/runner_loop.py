"""The loop of a runner: answers the judge's messages, and turns a candidate's exceptions into answers.

It serves every kind of runner; `strict` messages go to KernelBench's own protocol (`kernelbench_runner`).
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import torch

from kernelwright.evaluation.candidate import fake_cuda, kernelbench_runner
from kernelwright.evaluation.candidate.runner import Runner
from kernelwright.evaluation.device.faults import cause_of, type_name
from kernelwright.evaluation.processes.channel import Channel, ChannelClosed, Frame
from kernelwright.evaluation.tensor_bytes import TensorBytes

MOST_FRAMES = 6


def prepare() -> None:
    """Runs a first operator of each kind in the zygote, which initialises torch's lazy parts once for all children."""
    with fake_cuda.OperatorLog(), fake_cuda.FakeCuda(lambda _tensor: None), torch.no_grad():
        a = torch.randn(4, 4, device="cuda")
        torch.nn.functional.softmax(a @ a, dim=-1).sum().item()
        torch.nn.Linear(4, 4)(a)


def _failure(error: BaseException, runner: Runner, stage: str) -> dict[str, Any]:
    """Returns an exception as facts, with the innermost line in the candidate's own file."""
    line = None
    for frame, number in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename.endswith("candidate.py"):
            line = number
    if isinstance(error, SyntaxError) and error.filename and error.filename.endswith("candidate.py"):
        line = error.lineno
    text = "".join(_own_frames(traceback.TracebackException.from_exception(error)).format())
    return {
        "kind": "failed",
        "stage": stage,
        "type": type_name(error),
        "message": str(error)[:2000],
        "line": line,
        "traceback": text[-6000:],
        "cause": cause_of(error) or ("device" if runner.device_failed() else ""),
        **runner.state(),
    }


def _own_frames(told: traceback.TracebackException) -> traceback.TracebackException:
    """Leaves the candidate's own frames in a traceback, and in those of the exceptions that led to it."""
    waiting: list[traceback.TracebackException | None] = [told]
    while waiting:
        one = waiting.pop()
        if one is not None:
            own = [f for f in one.stack if f.filename.endswith("candidate.py") or f.filename.startswith("<string")]
            one.stack[:] = own[-MOST_FRAMES:]
            waiting += [one.__cause__, one.__context__, *(one.exceptions or ())]
    return told


def serve(channel: Channel, level: str, runner: Runner | None = None) -> None:
    """Answers the judge until it closes the channel."""
    runner = runner or Runner(channel)
    channel.send({"kind": "ready", "level": level, "launch_ms": runner.launch_ms})
    handlers: dict[str, Callable[[Frame], None]] = {
        "load": lambda m: _answer(runner, m, "loaded", lambda: (runner.load(m), [])),
        "model": lambda m: _answer(runner, m, "made", lambda: (runner.make(m), [])),
        "call": lambda m: _answer(runner, m, "called", lambda: runner.call(m)),
    }
    handlers["strict"] = lambda m: _answer(runner, m, "strict", lambda: kernelbench_runner.answer(runner, m))
    for name, kind in runner.more.items():
        handlers[name] = _further(runner, name, kind)
    while True:
        try:
            message = channel.receive()
        except ChannelClosed:
            return
        handlers[message.kind](message)


def _further(runner: Runner, name: str, kind: str) -> Callable[[Frame], None]:
    return lambda message: _answer(runner, message, kind, lambda: getattr(runner, name)(message))


def _answer(
    runner: Runner, message: Frame, kind: str, act: Callable[[], tuple[dict[str, Any], list[TensorBytes]]]
) -> None:
    try:
        facts, outputs = act()
    except ChannelClosed:
        raise
    except BaseException as error:  # a candidate may also raise SystemExit or KeyboardInterrupt
        runner.channel.send(_failure(error, runner, message.kind))
        return
    runner.channel.send({"kind": kind, **facts, **runner.state()}, tuple(outputs))
