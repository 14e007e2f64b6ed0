"""Rejects candidates that let torch's operators do a task which only moves values.

The oracle tells what the reference has computed for each output and what it has only moved (`Movement`). In an output
of moved values alone, each element that is not where its input has it must be put there by the candidate's kernels. A
kernel that only copies, in longer pieces than the task's own, what operators have rearranged does not count; nor does
a kernel that copies an input which operators then rearrange. Where the reference computes anything, operators may move
the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kernelwright.evaluation.tensor_bytes import ITEM_SIZES, SMALL_FLOATS, TensorBytes
from kernelwright.evaluation.trials import Kept, Movement

COPIED_SHARE = 0.9
"""The share of an output's elements that must be among what operators moved, so that kernels may have copied them."""
COARSE, FINER = 16, 2
"""Kernels that copy in pieces `COARSE` times as long as the task's, on average, leave the rearranging to operators:
they copy rows of what these have transposed. Kernels whose results lie in pieces `FINER` times as long have done a part
of it before operators moved them."""
RAW = "uint8"
"""The dtype in which the device keeps what the host copies by address."""
_PROBES = 64
_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@dataclass(frozen=True)
class Expected:
    """A reference's outputs in float64 and in the task's dtype, and the outputs that are views of inputs."""

    exact: Sequence[TensorBytes]
    honest: Sequence[TensorBytes]
    handed: Sequence[Sequence[int]]

    @property
    def nbytes(self) -> list[int]:
        """Returns the bytes of each output in the task's dtype."""
        return [len(t.data) for t in self.honest]

    def words(self, number: int) -> np.ndarray | None:
        """Returns the bits of an output's elements in the task's dtype, flat; None for elements of 16 bytes and for
        8-bit floats. The honest output will not do: its inputs may have been moved by half a unit in the last place."""
        return _rounded(self.exact[number], self.honest[number].dtype)


def moved_by_operators(
    made: Sequence[dict[str, int]],
    moved_bytes: int,
    expected: Expected,
    few: int,
    reference: Callable[[], list[Movement]],
    moved: Callable[[], Kept],
) -> str:
    """Explains how operators did the work of an output that the reference only moves; empty if they did not.

    `made` counts each output's elements by label. `few` elements may be glue's work. `reference` asks the oracle, and
    `moved` asks the device for copies of what operators moved; both only if needed.
    """
    enough = [moved_bytes >= COPIED_SHARE * size for size in expected.nbytes]
    suspects = [
        k
        for k, (one, all_of_it) in enumerate(zip(made, enough, strict=False))
        if max(by_operators(one), one.get("carried", 0)) > few or (all_of_it and sum(one.values()) > few)
    ]
    known = reference() if suspects else []
    views = {output for output, _ in expected.handed}
    working = {k for k, one in enumerate(known) if one.computed or (one.rearranged and k not in views)}
    for k in suspects:
        one = known[k]
        if one.computed or one.rearranged <= few or (k in views and working - {k}):
            continue
        if by_operators(made[k]) - one.unchanged > few:
            return f"output {k} holds {by_operators(made[k])} elements that torch's operators moved there from inputs"
        carried = made[k].get("carried", 0)
        want = expected.words(k) if enough[k] or carried > few else None
        dtype = expected.honest[k].dtype
        if want is not None and (how := _undone(want, dtype, one, moved(), carried if carried > few else 0)):
            return f"output {k} is what torch's operators moved: {how}"
    return ""


def by_operators(made: dict[str, int]) -> int:
    """Returns the number of an output's elements that are an input's, or that operators moved out of inputs."""
    return made.get("moved", 0) + made.get("given", 0)


def _undone(want: np.ndarray, dtype: str, known: Movement, kept: Kept, carried: int) -> str:
    """Tells what kernels have left to operators of an output, of which operators have moved `carried` elements after
    kernels had stored them; empty if kernels did the work."""
    if kept.full:
        return "they moved more than can be followed"
    if how := _longer(want, known, kept.inputs, COARSE):
        return f"kernels only copied it {how}"
    by_way = not carried and _longer(want, known, kept.carried, COARSE)
    if (carried or by_way) and not _longer(want, known, _cast(kept.sources, dtype), FINER, carried):
        return "kernels had only copied inputs for them"
    return ""


def _longer(want: np.ndarray, known: Movement, memory: Sequence[TensorBytes], times: int, least: int = 0) -> str:
    """Tells in how many pieces an output lies in memory, if they are so many times as long as the task's; empty if they
    are not, or if fewer than `COPIED_SHARE` of `least` elements are there, by default of all."""
    mask = known.moved if known.moved is not None else np.ones(len(want), bool)
    total = int(np.count_nonzero(mask))
    parts = [words for t in memory if (words := _words(t.data, want.itemsize)) is not None]
    for group in _groups(parts):
        count = min(len(group), len(want))
        same = (group[:count] == want[:count]) & mask[:count]
        if np.count_nonzero(same) >= COPIED_SHARE * total:
            return "in order"
        pieces, found = _pieces(want[mask], group)
        if found >= COPIED_SHARE * min(least or total, total) and pieces * times * total < known.pieces * found:
            return f"in {pieces} pieces, where the task has {known.pieces}"
    return ""


def _cast(stored: Sequence[TensorBytes], dtype: str) -> list[TensorBytes]:
    """Returns what kernels had stored in an output's dtype: an operator that casts it leaves it where it was. A copy by
    address has bytes of no dtype, which come as they are, too."""
    cast = []
    for one in stored:
        words = None if one.dtype in (dtype, *SMALL_FLOATS) else _rounded(one, dtype)
        if words is None or one.dtype == RAW:
            cast.append(one)
        if words is not None:
            cast.append(TensorBytes(words.tobytes(), dtype, one.shape))
    return cast


def _rounded(tensor: TensorBytes, dtype: str) -> np.ndarray | None:
    """Returns the bits of a tensor's elements in a dtype, flat; None for elements of 16 bytes and for 8-bit floats."""
    if dtype in SMALL_FLOATS:
        return None
    values = tensor.array().reshape(-1)
    if dtype == "bfloat16":
        bits = values.astype(np.float32).view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    with np.errstate(all="ignore"):
        return _words(np.ascontiguousarray(values.astype(dtype)).tobytes(), ITEM_SIZES[dtype])


def _words(data: bytes | bytearray | memoryview, size: int) -> np.ndarray | None:
    if size not in _WORDS or len(data) % size or not len(data):
        return None
    return np.frombuffer(data, dtype=_WORDS[size])


def _groups(parts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Joins pieces of moved tensors that hold different values, so that no group has the same tensor twice."""
    if not parts:
        return []
    words = np.concatenate(parts)
    owners = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    order = np.argsort(words, kind="stable")
    words, owners = words[order], owners[order]
    first = np.append(True, (np.diff(owners) != 0) | (words[1:] != words[:-1]))  # of its word in its part
    words, owners = words[first], owners[first]
    group_of = np.full(len(parts), -1)
    for number, part in enumerate(parts):
        probe = part[:: max(1, len(part) // _PROBES)][:_PROBES]
        bounds = zip(np.searchsorted(words, probe), np.searchsorted(words, probe, "right"), strict=True)
        holders = np.concatenate([owners[low:high] for low, high in bounds])
        alike = np.bincount(holders, minlength=len(parts)) > 0.5 * len(probe)
        taken = set(group_of[:number][alike[:number]].tolist())
        group_of[number] = next(group for group in range(number + 1) if group not in taken)
    members = [np.flatnonzero(group_of == group) for group in range(group_of.max() + 1)]
    return [np.concatenate([parts[int(n)] for n in numbers]) for numbers in members]


def _pieces(want: np.ndarray, source: np.ndarray) -> tuple[int, int]:
    """Returns the number of pieces in which wanted elements follow one another as in the source, forwards or
    backwards, and the number of elements that are in it."""
    order = np.argsort(source, kind="stable")
    ordered = source[order]
    at = np.searchsorted(ordered, want).clip(max=len(ordered) - 1)
    places = order[at][ordered[at] == want]
    return int(np.count_nonzero(np.abs(np.diff(places)) != 1)) + 1, len(places)
