"""Lists the torch operators that may run on the device for a candidate that writes its own kernels.

Moves and allocations are free. Glue computes on few elements: elementwise arithmetic, plain reductions, and bookkeeping
with integers. Every other operator is refused by name, unless the library rule allows its library, or it reads nothing
but weights that have just changed, or nothing but constants.
"""

from __future__ import annotations

from kernelwright.backends.moves import MOVES

ELEMENTWISE = frozenset(
    """abs acos acosh add addcdiv addcmul asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_not
    bitwise_or bitwise_right_shift bitwise_xor ceil clamp clamp_max clamp_min copysign cos cosh deg2rad div eq erf erfc
    exp exp2 expm1 floor floor_divide fmod frac ge gt hypot isfinite isinf isnan le lerp log log10 log1p log2
    logical_and logical_not logical_or logical_xor lt masked_fill maximum minimum mul ne neg pow rad2deg reciprocal
    remainder round rsqrt rsub sigmoid sign signbit sin sinh sqrt square sub tan tanh threshold trunc where xlogy
    nan_to_num __and__ __or__ __xor__ __lshift__ __rshift__""".split()
)
"""Each element of the result depends on one element of each input."""
REDUCTIONS = frozenset("all any amax amin aminmax max mean min prod std std_mean sum var var_mean".split())
INTEGERS = frozenset(
    """argsort bincount bucketize count_nonzero cummax cummin cumprod cumsum diff histc nonzero repeat_interleave
    searchsorted sort topk unique _unique2 unique_consecutive unique_dim tril triu""".split()
)
"""Bookkeeping: only on integers and truth values."""
INDEXING = frozenset(
    """flip gather index index_add index_copy index_fill index_put index_select masked_scatter masked_select roll rot90
    scatter scatter_add take take_along_dim""".split()
)
GLUE = ELEMENTWISE | REDUCTIONS | INDEXING
CREATES = frozenset(
    """zeros zeros_like new_zeros ones ones_like new_ones full full_like new_full fill fill_ zero zero_ arange linspace
    scalar_tensor rand randn randint randperm uniform_ normal_ eye tril_indices triu_indices rand_like randn_like
    randint_like""".split()
)
"""Moves that take at most the form of a tensor, or one number."""
CARRIES = frozenset(
    """clone copy _to_copy contiguous cat stack concat concatenate hstack vstack dstack repeat tile expand_copy
    permute_copy view_copy slice_scatter select_scatter constant_pad_nd lift_fresh_copy unfold flatten reshape
    resolve_conj resolve_neg""".split()
)
"""Moves that work alike on the labels of what they move."""
NEVER = frozenset("from_file _fw_primal _cuda_getCurrentRawStream".split())
"""Operators that no rule allows, since they reach past device memory."""


def base_name(name: str) -> str:
    """Returns an operator's name without its overload and the mark of its in-place form."""
    plain = name.split(".")[0]
    return plain if plain in MOVES or plain.startswith("__") else plain.removesuffix("_") or plain


def moves(name: str, accumulates: bool) -> bool:
    """Tells whether an operator only moves or creates data; `index_put_` may also accumulate."""
    return name.split(".")[0] in MOVES and not accumulates


def is_glue(name: str, integers: bool) -> bool:
    """Tells whether an operator may compute on few elements; `integers`: no input is of a floating-point dtype."""
    plain = base_name(name)
    return plain in GLUE or (integers and plain in INTEGERS)
