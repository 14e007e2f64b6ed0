"""Names that lead to the torch modes under which a candidate runs, or bypass them. No kernel has a use for them.

The text is searched for these names (`static_rules`); `candidate.audit_hook` records calls under a hidden name.
"""

from __future__ import annotations

NAMES = frozenset(
    "_get_current_dispatch_mode_stack _get_dispatch_stack_at _pop_torch_dispatch_stack _get_current_function_mode_stack"
    " _pop_mode _disable_current_modes _DisableTorchDispatch _ExcludeDispatchKeyGuard _ForceDispatchKeyGuard"
    " _dispatch_tls_set_dispatch_key_excluded _pop_torch_function_stack DisableTorchFunction _get_function_stack_at"
    " _get_dispatch_mode _set_dispatch_mode _unset_dispatch_mode _pop_mode_temporarily _len_torch_dispatch_stack"
    " _len_torch_function_stack _is_torch_function_mode_enabled is_in_torch_dispatch_mode".split()
)

PAST = ": it leads past what watches a call"
