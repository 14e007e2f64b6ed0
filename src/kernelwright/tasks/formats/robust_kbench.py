"""Reads robust-kbench's task folders: `func_forward.py` with `config_forward.json`, and the same for the backward pass.

    func_forward.py       forward_fn, Model.forward(..., fn=forward_fn), get_inputs(**settings), input_names
    config_forward.json   {single,multi}_{input,init,shared}_configs: lists of settings, whose cross product is run
    func_backward.py      the same, with a torch.autograd.Function whose backward says what `backward` is called with

The module's text stays unchanged; an adapter appended to it (`robust_adapters`) turns it into a task in KernelBench's
format. Its inputs are the arguments that `Model.forward` passes to `fn`, which a bare `forward.cu` gets. Each setting
becomes a workload. Reading executes nothing.
"""

from __future__ import annotations

import itertools
import keyword
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kernelwright import syntax
from kernelwright.errors import TaskError, did_you_mean
from kernelwright.records import LibraryRule, Provenance, Task, Workload
from kernelwright.tasks.files import read_text
from kernelwright.tasks.formats.kernelbench import check_reference, defined_names, description_of
from kernelwright.tasks.formats.robust_adapters import BACKWARD, COMMON, DEFAULT, FORWARD

Direction = Literal["forward", "backward"]

DIRECTIONS: tuple[Direction, ...] = ("forward", "backward")
KEYS = tuple(f"{count}_{what}_configs" for count in ("single", "multi") for what in ("input", "init", "shared"))
MOST_SETTINGS = 64


@dataclass(frozen=True)
class Setting:
    """Keyword arguments of `Model` and of `get_inputs` in one run."""

    name: str
    init: dict[str, Any]
    inputs: dict[str, Any]


def is_robust_folder(path: Path) -> bool:
    """Tells whether a folder holds a task in robust-kbench's format."""
    return any((path / f"func_{way}.py").is_file() for way in DIRECTIONS)


def split_direction(text: str) -> tuple[str, Direction]:
    """Splits `FOLDER:backward` into folder and direction; forward where none is named."""
    if text.endswith(":backward"):
        return text.removesuffix(":backward"), "backward"
    return text.removesuffix(":forward"), "forward"


def load_robust(path: Path, policy: LibraryRule | None = None, direction: Direction = "forward") -> Task:
    """Returns the forward or the backward task of a folder; raises `TaskError` with the fault."""
    where = repr(str(path))
    file = path / f"func_{direction}.py"
    if not file.is_file():
        other: Direction = "forward" if direction == "backward" else "backward"
        there = (path / f"func_{other}.py").is_file()
        raise TaskError(
            f"{where} has no {file.name}",
            hint=f"name its other task: {path}:{other}" if there else "see docs/tasks.md for the format",
        )
    source = read_text(file, TaskError, "the task")
    tree = check_reference(source, f"{where} ({file.name})")
    names = defined_names(tree)
    if "forward_fn" not in names:
        raise TaskError(
            f"{file.name} of {where} defines no forward_fn",
            hint="robust-kbench's format needs forward_fn and Model.forward(..., fn=forward_fn)",
        )
    settings = _settings(path / f"config_{direction}.json", where)
    adapter, workloads = _adapted(settings, names, direction)
    task_id = path.resolve().name
    return Task(
        task_id=task_id if direction == "forward" else f"{task_id}-backward",
        source=source.rstrip("\n") + "\n" + adapter,
        policy=policy or "from_scratch",
        workloads=workloads,
        description=description_of(tree),
        provenance=Provenance(origin=f"{path.name}/{file.name}"),
        function=direction,
    )


def robust_tasks(path: Path, policy: LibraryRule | None = None) -> list[Task]:
    """Returns the forward and backward tasks that a folder has."""
    return [load_robust(path, policy, way) for way in DIRECTIONS if (path / f"func_{way}.py").is_file()]


def _settings(file: Path, where: str) -> list[Setting]:
    """Returns all settings of a configuration file: single ones first, without duplicates."""
    try:
        value = syntax.json_value(read_text(file, TaskError, "the configuration"))
    except ValueError as error:
        raise TaskError(
            f"{file.name} of {where} is not JSON: {error}", hint="see docs/tasks.md for its keys"
        ) from error
    what = f"{file.name} of {where}"
    if not isinstance(value, dict):
        raise TaskError(f"{what} is not a JSON object", hint=f"known keys: {', '.join(KEYS)}")
    for key in value:
        if key not in KEYS:
            hint = did_you_mean(key, KEYS, f"known keys: {', '.join(KEYS)}")
            raise TaskError(f"{what} has an unknown key {key!r}", hint=hint)
    configs = {key: _configs(value[key], key, what) for key in KEYS if key in value}
    found = _product(configs, "single", what)
    if any(key.startswith("multi_") for key in configs):
        found += [s for s in _product(configs, "multi", what) if not any(_same(s, one) for one in found)]
    return found


def _same(one: Setting, other: Setting) -> bool:
    return (one.init, one.inputs) == (other.init, other.inputs)


def _configs(value: Any, key: str, what: str) -> list[dict[str, Any]]:
    """Returns one list of settings; a single object stands for a list of one."""
    found = [value] if isinstance(value, dict) else value
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise TaskError(f"{what}: {key} is no list of objects", hint='write it as [{"batch_size": 16}, ...]')
    for one in found:
        for name, setting in one.items():
            if not name.isidentifier() or keyword.iskeyword(name):
                raise TaskError(f"{what}: {key} has {name!r}, which can be no argument", hint="use Python names")
            if not _is_plain(setting):
                raise TaskError(
                    f"{what}: {name} in {key} is {str(setting)[:80]}", hint="use finite numbers, texts or lists of them"
                )
    return found or [{}]


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(_is_plain(one) for one in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, (bool, int, str))


def _product(configs: dict[str, list[dict[str, Any]]], count: str, what: str) -> list[Setting]:
    """Returns the cross product; the single form of a key replaces a missing multiple form."""
    lists = [
        configs.get(f"{count}_{part}_configs", configs.get(f"single_{part}_configs", [{}]))
        for part in ("init", "input", "shared")
    ]
    total = len(lists[0]) * len(lists[1]) * len(lists[2])
    if total > MOST_SETTINGS:
        raise TaskError(f"{what} gives {total} settings, more than {MOST_SETTINGS}", hint="shorten one of its lists")
    return [
        Setting(count if total == 1 else f"{count}-{i}", {**init, **shared}, {**inputs, **shared})
        for i, (init, inputs, shared) in enumerate(itertools.product(*lists))
    ]


def _adapted(settings: Sequence[Setting], taken: set[str], way: Direction) -> tuple[str, tuple[Workload, ...]]:
    """Returns the text to append to the module, and the settings as workloads over its constants.

    The first setting's values become top-level constants. Where all settings agree,
    `Model` and `get_inputs` share the constant of an argument. The first setting is also the timed one.
    """
    tables: dict[str, dict[str, str]] = {"init": {}, "inputs": {}}
    values: dict[str, list[Any]] = {}
    for role, argument in _arguments(settings):
        column = [getattr(s, role).get(argument, DEFAULT) for s in settings]
        constant = argument
        if constant in values and values[constant] != column:
            constant = f"{role}_{argument}"
        while constant in taken:
            constant = f"setting_{constant}"
        tables[role][argument] = constant
        values[constant] = column
    lines = [f"{name} = {column[0]!r}" for name, column in values.items()]
    text = COMMON.format(constants="\n".join(lines), init=tables["init"], inputs=tables["inputs"], default=DEFAULT)
    workloads = [
        Workload(name=s.name, constants={n: c[i] for n, c in values.items() if c[i] != c[0]})
        for i, s in enumerate(settings)
    ]
    timed = Workload(name=settings[0].name, purpose="timing")
    return text + (FORWARD if way == "forward" else BACKWARD), (*workloads, timed)


def _arguments(settings: Sequence[Setting]) -> list[tuple[str, str]]:
    """Returns (role, argument) pairs in order of first use."""
    return list(
        dict.fromkeys((role, name) for s in settings for role in ("inputs", "init") for name in getattr(s, role))
    )
