"""Streams pairs, written in this process or in several; equal arguments give equal streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator
from types import TracebackType
from typing import Any, Self

from kernelwright.corpus.pairs import CHUNK, Pair, PairChunk, Recipe, as_fields, make_chunk, recipe
from kernelwright.corpus.processes import receive, send, start, stop
from kernelwright.errors import ConfigError
from kernelwright.generate import GeneratedTask

WRITER = "kernelwright.corpus.pair_writer"
"""The module that each process runs."""
BARREN = 64
"""The number of successive chunks without a pair after which the stream raises."""
AHEAD = 2
"""Chunks requested of each process in advance, so that no process waits for the reader."""


def pairs(seed: int, count: int, *, workers: int = 1, **fields: Any) -> PairStream:
    """Returns an iterator over `count` pairs; equal arguments give equal pairs for any number of `workers`.

    `fields` are the fields of a `Recipe`. Tasks that the solution library cannot read, and tasks too near to a suite in
    `against` (paths or names; see `decontaminate`), are skipped and counted in the stream's `skipped`. Raises
    `ConfigError` and `UsageError`, and `TaskError` for an unreadable suite.
    """
    made = recipe(seed=seed, **fields)
    if count < 0 or workers < 0:
        raise ConfigError(f"pairs: count {count} or workers {workers} is negative", hint="use 0 or more")
    return PairStream(made, count, workers)


class PairStream(Iterator[Pair]):
    """The iterator of `pairs`. `skipped` counts tasks without a pair, by reason, in the chunks read so far.

    Raises `ConfigError` after `BARREN` chunks without a pair, and `HarnessError` when a process dies.
    """

    def __init__(self, recipe: Recipe, count: int, workers: int) -> None:
        self.recipe = recipe
        self.count = count
        self.skipped: Counter[str] = Counter()
        self._workers = workers
        self._pairs = self._all()

    def __next__(self) -> Pair:
        return next(self._pairs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends the stream and its processes. A second call does nothing."""
        self._pairs.close()

    def _all(self) -> Generator[Pair, None, None]:
        left, barren = self.count, 0
        chunks = self._chunks()
        try:
            while left > 0:
                chunk = next(chunks)
                self.skipped.update(chunk.skipped)
                barren = 0 if chunk.pairs else barren + 1
                if barren >= BARREN:
                    raise ConfigError(
                        f"no answer can be written for {CHUNK * BARREN} tasks of split {self.recipe.split!r} in a row",
                        hint="name other families, or another split",
                    )
                yield from chunk.pairs[:left]
                left -= len(chunk.pairs[:left])
        finally:
            chunks.close()

    def _chunks(self) -> Generator[PairChunk, None, None]:
        if self._workers <= 1:
            index = 0
            while True:
                yield make_chunk(self.recipe, index)
                index += 1
        yield from chunks(self.recipe, self._workers)


def chunks(recipe: Recipe, workers: int) -> Generator[PairChunk, None, None]:
    """Yields chunks 0, 1, 2, … without end, written by `workers` processes. Raises `HarnessError` when one dies."""
    writers = [start(WRITER, as_fields(recipe)) for _ in range(workers)]
    try:
        index = 0
        for ahead in range(AHEAD * workers):
            send(writers[ahead % workers], ahead)
        while True:
            writer = writers[index % workers]
            yield _chunk(receive(writer))
            send(writer, index + AHEAD * workers)
            index += 1
    finally:
        for writer in writers:
            stop(writer)


def _chunk(value: dict[str, Any]) -> PairChunk:
    made = tuple(
        Pair(**{**p, "task": GeneratedTask(**{**p["task"], "operators": tuple(p["task"]["operators"])})})
        for p in value["pairs"]
    )
    return PairChunk(value["index"], made, value["skipped"], value["families"], tuple(value["removed"]))
