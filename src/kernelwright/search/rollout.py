"""One multi-turn rollout: propose, evaluate, feed back, propose again. Search and training share this function."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernelwright.policies import Policy, Request, ask
from kernelwright.prompts import ParseFailure, conversation, parse_answer
from kernelwright.records import Candidate, Evaluation, Message, Provenance, Task, Trajectory, Turn
from kernelwright.search.circles import Circles

CONTEXT_CHARACTERS = 120_000

Evaluate = Callable[[Task, Candidate], Evaluation]
OnTurn = Callable[[Turn, Candidate | None], None]
Parse = Callable[[str, Provenance], Candidate | ParseFailure]
Converse = Callable[[Task, Sequence[Turn], Sequence[Candidate | None]], tuple[Message, ...]]


def parse_python(text: str, provenance: Provenance) -> Candidate | ParseFailure:
    """Parses the candidate of an answer, in the form in which it was written."""
    return parse_answer(text, provenance=provenance)


def converse_python(task: Task, turns: Sequence[Turn], candidates: Sequence[Candidate | None]) -> tuple[Message, ...]:
    """Returns the messages of the next turn on a task with a Python reference."""
    return conversation(task, turns, candidates, CONTEXT_CHARACTERS)


@dataclass(frozen=True)
class Exchange:
    """Builds prompts and parses answers; the default is for tasks with a Python reference."""

    converse: Converse = converse_python
    parse: Parse = parse_python


PYTHON = Exchange()


@dataclass(frozen=True)
class Budget:
    """The limits of a rollout; None means no limit. `repeats`: consecutive turns without a new answer."""

    turns: int = 6
    tokens: int | None = None
    seconds: float | None = None
    repeats: int | None = None


def rollout(
    task: Task,
    policy: Policy,
    evaluate: Evaluate,
    *,
    budget: Budget,
    seed: int = 0,
    on_turn: OnTurn | None = None,
    stop: Callable[[Evaluation], bool] | None = None,
    exchange: Exchange = PYTHON,
) -> Trajectory:
    """Plays turns until `stop` holds for an evaluation or the budget ends. Raises `PolicyError` and `TaskError`.

    The trajectory's `stop_reason` is `found`, or the limit that was reached: `turns`, `tokens`, `seconds`, or `circles`
    for `budget.repeats`.

    `on_turn` is called with each complete turn, so that a caller can store it. A harness error is retried once and
    never shown to the policy.
    """
    turns: list[Turn] = []
    candidates: list[Candidate | None] = []
    started = time.monotonic()
    tokens = 0
    circles = Circles()
    reason = "turns"
    for index in range(budget.turns):
        if budget.tokens is not None and tokens >= budget.tokens:
            reason = "tokens"
            break
        if budget.seconds is not None and time.monotonic() - started >= budget.seconds:
            reason = "seconds"
            break
        turn, candidate = _turn(task, policy, evaluate, turns, candidates, index, seed, exchange)
        turns.append(turn)
        candidates.append(candidate)
        tokens += turn.usage.prompt_tokens + turn.usage.completion_tokens
        if on_turn is not None:
            on_turn(turn, candidate)
        if stop is not None and turn.evaluation is not None and stop(turn.evaluation):
            reason = "found"
            break
        if budget.repeats is not None and circles.turn(turn.answer, candidate) >= budget.repeats:
            reason = "circles"
            break
    best = best_turn(turns)
    return Trajectory(
        task_id=task.task_id,
        task_hash=task.content_hash,
        policy=policy.name,
        seed=seed,
        turns=tuple(turns),
        stop_reason=reason,
        best_candidate_id=best.candidate_id if best else None,
    )


def _turn(
    task: Task,
    policy: Policy,
    evaluate: Evaluate,
    turns: Sequence[Turn],
    candidates: Sequence[Candidate | None],
    index: int,
    seed: int,
    exchange: Exchange,
) -> tuple[Turn, Candidate | None]:
    messages = exchange.converse(task, turns, candidates)
    answer = ask(policy, Request(messages, seed + index, task, turn=index))
    parent = next((t.candidate_id for t in reversed(turns) if t.candidate_id), None)
    provenance = Provenance(policy=policy.name, parent=parent, prompt_hash=prompt_hash(messages))
    parsed = exchange.parse(answer.text, provenance)
    if isinstance(parsed, ParseFailure):
        cut = " (the answer reached its length limit)" if answer.finish_reason == "length" else ""
        turn = Turn(
            index=index,
            messages=messages,
            answer=answer.text,
            finish_reason=answer.finish_reason,
            parse_failure=parsed.reason + cut,
            usage=answer.usage,
        )
        return turn, None
    evaluation = evaluate(task, parsed)
    if evaluation.verdict == "harness_error":
        evaluation = evaluate(task, parsed)
    turn = Turn(
        index=index,
        messages=messages,
        answer=answer.text,
        finish_reason=answer.finish_reason,
        candidate_id=parsed.content_hash,
        evaluation=evaluation,
        usage=answer.usage,
    )
    return turn, parsed


def prompt_hash(messages: Sequence[Message]) -> str:
    """Returns the SHA-256 of a conversation, in hexadecimal."""
    text = json.dumps([[m.role, m.content] for m in messages], ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


_RANK = ("correct", "wrong", "timeout", "runtime_error", "compile_error", "unsupported", "rejected", "harness_error")


def best_turn(turns: Sequence[Turn]) -> Turn | None:
    """Returns the fastest correct turn, else the one with the best verdict by `_RANK`; the earlier one on a tie."""
    judged = [t for t in turns if t.evaluation is not None]
    return min(judged, key=_rank) if judged else None


def _rank(turn: Turn) -> tuple[int, float]:
    evaluation = turn.evaluation
    assert evaluation is not None
    speed = evaluation.timing.candidate_ms if evaluation.timing else float("inf")
    return (_RANK.index(evaluation.verdict), speed)
