"""Applies the modes under which a candidate was called to the threads that it starts, and to its backward functions.

torch keeps its modes per thread, so a candidate's own thread would compute unseen. Threads that compiled code starts
come here when they call torch (`backends.host_library`). No thread is forbidden. torch's engine leaves
function modes while it differentiates, and a candidate's own `backward` expects its device there, too.
"""

from __future__ import annotations

import _thread
import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch.autograd.function import BackwardCFunction
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack


def install(modes: Callable[[], Sequence[Any]]) -> None:
    """Replaces the functions that start threads. Called once, in a process that never goes back. `modes` returns the
    modes now."""
    plain = _thread.start_new_thread

    def start_new_thread(function: Callable[..., Any], args: Any, kwargs: Any = None) -> int:
        active = modes()

        def watched(*given: Any, **named: Any) -> Any:
            with entered(active):
                return function(*given, **named)

        return plain(watched, args, kwargs or {})

    for module, name in ((_thread, "start_new_thread"), (_thread, "start_new"), (threading, "_start_new_thread")):
        setattr(module, name, start_new_thread)
    for name in ("apply", "apply_boxed"):  # the second is of newer versions of torch
        if (plain_apply := getattr(BackwardCFunction, name, None)) is not None:
            setattr(BackwardCFunction, name, _in_modes(plain_apply, modes))


@contextlib.contextmanager
def entered(modes: Sequence[Any]) -> Iterator[None]:
    """A context in which a thread that had no modes has these."""
    with contextlib.ExitStack() as stack:
        for mode in modes:
            stack.enter_context(mode)
        yield


def _in_modes(plain: Callable[..., Any], modes: Callable[[], Sequence[Any]]) -> Callable[..., Any]:
    """Returns a backward function that runs under the function modes of the call around it."""

    def apply(self: Any, *gradients: Any) -> Any:
        active = _get_current_function_mode_stack()
        with contextlib.ExitStack() as stack:
            for mode in modes():
                if isinstance(mode, TorchFunctionMode) and mode not in active:
                    stack.enter_context(mode)
            return plain(self, *gradients)

    return apply
