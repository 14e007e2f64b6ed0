"""The look at products: tells whether a right candidate has computed its products in a lower precision than allowed.

`on_host` bounds each element's error. Where the rest of a task lets only a hundredth of a product's error through
(`1 + 0.01 * tanh(x @ w)`), one TF32 product stays within that bound. Its error is still that of a TF32 product, dozens
of times that of float32 in any order of summation, and both can be computed. The oracle runs the reference in float64
with the operands of its products rounded (`low`). It also runs it with noise on each sum, as large as the rounding of a
float32 sum in the worst order (`rough`). With root mean square errors over a whole output, a candidate is wrong if

    rms > max(low / 2, GAIN * rough)    and    low > GAIN * rough

- `rough` is the largest of the reference's own error, its error on inputs moved by rounding, and `DRAWS` runs with
  noise. Under `tf32` it is the error of the worse of two honest TF32 runs, with operands rounded and with operands cut.
- `low` is TF32's error under `float32`, and BF16's under `tf32`.
- Where sums average the rounding of operands away (long sums of positive values) `low` is no larger than `rough`: such
  inputs tell nothing.

Half the error of one product of rounded operands is far more than any honest float32 kernel has: other orders and other
algorithms pass, and so do approximate functions that are clearly better than TF32. A reference without a product is not
looked at. The runs are made only for a candidate whose error is more than GAIN times the reference's own, which an
honest one rarely has. The calibration: `docs/evaluation.md`, `benchmarks/results/precision_calibration.json.gz`.

numpy only; runs no code of a task or a candidate.
"""

from __future__ import annotations

from kernelwright.evaluation.trials import ProductRuns, Summaries
from kernelwright.records import Precision

GAIN: dict[Precision, float] = {"float32": 4.0, "tf32": 1.5}
"""The factor on the error of honest runs. Under `tf32` the worst honest run is exact, since no order of summation
matters beside the rounding of operands, and BF16 is only 8 times coarser."""
DRAWS = 2
"""The number of runs with noise."""
LEAST = 16
"""Outputs of fewer elements are not looked at: their errors may be small or large by chance."""
BELOW: dict[Precision, str] = {"float32": "TF32 or FP16", "tf32": "BF16"}


def coarse(output: int, elements: int, rms: float, honest: float, runs: ProductRuns) -> str:
    """Returns the reason why an output's root mean square error is that of a lower precision; empty if it is not.

    `honest` is the error of the reference in its own precision, or on inputs moved by rounding.
    """
    gain = GAIN[runs.precision]
    if elements < LEAST or rms <= gain * honest:
        return ""
    low = _rms(runs.below(), output)
    if low is None or rms <= low / 2:
        return ""
    draws = [_rms(runs.rough(k), output) for k in range(DRAWS)] if runs.precision == "float32" else []
    limit = gain * max(honest, *(r for r in draws if r is not None), 0.0)
    if rms <= limit or low <= limit:
        return ""
    return (
        f"its products are computed in a lower precision than {runs.precision}: the root mean square error over the "
        f"mean magnitude is {rms:.2g}; products of {BELOW[runs.precision]} operands have {low:.2g}, and honest sums "
        f"in any order at most {limit:.2g}"
    )


def _rms(found: Summaries | None, output: int) -> float | None:
    one = found[output] if found is not None and output < len(found) else None
    return None if one is None else one[1]
