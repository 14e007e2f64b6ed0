"""A forward under construction, operator by operator; a line may read any earlier value."""

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
    """Values that later lines may read, inputs included."""

    @property
    def axis(self) -> int:
        return 1 if self.image and self.x.rank > 1 else self.x.rank - 1

    def add(self, value: DraftTensor, kind: str = "value") -> None:
        """Adds the next value; earlier values may still be read."""
        self.values.append(self.t.named(value, kind))
        self.x = self.values[-1]

    def other(self) -> DraftTensor | None:
        """Draws an input or earlier value that broadcasts to the last one's shape."""
        found = [
            v for v in self.values if v.text != self.x.text and v.dtype == self.x.dtype and _fits(v.shape, self.x.shape)
        ]
        return self.t.random.choice(found) if found else None

    def extent(self, axis: int) -> Extent:
        """Returns an extent of the last value, as a `Dim` where it has a name."""
        value = self.x.shape[axis]
        return next((d for d in self.t.dims if d.value == value), value)

    def finish(self) -> None:
        """Makes the last value the result; drops inputs that no line reads."""
        read = set(re.findall(r"\w+", "\n".join([*self.t.lines, str(self.x)])))
        self.t.inputs = [one for one in self.t.inputs if one.name in read]
        self.t.finish(self.x)


def _fits(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    if len(small) > len(large):
        return False
    return all(a in (1, b) for a, b in zip(small[::-1], large[::-1], strict=False))


def number(t: Draft, low: float = 0.05, high: float = 4.0) -> str:
    """Draws a number as people write it, as a literal or a constructor argument."""
    value: float | int = round(t.random.uniform(low, high), t.random.choice((0, 1, 1, 2, 2, 3, 4))) or 0.5
    if t.chance(0.15):
        value = int(value) or 1
    if t.chance(0.1):
        value = t.random.choice((1e-3, 1e-4, 0.044715, 0.02, 1e-2, 1.702, 100.0, 64.0))
    names = ("alpha", "scale", "factor", "offset", "shift", "beta", "gain", "c", "coef", "temperature", "value", "p")
    return t.option(t.random.choice(names), value, default=1.0, expose=0.4 * t.style.expose)
