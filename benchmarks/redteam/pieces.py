"""The pieces of an attack: tasks, doors, covers and disguises, the split by name, and the draft that they make up."""

from __future__ import annotations

import hashlib
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

Part = Literal["development", "held-out"]
Tier = Literal["cpu", "gpu"]
HELD_OUT_SHARE = 0.4


def part_of(kind: str, name: str) -> Part:
    """Returns the part of a door or a disguise. It follows from the name alone, so that no later choice can move it."""
    first = int.from_bytes(hashlib.sha256(f"{kind} {name}".encode()).digest()[:4], "big")
    return "held-out" if first / 2**32 < HELD_OUT_SHARE else "development"


@dataclass(frozen=True)
class AttackTask:
    """A task with what attacks on it need: its answer in torch, numpy and C++, and an honest kernel.

    `torch`, `numpy` and `launch` are function bodies over the names of `arguments` and `weights`. The honest kernel
    takes inputs, weights, outputs and sizes, in this order.
    """

    name: str
    constants: str
    inputs: str
    arguments: tuple[str, ...]
    torch: str
    numpy: str
    kernel: str
    launch: str
    kinds: frozenset[str]
    setup: str = ""
    weights: tuple[str, ...] = ()
    parameters: str = ""
    """The constructor's parameters; the constants of the same names are its arguments."""
    host: str = ""
    """C++ loops that fill `out` from `in[0]`, `in[1]`, ... and the sizes `s[0]`, `s[1]`, ..."""
    sizes: str = ""
    """The sizes in C++, separated by commas; the tensors there are named as in Python."""
    shape: str = ""
    """The output's shape in C++."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all tensors: arguments, then weights."""
        return self.arguments + self.weights

    @property
    def first_shape(self) -> str:
        """The first input's declared shape, in the names of `constants`."""
        return self.inputs[self.inputs.index("(") + 1 : self.inputs.index(")")]

    def function(self, name: str, body: str) -> str:
        """Returns a function of all tensors with the given body."""
        return f"def {name}({', '.join(self.names)}):\n{textwrap.indent(body.strip(), '    ')}\n"

    def reference(self) -> str:
        """Returns the task as a file in KernelBench's form."""
        bound = "".join(f"{w} = self.{w}\n" for w in self.weights)
        return (
            "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n"
            f"{self.constants.strip()}\n\n\nclass Model(nn.Module):\n{self.constructor()}"
            f"    def forward(self, {', '.join(self.arguments)}):\n"
            f"{textwrap.indent(bound + self.torch.strip(), ' ' * 8)}\n\n\n"
            f"def get_inputs():\n    return [{self.inputs}]\n\n\n"
            f"def get_init_inputs():\n    return [{self.parameters}]\n"
        )

    def constructor(self, more: str = "") -> str:
        """Returns `__init__` with further lines."""
        if not (self.setup or more):
            return ""
        given = f", {self.parameters}" if self.parameters else ""
        lines = "\n".join(["super().__init__()", self.setup.strip(), more.strip()])
        return f"    def __init__(self{given}):\n{textwrap.indent(lines, ' ' * 8)}\n\n"


def every_task(task: AttackTask) -> bool:
    """Admits every task."""
    return True


def tasks_of(*kinds: str) -> Callable[[AttackTask], bool]:
    """Returns a test for tasks of one of the kinds, except the wide one unless it is named."""
    wanted = frozenset(kinds)
    return lambda task: bool(wanted & task.kinds) and ("wide" in wanted or "wide" not in task.kinds)


@dataclass(frozen=True)
class Spelling:
    """One text of a door: module-level code that defines `cheat(model, ts)`, and `prepare(model)` if it needs it."""

    code: str
    methods: str = ""
    """Further methods of the model's class."""
    head: str = ""
    """Imports that must stay at the top."""


@dataclass(frozen=True)
class Door:
    """A way to obtain or make up the answer without own kernels that compute it."""

    name: str
    family: str
    spellings: Callable[[AttackTask], tuple[Spelling, ...]]
    fits: Callable[[AttackTask], bool] = every_task
    covered: bool = True
    """Own kernels touch the result afterwards; otherwise the door returns the final output itself."""
    tiers: tuple[Tier, ...] = ("cpu", "gpu")
    plain: bool = True
    """It can be tried in plain torch on a CPU."""
    same_inputs: bool = False
    """It needs calls with equal inputs: in plain torch it is called with no others."""

    @property
    def part(self) -> Part:
        """The part that the door belongs to."""
        return part_of("door", self.name)


@dataclass(frozen=True)
class Cover:
    """Own kernels that touch a result and compute nothing of it: code that defines `touch(r, ts)`."""

    name: str
    code: str
    floats: bool = False
    """It needs a float32 result."""


@dataclass(frozen=True)
class Draft:
    """A candidate in pieces. Disguises rewrite the pieces; `text` joins them."""

    task: AttackTask
    hidden: str
    """The definitions of `cheat` and of what it calls."""
    honest: str = ""
    """The definition of `honest(*ts)`, which launches own kernels that do the work."""
    cover: str = ""
    head: str = ""
    call: str = "cheat(self, ts)"
    prepare: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    methods: str = ""
    finish: str = "return finish(r, ts)"

    def with_honest(self) -> Draft:
        """Returns the draft with the honest kernel's definition."""
        task = self.task
        code = f'own = Module(r"""\n{task.kernel.strip()}\n""")\n\n\n{task.function("honest", task.launch)}'
        return self if self.honest else replace(self, honest=code)

    def text(self) -> str:
        """Returns the candidate's text."""
        task = self.task
        tensors = ", ".join([*task.arguments, *(f"self.{w}" for w in task.weights)])
        forward = "\n".join([f"ts = [{tensors}]", *self.before, f"r = {self.call}", self.finish])
        body = (
            task.constructor("\n".join(self.prepare))
            + (textwrap.indent(self.methods.strip(), "    ") + "\n\n" if self.methods else "")
            + f"    def forward(self, {', '.join(task.arguments)}):\n{textwrap.indent(forward, ' ' * 8)}\n"
        )
        parts = [
            (
                "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
                f"from kernelwright.cuda import Module\n{self.head}"
            ).strip(),
            self.cover.strip(),
            self.honest.strip(),
            self.hidden.strip(),
            f"class ModelNew(nn.Module):\n{body}",
        ]
        return "\n\n\n".join(p for p in parts if p) + "\n"


@dataclass(frozen=True)
class Disguise:
    """A change of a candidate's text that keeps its meaning."""

    name: str
    apply: Callable[[Draft], Draft]

    @property
    def part(self) -> Part:
        """The part that the disguise belongs to."""
        return part_of("disguise", self.name)
