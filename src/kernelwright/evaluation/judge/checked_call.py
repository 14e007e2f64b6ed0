"""Checks one call: adds its observations to the attempt, and ends the attempt at the first failure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.evaluation.case import Case
from kernelwright.evaluation.compare import moved_outputs, on_host
from kernelwright.evaluation.judge import rules
from kernelwright.evaluation.judge.attempt import Attempt, note_launches
from kernelwright.evaluation.judge.verdict import call_verdict, machine_findings
from kernelwright.evaluation.processes.candidate_client import Answered, CandidateClient
from kernelwright.evaluation.processes.messages import Called, CallState
from kernelwright.evaluation.tensor_bytes import TensorBytes
from kernelwright.evaluation.trials import Trial, TrialData
from kernelwright.records import (
    Finding,
    WorkloadResult,
)


@dataclass(frozen=True)
class CheckedCall:
    """One call with its comparison: the facts that the runner reported, and the judge's result for its outputs."""

    facts: CallState
    result: WorkloadResult
    trial: Trial
    largest_input: int
    """Elements of the largest input."""
    guarded: list[Finding]
    """Findings of the rules (`rules`)."""
    remarks: tuple[Finding, ...] = ()
    """Findings that do not affect the verdict."""


def settle(attempt: Attempt, client: CandidateClient, call: CheckedCall) -> None:
    """Adds one call to the attempt, and sets `attempt.failed` to the first failure found in it."""
    note_launches(attempt, client, call.facts)
    attempt.work.append((call.trial.workload, sum(one.instructions for one in call.facts.facts.launches)))
    findings, suspects = machine_findings(client, call.facts.findings, call.trial.workload.name)
    if not call.result.passed:
        findings = findings + suspects
    attempt.findings.extend(f for f in (*findings, *call.guarded, *call.remarks) if f not in attempt.findings)
    used = rules.library_work(call.facts, call.largest_input)
    attempt.library_ops.extend(op for op in used if op not in attempt.library_ops)
    attempt.results.append(call.result)
    verdict = call_verdict(call.facts, call.result, findings, call.guarded, call.trial)
    attempt.failed = verdict or attempt.failed


def _name(data: TrialData, number: int) -> str:
    """Returns the name of an expected tensor: of an output, or of an input after the call."""
    after = number - data.returned
    return f"output {number}" if after < 0 else f"input {data.changed[after]} after the call"


def _spec(data: TrialData, number: int, tensor: TensorBytes) -> on_host.OutputSpec:
    """Returns what an expected tensor must be."""
    own = data.own_errors[number] if number < len(data.own_errors) else None
    slack = data.slack[number] if data.slack else None
    return on_host.OutputSpec(tensor.dtype, tensor.shape, data.input_scale, _name(data, number), own, slack)


def _outputs_and_inputs(data: TrialData, tensors: tuple[TensorBytes, ...], mutated: Sequence[int]) -> list[TensorBytes]:
    """Returns what a call returned, and the inputs after it that the reference changes.

    A candidate may return anything where the reference returns nothing. An input that the reference changes by an
    option alone may be as it was.
    """
    count = len(tensors) - len(data.changed)
    found = [*tensors[: count if data.returned else 0], *tensors[count:]]
    if len(found) < len(data.honest):
        return found
    for place, number in enumerate(data.changed, start=data.returned):
        if number in data.optional and number not in mutated:
            found[place] = data.honest[place]
    return found


def check_outputs(
    attempt: Attempt, client: CandidateClient, trial: Trial, data: TrialData, answer: Answered[Called], case: Case
) -> None:
    """Compares the outputs of one call with the oracle's, and settles the call under the case's library rule."""
    facts = answer.facts
    tensors = _outputs_and_inputs(data, answer.tensors, facts.mutated)
    outcome = on_host.compare(
        [on_host.Array.of(t) for t in tensors],
        [t.array() for t in data.exact],
        [t.array() for t in data.honest],
        [_spec(data, k, t) for k, t in enumerate(data.honest)],
        tolerance=case.task.tolerance,
        low_error=data.low_error,
        nearby=data.nearby,
        products=data.products,
    )
    name = trial.workload.name
    bare = rules.unwritten(facts, name)
    said = f"{bare.rule}: {bare.evidence}" if bare is not None else ""
    result = WorkloadResult(
        name=name,
        scope=trial.workload.scope,
        distribution=trial.distribution,
        shape=data.shapes,
        dtype=data.dtypes,
        max_abs_error=outcome.max_abs_error,
        max_rel_error=outcome.max_rel_error,
        tolerance=outcome.tolerance,
        honest_error=outcome.honest_error,
        forgiven=outcome.forgiven,
        errors=outcome.errors,
        passed=outcome.passed and bare is None,
        reason="; ".join(part for part in (said, outcome.reason) if part),
    )
    returned = sum(len(t.data) for t in answer.tensors)
    if returned:
        attempt.stored_share = min(attempt.stored_share, sum(facts.facts.written.values()) / returned)
    guarded = rules.call_findings(facts, case.rule, data.largest_input, name, rules.Shared(data.handed, data.changed))
    guarded += rules.unfounded(facts, any(b.status == "ok" for b in client.builds), name)
    if result.passed and case.rule != "libraries" and rules.rejecting(guarded) is None:
        guarded += _moved(client, trial, data, facts, case)
    remarks = (*rules.never_read(facts, data.shapes, name), *([bare] if bare is not None else []))
    settle(attempt, client, CheckedCall(facts, result, trial, data.largest_input, guarded, remarks))


def _moved(client: CandidateClient, trial: Trial, data: TrialData, facts: Called, case: Case) -> list[Finding]:
    """Checks whether torch's operators have done a task that only moves values."""
    call_seed = trial.input_seed ^ 0x5EED
    evidence = moved_outputs.moved_by_operators(
        facts.origins or (),
        facts.moved_bytes,
        moved_outputs.Expected(data.exact, data.honest, data.handed),
        rules.few(data.largest_input),
        lambda: case.oracle.movements(trial, call_seed),
        client.moved,
    )
    return [rules.moved_decoy(evidence, trial.workload.name)] if evidence else []
