"""Compares a candidate's outputs with the expected ones in the judge. numpy only; no candidate code, no torch.

Method. Count, shapes and dtypes must be exact. Integers and booleans must equal the reference's, in float64 or in its
own dtype. NaN and infinities must sit where the reference has them. A floating element passes when

    |out_i - ref_i| <= T * (|ref_i| + rms of its segment) + margin * h + s

- `ref` is the reference in float64. A segment is about 64 neighbours within a row (`tasks.metric`).
- `T` comes from the declared dtype. `TOLERANCES` holds two bounds per dtype: an ordinary one for an ordinary honest
  implementation (sequential float32 sums over thousands of values, two-pass or Welford variance, online softmax, fast
  exponentials), and a strict one. The ruler `low_error` is the error of the same reference on inputs and weights
  rounded to the next lower precision. It pulls T down to half of itself, but never below the strict bound. If the ruler
  is below even the strict bound (sums that average rounding away), these inputs cannot tell the precisions apart and T
  stays at the ordinary bound.
  Sums of n terms add 3 u sqrt(n), with the rounding unit u: the random walk of an accumulator that goes from first to
  last has a standard deviation of 0.4 u sqrt(n), and a large output has elements at six of them. The judge knows n at a
  task's own size on a GPU, and takes 1 elsewhere.
- `h` is the largest error of the honest run (the reference in its own dtype) within the segment; `margin` is `MARGIN`.
  So an ill-conditioned place gets the headroom that it needs, and no other place does.
- `s` is the smallest normal number of the dtype (one subnormal step for float16): results may be flushed to zero. For
  8-bit floats it is half the distance of their neighbours at ref, which is not yet rounded, and `h` counts beyond that.

No share of elements is allowed to fail, so failures cannot hide by clustering. A task's own `tolerance` replaces T.
When few elements fail, `second_look` tests whether the reference moves as far when its inputs move by rounding. Only
then are they forgiven, and the result counts them. This module does not choose inputs: a shortcut that is right for one
distribution must be caught by another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kernelwright.evaluation.compare import product_look, second_look
from kernelwright.evaluation.tensor_bytes import SMALL_FLOATS, TensorBytes
from kernelwright.evaluation.trials import ProductRuns
from kernelwright.records import Errors
from kernelwright.tasks import metric

MARGINS: dict[str, float] = {"float16": 4.0, "bfloat16": 2.0}
MARGIN = 8.0
"""The factor on the honest run's own error that a candidate may be off beyond T. Smaller for 16-bit dtypes: there the
honest error is mostly the rounding of the result, and the next lower precision is only 8 times coarser than bfloat16.
"""

TF32_MARGIN = 1.0
"""The factor where TF32 plays a part: T then holds the error of honest runs already."""
SLACK = (1.2, 2.0)
"""Factors on the largest error of honest TF32 runs that the strict and the ordinary bound add under `tf32`."""

TOLERANCES: dict[str, tuple[float, float]] = {
    "float64": (1e-12, 1e-10),
    "float32": (3e-5, 1e-4),
    "float16": (1e-3, 4e-3),
    "bfloat16": (1e-2, 3e-2),
    "complex64": (3e-5, 1e-4),
    "complex128": (1e-12, 1e-10),
    **dict.fromkeys(SMALL_FLOATS, (1e-3, 1e-2)),
}
"""The strict bound and the ordinary bound on the relative error, per dtype."""

UNITS: dict[str, float] = {"float32": 2.0**-24, "complex64": 2.0**-24, "float64": 2.0**-53, "complex128": 2.0**-53}
"""The rounding unit in which an honest kernel sums, per dtype; half types sum in float32."""
MOST_TERMS = 2.0**20
"""The longest sum that an honest kernel keeps in one accumulator."""

FLUSH: dict[str, float] = {
    "float64": 2.3e-308,
    "float32": 1.2e-38,
    "float16": 6.0e-8,
    "bfloat16": 1.2e-38,
    "complex64": 1.2e-38,
    "complex128": 2.3e-308,
    **dict.fromkeys(SMALL_FLOATS, 0.0),
}
LARGEST: dict[str, float] = {
    "float16": 65504.0,
    "bfloat16": 3.39e38,
    "float32": 3.4028235e38,
    "complex64": 3.4028235e38,
}


@dataclass(frozen=True)
class Ruler:
    """The measurements that T depends on, beside the dtype."""

    low: float | None = None
    """The reference's error at the next lower precision."""
    length: float = 1.0
    """The number of terms of the task's sums."""
    slack: float | None = None
    """Under `tf32`, the largest relative error of honest TF32 runs; None where TF32 plays no part."""


Nearby = Callable[[int], Sequence[Any] | None]
"""Returns the reference's outputs in float64 on inputs moved by noise, by the number of the second look's run; None if
the reference fails on those inputs."""
Taken = Callable[[Sequence[Any], Sequence[second_look.Doubt]], list[np.ndarray]]


@dataclass(frozen=True)
class Array:
    """One output of a candidate: the values, and the dtype by torch's name."""

    values: np.ndarray
    dtype: str

    @classmethod
    def of(cls, tensor: TensorBytes) -> Array:
        """Reads raw bytes; bfloat16 is widened to float32, which holds it exactly."""
        return cls(tensor.array(), tensor.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape)


@dataclass(frozen=True)
class OutputSpec:
    """The dtype (torch's name) and shape that one output must have."""

    dtype: str
    shape: tuple[int, ...]
    input_scale: float = 1.0
    """Typical size of the inputs: the scale for an output that is zero throughout."""
    name: str = ""
    """The name in messages: `output 0`, or `input 1 after the call`."""
    own: tuple[float, float] | None = None
    """The reference's own largest and root mean square error (`metric.summary`)."""
    slack: float | None = None
    """Under `tf32`, the largest relative error of honest TF32 runs; None where TF32 plays no part."""


@dataclass(frozen=True)
class Comparison:
    """The result for all outputs; errors and tolerance are those of the worst one.

    `max_rel_error` is relative to |reference| plus its segment's size. The absolute headroom (h and s in the module's
    docstring) counts into that size, so that the error can be compared with `tolerance`. `honest_error` is the error of
    the honest run, relative to |reference| plus its segment's size. Errors are None when count, shape or dtype differ.
    Forgiven elements count in the errors, which then exceed the tolerance.
    """

    passed: bool
    max_abs_error: float | None
    max_rel_error: float | None
    tolerance: float | None
    reason: str = ""
    honest_error: float | None = None
    forgiven: int = 0
    """Elements that failed at first and were forgiven by the second look."""
    errors: Errors | None = None
    """The errors of the output with the largest."""
    doubt: second_look.Doubt | None = field(default=None, compare=False, repr=False)
    """The failures that a second look could forgive, for a caller that can run the reference again."""


def compare(
    outputs: Sequence[Array],
    expected: Sequence[np.ndarray],
    honest: Sequence[np.ndarray] | None,
    spec: Sequence[OutputSpec],
    tolerance: float | None = None,
    low_error: Sequence[float | None] | float | None = None,
    nearby: Nearby | None = None,
    products: ProductRuns | None = None,
) -> Comparison:
    """Compares a candidate's outputs with the reference's.

    `expected` holds the reference in float64 (integers and booleans as they are), `honest` the reference in its own
    dtype, `low_error` one ruler per output (or one for all). `nearby` gives, for the second look's run k, the reference
    in float64 on inputs moved by noise; without it there is no second look. `products` are for the look at products.
    Raises nothing, whatever a candidate returns.
    """
    if len(outputs) != len(spec):
        inputs = sum(not s.name.startswith("output") for s in spec if s.name)
        counts = len(spec) - inputs, max(0, len(outputs) - inputs)
        return _refused(f"the reference returns {_count(counts[0])}, the candidate {counts[1]}")
    names = [s.name or f"output {i}" for i, s in enumerate(spec)]
    for name, out, want in zip(names, outputs, spec, strict=True):
        if tuple(out.shape) != tuple(want.shape):
            return _refused(f"{name} has shape {list(out.shape)}, expected {list(want.shape)}")
        if out.dtype != want.dtype:
            return _refused(f"{name} has dtype {out.dtype}, expected {want.dtype}")
    results = []
    for i, (out, want) in enumerate(zip(outputs, spec, strict=True)):
        reference = np.asarray(expected[i])
        own = None if honest is None else np.asarray(honest[i])
        if want.dtype in TOLERANCES:
            results.append(_floats(i, names[i], out.values, reference, own, want, tolerance, _ruler(low_error, i)))
        else:
            results.append(_exact(i, names[i], out.values, reference, own))
    if not results:
        return _refused("the reference returns no output")
    if nearby is not None:
        results = looked_twice(results, [np.asarray(e) for e in expected], nearby, _taken)
    results = [_summed(*four) for four in zip(results, outputs, expected, spec, strict=True)]
    if products is not None and tolerance is None and honest is not None and all(r.passed for r in results):
        for k, (result, own, ref) in enumerate(zip(results, honest, expected, strict=True)):
            if spec[k].dtype == "float32":
                wide = metric.summary(np.asarray(own), np.asarray(ref))[1]
                results[k] = looked_at_products(k, names[k], result, ref.size, wide, products)
    failed = [r for r in results if not r.passed]
    worst = failed[0] if failed else max(results, key=_pressure)
    errors = [r.errors for r in results if r.errors is not None]
    return replace(worst, errors=max(errors, key=lambda e: e.largest, default=None))


def _summed(result: Comparison, out: Array, reference: np.ndarray, want: OutputSpec) -> Comparison:
    """Returns the result with the errors of a floating output."""
    if out.dtype not in TOLERANCES or not out.values.size:
        return result
    return replace(result, errors=errors_of(metric.summary(out.values, np.asarray(reference)), want.own))


def errors_of(candidate: tuple[float, float], own: tuple[float, float] | None) -> Errors:
    """Returns the record of a candidate's errors and the reference's own."""
    more = {"reference_largest": own[0], "reference_rms": own[1]} if own else {}
    return Errors(largest=candidate[0], rms=candidate[1], **more)


def looked_at_products(
    output: int, name: str, result: Comparison, elements: int, honest: float, runs: ProductRuns
) -> Comparison:
    """Returns a passed result as failed, if its error is that of products in a lower precision (`product_look`).

    `honest` is the reference's root mean square error in its own precision, or on inputs moved by rounding.
    """
    if result.errors is None or not result.passed:
        return result
    reason = product_look.coarse(output, elements, result.errors.rms, honest, runs)
    return replace(result, passed=False, reason=f"{name}: {reason}") if reason else result


def looked_twice(results: list[Comparison], expected: Sequence[Any], nearby: Nearby, taken: Taken) -> list[Comparison]:
    """Returns the results after a second look, if every failed output qualifies for one; otherwise returns them
    unchanged.

    `expected` are the reference's outputs in float64, `nearby` returns them on moved inputs, and `taken` picks the
    values that a doubt needs from either (arrays here, tensors on a device in `on_device`).
    """
    failed = [r for r in results if not r.passed]
    doubts = [r.doubt for r in failed if r.doubt is not None]
    if not failed or len(doubts) < len(failed):
        return results

    def values(run: int) -> list[np.ndarray] | None:
        outputs = nearby(run)
        if outputs is None or [tuple(o.shape) for o in outputs] != [tuple(e.shape) for e in expected]:
            return None
        return taken(outputs, doubts)

    counts = second_look.forgiven(doubts, taken(expected, doubts), values)
    judged = iter(_settled(failed, counts, [d.where.size for d in doubts]))
    return [r if r.passed else next(judged) for r in results]


def _settled(failed: list[Comparison], counts: list[int], totals: list[int]) -> list[Comparison]:
    """Returns failed results after a second look that forgave `counts` of `totals` elements: all pass, or none does."""
    if counts == totals:
        return [replace(r, passed=True, reason="", forgiven=n) for r, n in zip(failed, counts, strict=True)]
    return [
        replace(r, reason=f"{r.reason}; {n} of them lie within the reference's own rounding") if n else r
        for r, n in zip(failed, counts, strict=True)
    ]


def _taken(outputs: Sequence[np.ndarray], doubts: Sequence[second_look.Doubt]) -> list[np.ndarray]:
    return [metric.as_real(outputs[d.output]).reshape(-1)[d.places] for d in doubts]


def bound(dtype: str, low_error: float | None, length: float = 1.0, slack: float | None = None) -> float:
    """Returns T for a dtype, a ruler and sums of `length` terms, as the module's docstring defines it. `slack` is the
    largest relative error of honest TF32 runs under that policy, else None."""
    strict, ordinary = TOLERANCES[dtype]
    strict, ordinary = strict + SLACK[0] * (slack or 0.0), ordinary + SLACK[1] * (slack or 0.0)
    unit = UNITS.get(dtype, UNITS["float32"])
    rounding = 3 * unit * min(length, MOST_TERMS) ** 0.5 if length > 1 else 0.0
    if low_error is None or not low_error > strict:
        return ordinary + rounding
    return min(ordinary, max(strict, low_error / 2)) + rounding


def margin(dtype: str, slack: float | None = None) -> float:
    """Returns the factor on the honest run's own error."""
    return TF32_MARGIN if slack else MARGINS.get(dtype, MARGIN)


def _ruler(low_error: Sequence[float | None] | float | None, index: int) -> float | None:
    if low_error is None or isinstance(low_error, (int, float)):
        return low_error
    return low_error[index] if index < len(low_error) else None


def _count(n: int) -> str:
    return f"{n} output" + ("" if n == 1 else "s")


def _refused(reason: str) -> Comparison:
    return Comparison(False, None, None, None, reason)


def _pressure(result: Comparison) -> float:
    return (result.max_rel_error or 0.0) / result.tolerance if result.tolerance else 0.0


def _exact(index: int, name: str, out: np.ndarray, reference: np.ndarray, own: np.ndarray | None) -> Comparison:
    wrong = out != reference
    if own is not None:  # an index may depend on rounding, and a candidate need not be more exact than the reference
        wrong &= out != own
    if not wrong.any():
        return Comparison(True, 0.0, 0.0, 0.0)
    difference = np.abs(out.astype(np.float64) - reference.astype(np.float64))
    where = _first(wrong)
    text = f"{name} ({out.dtype}) differs at {list(where)}: got {out[where]}, expected {reference[where]}"
    relative = float(difference.max() / max(float(np.abs(reference.astype(np.float64)).max()), 1.0))
    places, doubt = np.flatnonzero(wrong), None
    if second_look.few(places.size, wrong.size):
        doubt = second_look.Doubt.of_exact(index, wrong.size, places, out.reshape(-1)[places])
    return Comparison(False, float(difference.max()), relative, 0.0, f"{text}; {describe(wrong)}", doubt=doubt)


def _floats(
    index: int,
    name: str,
    out: np.ndarray,
    reference: np.ndarray,
    honest: np.ndarray | None,
    want: OutputSpec,
    tolerance: float | None,
    low: float | None,
) -> Comparison:
    got, ref = metric.as_real(out), metric.as_real(reference)
    own = None if honest is None else metric.as_real(honest)
    limit = bound(want.dtype, low, slack=want.slack) if tolerance is None else tolerance
    if not got.size:
        return Comparison(True, 0.0, 0.0, limit)
    misplaced = _misplaced(got, ref, own, want.dtype)
    scale = metric.scales(ref, want.input_scale)
    honest_error = None
    if limit > 0:
        # Folding the absolute headroom into the scale keeps one number to compare: error_i <= T.
        step = half_steps(ref, want.dtype)
        scale = scale + (FLUSH[want.dtype] + step) / limit
        if own is not None:
            honest_error = float(metric.errors(own, ref, scale).max())
            scale = scale + margin(want.dtype, want.slack) * _honest_error(own, ref, step) / limit
    relative = metric.errors(got, ref, scale).reshape(got.shape)
    with np.errstate(invalid="ignore"):
        absolute = np.where(np.isfinite(got) & np.isfinite(ref), np.abs(got - ref), 0.0)
    wrong = misplaced | (relative > limit)
    facts = (float(absolute.max()), float(relative.max()), limit)
    if not wrong.any():
        return Comparison(True, *facts, honest_error=honest_error)
    reason = _reason(name, got, ref, relative, wrong, misplaced, limit)
    places, doubt = np.flatnonzero(wrong), None
    if second_look.few(places.size, wrong.size) and not misplaced.any():
        room = limit * scale[places]
        doubt = second_look.Doubt.of_floats(index, ref.shape, places, got.reshape(-1)[places], room)
    return Comparison(False, *facts, reason=reason, honest_error=honest_error, doubt=doubt)


def _misplaced(got: np.ndarray, ref: np.ndarray, own: np.ndarray | None, dtype: str) -> np.ndarray:
    """Returns the mask of elements that are NaN or infinite on one side only, or infinite with the other sign."""
    with np.errstate(invalid="ignore"):
        same = (got == ref) | (np.isnan(got) & np.isnan(ref)) | (np.isfinite(got) & np.isfinite(ref))
        if own is not None:
            # The declared dtype may overflow where float64 does not: both answers are right there.
            overflowed = ~np.isfinite(own) & np.isfinite(ref)
            same |= overflowed & ((got == own) | (np.isnan(got) & np.isnan(own)))
        elif dtype in LARGEST:
            same |= (np.abs(ref) > LARGEST[dtype]) & (got == np.copysign(np.inf, ref))
    return ~same


def half_steps(ref: np.ndarray, dtype: str) -> np.ndarray | float:
    """Returns half the distance between neighbours of an 8-bit format at each value, flat: by so much a result that is
    computed exactly is off. 0 for other dtypes."""
    form = SMALL_FLOATS.get(dtype)
    if form is None:
        return 0.0
    exponent = np.frexp(np.nan_to_num(ref.reshape(-1), nan=0.0, posinf=0.0, neginf=0.0))[1] - 1
    return np.ldexp(0.5, np.maximum(exponent, form.least) - form.fraction)


def _honest_error(own: np.ndarray, ref: np.ndarray, step: np.ndarray | float) -> np.ndarray:
    """Returns the honest run's largest error in each element's segment, beyond the rounding of its result, flat."""
    with np.errstate(invalid="ignore"):
        error = np.abs(own - ref).reshape(-1)
    error = np.where(np.isfinite(error), np.maximum(error - step, 0.0), 0.0)
    starts = metric.segment_starts(ref.shape)
    return metric.spread(np.maximum.reduceat(error, starts), starts, ref.size)


def _first(mask: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(mask)), mask.shape))


def _reason(
    name: str,
    got: np.ndarray,
    ref: np.ndarray,
    relative: np.ndarray,
    wrong: np.ndarray,
    misplaced: np.ndarray,
    limit: float,
) -> str:
    """Describes in one line the first wrong element, its error, and the pattern of the failures."""
    where = _first(wrong)
    text = f"{name} differs at {list(where)}: got {got[where]:.7g}, expected {ref[where]:.7g}"
    if not misplaced[where]:
        error = abs(float(got[where]) - float(ref[where]))
        text += f" (absolute error {error:.2g}; relative to |expected| + RMS of its row {relative[where]:.2g}, "
        text += f"allowed {limit:.2g})"
    parts = [text, describe(wrong)]
    hint = _pattern(got, ref, wrong, misplaced, limit)
    return "; ".join([*parts, hint] if hint else parts)


def describe(wrong: np.ndarray) -> str:
    """Describes in one line how many elements are wrong and whether they sit together."""
    count, size = int(wrong.sum()), wrong.size
    if count == size:
        return f"all {size} elements are wrong" if size > 1 else "the only element is wrong"
    text = f"{count} of {size} elements are wrong"
    places = [place for d in range(wrong.ndim) if (place := _place(wrong, d))]
    return f"{text}, all at {' and '.join(places)}" if places else f"{text}, spread over the whole output"


def _place(wrong: np.ndarray, dimension: int) -> str:
    """Describes the failures' places along one dimension; empty if they are everywhere."""
    extent = wrong.shape[dimension]
    others = tuple(d for d in range(wrong.ndim) if d != dimension)
    hit = np.flatnonzero(wrong.any(axis=others) if others else wrong)
    low, high = int(hit[0]), int(hit[-1])
    if extent == 1 or hit.size == extent:
        return ""
    name = f"dimension {dimension}"
    if hit.size == 2 and (low, high) == (0, extent - 1):
        return f"both ends of {name}"
    if hit.size == high - low + 1:
        if low == high:
            return f"index {low} of {name} (size {extent})"
        if high == extent - 1:
            return f"indices >= {low} of {name} (size {extent})"
        if low == 0:
            return f"indices <= {high} of {name} (size {extent})"
        return f"indices {low} to {high} of {name} (size {extent})"
    step = int(np.gcd.reduce(np.diff(hit)))
    if step > 1 and hit.size == (high - low) // step + 1 and hit.size > 2:
        return f"every {_ordinal(step)} index of {name}, from {low}"
    return ""


def _ordinal(number: int) -> str:
    """Returns `2nd`, `3rd`, `11th`, `21st`."""
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def _pattern(got: np.ndarray, ref: np.ndarray, wrong: np.ndarray, misplaced: np.ndarray, limit: float) -> str:
    """Guesses the kind of mistake; empty unless the numbers are clear."""
    nans = int((np.isnan(got) & misplaced).sum())
    if nans:
        return f"{nans} are NaN: memory that no thread wrote, or an invalid operation"
    if not np.any(got[wrong]):
        return "the wrong elements are all zero: a part that was not computed, or rounded away"
    if wrong.sum() >= 8:
        with np.errstate(over="ignore", invalid="ignore"):
            ratio = got[wrong] / np.where(ref[wrong] == 0, np.nan, ref[wrong])
        middle = float(np.nanmedian(ratio)) if np.isfinite(ratio).any() else np.nan
        if np.isfinite(middle) and np.nanmax(np.abs(ratio - middle)) <= 10 * limit * abs(middle):
            return f"the wrong elements are {middle:.6g} times the expected ones"
        if _constant(got[wrong]) and not _constant(ref[wrong]):
            return "the wrong elements all have one value"
    if got.ndim >= 2 and got.shape[-1] == got.shape[-2] > 1:
        swapped = np.swapaxes(got, -1, -2)
        if np.all(metric.errors(swapped, ref, metric.scales(ref)) <= limit):
            return "the last two dimensions are swapped"
    return ""


def _constant(values: np.ndarray) -> bool:
    return bool((values == values.flat[0]).all())
