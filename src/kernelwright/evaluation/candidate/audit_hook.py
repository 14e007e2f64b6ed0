"""An audit hook that records a candidate's Python code reading objects of others. Nothing can remove an audit hook.

Frames and the heap lead to the judge's own objects and reveal the caller, as do hooks that Python runs for all code.
The hook does not judge (`rules` does).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from kernelwright.evaluation.text import forbidden_names

HIDDEN = "kernelwright.evaluation"
"""The package that a candidate must not import."""
_EVENTS = frozenset(
    "import gc.get_objects gc.get_referrers gc.get_referents sys._getframe sys._current_frames "
    "sys.addaudithook sys.settrace sys.setprofile sys.monitoring.register_callback "
    "object.__getattr__".split()
)
_FRAME_ATTRIBUTES = ("tb_frame", "gi_frame", "cr_frame", "ag_frame")
_STACK_READERS = ("/inspect.py", "/traceback.py")
"""Python's modules that read frames for their caller."""


class Snoops:
    """Records when candidate code reads the heap or others' frames."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.active = False

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.active or event not in _EVENTS:
            return
        if event == "object.__getattr__" and arguments[1] not in _FRAME_ATTRIBUTES:
            return
        if event == "import":
            # The package itself is still importable; its submodules are hidden, so an import of one shows here.
            if str(arguments[0]).startswith(HIDDEN):
                self.seen.append(f"the candidate imports {arguments[0]}")
            return
        self.active = False  # reading frames is an event itself
        try:
            # Printing an exception's traceback, as honest code does, reads frames too: those that the exception passed
            # through.
            through = _STACK_READERS if event.startswith("sys.") else _STACK_READERS[:1]
            frame = _asking(sys._getframe(1), through)
            if candidates(frame):
                self.seen.append(f"{event} called in line {frame.f_lineno} of the candidate")
        finally:
            self.active = True


def _asking(frame: FrameType, through: tuple[str, ...]) -> FrameType:
    """Returns the frame that asks, behind frames of modules that only do it for their caller."""
    while frame.f_code.co_filename.endswith(through) and frame.f_back is not None:
        frame = frame.f_back
    return frame


def candidates(frame: FrameType) -> bool:
    """Tells whether a frame runs a candidate's code."""
    name = frame.f_code.co_filename
    return name.endswith("candidate.py") or name.startswith("<string")


def watch_forbidden(seen: list[str]) -> None:
    """Adds each call of a forbidden name by a candidate to `seen`. Called once, in a process that never goes back."""
    import torch
    from torch.utils import _python_dispatch

    for owner in (torch._C, _python_dispatch, torch.overrides):
        for name in forbidden_names.NAMES:
            if plain := getattr(owner, name, None):
                setattr(owner, name, _watched(plain, name, seen))
    again = torch._ops.OpOverload.redispatch
    torch._ops.OpOverload.redispatch = _watched(again, "redispatch", seen)  # type: ignore[method-assign]


def _watched(plain: Callable[..., Any], name: str, seen: list[str]) -> Callable[..., Any]:
    @functools.wraps(plain, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        frame = sys._getframe(1)
        if candidates(frame):
            seen.append(f"{name} called in line {frame.f_lineno} of the candidate{forbidden_names.PAST}")
        return plain(*args, **kwargs)

    return call
