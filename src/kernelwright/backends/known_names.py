"""Which names torch's and CUDA's own headers declare, by scope: what tells a gap of the stand-in from a mistake.

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
"""Scopes whose names are found through another one: torch takes in at, and at takes in c10."""
_LIBRARIES = re.compile(
    r"(?:cublas|cudnn|curand|cufft|cusparse|cusolver|nccl|nvtx|nvrtc|CUBLAS_|CUDNN_|CURAND_|NCCL_|CUSPARSE_)\w*"
)
"""Libraries of which no header is read: any such name may exist."""


@cache
def table() -> dict[str, frozenset[str]]:
    """Names by scope; `macros`, `cuda`, `headers` and `incomplete` beside C++ scopes."""
    lines = [line for line in TABLE.read_text().splitlines() if line and not line.startswith("#")]
    pairs = (line.split(": ", 1) for line in lines if ": " in line)
    return {scope: frozenset(names.split()) for scope, names in pairs}


def declared(scope: str, name: str) -> bool | None:
    """Whether torch declares `name` in `scope` (`at::Tensor`, `torch::nn`); None for an unknown scope."""
    scope = re.sub(r"\s*<.*", "", scope.removeprefix("::")).strip()
    through = _SEEN_THROUGH.get(scope, (scope,))
    if not any(table().get(s) for s in through):
        return None
    if any(known.startswith(f"{scope}::{name}") for known in table()):
        return True  # a namespace
    # Some declarations stand behind macros: for these scopes a name that is declared somewhere is taken to be theirs.
    found = any(name in table().get(s, ()) for s in through)
    if found or scope not in ("torch", "at", "c10") or name not in table()["anywhere"]:
        return found
    return not any(name in names for known, names in table().items() if "::" in known)


def is_api(name: str) -> bool:
    """Whether a name at global scope is one of CUDA's or a macro of torch's."""
    return name in table()["cuda"] or name in table()["macros"] or _LIBRARIES.fullmatch(name) is not None


def is_header(name: str) -> bool:
    """Whether torch or CUDA brings a header of this name."""
    operator = re.fullmatch(r"ATen/ops/(\w+?)(?:_(?:native|ops|cpu_dispatch|cuda_dispatch))?\.h", name)
    if operator:
        return declared("at", operator.group(1)) is True
    return name in table()["headers"]


def is_complete(name: str) -> bool:
    """Whether the stand-in has every overload of an operator: a call that fits none fits none of torch's."""
    return name not in table()["incomplete"]
