"""Honest candidates in many styles, with tasks of our own. No judge may reject one.

`CASES` holds all of them. Each family is a module with its own `CASES`; a case declares whether it needs a GPU or
Triton (which needs none).
"""

from __future__ import annotations

from . import (
    convolution_pooling,
    elementwise,
    habits,
    layout,
    libraries,
    losses,
    matmul,
    reductions,
    scans,
    softmax_norms,
    streams_graphs,
    toolkit,
    triton_kernels,
    triton_models,
    triton_products,
)
from .case import Case

__all__ = ["CASES", "FAMILIES", "Case"]

FAMILIES: dict[str, tuple[Case, ...]] = {
    "elementwise": elementwise.CASES,
    "reductions": reductions.CASES,
    "softmax_norms": softmax_norms.CASES,
    "matmul": matmul.CASES,
    "convolution_pooling": convolution_pooling.CASES,
    "scans": scans.CASES,
    "layout": layout.CASES,
    "losses": losses.CASES,
    "toolkit": toolkit.CASES,
    "habits": habits.CASES,
    "streams_graphs": streams_graphs.CASES,
    "triton_kernels": triton_kernels.CASES + triton_products.CASES + triton_models.CASES,
    "libraries": libraries.CASES,
}
CASES: tuple[Case, ...] = tuple(case for family in FAMILIES.values() for case in family)
