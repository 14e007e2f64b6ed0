"""Derives reduced sizes for a task that declares one huge size.

`derive` changes each constant of the reference and compares shapes on torch's `meta` device, which allocates nothing.
Then it shrinks in this order:

1. batch-like constants only, so that a kernel written for the declared dimensions still fits;
2. where that is too large, extents with the declared remainders, so that tiles still fit;
3. the others too, to odd and prime sizes and to sizes just above a power of two.

A dimension that all these reduce gets one more size, in which it has its declared length and others are small.

Constructor arguments (channels, kernel sizes, groups) stay as long as the inputs can shrink without them. Every
returned size was run on the CPU.

Runs only where a task's own code may run. It makes no inputs for judging (`tasks.inputs`) and decides no verdict.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kernelwright.errors import TaskError
from kernelwright.records import Workload
from kernelwright.tasks import probe
from kernelwright.tasks.probe import Cost, ReferenceFails, Signature
from kernelwright.tasks.reference import Leaf, Reference, constants, instantiate, parse
from kernelwright.tasks.symbols import Sizes, Symbol, batch_steps, batch_symbols, changed_dims, keeps, pick

__all__ = ["SizePlan", "affordable", "check_workloads", "constants", "derive", "instantiate"]

_SMALLEST_HIDDEN = 16
"""Constructor arguments below this are never changed: they are kernel sizes, strides, groups or axes."""
_SHARES = ((4, 7), (2, 5), (1, 2))
"""(divisor of the budget, least extent): a quarter of the budget finds the same faults. A larger share is tried only
where extents would otherwise fall below the second number."""
_PARAMETER_SHARE = 8
"""A model may have this many times more parameters than a workload has elements."""
_SECONDS = 10.0
"""Process time in seconds after which no further sizes are tried; the machine's other load does not change the
sizes."""
_FAILED_PROOFS = 6
"""Failed sizes after which a reference is taken to run at none."""
_EASED = 4
"""Factor on the budget where no size is within it; the next larger size may cost hundreds of times as much."""
_BEYOND_BUDGET = (50_000_000, 40_000_000_000, 200_000_000)
"""Elements, FLOPs and parameters up to which a task that cannot shrink is still run."""
_STATED = (16_000_000, 2_000_000_000, 200_000_000)
"""The same bounds for one of several stated sizes."""
_CAPS = tuple(sorted({c * 2**k for k in range(12) for c in (4, 5, 6, 7)} | {2, 3}, reverse=True))
_FAR = 8.0
"""Excess over the budget from which the next smaller sizes are skipped."""
_GRAINS = (1, 2, 4, 8, 16, 32)
_ALIKE_GRAINS = (128, 64, 32, 16)
_SMALL_GRAINS = (8, 4, 2)
_MOST_LONG = 6
"""The most sizes with one dimension at its declared length."""


@dataclass(frozen=True)
class SizePlan:
    """The sizes of one task: `batch_reduced` before `reduced`; `declared` is the task's own size with its cost.

    Where the declared size itself fits the budget, it is the first of `workloads`.
    """

    workloads: tuple[Workload, ...]
    declared: Workload | None
    notes: tuple[str, ...] = ()
    long: tuple[Workload, ...] = ()
    """For each dimension that all of `workloads` reduce, a size in which it has its declared length."""


@dataclass(frozen=True)
class SizeStyle:
    """A way to choose the sizes of one reduced workload."""

    name: str
    batch: int
    above_power: bool = False
    largest: int = 1 << 14


_STYLES = (
    SizeStyle("prime", batch=3),
    SizeStyle("above-power-of-two", batch=2, above_power=True),
    SizeStyle("small-prime", batch=1, largest=32),
    SizeStyle("prime-5", batch=5, largest=512),
    SizeStyle("small-above-power", batch=1, above_power=True, largest=128),
)


def check_workloads(source: str, workloads: Sequence[Workload | dict[str, Any]]) -> None:
    """Runs every size that a task declares. Raises `TaskError` with the name of the first that fails."""
    for item in workloads:
        workload = item if isinstance(item, Workload) else Workload.model_validate(item)
        try:
            probe.prove(source, workload.constants, seconds=60.0, finite=False)
        except ReferenceFails as failure:
            raise TaskError(
                f"workload {workload.name!r} cannot be used: {failure}", hint="correct the workload or the reference"
            ) from failure


def affordable(
    source: str, workloads: Sequence[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[str]]:
    """Returns stated sizes that run without a GPU, too large ones with their cost, and notes on the latter.

    Keeps a size whose cost cannot be measured.
    """
    kept, large, notes = [], [], []
    for workload in workloads:
        try:
            cost = probe.measure(source, workload["constants"], "meta")
        except ReferenceFails:
            kept.append(workload)
            continue
        if all(a <= b for a, b in zip((cost.elements, cost.flops, cost.parameters), _STATED, strict=True)):
            kept.append(workload)
        else:
            size = f"{cost.elements} elements, {cost.flops} FLOPs"
            notes.append(f"workload {workload['name']!r} is too large to run without a GPU: {size}")
            large.append({**workload, "elements": cost.elements, "flops": cost.flops})
    return kept, large, notes


def derive(
    source: str,
    *,
    element_budget: int = 262_144,
    flop_budget: int = 60_000_000,
    long_elements: int = 0,
    long_flops: int = 0,
    count: int = 3,
    own_size: bool = True,
) -> SizePlan:
    """Returns up to `count` proven sizes, each within a budget of elements (inputs and outputs) and FLOPs.

    Sizes with a dimension at its declared length may take `long_elements` and `long_flops` where these are larger.
    `own_size=False` leaves out the declared size even where it fits. Raises `TaskError` when the reference runs at no
    size: it raises, returns nothing and changes no input, or differs from run to run.
    """
    namespace = instantiate(source)
    for name, hint in (("Model", "name the nn.Module class Model"), ("get_inputs", "add get_inputs()")):
        if not callable(namespace.get(name)):
            raise TaskError(f"the reference defines no {name}", hint=hint)
    search = _Search(source, element_budget, flop_budget)
    search.long_limit = (max(long_elements, element_budget), max(long_flops, flop_budget))
    return search.plan(count, own_size)


@dataclass
class _Search:
    source: str
    element_budget: int
    flop_budget: int
    device: str = "meta"
    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    costs: dict[str, Cost | None] = field(default_factory=dict)
    signatures: dict[str, Signature | None] = field(default_factory=dict)
    workloads: list[Workload] = field(default_factory=list)
    long: list[Workload] = field(default_factory=list)
    long_limit: tuple[int, int] = (0, 0)
    failed_proofs: int = 0
    finite: bool = True
    """True while sizes are refused at which all values of an output are NaN or infinite."""
    nothing_finite: bool = False
    stop_at: float = field(default_factory=lambda: time.process_time() + _SECONDS)

    def plan(self, count: int, own_size: bool) -> SizePlan:
        base = self._base()
        declared = None
        if base is not None:
            declared = Workload(name="declared", elements=base.elements, flops=base.flops)
        elif (found := self._signature({})) is not None:
            declared = Workload(name="declared", elements=_elements(found))
        symbols = self._symbols()
        batch = batch_symbols(symbols)
        own = own_size and base is not None and self._excess(base, 1) <= 1
        self._sizes(symbols, batch, count, own)
        if not self.workloads and self.nothing_finite:
            self.finite, self.failed_proofs = False, 0
            self._sizes(symbols, batch, count, own)
        if not self.workloads:
            self._give_up(base)
        if self.workloads[0].scope == "declared":
            declared = self.workloads[0]
        else:
            self._at_declared_lengths(symbols, batch)
        return SizePlan(tuple(self.workloads), declared, tuple(self.notes), tuple(self.long))

    def _sizes(self, symbols: list[Symbol], batch: list[Symbol], count: int, own: bool) -> None:
        """Adds sizes; `own` tells whether the declared one is within the budget."""
        if own:
            self._accept({}, "declared", "declared")
        self._within_budget(symbols, batch, count)
        if not self.workloads:
            self.element_budget, self.flop_budget = _EASED * self.element_budget, _EASED * self.flop_budget
            self._within_budget(symbols, batch, count)
        if not self.workloads:
            self._beyond_budget(batch)

    def _within_budget(self, symbols: list[Symbol], batch: list[Symbol], count: int) -> None:
        """Adds sizes within the budget."""
        if not self.workloads:
            self._batch_reduced(batch)
        if not self.workloads:
            self._alike(symbols, batch)
        self._reduced(symbols, batch, count)

    # Cost of a size

    def _base(self) -> Cost | None:
        """Returns the cost of the declared size; sets the device to `cpu` where `meta` cannot measure it."""
        try:
            cost = probe.measure(self.source, {}, "meta")
        except ReferenceFails as failure:
            self.device = "cpu"
            self.notes.append(f"shapes cannot be followed without data ({failure}); sizes are tried for real")
            return self._cost({})
        self.costs[_key({})] = cost
        return cost

    def _cost(self, overrides: dict[str, Any]) -> Cost | None:
        """Returns the cost at one size; None when the reference cannot run there."""
        key = _key(overrides)
        if key not in self.costs:
            try:
                if self.device == "cpu":
                    self._refuse_large(overrides)
                self.costs[key] = probe.measure(self.source, overrides, self.device)
            except ReferenceFails as failure:
                self.failures.append(str(failure))
                self.costs[key] = None
        return self.costs[key]

    def _refuse_large(self, overrides: dict[str, Any]) -> None:
        """Raises `ReferenceFails` where the inputs are too large to measure the cost by a run on the CPU."""
        found = self._signature(overrides)
        if found is None:
            raise ReferenceFails(self.failures[-1] if self.failures else "get_inputs fails")
        if _elements(found) > 4 * self.element_budget:
            raise ReferenceFails(f"{_elements(found)} input elements are too many to try")

    def _signature(self, overrides: dict[str, Any]) -> Signature | None:
        key = _key(overrides)
        if key not in self.signatures:
            found = None
            for device in ("meta", "cpu"):
                try:
                    found = probe.signature(self.source, overrides, device)
                    break
                except ReferenceFails as failure:
                    self.failures.append(str(failure))
            self.signatures[key] = found
        return self.signatures[key]

    def _excess(self, cost: Cost, share: int) -> float:
        """Returns a cost divided by its share of the budget; it fits at up to 1."""
        return max(
            cost.elements * share / self.element_budget,
            cost.flops * share / self.flop_budget,
            cost.parameters / (_PARAMETER_SHARE * self.element_budget),
        )

    # Symbols: constants and the shapes that depend on them

    def _symbols(self) -> list[Symbol]:
        base = self._signature({})
        if base is None:
            return []
        reference = parse(self.source)
        found = self._bounds(reference, base)
        taken = {leaf for symbol in found for leaf in symbol.leaves}
        unmatched: dict[int, list[Leaf]] = {}
        for leaf in reference.leaves():
            if self._late():
                break
            if leaf in taken or not self._drives((leaf,), base):
                continue
            symbol = self._symbol((leaf,), base)
            if symbol is not None:
                found.append(symbol)
            else:
                unmatched.setdefault(leaf.value, []).append(leaf)
        # A constant that cannot change alone may have to change with its equals (two names for one extent). These may
        # include symbols already found: of two equally long inputs, one is read to the other's end only.
        for value, leaves in unmatched.items():
            symbol = self._symbol(tuple(leaves), base) if len(leaves) > 1 else None
            able = [s for s in found if s.value == value and not taken.intersection(s.leaves)] if symbol is None else []
            if able:
                symbol = self._symbol((*leaves, *(leaf for s in able for leaf in s.leaves)), base)
            if symbol is not None:
                found = [s for s in found if s not in able] + [symbol]
        return found

    def _bounds(self, reference: Reference, base: Signature) -> list[Symbol]:
        """Returns bounds of random integers joined with the extents equal to them, so that indices stay in range.

        Leaves out a bound that is itself an extent, under one name.
        """
        found = []
        bounds = [leaf for leaf in reference.bounding() if not self._drives((leaf,), base)]
        for value in dict.fromkeys(leaf.value for leaf in bounds):
            equals = tuple(leaf for leaf in reference.leaves() if leaf.value == value)
            symbol = self._symbol(equals, base) if len(equals) > 1 and self._drives(equals, base) else None
            if symbol is not None and symbol.dims:
                found.append(symbol)
        return found

    def _drives(self, leaves: tuple[Leaf, ...], base: Signature) -> bool:
        """Tells whether inputs change with these integers, or large constructor arguments do."""
        changed = self._signature(self._halved(leaves))
        if changed is None:
            return True
        return changed.inputs != base.inputs or (changed.init != base.init and leaves[0].value >= _SMALLEST_HIDDEN)

    def _halved(self, leaves: tuple[Leaf, ...]) -> dict[str, Any]:
        value = leaves[0].value
        return parse(self.source).overrides(dict.fromkeys(leaves, value // 2 if value >= 4 else value + 1))

    def _symbol(self, leaves: tuple[Leaf, ...], base: Signature) -> Symbol | None:
        """Returns these integers as one symbol; None where the reference does not run with them changed alone."""
        overrides = self._halved(leaves)
        changed = self._signature(overrides)
        if changed is None or len(changed.inputs) != len(base.inputs):
            return None
        if any(len(a) != len(b) for a, b in zip(changed.inputs, base.inputs, strict=True)):
            return None
        dims = changed_dims(base.inputs, changed.inputs)
        leads = bool(dims) and all(d == 0 for _, d in dims)
        if self._cost({}) is not None:
            cost = self._cost(overrides)
            if cost is None:
                return None
            outputs = changed_dims(self._cost({}).outputs, cost.outputs)  # type: ignore[union-attr]
            leads = leads and all(d == 0 for _, d in outputs)
        return Symbol(leaves, leaves[0].value, dims, changed.init != base.init, leads)

    # Sizes

    def _batch_reduced(self, batch: list[Symbol]) -> None:
        """Adds the largest size within the budget that differs from the declared one in batch-like dimensions only."""
        skip_below = 1.0
        for divisor, sizes in batch_steps(batch):
            if self._late():
                return
            if divisor < skip_below and sizes != dict.fromkeys(batch, 1):
                continue
            cost = self._cost(self._overrides(sizes))
            if cost is None:
                continue
            excess = self._excess(cost, 1)
            # A fraction of the batch costs at least that fraction, so smaller divisors cannot fit.
            skip_below = divisor * excess
            if excess <= 1 and self._accept(sizes, "batch-reduced", "batch_reduced"):
                return
        reason = "it has no batch-like constant" if not batch else "even with the batch at its least it is too large"
        self.notes.append(f"no size with only the batch reduced: {reason}")

    def _alike(self, symbols: list[Symbol], batch: list[Symbol]) -> None:
        """Adds a size whose extents have the declared ones' remainders, so that divisibility holds.

        A kernel that tiles the declared size tiles this one too. Only a kernel with hard-coded sizes fails.
        """
        batch = [s for s in batch if s.named_batch]
        free = [s for s in symbols if s not in batch and s.dims and not s.in_init]
        bound = [s for s in symbols if s not in batch and s.dims and s.in_init]
        for level in (free, free + bound):
            for grain in _ALIKE_GRAINS if level else ():
                for times in (4, 2, 1):
                    sizes = {s: s.value % grain + grain * times for s in level if s.value > grain * (times + 1)}
                    sizes |= {s: min(2, s.value) for s in batch}
                    if self._late() or not sizes:
                        continue
                    cost = self._cost(self._overrides(sizes))
                    if (
                        cost is not None
                        and self._excess(cost, 1) <= 1
                        and self._accept(sizes, "alike", "batch_reduced")
                    ):
                        return

    def _reduced(self, symbols: list[Symbol], batch: list[Symbol], count: int) -> None:
        # A leading dimension that is not named batch (the rows of a matmul) needs odd sizes as well.
        batch = [s for s in batch if s.named_batch]
        free = [s for s in symbols if s not in batch and s.dims and not s.in_init]
        bound = [s for s in symbols if s not in batch and s.dims and s.in_init]
        hidden = [s for s in symbols if s not in batch and not s.dims]
        levels = [free, free + bound, free + bound + hidden, batch]
        for style in _STYLES:
            if len(self.workloads) >= count or self._late():
                return
            tried: list[list[Symbol]] = []
            for level in levels:
                scope = "batch_reduced" if level == batch else "reduced"
                if level and level not in tried and self._one_reduced(style, level, batch, scope):
                    break
                tried.append(level)

    def _one_reduced(self, style: SizeStyle, level: list[Symbol], batch: list[Symbol], scope: str) -> bool:
        """Tries sizes of one style from the largest down until one fits, runs and is new."""
        for share, least in _SHARES:
            largest = float(min(style.largest, 2 * max(s.value for s in level)))
            for cap in _CAPS:
                if self._late():
                    return False
                if not least <= cap <= largest:
                    continue
                excess = self._at_cap(style, level, batch, cap, share, scope)
                if excess is None:
                    return True
                if excess > _FAR:
                    # A cost of degree one above the number of extents falls no faster than this.
                    largest = 1.5 * cap * excess ** (-1 / (len(level) + 1))
        return False

    def _at_cap(
        self, style: SizeStyle, level: list[Symbol], batch: list[Symbol], cap: int, share: int, scope: str
    ) -> float | None:
        """Tries plain sizes first, then multiples of 2, 4, ... for a reference that needs divisibility.

        Returns None when a workload was added, else how many times over the budget the attempt was (0: not known).
        """
        for grain in _GRAINS:
            sizes = {s: min(style.batch, s.value) for s in batch}
            for rank, symbol in enumerate(level):
                sizes[symbol] = pick(symbol.value, cap, grain, rank, style.above_power)
            overrides = self._overrides(sizes)
            found = self._signature(overrides)
            if found is None:
                continue
            if _elements(found) * share > self.element_budget:
                return _elements(found) * share / self.element_budget
            cost = self._cost(overrides)
            if cost is None:
                continue
            excess = self._excess(cost, share)
            if excess > 1:
                return excess
            if self._accept(sizes, style.name, scope):
                return None
        return 0.0

    def _at_declared_lengths(self, symbols: list[Symbol], batch: list[Symbol]) -> None:
        """Adds sizes for dimensions that every size so far reduces: each at its declared length, others small."""
        for symbol in symbols:
            if len(self.long) >= _MOST_LONG or self._late():
                return
            if not any(keeps(w, symbol) for w in (*self.workloads, *self.long)):
                self._one_long(symbol, [s for s in symbols if s is not symbol], batch)

    def _one_long(self, symbol: Symbol, others: list[Symbol], batch: list[Symbol]) -> None:
        """Adds a size with one dimension at its declared length.

        Other extents keep the declared ones' remainders where that fits the budget or the larger limit; very small ones
        come last, since a right kernel may not be made for them.
        """
        free = [s for s in others if not s.in_init and s not in batch]
        levels = [free, [s for s in others if s not in batch]]
        least = _ALIKE_GRAINS[-1]
        tries = [(True, level, grain) for level in levels for grain in _ALIKE_GRAINS]
        tries += [(False, level, least) for level in reversed(levels)]
        tries += [(True, level, grain) for level in levels for grain in _SMALL_GRAINS]
        tries += [(False, level, grain) for level in reversed(levels) for grain in _SMALL_GRAINS]
        for within, level, grain in tries:
            able = [s for s in level if s.value > 2 * grain and not (s.in_init and s.value < _SMALLEST_HIDDEN)]
            sizes = {s: s.value % grain + grain for s in able}
            sizes |= {s: min(2 if within else 1, s.value) for s in batch if s is not symbol}
            cost = self._cost(self._overrides(sizes)) if not self._late() else None
            if cost is None or not (self._excess(cost, 1) <= 1 if within else self._in_long_limit(cost)):
                continue
            scope = "batch_reduced" if grain >= least else "reduced"
            made = self._proven(sizes, f"long-{symbol.leaves[0].name}", scope)
            if made is not None:
                self.long.append(made)
                return
        self.notes.append(f"no size with {symbol.leaves[0].name} at its declared {symbol.value}: it is too large")

    def _in_long_limit(self, cost: Cost) -> bool:
        elements, flops = self.long_limit
        return cost.elements <= elements and cost.flops <= flops and cost.parameters <= elements

    def _overrides(self, sizes: Sizes) -> dict[str, Any]:
        return parse(self.source).overrides({leaf: size for s, size in sizes.items() for leaf in s.leaves})

    def _accept(self, sizes: Sizes, name: str, scope: Any) -> bool:
        """Runs the reference at these sizes; adds a workload where that succeeds."""
        made = self._proven(sizes, name, scope)
        if made is not None:
            self.workloads.append(made)
        return made is not None

    def _proven(self, sizes: Sizes, name: str, scope: Any) -> Workload | None:
        """Returns the workload of these sizes if it is new and the reference runs there."""
        overrides = self._overrides(sizes)
        if any(w.constants == overrides for w in (*self.workloads, *self.long)):
            return None
        estimate = self.costs.get(_key(overrides))
        flops = estimate.flops if estimate is not None else 0
        try:
            proven = probe.prove(self.source, overrides, seconds=5.0 + flops / 1e9, finite=self.finite)
        except ReferenceFails as failure:
            self.nothing_finite |= isinstance(failure, probe.NothingFinite)
            self.failures.append(str(failure))
            self.failed_proofs += 1
            self.notes.append(f"{name} {overrides} was dropped: {failure}")
            return None
        return Workload(name=name, constants=overrides, scope=scope, elements=proven.elements, flops=flops)

    def _beyond_budget(self, batch: list[Symbol]) -> None:
        """Adds the smallest batch of a task that cannot shrink, within `_BEYOND_BUDGET`."""
        elements, flops, parameters = _BEYOND_BUDGET
        for sizes in [{s: min(n, s.value) for s in batch} for n in (2, 1)] if batch else [{}]:
            cost = self._cost(self._overrides(sizes))
            if cost is None or cost.elements > elements or cost.flops > flops or cost.parameters > parameters:
                continue
            changed = self._overrides(sizes)
            scope = "batch_reduced" if changed else "declared"
            if self._accept(sizes, "batch-least" if changed else "declared", scope):
                self.notes.append("its smallest size is beyond the budget")
                return

    def _give_up(self, base: Cost | None) -> None:
        if base is not None and not self.failures:
            raise TaskError(
                f"the reference cannot be made small enough: {base.elements} elements, {base.flops} FLOPs",
                hint="declare smaller workloads in the task, or raise the budget",
            )
        reason = self.failures[-1] if self.failures else "no size could be tried"
        raise TaskError(f"the reference fails at every size tried: {reason}", hint="correct the reference")

    def _late(self) -> bool:
        """Tells whether to stop: the time is spent, or `_FAILED_PROOFS` sizes failed."""
        hopeless = self.failed_proofs >= _FAILED_PROOFS * (1 + len(self.workloads))
        return hopeless or time.process_time() > self.stop_at


def _key(overrides: dict[str, Any]) -> str:
    return repr(sorted(overrides.items()))


def _elements(found: Signature) -> int:
    total = 0
    for shape in found.inputs:
        size = 1
        for extent in shape:
            size *= extent
        total += size
    return total
