"""Tokenised pairs on disk: made by worker processes, one shard each time, and read without copying.

A shard is two arrays: the ids of all its pairs, end to end (uint16), and a table of prompt and answer lengths (int32);
beside them, counts of what gave no pair. The table is written last and renamed into place, so a shard is there wholly
or not at all, and a stopped job goes on with the shards that are missing.
"""

from __future__ import annotations

import io
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import islice
from pathlib import Path

import numpy as np

from kernelwright.errors import ConfigError, HarnessError, StoreError
from kernelwright.inference.chat import task_prompt
from kernelwright.inference.tokenizer import ChatTokenizer
from kernelwright.training.pretrain.workers import Beat, run_jobs

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


def write_shard(
    folder: Path, number: int, tokens: np.ndarray, lengths: np.ndarray, skipped: Mapping[str, int] | None = None
) -> None:
    """Writes a shard wholly or not at all. Raises `StoreError` where the disk is full."""
    try:
        _write(folder / f"shard-{number:05d}.skipped.json", json.dumps(skipped or {}).encode())
        for array, kind in ((tokens, "tokens"), (lengths, "pairs")):
            held = io.BytesIO()
            np.save(held, array)
            _write(folder / f"shard-{number:05d}.{kind}.npy", held.getbuffer())
    except OSError as error:
        raise StoreError(
            f"the shard {number} in {str(folder)!r} cannot be written: {error.strerror}",
            hint="free some space, then give the same command again: finished shards are kept",
        ) from error


def _write(path: Path, content: bytes | memoryview) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def read_skipped(folder: Path) -> Counter[str]:
    """What gave no pair in all shards of a folder, by reason."""
    total: Counter[str] = Counter()
    for path in folder.glob("shard-*.skipped.json"):
        total.update(json.loads(path.read_text(encoding="utf-8")))
    return total


Make = Callable[[int, Counter[str]], Iterable[Texts]]
"""From a shard's number to its pairs; adds to the counts, by reason, what gave no pair. Called in other processes."""

BATCH = 128
"""Pairs that are tokenised together; a process says after each batch that it goes on."""
SPARED = 0.05
"""The share of shards that may be lost. More is no bad luck, and ends the making."""
LOST = "lost:"
"""Begins the reason that a shard without pairs has in its counts."""


def make_shards(
    folder: Path,
    count: int,
    make: Make,
    tokenizer: Path,
    workers: int,
    on_shard: Callable[[int, int, int], None],
    patience: float = 120.0,
) -> None:
    """Makes the shards 0 to `count` that are missing. `on_shard` gets shards done, pairs and tokens, as they finish.

    A shard that twice ends its process, raises, or says nothing for `patience` seconds becomes an empty one with the
    reason in its counts, so that a run that resumes has the same data. Raises `HarnessError` where that happens often,
    `StoreError` where the disk is full.
    """
    folder.mkdir(parents=True, exist_ok=True)
    missing = [n for n in range(count) if not (folder / f"shard-{n:05d}.pairs.npy").exists()]
    done, pairs, tokens, lost = count - len(missing), 0, 0, 0
    for ended in run_jobs(partial(_make, make, tokenizer, folder), missing, workers, patience):
        if ended.lost:
            lost += 1
            if lost > SPARED * count:
                raise HarnessError(
                    f"{lost} of {count} shards could not be made, the last one because {ended.lost}",
                    hint="shards that are finished are kept; with little memory, lower data.workers",
                )
            write_shard(folder, ended.number, *_nothing(), Counter({f"{LOST} {ended.lost}": 1}))
        else:
            pairs, tokens = pairs + ended.value[0], tokens + ended.value[1]
        done += 1
        on_shard(done, pairs, tokens)


def _make(make: Make, tokenizer: Path, folder: Path, number: int, beat: Beat) -> tuple[int, int]:
    """Makes one shard, in a process of its own. Returns its pairs and tokens."""
    chat = _load(tokenizer)
    skipped: Counter[str] = Counter()
    parts = [_nothing()]
    stream = iter(make(number, skipped))
    while batch := list(islice(stream, BATCH)):
        parts.append(tokenise(batch, chat))
        beat()
    tokens, lengths = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    write_shard(folder, number, tokens, lengths, skipped)
    return len(lengths), len(tokens)


def _nothing() -> tuple[np.ndarray, np.ndarray]:
    """Tokens and lengths of no pairs."""
    return np.zeros(0, np.uint16), np.zeros((0, 2), np.int32)


@cache
def _load(tokenizer: Path) -> ChatTokenizer:
    return ChatTokenizer.load(tokenizer)
