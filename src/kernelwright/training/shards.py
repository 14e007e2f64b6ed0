"""Tokenised pairs on disk: made by worker processes, one shard each time, and read without copying.

A shard is two arrays: the ids of all its pairs, end to end (uint16), and a table of prompt and answer lengths (int32).
The table is written last and renamed into place, so a shard is there wholly or not at all, and a stopped job goes on
with the shards that are missing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass
from functools import cached_property
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

import numpy as np

from kernelwright.errors import ConfigError, StoreError
from kernelwright.inference.chat import task_prompt
from kernelwright.inference.tokenizer import ChatTokenizer

Texts = tuple[str, str]
"""A task's source and the answer to it."""


@dataclass(frozen=True)
class Shards:
    """All pairs of a folder. `lengths` is (pairs, 2): tokens of prompt and answer; `longest` bounds their sum."""

    tokens: tuple[np.ndarray, ...]
    lengths: np.ndarray
    first: np.ndarray
    """(shards + 1,) the number of each shard's first pair."""

    @classmethod
    def open(cls, folder: Path, longest: int) -> Shards:
        """Maps a folder's shards, without the pairs that are longer than `longest` tokens."""
        tables = sorted(folder.glob("shard-*.pairs.npy"))
        if not tables:
            raise ConfigError(f"{str(folder)!r} holds no pairs", hint="make them first, or name another folder")
        lengths = [np.load(path) for path in tables]
        tokens = [np.load(str(path).replace(".pairs.", ".tokens."), mmap_mode="r") for path in tables]
        whole = cls(
            tuple(tokens),
            np.concatenate(lengths) if lengths else np.zeros((0, 2), np.int32),
            np.cumsum([0, *map(len, lengths)]),
        )
        whole.__dict__["usable"] = np.flatnonzero(whole.lengths.sum(1) <= longest)
        return whole

    @cached_property
    def usable(self) -> np.ndarray:
        """Numbers of the pairs that are short enough."""
        return np.arange(len(self.lengths))

    @cached_property
    def starts(self) -> np.ndarray:
        """Where each pair begins in its shard."""
        ends = np.cumsum(self.lengths.sum(1), dtype=np.int64)
        starts = np.concatenate([[0], ends[:-1]])
        base = np.concatenate([[0], ends])[self.first[:-1]]
        return starts - np.repeat(base, np.diff(self.first))

    def pair(self, number: int) -> tuple[np.ndarray, int]:
        """Ids of one pair, and how many of them are the prompt."""
        shard = int(np.searchsorted(self.first, number, side="right")) - 1
        prompt, answer = self.lengths[number]
        start = self.starts[number]
        return self.tokens[shard][start : start + prompt + answer], int(prompt)


def tokenise(pairs: Sequence[Texts], tokenizer: ChatTokenizer) -> tuple[np.ndarray, np.ndarray]:
    """Ids and lengths of pairs: the task as the user's turn, then the answer up to the token that ends it."""
    ids: list[int] = []
    lengths: list[tuple[int, int]] = []
    prompts = tokenizer.encode_many([task_prompt(source) for source, _ in pairs])
    answers = tokenizer.encode_many([answer for _, answer in pairs])
    assistant = tokenizer.head("assistant")
    for prompt, answer in zip(prompts, answers, strict=True):
        asked = [*tokenizer.wrap("user", prompt), *assistant]
        ids += asked
        ids += answer
        ids.append(tokenizer.turn_end)
        lengths.append((len(asked), len(answer) + 1))
    return np.array(ids, np.uint16), np.array(lengths, np.int32).reshape(-1, 2)


def write_shard(folder: Path, number: int, tokens: np.ndarray, lengths: np.ndarray) -> None:
    """Writes a shard wholly or not at all. Raises `StoreError` where the disk is full."""
    try:
        for array, kind in ((tokens, "tokens"), (lengths, "pairs")):
            path = folder / f"shard-{number:05d}.{kind}.npy"
            temporary = path.with_name(f".{path.name}.{os.getpid()}")
            with open(temporary, "wb") as file:
                np.save(file, array)
            os.replace(temporary, path)
    except OSError as error:
        raise StoreError(
            f"the shard {number} in {str(folder)!r} cannot be written: {error.strerror}",
            hint="free some space, then give the same command again: finished shards are kept",
        ) from error


Make = Callable[[int], list[Texts]]
"""From a shard's number to its pairs; called in worker processes."""

_worker: dict[str, Any] = {}


def _start(tokenizer: Path, make: Make, folder: Path) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _worker.update(tokenizer=ChatTokenizer.load(tokenizer), make=make, folder=folder)


def _one(number: int) -> tuple[int, int]:
    tokens, lengths = tokenise(_worker["make"](number), _worker["tokenizer"])
    write_shard(_worker["folder"], number, tokens, lengths)
    return len(lengths), len(tokens)


def make_shards(
    folder: Path,
    count: int,
    make: Make,
    tokenizer: Path,
    workers: int,
    on_shard: Callable[[int, int, int], None],
) -> None:
    """Makes the shards 0 to `count` that are missing. `on_shard` gets shards done, pairs and tokens, as they finish."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [n for n in range(count) if not (folder / f"shard-{n:05d}.pairs.npy").exists()]
    done, pairs, tokens = count - len(missing), 0, 0
    if not missing:
        return
    context = get_context("spawn")  # a forked copy of a process with threads may hang
    # No `with`: leaving it would ask once more to end, without cancelling, and the shards that wait would all be made.
    pool = ProcessPoolExecutor(
        min(workers, len(missing)), mp_context=context, initializer=_start, initargs=(tokenizer, make, folder)
    )
    try:
        waiting = {pool.submit(_one, n) for n in missing}
        while waiting:
            finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in finished:
                made, size = future.result()
                done, pairs, tokens = done + 1, pairs + made, tokens + size
            on_shard(done, pairs, tokens)
    except BaseException:
        workers_left = active_children()
        pool.shutdown(wait=False, cancel_futures=True)
        for child in workers_left:  # what they were making is made again
            child.terminate()
        raise
    pool.shutdown()
