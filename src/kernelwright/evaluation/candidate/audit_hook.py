"""An audit hook that records a candidate's Python code reading objects of others. Nothing can remove an audit hook.

Frames and the heap lead to the judge's own objects and reveal the caller, as do hooks that Python runs for all code.
The hook does not judge (`rules` does).
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from kernelwright.evaluation.candidate import hidden_package
from kernelwright.evaluation.candidate.hidden_package import Seen
from kernelwright.evaluation.text import forbidden_names

_EVENTS = frozenset(
    "open import gc.get_objects gc.get_referrers gc.get_referents sys._getframe sys._current_frames "
    "sys.addaudithook sys.settrace sys.setprofile sys.monitoring.register_callback "
    "object.__getattr__".split()
)
_FRAME_ATTRIBUTES = ("tb_frame", "gi_frame", "cr_frame", "ag_frame")
_STACK_READERS = ("/inspect.py", "/traceback.py")
"""Python's modules that read frames for their caller."""
_TASK_READERS = ("/inspect.py", "/asyncio/base_tasks.py")
"""Python's modules that read the frames of generators and coroutines for their caller."""
_FRAME_GIVERS = ("/logging/__init__.py",)
"""Python's modules with a function that returns its caller's frame; their other functions use it themselves."""
_LINE_READERS = ("/linecache.py", "/tokenize.py")
"""Python's modules that read the file of a frame, to show its line in a traceback."""


class Snoops:
    """Records when candidate code reads the heap, others' frames or the judge's files."""

    def __init__(self) -> None:
        self.seen: Seen = []
        self.active = False

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.active or event not in _EVENTS:
            return
        if event == "object.__getattr__" and arguments[1] not in _FRAME_ATTRIBUTES:
            return
        if event == "import":
            # A name that `sys.modules` holds causes no event: `kernelwright.cuda` does not come here.
            if str(arguments[0]).partition(".")[0] == hidden_package.NAME:
                self.seen.append(("harness-access", f"the candidate imports {arguments[0]}"))
            return
        if event == "open" and not _of_harness(arguments[0]):
            return
        self.active = False  # reading frames is an event itself
        try:
            # Printing an exception's traceback, as honest code does, reads frames too: those that the exception passed
            # through.
            through = _STACK_READERS if event.startswith("sys.") else _TASK_READERS
            frame = _asking(sys._getframe(1), through)
            if event == "open":
                if not frame.f_code.co_filename.endswith(_LINE_READERS):
                    self.seen.append(("harness-access", "the candidate opens a file of Kernelwright"))
                return
            if candidates(frame):
                self.seen.append(("frame-walk", f"{event} called in line {frame.f_lineno} of the candidate"))
        finally:
            self.active = True


def _of_harness(path: Any) -> bool:
    """Tells whether an opened path lies in our package; a number is a file that is open already."""
    if not isinstance(path, (str, bytes)):
        return False
    return os.path.realpath(os.fsdecode(path)).startswith(hidden_package.FOLDER + os.sep)


def _asking(frame: FrameType, through: tuple[str, ...]) -> FrameType:
    """Returns the frame that asks, behind frames of modules that only do it for their caller."""
    while frame.f_code.co_filename.endswith(through) and frame.f_back is not None:
        frame = frame.f_back
    above = frame.f_back
    giver = frame.f_code.co_filename.endswith(_FRAME_GIVERS) and above is not None and candidates(above)
    return above if giver and above is not None else frame


def candidates(frame: FrameType) -> bool:
    """Tells whether a frame runs a candidate's code."""
    name = frame.f_code.co_filename
    return name.endswith("candidate.py") or name.startswith("<string")


def watch_forbidden(seen: Seen) -> None:
    """Adds each call of a forbidden name by a candidate to `seen`. Called once, in a process that never goes back."""
    import torch
    from torch.utils import _python_dispatch

    for owner in (torch._C, _python_dispatch, torch.overrides):
        for name in forbidden_names.NAMES:
            if plain := getattr(owner, name, None):
                setattr(owner, name, _watched(plain, name, seen))
    again = torch._ops.OpOverload.redispatch
    torch._ops.OpOverload.redispatch = _watched(again, "redispatch", seen)  # type: ignore[method-assign]


def _watched(plain: Callable[..., Any], name: str, seen: Seen) -> Callable[..., Any]:
    @functools.wraps(plain, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        frame = sys._getframe(1)
        if candidates(frame):
            evidence = f"{name} called in line {frame.f_lineno} of the candidate{forbidden_names.PAST}"
            seen.append(("harness-access", evidence))
        return plain(*args, **kwargs)

    return call
