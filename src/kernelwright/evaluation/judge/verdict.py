"""Turns observations into a verdict, in a fixed order of precedence.

1. A build that our side could not do decides (`unsupported`), even if the candidate fell back to other code.
2. A build that failed by the candidate's fault decides (`compile_error`) unless a later one succeeded and ran.
3. A launch that faulted decides (`runtime_error`), even if the candidate caught the error.
4. Races and wrong outputs follow (`wrong`), then the rules (`rejected`). Otherwise the candidate is `correct`.
"""

from __future__ import annotations

import dataclasses
import platform
import re
import time
from collections.abc import Sequence
from typing import Any

from kernelwright.evaluation.case import Submission
from kernelwright.evaluation.failure import Failed, missing_library
from kernelwright.evaluation.judge import large_sizes, rules
from kernelwright.evaluation.judge.attempt import Attempt, coverage_of
from kernelwright.evaluation.processes.candidate_client import CandidateClient
from kernelwright.evaluation.processes.messages import CallState, MachineFinding
from kernelwright.evaluation.processes.reader_client import Reading
from kernelwright.evaluation.text import library_ops
from kernelwright.evaluation.trials import Trial
from kernelwright.machine.runtime import SUSPECTS
from kernelwright.records import (
    Errors,
    Evaluation,
    Finding,
    LibraryRule,
    Seconds,
    WorkloadResult,
)
from kernelwright.untrusted import own_frames

_RACES = ("data-race", "missing-fence", "async-copy", "divergent-barrier", "sync-mask")
_RANKS = ("fault", "reject", "warning", "info")
KERNEL_COMPILE_ERROR = "kernel-compile-error"
SIZE_RULES = ("no-own-kernel", "library-op")
"""Rules that a candidate may break by a fallback at a size that it was not written for."""


def call_verdict(
    facts: CallState,
    outcome: WorkloadResult,
    findings: list[Finding],
    guarded: list[Finding],
    trial: Trial,
) -> Failed | None:
    """Returns the first failure of one call, in the order of the module's docstring."""
    if facts.unsupported:
        return Failed("unsupported", f"missing: {', '.join(facts.unsupported[:5])}"[:500])
    fault = next((f for f in findings if f.severity == "fault"), None)
    if fault is not None:
        return Failed("runtime_error", f"{fault.rule}: {fault.evidence}"[:500], fault)
    rejecting = rules.rejecting(guarded)
    shown = next((f for f in guarded if f.rule in ("lazy-output", "not-a-tensor", "broadcast-output")), None)
    if shown is not None:
        return Failed("rejected", f"{shown.rule}: {shown.evidence}", shown)
    missing = [n for n in facts.missing_libraries if n in ("triton", "cupy", "numba")]
    if missing and rejecting is not None and rejecting.rule == "no-own-kernel":
        return Failed("unsupported", missing_library(missing))
    race = next((f for f in findings if f.rule in _RACES), None)
    if race is not None:
        return Failed("wrong", f"{race.rule}: {race.evidence}"[:500], race)
    cause = next((f for f in findings if f.rule in SUSPECTS), None)
    if not outcome.passed and cause is not None:
        return Failed("wrong", f"{cause.rule}: {cause.evidence}; {outcome.reason}"[:500], cause)
    if not outcome.passed:
        where = f"{trial.workload.name}, {trial.distribution} values"
        return Failed("wrong", f"{outcome.reason} ({where})"[:500])
    if rejecting is not None:
        return Failed("rejected", f"{rejecting.rule}: {rejecting.evidence}"[:500], rejecting)
    return None


def machine_findings(
    client: CandidateClient, observed: Sequence[MachineFinding], workload: str
) -> tuple[list[Finding], list[Finding]]:
    """Returns the machine's findings with lines of the candidate's own file, and suspects.

    Suspects count only if outputs are wrong.
    """
    found: list[Finding] = []
    suspects: list[Finding] = []
    shown = observed[:50]
    for one, (evidence, line) in zip(shown, client.reading.in_own_lines(client.requests, shown), strict=True):
        finding = Finding(
            rule=one.rule,
            evidence=evidence[:1000],
            severity="info" if one.severity == "info" else "fault" if one.severity == "fault" else "warning",
            line=line,
            workload="" if one.severity == "info" else workload,
        )
        (suspects if one.severity == "suspect" else found).append(finding)
    return found, suspects


def build_verdict(session: CandidateClient, attempt: Attempt) -> Failed | None:
    """Returns the verdict by builds, missing features and faults, even if the candidate caught the error. Notes the
    number of builds that succeeded."""
    attempt.note(builds=sum(result.status == "ok" for result in session.builds))
    for result in session.builds:
        if result.status == "unsupported":
            names = ", ".join(result.missing) or "see the log"
            return Failed("unsupported", f"missing: {names}"[:500], log=result.log)
    unsupported = session.last.unsupported
    idle = next((f for f in attempt.findings if f.rule == "no-own-kernel"), None)
    if unsupported and idle is not None and not session.builds:
        # It has no kernel of its own: unsupported operators of torch do not matter then.
        return Failed("rejected", f"{idle.rule}: {idle.evidence}"[:500], idle)
    if unsupported:
        return Failed("unsupported", f"missing: {', '.join(map(str, unsupported[:5]))}"[:500])
    faults = [f for f in machine_findings(session, session.last.findings, "")[0] if f.severity == "fault"]
    if faults and (attempt.failed is None or attempt.failed.verdict in ("runtime_error", "rejected", "wrong")):
        return large_sizes.fault(faults[0], attempt.trial)
    errors = [i for i, r in enumerate(session.builds) if r.status == "compile_error"]
    ran = bool(attempt.launches) and (attempt.failed is None or attempt.failed.verdict != "rejected")
    if errors and not ran:
        return compile_error(session.reading, session.requests[errors[0]], session.builds[errors[0]].log)
    return _compiled_in_vain(session, attempt, ran)


def compile_error(reading: Reading, request: dict[str, Any], log: str) -> Failed:
    reason = _first_error(log)
    line = reading.error_line(request, log)
    finding = Finding(rule="compile-error", evidence=reason, severity="fault", line=line)
    return Failed("compile_error", reason, finding, log)


def _compiled_in_vain(session: CandidateClient, attempt: Attempt, ran: bool) -> Failed | None:
    """Returns the failure of a compiler in the runner, unless kernels ran: an autotuner may survive some failures."""
    errors = session.last.compile_errors
    failed = attempt.failed
    ended = failed is not None and failed.finding is not None and failed.finding.rule == "exception"
    if not errors or (ran and not ended):
        return None
    # Only the last failure can have ended the candidate; if kernels ran, it must be the exception that did.
    error = errors[-1]
    if ran and failed is not None and failed.exception != error.type:
        return None
    line = session.reading.own_line(error.source, error.line) if error.line else None
    message = next(iter(error.message.strip().splitlines()), "")
    reason = f"{error.type}: {message}"[:400] + (f" (line {line})" if line else "")
    finding = Finding(rule=KERNEL_COMPILE_ERROR, evidence=reason, severity="fault", line=line)
    return Failed("compile_error", reason, finding, error.log)


def _first_error(log: str) -> str:
    """Returns the line of a compiler's log that names the error, else the first line."""
    messages = [line.strip() for line in log.splitlines() if line.strip()]
    for line in messages:
        if re.search(r"\berror\b", line, re.IGNORECASE):
            return line[:400]
    return (messages[0] if messages else "the build failed without a message")[:400]


def with_policy(failed: Failed, policy: LibraryRule) -> Failed:
    """Adds a note to a `missing` reason if the task does not allow the missing NVIDIA library in any case."""
    if not failed.reason.startswith("missing: "):
        return failed
    wanted = sorted(set(re.findall(r"\b(cublas|cudnn|cufft|cusolver|cusparse)", failed.reason.lower())))
    refused = [name for name in wanted if name not in library_ops.allowed(policy)]
    if not refused:
        return failed
    note = f"; the policy {policy} does not allow {', '.join(refused)} in any case: write the kernel instead"
    return dataclasses.replace(failed, reason=(failed.reason + note)[:500])


def idle_kernels(attempt: Attempt) -> Failed | None:
    """Rejects decoys: kernels whose stores reach no output of any call. In a single call a condition may not be met."""
    idle = next((f for f in attempt.findings if f.rule == "decoy-kernel"), None)
    if idle is None or attempt.wrote:
        return None
    decoy = idle.changed(severity="reject", evidence=f"{idle.evidence} in any call")
    attempt.findings[attempt.findings.index(idle)] = decoy
    return guard_verdict([decoy])


def guard_verdict(advice: Sequence[Finding]) -> Failed | None:
    finding = rules.rejecting(advice)
    if finding is None:
        return None
    return Failed("rejected", f"{finding.rule}: {finding.evidence}", finding)


def log_of(session: CandidateClient, attempt: Attempt) -> str:
    parts = []
    for index, result in enumerate(session.builds):
        if result.status != "ok":
            parts.append(f"[build {index + 1}: {result.status}]\n{result.log[-4000:]}")
    if attempt.failed is not None and attempt.failed.log and not any(attempt.failed.log in p for p in parts):
        parts.append(f"[{attempt.failed.verdict}]\n{attempt.failed.log[-4000:]}")
    prints = session.last.prints
    if prints.strip():
        parts.append(f"[printed]\n{prints[-2000:]}")
    return "\n".join(parts)


NO_KERNEL = "no-own-kernel"
_DECIDES = {"wrong": "fault", "runtime_error": "fault", "rejected": "reject"}
"""The severity of the finding that decides a verdict."""


def _decided(failed: Failed | None, findings: list[Finding]) -> list[Finding]:
    """Returns the findings without doubles, the deciding one first and with a severity that says so."""
    one = failed.finding if failed is not None else None
    if failed is None or one is None:
        return findings
    same = next((f for f in findings if _key(f) == _key(one)), one)
    others = [f for f in findings if _key(f) != _key(one)]
    if failed.verdict == "runtime_error":  # a kernel that faulted has run
        others = [f for f in others if f.rule != NO_KERNEL]
    return [same.changed(severity=_DECIDES.get(failed.verdict, same.severity)), *others]


def _key(finding: Finding) -> tuple[str, str, int | None]:
    return finding.rule, finding.evidence, finding.line


def _as_exact(errors: Errors) -> bool:
    """Tells whether neither error is more than one and a half times the reference's own."""
    own = (errors.reference_largest or 0.0, errors.reference_rms or 0.0)
    return errors.largest <= 1.5 * own[0] and errors.rms <= 1.5 * own[1]


def evaluation(
    case: Submission, attempt: Attempt, advice: Sequence[Finding], started: float, backend: str = "cpu"
) -> Evaluation:
    """Returns the record of a finished attempt; `started` is from `time.monotonic`."""
    failed = attempt.failed
    findings = _decided(failed, attempt.findings + list(advice))
    measured = [result.errors for result in attempt.results if result.errors]
    if failed is None and measured and all(map(_as_exact, measured)):
        # Split products use 16-bit instructions and are as exact as float32: advice on the text would be wrong.
        findings = [f for f in findings if f.rule != "lower-precision"]
    # Deciding findings come first, then observations, then advice on the text: some readers take only a few.
    findings.sort(key=lambda f: _RANKS.index(f.severity))
    total = time.monotonic() - started - attempt.waited
    return Evaluation(
        task_id=case.task.task_id,
        task_hash=case.task.content_hash,
        candidate_id=case.candidate.content_hash,
        verdict=failed.verdict if failed else "correct",
        reason=failed.reason if failed else "",
        backend=backend,
        sandbox=attempt.level,
        workloads=tuple(attempt.results),
        coverage=coverage_of(case, attempt),
        timing=attempt.timing if failed is None else None,
        findings=tuple(findings),
        launches=tuple(attempt.launches.values()),
        library_ops=tuple(attempt.library_ops),
        seconds=Seconds(
            build=round(attempt.build_seconds, 4),
            check=round(max(0.0, total - attempt.build_seconds - attempt.time_seconds), 4),
            time=round(attempt.time_seconds, 4),
            total=round(total, 4),
        ),
        log=own_frames(attempt.log or (failed.log if failed else "")),
        environment=attempt.environment.changed(
            python=platform.python_version(), machine=platform.machine(), system=platform.system()
        ),
        options={
            **case.options.model_dump(mode="json", exclude={"seed"}),
            "policy": case.rule,
            "precision": case.precision,
        },
    )
