"""The native task: a folder with `task.toml` and `reference.py`.

name = "row-softmax"              # required
description = "..."               # optional, as all that follows
policy = "from_scratch"           # or "libraries", or "libraries:cublas,cudnn"
precision = "float32"             # or "tf32": products of float32 operands may round them to TF32
tolerance = 1e-4                  # relative; measured from the honest dtype when absent
licence = "Apache-2.0"

[[workloads]]                     # sizes that a candidate must be right at; derived when there are none
name = "odd"
constants = { rows = 7, cols = 1021 }
purpose = "functional"            # or "timing"

[gate]                            # written by `kernelwright tasks check --write`, never by hand
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kernelwright import syntax
from kernelwright.config import dump_config
from kernelwright.errors import TaskError, did_you_mean
from kernelwright.records import Gate, LibraryRule, Provenance, Record, Task, Workload
from kernelwright.tasks.files import read_text
from kernelwright.tasks.formats.kernelbench import check_reference, defined_names, description_of, stated_precision

_KEYS = ("name", "description", "policy", "precision", "tolerance", "licence", "origin", "workloads", "gate")
MAX_SETTINGS = 1 << 16
"""Characters of a task.toml: reading keys of many parts takes quadratic time."""
_WORKLOAD_KEYS = ("name", "constants", "purpose")


def is_task_folder(path: Path) -> bool:
    """Tells whether a folder holds a native task."""
    return (path / "task.toml").is_file()


def load_folder(path: Path, policy: LibraryRule | None = None) -> Task:
    """Returns a task from a native folder; raises `TaskError` that names the wrong key."""
    where = repr(str(path))
    if not is_task_folder(path):
        raise TaskError(f"{where} is no task folder: it has no task.toml", hint="see docs/tasks.md for the format")
    try:
        settings = syntax.toml_table(_settings(path))
    except ValueError as error:
        raise TaskError(f"task.toml of {where} is not TOML: {error}") from error
    _known(settings, _KEYS, f"task.toml of {where}")
    if not isinstance(settings.get("name"), str) or not settings["name"]:
        raise TaskError(f"task.toml of {where} has no name", hint='add a line such as name = "row-softmax"')
    tolerance = settings.get("tolerance")
    if tolerance is not None and not (isinstance(tolerance, (int, float)) and 0 < tolerance < 1):
        raise TaskError(f"task.toml of {where}: tolerance = {tolerance!r} is not between 0 and 1")
    source = read_text(path / "reference.py", TaskError, "the reference")
    tree = check_reference(source, where)
    workloads = _list(settings, where)
    try:
        return Task(
            task_id=settings["name"],
            source=source,
            policy=policy or settings.get("policy", "from_scratch"),
            workloads=_workloads(workloads, defined_names(tree), where),
            precision=settings.get("precision") or stated_precision(tree, where),
            tolerance=tolerance,
            description=settings.get("description") or description_of(tree),
            provenance=Provenance(origin=settings.get("origin", path.name), licence=settings.get("licence")),
            gate=settings.get("gate"),
        )
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(p) for p in first["loc"])
        raise TaskError(f"task.toml of {where}: {name} = {first['input']!r}: {first['msg']}") from error


def _settings(path: Path) -> str:
    text = read_text(path / "task.toml", TaskError, "the task's settings")
    if len(text) > MAX_SETTINGS:
        what = f"task.toml of {str(path)!r} has {len(text)} characters"
        raise TaskError(f"{what}, and at most {MAX_SETTINGS} are read", hint="state fewer sizes")
    return text


class _GateTable(Record):
    gate: Gate


def write_gate(path: Path, gate: dict[str, Any]) -> None:
    """Puts a gate's state (the plain form of `records.Gate`) at the end of a task.toml, instead of an older one.

    Raises `TaskError` when the file cannot be written.
    """
    file = path / "task.toml"
    text = read_text(file, TaskError, "the task's settings")
    kept: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.lstrip().startswith("["):
            inside = line.split("#")[0].strip() == "[gate]"
        if not inside:
            kept.append(line)
    table = dump_config(_GateTable(gate=Gate.model_validate(gate)))
    temporary = file.with_name(f".task.toml.{os.getpid()}")
    try:
        temporary.write_text("\n".join(kept).rstrip() + "\n\n" + table, encoding="utf-8")
        os.replace(temporary, file)
    except OSError as error:
        raise TaskError(f"{str(file)!r} cannot be written: {error.strerror}", hint="check its permissions") from error


def _list(settings: dict[str, Any], where: str) -> list[Any]:
    found = settings.get("workloads", [])
    if not isinstance(found, list):
        raise TaskError(f"task.toml of {where}: workloads is not a list", hint="write [[workloads]] before each")
    return found


def _workloads(values: list[Any], defined: set[str], where: str) -> tuple[Workload, ...]:
    """Returns the declared sizes; each has a unique name and changes constants of the reference. Raises `TaskError`."""
    workloads = tuple(_workload(value, i, where) for i, value in enumerate(values))
    names = [w.name for w in workloads]
    for workload in workloads:
        if names.count(workload.name) > 1:
            raise TaskError(f"task.toml of {where} has two workloads named {workload.name!r}")
        for constant in workload.constants:
            if constant not in defined:
                raise TaskError(
                    f"workload {workload.name!r} of {where} sets {constant!r}, which reference.py does not define",
                    hint=did_you_mean(constant, defined, "name a constant at the top level of reference.py"),
                )
    return workloads


def _workload(value: Any, index: int, where: str) -> Workload:
    if not isinstance(value, dict):
        raise TaskError(f"task.toml of {where}: workload {index} is not a table")
    _known(value, _WORKLOAD_KEYS, f"workload {index} of {where}")
    return Workload(
        name=value.get("name", f"workload-{index}"),
        constants=value.get("constants", {}),
        purpose=value.get("purpose", "functional"),
    )


def _known(settings: dict[str, Any], keys: tuple[str, ...], where: str) -> None:
    for key in settings:
        if key not in keys:
            hint = did_you_mean(key, keys, f"known keys: {', '.join(keys)}")
            raise TaskError(f"{where} has an unknown key {key!r}", hint=hint)
