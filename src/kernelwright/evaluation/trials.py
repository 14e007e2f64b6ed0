"""Records of trials: the sizes of a task, the calls that are checked, their data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kernelwright.evaluation.tensor_bytes import TensorBytes
from kernelwright.records import Distribution, Precision, Workload


@dataclass(frozen=True)
class Trial:
    """One checked call."""

    workload: Workload
    distribution: Distribution
    weight_seed: int
    input_seed: int
    reuse: bool = False
    """Call the same model again, with new contents at the addresses of the previous call."""
    before: tuple[int, int] | None = None
    """The input seed and the call seed of the call before, if this one finds the weights and the state that it left."""


Summaries = Sequence[tuple[float, float] | None]
"""The largest and the root mean square error of each output (`metric.summary`); None for integers."""


@dataclass(frozen=True)
class ProductRuns:
    """Runs of a trial's reference with other products. Each returns the errors of its outputs, or None if the reference
    computes no product."""

    precision: Precision
    below: Callable[[], Summaries | None]
    """Runs with operands of the next lower precision."""
    rough: Callable[[int], Summaries | None]
    """Runs with noise, by number."""


@dataclass(frozen=True)
class TrialData:
    """The oracle's data of a trial. `nodes` are the packed values: inputs, constructor arguments, weights."""

    nodes: list[Any]
    tensors: tuple[TensorBytes, ...]
    exact: tuple[TensorBytes, ...]
    honest: tuple[TensorBytes, ...]
    low_error: list[float | None] | None
    input_scale: float
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    nearby: Callable[[int], list[np.ndarray] | None] | None = None
    """Asks the oracle for the expected outputs on inputs moved by noise, by the number of the second look's run."""
    handed: Sequence[Sequence[int]] = ()
    """Pairs of output and input, by number, in which the reference returns an input's memory as an output."""
    changed: Sequence[int] = ()
    """The inputs, by number, that the reference changes. Their expected contents follow the outputs' in `exact`."""
    optional: Sequence[int] = ()
    """Those of them that a candidate may also leave as they are."""

    slack: list[float | None] | None = None
    """The largest relative error of honest TF32 runs, per output; None under `float32`, and without products."""
    own_errors: Summaries = ()
    """The reference's own errors, per output."""
    products: ProductRuns | None = None
    """Asks the oracle for the errors of the reference with other products."""

    @property
    def returned(self) -> int:
        """The number of outputs that the reference returns."""
        return len(self.honest) - len(self.changed)

    def packed(self, *which: int) -> tuple[list[Any], tuple[TensorBytes, ...]]:
        """Returns the chosen values with just the tensors that they use, renumbered."""
        used: list[TensorBytes] = []
        numbers: dict[int, int] = {}

        def renumber(node: dict[str, Any]) -> dict[str, Any]:
            ((kind, value),) = node.items()
            if kind == "t":
                tensor = self.tensors[value]
                if tensor.view is not None and tensor.view.shares is not None:
                    tensor = replace(tensor, view=replace(tensor.view, shares=numbers.get(tensor.view.shares)))
                numbers[value] = len(used)
                used.append(tensor)
                return {"t": len(used) - 1}
            if kind in "lp":
                return {kind: [renumber(v) for v in value]}
            if kind == "d":
                return {"d": [[k, renumber(v)] for k, v in value]}
            return node

        return [renumber(self.nodes[i]) for i in which], tuple(used)

    def state(self) -> list[tuple[str, TensorBytes]]:
        """Returns the reference's weights by name, in order."""
        ((_, pairs),) = self.nodes[2].items()
        return [(name, self.tensors[node["t"]]) for name, node in pairs if "t" in node]

    @property
    def nbytes(self) -> int:
        return sum(len(t.data) for t in (*self.tensors, *self.exact, *self.honest))

    @property
    def largest_input(self) -> int:
        return max((_count(s) for s in self.shapes), default=0)


@dataclass(frozen=True)
class Kept:
    """Copies of device memory as bytes, in the order of memory, around what operators moved in a call."""

    inputs: Sequence[TensorBytes] = ()
    """Memory with moved inputs, as kernels found it."""
    carried: Sequence[TensorBytes] = ()
    """Memory with what kernels had stored and operators had moved, as kernels found it."""
    sources: Sequence[TensorBytes] = ()
    """What kernels had stored, before operators moved it."""
    full: bool = False
    """True if there was more than is kept."""


@dataclass(frozen=True)
class Movement:
    """Counts what a reference has done for one output, in elements; the others depend on no input's values."""

    unchanged: int
    """Elements of an input, each at the place that it has there."""
    rearranged: int
    """Elements of an input at other places."""
    computed: int
    pieces: int
    """The pieces in which moved elements follow one another as in their inputs, forwards or backwards."""
    moved: np.ndarray | None = field(default=None, compare=False, repr=False)
    """True for each element that is `unchanged` or `rearranged`, flat."""


def _count(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


@dataclass(frozen=True)
class Outline:
    """One call at a size that is too large to run. `nodes` are its packed arguments and constructor's arguments; their
    tensors are `samples` of flat values. `forms` are the full tensors' forms (`wire.forms_of`); `exact` tells whether a
    sample holds all values.
    """

    nodes: list[Any]
    samples: tuple[TensorBytes, ...]
    forms: list[dict[str, Any]]
    exact: list[bool]
    state: list[tuple[str, TensorBytes]] | None = None
    """The reference's weights by name; None if its values cannot be compared, for the reason `no_values`."""
    no_values: str = ""
    real: bool = False
    """True if the inputs are those of the full size, and no repeated values of a smaller call."""

    @property
    def shapes(self) -> list[list[int]]:
        """The full shapes."""
        return [form["shape"] for form in self.forms]


@dataclass(frozen=True)
class Picked:
    """Elements of a sampled call's outputs: flat indices (int64) and values of each, and the outputs' shapes."""

    indices: tuple[TensorBytes, ...]
    values: tuple[TensorBytes, ...]
    shapes: list[tuple[int, ...]]


@dataclass(frozen=True)
class Elements:
    """The reference at elements of each output: `kept` are positions in the list of wanted elements, `exact` the values
    there in float64, and `honest` those in the reference's own dtype."""

    kept: tuple[TensorBytes, ...]
    exact: tuple[TensorBytes, ...]
    honest: tuple[TensorBytes, ...]
    input_scale: float
    nearby: Callable[[int], list[np.ndarray] | None]
    """Returns the values on inputs moved by noise, by the number of the second look's run."""


@dataclass
class TaskPlan:
    """The sizes and value distributions at which a task is judged; `large` holds declared sizes that are too large to
    run."""

    workloads: list[Workload]
    declared: Workload | None
    distributions: list[Distribution]
    notes: list[str] = field(default_factory=list)
    large: list[Workload] = field(default_factory=list)
    long: list[Workload] = field(default_factory=list)
    """Sizes with one dimension at its declared length, for each dimension that all of `workloads` reduce."""

    def stated(self) -> list[Workload]:
        """Returns the sizes that the task states, each once."""
        found = [*self.large, *([self.declared] if self.declared else [])]
        found += [w for w in self.workloads if w.scope == "declared"]
        return list({str(w.constants): w for w in found}.values())


def noise(seed: int, run: int) -> tuple[int, int]:
    """Returns the noise's seed and sign for a run of the second look at a call whose inputs come from `seed`."""
    return (seed << 8) + run // 2, -1 if run % 2 else 1
