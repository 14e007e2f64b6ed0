"""Detects replaced functions of Python and torch, by comparing them with those from before the candidate.

A comparison of objects sees every way of replacing one, whatever the text looks like. It does not see a replacement
that was undone in time, or names that a module only gets at its first use.
"""

from __future__ import annotations

import builtins
import json
import os
import time
from operator import is_
from typing import Any

import numpy as np
import torch

from kernelwright.evaluation.candidate.fake_torch import libraries

_OWN_DOING = {("torch", "manual_seed"), ("torch.nn.Module", "__init__"), ("torch.nn.Module", "__setstate__")}
"""Functions that torch itself replaces when its compiler is imported."""
_OPERATORS = frozenset(torch._C._dispatch_get_all_op_names())
"""All operators of torch without its late parts. Read in the zygote, since it takes 10 ms."""
_all, _map = all, map
"""Taken before a candidate can replace them."""
_IGNORED = {"__dict__", "__weakref__", "__doc__", "__module__"}


class Originals:
    """Keeps the object behind each name, and reports names that mean another object now."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Any, tuple[str, ...], tuple[Any, ...]]] = {}
        """By the owner's name: the owner, its functions' names and the functions."""
        self._registered: set[str] = set()

    def keep(self) -> None:
        """Records the current objects as the originals."""
        self._registered = set(torch.library._impls)
        self._kept = {}
        for name, owner in _owners().items():
            functions = _functions(owner)
            self._kept[name] = owner, tuple(functions), tuple(functions.values())

    def changed(self) -> list[str]:
        """Returns names of functions that differ from the recorded ones."""
        found = []
        for name, (owner, members, originals) in self._kept.items():
            now = _members(owner)
            if _all(_map(is_, _map(now.get, members), originals)):  # some 2,000 members, with each answer
                continue
            for member, original in zip(members, originals, strict=True):
                if now.get(member) is not original and (name, member) not in _OWN_DOING:
                    found.append(f"{name}.{member}")
        return found + [name for name in sorted(torch.library._impls - self._registered) if _computes(name)]


def _computes(name: str) -> bool:
    """Tells whether a registration such as `aten/relu/CPU` replaces an operator that torch had from the start.

    Parts of torch that are imported late, such as its compiler, bring operators of their own.
    """
    operator, _, key = name.rpartition("/")
    space = operator.partition("/")[0]
    if operator.replace("/", "::", 1) not in _OPERATORS or "c10d" in space:  # torch.distributed completes its own
        return False
    return space in libraries() and key.startswith(("CPU", "CUDA", "Autograd", "Composite"))


def _owners() -> dict[str, Any]:
    return {
        "time": time,
        "os": os,
        "json": json,
        "numpy": np,
        "builtins": builtins,
        "torch": torch,
        "torch.cuda": torch.cuda,
        "torch.cuda.Event": torch.cuda.Event,
        "torch.Tensor": torch.Tensor,
        "torch.nn.Module": torch.nn.Module,
        "torch.nn.functional": torch.nn.functional,
        "torch.testing": torch.testing,
    }


def _members(owner: Any) -> dict[str, Any]:
    if not isinstance(owner, type):
        return vars(owner)
    members: dict[str, Any] = {}
    for base in reversed(owner.__mro__):
        members.update(vars(base))
    return members


def _functions(owner: Any) -> dict[str, Any]:
    kinds = (staticmethod, classmethod, property)
    return {
        name: value
        for name, value in _members(owner).items()
        if name not in _IGNORED and (callable(value) or isinstance(value, kinds))
    }
