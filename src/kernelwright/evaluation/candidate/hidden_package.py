"""Hides Kernelwright from a candidate: of the whole package, `kernelwright.cuda` alone can be imported.

Modules that are loaded keep working, but `sys.modules` names them no more, and an import of one is refused and noted,
however its name was made. The package's files cannot be read in a candidate's process (`roles.jail_of`), so no other
way of loading leads to them. Everything that a runner imports must therefore be loaded before its candidate.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import kernelwright
import kernelwright.cuda

NAME = "kernelwright"
FOLDER = str(Path(kernelwright.__file__).resolve().parent)
OPEN = "kernelwright.cuda"
REASON = f"belongs to the judge; a candidate may import {OPEN} only"
Seen = list[tuple[Literal["frame-walk", "harness-access"], str]]
"""Rules that a candidate broke in its process, with the evidence."""


class _Refusing(importlib.abc.MetaPathFinder):
    """Refuses and notes imports of the package; the first finder on the path."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] != NAME:
            return None
        self.seen.append(("harness-access", f"the candidate imports {fullname}"))
        raise ImportError(f"{fullname} {REASON}", name=fullname)


def hide(seen: Seen) -> None:
    """Leaves a bare package with `cuda` in `sys.modules`, and adds refused imports to `seen`. Called once, in a process
    that never goes back."""
    opened = sys.modules[OPEN]
    _forget(NAME)
    bare = types.ModuleType(NAME, "Holds `cuda`, for candidates.")
    bare.__spec__ = importlib.machinery.ModuleSpec(NAME, None, is_package=True)
    bare.__path__ = []
    bare.cuda = opened  # type: ignore[attr-defined]

    def refuse(name: str) -> None:
        if name in kernelwright.__all__:
            seen.append(("harness-access", f"the candidate asks for {NAME}.{name}"))
        raise AttributeError(f"{NAME}.{name} {REASON}" if name in kernelwright.__all__ else f"no attribute {name!r}")

    bare.__getattr__ = refuse  # type: ignore[method-assign]
    sys.modules |= {NAME: bare, OPEN: opened}
    sys.meta_path.insert(0, _Refusing(seen))


def _forget(name: str) -> None:
    """Removes a module and, at every depth, the modules below it.

    Children are found by the attributes of their package: a walk over all of `sys.modules` would touch, and so copy,
    every page of this fork that holds one of their names.
    """
    module = sys.modules.pop(name, None)
    for child in list(vars(module)) if module is not None else ():
        if f"{name}.{child}" in sys.modules:
            _forget(f"{name}.{child}")
