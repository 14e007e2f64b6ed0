"""The referee: the trusted child that makes full-size inputs, computes the expected outputs, and compares.

It works on the same device as the runner, and shares one block of memory with it: inputs are written there, outputs are
read from there. It takes only outputs from the block. The inputs of a comparison are copies that it kept, or made anew
from the judge's seed, so a candidate that overwrites the shared inputs changes nothing. A second block, which the
runner cannot open, holds the baseline's inputs. One referee serves many tasks, one after another; it runs a task's own
code and none of a candidate's.

Messages in: `construct`, `prepare`, `fill`, `check`, `check_row`, `reweigh`, `share`, `facts`, `release`. Out: `ready`,
`constructed`, `prepared`, `filled`, `checked`, `reweighed`, `shared`, `told`, `released`, `failed`. `construct`,
`reweigh`, `facts` and `release` compute nothing on the device: models are made on the CPU, which may take a second.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import gc
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from kernelwright.errors import TaskError
from kernelwright.evaluation.compare import on_device, on_host
from kernelwright.evaluation.device import devices
from kernelwright.evaluation.device.devices import Device
from kernelwright.evaluation.processes import wire
from kernelwright.evaluation.processes.channel import Channel, Frame
from kernelwright.evaluation.processes.serving import DoesNotFit, answer_all
from kernelwright.evaluation.reference import by_rows, honest_runs, input_coverage, product_runs, results
from kernelwright.evaluation.tensor_bytes import TensorBytes
from kernelwright.evaluation.trials import Summaries, noise
from kernelwright.records import Distribution, Precision
from kernelwright.tasks import draws, gradients, reference_runs, storages
from kernelwright.tasks import inputs as task_inputs
from kernelwright.tasks import workloads as task_workloads

COPIES = 12
"""Memory that checking needs, in multiples of the larger side of inputs and outputs: shared, copied, in float64,
compared."""
SLICED_COPIES = 8
"""The same if the reference divides, so that float64 and comparing need memory for some rows only."""
SLICE_BYTES = 1 << 29
"""A bound on the bytes of inputs or outputs of the rows that are computed at a time."""
KEPT_BYTES = 1 << 28
"""A bound on the bytes of outputs that are kept for the comparison with a repeated call."""
TILE, TILES = 4096, 256
"""A sample of a large output: the length of each run of elements, and the number of runs."""
SLOT_BYTES, MOST_SLOTS = 128 << 20, 16
"""Bounds on the shared block, which holds the tensors of several calls, one slot each: bytes of all slots, and their
number."""
MORE_BYTES, MOST_BYTES = 256 << 20, 1 << 30
"""A caller may list a preferred slot count and fallbacks. The preferred count may use MORE_BYTES, fallbacks up to
MOST_BYTES."""


@dataclasses.dataclass
class Place:
    """One tensor in the shared block; its offset is within a slot."""

    offset: int
    dtype: str
    shape: list[int]

    def fields(self) -> list[Any]:
        return [self.offset, self.dtype, self.shape]


class Referee:
    """The current task: its model on the device, the shared block, and its layout."""

    def __init__(self, device: Device) -> None:
        self.device = device
        draws.home = gradients.device = device.name
        self.namespace: dict[str, Any] = {}
        self.model: Any = None
        self.state: dict[str, torch.Tensor] = {}
        self.key = ""
        """Source and sizes of the current task."""
        self.placed = True
        """True if model and weights are on the device."""
        self.shared: torch.Tensor | None = None
        self.inputs: list[Place] = []
        """The places of the memories in which inputs lie (`forms`)."""
        self.forms: list[dict[str, Any]] = []
        """The forms of the inputs (`wire.forms_of`)."""
        self.outputs: list[Place] = []
        self.low_error: list[float | None] | None = None
        self.slack: list[float | None] | None = None
        """The largest errors of honest TF32 runs, per output; None under `float32` and without products."""
        self.precision: Precision = "float32"
        self.twin: Any = None
        self.aside: torch.Tensor | None = None
        """The baseline's block."""
        self.before: list[torch.Tensor] | None = None
        self.made: dict[tuple[Distribution, int], Any] = {}
        """Inputs of the last calls whose blocks were filled, by kind and seed, if they are small."""
        self.slots, self.stride = 1, 0
        self.terms = 1.0
        """The number of terms of the task's sums, as far as its FLOPs and sizes tell."""
        self.slicing: by_rows.Slicing | None = None
        self.run: reference_runs.ReferenceResult = reference_runs.ReferenceResult([], [], [])
        """The reference's first run, without its outputs."""
        self.optional: frozenset[int] = frozenset()
        """The outputs, by number, that are inputs which only an option of torch's functions lets the reference change:
        nothing is expected there."""
        self.counted: dict[str, tuple[int, bool]] = {}
        """FLOPs of earlier tasks, and whether their references draw no random numbers; many candidates answer one
        task."""

    def construct(self, message: Frame) -> tuple[dict[str, Any], tuple[TensorBytes, ...]]:
        """Makes the model of a task in place of the previous one; returns constructor arguments and weights for the
        runner."""
        header = message.header
        self.drop()
        self.precision = header["precision"]
        devices.allow_tf32(self.precision == "tf32")
        self.key = f"{header['source']}\n{header['constants']}"
        self.namespace = task_workloads.instantiate(header["source"], header["constants"])
        nodes, tensors = self._make_model(header["weight_seed"], header["randomise"])
        return {"values": nodes}, tensors

    def prepare(self, message: Frame) -> dict[str, Any]:
        """Makes the shared block for calls of the model that was constructed; returns its layout."""
        header = message.header
        self._place()
        values = task_inputs.make_inputs(self.namespace, "own", header["input_seed"])
        given = wire.tensors_of(values)
        budget = header["memory_bytes"]
        asked = sum(t.nbytes for t in given)
        self._headroom(asked, budget, SLICED_COPIES, held=asked)
        made, flops, steady = self._first_run(values)
        produced = max(1, sum(t.numel() for t in made))
        self.terms = max(flops / (2 * produced), sum(t.numel() for t in given) / produced)
        self.slicing = self._sliced(values, made, budget, whole=header["shared"])
        self.low_error = header["ruler"]
        self.forms = wire.forms_of(given)
        memories = {form["memory"]: form["nbytes"] for form in self.forms}
        self.inputs, self.outputs, total = _divide(list(memories.values()), made)
        shapes = [list(t.shape) for t in given]
        dtypes = [wire.dtype_name(t.dtype) for t in given]
        call = _structure(values)
        nbytes = [wire.bytes_to_read(given, self.forms), sum(t.nbytes for t in made)]
        elements = max((t.numel() for t in given), default=0)
        del values, given
        self.stride = total
        self.slots = self._slots(header["slots"], total, max(nbytes), budget)
        if not steady:
            self.slots = 1  # a reference that draws random numbers of its own: one call for each seed
        del made
        self.shared, handle = self.device.create(total * self.slots)
        aside = ""
        # The baseline's outputs are not compared, so a single slot needs no room for them.
        inputs_end = self.outputs[0].offset if self.outputs else total
        aside_nbytes = total * self.slots if self.slots > 1 else max(inputs_end, devices.ALIGNMENT)
        if header["baselines"]:
            self.aside, aside = self.device.create(aside_nbytes)
        return {
            "slots": self.slots,
            "stride": self.stride,
            "call": call,
            "handle": handle,
            "aside": aside,
            "nbytes": total * self.slots,
            "aside_nbytes": aside_nbytes,
            "inputs": [p.fields() for p in self.inputs],
            "forms": self.forms,
            "outputs": [p.fields() for p in self.outputs],
            "shapes": shapes,
            "dtypes": dtypes,
            "input_bytes": nbytes[0],
            "output_bytes": nbytes[1],
            "largest_input": elements,
            "slice_rows": self.slicing.step if self.slicing else 0,
            "flops": flops,
            "handed": self.run.handed,
            "changed": self.run.changed,
        }

    def _first_run(self, values: Any) -> tuple[list[torch.Tensor], int, bool]:
        """Returns the reference's outputs, its FLOPs, and whether it gives the same with another seed (on small
        tensors)."""
        key = self.key
        counter = None if key in self.counted else FlopCounterMode(display=False)
        with counter or contextlib.nullcontext(), honest_runs.emulated(self.precision, self.device.name):
            run = reference_runs.run_reference(self.model, values, None, 0)
        made, self.run = run.outputs, dataclasses.replace(run, outputs=[])
        loose = reference_runs.optional_changes(self.model, values, run.changed)
        first = len(made) - len(run.changed)
        self.optional = frozenset(first + k for k, number in enumerate(run.changed) if number in loose)
        if counter is not None:
            steady = True
            if sum(t.nbytes for t in [*wire.tensors_of(values), *made]) <= SLOT_BYTES:
                again = self._honest(values, 1)
                steady = all(reference_runs.same_values(a, b) for a, b in zip(made, again, strict=True))
            self.counted[key] = counter.get_total_flops(), steady
        return made, *self.counted[key]

    def reweigh(self, message: Frame) -> tuple[dict[str, Any], tuple[TensorBytes, ...]]:
        """Gives the current task other weights; returns constructor arguments and weights for the runner."""
        self.model, self.twin = None, None
        nodes, tensors = self._make_model(message.header["weight_seed"], randomise=True)
        return {"values": nodes}, tensors

    def _make_model(self, seed: int, randomise: bool) -> tuple[list[Any], tuple[TensorBytes, ...]]:
        """Makes the model, on the CPU; returns its constructor's arguments and weights, packed."""
        model = task_inputs.construct(self.namespace, seed)
        torch.manual_seed(seed)
        init = task_inputs.init_arguments(self.namespace)
        if randomise and isinstance(model, torch.nn.Module):
            task_inputs.randomise_weights(model, seed)
        state = {k: v.detach().clone() for k, v in model.state_dict().items()} if hasattr(model, "state_dict") else {}
        packed: tuple[list[Any], tuple[TensorBytes, ...]] = wire.pack_values([], init, state)
        self.model, self.state, self.placed = model, state, False
        return packed

    def _place(self) -> None:
        """Puts model and weights on the device, unless they are there."""
        if not self.placed:
            self.model = self.model.to(self.device.name) if isinstance(self.model, torch.nn.Module) else self.model
            self.state = {k: v.to(self.device.name) for k, v in self.state.items()}
            self.placed = True

    def _headroom(self, nbytes: int, budget: int, copies: int, held: int = 0) -> int:
        """Returns the bytes that remain after `copies` times `nbytes` are taken, of which `held` are taken already.
        Raises `DoesNotFit` if there are too few."""
        there = self.device.facts()["free_bytes"] + held
        free = min(there, budget or there)
        need = copies * nbytes
        if need > free:
            gigabytes = need / 2**30, free / 2**30
            raise DoesNotFit(
                "about {:.1f} GB are needed to check this size, and {:.1f} GB are there".format(*gigabytes)
            )
        return int(free - need)

    def _slots(self, wanted: list[int], total: int, nbytes: int, budget: int) -> int:
        """Returns the number of calls of `total` bytes that the block holds. `wanted` lists the preferred number and
        fallbacks; a fallback must leave memory for a second block. `nbytes` are the bytes of the larger side of inputs
        and outputs."""
        if not wanted:
            return max(1, min(MOST_SLOTS, SLOT_BYTES // total))
        found = min(wanted[0], MORE_BYTES // total)
        if self.slicing is None and found < wanted[1]:
            left = self._headroom(nbytes, budget, COPIES)
            fitting = (n for n in wanted[1:] if n * total <= MOST_BYTES and 2 * n * total <= left)
            found = max(found, next(fitting, 1))
        return max(1, found)

    def _sliced(self, values: Any, made: list[torch.Tensor], budget: int, whole: bool) -> by_rows.Slicing | None:
        """Returns how to check in slices if the whole does not fit; None if it fits.

        Raises `DoesNotFit` if neither fits, and if the whole does not fit and is asked for: an exclusive judgement has
        more memory.
        """
        sides = [sum(t.nbytes for t in group) for group in (wire.tensors_of(values), made)]
        nbytes, held = max(sides), sum(sides)
        try:
            self._headroom(nbytes, budget, COPIES, held)
            return None
        except DoesNotFit as error:
            if whole:
                raise
            left = self._headroom(nbytes, budget, SLICED_COPIES, held)
            rows = max((t.shape[0] for t in made if t.dim()), default=1)
            step = int(min(SLICE_BYTES, left // COPIES) * rows // max(nbytes, 1))
            found = by_rows.find(values, made, lambda v: self._exact(v, 0), step, seed=len(made))
            if found is None:
                raise DoesNotFit(
                    f"{error}; the reference does not divide into rows that could be checked by turns"
                ) from None
            return found

    def fill(self, message: Frame) -> dict[str, Any]:
        """Writes the inputs of one call per slot into a block, one call for each seed; poisons the outputs there."""
        block = self.aside if message.header["aside"] else self.shared
        kind, calls, made = message.header["distribution"], [], {}
        assert block is not None
        block[: len(message.header["seeds"]) * self.stride].fill_(0xFF)
        for slot, seed in enumerate(message.header["seeds"]):
            kept = self.made.get((kind, seed))
            values = task_inputs.make_inputs(self.namespace, kind, seed) if kept is None else kept
            if self.stride <= SLOT_BYTES:  # a copy: get_inputs may return the same tensors every time
                made[kind, seed] = _copied(values) if kept is None else kept
            given = wire.tensors_of(values)
            if wire.forms_of(given) != self.forms:
                raise TaskError("get_inputs returns other shapes from call to call", hint="return equal shapes always")
            for memory, place in zip(devices.memories_of(given, self.forms), self.inputs, strict=True):
                self._at(place, slot, block).copy_(memory)
            calls.append(_structure(values))
        self.made = made
        self.device.synchronize()
        return {"calls": calls}

    def check(self, message: Frame) -> dict[str, Any]:
        """Compares the outputs in the shared block with the reference's on the inputs of this seed."""
        header = message.header
        self._place()
        if header["tiles"] and (sampled := self._sampled(header)) is not None:
            return {"results": sampled}
        # A copy first: the comparison uses the contents at the time when the runner reported that it had finished.
        got = [self._at(place, header["slot"]).clone() for place in self.outputs]
        return {"results": self._results(header, got), "same_bits": self._same_bits(header["repeat"], got)}

    def check_row(self, message: Frame) -> dict[str, Any]:
        """Compares back-to-back calls, one per slot, up to the first wrong one: all at once if they are near the honest
        run."""
        header, rows = message.header, []
        self._place()
        slots = range(header["first"], header["first"] + len(header["seeds"]))
        got = [[self._at(place, slot).clone() for place in self.outputs] for slot in slots]
        near = self._near(header, header["seeds"], got)
        for seed, outputs, found in zip(header["seeds"], got, near, strict=True):
            rows.append(found or self._compared_whole({**header, "seed": seed}, outputs))
            if not all(result["passed"] for result in rows[-1]):
                break
        return {"rows": rows}

    def _same_bits(self, repeat: str, got: list[torch.Tensor]) -> bool | None:
        """Keeps the outputs of a call, or tells whether another call's outputs are the same bits; None for large
        ones."""
        before, self.before = self.before, None
        if repeat == "keep" and sum(t.nbytes for t in got) <= KEPT_BYTES:
            self.before = got
        if repeat != "against" or before is None:
            return None
        flat = [t.contiguous().view(-1).view(torch.uint8) for group in (before, got) for t in group]
        return all(torch.equal(a, b) for a, b in zip(flat[: len(got)], flat[len(got) :], strict=True))

    def _results(self, header: dict[str, Any], got: list[torch.Tensor]) -> list[dict[str, Any]]:
        if self.slicing is None and (not header["thorough"] or self._huge(got)):
            (close,) = self._near(header, [header["seed"]], [got])
            if close is not None:
                return close
        return self._compared_whole(header, got)

    def _compared_whole(self, header: dict[str, Any], got: list[torch.Tensor]) -> list[dict[str, Any]]:
        values = self._values(header["distribution"], header["seed"])
        if self.slicing is not None:
            return [results.facts(r) for r in self._by_turns(header, got, values, self.slicing)]

        def again() -> Any:  # the comparison reuses the memory that the inputs had
            return task_inputs.make_inputs(self.namespace, header["distribution"], header["seed"])

        held = [values]
        del values
        return [results.facts(r) for r in self._compared(header, got, held, again, header["thorough"])]

    def _compared(
        self, header: dict[str, Any], got: list[torch.Tensor], held: list[Any], again: Callable[[], Any], thorough: bool
    ) -> list[on_host.Comparison]:
        """Compares outputs with the reference's. Takes the inputs out of `held`; `again` makes them anew."""
        values, call_seed, tolerance = held.pop(), header["call_seed"], header["tolerance"]
        exact = self._exact(values, call_seed)
        honest = own = self._honest(values, call_seed)
        if thorough:
            found = product_runs.measured(self.model, self.state, values, exact, own, self.precision, call_seed)
            honest, self.low_error, self.slack = found.honest, found.low, found.slack
        scale = _scale(values)
        del values
        compared = [
            results.UNJUDGED
            if k in self.optional
            else on_device.compare_output(k, a, b, c, self._ruler(k), scale, tolerance)
            for k, (a, b, c) in enumerate(zip(got, exact, honest, strict=True))
        ]
        wide: Summaries = []
        if thorough:
            compared = product_runs.with_errors(compared, got, exact, own)
            only = frozenset((torch.float32,))
            wide = product_runs.summaries(honest, exact, only) if tolerance is None else []
        del honest, own

        def nearby(run: int) -> list[torch.Tensor] | None:
            noise_seed, sign = noise(header["seed"], run)
            return reference_runs.nearby_outputs(self.model, self.state, again(), call_seed, noise_seed, sign)

        compared = on_host.looked_twice(compared, exact, nearby, on_device.taken)
        if not wide or not all(r.passed for r in compared):
            return compared
        return product_runs.looked_at(
            compared, wide, exact, product_runs.runs(self.model, again, exact, self.precision, call_seed)
        )

    def _by_turns(
        self, header: dict[str, Any], got: list[torch.Tensor], values: Any, way: by_rows.Slicing
    ) -> list[on_host.Comparison]:
        """Compares slice by slice, up to the first with a wrong element; the first slice gives the rulers."""
        turns: list[list[on_host.Comparison]] = []
        for part in way.parts():
            cut = way.inputs(values, part)
            again = functools.partial(way.inputs, values, part)
            rows = [t[part] for t in got]
            turns.append(self._compared(header, rows, [cut], again, header["thorough"] and part.start == 0))
            if not all(r.passed for r in turns[-1]):
                where = f"in rows {part.start} to {part.stop - 1} of {way.rows}, counted from there: "
                turns[-1] = [r if r.passed else dataclasses.replace(r, reason=where + r.reason) for r in turns[-1]]
                break
        return [results.worst(list(column)) for column in zip(*turns, strict=True)]

    def _huge(self, outputs: list[torch.Tensor]) -> bool:
        """Tells whether rulers of its own cost this size too much; then the rulers of a smaller size serve."""
        return max((p.offset for p in self.outputs), default=0) + sum(t.nbytes for t in outputs) > devices.HUGE_BYTES

    def _ruler(self, index: int) -> on_host.Ruler:
        low, slack = (found[index] if found and index < len(found) else None for found in (self.low_error, self.slack))
        return on_host.Ruler(low, self.terms, slack)

    def _sampled(self, header: dict[str, Any]) -> list[dict[str, Any]] | None:
        """Checks a random sample of tiles of each output as `_near` does; returns None if a full comparison is
        needed."""
        generator = torch.Generator().manual_seed(header["tiles"])
        picks = [_tiles(place, generator, self.device.name) for place in self.outputs]
        got = [self._at(p, header["slot"]).view(-1)[i].clone() for p, i in zip(self.outputs, picks, strict=True)]
        return self._near(header, [header["seed"]], [got], picks)[0]

    def _near(
        self,
        header: dict[str, Any],
        seeds: list[int],
        got: list[list[torch.Tensor]],
        picks: list[torch.Tensor] | None = None,
    ) -> list[list[dict[str, Any]] | None]:
        """Returns results of each call whose every output is so near the honest run on inputs of its seed that it must
        pass; None for a call that needs a comparison. `picks` are the elements of each output that `got` has.

        |out - honest| <= T/2 (|honest| + rms(honest)) everywhere is enough, with rms over an element's segment (see
        `on_host`) and T at most 1. With h the honest run's largest error in the segment, the triangle inequality gives
        |out - ref| <= T/2 (|ref| + rms(ref)) + (1 + T) h, and the rule allows T (|ref| + rms(ref)) and at least 2 h.
        """
        made = [self._own_run(header["distribution"], seed, header["call_seed"]) for seed in seeds]
        found: list[tuple[torch.Tensor, float]] = []
        columns = zip(zip(*got, strict=True), zip(*made, strict=True), strict=True)
        for k, (outs, honest) in enumerate(columns):
            if k in self.optional:
                found.append((torch.zeros(len(seeds)), 1.0))
                continue
            name = wire.dtype_name(honest[0].dtype)
            limit = 0.0
            if name in on_host.TOLERANCES:
                ruler, asked = self._ruler(k), header["tolerance"]
                found_bound = on_host.bound(name, ruler.low, ruler.length, ruler.slack)
                limit = min(1.0, found_bound if asked is None else asked)
            if picks is not None:
                honest = tuple(t.reshape(-1)[picks[k]] for t in honest)
            shape = None if picks is not None else tuple(honest[0].shape)
            found.append((on_device.nearness(_stacked(outs), _stacked(honest), limit, shape), limit))
        differences = torch.stack([d.to(torch.float64).cpu() for d, _ in found]) if found else torch.empty(0, len(got))
        limits = [limit for _, limit in found]
        return [results.near_results(one, limits) for one in differences.T.tolist()]

    def _own_run(self, kind: Distribution, seed: int, call_seed: int) -> list[torch.Tensor]:
        """Returns the reference's outputs in its own dtype, on inputs that were never in a block."""
        values = self._values(kind, seed)
        draws.seed_all(call_seed)
        with torch.no_grad(), draws.OnDevice(self.device.name), honest_runs.emulated(self.precision, self.device.name):
            return reference_runs.outputs_of(self._eager(), values).outputs

    def _values(self, kind: Distribution, seed: int) -> Any:
        """Returns the inputs of a call, made anew or copied: a reference may write to them."""
        kept = self.made.get((kind, seed))
        return task_inputs.make_inputs(self.namespace, kind, seed) if kept is None else _copied(kept)

    def share(self, message: Frame) -> dict[str, Any]:
        """Returns the share of the input bytes that outputs depend on."""
        seed = message.header["seed"]
        self._place()
        made = task_inputs.make_inputs(self.namespace, "own", seed)
        tensors = [t.clone(memory_format=torch.contiguous_format) for t in wire.tensors_of(made)]
        values = wire.replace_tensors(made, tensors)
        rng = np.random.default_rng(seed)
        return {"share": input_coverage.share(tensors, lambda: self._honest(values, seed), rng)}

    def facts(self, _message: Frame) -> dict[str, Any]:
        """Returns the device's facts now."""
        return {"device": self.device.facts()}

    def _eager(self) -> Any:
        if self.twin is None:
            self.twin = copy.deepcopy(self.model)  # a module in training mode changes itself when called
        return self.twin

    def _honest(self, values: Any, call_seed: int) -> list[torch.Tensor]:
        with honest_runs.emulated(self.precision, self.device.name):
            return reference_runs.reference_outputs(self.model, values, None, call_seed)

    def _exact(self, values: Any, call_seed: int) -> list[torch.Tensor]:
        return reference_runs.reference_outputs(self.model, values, torch.float64, call_seed)

    def _at(self, place: Place, slot: int, block: torch.Tensor | None = None) -> torch.Tensor:
        block = self.shared if block is None else block
        assert block is not None
        return devices.view(block, slot * self.stride + place.offset, getattr(torch, place.dtype), place.shape)

    def release(self, _message: Frame) -> dict[str, Any]:
        """Forgets the previous task, and returns all of its memory to the device."""
        self.drop(everything=True)
        return {}

    def drop(self, everything: bool = False) -> None:
        """Forgets the previous task; with `everything`, keeps none of its memory for the next one."""
        self.model, self.state, self.namespace, self.twin = None, {}, {}, None
        self.low_error, self.slack, self.before, self.slicing = None, None, None, None
        self.made = {}
        for block in (self.shared, self.aside):
            if block is not None:
                self.device.release(block, owner=True)
        self.shared = self.aside = None
        gc.collect()
        devices.give_back(self.device.name, everything)


def _copied(values: Any) -> Any:
    """Returns the same arguments with tensors of their own."""
    return wire.replace_tensors(values, storages.copies(wire.tensors_of(values)))


def _stacked(outputs: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns outputs of one shape as one tensor [S, ...]; a single one is not copied."""
    return outputs[0].unsqueeze(0) if len(outputs) == 1 else torch.stack(list(outputs))


def _tiles(place: Place, generator: torch.Generator, device: str) -> torch.Tensor:
    """Returns indices of `TILES` runs of `TILE` elements at random places of a flat output, including the last
    elements."""
    numel = math.prod(place.shape)
    length = min(TILE, numel)
    starts = torch.randint(0, numel - length + 1, (TILES,), generator=generator)
    starts[-1] = numel - length
    return (starts.to(device)[:, None] + torch.arange(length, device=device)).reshape(-1)


def _divide(memories: list[int], made: list[torch.Tensor]) -> tuple[list[Place], list[Place], int]:
    """Returns the places of inputs' memories, given by their bytes, the places of outputs, and the bytes of a slot."""
    offsets, total = devices.layout([*memories, *(t.nbytes for t in made)])
    first = len(memories)
    inputs = [Place(o, "uint8", [n]) for o, n in zip(offsets[:first], memories, strict=True)]
    outputs = [Place(o, wire.dtype_name(t.dtype), list(t.shape)) for o, t in zip(offsets[first:], made, strict=True)]
    return inputs, outputs, total


def _structure(values: list[Any]) -> list[Any]:
    """Returns the nest of each argument in `wire`'s form, its tensors by number only."""
    empty = wire.replace_tensors(values, [torch.empty(0) for _ in wire.tensors_of(values)])
    return wire.pack_values(*empty)[0]


def _scale(values: Any) -> float:
    """Returns the root mean square of all floating inputs together; 1 if there are none."""
    squares, count = [], 0
    for tensor in wire.tensors_of(values):
        if tensor.is_floating_point() and tensor.numel():
            flat = tensor.reshape(-1)
            parts = (flat[part].to(torch.float64) for part in on_device.blocks(flat.numel(), 1))
            squares += [part.nan_to_num(0, 0, 0).square().sum() for part in parts]
            count += tensor.numel()
    home = squares[0].device if squares else None  # some inputs may be on the CPU
    return (float(torch.stack([s.to(home) for s in squares]).sum()) / count) ** 0.5 if count else 1.0


def serve(channel: Channel, level: str, device: Device) -> None:
    """Answers the judge until it closes the channel."""
    referee = Referee(device)
    channel.send({"kind": "ready", "level": level, "launch_ms": device.launch_ms})
    answer_all(
        channel,
        {
            "construct": ("constructed", referee.construct),
            "prepare": ("prepared", referee.prepare),
            "fill": ("filled", referee.fill),
            "check": ("checked", referee.check),
            "check_row": ("checked", referee.check_row),
            "reweigh": ("reweighed", referee.reweigh),
            "share": ("shared", referee.share),
            "facts": ("told", referee.facts),
            "release": ("released", referee.release),
        },
        after=lambda: devices.spare(device.name),  # nothing is timed in this process
    )
