"""Detects, prepares and attaches Triton to the functional machine.

Triton is a large optional extra, so it is imported only once a candidate's text uses it. `triton_compiler` compiles,
`triton_driver` launches.
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

VERSIONS = "triton 3.6 to 3.9"
HINT = "pip install 'kernelwright[triton]'"
_NAME = re.compile(r"\btriton\b")


def wanted(source: str) -> bool:
    """Tells whether a candidate's text mentions Triton."""
    return _NAME.search(source) is not None


def installed() -> bool:
    """Tells whether Triton is installed, without importing it."""
    return importlib.util.find_spec("triton") is not None


def prepare() -> None:
    """Imports Triton and compiles once, so that later forks of this process start warm. Does nothing without Triton."""
    if not installed():
        return
    _settle()
    from kernelwright.backends.triton import triton_driver

    triton_driver.warm()


def attach(runtime: Runtime) -> None:
    """Makes Triton launch through `runtime` for the rest of the process. Does nothing without Triton.

    A Triton with other internals than `VERSIONS` is recorded as unsupported.
    """
    if not installed():
        return
    _settle()
    try:
        from kernelwright.backends.triton import triton_driver

        triton_driver.activate(runtime)
    except Exception as error:
        version = importlib.metadata.version("triton")
        runtime.unsupported.append(f"triton {version} ({type(error).__name__}: {error}); {VERSIONS} are known to work")


def keep_errors(kept: list[dict[str, Any]]) -> None:
    """Adds failed compilations to `kept`, on a GPU, where Triton's own driver is used."""
    if not installed():
        return
    with contextlib.suppress(Exception):  # other internals: errors are then only the candidate's exceptions
        from kernelwright.backends.triton import triton_errors

        triton_errors.keep(kept)


def _settle() -> None:
    """Sets a default explicitly, since Triton otherwise warns on stderr that it will change."""
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
