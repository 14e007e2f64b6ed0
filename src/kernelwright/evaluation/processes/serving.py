"""The loop of a trusted process: answers the judge's messages, and attributes exceptions to task, device or size."""

from __future__ import annotations

import io
import sys
import traceback
from collections.abc import Callable
from typing import Any

from kernelwright.errors import TaskError
from kernelwright.evaluation.device.faults import cause_of
from kernelwright.evaluation.processes.channel import Channel, ChannelClosed, Frame


class DoesNotFit(Exception):
    """The task and the headroom that checking needs do not fit the device."""


def answer_all(
    channel: Channel, answers: dict[str, tuple[str, Callable[[Frame], Any]]], after: Callable[[], None] = lambda: None
) -> None:
    """Answers each message by its kind until the judge closes the channel, and calls `after` before each answer.
    Discards a task's prints."""
    while True:
        try:
            message = channel.receive()
        except ChannelClosed:
            return
        sys.stdout = sys.stderr = io.StringIO()
        kind, act = answers[message.kind]
        try:
            answer = act(message)
            facts, tensors = answer if isinstance(answer, tuple) else (answer, ())
            after()
            channel.send({"kind": kind, **facts}, tensors)
        except ChannelClosed:
            return
        except BaseException as error:  # a reference may raise anything, SystemExit included
            channel.send(_failure(error))


def _failure(error: BaseException) -> dict[str, Any]:
    """Returns the exception as an answer.

    `why` is `large` for a size that does not fit, `device` for a fault of the GPU, `task` for one of the reference.
    """
    cause = cause_of(error)
    memory = isinstance(error, DoesNotFit) or cause == "memory"
    known = isinstance(error, TaskError | DoesNotFit)
    text = str(error) if known else f"the reference raised {type(error).__name__}: {error}"
    return {
        "kind": "failed",
        "why": "large" if memory else "device" if cause == "device" else "task",
        "message": text[:2000],
        "hint": error.hint if isinstance(error, TaskError) else None,
        "traceback": traceback.format_exc(limit=-4)[-4000:],
    }
