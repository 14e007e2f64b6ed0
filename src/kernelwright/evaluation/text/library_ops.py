"""Maps a torch operator to its library, for policies that name the libraries a candidate may call."""

from __future__ import annotations

import re

from kernelwright.records import LIBRARIES, LibraryRule

_OWNERS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("cudnn", re.compile(r"cudnn|miopen|conv\d?d?|convolution|batch_norm|_rnn|lstm|gru|_flash_attention|ctc_loss")),
    (
        "cublas",
        re.compile(r"cublas|(^|_|:)(mm|bmm|addmm|baddbmm|addbmm|addmv|mv|matmul|linear|dot|vdot|einsum)($|_|\.)"),
    ),
    ("cufft", re.compile(r"fft|stft")),
    ("cusolver", re.compile(r"linalg_(?!vector_norm|matrix_norm|cross)|cholesky|svd|_qr|geqrf|lu_")),
    ("cusparse", re.compile(r"sparse|csr")),
    ("cub", re.compile(r"sort|topk|cumsum|cumprod|cummax|cummin|logcumsumexp|unique|nonzero|masked_select|histc")),
)


def owner(operator: str) -> str:
    """Returns the library that an operator's work belongs to: one of `LIBRARIES`; `torch` for torch's own kernels."""
    return next((name for name, pattern in _OWNERS if pattern.search(operator)), "torch")


def allowed(policy: LibraryRule) -> frozenset[str]:
    """Returns the libraries that a policy lets a candidate call: none, all, or the named ones."""
    if policy == "libraries":
        return frozenset(LIBRARIES)
    return frozenset(policy.partition(":")[2].split(",")) - {""}
