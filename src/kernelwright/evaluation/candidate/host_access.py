"""Detects Python code that reaches into device memory through `ctypes`: on a GPU a crash, here a way to compute on the
host.

Addresses may be passed to launches, and be cast to pointers for that; only reading or writing through them counts. C
code that a candidate has built is not seen here. This module does not judge.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernelwright.evaluation.candidate.audit_hook import candidates

ENOUGH = 1 << 20
"""More elements than any rule allows: looking up further addresses would only cost time."""
_LAUNCHING = re.compile(r"lib(cuda|cudart|nv|cublas|cudnn|cufft|cusparse|cusolver|nccl)[\w.-]*")
"""Libraries that launch kernels with the addresses that they are given, as libraries built by a candidate may too."""
_INSTALLED = tuple(
    os.path.realpath(path) for path in ("/lib", "/lib64", "/usr", sys.prefix, sys.base_prefix, *torch.__path__)
)


class HostAccess:
    """Counts the elements (of four bytes) of device memory that came within the reach of a call's Python code."""

    def __init__(self, allocations: Callable[[], Sequence[Any]]) -> None:
        self._allocations = allocations
        self.elements = 0
        self.cast: Any = ctypes.cast

    def touch(self, address: int, most: int = ENOUGH) -> None:
        """Counts the elements from an address to the end of its tensor, at most `most` of them."""
        if self.elements > ENOUGH or not address:
            return
        for block in self._allocations():
            if block.address <= address < block.address + block.nbytes:
                self.elements += min(most, -(-(block.address + block.nbytes - address) // 4))
                return

    def touch_value(self, value: Any, most: int = ENOUGH) -> None:
        """Counts the same for an integer, `c_void_p` or pointer."""
        if isinstance(value, (ctypes.c_void_p, ctypes._Pointer)):
            value = self.cast(value, ctypes.c_void_p).value
        if isinstance(value, int):
            self.touch(value, most)

    def install(self) -> None:
        """Replaces the parts of `ctypes` that go through addresses. Called once, in a process that never goes back."""
        kinds: dict[Any, Any] = {}

        def cast(value: Any, kind: Any) -> Any:
            if isinstance(kind, type) and issubclass(kind, ctypes._Pointer):
                if kind not in kinds:
                    kinds[kind] = _watched(kind, self)
                kind = kinds[kind]
            return self.cast(value, kind)

        ctypes.cast = cast  # type: ignore[assignment]
        for name in ("memmove", "memset"):
            setattr(ctypes, name, self._checked(getattr(ctypes, name)))
        getitem = ctypes.CDLL.__getitem__

        def found(library: Any, name: Any) -> Any:
            if not isinstance(name, str) or not _host_library(library):
                return getitem(library, name)
            plain = library._FuncPtr
            members = {
                "_flags_": plain._flags_,
                "_restype_": plain._restype_,
                "__call__": self._checked(plain.__call__),
            }
            function = type("_FuncPtr", (plain,), members)((name, library))
            function.__name__ = name
            return function

        ctypes.CDLL.__getitem__ = found  # type: ignore[method-assign]

    def _checked(self, function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if candidates(sys._getframe(1)):
                for value in args:
                    self.touch_value(value)
            return function(*args, **kwargs)

        return call


def _host_library(library: Any) -> bool:
    """Tells whether a library's functions work in host memory: true for preinstalled libraries, except CUDA's."""
    folder, name = os.path.split(os.path.realpath(str(library._name or "")))
    built = "/" in str(library._name) and not folder.startswith(_INSTALLED)
    return library._name is None or not (built or _LAUNCHING.match(name))


def _watched(kind: Any, access: HostAccess) -> Any:
    """Returns a pointer type that reports when it is dereferenced; as an argument it passes for the plain one."""

    def get(self: Any, key: Any) -> Any:
        access.touch_value(self, _length(key))
        return kind.__getitem__(self, key)

    def put(self: Any, key: Any, value: Any) -> None:
        access.touch_value(self, _length(key))
        kind.__setitem__(self, key, value)

    def contents(self: Any) -> Any:
        access.touch_value(self)
        return kind.contents.__get__(self)

    put_contents = kind.contents.__set__
    members = {"__getitem__": get, "__setitem__": put, "contents": property(contents, put_contents)}
    return type(kind.__name__, (kind,), {"_type_": kind._type_, **members})


def _length(key: Any) -> int:
    return len(range(*key.indices(key.stop or 0))) if isinstance(key, slice) else 1
