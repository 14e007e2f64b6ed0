"""Tasks from data sets on the Hugging Face Hub, where the machine is online and `datasets` is installed.

    hub:OWNER/NAME[:SPLIT]        fields `code` or `reference`, `name` or `problem_id`
    kernelbench:LEVEL             ScalingIntelligence/KernelBench, split level_LEVEL

Nothing is looked up before a user asks for it by name.
"""

from __future__ import annotations

import os
from typing import Any

from kernelwright.errors import TaskError
from kernelwright.records import Policy, Provenance, Task
from kernelwright.tasks.kernelbench import check_reference, description_of

_SOURCE_FIELDS = ("code", "reference", "ref_code", "pytorch_code")
_NAME_FIELDS = ("name", "problem_id", "task_id", "id")


def load_hub(spec: str, policy: Policy | None = None, limit: int | None = None) -> list[Task]:
    """The tasks of a Hub data set. Raises `TaskError` when it cannot be had."""
    kind, _, rest = spec.partition(":")
    if kind == "kernelbench":
        if rest not in ("1", "2", "3", "4"):
            raise TaskError(f"{spec!r}: KernelBench has no level {rest!r}", hint="use kernelbench:1 to kernelbench:4")
        name, split = "ScalingIntelligence/KernelBench", f"level_{rest}"
    else:
        name, _, split = rest.partition(":")
        split = split or "train"
    if "/" not in name:
        raise TaskError(f"{spec!r} names no data set", hint="write hub:OWNER/NAME or hub:OWNER/NAME:SPLIT")
    rows = _rows(name, split)
    if not rows:
        raise TaskError(f"split {split!r} of {name} is empty")
    return [_task(row, i, f"{name}:{split}", policy) for i, row in enumerate(rows[:limit])]


def _rows(name: str, split: str) -> list[dict[str, Any]]:
    os.environ.setdefault("HF_HUB_DOWNLOAD_TIMEOUT", "20")
    os.environ.setdefault("HF_HUB_ETAG_TIMEOUT", "10")
    try:
        import datasets
    except ImportError as error:
        raise TaskError(
            f"{name} is a Hub data set, and the package `datasets` is not installed",
            hint="pip install 'kernelwright[hub]', or export the data set to JSONL and name that file",
        ) from error
    try:
        return [dict(row) for row in datasets.load_dataset(name, split=split)]
    except Exception as error:  # the library raises many kinds: offline, unknown name, unknown split, broken file
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise TaskError(
            f"the data set {name} (split {split!r}) cannot be had: {first[:200]}",
            hint="check the name and the network, or export it to JSONL on another machine and name that file",
        ) from error


def _task(row: dict[str, Any], index: int, origin: str, policy: Policy | None) -> Task:
    source = next((row[f] for f in _SOURCE_FIELDS if isinstance(row.get(f), str)), None)
    if source is None:
        raise TaskError(f"row {index} of {origin} has none of the fields {', '.join(_SOURCE_FIELDS)}")
    name = next((str(row[f]) for f in _NAME_FIELDS if row.get(f) is not None), str(index))
    check_reference(source, f"row {name}")
    return Task(
        task_id=name,
        source=source,
        policy=policy or "from_scratch",
        description=description_of(source),
        provenance=Provenance(origin=origin),
    )
