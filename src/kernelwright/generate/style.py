"""Draws a task's style once per task: every choice that changes its text and not its computation."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

SPELLINGS = ("module", "functional", "method", "formula")


@dataclass(frozen=True)
class Style:
    """Choices of layout and spelling; see `draw` for how often each occurs."""

    spelling: str
    """Preferred form of operators: `module`, `functional`, `method` or `formula`."""
    flow: str
    """`nest`: expressions inside each other; `rebind`: `x = ...` line by line; `fresh`: a new name a line."""
    expose: float
    """Share of hyperparameters that become constructor arguments."""
    defaults: float
    """Share of constructor arguments with a default value."""
    constants: str
    """`named`, `literal` or `mixed`: extents as module-level constants or as numbers."""
    place: str
    """Where constants stand: `before` the class, `after` it, or `late` (between the input functions)."""
    shape: str
    """`dims`, `shape` (one tuple per input) or `input_shape` (a tuple after the batch)."""
    annotate: float
    """Share of arguments with a type annotation: 0, 1, or between."""
    super_long: bool
    class_doc: str
    """`none`, `line`, `lines` or `arguments`."""
    forward_doc: str
    init_doc: str
    input_doc: str
    functional_prefix: str
    """`F` or `torch.nn.functional` or `nn.functional`."""
    inputs_form: str
    """`inline`: `return [torch.rand(...)]`; `named`: a local first."""
    noise: float
    """Chance of a comment at each place for comments."""
    quote: str
    trailing_spaces: bool
    return_name: bool
    """True where the result gets a name before it is returned."""
    positional: float
    """Share of module arguments that are passed by position."""
    sampler: str
    """`randn` or `rand`: values of ordinary inputs."""
    seed_spaces: int
    """Blank lines between definitions: 1 or 2."""
    module_prefix: str
    """`nn` or `torch.nn`."""


def draw(random: Random) -> Style:
    """Draws a style, independent of the task's operators."""
    pick = random.choice
    return Style(
        spelling=pick(("module", "functional", "functional", "functional", "method", "formula")),
        flow=pick(("nest", "rebind", "rebind", "fresh")),
        expose=pick((0.0, 0.3, 0.7, 1.0, 1.0)),
        defaults=pick((0.0, 0.3, 0.6, 1.0)),
        constants=pick(("named", "named", "named", "named", "mixed", "literal")),
        place=pick(("after", "after", "after", "before", "before", "late")),
        shape=pick(("dims", "dims", "dims", "shape", "input_shape")),
        annotate=pick((0.0, 0.0, 0.5, 1.0, 1.0)),
        super_long=random.random() < 0.6,
        class_doc=pick(("none", "line", "line", "lines", "arguments", "arguments")),
        forward_doc=pick(("none", "none", "line", "arguments", "arguments")),
        init_doc=pick(("none", "none", "none", "line", "arguments")),
        input_doc=pick(("none",) * 9 + ("line",)),
        functional_prefix=pick(("F", "F", "F", "torch.nn.functional", "nn.functional")),
        inputs_form=pick(("inline", "named")),
        noise=pick((0.0, 0.0, 0.1, 0.25)),
        quote=pick(('"', "'")),
        trailing_spaces=random.random() < 0.15,
        return_name=random.random() < 0.15,
        positional=pick((0.0, 0.5, 1.0)),
        sampler=pick(("randn", "randn", "rand")),
        seed_spaces=pick((1, 1, 2)),
        module_prefix=pick(("nn",) * 9 + ("torch.nn",)),
    )
