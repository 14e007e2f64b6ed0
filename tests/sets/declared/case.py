"""The case of this set: a right kernel with its task, and bugs that show only at the size that the task declares."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from kernelwright.records import Candidate, SourceFile, Task
from kernelwright.tasks.language import detect_language

HEAD = "import torch\nimport torch.nn as nn\n"


@dataclass(frozen=True)
class Mutant:
    """A bug: one edit of the original's text."""

    name: str
    old: str
    new: str


@dataclass(frozen=True)
class Original:
    """A right kernel. `kind` is the kind of its task, `form` how its device code is written."""

    name: str
    kind: str
    task_source: str
    text: str
    mutants: tuple[Mutant, ...]
    suffix: str = ".py"

    @property
    def form(self) -> str:
        """Returns `cu`, `load_inline` or `string`."""
        return "cu" if self.suffix == ".cu" else "load_inline" if "load_inline" in self.text else "string"

    def task(self) -> Task:
        return Task(task_id=f"declared-{self.name}", source=self.task_source)

    def candidate(self, mutant: Mutant | None = None) -> Candidate:
        """Returns the right candidate, or one with a bug."""
        text = self.text
        if mutant is not None:
            if text.count(mutant.old) != 1:
                raise ValueError(f"{self.name}/{mutant.name}: the edited text occurs {text.count(mutant.old)} times")
            text = text.replace(mutant.old, mutant.new)
        file = SourceFile(path=f"candidate{self.suffix}", content=text)
        return Candidate(sources=(file,), language=detect_language(text, self.suffix))


def task(constants: str, forward: str, inputs: str, init: str = "", setup: str = "") -> str:
    """Returns a task's source from its sizes, `ARGUMENTS | EXPRESSION`, inputs, and a constructor's arguments and
    body."""
    arguments, expression = (part.strip() for part in forward.split("|", 1))
    return (
        f"{HEAD}\n{textwrap.dedent(constants).strip()}\n\n\nclass Model(nn.Module):\n{_constructor(init, setup)}"
        f"    def forward(self, {arguments}):\n        return {expression}\n\n\ndef get_inputs():\n"
        f"    return [{inputs}]\n\n\ndef get_init_inputs():\n    return [{init}]\n"
    )


def inline(
    device: str, host: str, call: str = "ext.run(x)", arguments: str = "x", init: str = "", setup: str = ""
) -> str:
    """Returns a candidate by `load_inline`, whose host code defines `run`."""
    declared = host.strip().split("{")[0].strip() + ";"
    return (
        f"{HEAD}from torch.utils.cpp_extension import load_inline\n\n"
        f'source = r"""\n#include <torch/extension.h>\n{device.strip()}\n{host.strip()}\n"""\n'
        f'ext = load_inline(name="declared", cpp_sources="{declared}", cuda_sources=source, functions=["run"])\n\n\n'
        f"class ModelNew(nn.Module):\n{_constructor(init, setup)}    def forward(self, {arguments}):\n"
        f"        return {call}\n"
    )


def string(device: str, forward: str, arguments: str = "x", init: str = "", setup: str = "") -> str:
    """Returns a candidate with its device code in a string; `forward` is the body of its forward."""
    body = textwrap.indent(textwrap.dedent(forward).strip(), " " * 8)
    return (
        f'{HEAD}from kernelwright.cuda import Module\n\nmodule = Module(r"""\n{device.strip()}\n""")\n\n\n'
        f"class ModelNew(nn.Module):\n{_constructor(init, setup)}    def forward(self, {arguments}):\n{body}\n"
    )


def plain(device: str, host: str) -> str:
    """Returns the text of a `.cu` file whose host code defines `forward`."""
    return f"#include <torch/extension.h>\n\n{device.strip()}\n\n{host.strip()}\n"


def _constructor(init: str, setup: str) -> str:
    if not setup:
        return ""
    body = textwrap.indent(textwrap.dedent(setup).strip(), " " * 8)
    return f"    def __init__(self{', ' if init else ''}{init}):\n        super().__init__()\n{body}\n\n"
