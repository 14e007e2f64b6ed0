"""Tasks: where they come from. A file, a folder, a row of a data set, or a name of one that ships with the package.

Reading executes nothing of a task. `workloads`, `reference` and `inputs` do; they run in the oracle only.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from kernelwright.errors import TaskError
from kernelwright.records import Policy, Task
from kernelwright.tasks.candidates import candidate_from_text, detect_language, load_candidate
from kernelwright.tasks.folder import is_task_folder, load_folder
from kernelwright.tasks.jsonl import Row, read_rows
from kernelwright.tasks.kernelbench import check_reference, load_file

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
]

_BUNDLED = Path(__file__).resolve().parents[1] / "data" / "tasks"


def bundled_tasks() -> list[str]:
    """Names of the tasks that ship with the package."""
    return sorted(p.name for p in _BUNDLED.iterdir() if is_task_folder(p)) if _BUNDLED.is_dir() else []


def load_task(spec: str | Path, policy: Policy | None = None, *, reference_field: str = "reference") -> Task:
    """One task: a `.py` file, a task folder, `FILE.jsonl#ID`, or the name of a bundled task. Raises `TaskError`."""
    text = str(spec)
    path = Path(text)
    if path.is_dir():
        return load_folder(path, policy)
    if "#" in text and not path.exists():
        return _load_row(text, policy, reference_field)
    if path.suffix == ".py" or path.exists():
        if path.suffix == ".jsonl":
            raise TaskError(f"{text!r} holds many tasks", hint=f"name one of them: {text}#ID")
        return load_file(path, policy)
    if text in bundled_tasks():
        return load_folder(_BUNDLED / text, policy)
    near = difflib.get_close_matches(text, bundled_tasks(), 1)
    raise TaskError(
        f"there is no task {text!r}",
        hint=f"did you mean {near[0]!r}?"
        if near
        else "name a .py file, a task folder, FILE.jsonl#ID, or one that `kernelwright tasks list` shows",
    )


def _load_row(text: str, policy: Policy | None, reference_field: str) -> Task:
    file, _, name = text.rpartition("#")
    rows = read_rows(file, reference_field=reference_field, policy=policy)
    for row in rows:
        if row.item_id == name:
            if row.task is None:
                raise TaskError(str(row.problem))
            return row.task
    near = difflib.get_close_matches(name, [r.item_id for r in rows], 3)
    raise TaskError(
        f"{file!r} has no row {name!r}",
        hint=f"near matches: {', '.join(near)}" if near else f"the first is {rows[0].item_id!r}",
    )


def load_suite(
    spec: str | Path,
    *,
    reference_field: str = "reference",
    id_field: str | None = None,
    policy: Policy | None = None,
    limit: int | None = None,
) -> list[Task]:
    """Many tasks: `starter`, a folder, a JSONL file, `hub:OWNER/NAME[:SPLIT]` or `kernelbench:LEVEL`."""
    text = str(spec)
    path = Path(text)
    if text.startswith(("hub:", "kernelbench:")) and not path.exists():
        from kernelwright.tasks.hub import load_hub

        return load_hub(text, policy, limit)
    if text == "starter" and not path.exists():
        return [load_folder(_BUNDLED / name, policy) for name in bundled_tasks()[:limit]]
    if path.is_dir():
        return _load_folder_of_tasks(path, policy)[:limit]
    if path.suffix == ".py":
        return [load_file(path, policy)]
    rows = read_rows(path, reference_field=reference_field, id_field=id_field, policy=policy, limit=limit)
    return [row.task for row in rows if row.task is not None]


def _load_folder_of_tasks(path: Path, policy: Policy | None) -> list[Task]:
    if is_task_folder(path):
        return [load_folder(path, policy)]
    found = [p for p in path.iterdir() if is_task_folder(p) or (p.suffix == ".py" and not p.name.startswith("_"))]
    if not found:
        raise TaskError(
            f"{str(path)!r} holds no tasks", hint="put KernelBench-format .py files or task folders into it"
        )
    found.sort(key=lambda p: [int(t) if t.isdigit() else t for t in re.split(r"(\d+)", p.name)])
    return [load_folder(p, policy) if p.is_dir() else load_file(p, policy) for p in found]
