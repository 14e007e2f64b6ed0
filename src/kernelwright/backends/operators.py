"""Registers the operators of an extension's TORCH_LIBRARY blocks with torch in the runner.

Their compiled functions are bound like those of a module; here they get schema and dispatch key. Without a GPU the
CUDA tensors of a candidate are tensors of another device, and its CUDA implementation is registered for that device's
key. Where they are CPU tensors, its CPU implementation is dropped.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

_kept: list[Any] = []
"""References that keep torch.library.Library objects, and so the operators, alive until the process ends."""
_LEFT_OUT = ("Meta", "Autograd", "AutogradCPU", "AutogradCUDA")
"""Dispatch keys that judged calls never use: shape inference and gradients."""


@dataclass(frozen=True)
class OperatorEntry:
    """One `def` or `impl`: `function` is the index of a bound function, negative where there is none."""

    space: str
    schema: str
    key: str
    function: int
    defines: bool


def entries(library: ctypes.CDLL) -> Iterator[OperatorEntry]:
    """Yields the registrations of the last loaded extension, in order."""
    space, schema, key, defines = ctypes.c_char_p(), ctypes.c_char_p(), ctypes.c_char_p(), ctypes.c_int()
    index = 0
    while True:
        function = library.kw_operator(
            index, ctypes.byref(space), ctypes.byref(schema), ctypes.byref(key), ctypes.byref(defines)
        )
        if function < -1:
            return
        texts = [(text.value or b"").decode(errors="replace") for text in (space, schema, key)]
        yield OperatorEntry(texts[0], texts[1], texts[2], function, bool(defines.value))
        index += 1


def register(library: ctypes.CDLL, pretended: str, bound: Callable[[int, str], Callable[..., Any]]) -> int:
    """Registers the operators of the last loaded extension and returns their number. Raises RuntimeError like torch for
    a second definition, a malformed schema or an implementation without definition.

    `pretended` is the dispatch key of the tensors that stand for CUDA tensors in this process, empty if none do.
    `bound` maps a function index and name to a Python function.
    """
    if library.kw_run_libraries():
        raise RuntimeError(library.kw_error_text().decode(errors="replace"))
    found = list(entries(library))
    for space in dict.fromkeys(entry.space for entry in found):
        made = torch.library.Library(space, "FRAGMENT")
        _kept.append(made)
        for entry in found:
            if entry.space == space and entry.defines:
                made.define(entry.schema)
        for entry in found:
            if entry.space == space and entry.function >= 0:
                _implement(made, entry, pretended, bound)
    return len(found)


def _implement(
    made: Any, entry: OperatorEntry, pretended: str, bound: Callable[[int, str], Callable[..., Any]]
) -> None:
    name = entry.schema.split("(")[0].strip()
    keys: tuple[str, ...] = (entry.key,)
    if entry.key == "CUDA" and pretended:
        keys = (pretended, "CUDA")
    if entry.key == "CPU" and pretended == "CPU":
        keys = ()
    if entry.key in _LEFT_OUT:
        return
    if entry.key in ("", "CatchAll"):
        keys = ("CompositeImplicitAutograd",)
    packet = getattr(getattr(torch.ops, entry.space), name.partition(".")[0])
    overload = getattr(packet, name.partition(".")[2] or "default")
    call = _in_order(overload._schema, bound(entry.function, f"{entry.space}::{name}"))
    for key in keys:
        made.impl(name, call, key)


def _in_order(schema: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a function to take the dispatcher's arguments and pass them by position, as C++ expects."""

    def call(*args: Any, **named: Any) -> Any:
        rest = schema.arguments[len(args) :]
        return function(*args, *(named[a.name] if a.name in named else a.default_value for a in rest))

    return call
