"""Reads data sets in JSON lines: each row holds a task, a candidate, or both, under field names from the caller.

Rows are untrusted text. A broken line is a problem of its row only; the file fails where all rows are broken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelwright import syntax
from kernelwright.errors import TaskError
from kernelwright.records import Candidate, LibraryRule, Provenance, Task
from kernelwright.tasks.candidates import candidate_from_text
from kernelwright.tasks.files import MAX_BYTES
from kernelwright.tasks.formats.kernelbench import check_reference, description_of, stated_precision
from kernelwright.tasks.language import suffix_of

ID_FIELDS = ("task_id", "problem_id", "id", "name", "task_name")
MAX_NAME = 200
"""Characters of a row's name, which stands in every message about the row."""


@dataclass(frozen=True)
class Row:
    """One line: its task and optional candidate, or `problem`, the reason why it cannot be used."""

    index: int
    item_id: str
    task: Task | None
    candidate: Candidate | None
    problem: str | None = None


def read_rows(
    path: Path | str,
    *,
    reference_field: str = "reference",
    candidate_field: str | None = None,
    id_field: str | None = None,
    policy: LibraryRule | None = None,
    limit: int | None = None,
) -> list[Row]:
    """Reads the rows of a JSONL file, in order. Raises `TaskError` when the file or every row is unusable."""
    file = Path(path)
    rows: list[Row] = []
    seen: dict[str, int] = {}
    fields: set[str] = set()
    for index, (number, value, problem) in enumerate(json_lines(file)):
        if limit is not None and index >= limit:
            break
        if value is None:
            rows.append(Row(index, f"line-{number}", None, None, problem))
            continue
        fields |= set(value)
        name = row_name(value, id_field, index)
        seen[name] = seen.get(name, 0) + 1
        name = name if seen[name] == 1 else f"{name}#{seen[name]}"
        rows.append(_row(index, name, value, file.name, reference_field, candidate_field, policy))
    if not rows:
        raise TaskError(f"{str(file)!r} holds no rows", hint="name a file with one JSON object a line")
    if not any(row.task for row in rows):
        if fields and reference_field not in fields:
            raise TaskError(
                f"no row of {str(file)!r} has the field {reference_field!r}",
                hint=f"name the right one with --reference-field; there are: {', '.join(sorted(fields))}",
            )
        raise TaskError(
            f"no row of {str(file)!r} is a task: {rows[0].problem}",
            hint="name a file in UTF-8 with one JSON object a line, a KernelBench-format reference in each",
        )
    if candidate_field is not None and candidate_field not in fields:
        raise TaskError(
            f"no row of {str(file)!r} has the field {candidate_field!r}",
            hint=f"name the right one with --candidate-field; there are: {', '.join(sorted(fields))}",
        )
    if id_field is not None and id_field not in fields:
        raise TaskError(
            f"no row of {str(file)!r} has the field {id_field!r}",
            hint=f"name the right one with --id-field; there are: {', '.join(sorted(fields))}",
        )
    return rows


def json_lines(file: Path) -> Iterator[tuple[int, dict[str, Any] | None, str]]:
    """Yields the line's number, its object or None, and the reason for None. Skips blank lines."""
    try:
        if file.is_dir():
            raise TaskError(f"{str(file)!r} is a folder", hint="name a JSONL file")
        if not file.is_file() and file.exists():
            raise TaskError(f"{str(file)!r} is not a regular file", hint="name a JSONL file")
        with open(file, "rb") as stream:
            for number, line in enumerate(stream, 1):
                if not line.strip():
                    continue
                if len(line) > MAX_BYTES:
                    yield number, None, f"line {number} is longer than {MAX_BYTES >> 20} MB"
                    continue
                try:
                    value = syntax.json_value(line.decode("utf-8").removeprefix("\ufeff"))
                except UnicodeDecodeError:
                    yield number, None, f"line {number} is not UTF-8"
                except ValueError as error:
                    yield number, None, f"line {number} is not JSON: {error}"
                else:
                    good = isinstance(value, dict)
                    yield number, value if good else None, "" if good else f"line {number} is not a JSON object"
    except OSError as error:
        raise TaskError(f"{str(file)!r} cannot be read: {error.strerror}", hint="check the path") from error


def row_name(value: dict[str, Any], id_field: str | None, index: int) -> str:
    """Returns a row's name: from its field, cut to `MAX_NAME`, else its number.

    Lone surrogates, which cannot be stored, become `?`.
    """
    for field in (id_field,) if id_field else ID_FIELDS:
        found = value.get(field)
        if isinstance(found, (str, int, float)) and str(found).strip():
            name = str(found).encode("utf-8", "replace").decode("utf-8")
            return name if len(name) <= MAX_NAME else f"{name[:MAX_NAME]}…"
    return str(index)


def _row(
    index: int,
    name: str,
    value: dict[str, Any],
    origin: str,
    reference_field: str,
    candidate_field: str | None,
    policy: LibraryRule | None,
) -> Row:
    text = value.get(candidate_field) if candidate_field else None
    candidate = None
    if text is not None and not isinstance(text, str):
        kind = type(text).__name__
        return Row(index, name, None, None, f"row {name} holds a {kind} in the field {candidate_field!r}, not text")
    if text and text.strip():
        candidate = candidate_from_text(text, f"{origin}#{name}", suffix_of(text))
    source = value.get(reference_field)
    if not isinstance(source, str):
        return Row(index, name, None, candidate, f"row {name} has no text in the field {reference_field!r}")
    try:
        tree = check_reference(source, f"row {name}")
        precision = stated_precision(tree, f"row {name}")
    except TaskError as error:
        return Row(index, name, None, candidate, str(error))
    task = Task(
        task_id=name,
        source=source,
        policy=policy or "from_scratch",
        precision=precision,
        description=description_of(tree),
        provenance=Provenance(origin=f"{origin}#{name}", family=_family(value)),
    )
    return Row(index, name, task, candidate)


def _family(value: dict[str, Any]) -> str | None:
    """Returns a row's kind of task: its family, else KernelBench's level."""
    family, level = value.get("family"), value.get("level")
    if isinstance(family, str) and family.strip():
        return family.strip()[:60]
    return f"level {level}" if isinstance(level, (int, str)) and str(level).strip() else None
