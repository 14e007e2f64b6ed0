"""One kernel with a known waste: a task, a candidate, the cause, and the marked line."""

from __future__ import annotations

from dataclasses import dataclass

MARK = "WASTE"
"""A comment in the candidate's text that marks the line of the waste."""


@dataclass(frozen=True)
class Waste:
    """A task and a candidate whose main waste is known: `cause` names its kind, `MARK` its line."""

    name: str
    cause: str
    forward: str
    inputs: str
    cuda: str
    launch: str
    """The body of the candidate's `forward(self, x, ...)`; `m` is the module."""

    @property
    def task(self) -> str:
        """Returns the reference's text."""
        arguments = ", ".join(f"x{i}" if i else "x" for i in range(len(self.inputs.split(";"))))
        made = ", ".join(f"torch.{t.strip()}" for t in self.inputs.split(";"))
        return (
            "import torch\n\n\nclass Model(torch.nn.Module):\n"
            f"    def forward(self, {arguments}):\n        return {self.forward}\n\n\n"
            f"def get_inputs():\n    return [{made}]\n\n\ndef get_init_inputs():\n    return []\n"
        )

    @property
    def candidate(self) -> str:
        """Returns the candidate's text."""
        arguments = ", ".join(f"x{i}" if i else "x" for i in range(len(self.inputs.split(";"))))
        body = "\n".join("        " + line for line in self.launch.strip("\n").splitlines())
        return (
            "import torch\n\nfrom kernelwright.cuda import Module\n\n"
            f'm = Module(r"""{self.cuda}""")\n\n\nclass ModelNew(torch.nn.Module):\n'
            f"    def forward(self, {arguments}):\n{body}\n"
        )

    @property
    def lines(self) -> tuple[int, ...]:
        """Returns the marked lines of the candidate, counted from 1."""
        return tuple(n for n, line in enumerate(self.candidate.splitlines(), 1) if MARK in line)
