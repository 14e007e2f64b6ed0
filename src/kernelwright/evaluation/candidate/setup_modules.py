"""Imports the extension modules that a candidate's `setup.py` describes: each is built when it is imported.

`setup.py` is executed as the candidate's code with a `setup` that only notes its extensions. A module is then built as
`torch.utils.cpp_extension.load` would build it, from the same sources, flags and folders.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import setuptools
import torch.utils.cpp_extension as cpp_extension

_CALLED = (
    (setuptools, "setup"),
    (setuptools, "Extension"),
    (cpp_extension, "CUDAExtension"),
    (cpp_extension, "CppExtension"),
)
"""What a `setup.py` calls to describe its extensions, by module and name."""


@dataclass(frozen=True)
class Described:
    """An extension module as `setup.py` describes it."""

    name: str
    sources: tuple[str, ...]
    include_dirs: tuple[str, ...]
    cxx: tuple[str, ...]
    nvcc: tuple[str, ...]


def _described(name: str, sources: Sequence[Any], *_more: Any, **given: Any) -> Described:
    """Stands for `CUDAExtension`, `CppExtension` and `Extension`."""
    flags = given.get("extra_compile_args") or []
    by_compiler = flags if isinstance(flags, dict) else {"cxx": flags, "nvcc": flags}
    macros = [f"-D{key}" if value is None else f"-D{key}={value}" for key, value in given.get("define_macros") or ()]
    macros += [f"-U{key}" for key in given.get("undef_macros") or ()]
    return Described(
        name,
        tuple(map(str, sources)),
        tuple(map(str, given.get("include_dirs") or ())),
        tuple([*map(str, by_compiler.get("cxx", ())), *macros]),
        tuple([*map(str, by_compiler.get("nvcc", ())), *macros]),
    )


class SetupModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules that the `setup.py` of `folder` describes; builds them by `load`.

    `lacking` takes the name of what is missing here when `setup.py` itself cannot be executed.
    """

    def __init__(self, folder: str, load: Callable[..., Any], lacking: list[str]) -> None:
        self.folder, self._load, self._lacking = folder, load, lacking
        self._modules: dict[str, Described] | None = None
        self._running = False

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if self._running:
            return None
        if self._modules is None:
            self._modules = {module.name: module for module in self._run()}
        return importlib.machinery.ModuleSpec(fullname, self) if fullname in self._modules else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Any:
        """Returns the built extension. Raises what building and loading it raises."""
        assert self._modules is not None
        wanted = self._modules[spec.name]
        with _inside(self.folder):
            return self._load(
                spec.name.rpartition(".")[2],
                [os.path.abspath(source) for source in wanted.sources],
                extra_cflags=list(wanted.cxx),
                extra_cuda_cflags=list(wanted.nvcc),
                extra_include_paths=[os.path.abspath(folder) for folder in wanted.include_dirs],
            )

    def exec_module(self, module: types.ModuleType) -> None:
        """Does nothing: loading an extension has executed it."""

    def _run(self) -> list[Described]:
        """Executes `setup.py`; returns the extensions of its `setup`."""
        found: list[Any] = []
        path = os.path.join(self.folder, "setup.py")
        with open(path, encoding="utf-8") as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)

        def setup(**given: Any) -> None:
            found.extend(given.get("ext_modules") or ())

        self._running = True
        try:
            with _inside(self.folder), _replaced(setup):
                exec(code, {"__name__": "__main__", "__file__": path})
        except (Exception, SystemExit) as error:
            self._lacking.append(f"setup.py ({type(error).__name__}: {error})"[:300])
        finally:
            self._running = False
        return [module for module in found if isinstance(module, Described)]


@contextmanager
def _inside(folder: str) -> Iterator[None]:
    """Works in `folder`, as a build of a package does."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def _replaced(setup: Callable[..., None]) -> Iterator[None]:
    """Replaces the functions of torch and setuptools that a `setup.py` calls."""
    kept = [(place, name, getattr(place, name)) for place, name in _CALLED]
    arguments = sys.argv
    for place, name, _ in kept:
        setattr(place, name, setup if name == "setup" else _described)
    cpp_extension.CUDA_HOME = cpp_extension.CUDA_HOME or "/usr/local/cuda"
    sys.argv = ["setup.py", "build_ext"]
    try:
        yield
    finally:
        sys.argv = arguments
        for place, name, value in kept:
            setattr(place, name, value)
