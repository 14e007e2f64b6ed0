"""The honest candidates beside the attacks: the test suite's set, near misses of our own, and a folder of others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sets.honest import CASES

from kernelwright import Candidate, Task, load_candidate
from kernelwright.tasks import candidate_from_text
from redteam.near_misses import NEAR_MISSES
from redteam.pieces import Tier


@dataclass(frozen=True)
class HonestCase:
    """An honest candidate with its task; no judge may refuse it."""

    key: str
    kind: Literal["honest", "near-miss"]
    task: Task
    candidate: Candidate


def honest_cases(tier: Tier, folder: Path | None) -> Iterator[HonestCase]:
    """Yields the honest candidates that a tier can judge.

    A file of `folder` names its task in its first line, `# task: NAME`; tasks are in the sibling folder `tasks`.
    """
    for case in CASES:
        if tier == "gpu" or not case.needs:
            yield HonestCase(f"honest {case.name}", "honest", case.task(), case.candidate())
    for miss in NEAR_MISSES:
        task = Task(task_id=miss.task.name, source=miss.task.reference())
        yield HonestCase(f"near miss {miss.name}", "near-miss", task, candidate_from_text(miss.text(), miss.name))
    for path in sorted(folder.glob("*.py")) if folder else ():
        name = path.read_text().split("\n", 1)[0].removeprefix("# task:").strip()
        source = (path.parent.parent / "tasks" / f"{name}.py").read_text()
        yield HonestCase(f"folder {path.stem}", "honest", Task(task_id=name, source=source), load_candidate(path))
