"""The family of kernels: one text with places for parameters, its correct variants, and edits that make it wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kernelwright.records import Candidate, SourceFile, Task
from kernelwright.tasks.language import detect_language
from sets.honest.case import bound, inline, model, plain, task

__all__ = ["Edit", "Family", "Member", "bound", "inline", "model", "plain", "task"]

Kind = Literal[
    "index", "guard", "barrier", "operation", "init", "width", "conversion", "off-by-one", "stride", "tail", "zeroing",
    "race",
]  # fmt: skip


@dataclass(frozen=True)
class Edit:
    """A mistake: `old` becomes `new`, once, in the variants `on` (the first one when empty)."""

    kind: Kind
    old: str
    new: str
    on: tuple[str, ...] = ()


@dataclass(frozen=True)
class Member:
    """A kernel of the corpus: its task, its text, and, for a mutant, the edit that made it wrong."""

    name: str
    task_source: str
    source: str
    edit: Edit | None = None

    @property
    def right(self) -> bool:
        return self.edit is None

    def task(self) -> Task:
        return Task(task_id=f"corpus-{self.name.split('!')[0]}", source=self.task_source, policy="from_scratch")

    def candidate(self, stamp: str = "") -> Candidate:
        """Returns the candidate; a stamp makes its text unknown to every cache."""
        text = self.source + (f"\n# {stamp}\n" if stamp else "")
        files = (SourceFile(path="candidate.py", content=text),)
        return Candidate(sources=files, language=detect_language(text, ".py"), entry_point="ModelNew")


@dataclass(frozen=True)
class Family:
    """A family; `@name@` in the task and the candidate stands for a parameter of the variant."""

    name: str
    task_source: str
    source: str
    variants: Mapping[str, Mapping[str, str]]
    edits: tuple[Edit, ...]

    def right(self) -> list[Member]:
        return [
            Member(f"{self.name}-{label}", _filled(self.task_source, values), _filled(self.source, values))
            for label, values in self.variants.items()
        ]

    def mutants(self) -> list[Member]:
        """Returns one member per edit and variant; raises `ValueError` for an edit that does not fit exactly once."""
        originals = dict(zip(self.variants, self.right(), strict=True))
        found = []
        for number, edit in enumerate(self.edits):
            for label in edit.on or (next(iter(self.variants)),):
                original = originals[label]
                if original.source.count(edit.old) != 1:
                    raise ValueError(f"{original.name}: {original.source.count(edit.old)} places for {edit.old!r}")
                text = original.source.replace(edit.old, edit.new)
                found.append(Member(f"{original.name}!{number}-{edit.kind}", original.task_source, text, edit))
        return found


def _filled(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text


def small(name: str, constants: str, inputs: str, args: str, reference: str, cuda: str, body: str,
          variants: Mapping[str, Mapping[str, str]], edits: tuple[Edit, ...]) -> Family:  # fmt: skip
    """Makes a family in the plain form: CUDA text launched from Python."""
    return Family(name, task(constants, inputs, args, reference), plain(cuda, model(args, body)), variants, edits)
