"""Loads tasks from data sets on the Hugging Face Hub; needs a network connection and `datasets`.

    hub:OWNER/NAME[:SPLIT]        split `train` unless named
    kernelbench:LEVEL             ScalingIntelligence/KernelBench, split level_LEVEL

The library runs in a child process, so that a network that drops packets ends in a clear error after a deadline and not
in a hang. Where the Hub does not answer, only the library's cache is used. Nothing is looked up before a user names it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from kernelwright.config import number_of_environment
from kernelwright.errors import TaskError
from kernelwright.records import LibraryRule, Provenance, Task
from kernelwright.tasks.formats.jsonl import ID_FIELDS
from kernelwright.tasks.formats.kernelbench import check_reference, description_of, stated_precision, tasks_of

SOURCE_FIELDS = ("code", "reference", "ref_code", "pytorch_code")
PROBE_SECONDS = 10.0
"""Seconds within which the Hub must answer."""
TOTAL_SECONDS = 300.0
"""Seconds that a download may take; $KERNELWRIGHT_HUB_TIMEOUT changes them."""

_CHILD = """
import json, sys
import datasets
name, split, limit = json.loads(sys.argv[1])
for index, row in enumerate(datasets.load_dataset(name, split=split)):
    if limit is not None and index >= limit:
        break
    print(json.dumps(row, default=str))
"""


def load_hub(
    spec: str,
    policy: LibraryRule | None = None,
    limit: int | None = None,
    on_problem: Callable[[str], None] = lambda problem: None,
    reference_field: str | None = None,
    id_field: str | None = None,
) -> list[Task]:
    """Returns the tasks of a Hub data set; passes rows that are not tasks to `on_problem`.

    Raises `TaskError` where the data set cannot be loaded, or has no task.
    """
    name, split = _parse(spec)
    rows = _rows(name, split, limit)
    if not rows:
        raise TaskError(f"split {split!r} of {name} is empty", hint="name another split: hub:OWNER/NAME:SPLIT")
    sources = (reference_field, *SOURCE_FIELDS) if reference_field else SOURCE_FIELDS
    names = (id_field,) if id_field else ("name", *ID_FIELDS)
    origin = f"{name}:{split}"
    return tasks_of([partial(_task, row, i, origin, policy, sources, names) for i, row in enumerate(rows)], on_problem)


def _parse(spec: str) -> tuple[str, str]:
    """Returns data set and split."""
    kind, _, rest = spec.partition(":")
    if kind == "kernelbench":
        if rest not in ("1", "2", "3", "4"):
            raise TaskError(f"{spec!r}: KernelBench has no level {rest!r}", hint="use kernelbench:1 to kernelbench:4")
        return "ScalingIntelligence/KernelBench", f"level_{rest}"
    name, _, split = rest.partition(":")
    owner, slash, project = name.partition("/")
    if not (owner and slash and project):
        raise TaskError(f"{spec!r} names no data set", hint="write hub:OWNER/NAME or hub:OWNER/NAME:SPLIT")
    return name, split or "train"


def _rows(name: str, split: str, limit: int | None) -> list[dict[str, Any]]:
    if importlib.util.find_spec("datasets") is None:
        raise TaskError(
            f"{name} is a Hub data set, and the package `datasets` is not installed",
            hint="pip install 'kernelwright[hub]', or export the data set to JSONL and name that file",
        )
    environment = {**os.environ, "HF_HUB_DISABLE_TELEMETRY": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
    online = _answers()
    if not online:
        environment |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    hint = "check the name and the network, or export it to JSONL on another machine and name that file"
    seconds = _total_seconds()
    try:
        done = subprocess.run(
            [sys.executable, "-c", _CHILD, json.dumps([name, split, limit])],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired as error:
        raise TaskError(f"the data set {name} did not arrive within {seconds:g} s", hint=hint) from error
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit status {done.returncode}"]
        why = "" if online else "the Hub does not answer, and no earlier copy is usable: "
        raise TaskError(f"the data set {name} (split {split!r}) cannot be had: {why}{lines[-1][:200]}", hint=hint)
    return [json.loads(line) for line in done.stdout.splitlines()]


def _answers() -> bool:
    """Tells whether the Hub answers; False where the user has set offline mode."""
    if os.environ.get("HF_HUB_OFFLINE", "") not in ("", "0") or os.environ.get("HF_DATASETS_OFFLINE", "") not in (
        "",
        "0",
    ):
        return False
    import httpx

    try:
        httpx.head(os.environ.get("HF_ENDPOINT", "https://huggingface.co"), timeout=PROBE_SECONDS)
    except (httpx.HTTPError, httpx.InvalidURL):
        return False
    return True


@cache
def offline_where_silent() -> None:
    """Switches Hugging Face's libraries to their cache where the Hub does not answer.

    Without this, each model that is not cached costs a minute of retries. For models, which load in this process.
    """
    if not _answers():
        from huggingface_hub import constants

        os.environ["HF_HUB_OFFLINE"] = "1"  # for child processes
        constants.HF_HUB_OFFLINE = True


def _total_seconds() -> float:
    return number_of_environment("KERNELWRIGHT_HUB_TIMEOUT", 1.0, 86_400.0) or TOTAL_SECONDS


def _task(
    row: dict[str, Any],
    index: int,
    origin: str,
    policy: LibraryRule | None,
    sources: tuple[str, ...],
    names: tuple[str | None, ...],
) -> Task:
    source = next((row[f] for f in sources if isinstance(row.get(f), str)), None)
    if source is None:
        raise TaskError(
            f"row {index} of {origin} has none of the fields {', '.join(sources)}",
            hint=f"name the right one with --reference-field; there are: {', '.join(sorted(row))}",
        )
    name = next((str(row[f]) for f in names if f is not None and row.get(f) is not None), str(index))
    tree = check_reference(source, f"row {name}")
    return Task(
        task_id=name,
        source=source,
        policy=policy or "from_scratch",
        precision=stated_precision(tree, f"row {name}"),
        description=description_of(tree),
        provenance=Provenance(origin=origin),
    )
