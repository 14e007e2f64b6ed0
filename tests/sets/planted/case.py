"""The planted bug: a correct candidate of our own, and an edit that makes it wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from kernelwright.records import Candidate, Evaluation, SourceFile, Task

Kind = Literal[
    "dropped barrier",
    "dropped warp sync",
    "race",
    "non-atomic update",
    "uninitialised",
    "off by one",
    "missing guard",
    "wrong stride",
    "overflow of an array",
    "integer overflow",
    "divergent barrier",
    "wrong mask",
    "misalignment",
    "wrong value",
    "dropped fence",
    "missing reset",
    "wrong wait",
    "wrong layout",
    "wrong type",
    "wrong lane",
]
HEAD = "import torch\nimport torch.nn as nn\n"

RACE = ("data-race",)
BOUNDS = ("out-of-bounds-read", "out-of-bounds-write")
UNINITIALISED = ("uninitialised-read",)
VALUE = ()
"""No finding names a line: the outputs are simply wrong."""


@dataclass(frozen=True)
class Mutant:
    """One edit of a correct candidate. `old` occurs exactly once in it."""

    name: str
    kind: Kind
    old: str
    new: str
    rules: tuple[str, ...] = VALUE
    """Findings that name the bug; empty where only the values can show it."""
    at: tuple[str, ...] = ()
    """Text of the lines that take part, each as it stands in the mutant; a finding is right on any of them."""
    hidden: bool = False
    """A GPU usually gives the right values: only a finding shows it."""


@dataclass(frozen=True)
class Original:
    """A correct candidate with its task and its mutants."""

    name: str
    task_source: str
    cuda: str
    forward: str
    """Body of `forward(self, x, ...)`; the kernels are in `module`."""
    arguments: str
    mutants: tuple[Mutant, ...]

    def task(self) -> Task:
        return Task(task_id=f"planted-{self.name}", source=self.task_source)

    @property
    def source(self) -> str:
        body = "\n".join("        " + line for line in self.forward.strip().split("\n"))
        return (
            f'{HEAD}from kernelwright.cuda import Module\n\nmodule = Module(r"""\n{self.cuda.strip()}\n""")\n\n\n'
            f"class ModelNew(nn.Module):\n    def forward(self, {self.arguments}):\n{body}\n"
        )

    def candidate(self, mutant: Mutant | None = None) -> Candidate:
        """Returns the correct candidate, or one of its mutants."""
        text = self.source
        if mutant is not None:
            if text.count(mutant.old) != 1:
                raise ValueError(f"{self.name}/{mutant.name}: the edited text occurs {text.count(mutant.old)} times")
            text = text.replace(mutant.old, mutant.new)
        return Candidate(sources=(SourceFile(path="candidate.py", content=text),), language="cuda")

    def lines(self, mutant: Mutant) -> tuple[int, ...]:
        """Returns the lines of the mutant that a finding may name."""
        rows = self.candidate(mutant).text.split("\n")
        found = tuple(i for i, row in enumerate(rows, 1) if any(part in row for part in mutant.at))
        if mutant.rules and not found:
            raise ValueError(f"{self.name}/{mutant.name}: no line holds {mutant.at}")
        return found


def reference(forward: str, constants: str, inputs: str) -> str:
    """Returns a task's source from `ARGUMENTS | EXPRESSION` of its forward, its sizes, and its inputs."""
    arguments, expression = (part.strip() for part in forward.split("|", 1))
    return (
        f"{HEAD}\n{constants.strip()}\n\n\nclass Model(nn.Module):\n    def forward(self, {arguments}):\n"
        f"        return {expression}\n\n\ndef get_inputs():\n    return [{inputs}]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )


def named(original: Original, mutant: Mutant, result: Evaluation, *, first: bool = False) -> bool:
    """Tells whether a finding of the right kind names one of the bug's lines, as its own or as a race's other side.

    With `first` only the first finding counts, which is the one that decides."""
    lines = set(original.lines(mutant))
    for finding in result.findings[:1] if first else result.findings:
        told = {int(n) for n in re.findall(r"\blines? (\d+)", finding.evidence)} | {finding.line}
        if finding.rule in mutant.rules and told & lines:
            return True
    return False
