"""Sources of a run's pairs: the generator, or a corpus folder. Both give pairs shard by shard.

A source is a small picklable object: worker processes call it with a shard's number.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from kernelwright.errors import ConfigError
from kernelwright.syntax import json_value
from kernelwright.training.pretrain.settings import DataSettings, Generate
from kernelwright.training.pretrain.shards import Texts

_STRIDE = 1_000_000
"""The number of seeds reserved for one run's shards; the last seed is for the held-out pairs."""


class Source(Protocol):
    """Gives the pairs of each shard, deterministically, and held-out pairs that are in no shard."""

    @property
    def count(self) -> int:
        """The number of shards."""
        ...

    def __call__(self, shard: int, skipped: Counter[str]) -> Iterable[Texts]:
        """Yields a shard's pairs. Counts skipped tasks in `skipped`, by reason."""
        ...

    def held_out(self, skipped: Counter[str]) -> Iterable[Texts]: ...

    def describe(self) -> str:
        """Describes the source in one sentence for the model card."""
        ...


@dataclass(frozen=True)
class Generated:
    """Generated tasks with solutions from the solution library."""

    settings: Generate
    held: int
    against: tuple[str, ...] = ()
    one_operator: Literal["remove", "keep"] = "remove"

    @property
    def count(self) -> int:
        return -(-self.settings.count // self.settings.shard)

    def __call__(self, shard: int, skipped: Counter[str]) -> Iterator[Texts]:
        size = min(self.settings.shard, self.settings.count - shard * self.settings.shard)
        return self._pairs(shard, size, skipped)

    def held_out(self, skipped: Counter[str]) -> Iterator[Texts]:
        return self._pairs(_STRIDE - 1, self.held, skipped)

    def _pairs(self, number: int, size: int, skipped: Counter[str]) -> Iterator[Texts]:
        from kernelwright.corpus import pairs

        made = pairs(
            self.settings.seed * _STRIDE + number,
            size,
            mistakes=self.settings.mistakes,
            against=self.against,
            one_operator=self.one_operator,
            traces=False,
            plan=self.settings.plan,
            chains=self.settings.chains,
            schedules=self.settings.schedules,
            programs=self.settings.programs,
            networks=self.settings.networks,
            rare=self.settings.rare,
        )
        for pair in made:
            yield pair.task.source, pair.answer
        skipped.update(made.skipped)

    def describe(self) -> str:
        s = self.settings
        share = f", of which {s.mistakes:.0%} with a mistake on purpose" if s.mistakes else ""
        chains = f", {s.chains:.0%} of chains alone" if s.chains else ""
        chains += f", {s.programs:.0%} of programs alone" if s.programs else ""
        chains += f", {s.networks:.0%} of networks alone" if s.networks else ""
        chains += f", {s.rare:.0%} of rare operators alone" if s.rare else ""
        how = "" if s.schedules == "canonical" else f", schedules {s.schedules}"
        return f"{s.count} pairs of a generated task and a written solution (seed {s.seed}){share}{chains}{how}"


@dataclass(frozen=True)
class Corpus:
    """The files of a folder, one shard each: JSONL or Parquet rows with `reference` and `answer`."""

    folder: Path
    files: tuple[Path, ...]
    rows: int
    held: int
    against: tuple[str, ...] = ()
    one_operator: Literal["remove", "keep"] = "remove"

    @classmethod
    def open(cls, settings: DataSettings) -> Corpus:
        """Opens a corpus and counts its rows. Raises `ConfigError` for less than twice the held-out rows."""
        folder, held = Path(settings.corpus or ""), settings.held_out
        files = tuple(sorted(p for p in folder.rglob("*") if p.suffix in (".jsonl", ".parquet")))
        rows = sum(sum(1 for _ in _read(path)) for path in files)
        if rows < 2 * held:
            raise ConfigError(
                f"the corpus {str(folder)!r} has {rows} pairs, which is too few to hold {held} out",
                hint="name a folder of .jsonl or .parquet files with reference and answer, or lower data.held_out",
            )
        return cls(folder, files, rows, held, settings.against, settings.one_operator)

    @property
    def count(self) -> int:
        return len(self.files)

    def __call__(self, shard: int, skipped: Counter[str]) -> Iterator[Texts]:
        return self._clean((pair for pair in _read(self.files[shard]) if not self._out(pair)), skipped)

    def held_out(self, skipped: Counter[str]) -> Iterator[Texts]:
        """Yields about `held` pairs, selected by the hash of the reference."""
        return self._clean((pair for path in self.files for pair in _read(path) if self._out(pair)), skipped)

    def _clean(self, pairs: Iterable[Texts], skipped: Counter[str]) -> Iterator[Texts]:
        """Yields the pairs whose tasks are not too similar to the suites."""
        if not self.against:
            yield from pairs
            return
        from kernelwright.corpus.guard import guard

        kept_away = guard(self.against, self.one_operator)
        for pair in pairs:
            if kept_away.near(pair[0])[0].reasons:
                skipped["contaminated"] += 1
            else:
                yield pair

    def _out(self, pair: Texts) -> bool:
        """Tells whether a pair is held out. Decides by the reference, so that all answers to a held-out task are."""
        digest = hashlib.sha256(pair[0].encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8], "big") * self.rows < (self.held << 64)

    def describe(self) -> str:
        return f"{self.rows} pairs of the corpus folder {self.folder.name!r}"


def open_source(settings: DataSettings) -> Source:
    """Opens the source that the settings name. Raises `ConfigError`, and `TaskError` for an unreadable suite."""
    if settings.against:
        from kernelwright.corpus.guard import guard

        guard(settings.against, settings.one_operator)  # raise errors before the first process starts
    if settings.generate is not None:
        return Generated(settings.generate, settings.held_out, settings.against, settings.one_operator)
    return Corpus.open(settings)


def _read(path: Path) -> Iterator[Texts]:
    return _parquet(path) if path.suffix == ".parquet" else _jsonl(path)


def _jsonl(path: Path) -> Iterator[Texts]:
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json_value(line)
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
