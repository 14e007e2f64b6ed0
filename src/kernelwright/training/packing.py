"""Which pairs make up which update, and the arrays of it. A function of the lengths and the seed only.

So a resumed run continues with the update it was at: nothing about the order is kept in a checkpoint but its number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np

from kernelwright.training.shards import Shards

IGNORE = -100
PATIENCE = 32
"""Pairs in a row that fit nowhere, after which an update's rows are called full."""


@dataclass(frozen=True)
class Packing:
    """How rows are filled. `documents`: pairs that one update may hold at most, over all its rows."""

    rows: int
    length: int
    seed: int

    @property
    def documents(self) -> int:
        return max(self.rows * self.length // 64, self.rows)


@dataclass(frozen=True)
class Batch:
    """Arrays (rows, length): ids, positions within the pair, labels shifted by one, and the pair's number."""

    tokens: np.ndarray
    positions: np.ndarray
    labels: np.ndarray
    documents: np.ndarray
    bounds: np.ndarray
    """Where pairs begin in the flattened rows (int32), of a length that never changes: the end repeats."""


Rows = list[list[int]]
"""For each row the numbers of its pairs."""


def epoch(shards: Shards, packing: Packing, number: int, *, whole: bool = True) -> Iterator[Rows]:
    """One pass over the pairs in an order of its own. `whole`: what does not fill an update at the end is dropped."""
    order = np.random.default_rng([packing.seed, number]).permutation(shards.usable).tolist()
    sizes = shards.lengths.sum(1).tolist()
    filling = _Filling(packing)
    waiting: list[int] = []
    for pair in order:
        if not filling.place(pair, sizes[pair]):
            waiting.append(pair)
        if not filling.full:
            continue
        yield filling.rows
        filling, again, waiting = _Filling(packing), waiting, []
        waiting = [one for one in again if not filling.place(one, sizes[one])]
    while not whole and filling.held:
        yield filling.rows
        filling, again = _Filling(packing), waiting
        waiting = [one for one in again if not filling.place(one, sizes[one])]


class _Filling:
    """The rows of one update while they are filled: each pair goes to the first row that has room."""

    def __init__(self, packing: Packing) -> None:
        self.rows: Rows = [[] for _ in range(packing.rows)]
        self.held = 0
        self._free = [packing.length] * packing.rows
        self._most = packing.documents
        self._refused = 0

    def place(self, pair: int, size: int) -> bool:
        for i, room in enumerate(self._free):
            if size <= room and self.held < self._most:
                self.rows[i].append(pair)
                self._free[i] = room - size
                self.held += 1
                return True
        self._refused += 1
        return False

    @property
    def full(self) -> bool:
        return self._refused >= PATIENCE or self.held >= self._most


def updates(shards: Shards, packing: Packing, start: int) -> Iterator[Rows]:
    """The rows of update `start` and of all that follow, pass after pass over the pairs, without end.

    Where all pairs together do not fill one update, a pass is one or more that are not full.
    """
    position = 0
    whole = next(epoch(shards, packing, 0), None) is not None
    for number in count():
        for rows in epoch(shards, packing, number, whole=whole):
            if position >= start:
                yield rows
            position += 1


def arrays(shards: Shards, rows: Rows, length: int, documents: int, longest: int) -> Batch:
    """The arrays of some rows. No span in `bounds` is longer than `longest`, padding included."""
    size = (len(rows), length)
    tokens, positions = np.zeros(size, np.int64), np.zeros(size, np.int32)
    labels, numbers = np.full(size, IGNORE, np.int64), np.zeros(size, np.int32)
    bounds = [0]
    for r, row in enumerate(rows):
        at = 0
        for pair in row:
            ids, prompt = shards.pair(pair)
            end = at + len(ids)
            tokens[r, at:end] = ids
            positions[r, at:end] = np.arange(len(ids))
            labels[r, at + prompt - 1 : end - 1] = ids[prompt:]
            numbers[r, at:end] = len(bounds)
            bounds.append(r * length + end)
            at = end
        while at < length:
            end = min(length, at + longest)
            numbers[r, at:end] = len(bounds)
            bounds.append(r * length + end)
            at = end
    capacity = documents + len(rows) * (2 + length // longest) + 1
    bounds += [len(rows) * length] * (capacity - len(bounds))
    return Batch(tokens, positions, labels, numbers, np.array(bounds, np.int32))


def label_count(shards: Shards, rows: Rows) -> int:
    """Tokens of some rows that the loss is taken on."""
    return int(sum(int(shards.lengths[pair][1]) for row in rows for pair in row))
