"""Looks up names that torch's and CUDA's own headers declare, to tell a gap in the stand-in from a mistake.

The table is `torch_names.txt`, written by `benchmarks/torch_signatures.py` from the headers of one release of torch.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

TABLE = Path(__file__).parent / "torch_names.txt"

_SEEN_THROUGH = {
    "torch": ("torch", "at", "c10", "torch::autograd"),
    "at": ("at", "c10"),
    "c10": ("c10",),
    "at::cuda": ("at::cuda", "c10::cuda"),
    "torch::autograd": ("torch::autograd", "torch", "at", "c10"),
    "torch::nn::functional": ("torch::nn::functional", "torch::nn", "torch", "at"),
    "torch::nn": ("torch::nn",),
}
"""Scopes in which a name is found: torch imports at, and at imports c10."""
_LIBRARIES = re.compile(
    r"(?:cublas|cudnn|curand|cufft|cusparse|cusolver|nccl|nvtx|nvrtc|CUBLAS_|CUDNN_|CURAND_|NCCL_|CUSPARSE_)\w*"
)
"""Names of libraries whose headers are not read: any of them may exist."""

_UNSEEN = {
    "at": "toAccumulateType _ops",
    "c10::List": (
        "get set extract append push_back emplace_back insert emplace erase pop_back size empty begin end clear"
        " reserve resize vec copy elementType swapElements use_count is"
    ),
    "macros": (
        "RECORD_FUNCTION RECORD_FUNCTION_WITH_SCOPE RECORD_USER_SCOPE RECORD_FUNCTION_WITH_INPUTS_OUTPUTS"
        " RECORD_OUTPUTS DECLARE_DISPATCH DEFINE_DISPATCH REGISTER_DISPATCH STD_TORCH_CHECK DEFAULT_MAX_THREADS"
    ),
    "pybind11": (
        "arg args arg_v array array_t assert bool_ buffer buffer_info builtin_exception bytearray bytes"
        " call_guard capsule cast cast_error class_ const_name cpp_function create_exception custom_type_setup"
        " dict doc doc_signature_options dtype dynamic_attr ellipsis enum_ error_already_set eval exec exception"
        " float_ format_descriptor frozenset function generic_type getattr gil_scoped_acquire gil_scoped_release"
        " globals handle hasattr hash implicitly_convertible import_error index_error init int_ is_final is_method"
        " is_operator isinstance iterable iterator keep_alive key_error kw_only kwargs len len_hint list literals"
        " make_iterator make_key_iterator make_tuple memoryview module module_ module_local move"
        " multiple_inheritance name native_enum none object operators options overload_cast pickle pos_only"
        " prepend print raise_from register_exception reinterpret_borrow reinterpret_steal repr"
        " return_value_policy scope self sequence set setattr sibling slice staticmethod stop_iteration str tag"
        " tuple type type_error value_error vectorize weakref"
    ),
}
"""Names that the script that reads torch's headers misses: behind macros, or in headers that it does not reach."""


@cache
def table() -> dict[str, frozenset[str]]:
    """Returns names by scope; besides C++ scopes: `macros`, `cuda`, `headers` and `incomplete`."""
    lines = [line for line in TABLE.read_text().splitlines() if line and not line.startswith("#")]
    pairs = (line.split(": ", 1) for line in lines if ": " in line)
    found = {scope: frozenset(names.split()) for scope, names in pairs}
    return found | {scope: found.get(scope, frozenset()) | frozenset(more.split()) for scope, more in _UNSEEN.items()}


def declared(scope: str, name: str) -> bool | None:
    """Tells whether torch declares `name` in `scope` (`at::Tensor`, `torch::nn`); None for an unknown scope."""
    scope = re.sub(r"\s*<.*", "", scope.removeprefix("::")).strip()
    through = _SEEN_THROUGH.get(scope, (scope,))
    if not any(table().get(s) for s in through):
        return None
    if any(known.startswith(f"{scope}::{name}") for known in table()):
        return True  # a namespace
    # Some declarations are behind macros: for these scopes a name that is declared anywhere counts as declared.
    found = any(name in table().get(s, ()) for s in through)
    if found or scope not in ("torch", "at", "c10") or name not in table()["anywhere"]:
        return found
    return not any(name in names for known, names in table().items() if "::" in known)


def is_api(name: str) -> bool:
    """Tells whether a global name belongs to CUDA or is a macro of torch."""
    return name in table()["cuda"] or name in table()["macros"] or _LIBRARIES.fullmatch(name) is not None


def is_header(name: str) -> bool:
    """Tells whether torch or CUDA has a header of this name."""
    operator = re.fullmatch(r"ATen/ops/(\w+?)(?:_(?:native|ops|cpu_dispatch|cuda_dispatch))?\.h", name)
    if operator:
        return declared("at", operator.group(1)) is True
    return name in table()["headers"]


def is_complete(name: str) -> bool:
    """Tells whether the stand-in has all overloads of an operator, so that a call without match is an error."""
    return name not in table()["incomplete"]
