"""Ways to the torch modes under which a candidate runs, or past them. No kernel has a use for them.

The text is searched for their names (`static_rules`), and whoever hides a name is seen when it is called. What this
does not do: keep anybody from anything.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from kernelwright.evaluation.candidate.audit_hook import candidates

NAMES = frozenset(
    "_get_current_dispatch_mode_stack _get_dispatch_stack_at _pop_torch_dispatch_stack _get_current_function_mode_stack"
    " _pop_mode _disable_current_modes _DisableTorchDispatch _ExcludeDispatchKeyGuard _ForceDispatchKeyGuard"
    " _dispatch_tls_set_dispatch_key_excluded _pop_torch_function_stack DisableTorchFunction _get_function_stack_at"
    " _get_dispatch_mode _set_dispatch_mode _unset_dispatch_mode _pop_mode_temporarily _len_torch_dispatch_stack"
    " _len_torch_function_stack _is_torch_function_mode_enabled is_in_torch_dispatch_mode".split()
)

PAST = ": it leads past what watches a call"


def install(seen: list[str]) -> None:
    """Has each call by a candidate added to `seen`; once, in a process that never goes back."""
    import torch
    from torch.utils import _python_dispatch

    for owner in (torch._C, _python_dispatch, torch.overrides):
        for name in NAMES:
            if plain := getattr(owner, name, None):
                setattr(owner, name, _watched(plain, name, seen))
    again = torch._ops.OpOverload.redispatch
    torch._ops.OpOverload.redispatch = _watched(again, "redispatch", seen)  # type: ignore[method-assign]


def _watched(plain: Callable[..., Any], name: str, seen: list[str]) -> Callable[..., Any]:
    @functools.wraps(plain, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        frame = sys._getframe(1)
        if candidates(frame):
            seen.append(f"{name} called in line {frame.f_lineno} of the candidate{PAST}")
        return plain(*args, **kwargs)

    return call
