"""Holds a task under construction: inputs, constructor arguments, attributes and the statements of forward.

A family's function calls the methods of a `Draft`; `text.render` renders it as a file. Tensors carry their shape, so
chains and their cost are known without torch.
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from kernelwright.generate import words
from kernelwright.generate.style import Style

RESERVED = frozenset("F nn torch math Model self get_inputs get_init_inputs in is as if or and not def del for".split())
MAX_ARGUMENTS = 9
"""Constructor arguments above which further hyperparameters become literal numbers."""
MAX_NESTED = 64
"""Most characters of an expression that is nested in the next one."""


@dataclass(frozen=True, eq=False)
class Dim:
    """An extent with the name of its constant or argument."""

    name: str
    value: int
    batch: bool = False


Extent = Dim | int
Option = int | float | bool | str | tuple[int, ...] | None


def size_of(extent: Extent) -> int:
    """Returns an extent's value."""
    return extent.value if isinstance(extent, Dim) else extent


def literal(value: Option) -> str:
    """Returns an option's value as Python text, strings in double quotes."""
    return f'"{value}"' if isinstance(value, str) else repr(value)


def is_atom(text: str) -> bool:
    """Tells whether an expression can stand before a dot or beside an operator without parentheses."""
    depth = 0
    for character in text:
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif depth == 0 and character in " -":
            return False
    return True


class Stale(Exception):
    """Raised where a draft reads a variable after a new assignment, so that its text would not match its graph."""


@dataclass(frozen=True)
class DraftTensor:
    """A value of forward: the text that stands for it, and its shape."""

    text: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    versions: dict[str, int] = field(default_factory=dict, repr=False)
    version: int = 0

    def __str__(self) -> str:
        if self.versions.get(self.text, 0) != self.version:
            raise Stale(f"{self.text} has been assigned to since: a family must keep() what it reads again")
        return self.text

    @property
    def atom(self) -> str:
        """Returns the text, in parentheses where an operator or method would otherwise bind to a part."""
        return str(self) if is_atom(self.text) else f"({self})"

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Input:
    """An argument of forward, and its value in get_inputs."""

    name: str
    shape: tuple[Extent, ...]
    draw: str
    """`own`, `randn`, `rand`, `positive`, `bool`, `sign`, `probs`, `log_probs`, `tril`, `triu`, `symmetric`, `scalar`
    or `int`."""
    dtype: str = "float32"
    bound: Extent = 0
    """Exclusive upper bound of the values, for `int`."""
    value: str = ""
    """The Python number, for `scalar`."""
    note: str = ""


@dataclass(frozen=True)
class Param:
    """An argument of the constructor."""

    name: str
    value: Dim | str
    """The value in get_init_inputs: an extent, or Python text."""
    default: str | None
    annotation: str
    note: str


@dataclass
class Draft:
    """A task under construction."""

    random: Random
    style: Style
    inputs: list[Input] = field(default_factory=list)
    params: list[Param] = field(default_factory=list)
    init_lines: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    marks: list[tuple[str, str]] = field(default_factory=list)
    phrases: list[str] = field(default_factory=list)
    dims: list[Dim] = field(default_factory=list)
    flops: float = 0.0
    result: DraftTensor | None = None
    dtype: str = "float32"
    taken: set[str] = field(default_factory=lambda: set(RESERVED))
    attributes: set[str] = field(default_factory=lambda: {"training", "T", "type", "to", "half", "float", "forward"})
    modules_used: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)
    comments: dict[int, str] = field(default_factory=dict)
    odd: Random = field(default_factory=lambda: Random(0))
    """Generator of odd names, separate from `random`, so that they change no other draw."""
    oddness: float = 0.0
    """Share of names that are odd."""
    versions: dict[str, int] = field(default_factory=dict)
    """Assignments per variable of forward, so that a family cannot read an overwritten value."""

    # Choices

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def pick(self, *options: str) -> str:
        return self.random.choice(options)

    def name(self, pool: Sequence[str], taken: set[str] | None = None) -> str:
        """Takes a free name from a pool, sometimes an odd name from no pool."""
        taken = self.taken if taken is None else taken
        for _ in range(6):
            found = self.random.choice(pool)
            if found not in taken:
                break
        if len(pool) > 1 and self.odd.random() < self.oddness:
            found = self._odd_name(found)
        number = 2
        base = found
        while found in taken:
            found, number = f"{base}{number}" if base[-1].isalpha() else f"{base}_{number}", number + 1
        taken.add(found)
        return found

    # Extents and inputs

    def _odd_name(self, usual: str) -> str:
        """Draws an unpredictable name, so that a model has to read it."""
        pick = self.odd.choice
        kind = self.odd.random()
        if kind < 0.3:
            return usual + pick(words.ENDINGS)
        if kind < 0.4:
            return pick(words.WORDS)
        if kind < 0.55:
            return f"{pick(words.WORDS)}_{pick(words.WORDS)}"
        if kind < 0.8:
            return self._letters()
        return "".join(pick(words.SYLLABLES) for _ in range(pick((2, 3, 3)))) + pick(("", "", "", "4", "7"))

    def _letters(self) -> str:
        """Draws a name of random letters, which a model can only copy."""
        pick = self.odd.choice
        parts = [
            "".join(pick(words.LETTERS) for _ in range(self.odd.randint(1, 7))) for _ in range(pick((1, 1, 2, 2, 3)))
        ]
        found = "_".join(parts) + pick(("", "", "", "1", "2", "_0"))
        found = found if self.odd.random() < 0.9 else found.upper()
        return f"{found}_" if keyword.iskeyword(found) or len(found) == 1 else found

    def dim(self, role: str, value: int) -> Dim:
        """Adds an extent under a name of its role (`words.EXTENTS`)."""
        made = Dim(self.name(words.EXTENTS[role]), value, role == "batch")
        self.dims.append(made)
        return made

    def input(
        self, role: str, shape: Sequence[Extent], draw: str = "own", *, bound: Extent = 0, dtype: str = ""
    ) -> DraftTensor:
        """Adds an argument of forward; floating-point ones have the task's dtype."""
        kind = {"int": "int64", "bool": "bool"}.get(draw, dtype or self.dtype)
        made = Input(self.name(words.INPUTS[role]), tuple(shape), draw, kind, bound)
        self.inputs.append(made)
        return DraftTensor(made.name, tuple(map(size_of, shape)), kind, self.versions)

    def scalar_input(self, value: float | int) -> str:
        """Adds a Python number as an argument of forward; returns its name."""
        made = Input(self.name(words.INPUTS["scalar"]), (), "scalar", "float", value=literal(value))
        self.inputs.append(made)
        return made.name

    # Constructor

    def argument(self, extent: Extent, always: bool = False) -> str:
        """Returns an extent's text inside the constructor: its argument, or a number where the style has few arguments.

        `always`: never a number.
        """
        if not isinstance(extent, Dim):
            return str(extent)
        for param in self.params:
            if param.value is extent:
                return param.name
        if not always and self.style.expose < 0.5 and extent.value <= 128 and self.chance(0.5):
            return str(extent.value)
        self.params.append(Param(extent.name, extent, None, "int", self._note(extent.name)))
        return extent.name

    def argument_of(self, extent: int) -> str:
        """Returns an extent's text inside the constructor: the argument of a `Dim` of this value, or a number."""
        dim = next((d for d in self.dims if d.value == extent), None)
        return str(extent) if dim is None else self.argument(dim)

    def widen(self, dim: Dim, value: int) -> Dim:
        """Replaces `dim` by an extent of the same name with another value."""
        made = Dim(dim.name, value, dim.batch)
        self.dims[self.dims.index(dim)] = made
        return made

    def option(
        self,
        name: str,
        value: Option,
        *,
        default: Option | type = type,
        where: str = "forward",
        annotation: str = "",
        expose: float | None = None,
    ) -> str:
        """Returns a hyperparameter's text: a number, a constructor argument (`where="init"`) or `self.NAME`."""
        share = self.style.expose if expose is None else expose
        share *= 1.0 if len(self.params) < MAX_ARGUMENTS else 0.05
        if not self.chance(share):
            return self.number(value)
        kind = annotation or type(value).__name__
        kind = "Optional[int]" if value is None else kind
        preset = None
        if self.chance(self.style.defaults):
            preset = self.number(value if isinstance(default, type) or self.chance(0.5) else default)
        argument = self.name((name,) if name not in self.taken else words.SYNONYMS.get(name, (name,)))
        self.params.append(
            Param(argument, self.number(value), preset, kind.replace("NoneType", "int"), self._note(name))
        )
        return argument if where == "init" else self.store(argument)

    def number(self, value: Option) -> str:
        """Returns an option as Python text, in the style's quotes."""
        text = literal(value)
        return text.replace('"', self.style.quote) if isinstance(value, str) else text

    def _note(self, name: str) -> str:
        for key, notes in words.ARGUMENT_NOTES.items():
            if name.startswith(key):
                return self.random.choice(notes)
        return name.replace("_", " ")

    def store(self, argument: str, value: str = "") -> str:
        """Writes `self.NAME = argument` in the constructor; returns `self.NAME`."""
        attribute = self.name((argument,), self.attributes)
        self.init_lines.append(f"self.{attribute} = {value or argument}")
        return f"self.{attribute}"

    def module(self, pool: str, cls: str, arguments: Sequence[tuple[str, str | None]]) -> str:
        """Writes `self.NAME = nn.CLS(...)`; returns `self.NAME`.

        `arguments` are (keyword, text); a text of None omits one. Arguments before the first omitted one may be passed
        by position.
        """
        attribute = self.name(words.ATTRIBUTES[pool], self.attributes)
        self.init_lines.append(f"self.{attribute} = {self.style.module_prefix}.{cls}({self.call(arguments)})")
        return f"self.{attribute}"

    def call(self, arguments: Sequence[tuple[str, str | None]]) -> str:
        """Returns the text of arguments, some by position."""
        parts, by_position = [], True
        count = 2 if self.chance(0.5) else len(arguments) if self.chance(self.style.positional) else 0
        for number, (name, text) in enumerate(arguments):
            if text is None:
                by_position = False
                continue
            by_position = by_position and (number < count or not name)
            parts.append(text if by_position or not name else f"{name}={text}")
        return ", ".join(parts)

    def parameter(self, role: str, shape: Sequence[Extent], maker: str = "") -> DraftTensor:
        """Writes `self.NAME = nn.Parameter(torch.randn(...))`; returns the parameter."""
        attribute = self.name(words.ATTRIBUTES[role], self.attributes)
        texts = [self.argument(e) for e in shape]
        joined = ", ".join(texts)
        if len(texts) > 1 and self.chance(0.15):
            joined = f"({joined})"
        maker = maker or self.pick("torch.randn({})", "torch.randn({})", "torch.rand({})", "torch.randn({}) * 0.02")
        self.init_lines.append(f"self.{attribute} = {self.style.module_prefix}.Parameter({maker.format(joined)})")
        return DraftTensor(f"self.{attribute}", tuple(map(size_of, shape)), self.dtype)

    # Forward

    def prefix(self) -> str:
        """Returns the style's name of torch.nn.functional."""
        if self.style.functional_prefix == "F":
            self.modules_used.add("F")
        return self.style.functional_prefix

    def math(self, text: str) -> str:
        self.modules_used.add("math")
        return text

    def step(
        self, text: str, shape: Sequence[int], kind: str = "value", *, dtype: str = "", flops: float | None = None
    ) -> DraftTensor:
        """Returns a value for one read by the next operator: an expression, or the variable assigned to it."""
        value = DraftTensor(text, tuple(shape), dtype or self.dtype)
        self.flops += value.elements if flops is None else flops
        if self.style.flow == "nest" and len(text) <= MAX_NESTED:
            return value
        return self._assign(value, kind)

    def named(self, value: DraftTensor, kind: str = "value") -> DraftTensor:
        """Returns the value under a name, for several reads; later steps do not reassign the name."""
        if not value.text.isidentifier():
            value = self._assign(value, kind, fresh=True)
        self.kept.add(value.text)
        return value

    def named_once(self, value: DraftTensor) -> DraftTensor:
        """Returns the value under a name, for several reads in one step; later steps may reassign the name."""
        kept = value.text in self.kept
        value = self.named(value)
        if not kept:
            self.kept.discard(value.text)
        return value

    def keep(self, value: DraftTensor) -> DraftTensor:
        """Returns a value for later reads, under its own name or that of a copy (`residual = x`)."""
        if value.text.isidentifier() and (self.style.flow != "rebind" or self.chance(0.3)):
            self.kept.add(value.text)
            return value
        return self.named(self._assign(value, "residual", fresh=True))

    def _assign(self, value: DraftTensor, kind: str, fresh: bool = False) -> DraftTensor:
        target = self._target(value.text) if self.style.flow == "rebind" and not fresh else ""
        if not target:
            target = self.name(words.LOCALS[kind])
        if self.style.noise and self.chance(self.style.noise):
            comment = self.random.choice(words.LINE_COMMENTS)
            what = self.phrases[-1] if self.phrases else kind
            self.comments[len(self.lines)] = comment.format(n=len(self.lines) + 1, what=what)
        self.lines.append(f"{target} = {value}")
        self.versions[target] = self.versions.get(target, 0) + 1
        return DraftTensor(target, value.shape, value.dtype, self.versions, self.versions[target])

    def _target(self, text: str) -> str:
        """Returns the variable of the last step, or the first input, where this step is its last read; else empty."""
        last = self.lines[-1].split(" = ")[0] if self.lines else self.inputs[0].name
        usable = last.isidentifier() and last not in self.kept and re.search(rf"\b{last}\b", text)
        return last if usable else ""

    def mark(self, operator: str, **arguments: object) -> None:
        """Adds an operator to the signature, with its distinguishing arguments besides sizes and names."""
        shown = ",".join(f"{k}={v}" for k, v in arguments.items() if v is not None)
        self.marks.append((operator, shown))

    def say(self, phrase: str) -> None:
        """Adds a phrase for the last step, for docstrings and comments."""
        self.phrases.append(phrase)

    def finish(self, result: DraftTensor) -> None:
        self.result = result
