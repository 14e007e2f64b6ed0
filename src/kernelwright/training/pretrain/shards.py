"""Tokenised pairs on disk: worker processes make one shard at a time; shards are memory-mapped for reading.

A shard is two arrays: the ids of all its pairs, concatenated (uint16), and a table of prompt and answer lengths
(int32); next to them, counts of tasks without a pair. The table is written last and renamed into place, so a shard is
complete or absent, and a stopped job resumes with the missing shards.
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
"""A task's source and its answer."""


@dataclass(frozen=True)
class Shards:
    """All pairs of a folder. `lengths` is (pairs, 2): the tokens of prompt and of answer."""

    tokens: tuple[np.ndarray, ...]
    lengths: np.ndarray
    first: np.ndarray
    """(shards + 1,) the number of each shard's first pair."""

    @classmethod
    def open(cls, folder: Path, longest: int) -> Shards:
        """Memory-maps a folder's shards; `usable` excludes pairs of more than `longest` tokens.

        Raises `ConfigError` for a folder without shards.
        """
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
        """The numbers of the pairs that are short enough."""
        return np.arange(len(self.lengths))

    @cached_property
    def starts(self) -> np.ndarray:
        """The start of each pair in its shard, in tokens."""
        ends = np.cumsum(self.lengths.sum(1), dtype=np.int64)
        starts = np.concatenate([[0], ends[:-1]])
        base = np.concatenate([[0], ends])[self.first[:-1]]
        return starts - np.repeat(base, np.diff(self.first))

    def pair(self, number: int) -> tuple[np.ndarray, int]:
        """Returns the ids of one pair, and the number of prompt tokens."""
        shard = int(np.searchsorted(self.first, number, side="right")) - 1
        prompt, answer = self.lengths[number]
        start = self.starts[number]
        return self.tokens[shard][start : start + prompt + answer], int(prompt)


def tokenise(pairs: Sequence[Texts], tokenizer: ChatTokenizer) -> tuple[np.ndarray, np.ndarray]:
    """Returns ids and lengths of pairs: the task as the user's turn, then the answer with its end token."""
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
    """Writes a shard atomically. Raises `StoreError` if the disk is full."""
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
    """Counts the tasks without a pair in all shards of a folder, by reason."""
    total: Counter[str] = Counter()
    for path in folder.glob("shard-*.skipped.json"):
        total.update(json.loads(path.read_text(encoding="utf-8")))
    return total


Make = Callable[[int, Counter[str]], Iterable[Texts]]
"""Makes the pairs of a shard from its number and counts skipped tasks by reason. Called in worker processes."""

BATCH = 128
"""Pairs tokenised together; a worker sends a heartbeat after each batch."""
SPARED = 0.05
"""The share of shards that may be lost. More points to a systematic error, and raises `HarnessError`."""
LOST = "lost:"
"""The prefix of the reason in the counts of a lost shard."""


def make_shards(
    folder: Path,
    count: int,
    make: Make,
    tokenizer: Path,
    workers: int,
    on_shard: Callable[[int, int, int], None],
    patience: float = 120.0,
) -> None:
    """Makes the missing shards among 0 to `count` - 1. Calls `on_shard` with finished shards, pairs and tokens.

    A shard whose worker twice dies, raises, or sends no heartbeat for `patience` seconds becomes an empty one, with the
    reason in its counts, so that a resumed run has the same data. Raises `HarnessError` if more than `SPARED` of the
    shards are lost, and `StoreError` if the disk is full.
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
    """Makes one shard; runs in a worker process. Returns its numbers of pairs and tokens."""
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
    """Returns empty arrays of tokens and lengths."""
    return np.zeros(0, np.uint16), np.zeros((0, 2), np.int32)


@cache
def _load(tokenizer: Path) -> ChatTokenizer:
    return ChatTokenizer.load(tokenizer)
