"""Applies the modes under which a candidate was called to the threads that it starts.

torch keeps its modes per thread, so a candidate's own thread would compute unseen. Threads that compiled code starts
are not seen (their calls to torch come through `backends.extension`). No thread is forbidden.
"""

from __future__ import annotations

import _thread
import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any


def install(modes: Callable[[], Sequence[Any]]) -> None:
    """Replaces the functions that start threads. Called once, in a process that never goes back. `modes` returns the
    modes now."""
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
