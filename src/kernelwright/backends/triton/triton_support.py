"""Triton without a GPU: whether it is wanted and here, made ready once, and pointed at the functional machine.

Triton is an optional extra and large, so nothing here imports it before a candidate's text asks for it. What this does
not do: compile (that is `triton_compiler`) or launch (`triton_driver`).
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelwright.machine.runtime import Runtime

VERSIONS = "triton 3.9"
HINT = "pip install 'kernelwright[triton]'"


def wanted(source: str) -> bool:
    """Whether a candidate's text speaks of Triton at all."""
    return re.search(r"\btriton\b", source) is not None


def installed() -> bool:
    """Whether Triton could be imported; imports nothing."""
    return importlib.util.find_spec("triton") is not None


def prepare() -> None:
    """Imports Triton and compiles once, in a parent whose forks then find its parts warm. Does nothing without it."""
    if not installed():
        return
    _settle()
    from kernelwright.backends.triton import triton_driver

    triton_driver.warm()


def attach(runtime: Runtime) -> None:
    """Makes Triton launch through `runtime`, for the rest of this process's life. Does nothing without it.

    A Triton whose inside is another one than that of `VERSIONS` is noted as unsupported, rather than half used.
    """
    if not installed():
        return
    _settle()
    try:
        from kernelwright.backends.triton import triton_driver

        triton_driver.activate(runtime)
    except Exception as error:
        version = importlib.metadata.version("triton")
        runtime.unsupported.append(f"triton {version} ({type(error).__name__}: {error}); {VERSIONS} is known to work")


def keep_errors(kept: list[dict[str, Any]]) -> None:
    """On a GPU, where Triton's own driver is the right one: failed compilations are added to `kept`."""
    if not installed():
        return
    with contextlib.suppress(Exception):  # another Triton inside: its errors are the candidate's exceptions then
        from kernelwright.backends.triton import triton_errors

        triton_errors.keep(kept)


def _settle() -> None:
    """Says which default is meant where Triton would warn on stderr that it is going to change."""
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
