"""Chooses the cases of a large set that `make test` runs; `make test-all` runs the others, too.

The choice goes by a hash of each name, so that a new case changes nothing for the others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import pytest


def chosen(groups: Mapping[str, Iterable[str]], every: int) -> set[str]:
    """Returns about every n-th name, and at least one of each group."""
    found: set[str] = set()
    for names in groups.values():
        places = {name: int(hashlib.sha256(name.encode()).hexdigest(), 16) for name in names}
        sample = {name for name, place in places.items() if place % every == 0}
        found |= sample or set(sorted(places, key=places.__getitem__)[:1])
    return found


def marked(groups: Mapping[str, Iterable[str]], every: int) -> list[Any]:
    """Returns all names as parameters of a test; those that are not chosen have the mark `full`."""
    sample = chosen(groups, every)
    names = dict.fromkeys(name for group in groups.values() for name in group)
    return [pytest.param(name, marks=() if name in sample else pytest.mark.full) for name in names]
