"""Calls a candidate for a list of trials, in one fresh runner, until one fails."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from kernelwright.evaluation.case import Case
from kernelwright.evaluation.failure import Failed
from kernelwright.evaluation.judge.attempt import Attempt
from kernelwright.evaluation.judge.checked_call import check_outputs
from kernelwright.evaluation.judge.verdict import build_verdict, compile_error, log_of
from kernelwright.evaluation.processes import messages
from kernelwright.evaluation.processes.candidate_client import CandidateClient
from kernelwright.evaluation.processes.program_client import ProgramClient
from kernelwright.evaluation.trials import Trial


def run(case: Case, trials: Sequence[Trial]) -> Attempt:
    """Runs trials in one fresh runner until one fails. Starts no runner if the first build fails."""
    attempt = _stillborn(case)
    if attempt is not None:
        return attempt
    attempt = Attempt()
    client = client_of(case)
    attempt.level = client.level
    attempt.note(road=client.road)
    try:
        client.load(case.task)
        for trial in trials:
            attempt.trial = trial
            call_seed = trial.input_seed ^ 0x5EED
            data = case.oracle.trial(trial, call_seed, precision=case.precision)
            how = client.make(data, trial.weight_seed, trial.reuse)
            if how == "seed":
                # The candidate's weights have other names: both sides then keep the weights of the common seed.
                data = case.oracle.trial(trial, call_seed, randomise=False, precision=case.precision)
            answer = client.call(data, call_seed, trial.reuse)
            check_outputs(attempt, client, trial, data, answer, case)
            if attempt.failed is None and trial.reuse and client.keeps:
                _call_again(case, client, attempt, trial, how)
            if attempt.failed is not None:
                break
    except Failed as failed:
        attempt.failed = failed
    finally:
        attempt.build_seconds = client.build_seconds
        attempt.library_ops.extend(name for name in client.refused if name not in attempt.library_ops)
        client.close()
    attempt.failed = build_verdict(client, attempt) or attempt.failed
    attempt.log = log_of(client, attempt)
    return attempt


def _call_again(case: Case, client: CandidateClient, attempt: Attempt, trial: Trial, how: str) -> None:
    """Calls a model that keeps memory between calls once more, with other inputs and the same weights.

    What it keeps may depend on weights, and is made again when they change. It may not depend on inputs.
    """
    again = replace(trial, input_seed=trial.input_seed ^ 0xA6A1, before=(trial.input_seed, trial.input_seed ^ 0x5EED))
    attempt.trial = again
    call_seed = again.input_seed ^ 0x5EED
    data = case.oracle.trial(again, call_seed, randomise=how != "seed", precision=case.precision)
    check_outputs(attempt, client, again, data, client.call(data, call_seed, True), case)


def client_of(case: Case) -> CandidateClient:
    """Returns the client of a fresh candidate: with handles, unless its code runs on the CPU by right."""
    return in_process(case) if case.candidate.language == "cpp" else ProgramClient(case)


def in_process(case: Case) -> CandidateClient:
    """Returns the client of a fresh candidate whose process holds the values that it works on."""
    return CandidateClient(case.candidate, case.reading, case.options, case.pool, case.builder)


def _stillborn(case: Case) -> Attempt | None:
    """Returns the attempt of a candidate whose module cannot be executed, since its first build fails; else None."""
    request = case.reading.advice.first_build
    try:
        asked = messages.build_request({"request": request}) if request else None
    except messages.Unsound:
        return None
    if asked is None:
        return None
    started = time.monotonic()
    result = case.builder.build(asked, case.options.build_timeout)
    if result.status != "compile_error":
        return None
    log = f"[build 1: {result.status}]\n{result.log[-4000:]}"
    failed = compile_error(case.reading, asked, result.log)
    attempt = Attempt(failed=failed, log=log, level=case.builder.level)
    attempt.build_seconds = time.monotonic() - started
    return attempt
