"""Which pairs make up which update, and the arrays of it. A function of the lengths and the seed only.

So a resumed run continues with the update it was at: nothing about the order is kept in a checkpoint but its number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np

from kernelwright.training.pretrain.shards import Shards

IGNORE = -100
LEAST_PATIENCE, MOST_PATIENCE = 32, 256
"""Pairs that fit nowhere, after which an update's rows are called full: many fill rows better (97 % in place of 96),
but as many are left over at the end of a pass, so that few pairs have less."""


@dataclass(frozen=True)
class Packing:
    """How rows are filled. `documents`: pairs that one update may hold at most, over all its rows."""

    rows: int
    length: int
    seed: int
    documents: int


def most_documents(shards: Shards, rows: int, length: int) -> int:
    """Pairs that an update is given room for: half as many again as fill it on average.

    Flash attention over a ragged batch launches its blocks for every pair that there is room for, whether it is there
    or not, and each block takes its shared memory first: room for a thousand pairs where 45 are is not free.
    """
    sizes = shards.lengths[shards.usable].sum(1)
    mean = float(sizes.mean()) if len(sizes) else float(length)
    return max(rows, int(1.5 * rows * length / max(mean, 1.0)) + 1)


@dataclass(frozen=True)
class PackedBatch:
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
    patience = min(MOST_PATIENCE, max(LEAST_PATIENCE, len(order) // 64))
    filling = _Filling(packing, patience)
    waiting: list[int] = []
    for pair in order:
        if not filling.place(pair, sizes[pair]):
            waiting.append(pair)
        if not filling.full:
            continue
        yield filling.rows
        filling, again, waiting = _Filling(packing, patience), waiting, []
        waiting = [one for one in again if not filling.place(one, sizes[one])]
    while not whole and filling.held:
        yield filling.rows
        filling, again = _Filling(packing, patience), waiting
        waiting = [one for one in again if not filling.place(one, sizes[one])]


class _Filling:
    """The rows of one update while they are filled: each pair goes to the first row that has room."""

    def __init__(self, packing: Packing, patience: int) -> None:
        self.rows: Rows = [[] for _ in range(packing.rows)]
        self.held = 0
        self._free = [packing.length] * packing.rows
        self._most = packing.documents
        self._refused, self._patience = 0, patience

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
        return self._refused >= self._patience or self.held >= self._most


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


def arrays(shards: Shards, rows: Rows, length: int, documents: int, longest: int) -> PackedBatch:
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
    return PackedBatch(tokens, positions, labels, numbers, np.array(bounds, np.int32))


def label_count(shards: Shards, rows: Rows) -> int:
    """Tokens of some rows that the loss is taken on."""
    return int(sum(int(shards.lengths[pair][1]) for row in rows for pair in row))
