"""The corpus builder: sends chunks of pairs to processes, appends their rows to journals, and writes whole shards.

    OUT/build.json             the settings; a build continues with equal settings only
    OUT/work/part-00003.jsonl  the journal of an unfinished shard: one row a line, and the ends of its chunks
    OUT/data/part-00003.jsonl  a complete shard, in the order of its chunks
    OUT/manifest.json          counts and hashes of complete shards; `complete` is true once all exist

A judged row is on disk at once and never judged again: after a kill at any moment, the same command continues. A shard
is written, in the order of shards, when all its chunks have ended; then its journal is deleted. Apart from measured
times, the corpus does not depend on kills, on the number of processes, or on their speed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from kernelwright.corpus.crew import ChunkWork, Crew, cores
from kernelwright.corpus.guard import guard
from kernelwright.corpus.manifest import finish_manifest
from kernelwright.corpus.pairs import Recipe, as_fields
from kernelwright.corpus.shards import (
    UNFINISHED,
    Format,
    Shard,
    read_manifest,
    shard_fields,
    shard_name,
    unwritable,
    write_shard,
    write_whole,
)
from kernelwright.errors import ConfigError, StoreError, UsageError
from kernelwright.evaluation import EvalOptions
from kernelwright.evaluation.options import MAX_SECONDS, visible_gpus
from kernelwright.records import Precision

CHUNK = {"canonical": 8, "apart": 8, "mixed": 8, "all": 2}
"""Schedules -> tasks per chunk: some seconds of judging, so that no process works alone for long at the end."""
SHARD_CHUNKS = 64
"""Chunks per shard."""
PER_GPU = 6
"""Processes per GPU: enough to compile ahead of judging. More would only open the GPU more often, seconds each."""

Judge = Literal["cpu", "gpu", "none"]


@dataclass(frozen=True)
class CorpusPlan:
    """The settings of a corpus. Raises `ConfigError` for a value out of range."""

    recipe: Recipe
    tasks: int
    judge: Judge = "cpu"
    share: float = 1.0
    """Share of the rows that are judged by execution."""
    trials: int = 3
    """Trials of one evaluation: the first size twice, which exposes a cached result, then other sizes."""
    format: Format = "jsonl"
    timing_seconds: float = 1.0
    """Timing budget in seconds of a correct row, with `judge` `gpu`."""
    precision: Precision | None = None
    """The precision of products in which rows are judged; float32 by default."""

    def __post_init__(self) -> None:
        self.recipe.checked()
        if self.tasks < 1:
            raise ConfigError(f"--tasks {self.tasks} is out of range", hint="build at least one")
        if self.judge not in ("cpu", "gpu", "none"):
            raise ConfigError(f"--judge {self.judge!r} is not a choice", hint="use cpu, gpu or none")
        if not 0.0 <= self.share <= 1.0:
            raise ConfigError(f"--share-judged {self.share} is not a share", hint="use a number from 0 to 1")
        if self.format not in ("jsonl", "parquet"):
            raise ConfigError(f"--format {self.format!r} is not a choice", hint="use jsonl or parquet")
        if self.precision not in (None, *get_args(Precision)):
            raise ConfigError(f"--precision {self.precision!r} is not a choice", hint="use float32 or tf32")
        if not 0 <= self.timing_seconds <= MAX_SECONDS:
            raise ConfigError(
                f"--timing-seconds {self.timing_seconds} is out of range", hint="use seconds, and 0 for no times"
            )

    @property
    def chunk(self) -> int:
        """Tasks per chunk."""
        return CHUNK[self.recipe.schedules]

    @property
    def chunks(self) -> int:
        return -(-self.tasks // self.chunk)

    @property
    def shards(self) -> int:
        return -(-self.chunks // SHARD_CHUNKS)

    def options(self) -> EvalOptions | None:
        """Returns the options for judging rows; None where no row is judged."""
        if self.judge == "none" or self.share == 0.0:
            return None
        seed = self.recipe.seed % 2**31
        found = EvalOptions(backend=self.judge, trials=self.trials, seed=seed, precision=self.precision)
        return found.changed(timing_seconds=self.timing_seconds) if self.judge == "gpu" else found

    def work(self, chunk: int) -> ChunkWork:
        """Returns a chunk with its number of tasks."""
        return ChunkWork(chunk, min(self.chunk, self.tasks - chunk * self.chunk))

    def fields(self) -> dict[str, Any]:
        options = self.options()
        return {
            "recipe": as_fields(self.recipe),
            "tasks": self.tasks,
            "judge": self.judge,
            "share_judged": self.share,
            "format": self.format,
            "options": None if options is None else options.model_dump(mode="json"),
        }


@dataclass
class ShardPart:
    """The state of an unfinished shard."""

    rows: dict[int, dict[int, dict[str, Any]]] = field(default_factory=dict)
    """Chunk -> place in the chunk -> row."""
    ends: dict[int, dict[str, Any]] = field(default_factory=dict)
    bad_tasks: list[dict[str, Any]] = field(default_factory=list)

    def add(self, said: dict[str, Any]) -> None:
        """Adds one journal line; a repeated line changes nothing."""
        chunk = said["chunk"]
        if "row" in said:
            self.rows.setdefault(chunk, {})[said["place"]] = said["row"]
        elif "bad_task" in said:
            if all(b["bad_task"] != said["bad_task"] or b["chunk"] != chunk for b in self.bad_tasks):
                self.bad_tasks.append(said)
        elif "end" in said:
            self.ends[chunk] = said["end"]

    def ordered(self) -> Iterator[dict[str, Any]]:
        for chunk in sorted(self.rows):
            for place in sorted(self.rows[chunk]):
                yield self.rows[chunk][place]


@dataclass(frozen=True)
class CorpusProgress:
    """The progress of a build: rows on disk from this and earlier runs, and the seconds of this run.

    `chunks` have ended, and `at_work` are with the processes.
    """

    rows: int
    judged: int
    chunks: int
    of_chunks: int
    seconds: float
    verdicts: dict[str, int]
    at_work: int = 0


class CorpusBuilder:
    """One build in one folder. The caller holds the folder's lock (`_locked`)."""

    def __init__(self, folder: Path, plan: CorpusPlan) -> None:
        self.folder = folder
        self.plan = plan
        self.parts: dict[int, ShardPart] = {}
        self.complete: list[Shard] = []
        self.totals: dict[str, Any] = {}
        self.verdicts: Counter[str] = Counter()
        self.rows = 0
        self.judged = 0
        self._seen: set[str] = set()
        self._journals: dict[int, Any] = {}

    def shard_of(self, chunk: int) -> int:
        return chunk // SHARD_CHUNKS

    def chunks_of(self, shard: int) -> range:
        return range(shard * SHARD_CHUNKS, min((shard + 1) * SHARD_CHUNKS, self.plan.chunks))

    def open(self) -> None:
        """Reads the state of an earlier run. Raises `StoreError` where that run had other settings."""
        path = self.folder / UNFINISHED
        wanted = json.loads(json.dumps(self.plan.fields()))
        if path.exists():
            try:
                known = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise StoreError(f"{str(path)!r} cannot be read: {error}", hint="name another folder") from error
            if known != wanted:
                other = sorted(k for k in wanted if known.get(k) != wanted[k])
                raise StoreError(
                    f"{str(self.folder)!r} holds a corpus made with other settings: {', '.join(other)}",
                    hint="give the same ones to continue it, or name another folder with --out",
                )
        elif any(self.folder.iterdir()) and [p.name for p in self.folder.iterdir()] != ["build.lock"]:
            raise StoreError(f"{str(self.folder)!r} is not empty", hint="name a new folder with --out")
        else:
            write_whole(path, (json.dumps(wanted, indent=1) + "\n").encode())
        self._read_complete()
        for shard in range(len(self.complete), self.plan.shards):
            self._read_part(shard)

    def _read_complete(self) -> None:
        """Reads the complete shards, with the counts stored beside each."""
        for index in range(self.plan.shards):
            path = self.folder / shard_name(index, self.plan.format)
            kept = self.folder / "work" / f"done-{index:05d}.json"
            if not (path.exists() and kept.exists()):
                return
            try:
                facts = json.loads(kept.read_text(encoding="utf-8"))
            except ValueError as error:
                raise StoreError(f"{str(kept)!r} cannot be read: {error}", hint="name another folder") from error
            self._count(facts)
            self.rows += facts["rows"]
            self.judged += facts["judged"]
            self.verdicts.update(facts["verdicts"])
            self.complete.append(Shard(**facts["shard"]))
            self._journal_path(index).unlink(missing_ok=True)  # a kill may have left it

    def _count(self, facts: dict[str, Any]) -> None:
        """Adds one complete shard's facts to the totals."""
        self._seen.update(facts["sources"])
        for name in ("tasks", "rows", "judged", "duplicates", "right_but_not_correct", "mistakes", "seconds"):
            self.totals[name] = self.totals.get(name, 0) + facts[name]
        for name in ("verdicts", "skipped", "schedules", "backends"):
            self.totals[name] = dict(Counter(self.totals.get(name, {})) + Counter(facts[name]))
        families = self.totals.setdefault("families", {})
        for family, counts in facts["families"].items():
            families[family] = dict(Counter(families.get(family, {})) + Counter(counts))
        for name in ("removed", "bad_tasks"):
            self.totals.setdefault(name, []).extend(facts[name])

    def _read_part(self, shard: int) -> None:
        path = self._journal_path(shard)
        part = self.parts[shard] = ShardPart()
        if not path.is_file():
            return
        try:
            data = path.read_bytes()
            whole = data[: data.rfind(b"\n") + 1]
            if len(whole) < len(data):  # a line cut off by a kill or a full disk
                with open(path, "r+b") as file:
                    file.truncate(len(whole))
            for line in whole.splitlines():
                part.add(json.loads(line))
        except OSError as error:
            raise unwritable(path.parent, error) from error
        except ValueError as error:
            raise StoreError(f"{str(path)!r} cannot be read: {error}", hint="name another folder") from error
        for chunk in part.rows.values():
            self._note(*chunk.values())

    def _note(self, *rows: dict[str, Any]) -> None:
        self.rows += len(rows)
        self.judged += sum(r["judged"] for r in rows)
        self.verdicts.update(r["verdict"] for r in rows if r["judged"])

    def _journal_path(self, shard: int) -> Path:
        return self.folder / "work" / f"part-{shard:05d}.jsonl"

    def missing(self) -> Iterator[ChunkWork]:
        """Yields chunks that have not ended, with the ids of their rows on disk."""
        for shard in range(len(self.complete), self.plan.shards):
            part = self.parts[shard]
            for chunk in self.chunks_of(shard):
                if chunk not in part.ends:
                    rows = part.rows.get(chunk, {})
                    work = self.plan.work(chunk)
                    yield ChunkWork(work.chunk, work.tasks, tuple(r["row_id"] for r in rows.values()))

    def keep(self, said: dict[str, Any]) -> None:
        """Appends one line to its journal; the last line of a shard completes it. Raises `StoreError`."""
        shard = self.shard_of(said["chunk"])
        try:
            file = self._journals.get(shard)
            if file is None:
                path = self._journal_path(shard)
                path.parent.mkdir(parents=True, exist_ok=True)
                file = self._journals[shard] = open(path, "ab", buffering=0)
            file.write(json.dumps(said, ensure_ascii=True).encode() + b"\n")
        except OSError as error:
            raise unwritable(self.folder, error) from error
        self.parts[shard].add(said)
        if "row" in said:
            self._note(said["row"])
        elif "end" in said:
            self.settle()

    def settle(self) -> None:
        """Writes shards in order, as long as all chunks of the next one have ended."""
        while len(self.complete) < self.plan.shards:
            shard = len(self.complete)
            part = self.parts[shard]
            if any(chunk not in part.ends for chunk in self.chunks_of(shard)):
                return
            self._write(shard, part)

    def _write(self, shard: int, part: ShardPart) -> None:
        kept, duplicates = [], 0
        sources: dict[str, str] = {}
        for row in part.ordered():
            source = _digest(row["reference"])
            # Chunks are independent: an earlier chunk may have generated the same text as another task.
            if source in self._seen or sources.setdefault(source, row["task_id"]) != row["task_id"]:
                duplicates += 1
                continue
            kept.append(row)
        written = write_shard(self.folder, shard, kept, self.plan.format)
        facts = {**_facts(kept, part), "shard": shard_fields(written), "duplicates": duplicates}
        facts["tasks"] = sum(self.plan.work(c).tasks for c in self.chunks_of(shard))
        facts["sources"] = sorted(sources)
        write_whole(self.folder / "work" / f"done-{shard:05d}.json", json.dumps(facts).encode())
        self._count(facts)
        self.complete.append(written)
        file = self._journals.pop(shard, None)
        if file is not None:
            file.close()
        self._journal_path(shard).unlink(missing_ok=True)
        del self.parts[shard]
        self.write_manifest()

    def write_manifest(self) -> None:
        """Writes the manifest of the complete shards."""
        finish_manifest(self.folder, self.plan.fields(), self.complete, self.totals, self.plan.shards)

    def progress(self, seconds: float, at_work: int = 0) -> CorpusProgress:
        """Returns the progress after `seconds` of this run, with `at_work` chunks in the processes."""
        ended = sum(len(self.chunks_of(i)) for i in range(len(self.complete)))
        ended += sum(len(p.ends) for p in self.parts.values())
        return CorpusProgress(self.rows, self.judged, ended, self.plan.chunks, seconds, dict(self.verdicts), at_work)

    def close(self) -> None:
        for file in self._journals.values():
            file.close()
        self._journals.clear()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:20]


def _facts(rows: list[dict[str, Any]], part: ShardPart) -> dict[str, Any]:
    """Counts the rows of one shard, and its tasks by outcome."""
    judged = [r for r in rows if r["judged"]]
    skipped: Counter[str] = Counter()
    families: dict[str, Counter[str]] = {}
    for end in part.ends.values():
        skipped.update(end["skipped"])
        for name, counts in end["families"].items():
            families.setdefault(name, Counter()).update(counts)
    skipped["bad_task"] += len(part.bad_tasks)
    for row in rows:
        families.setdefault(row["family"], Counter())["rows"] += 1
        families[row["family"]]["judged"] += row["judged"]
        families[row["family"]]["correct"] += row["verdict"] == "correct"
    return {
        "rows": len(rows),
        "judged": len(judged),
        "mistakes": sum(not r["right"] for r in rows),
        "right_but_not_correct": sum(r["right"] and r["verdict"] != "correct" for r in judged),
        "verdicts": dict(Counter(r["verdict"] for r in judged)),
        "backends": dict(Counter(r["backend"] for r in judged)),
        "schedules": dict(Counter(r["schedule"] for r in rows)),
        "seconds": round(sum(r["seconds"] or 0.0 for r in judged), 3),
        "skipped": {k: n for k, n in skipped.items() if n},
        "families": {name: {k: n for k, n in c.items() if n} for name, c in sorted(families.items())},
        "removed": [r for end in part.ends.values() for r in end["removed"]],
        "bad_tasks": [{"task_id": b["bad_task"], "family": b["family"], "why": b["why"]} for b in part.bad_tasks],
    }


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Locks the folder for one builder. Raises `StoreError` where another process holds it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        fd = os.open(folder / "build.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise unwritable(folder, error) from error
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StoreError(f"another process builds in {str(folder)!r}", hint="wait for it") from error
        yield
    finally:
        os.close(fd)


def usual_jobs(plan: CorpusPlan) -> int:
    """Returns the default number of judging processes."""
    return min(cores(), PER_GPU * len(visible_gpus())) if plan.judge == "gpu" else cores()


def build(
    folder: Path | str, plan: CorpusPlan, jobs: int = 0, on_progress: Callable[[CorpusProgress], None] | None = None
) -> dict[str, Any]:
    """Builds a corpus, or continues one, and returns its manifest.

    `jobs` is the number of processes; 0 is one per core, or `PER_GPU` per GPU. Judged rows stay on disk in any case.
    Raises `StoreError` (the folder cannot be used, or the disk is full), `ConfigError`, `UsageError` (no GPU),
    `TaskError` (a suite cannot be read) and `HarnessError`.
    """
    path = Path(folder)
    options = plan.options()
    if plan.judge == "gpu" and not visible_gpus():
        raise UsageError("--judge gpu: there is no NVIDIA GPU here", hint="use --judge cpu")
    if plan.recipe.against:
        guard(plan.recipe.against, plan.recipe.one_operator)  # raises for an unreadable suite before anything runs
    with _locked(path):
        builder = CorpusBuilder(path, plan)
        started = time.monotonic()
        try:
            builder.open()
            builder.settle()
            first = {"recipe": as_fields(plan.recipe), "share": plan.share}
            first["options"] = None if options is None else options.model_dump(mode="json")
            missing = list(builder.missing())
            tell = on_progress or (lambda _progress: None)
            tell(builder.progress(0.0))
            with Crew(first, jobs or usual_jobs(plan), missing, plan.judge == "gpu") as crew:
                try:
                    for said in crew:
                        builder.keep(said)
                        tell(builder.progress(time.monotonic() - started, crew.at_work))
                except KeyboardInterrupt:
                    for said in crew.reported():
                        builder.keep(said)
                    tell(builder.progress(time.monotonic() - started, crew.at_work))
                    raise
        finally:
            builder.close()
    return read_manifest(path)
