"""Groups a reference's integers into extents that change together, and picks smaller values for them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernelwright.records import Workload
from kernelwright.tasks import probe
from kernelwright.tasks.reference import Leaf

_BATCH_NAME = re.compile(r"^(n_?)?(batch(_?size|es)?|bsz?|b)$", re.IGNORECASE)


@dataclass(frozen=True)
class Symbol:
    """Integers of the source that change together, and the shapes that depend on them."""

    leaves: tuple[Leaf, ...]
    value: int
    dims: frozenset[tuple[int, int]]
    """(input, dimension) pairs whose extent changes with these integers."""
    in_init: bool
    """True where the constructor's arguments change with these integers."""
    leads: bool
    """True where only first dimensions of inputs and outputs change with these integers."""

    @property
    def named_batch(self) -> bool:
        return any(_BATCH_NAME.match(leaf.name) for leaf in self.leaves)


Sizes = dict[Symbol, int]


def keeps(workload: Workload, symbol: Symbol) -> bool:
    """Tells whether a workload leaves a symbol's integers as they are declared."""
    for leaf in symbol.leaves:
        value = workload.constants.get(leaf.name, leaf.value)
        if (value if leaf.index is None or not isinstance(value, list) else value[leaf.index]) != leaf.value:
            return False
    return True


def changed_dims(before: probe.Shapes, after: probe.Shapes) -> frozenset[tuple[int, int]]:
    return frozenset(
        (i, d)
        for i, (a, b) in enumerate(zip(before, after, strict=False))
        for d, (x, y) in enumerate(zip(a, b, strict=False))
        if x != y
    )


def batch_symbols(symbols: Sequence[Symbol]) -> list[Symbol]:
    """Returns the symbols named batch, or where none is, those that drive leading dimensions only."""
    named = [s for s in symbols if s.named_batch and s.dims]
    return named or [s for s in symbols if s.leads and not s.in_init]


def batch_steps(batch: Sequence[Symbol]) -> Iterator[tuple[int, Sizes]]:
    """Yields divisors of the batch with the sizes that they give, from the largest sizes down; 1 comes last."""
    if not batch:
        return
    largest = max(s.value for s in batch)
    divisor = 2
    while divisor < largest:
        yield divisor, {s: max(min(2, s.value), s.value // divisor) for s in batch}
        divisor *= 2
    yield divisor, dict.fromkeys(batch, 1)


def pick(value: int, cap: int, grain: int, rank: int, above_power: bool) -> int:
    """Returns a size below `value` and at most `cap`: `grain` times a prime, or `grain` times a power of two plus one.

    `rank` differs between symbols, so that equal extents become different. Small values (channels of an image) stay.
    """
    if value <= 4 and value <= cap:
        return value
    limit = max(1, min(cap, value - 1) // grain)
    if above_power:
        choices = [n for n in (2**k + 1 for k in range(13, 0, -1)) if n <= limit]
    else:
        choices = _primes_up_to(limit, 6)
    return grain * (choices[rank % min(len(choices), 3)] if choices else limit)


def _primes_up_to(limit: int, count: int) -> list[int]:
    """Returns the largest primes of at least 3 that do not exceed a limit, largest first."""
    found: list[int] = []
    n = limit
    while n >= 3 and len(found) < count:
        if all(n % p for p in range(2, int(n**0.5) + 1)):
            found.append(n)
        n -= 1
    return found
