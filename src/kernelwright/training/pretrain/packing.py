"""Packing: assigns pairs to the rows of updates, and builds an update's arrays.

It depends only on lengths and seed, so a checkpoint needs only the number of the update to resume the data order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np

from kernelwright.training.pretrain.shards import Shards

IGNORE = -100
LEAST_PATIENCE, MOST_PATIENCE = 32, 256
"""Bounds on the pairs that fit no row before an update counts as full. More fill rows better (97 % instead of 96 %),
but leave as many over at the end of a pass, so data sets with few pairs use fewer."""


@dataclass(frozen=True)
class Packing:
    """The parameters of packing. `documents`: the most pairs of one update, over all its rows."""

    rows: int
    length: int
    seed: int
    documents: int


def most_documents(shards: Shards, rows: int, length: int) -> int:
    """Returns the capacity of an update in pairs: 1.5 times the average number.

    Flash attention over a ragged batch launches blocks for the whole capacity, empty or not, and each block allocates
    shared memory: a capacity of 1,000 for 45 pairs costs time.
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
    """The pairs' starts in the flattened rows (int32), padded with the end to a constant length."""


Rows = list[list[int]]
"""The numbers of the pairs in each row."""


def epoch(shards: Shards, packing: Packing, number: int, *, whole: bool = True) -> Iterator[Rows]:
    """Yields the updates of one pass over the pairs, in its own random order. `whole`: drops a partial last update."""
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
    """The rows of one update during packing (first fit): each pair goes to the first row with room."""

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
    """Yields the rows of update `start` and all later ones, pass after pass over the pairs, without end.

    If all pairs together do not fill one update, a pass consists of partial updates.
    """
    position = 0
    whole = next(epoch(shards, packing, 0), None) is not None
    for number in count():
        for rows in epoch(shards, packing, number, whole=whole):
            if position >= start:
                yield rows
            position += 1


def arrays(shards: Shards, rows: Rows, length: int, documents: int, longest: int) -> PackedBatch:
    """Builds the arrays of some rows. No span in `bounds` is longer than `longest`, padding included."""
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
    """Counts the tokens of some rows that the loss uses."""
    return int(sum(int(shards.lengths[pair][1]) for row in rows for pair in row))
