"""Reads CUDABench's format: one whole CUDA program a row.

A row has the program (`bench.cu`), a script that writes its input and expected output (`gen.py`), and a script that
compares and prints T or F (`compare.py`). Reading executes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelwright.errors import TaskError
from kernelwright.tasks.files import MAX_BYTES
from kernelwright.tasks.formats.jsonl import json_lines, row_name

PROGRAM, GENERATOR, COMPARER = "bench.cu", "gen.py", "compare.py"
PREFIX = "cudabench:"
"""Prefix of a suite in this format on the command line."""
FOLDER = "data"
"""The folder that programs and scripts share. Most generators create it, the others expect it."""
_FIELDS = (PROGRAM, GENERATOR, COMPARER)
LEVELS = ("level1_prompt", "level2_prompt", "level3_prompt")


@dataclass(frozen=True)
class DataFile:
    """An array that a program reads or writes, raw bytes in `data/NAME.bin`; `shape` as spelled in the row."""

    name: str
    dtype: str
    shape: str

    @property
    def file(self) -> str:
        """Returns the file's name in the folder `data`."""
        return f"{self.name}.bin"


@dataclass(frozen=True)
class ProgramTask:
    """One row; `problem` is the reason where it cannot be used."""

    task_id: str
    name: str = ""
    program: str = ""
    generator: str = ""
    comparer: str = ""
    problem: str = ""
    prompts: tuple[str, ...] = ()
    """Prompts by level: name, algorithm and guidance; name and algorithm; name only. Empty where absent."""
    inputs: tuple[DataFile, ...] = ()
    outputs: tuple[DataFile, ...] = ()


def is_cudabench(path: Path | str) -> bool:
    """Tells whether a file is in this format, by its first readable row."""
    file = Path(path)
    if file.suffix not in (".jsonl", ".json") or not file.is_file():
        return False
    for _number, value, _problem in json_lines(file):
        if value is not None:
            return any(name in value for name in (PROGRAM, GENERATOR))
    return False


def read_programs(path: Path | str, *, id_field: str | None = None, limit: int | None = None) -> list[ProgramTask]:
    """Reads the rows of a file, in order. Raises `TaskError` when the file or every row is unusable."""
    file = Path(path)
    tasks: list[ProgramTask] = []
    seen: dict[str, int] = {}
    for index, (number, value, problem) in enumerate(json_lines(file)):
        if limit is not None and index >= limit:
            break
        name = f"line-{number}" if value is None else row_name(value, id_field, index)
        seen[name] = seen.get(name, 0) + 1
        name = name if seen[name] == 1 else f"{name}#{seen[name]}"
        tasks.append(ProgramTask(name, problem=problem) if value is None else _task(name, value))
    if not tasks:
        raise TaskError(f"{str(file)!r} holds no rows", hint="name a file with one JSON object a line")
    if all(task.problem for task in tasks):
        raise TaskError(
            f"no row of {str(file)!r} is a program: {tasks[0].problem}",
            hint="name a file in CUDABench's format (docs/programs.md)",
        )
    return tasks


def _task(name: str, value: dict[str, Any]) -> ProgramTask:
    title = value.get("task_name")
    title = title if isinstance(title, str) else ""
    for field in _FIELDS:
        text = value.get(field)
        if not isinstance(text, str) or not text.strip():
            what = "is missing" if text is None else "is empty" if isinstance(text, str) else "is not a text"
            return ProgramTask(name, title, problem=f"the field {field!r} {what}")
        if len(text) > MAX_BYTES:
            return ProgramTask(name, title, problem=f"the field {field!r} is larger than {MAX_BYTES >> 20} MB")
    program, generator, comparer = (_encodable(value[field]) for field in _FIELDS)
    prompts = [value.get(field) for field in LEVELS]
    return ProgramTask(
        name,
        title,
        program,
        generator,
        comparer,
        prompts=tuple(_encodable(p.strip()) if isinstance(p, str) and len(p) <= MAX_BYTES else "" for p in prompts),
        inputs=_arrays(value.get("inputs")),
        outputs=_arrays(value.get("outputs")),
    )


def _arrays(value: Any) -> tuple[DataFile, ...]:
    """Returns the arrays of a row's `inputs` or `outputs`; leaves out malformed entries and file names with a path."""
    found = []
    for item in value if isinstance(value, list) else ():
        name = item.get("name") if isinstance(item, dict) else None
        if isinstance(name, str) and re.fullmatch(r"[\w.-]{1,100}", name):
            found.append(DataFile(name, str(item.get("dtype"))[:40], str(item.get("shape"))[:200]))
    return tuple(found)


_FILE = re.compile(r"""["'](?:[^"'\n]*/)?([\w-][\w.-]*\.\w+)["']""")
"""A file name at the end of a quoted text."""


def shared_files(task: ProgramTask, generated: Collection[str]) -> tuple[list[str], list[str]]:
    """Returns the files in `data` that another program than the row's own may read, and its compared outputs.

    It may read the row's inputs. Where the generator made no such files, it may read the files that the row's own
    program names and the comparison does not. Neither list holds the expected output.
    """
    compared = set(_FILE.findall(task.comparer))
    outputs = {a.file for a in task.outputs} or compared - set(generated)
    inputs = {a.file for a in task.inputs}
    if not inputs or not inputs <= set(generated):
        inputs = set(_FILE.findall(task.program)) & set(generated) - compared - outputs
    return sorted(inputs), sorted(outputs)


def kept_back(task: ProgramTask, generated: Collection[str]) -> list[str]:
    """Returns generated files that a row's own program names and that `shared_files` leaves out."""
    given, outputs = shared_files(task, generated)
    named = set(_FILE.findall(task.program)) & set(generated)
    return sorted(named - set(given) - set(outputs))


def _encodable(text: str) -> str:
    """Returns the text without lone surrogates, which cannot be encoded."""
    return text.encode("utf-8", "replace").decode()
