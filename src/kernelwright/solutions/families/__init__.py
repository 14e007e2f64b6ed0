"""Operators with kernels of their own, one module a family. Importing a module registers its operators."""

from __future__ import annotations

import importlib

_MODULES: tuple[str, ...] = (
    *("collects", "convolution", "pooling", "products", "sampling"),
    *("joins", "norms", "places", "puts", "remaps", "rows", "scans", "views"),
)
"""Modules of this package that register operators."""


def register() -> None:
    """Makes every family known to the writer; costs nothing after the first call."""
    for name in _MODULES:
        importlib.import_module(f"{__name__}.{name}")
