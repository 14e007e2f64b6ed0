"""Reads and writes a corpus on disk: rows, shards as JSONL or Parquet, the manifest and the data set's card.

Every file is written under a temporary name and renamed, so that a kill leaves a whole file or none.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from kernelwright.corpus.pairs import Pair
from kernelwright.errors import StoreError
from kernelwright.syntax import json_value

Format = Literal["jsonl", "parquet"]
MANIFEST = "manifest.json"
UNFINISHED = "build.json"
"""The file of a builder's settings; the manifest appears beside it with the first complete shard."""
LICENCE = "Apache-2.0"

FIELDS: dict[str, str] = {
    "row_id": "string",
    "task_id": "string",
    "family": "string",
    "operators": "list<string>",
    "signature": "string",
    "difficulty": "float64",
    "split": "string",
    "reference": "string",
    "answer": "string",
    "schedule": "string",
    "trace": "string",
    "right": "bool",
    "mistake": "string",
    "judged": "bool",
    "verdict": "string",
    "reason": "string",
    "backend": "string",
    "candidate_ms": "float64",
    "eager_ms": "float64",
    "speedup": "float64",
    "speedup_low": "float64",
    "speedup_high": "float64",
    "seconds": "float64",
}
"""Fields of a row with their types.

`right` holds by construction. In a row that was not judged, `judged` is false, and `verdict`, `reason` and `backend`
are empty. Times are in milliseconds, null where nothing was timed; `seconds` is the time that judging took.
"""


@dataclass(frozen=True)
class Verdict:
    """The verdict on one row. `candidate_ms` and `eager_ms` are in milliseconds, `seconds` is the time of judging."""

    verdict: str
    reason: str
    backend: str
    seconds: float
    candidate_ms: float | None = None
    eager_ms: float | None = None
    speedup: float | None = None
    interval: tuple[float, float] | None = None


def row_of(pair: Pair, row_id: str, verdict: Verdict | None) -> dict[str, Any]:
    """Makes a row with every field of `FIELDS`."""
    low, high = (verdict.interval if verdict else None) or (None, None)
    task = pair.task
    return {
        "row_id": row_id,
        "task_id": task.name,
        "family": task.family,
        "operators": list(task.operators),
        "signature": task.signature,
        "difficulty": float(task.difficulty),
        "split": task.split,
        "reference": task.source,
        "answer": pair.answer,
        "schedule": pair.schedule,
        "trace": pair.trace,
        "right": pair.right,
        "mistake": pair.mistake,
        "judged": verdict is not None,
        "verdict": verdict.verdict if verdict else "",
        "reason": verdict.reason if verdict else "",
        "backend": verdict.backend if verdict else "",
        "candidate_ms": verdict.candidate_ms if verdict else None,
        "eager_ms": verdict.eager_ms if verdict else None,
        "speedup": verdict.speedup if verdict else None,
        "speedup_low": low,
        "speedup_high": high,
        "seconds": verdict.seconds if verdict else None,
    }


@dataclass(frozen=True)
class Shard:
    """The manifest's entry for one file of a corpus."""

    file: str
    rows: int
    bytes: int
    sha256: str


def shard_name(index: int, kind: Format) -> str:
    return f"data/part-{index:05d}.{kind}"


def write_shard(folder: Path, index: int, rows: Sequence[dict[str, Any]], kind: Format) -> Shard:
    """Writes one shard, whole or not at all. Raises `StoreError` where it cannot be written."""
    name = shard_name(index, kind)
    data = _parquet(rows) if kind == "parquet" else _jsonl(rows)
    write_whole(folder / name, data)
    return Shard(name, len(rows), len(data), hashlib.sha256(data).hexdigest())


def _jsonl(rows: Sequence[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row, ensure_ascii=False).encode("utf-8", "replace") + b"\n" for row in rows)


def _parquet(rows: Sequence[dict[str, Any]]) -> bytes:
    import io

    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {"string": pa.string(), "float64": pa.float64(), "bool": pa.bool_(), "list<string>": pa.list_(pa.string())}
    schema = pa.schema([(name, types[kind]) for name, kind in FIELDS.items()])
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), buffer, compression="zstd")
    return buffer.getvalue()


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file under a temporary name, syncs and renames it. Raises `StoreError`."""
    temporary = path.with_name(f"{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        _discard(temporary)
        raise unwritable(path.parent, error) from error


def _discard(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return


def unwritable(folder: Path, error: OSError) -> StoreError:
    """Returns the error for a folder that cannot be written, with the system's message."""
    return StoreError(
        f"{str(folder)!r} cannot be written: {error.strerror or error}",
        hint="make room, or name another folder; what was finished is kept, and the same command continues",
    )


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Writes `manifest.json` and the card."""
    write_whole(folder / MANIFEST, (json.dumps(manifest, indent=1, ensure_ascii=False) + "\n").encode())
    write_whole(folder / "README.md", card(manifest).encode())


def card(manifest: dict[str, Any]) -> str:
    """Returns the data set's card: the header that `datasets` reads, and a description for people."""
    kind, recipe, judging = manifest["format"], manifest["recipe"], manifest["judging"]
    features = "\n".join(_feature(name, kind) for name, kind in FIELDS.items())
    verdicts = ", ".join(f"{n} {v}" for v, n in manifest["verdicts"].items()) or "none"
    against = ", ".join(recipe["against"]) or "no suite"
    return f"""---
license: apache-2.0
configs:
- config_name: default
  data_files: data/*.{kind}
dataset_info:
  features:
{features}
---
# Generated GPU-kernel tasks with solutions

Made by Kernelwright {manifest["kernelwright"]} from seed {recipe["seed"]}: {manifest["tasks"]} tasks of its generator
(split `{recipe["split"]}`), {manifest["rows"]} answers of its solution library. Nobody's code is copied; no model wrote
any of it.

- Judged by execution: {manifest["judged"]} of {manifest["rows"]} rows ({manifest["judged_share"]:.1%}); verdicts:
  {verdicts}. {judging["note"]}
- `right` says what an answer is by construction: true for rows that nothing was done to, false where a mistake was put
  in on purpose (`mistake` names it). Rows with `judged` false carry that only.
- Kept away from: {against}. {manifest["decontamination"]["removed"]} tasks were removed for it.
- The statements in `trace` are made from the answer's text, not by a model.
- Licence: {LICENCE}. Counts, seeds, versions and hashes: `{MANIFEST}`.
"""


def _feature(name: str, kind: str) -> str:
    if kind == "list<string>":
        return f"  - name: {name}\n    list: string"
    return f"  - name: {name}\n    dtype: {kind}"


def read_manifest(folder: Path) -> dict[str, Any]:
    """Reads the manifest of a corpus. Raises `StoreError` where there is none."""
    try:
        value = json_value((folder / MANIFEST).read_text(encoding="utf-8"))
        if not isinstance(value, dict) or not isinstance(value.get("shards"), list):
            raise ValueError("no list of shards")
    except OSError as error:
        raise StoreError(
            f"{str(folder)!r} holds no corpus: {error.strerror}", hint="name a folder that `corpus build` wrote"
        ) from error
    except ValueError as error:
        raise StoreError(f"the manifest of {str(folder)!r} cannot be read: {error}", hint="build it again") from error
    return value


def read_rows(folder: Path, manifest: dict[str, Any] | None = None) -> Iterator[dict[str, Any]]:
    """Yields the rows of a corpus, in order. Raises `StoreError` for a missing or broken shard."""
    for shard in (manifest or read_manifest(folder))["shards"]:
        yield from _rows_of(folder / shard["file"])


def unfinished_rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Yields the rows so far of an unfinished corpus: complete shards, then journals.

    Raises `StoreError` for a file that cannot be read.
    """
    for path in sorted((folder / "data").glob("*.*")):
        if path.suffix in (".jsonl", ".parquet"):
            yield from _rows_of(path)
    for path in sorted((folder / "work").glob("part-*.jsonl")):
        for said in _rows_of(path):
            if "row" in said:
                yield said["row"]


def _rows_of(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the rows of one file; skips an incomplete last line, which may still be being written."""
    try:
        if path.suffix == ".parquet":
            import pyarrow.parquet as pq

            yield from pq.read_table(path).to_pylist()
            return
        with open(path, encoding="utf-8") as file:
            for line in file:
                if line.endswith("\n"):
                    yield json_value(line)
    except (OSError, ValueError) as error:
        raise StoreError(f"shard {str(path)!r} cannot be read: {error}", hint="build the corpus again") from error


def shard_fields(shard: Shard) -> dict[str, Any]:
    """Returns a shard's fields for the manifest."""
    return asdict(shard)
