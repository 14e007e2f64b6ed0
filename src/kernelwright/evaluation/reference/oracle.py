"""The oracle: the sandboxed child that runs a task's own code, and none of a candidate's.

It derives workloads, makes inputs from the judge's seeds, and computes the expected outputs: in float64, in the
declared dtype (the honest error), and at the next lower precision (the ruler that a tolerance must stay below). One
oracle serves one task, for as many trials as the judge asks.

It also runs the null-kernel gate's requests of the reference: reruns on fewer inputs, and the lint.

Messages in: `plan`, `trial`, `nearby`, `products`, `movement`, `outline`, `elements`, `shortcuts`, `lint`. Out:
`ready`, `planned`, `tried`, `moved`, `rounded`, `movement`, `outlined`, `computed`, `shortcut`, `linted`, `failed`.
"""

from __future__ import annotations

import dataclasses
import gc
import io
import sys
import traceback
from typing import Any

import numpy as np
import torch

from kernelwright.errors import TaskError, UnsupportedTask
from kernelwright.evaluation.processes import wire
from kernelwright.evaluation.processes.channel import Channel, ChannelClosed, Frame
from kernelwright.evaluation.reference import honest_runs, movement, sampled_elements
from kernelwright.evaluation.tensor_bytes import TensorBytes
from kernelwright.tasks import distributions, draws, lint, probe, reference_runs, rounded_products, shortcuts
from kernelwright.tasks import inputs as task_inputs
from kernelwright.tasks import workloads as task_workloads

SAMPLE = 1 << 16
"""The number of values that stand for a tensor that is too large to make."""
MOST_WEIGHTS = 64_000_000
"""The most parameters of a model whose values are compared at a size that is too large to run."""


class Oracle:
    """One task's source and the facts already derived from it."""

    def __init__(self) -> None:
        self.source = ""
        self.distributions: dict[str, list[str]] = {}

    def plan(self, message: Frame) -> dict[str, Any]:
        """Derives workloads and the distributions that the task's preconditions allow."""
        header = message.header
        self.source = header["source"]
        declared, large, notes = task_workloads.affordable(self.source, header["workloads"])
        if declared:
            plan: dict[str, Any] = {"workloads": declared, "declared": None, "notes": notes, "long": []}
            task_workloads.check_workloads(self.source, declared)
        else:
            derived = task_workloads.derive(self.source, **header["budget"])
            plan = {
                "workloads": [w.model_dump(mode="json") for w in derived.workloads],
                "declared": derived.declared.model_dump(mode="json") if derived.declared else None,
                "notes": [*notes, *derived.notes],
                "long": [w.model_dump(mode="json") for w in derived.long],
            }
        first = (plan["workloads"] or [plan["declared"]])[0]
        namespace = task_workloads.instantiate(self.source, first["constants"])
        usable = distributions.usable_distributions(namespace, seed=header["seed"])
        return {**plan, "distributions": list(usable), "large": large}

    def trial(self, message: Frame) -> tuple[dict[str, Any], tuple[TensorBytes, ...]]:
        """Returns inputs and expected outputs of one call."""
        header = message.header
        call_seed = header["call_seed"]
        namespace, model = self._model(header)
        draws.seed_all(header["weight_seed"])
        init = task_inputs.init_arguments(namespace)
        state = {k: v.detach().clone() for k, v in model.state_dict().items()} if hasattr(model, "state_dict") else {}
        values = task_inputs.make_inputs(namespace, header["distribution"], header["seed"])
        exact = reference_runs.reference_outputs(model, values, torch.float64, call_seed)
        precision = header["precision"]
        with honest_runs.emulated(precision, "cpu"):
            run = reference_runs.run_reference(model, values, None, call_seed)
        worse = honest_runs.worse(model, values, exact, run.outputs, precision, call_seed)
        optional = reference_runs.optional_changes(model, values, run.changed, call_seed)
        honest = reference_runs.widen_honest(model, state, values, exact, worse or run.outputs, call_seed)
        if worse is None:
            low = reference_runs.low_precision_error(model, state, values, exact, call_seed)
        else:
            low = honest_runs.below_tf32(model, values, exact, call_seed) or []
        nodes, tensors = wire.pack_values(values, init, state)
        packed_exact = tuple(wire.pack_tensor(t) for t in exact)
        packed_honest = tuple(wire.pack_tensor(t) for t in honest)
        facts = {
            "values": nodes,
            "input_count": len(tensors),
            "output_count": len(exact),
            "low_error": low,
            "slack": None if worse is None else honest_runs.largest(honest, exact),
            "own_errors": rounded_products.errors(run.outputs, exact),
            "input_scale": _scale(values),
            "shapes": [list(t.shape) for t in wire.tensors_of(values)],
            "dtypes": [wire.dtype_name(t.dtype) for t in wire.tensors_of(values)],
            "handed": run.handed,
            "changed": run.changed,
            "optional": optional,
        }
        return facts, tensors + packed_exact + packed_honest

    def nearby(self, message: Frame) -> tuple[dict[str, Any], tuple[TensorBytes, ...]]:
        """Returns a trial's reference outputs in float64 on inputs moved by noise, for the second look."""
        header = message.header
        namespace, model = self._model(header)
        values = task_inputs.make_inputs(namespace, header["distribution"], header["seed"])
        moved = reference_runs.nearby_outputs(model, {}, values, header["call_seed"], header["noise"], header["sign"])
        return {"worked": moved is not None}, tuple(wire.pack_tensor(t) for t in moved or ())

    def products(self, message: Frame) -> dict[str, Any]:
        """Returns the errors of a trial's reference with other products; None if it computes none."""
        header = message.header
        namespace, model = self._model(header)
        values = task_inputs.make_inputs(namespace, header["distribution"], header["seed"])
        call_seed, noise = header["call_seed"], header["noise"]
        operands = rounded_products.nearest(honest_runs.BELOW[header["precision"]]) if noise is None else None
        made = rounded_products.outputs(model, values, call_seed, operands=operands, noise_seed=noise)
        if made is None:
            return {"errors": None}
        exact = reference_runs.reference_outputs(model, values, torch.float64, call_seed)
        return {"errors": rounded_products.errors(made, exact)}

    def movement(self, message: Frame) -> tuple[dict[str, Any], tuple[TensorBytes, ...]]:
        """Returns for each output what the reference has only moved there, and where."""
        header = message.header
        namespace, model = self._model(header)
        values = task_inputs.make_inputs(namespace, header["distribution"], header["seed"])
        told, masks = movement.movements(model, values, header["call_seed"])
        facts = [{k: v for k, v in dataclasses.asdict(one).items() if k != "moved"} for one in told]
        return {"outputs": facts}, tuple(wire.pack_tensor(t) for t in masks)

    def outline(self, message: Frame) -> tuple[dict[str, Any], tuple[TensorBytes, ...]]:
        """Returns the arguments of a call at a size that is too large to make, each with a few values of a smaller
        call's argument."""
        header = message.header
        self.source = header.get("source") or self.source
        small = task_workloads.instantiate(self.source, header["constants"])
        made, plain = task_inputs.make_drawn(small, header["distribution"], header["seed"])
        given = wire.tensors_of(made)
        try:
            values, init = probe.outline(self.source, header["large"])
        except probe.ReferenceFails as failure:
            return {"problem": f"its arguments cannot be known without making them: {failure}"}, ()
        large = wire.tensors_of(values)
        whole = sum(t.numel() for t in large) <= header["most_real"]
        if whole:
            full = task_workloads.instantiate(self.source, header["large"])
            given = wire.tensors_of(task_inputs.make_inputs(full, header["distribution"], header["seed"]))
            plain = [True] * len(given)
        if wire.tensors_of(init):
            return {"problem": "its constructor takes tensors"}, ()
        if [t.dtype for t in large] != [t.dtype for t in given] or any(not t.numel() for t in given):
            return {"problem": "its arguments are of another kind at other sizes"}, ()
        samples = [_dense(t.reshape(-1)[: None if whole else SAMPLE]) for t in given]
        nodes, tensors = wire.pack_values(wire.replace_tensors(values, samples), init)
        exact = [a.shape == b.shape and (whole or a.numel() <= SAMPLE) for a, b in zip(given, large, strict=True)]
        facts = {"problem": "", "values": nodes, "forms": wire.forms_of(large), "exact": exact}
        state, why_not = self._state(header) if header["most_real"] else ([], "values were not asked for")
        if not why_not and not all(a or b for a, b in zip(plain, exact, strict=True)):
            why_not = "its inputs are more than draws, and too large to make"
        facts |= {"no_values": why_not, "state": [name for name, _ in state], "whole": whole}
        return facts, (*tensors, *(wire.pack_tensor(t) for _, t in state))

    def _state(self, header: dict[str, Any]) -> tuple[list[tuple[str, torch.Tensor]], str]:
        """Returns the weights of the model at a size that is too large to run, or the reason why there are none."""
        try:
            parameters = probe.measure(self.source, header["large"], "meta").parameters
        except probe.ReferenceFails as failure:
            return [], f"its cost is not known: {failure}"
        if parameters > MOST_WEIGHTS:
            return [], f"{parameters} weights are too many"
        _, model = self._model({**header, "constants": header["large"]})
        state = model.state_dict() if hasattr(model, "state_dict") else {}
        return [(k, v) for k, v in state.items() if isinstance(v, torch.Tensor)], ""

    def elements(self, message: Frame) -> tuple[dict[str, Any], tuple[TensorBytes, ...]]:
        """Returns the reference's outputs at some elements of a size that was outlined."""
        header, seed = message.header, message.header["call_seed"]
        wanted = sampled_elements.Wanted(
            [wire.unpack_tensor(t).numpy() for t in message.tensors], [tuple(s) for s in header["outputs"]]
        )
        _, model = self._model({**header, "constants": header["large"]})
        source = None
        if header["real"]:
            full = task_workloads.instantiate(self.source, header["large"])
            values: Any = task_inputs.make_inputs(full, header["distribution"], header["seed"])
        else:
            small = task_workloads.instantiate(self.source, header["constants"])
            values = task_inputs.make_inputs(small, header["distribution"], header["seed"])
            samples = [t.reshape(-1)[:SAMPLE] for t in wire.tensors_of(values)]
            source = sampled_elements.RepeatedInputs(samples, [tuple(s) for s in header["shapes"]])
        try:
            kept, places = [np.arange(len(k)) for k in wanted.indices], wanted.indices
            if header["small"]:
                kept, places, values = self._by_rows(header, wanted, values, source)
            noise = (header["noise"], header["sign"]) if header["noise"] else None
            found = sampled_elements.outputs(model, values, places, seed, noise)
        except sampled_elements.NotComputed as error:
            return {"problem": str(error)}, ()
        tensors = [] if found is None else [*found] if noise else [t for group in found for t in group]
        packed = tuple(wire.pack_tensor(t) for t in (*map(torch.from_numpy, kept), *tensors))
        return {"problem": "", "input_scale": _scale(values), "worked": found is not None}, packed

    def _by_rows(
        self, header: dict[str, Any], wanted: sampled_elements.Wanted, values: Any, source: Any
    ) -> tuple[list[np.ndarray], list[np.ndarray], Any]:
        """Returns the positions of the wanted elements that some rows hold, their places there, and inputs of the
        rows."""
        for constants in header["small"]:
            small, small_model = self._model({**header, "constants": constants})
            call = task_inputs.make_inputs(small, header["distribution"], header["seed"])
            cut = sampled_elements.division(call, small_model, header["call_seed"])
            if cut is not None:
                break
        else:
            raise sampled_elements.NotComputed("the reference does not divide by rows")
        rows = wanted.rows()
        kept, places = wanted.within(rows)
        return kept, places, sampled_elements.rows_of(values, source, cut, rows)

    def _model(self, header: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        """Returns the task's namespace at a trial's size, and its model with that trial's weights, or as the call
        before has left it."""
        self.source = header.get("source") or self.source
        namespace = task_workloads.instantiate(self.source, header["constants"])
        model = task_inputs.construct(namespace, header["weight_seed"])
        if header["randomise"] and isinstance(model, torch.nn.Module):
            task_inputs.randomise_weights(model, header["weight_seed"])
        if header["before"] is not None:
            seed, call_seed = header["before"]
            values = task_inputs.make_inputs(namespace, header["distribution"], seed)
            reference_runs.leave_state(model, values, call_seed)
        return namespace, model

    def shortcuts(self, message: Frame) -> tuple[dict[str, Any], tuple[TensorBytes, ...]]:
        """Returns the reference's outputs on less than one trial's inputs: names, and equally many outputs for each."""
        header = message.header
        namespace, model = self._model(header)
        values = task_inputs.make_inputs(namespace, header["distribution"], header["seed"])
        honest = reference_runs.reference_outputs(model, values, None, header["call_seed"])
        found = shortcuts.outputs_with_less(
            model, values, honest, header["call_seed"], header["only"], header["ignored"]
        )
        tensors = tuple(wire.pack_tensor(t) for outputs in found.values() for t in outputs)
        return {"names": list(found), "output_count": len(honest)}, tensors

    def lint(self, message: Frame) -> dict[str, Any]:
        """Returns notes on the task, the inputs that nothing depends on, and the hardening values that it can take."""
        header = message.header
        self.source = header["source"]
        notes, unread = lint.examine(self.source, header["constants"], header["seed"])
        more, memory_gb = lint.sizes(self.source, header["declared"])
        namespace = task_workloads.instantiate(self.source, header["constants"])
        usable = distributions.usable_distributions(namespace, header["seed"], distributions.HARDENING)
        hardening = [d for d in usable if d != "own"]
        return {"notes": notes + more, "unread": unread, "memory_gb": memory_gb, "hardening": hardening}


def _dense(flat: torch.Tensor) -> torch.Tensor:
    """Returns flat values that begin where their storage begins."""
    return flat.clone() if flat.storage_offset() else flat


def _scale(values: Any) -> float:
    """Returns the root mean square of all floating inputs together; 1 if there are none."""
    floats = [t.double() for t in wire.tensors_of(values) if t.is_floating_point() and t.numel()]
    count = sum(t.numel() for t in floats)
    if not count:
        return 1.0
    return float(sum(float(t.nan_to_num(0, 0, 0).square().sum()) for t in floats) / count) ** 0.5


def serve(channel: Channel, level: str) -> None:
    """Answers the judge until it closes the channel. Discards the task's printed output."""
    oracle = Oracle()
    channel.send({"kind": "ready", "level": level})
    while True:
        try:
            message = channel.receive()
        except ChannelClosed:
            return
        sys.stdout = sys.stderr = io.StringIO()
        try:
            if message.kind == "plan":
                channel.send({"kind": "planned", **oracle.plan(message)})
            elif message.kind == "lint":
                channel.send({"kind": "linted", **oracle.lint(message)})
            elif message.kind == "nearby":
                facts, tensors = oracle.nearby(message)
                channel.send({"kind": "moved", **facts}, tensors)
            elif message.kind == "products":
                channel.send({"kind": "rounded", **oracle.products(message)})
            elif message.kind == "movement":
                facts, tensors = oracle.movement(message)
                channel.send({"kind": "movement", **facts}, tensors)
            elif message.kind == "outline":
                facts, tensors = oracle.outline(message)
                channel.send({"kind": "outlined", **facts}, tensors)
            elif message.kind == "elements":
                facts, tensors = oracle.elements(message)
                channel.send({"kind": "computed", **facts}, tensors)
            elif message.kind == "shortcuts":
                facts, tensors = oracle.shortcuts(message)
                channel.send({"kind": "shortcut", **facts}, tensors)
            else:
                facts, tensors = oracle.trial(message)
                channel.send({"kind": "tried", **facts}, tensors)
        except ChannelClosed:
            return
        except BaseException as error:  # a reference may raise anything, SystemExit included
            known = isinstance(error, TaskError)
            text = str(error) if known else f"the reference raised {type(error).__name__}: {error}"
            unsupported = isinstance(error, UnsupportedTask)
            hint = error.hint if isinstance(error, TaskError) else None
            trace = traceback.format_exc(limit=-4)
            answer = {"kind": "failed", "message": text[:2000], "hint": hint, "traceback": trace[-4000:]}
            channel.send({**answer, "unsupported": unsupported})
        gc.collect()
