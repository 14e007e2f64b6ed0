"""Loads tasks from files, folders, rows of data sets, and the tasks bundled with the package.

Loading executes none of a task's code. `workloads`, `reference` and `inputs` do; they run in the oracle only.
"""

from __future__ import annotations

import contextlib
import difflib
import logging
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from kernelwright.errors import TaskError, did_you_mean
from kernelwright.records import LibraryRule, Task
from kernelwright.tasks.candidates import candidate_from_text, load_candidate
from kernelwright.tasks.formats.folder import is_task_folder, load_folder, write_gate
from kernelwright.tasks.formats.jsonl import Row, read_rows
from kernelwright.tasks.formats.kernelbench import check_reference, load_file, tasks_of
from kernelwright.tasks.formats.robust_kbench import (
    DIRECTIONS,
    is_robust_folder,
    load_robust,
    robust_tasks,
    split_direction,
)
from kernelwright.tasks.language import detect_language

__all__ = [
    "Row",
    "bundled_tasks",
    "candidate_from_text",
    "check_reference",
    "detect_language",
    "load_candidate",
    "load_suite",
    "load_task",
    "read_rows",
    "task_folders",
    "write_gate",
]

_BUNDLED = Path(__file__).resolve().parents[1] / "data" / "tasks"


def bundled_tasks() -> list[str]:
    """Returns the names of the bundled tasks."""
    return sorted(p.name for p in _BUNDLED.iterdir() if is_task_folder(p)) if _BUNDLED.is_dir() else []


def load_task(
    spec: str | Path,
    policy: LibraryRule | None = None,
    *,
    reference_field: str = "reference",
    id_field: str | None = None,
) -> Task:
    """Loads one task: a `.py` file, a task folder, `FILE.jsonl#ID`, a one-row JSONL file, or a bundled task's name.

    Raises `TaskError`.

    `FOLDER:backward` is the backward task of a folder in robust-kbench's format.
    """
    text = str(spec)
    otherwise = "name a .py file, a task folder, FILE.jsonl#ID, or one that `kernelwright tasks list` shows"
    if not text.strip():  # Path would read it as the current folder
        raise TaskError("the name of the task is empty", hint=otherwise)
    path = Path(text)
    there = _exists(path)
    folder = _robust(text)
    if folder is not None:
        return load_robust(folder, policy, split_direction(text)[1])
    if there and path.is_dir():
        return load_folder(path, policy)
    if "#" in text and not there:
        return _load_row(text, policy, reference_field, id_field)
    if path.suffix == ".py" or there:
        if path.suffix == ".jsonl":
            return _only_row(text, policy, reference_field, id_field)
        return load_file(path, policy)
    if text in bundled_tasks():
        return load_folder(_BUNDLED / text, policy)
    raise TaskError(f"there is no task {text!r}", hint=did_you_mean(text, bundled_tasks(), otherwise))


def _robust(text: str) -> Path | None:
    """Returns the folder in robust-kbench's format that is named, with or without a direction behind it."""
    path = Path(text)
    path = path if _exists(path) else Path(split_direction(text)[0])
    named = path != Path(text)  # a direction was given, perhaps for another kind of folder
    wanted = _exists(path) and path.is_dir() and (named or not is_task_folder(path))
    return path if wanted and (named or is_robust_folder(path)) else None


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:
        raise TaskError(f"{str(path)[:200]!r} cannot be read: {error.strerror}", hint="check the path") from error


def _load_row(text: str, policy: LibraryRule | None, reference_field: str, id_field: str | None) -> Task:
    # The first `#` after the suffix: row names may hold one themselves (`7#2`, the second row named 7).
    file, mark, name = text.partition(".jsonl#")
    file, name = (file + ".jsonl", name) if mark else (text.partition("#")[0], text.partition("#")[2])
    rows = read_rows(file, reference_field=reference_field, id_field=id_field, policy=policy)
    for row in rows:
        if row.item_id == name:
            return _task_of(row, file)
    near = difflib.get_close_matches(name, [r.item_id for r in rows], 3)
    raise TaskError(
        f"{file!r} has no row {name!r}",
        hint=f"near matches: {', '.join(near)}" if near else f"the first is {rows[0].item_id!r}",
    )


def _only_row(file: str, policy: LibraryRule | None, reference_field: str, id_field: str | None) -> Task:
    rows = read_rows(file, reference_field=reference_field, id_field=id_field, policy=policy)
    if len(rows) > 1:
        hint = f"name one of them, as in {file}#{rows[0].item_id}"
        raise TaskError(f"{file!r} holds {len(rows)} tasks", hint=hint)
    return _task_of(rows[0], file)


def _task_of(row: Row, file: str) -> Task:
    if row.task is None:
        raise TaskError(f"{file!r}: {row.problem}", hint="mend the row, or name another")
    return row.task


def load_suite(
    spec: str | Path,
    *,
    reference_field: str = "reference",
    id_field: str | None = None,
    policy: LibraryRule | None = None,
    limit: int | None = None,
) -> list[Task]:
    """Loads many tasks: `starter`, a folder, a JSONL file, `hub:OWNER/NAME[:SPLIT]` or `kernelbench:LEVEL`.

    Leaves out a file or row that is not a task, with a warning (logger `kernelwright`). Raises `TaskError` where none
    is. `limit` counts files and rows, broken ones included.
    """
    text = str(spec)
    otherwise = "name a folder of tasks, a JSONL file, starter, kernelbench:LEVEL or hub:OWNER/NAME"
    if not text.strip():
        raise TaskError("the name of the suite is empty", hint=otherwise)
    path = Path(text)
    there = _exists(path)
    if text.startswith(("hub:", "kernelbench:")) and not there:
        from kernelwright.tasks.formats.hub import load_hub

        return load_hub(text, policy, limit, _warn, reference_field, id_field)
    folder = _robust(text)
    if folder is not None:
        direct = folder != path
        return (
            [load_robust(folder, policy, split_direction(text)[1])] if direct else robust_tasks(folder, policy)[:limit]
        )
    if text == "starter" and not there:
        return [load_folder(_BUNDLED / name, policy) for name in bundled_tasks()[:limit]]
    if there and path.is_dir():
        return _load_folder_of_tasks(path, policy, limit)
    if path.suffix == ".py":
        return [load_file(path, policy)]
    if not there and path.suffix not in (".jsonl", ".json"):
        raise TaskError(f"there is no suite {text!r}", hint=did_you_mean(text, ["starter"], otherwise))
    rows = read_rows(path, reference_field=reference_field, id_field=id_field, policy=policy, limit=limit)
    for row in rows:
        if row.task is None:
            _warn(f"{text}: {row.problem}")
    return [row.task for row in rows if row.task is not None]


def task_folders(spec: str | Path) -> dict[str, Path]:
    """Returns the native task folders of a source, by the task's name; leaves out unreadable ones."""
    path = Path(spec)
    if str(spec) == "starter" and not _exists(path):
        folders = [_BUNDLED / name for name in bundled_tasks()]
    elif str(spec) in bundled_tasks() and not _exists(path):
        folders = [_BUNDLED / str(spec)]
    elif not (_exists(path) and path.is_dir()):
        return {}
    else:
        folders = [path] if is_task_folder(path) else [p for p in path.iterdir() if is_task_folder(p)]
    found = {}
    for folder in folders:
        with contextlib.suppress(TaskError):
            found[load_folder(folder).task_id] = folder
    return found


def _warn(problem: str) -> None:
    logging.getLogger("kernelwright").warning("left out: %s", problem)


def _load_folder_of_tasks(path: Path, policy: LibraryRule | None, limit: int | None) -> list[Task]:
    if is_task_folder(path):
        return [load_folder(path, policy)]
    try:
        found = [p for p in path.iterdir() if _is_task(p)]
    except OSError as error:
        raise TaskError(f"{str(path)!r} cannot be read: {error.strerror}", hint="check its permissions") from error
    if not found:
        raise TaskError(
            f"{str(path)!r} holds no tasks", hint="put KernelBench-format .py files or task folders into it"
        )
    found.sort(key=lambda p: _natural(p.name))
    loaders = [load for p in found for load in _loaders(p, policy)]
    return tasks_of(loaders[:limit], _warn)


def _is_task(path: Path) -> bool:
    return is_task_folder(path) or is_robust_folder(path) or (path.suffix == ".py" and not path.name.startswith("_"))


def _loaders(path: Path, policy: LibraryRule | None) -> list[Callable[[], Task]]:
    """Returns the loaders of one folder entry: two where it holds a forward and a backward task."""
    if path.is_dir() and not is_task_folder(path) and is_robust_folder(path):
        ways = [w for w in DIRECTIONS if (path / f"func_{w}.py").is_file()]
        return [partial(load_robust, path, policy, way) for way in ways]
    return [partial(load_folder if path.is_dir() else load_file, path, policy)]


def _natural(name: str) -> list[tuple[int, str]]:
    """Returns a sort key that puts `2_x` before `10_x`."""
    return [(int(t), "") if t.isdecimal() else (-1, t) for t in re.split(r"(\d+)", name)]
