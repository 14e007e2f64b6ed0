"""Threads that a candidate starts are watched by the modes under which it was called.

torch keeps its modes thread by thread, so that a thread of a candidate's own would compute without being seen. What
this does not do: see threads that compiled code starts (what they ask of torch comes through `backends.extension`), or
forbid any.
"""

from __future__ import annotations

import _thread
import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any


def install(modes: Callable[[], Sequence[Any]]) -> None:
    """Takes the place of what starts threads; once, in a process that never goes back. `modes`: those of now."""
    plain = _thread.start_new_thread

    def start_new_thread(function: Callable[..., Any], args: Any, kwargs: Any = None) -> int:
        active = modes()

        def watched(*given: Any, **named: Any) -> Any:
            with contextlib.ExitStack() as stack:
                for mode in active:
                    stack.enter_context(mode)
                return function(*given, **named)

        return plain(watched, args, kwargs or {})

    for module, name in ((_thread, "start_new_thread"), (_thread, "start_new"), (threading, "_start_new_thread")):
        setattr(module, name, start_new_thread)
