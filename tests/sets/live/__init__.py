"""Candidates whose programs depend on values, or that only a card can run: honest ones, and cheats in their manner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kernelwright.records import Candidate, SourceFile, Task

from . import cheats, cuda, tritons


@dataclass(frozen=True)
class Case:
    """A candidate on its task. `honest` ones are to be `correct`, all others anything else."""

    name: str
    source: str
    text: str
    language: Literal["cuda", "triton"]
    honest: bool

    def task(self) -> Task:
        """Returns the task."""
        return Task(task_id=f"live-{self.name}", source=self.source, policy="from_scratch")

    def candidate(self, mark: str = "") -> Candidate:
        """Returns the candidate; a `mark` makes its text differ from earlier ones'."""
        text = f"{self.text}\n# {mark}\n" if mark else self.text
        return Candidate(sources=(SourceFile(path="candidate.py", content=text),), language=self.language)


CASES = [
    *(Case(name, task, text, "cuda", True) for name, task, text in cuda.TEXTS),
    *(Case(name, task, text, "triton", True) for name, task, text in tritons.TEXTS),
    *(Case(name, task, text, "cuda", False) for name, task, text in cheats.TEXTS),
]
