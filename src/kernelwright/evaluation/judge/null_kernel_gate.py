"""The null-kernel gate: tries a task against kernels that do no work, and tells whether its inputs catch them.

Each null kernel (`tasks.nulls`, `tasks.shortcuts`) is judged like a candidate: by the trials of an evaluation and the
same comparison. It must fail in at least one trial, and in at least one at the task's own extents (with a smaller batch
if the whole is too large), since a GPU judges there. If a null never fails, harder distributions are added until all
nulls fail (`hardened`; later evaluations use them). If none helps, the task is `quarantined`. A null knows the means of
every distribution and size it meets, which a real shortcut would have to guess: the gate errs on the strict side.

A downgrade that only rounds inputs (`fp16-inputs`) or that passes by a wide tolerance (`bf16`) is reported as
`lax-tolerance`; `fp16` on a float32 task, with floating results rounded too, counts as a null.

A task is also `quarantined` if its integer outputs depend on rounding: the reference in its own dtype and in float64
gives different indices on the task's own values, at more places than a second look forgives. An honest kernel would
give different indices again, and be wrong.

This module executes no code of a task: the oracle does.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from kernelwright.errors import TaskError
from kernelwright.evaluation.compare import on_host, second_look
from kernelwright.evaluation.judge.trial_choice import trial_list, value_kinds
from kernelwright.evaluation.options import PROTOCOL
from kernelwright.evaluation.processes.oracle_client import OracleClient
from kernelwright.evaluation.tensor_bytes import TensorBytes
from kernelwright.evaluation.trials import TaskPlan, Trial, TrialData
from kernelwright.records import Distribution, Evaluation, Finding, Gate, Task
from kernelwright.tasks import nulls

GATE_PROTOCOL = 3
"""The version of the gate's tests and demands. Stored states of earlier versions are not used."""
TRIALS = 5
"""The default number of an evaluation."""
LARGE_ELEMENTS = 600_000
"""Above this size, only nulls that have passed every trial so far are tried."""
LAX = frozenset({"fp32-inputs", "fp16-inputs", "bf16-inputs", "fp32", "bf16"})
"""Downgrades that may pass if rounding averages out or there are few results: noted, but no reason for quarantine."""


@dataclass
class Tally:
    """The trials that one null kernel passed and failed, as `workload/distribution`, and its largest error."""

    name: str
    passed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    worst: float = 0.0
    """The largest ratio of error to tolerance; infinite if a value is misplaced or of the wrong kind."""
    error: float = 0.0
    """The relative error of that trial; `tolerance` is the one it was compared with."""
    tolerance: float = 0.0

    def add(self, where: str, outcome: on_host.Comparison) -> None:
        error, tolerance = outcome.max_rel_error, outcome.tolerance
        ratio = error / tolerance if error is not None and tolerance else (0.0 if outcome.passed else math.inf)
        if ratio >= self.worst:
            self.worst, self.error, self.tolerance = ratio, error or 0.0, tolerance or 0.0
        (self.passed if outcome.passed else self.failed).append(where)

    def escapes(self, workload: str = "") -> bool:
        """Tells whether the null passed some trial and failed none; with `workload`, at that size."""
        passed = [p for p in self.passed if p.startswith(workload)]
        return bool(passed) and not any(f.startswith(workload) for f in self.failed)


@dataclass(frozen=True)
class Checked:
    """A gate's state and its tallies, over the trials that an evaluation will take."""

    gate: Gate
    tallies: tuple[Tally, ...]


class Battery:
    """The null kernels of one task, and their tallies."""

    def __init__(self, task: Task, oracle: OracleClient, unread: list[int]) -> None:
        self.task = task
        self.oracle = oracle
        self.unread = unread
        self.tallies: dict[str, Tally] = {}
        self.problems: list[str] = []
        self.lax = LAX
        self.unsettled = ""
        """The count and trial at which integer outputs depend on rounding; empty if they do not."""

    def run(self, trials: Sequence[Trial], only: list[str] | None = None) -> None:
        """Judges the nulls on the trials. `only` names the nulls to judge."""
        for trial in trials:
            wanted = only
            if trial.workload.elements > LARGE_ELEMENTS and self.tallies:
                wanted = [n for n in self.escaped(lax=True) if only is None or n in only]
            if wanted is None or wanted:
                self._trial(trial, wanted)

    def _trial(self, trial: Trial, only: list[str] | None) -> None:
        call_seed = trial.input_seed ^ 0x5EED
        data = self.oracle.trial(trial, call_seed)
        other = self.oracle.trial(dataclasses.replace(trial, input_seed=trial.input_seed ^ 1), call_seed)
        kinds = [t.dtype for t in data.honest]
        if not any(kind in on_host.TOLERANCES for kind in kinds):
            self.lax = LAX | {"fp16"}  # integers are compared exactly: no precision can be lost
        found = {
            name: [on_host.Array(values, kind) for values, kind in zip(outputs, kinds, strict=True)]
            for name, outputs in nulls.outputs_without_work(_draw(data), _draw(other), trial.input_seed).items()
        }
        for name, tensors in self._shortcuts(trial, call_seed, only).items():
            found[name] = [on_host.Array.of(t) for t in tensors]
        where = f"{trial.workload.name}/{trial.distribution}"
        if trial.distribution == "own":  # other distributions saturate more than the task's author intended
            self.unsettled = self.unsettled or _unsettled(data, where)
        for name, arrays in found.items():
            if only is None or name in only:
                self.tallies.setdefault(name, Tally(name)).add(where, judged(arrays, data, self.task))

    def _shortcuts(self, trial: Trial, call_seed: int, only: list[str] | None) -> dict[str, tuple[TensorBytes, ...]]:
        try:
            return self.oracle.shortcuts(trial, call_seed, only, self.unread)
        except TaskError as error:  # the reference ran on its own inputs: only these nulls failed
            self.problems.append(f"nulls-not-run: {error}"[:300])
            return {}

    def escaped(self, workload: str = "", lax: bool = False) -> list[str]:
        """Returns the nulls that no trial has caught; with `lax`, includes downgrades that count only as a note.

        With `workload`, returns the nulls that no trial at that size has caught, without downgrades.
        """
        left_out = LAX | {"fp16"} if workload else frozenset() if lax else self.lax
        return [n for n, t in self.tallies.items() if n not in left_out and t.escapes(workload)]

    def tried(self, where: str) -> bool:
        return any(where in t.passed or where in t.failed for t in self.tallies.values())


def _unsettled(data: TrialData, where: str) -> str:
    """Returns the count of integers that differ between the reference's two precisions, with the trial.

    Empty if they are few enough for a second look.
    """
    for exact, honest in zip(data.exact, data.honest, strict=True):
        if honest.dtype in on_host.TOLERANCES:
            continue
        other = exact.array() != honest.array()
        count = int(other.sum())
        if count and not second_look.few(count, other.size):
            return f"in {count} of {other.size} elements ({where})"
    return ""


def judged(arrays: Sequence[on_host.Array], data: TrialData, task: Task) -> on_host.Comparison:
    """Compares a null's outputs with the expected ones, by the comparison that judges candidates."""
    return on_host.compare(
        arrays,
        [t.array() for t in data.exact],
        [t.array() for t in data.honest],
        [on_host.OutputSpec(t.dtype, t.shape, data.input_scale) for t in data.honest],
        tolerance=task.tolerance,
        low_error=data.low_error,
        nearby=data.nearby,
    )


def _draw(data: TrialData) -> nulls.Draw:
    arrays = [tuple(t.array() for t in group) for group in (data.packed(0)[1], data.packed(2)[1], data.honest)]
    return nulls.Draw(*arrays)


def examine(task: Task, plan: TaskPlan, oracle: OracleClient) -> Checked:
    """Runs the battery and the lint on a task; deterministic in the task.

    Raises `TaskError` when its reference does not run. `plan` is the task's plan without distributions that an earlier
    gate added.
    """
    started = time.monotonic()
    seed = int(subject(task)[:7], 16)
    declared = [w.constants for w in task.workloads] or [{}]
    facts = oracle.lint(trial_list(plan, 1, seed)[0].workload, declared, seed)
    battery = Battery(task, oracle, facts["unread"])
    escaped = _escaped(battery, plan, seed)
    needed: list[Distribution] = []
    if escaped:
        needed = _needed(battery, plan, facts["hardening"], escaped, seed + 2)
    if needed:
        harder = Battery(task, oracle, facts["unread"])
        still = _escaped(harder, hardened(plan, needed), seed)
        if still:
            needed = []
        else:
            battery, escaped = harder, []
    tallies = tuple(battery.tallies.values())
    notes = [f"{rule}: {evidence}" for rule, evidence in facts["notes"]] + battery.problems + _lax(battery)
    gate = Gate(
        protocol=GATE_PROTOCOL,
        of=subject(task),
        state="quarantined" if escaped or battery.unsettled else "hardened" if needed else "sound",
        reason=_reason(battery, escaped, needed),
        distributions=tuple(needed),
        passed=tuple(f"{t.name}: {', '.join(dict.fromkeys(t.passed))}" for t in tallies if t.passed),
        notes=tuple(notes),
        memory_gb=facts["memory_gb"],
        seconds=round(time.monotonic() - started, 2),
    )
    return Checked(gate, tallies)


def _escaped(battery: Battery, plan: TaskPlan, seed: int) -> list[str]:
    """Runs the battery on a plan. Returns the nulls that pass everywhere, or everywhere at the task's own extents.

    Only these are tried with a second seed: one seed's values may agree by chance, above all in small outputs.
    """
    own = next((w for w in plan.workloads if w.scope != "reduced"), None)
    escaped: list[str] = []
    for again in (0, 1):
        trials = trial_list(plan, TRIALS, seed + again)
        battery.run(trials, escaped if again else None)
        if own is not None:
            base = dataclasses.replace(trials[0], workload=own)
            more = [dataclasses.replace(base, distribution=k) for k in value_kinds(plan)[:TRIALS]]
            more = [t for t in more if again or not battery.tried(f"{own.name}/{t.distribution}")]
            battery.run(more, battery.escaped(f"{own.name}/"))
        escaped = list(dict.fromkeys(battery.escaped() + (battery.escaped(f"{own.name}/") if own else [])))
        if not escaped:
            break
    return escaped


def _needed(
    battery: Battery, plan: TaskPlan, usable: list[Distribution], escaped: list[str], seed: int
) -> list[Distribution]:
    """Returns harder distributions, as few as their order allows, that catch every escaped null.

    Empty if some null is not caught.
    """
    chosen: list[Distribution] = []
    left = list(escaped)
    own = next((w for w in plan.workloads if w.scope != "reduced"), plan.workloads[0] if plan.workloads else None)
    for kind in usable:
        trial = dataclasses.replace(trial_list(plan, 1, seed)[0], distribution=kind)
        if own is not None:
            trial = dataclasses.replace(trial, workload=own)
        alone = Battery(battery.task, battery.oracle, battery.unread)
        alone.run([trial], left)
        caught = [n for n in left if n in alone.tallies and alone.tallies[n].failed]
        if caught:
            chosen.append(kind)
            left = [n for n in left if n not in caught]
        if not left:
            return chosen
    return []


def hardened(plan: TaskPlan, distributions: Sequence[Distribution]) -> TaskPlan:
    """Returns a plan with more distributions (`trial_choice.value_kinds` takes them right after the task's own)."""
    extra = [d for d in distributions if d not in plan.distributions]
    return dataclasses.replace(plan, distributions=[*plan.distributions, *extra])


def _reason(battery: Battery, escaped: list[str], needed: list[Distribution]) -> str:
    if battery.unsettled:
        return f"integer outputs hang on rounding: float64 and the reference's own dtype differ {battery.unsettled}"
    if needed:
        return f"the usual values do not catch every null kernel; {', '.join(needed)} values do"
    if not escaped:
        return ""
    first = battery.tallies[escaped[0]]
    where = "everywhere" if first.escapes() else "at the task's own extents"
    text = f"{first.name} passes {where}: largest error {first.error:.2g}, allowed {first.tolerance:.2g}"
    others = f"; so do {', '.join(escaped[1:4])}" if len(escaped) > 1 else ""
    return text + others + (f" and {len(escaped) - 4} more" if len(escaped) > 4 else "")


def _lax(battery: Battery) -> list[str]:
    """Returns a note if lower precision passes every trial."""
    names = [n for n in battery.escaped(lax=True) if n in battery.lax]
    return [f"lax-tolerance: {', '.join(names)} cannot be told from the declared precision"] if names else []


def finding(gate: Gate) -> Finding:
    """Returns the finding for evaluations on a quarantined task."""
    return Finding(rule="quarantined-task", evidence=f"the task cannot tell right from wrong: {gate.reason}")


def marked(evaluation: Evaluation, gate: Gate | None) -> Evaluation:
    """Returns the evaluation, with a warning if its task is quarantined."""
    if gate is None or gate.state != "quarantined":
        return evaluation
    return evaluation.changed(findings=(*evaluation.findings, finding(gate)))


def stored(task: Task, cache: Path) -> Gate | None:
    """Reads a task's gate state from its folder, else from the cache; None if task or gate have changed since."""
    if task.gate is not None and _holds(task.gate, task):
        return task.gate
    try:
        gate = Gate.model_validate_json(_path(task, cache).read_text(encoding="utf-8"))
    except (OSError, ValidationError):
        return None
    return gate if _holds(gate, task) else None


def store(gate: Gate, task: Task, cache: Path) -> None:
    """Writes a gate state to the cache folder, atomically."""
    path = _path(task, cache)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}.{secrets.token_hex(4)}")
    temporary.write_text(gate.model_dump_json(), encoding="utf-8")
    os.replace(temporary, path)


def subject(task: Task) -> str:
    """Returns the SHA-256 of all that the gate depends on: a task's source, declared sizes and tolerance.

    A task's name and policy are not part of it.
    """
    parts = [task.source, [w.plain() for w in task.workloads], task.tolerance]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _holds(gate: Gate, task: Task) -> bool:
    return gate.protocol == GATE_PROTOCOL and gate.of == subject(task)


def _path(task: Task, cache: Path) -> Path:
    key = hashlib.sha256(f"{PROTOCOL} {GATE_PROTOCOL} {subject(task)}".encode()).hexdigest()
    return cache / "gates" / f"{key}.json"
