"""The second look: forgives few failing elements where the reference itself cannot be held to the tolerance.

Some places are ill-conditioned: the exponential of a large sum, a value within rounding of the threshold of a jump. An
honest order of operations is off there by more than `on_host` allows. `on_host` measures one run of the reference in
its own dtype, and that run is a lucky one, since torch sums in blocks. So the second look happens only if a candidate
would fail, and only with few failing elements (`few`), none of them a misplaced NaN or infinity. Then the reference is
run again in float64 on inputs and weights moved by relative noise (`tasks.inputs.nearby_outputs`): 32 units of
round-off for float32, about the backward error of an ordinary sequential sum, a hundredth of the error of TF32 and
float16. Runs come in pairs of opposite noise, p+ and p-. An element is forgiven when

    min over p in {ref, p+, p-, ...} of |out_i - p_i| <= room_i + GAIN * m

- `room_i` is the error that the first look allowed: T * scale + margin * h + s (see `on_host`).
- `m` is the movement of the element's segment: the largest min(|p+ - ref|, |p- - ref|) in it, counted only where
  opposite noise moves an element opposite ways. Smooth amplification does that. A jump moves an element one way at
  most, so one element at a jump gives its neighbours nothing.
- At a jump the first term decides: a value must be one that the reference itself takes there, and not one between.
- Integers and booleans have no room and no movement: an index must be one that a run of the reference returns there.

All failing elements must be forgiven, or the first look's verdict stands. Pairs end as soon as all are forgiven, or
when most are left after two pairs: an honest candidate costs two to four runs of the reference, another at most
2 * PAIRS.

An attacker gains little. The noise is the judge's, drawn anew for each call, and nothing of it reaches the runner.
Within the share of `few` an output may be off by as much as noise of GAIN * 2^-19 on its inputs moves it, at places
that the inputs choose: 100 times less than TF32 does, in places where two honest kernels differ by as much. That saves
no work: a skipped, stale or constant element lies near none of the runs. A lower precision fails by its other elements,
since each one must be forgiven. Values that the next lower precision holds exactly (zeros, masks, small integers, a
half) are not moved: comparing an input with its threshold stays exact, so `>=` is not `>`. The judge's own rows of
constants have no other values, so they are moved: there are more than `few` elements of such a value. Two limits
remain. If full-precision inputs meet a threshold within 2^-19, or two values are that near in an argmax, either side
passes. A candidate that needs the second look in every call costs the judge a bounded amount of time.

numpy only; it runs no code of a task or a candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kernelwright.tasks import metric

PAIRS = 8
"""A bound on the number of pairs. One pair often measures a sum's movement as small by chance; eight hardly ever do."""
GAIN = 2.0
"""The factor on the reference's movement by which an element may be off."""
SHARE = 0.01
MOST = 1 << 16
"""Bounds on the failing elements that qualify for a second look: a share of the output's elements, and a count. One
failing element always qualifies. (In a sequential matmul's softmax with 4096 terms 0.2 % fail.)"""

Values = Callable[[int], list[np.ndarray] | None]
"""Returns each doubt's values at its `places`, flat float64, for run number k: p+ of pair k // 2 when even and p- when
odd. None if the reference fails on those inputs or returns other shapes."""


def few(failing: int, size: int) -> bool:
    """Tells whether this number of failing elements qualifies for a second look."""
    return 0 < failing <= max(1, min(int(size * SHARE), MOST))


@dataclass(frozen=True)
class Doubt:
    """One output's failing elements [F] and their segments' elements [P]; complex values count as pairs."""

    output: int
    size: int
    places: np.ndarray
    """Flat indices of all elements of the segments [P], ascending."""
    starts: np.ndarray
    """The index in `places` at which each segment begins."""
    where: np.ndarray
    """The indices in `places` of the failing elements [F]."""
    segment: np.ndarray
    """The segment of each failing element [F]."""
    got: np.ndarray
    room: np.ndarray
    """The absolute error that the first look allowed each failing element [F]."""
    smooth: bool
    """True for floating outputs, whose segments' movement counts."""

    @classmethod
    def of_floats(
        cls, output: int, shape: tuple[int, ...], failing: np.ndarray, got: np.ndarray, room: np.ndarray
    ) -> Doubt:
        """Makes the doubt of a floating output of this (real) shape.

        `failing` are ascending flat indices; `got` and `room` belong to them.
        """
        places, starts = metric.around(shape, failing)
        where = np.searchsorted(places, failing)
        segment = np.searchsorted(starts, where, side="right") - 1
        size = int(np.prod(shape, dtype=np.int64))
        return cls(output, size, places, starts, where, segment, got, room, smooth=True)

    @classmethod
    def of_exact(cls, output: int, size: int, failing: np.ndarray, got: np.ndarray) -> Doubt:
        """Makes the doubt of an integer or boolean output, in which each element is a segment of its own."""
        each = np.arange(failing.size)
        return cls(output, size, failing, each, each, each, got.astype(np.float64), np.zeros(failing.size), False)


def forgiven(doubts: Sequence[Doubt], references: Sequence[np.ndarray], values: Values) -> list[int]:
    """Returns the number of forgiven failing elements of each doubt. `references` are the unmoved float64 values at
    `places`."""
    near = [np.full(d.where.size, np.inf) for d in doubts]
    moved = [np.zeros(d.starts.size) for d in doubts]
    left = [np.ones(d.where.size, dtype=bool) for d in doubts]
    for pair in range(PAIRS):
        up, down = values(2 * pair), values(2 * pair + 1)
        if up is None or down is None:
            break
        for k, (doubt, ref, plus, minus) in enumerate(zip(doubts, references, up, down, strict=True)):
            for run in (plus, minus):
                with np.errstate(invalid="ignore"):
                    near[k] = np.fmin(near[k], np.abs(doubt.got - run[doubt.where]))
            if doubt.smooth:
                moved[k] = np.maximum(moved[k], np.maximum.reduceat(_movement(plus, minus, ref), doubt.starts))
            straight = np.abs(doubt.got - ref[doubt.where])
            left[k] = np.fmin(near[k], straight) > doubt.room + GAIN * moved[k][doubt.segment]
        count, total = (sum(int(x) for x in n) for n in ([m.sum() for m in left], [m.size for m in left]))
        if not count or (pair >= 1 and count > max(4, total // 2)):
            break
    return [int((~mask).sum()) for mask in left]


def _movement(plus: np.ndarray, minus: np.ndarray, ref: np.ndarray) -> np.ndarray:
    """Returns the smaller of the distances that opposite noise moves each element in opposite directions; 0 where it
    moves one way only, or to NaN or infinity."""
    with np.errstate(invalid="ignore"):
        up, down = plus - ref, minus - ref
    both = np.where(np.sign(up) * np.sign(down) < 0, np.minimum(np.abs(up), np.abs(down)), 0.0)
    return np.where(np.isfinite(both), both, 0.0)
