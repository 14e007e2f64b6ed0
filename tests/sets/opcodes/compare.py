"""Compares results of the machine with those of a GPU, within the policy of the case.

A case's policy is a list of words:

* `exact`: the bits are equal. Two floating-point NaNs are equal whatever their payload and sign, since PTX leaves those
  open for most instructions.
* `bits`: the bits are equal, also those of NaNs. This is for instructions that only move or mask bits.
* `ulp N`: the results are at most N units in the last place apart. Infinities, NaNs and signs of zeros must agree.
* `rel N`, `abs N`: the results are at most 2^N apart, relative to the GPU's value or absolutely.
* `log`: for lg2.approx: at most 2^-21 apart, absolutely or relative to the GPU's value, whichever is larger.
* `high word`: the upper words of doubles are at most one unit apart. The lower word is not computed.
* `nonzero`, `divisor`, `reach`: rows that PTX leaves undefined are not compared: division by zero, division by more than
  2^126, and the set bit number -2^31, which has no magnitude.
* `cvt`: the same as `exact`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .case import Case

_UNDEFINED = ("nonzero", "divisor", "reach")
_REAL = {"f32": np.float32, "f64": np.float64, "f16": np.float16}


@dataclass(frozen=True)
class Difference:
    """The rows of a case that differ, and the worst of them in words."""

    case: str
    rows: int
    example: str
    largest: float = 0.0


def _reals(bits: np.ndarray, kind: str) -> np.ndarray:
    """Returns floating-point outputs in double precision; a pair becomes two values."""
    if kind in ("f16x2", "bf16x2"):
        bits, kind = bits.view(np.uint16), kind[:-2]
    with np.errstate(invalid="ignore"):  # signalling NaNs
        if kind == "bf16":
            return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        return np.ascontiguousarray(bits).view(_REAL[kind]).astype(np.float64)


def _is_real(kind: str) -> bool:
    return kind in _REAL or kind in ("bf16", "f16x2", "bf16x2")


def _order(values: np.ndarray, kind: str) -> np.ndarray:
    """Returns positions on the number line, in units in the last place."""
    kind = kind.removesuffix("x2")
    if kind == "bf16":
        bits = values.astype(np.float32).view(np.int32).astype(np.int64) >> 16
        low = bits & 0x7FFF
    else:
        signed = {"f16": (np.float16, np.int16, 0x7FFF), "f32": (np.float32, np.int32, 0x7FFFFFFF)}
        real, integer, mask = signed.get(kind, (np.float64, np.int64, 0x7FFFFFFFFFFFFFFF))
        bits = values.astype(real).view(integer).astype(np.int64)
        low = bits & mask
    return np.where(bits < 0, -low, low)


def _undefined(case: Case, inputs: Sequence[np.ndarray], policy: list[str]) -> np.ndarray:
    skip = np.zeros(case.count, bool)
    if "nonzero" in policy:
        skip |= inputs[1] == 0
    if "reach" in policy:
        skip |= inputs[2] == 1 << 31
    if "divisor" in policy:
        skip |= np.abs(_reals(inputs[1], "f32")) > 2.0**126
    return skip


def _close(got: np.ndarray, wanted: np.ndarray, kind: str, policy: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Tells which floating-point values agree, and how far they are apart in the policy's unit."""
    word, amount = policy[0], float(policy[1]) if len(policy) > 1 else 0.0
    finite = np.isfinite(got) & np.isfinite(wanted)
    same = (np.isnan(got) & np.isnan(wanted)) | (~finite & (got == wanted))
    with np.errstate(all="ignore"):
        if word == "ulp":
            apart = np.abs(_order(got, kind) - _order(wanted, kind)).astype(np.float64)
            # The largest number and infinity are one unit apart.
            near = (apart <= amount) & ~np.isnan(got) & ~np.isnan(wanted)
            return same | near, np.where(finite, apart, 0)
        difference = np.abs(got - wanted)
        scale = np.abs(wanted)
        limit = {"rel": 2.0**amount * scale, "abs": np.full_like(scale, 2.0**amount)}.get(
            word, np.maximum(2.0**-21, 2.0**-21 * scale)
        )
        return same | (finite & (difference <= limit)), np.where(finite, difference, 0)


def _agree(case: Case, kind: str, got: np.ndarray, wanted: np.ndarray, policy: list[str]) -> tuple[np.ndarray, float]:
    """Tells for each row whether it agrees, and returns the largest distance under a policy that allows one."""
    equal = got == wanted
    if policy[:2] == ["high", "word"]:
        high = [(v >> np.uint64(32)).astype(np.int64) for v in (got, wanted)]
        nans = np.isnan(_reals(got, kind)) & np.isnan(_reals(wanted, kind))
        return nans | (np.abs(high[0] - high[1]) <= 1), 0.0
    if "bits" in policy or not _is_real(kind):
        return equal, 0.0
    a, b = _reals(got, kind), _reals(wanted, kind)
    if policy[0] in ("ulp", "rel", "abs", "log"):
        close, apart = _close(a, b, kind, policy)
        largest = float(apart[close].max(initial=0.0))
    else:
        lanes_equal = got.view(np.uint16) == wanted.view(np.uint16) if kind.endswith("x2") else equal
        close, largest = lanes_equal | (np.isnan(a) & np.isnan(b)), 0.0
    return (close.reshape(len(got), -1).all(axis=1) | equal), largest


def compare(case: Case, got: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> Difference | None:
    """Returns the difference of the outputs, or None if they agree within the case's policy."""
    inputs = case.operands()
    policy = case.policy.split()
    skip = _undefined(case, inputs, policy)
    policy = [w for w in policy if w not in (*_UNDEFINED, "cvt", "exact")] or ["exact"]
    bad = np.zeros(case.count, bool)
    for kind, a, b in zip(case.outputs, got, wanted, strict=True):
        agrees, _ = _agree(case, kind.removeprefix("="), a, b, policy)
        bad |= ~agrees & ~skip
    if not bad.any():
        return None
    row = int(np.flatnonzero(bad)[0])
    shown = ", ".join(f"{int(column[row]):#x}" for column in inputs)
    left, right = ([f"{int(column[row]):#x}" for column in columns] for columns in (got, wanted))
    example = f"row {row}: ({shown}) gives {', '.join(left)}, the GPU {', '.join(right)}"
    return Difference(case.name, int(bad.sum()), example)


def distance(case: Case, got: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> float:
    """Returns the largest distance between values that agree, in the unit of the policy; for reports."""
    policy = [w for w in case.policy.split() if w not in (*_UNDEFINED, "cvt", "exact")] or ["exact"]
    kinds = [kind.removeprefix("=") for kind in case.outputs]
    return max(_agree(case, kind, a, b, policy)[1] for kind, a, b in zip(kinds, got, wanted, strict=True))
