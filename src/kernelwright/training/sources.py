"""Where a run's pairs come from: the generator, or the shards of a corpus folder. Either gives pairs shard by shard.

A source is a small picklable object: worker processes call it with a shard's number.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kernelwright.errors import ConfigError
from kernelwright.training.settings import DataSettings, Generate
from kernelwright.training.shards import Texts

_STRIDE = 1_000_000
"""Seeds of one run's shards; the last one is that of the held-out pairs."""


class Source(Protocol):
    """Gives the pairs of each shard, the same ones whenever it is asked, and pairs that no shard has."""

    @property
    def count(self) -> int:
        """How many shards there are."""
        ...

    def __call__(self, shard: int) -> list[Texts]: ...

    def held_out(self) -> list[Texts]: ...

    def describe(self) -> str:
        """One sentence for the model card."""
        ...


@dataclass(frozen=True)
class Generated:
    """Pairs by construction: generated tasks, and what the solution library writes for them."""

    settings: Generate
    held: int

    @property
    def count(self) -> int:
        return -(-self.settings.count // self.settings.shard)

    def __call__(self, shard: int) -> list[Texts]:
        size = min(self.settings.shard, self.settings.count - shard * self.settings.shard)
        return self._pairs(shard, size)

    def held_out(self) -> list[Texts]:
        return self._pairs(_STRIDE - 1, self.held)

    def _pairs(self, number: int, size: int) -> list[Texts]:
        from kernelwright.corpus.pairs import pairs

        made = pairs(self.settings.seed * _STRIDE + number, size, mistakes=self.settings.mistakes, traces=False)
        return [(pair.task.source, pair.answer) for pair in made]

    def describe(self) -> str:
        share = f", of which {self.settings.mistakes:.0%} with a mistake on purpose" if self.settings.mistakes else ""
        s = self.settings
        return f"{s.count} pairs of a generated task and a written solution (seed {s.seed}){share}"


@dataclass(frozen=True)
class Corpus:
    """The files of a folder, each one a shard: JSONL or Parquet rows with `reference` and `answer`."""

    folder: Path
    files: tuple[Path, ...]
    rows: int
    held: int

    @classmethod
    def open(cls, folder: Path, held: int) -> Corpus:
        """Counts the rows. Raises `ConfigError` where there are none, or hardly more than are held out."""
        files = tuple(sorted(p for p in folder.rglob("*") if p.suffix in (".jsonl", ".parquet")))
        rows = sum(sum(1 for _ in _read(path)) for path in files)
        if rows < 2 * held:
            raise ConfigError(
                f"the corpus {str(folder)!r} has {rows} pairs, which is too few to hold {held} out",
                hint="name a folder of .jsonl or .parquet files with reference and answer, or lower data.held_out",
            )
        return cls(folder, files, rows, held)

    @property
    def count(self) -> int:
        return len(self.files)

    def __call__(self, shard: int) -> list[Texts]:
        return [pair for pair in _read(self.files[shard]) if not self._out(pair)]

    def held_out(self) -> list[Texts]:
        """About as many pairs as were asked for: which ones is decided by the references' hashes."""
        return [pair for path in self.files for pair in _read(path) if self._out(pair)]

    def _out(self, pair: Texts) -> bool:
        """By the reference's text, so that no other answer to a held-out task is trained on."""
        digest = hashlib.sha256(pair[0].encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8], "big") * self.rows < (self.held << 64)

    def describe(self) -> str:
        return f"{self.rows} pairs of the corpus folder {self.folder.name!r}"


def open_source(settings: DataSettings) -> Source:
    """The source that settings name."""
    if settings.generate is not None:
        return Generated(settings.generate, settings.held_out)
    assert settings.corpus is not None
    return Corpus.open(Path(settings.corpus), settings.held_out)


def _read(path: Path) -> Iterator[Texts]:
    return _parquet(path) if path.suffix == ".parquet" else _jsonl(path)


def _jsonl(path: Path) -> Iterator[Texts]:
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                yield str(row["reference"]), str(row["answer"])
            except (ValueError, KeyError, TypeError) as error:
                raise ConfigError(
                    f"line {number} of {str(path)!r} is no pair", hint="a pair has the fields reference and answer"
                ) from error


def _parquet(path: Path) -> Iterator[Texts]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise ConfigError(f"{str(path)!r} needs pyarrow", hint="pip install pyarrow, or use JSONL") from error
    try:
        for batch in parquet.ParquetFile(path).iter_batches(columns=["reference", "answer"]):
            for row in batch.to_pylist():
                yield str(row["reference"]), str(row["answer"])
    except (ArrowException, KeyError) as error:
        raise ConfigError(
            f"{str(path)!r} holds no pairs: {error}", hint="it needs the columns reference and answer"
        ) from error
