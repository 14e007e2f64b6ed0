"""Operators with kernels of their own, one module a family. Importing a module registers its operators."""

from __future__ import annotations

import importlib

_MODULES: tuple[str, ...] = (
    *("attention", "collects", "convolution", "pooling", "products", "sampling"),
    *("joins", "norms", "places", "puts", "remaps", "rows", "scans", "small", "views"),
    *("wide.maps", "wide.norms", "wide.places", "wide.pooling", "wide.rows", "wide.scans", "wide.whole"),
)
"""The modules of this package that register operators."""


def register() -> None:
    """Registers the operators of every family; costs nothing after the first call."""
    for name in _MODULES:
        importlib.import_module(f"{__name__}.{name}")
