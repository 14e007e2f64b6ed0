"""Decontaminates files on disk, a corpus, a JSONL file or a suite, against suites by path or name."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from kernelwright.corpus.decontaminate import Near, Rules, Text
from kernelwright.corpus.guard import Away, decontaminate, taught
from kernelwright.corpus.shards import MANIFEST, read_rows, unwritable, write_whole
from kernelwright.errors import TaskError
from kernelwright.runs.folders import check_replaceable
from kernelwright.tasks import load_suite
from kernelwright.tasks.formats.jsonl import json_lines, row_name


def clean(
    corpus: str,
    against: list[str],
    rules: Rules | None = None,
    *,
    out: Path | None = None,
    report: Path | None = None,
    embed: str | None = None,
    fields: tuple[str, str | None] = ("reference", None),
) -> dict[str, Any]:
    """Compares a corpus with suites and returns the report.

    Writes the remaining rows to `out` and the report to `report`, where given. `fields` are the names of the reference
    and of the row id in JSONL files. Raises `TaskError`, `ConfigError`, `StoreError`.
    """
    for path in (out, report):
        if path is not None:
            check_replaceable(path)
    away = Away.of(against, rules or Rules(), fields[0], embed)
    rows: dict[str, dict[str, Any]] = {}
    with _Output(out) as output:

        def keep(text: Text, near: Near) -> None:
            row = rows.pop(text.task_id)
            if not near.reasons:
                output.write(row)

        def texts() -> Iterator[Text]:
            for number, row in enumerate(_rows(corpus, *fields)):
                source = row[fields[0]]
                name = f"{row_name(row, fields[1], number)}"
                name = name if name not in rows else f"{name}#{number}"
                rows[name] = row
                yield Text(name, source, str(row.get("family", "")), taught(row))

        found = decontaminate(texts(), away, keep).plain()
        output.finish()
    if report is not None:
        write_whole(report, (json.dumps(found, indent=1) + "\n").encode())
    return found


def _rows(corpus: str, reference_field: str, id_field: str | None) -> Iterator[dict[str, Any]]:
    """Yields rows with a reference from a corpus, a JSONL file or a suite. Raises `TaskError` where there is none."""
    path = Path(corpus)
    if (path / MANIFEST).is_file():
        yield from read_rows(path)
        return
    if path.suffix in (".jsonl", ".json") and path.is_file():
        count = 0
        for number, row, problem in json_lines(path):
            if row is None:
                raise TaskError(f"{corpus!r}: {problem}", hint="mend the file; nothing is left out silently")
            if not isinstance(row.get(reference_field), str):
                raise TaskError(
                    f"line {number} of {corpus!r} has no text in the field {reference_field!r}",
                    hint="name the right one with --reference-field; there are: " + ", ".join(sorted(row)),
                )
            count += 1
            yield row
        if not count:
            raise TaskError(f"{corpus!r} holds no rows", hint="name a file with one JSON object a line")
        return
    for task in load_suite(corpus):
        yield {"task_id": task.task_id, reference_field: task.source}


class _Output:
    """A JSONL file that is renamed to its place only when it is whole; without a path it writes nothing."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._temporary = path.with_name(f"{path.name}.new") if path else None
        self._file: TextIO | None = None

    def __enter__(self) -> _Output:
        if self._temporary is not None:
            try:
                self._temporary.parent.mkdir(parents=True, exist_ok=True)
                self._file = open(self._temporary, "w", encoding="utf-8", errors="replace")
            except OSError as error:
                raise unwritable(self._temporary.parent, error) from error
        return self

    def write(self, row: dict[str, Any]) -> None:
        """Writes one row. Raises `StoreError`."""
        if self._file is not None:
            try:
                self._file.write(json.dumps(row, ensure_ascii=False) + "\n")
            except OSError as error:
                raise unwritable(Path(str(self.path)).parent, error) from error

    def finish(self) -> None:
        """Syncs the file and renames it to its place. Raises `StoreError`."""
        if self._file is None or self._temporary is None or self.path is None:
            return
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            os.replace(self._temporary, self.path)
        except OSError as error:
            raise unwritable(self.path.parent, error) from error

    def __exit__(self, *_exc: object) -> None:
        if self._file is not None and self._temporary is not None:
            try:
                self._file.close()
                self._temporary.unlink(missing_ok=True)
            except OSError:
                return
