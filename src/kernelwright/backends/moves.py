"""Lists operators that only move, create or reinterpret data; all other operators compute.

`evaluation.judge.rules` decides what that means: a candidate that only moves data still needs a kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

MOVES = frozenset(
    """empty empty_like empty_strided new_empty new_empty_strided empty_permuted zeros zeros_like new_zeros ones
    ones_like new_ones full full_like new_full fill fill_ zero_ zero arange scalar_tensor lift_fresh lift_fresh_copy
    view _unsafe_view reshape _reshape_alias as_strided permute transpose t squeeze unsqueeze expand alias detach
    slice select narrow split split_with_sizes chunk unbind unfold flatten unflatten clone copy_ _to_copy contiguous
    cat stack constant_pad_nd pad set_ resize_ _local_scalar_dense item is_same_size _unsafe_split diagonal
    view_as_real view_as_complex new_tensor rand randn randint bernoulli_ uniform_ normal_ randperm repeat
    expand_copy permute_copy view_copy slice_scatter select_scatter movedim swapaxes hstack vstack index_put_
    eye tril_indices triu_indices linspace to_dlpack from_dlpack real imag _pin_memory is_pinned equal
    record_stream resolve_conj resolve_neg sym_size sym_stride sym_numel _has_compatible_shallow_copy_type
    detach_ expand_as reshape_as squeeze_ unsqueeze_ t_ transpose_ to type_as view_as requires_grad is_alias_of
    manual_seed grad_enabled set_grad_enabled promote_types tensor_split column_stack dstack concat concatenate
    row_stack swapdims moveaxis hsplit vsplit dsplit ravel tile pin_memory
    """.split()
)
_INDEXING = ("index", "index_put", "index_put_")


def is_move(name: str, args: Sequence[Any]) -> bool:
    """Tells whether a call from compiled code only moves data. Indexing by numbers and slices is a view; indexing by
    tensors computes."""
    if name not in _INDEXING:
        return name in MOVES
    index = args[1] if isinstance(args[1], (list, tuple)) else [args[1]]
    values = args[2:3] if name != "index" else []
    return all(one is None or one is ... or isinstance(one, (bool, int, slice)) for one in index) and all(
        isinstance(value, (torch.Tensor, bool, int, float)) for value in values
    )
