"""Holds the task that a chain's pieces write together, and turns it into text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from random import Random

FLOAT_BYTES = 4


@dataclass
class Draft:
    """A task under construction. `variable` is forward's running value; `shape` holds its extents, batch first."""

    random: Random
    variable: str = "x"
    shape: tuple[int, ...] = ()
    channel_axis: int = 1
    """The axis that weights belong to: 1 for maps (batch, channels, *extents), -1 for rows (…, features)."""
    channels: str = ""
    """The constant that holds the extent of the channel axis."""
    centred: frozenset[int] = frozenset()
    """Axes along which the value has a fixed mean: a mean over them would be a constant."""
    balanced: bool = True
    """True where values lie on both sides of zero, near 1 in size. Elsewhere a bound or a saturating function may leave
    a constant."""
    bounds: frozenset[str] = frozenset()
    """Ends (`low`, `high`) at which many values may lie: the least or the largest would be a constant."""
    constants: dict[str, int | float] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)
    """Constants that the constructor takes, in order."""
    modules: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    inputs: list[tuple[str, str]] = field(default_factory=list)
    """Name and expression of each of forward's inputs."""
    elements: int = 0
    """Elements of inputs and results of products and convolutions."""
    weights: int = 0
    """Elements of the weights of products and convolutions."""
    flops: int = 0
    """Operations of the leading product or convolution; a multiply-add counts as two."""
    kinds: list[str] = field(default_factory=list)

    @property
    def axis(self) -> int:
        """The channel axis, counted from the front."""
        return self.channel_axis % len(self.shape)

    @property
    def extents(self) -> tuple[int, ...]:
        """The axes behind a map's channels; none for rows."""
        return tuple(range(2, len(self.shape))) if self.channel_axis == 1 else ()

    def size(self, *choices: int) -> int:
        """Returns one of the sizes."""
        return self.random.choice(choices)

    def word(self, *choices: str) -> str:
        """Returns one of the spellings."""
        return self.random.choice(choices)

    def chance(self, share: float) -> bool:
        """Returns True in a share of the calls."""
        return self.random.random() < share

    def extent(self, name: str) -> int:
        """Returns a constant's value."""
        return int(self.constants[name])

    def constant(self, name: str, value: int | float, *, argument: bool = True) -> str:
        """Adds a constant at the top of the file and returns its name, with a number where the name is taken."""
        chosen, number = name, 2
        while chosen in self.constants:
            chosen, number = f"{name}_{number}", number + 1
        self.constants[chosen] = value
        if argument:
            self.arguments.append(chosen)
        return chosen

    def module(self, name: str, expression: str) -> str:
        """Adds an attribute of the model and returns `self.NAME`."""
        chosen, number = name, 2
        while any(line.startswith(f"self.{chosen} =") for line in self.modules):
            chosen, number = f"{name}{number}", number + 1
        self.modules.append(f"self.{chosen} = {expression}")
        return f"self.{chosen}"

    def set(self, expression: str, shape: Sequence[int] | None = None) -> None:
        """Makes the running value an expression in which `{}` stands for the old value."""
        self.lines.append(f"{self.variable} = {expression.format(self.variable)}")
        if shape is not None:
            self.shape = tuple(shape)

    @property
    def bytes(self) -> int:
        """Bytes of inputs, weights and results of products and convolutions."""
        return FLOAT_BYTES * (self.elements + self.weights)

    def source(self) -> str:
        """Returns the task in KernelBench's format."""
        constants = "\n".join(f"{name} = {value!r}" for name, value in self.constants.items())
        given = ", ".join(["self", *self.arguments])
        made = "\n".join(f"        {line}" for line in ["super().__init__()", *self.modules])
        body = "\n".join(f"        {line}" for line in [*self.lines, f"return {self.variable}"])
        names = ", ".join(["self", *(name for name, _ in self.inputs)])
        inputs = ", ".join(expression for _, expression in self.inputs)
        return (
            f"import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n{constants}\n\n\n"
            f"class Model(nn.Module):\n    def __init__({given}):\n{made}\n\n    def forward({names}):\n{body}\n\n\n"
            f"def get_inputs():\n    return [{inputs}]\n\n\n"
            f"def get_init_inputs():\n    return [{', '.join(self.arguments)}]\n"
        )

    def input(self, name: str, extents: Sequence[str]) -> None:
        """Adds an input of named extents; the first one is the running value's."""
        shape = [self.extent(e) for e in extents]
        self.inputs.append((name, f"{self.word('torch.randn', 'torch.rand')}({', '.join(extents)})"))
        self.elements += prod(shape)
