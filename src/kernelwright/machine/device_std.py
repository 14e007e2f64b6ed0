"""Includes for rare names of std, from NVIDIA's libcu++, and for torch's complex numbers.

`kernelwright_device.h` declares the common names of std. The rest comes from `cuda::std`, under std's name, and only
for texts that use it: parsing those headers takes longer than parsing most kernels.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_DEVICE_HEADER = Path(__file__).resolve().parent / "include" / "kernelwright_device.h"
_NAMES = {
    "type_traits": (
        "add_const add_const_t add_pointer add_pointer_t bool_constant common_type common_type_t conjunction"
        " conjunction_v decay disjunction disjunction_v invoke_result invoke_result_t is_arithmetic is_arithmetic_v"
        " is_array is_array_v is_base_of is_base_of_v is_class is_class_v is_const is_const_v is_constant_evaluated"
        " is_convertible is_convertible_v is_default_constructible_v is_empty is_empty_v is_enum is_enum_v"
        " is_function_v is_invocable is_invocable_v is_lvalue_reference_v is_null_pointer_v is_pointer is_pointer_v"
        " is_reference is_reference_v is_signed is_signed_v is_standard_layout_v is_trivial_v is_trivially_copyable"
        " is_trivially_copyable_v is_unsigned is_unsigned_v is_void is_void_v make_signed make_signed_t make_unsigned"
        " make_unsigned_t negation negation_v remove_cvref remove_cvref_t remove_extent remove_extent_t"
        " remove_pointer remove_pointer_t type_identity type_identity_t underlying_type underlying_type_t void_t"
    ),
    "utility": (
        "as_const declval exchange index_sequence index_sequence_for integer_sequence make_index_sequence"
        " make_integer_sequence"
    ),
    "tuple": "apply forward_as_tuple make_tuple tie tuple tuple_cat",
    "bit": (
        "bit_cast bit_ceil bit_floor bit_width countl_one countl_zero countr_one countr_zero has_single_bit popcount"
        " rotl rotr"
    ),
    "functional": (
        "bit_and bit_or bit_xor divides equal_to greater greater_equal identity less less_equal logical_and"
        " logical_not logical_or minus modulus multiplies negate not_equal_to plus"
    ),
    "concepts": (
        "convertible_to derived_from floating_point integral invocable same_as signed_integral unsigned_integral"
    ),
}
_HEADERS = {name: header for header, names in _NAMES.items() for name in names.split()}
_USED = re.compile(r"(?<!\bcuda::)\bstd\s*::\s*(\w+)")
_GET = "get"
"""`std::get` for tuples; `kernelwright_device.h` has the overloads for pairs and arrays."""
_COMPLEX = "kernelwright_complex.h"


@cache
def _plain_names() -> frozenset[str]:
    """Returns the words of `kernelwright_device.h`, which declares the common names of std."""
    return frozenset(re.findall(r"[A-Za-z_]\w*", _DEVICE_HEADER.read_text()))


def has(name: str) -> bool:
    """Tells whether device code can use `std::name`."""
    return name in _HEADERS or name in _plain_names() or name in ("move", "forward")


def preamble(source: str) -> str:
    """Returns includes and using-declarations for the names of std in a device text; empty for most texts."""
    used = set(_USED.findall(source)) if "std" in source else set()
    wanted = sorted(used & _HEADERS.keys())
    headers = dict.fromkeys(f"cuda/std/{_HEADERS[name]}" for name in wanted)
    if any(header.endswith("tuple") for header in headers) and _GET in used:
        wanted.append(_GET)
    lines = [f"#include <{header}>" for header in headers]
    if re.search(r"\b(?:c10|at|torch)\s*::\s*complex\b", source):
        lines.append(f"#include <{_COMPLEX}>")
    if wanted:
        lines.append("namespace std { " + " ".join(f"using cuda::std::{name};" for name in wanted) + " }")
    return "".join(f"{line}\n" for line in lines)
