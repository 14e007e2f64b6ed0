"""A forward under construction, operator by operator, of which every line may read whatever is there."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from kernelwright.generate.draft import Draft, DraftTensor, Extent


@dataclass
class DrawnProgram:
    """A forward under construction. `image`: dimension 1 has the channels, else the last one."""

    t: Draft
    x: DraftTensor
    image: bool
    values: list[DraftTensor] = field(default_factory=list)
    """What later lines may read again, inputs among them."""

    @property
    def axis(self) -> int:
        return 1 if self.image and self.x.rank > 1 else self.x.rank - 1

    def add(self, value: DraftTensor, kind: str = "value") -> None:
        """The next value; what was the last one may still be read."""
        self.values.append(self.t.named(value, kind))
        self.x = self.values[-1]

    def other(self) -> DraftTensor | None:
        """A value, an input or one of before, that broadcasts with the last one to its shape."""
        found = [
            v for v in self.values if v.text != self.x.text and v.dtype == self.x.dtype and _fits(v.shape, self.x.shape)
        ]
        return self.t.random.choice(found) if found else None

    def extent(self, axis: int) -> Extent:
        """An extent of the last value, under its name where it has one."""
        value = self.x.shape[axis]
        return next((d for d in self.t.dims if d.value == value), value)

    def finish(self) -> None:
        """The last value is the result; inputs that no line reads go."""
        read = set(re.findall(r"\w+", "\n".join([*self.t.lines, str(self.x)])))
        self.t.inputs = [one for one in self.t.inputs if one.name in read]
        self.t.finish(self.x)


def _fits(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    if len(small) > len(large):
        return False
    return all(a in (1, b) for a, b in zip(small[::-1], large[::-1], strict=False))


def number(t: Draft, low: float = 0.05, high: float = 4.0) -> str:
    """A number as people write it, in place or as an argument of the constructor."""
    value: float | int = round(t.random.uniform(low, high), t.random.choice((0, 1, 1, 2, 2, 3, 4))) or 0.5
    if t.chance(0.15):
        value = int(value) or 1
    if t.chance(0.1):
        value = t.random.choice((1e-3, 1e-4, 0.044715, 0.02, 1e-2, 1.702, 100.0, 64.0))
    names = ("alpha", "scale", "factor", "offset", "shift", "beta", "gain", "c", "coef", "temperature", "value", "p")
    return t.option(t.random.choice(names), value, default=1.0, expose=0.4 * t.style.expose)
