"""Chooses which earlier turns a policy sees: the message side of a rollout (`rollout.Exchange`).

`recent`: the latest turns; the oldest are dropped first. `top_w`: the best turns by reward, in their order (the scaling
of turns beyond the context of Dr. Kernel). `summary`: as `recent`, without the reasoning of earlier answers (Kevin).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelwright.inference.chat import task_prompt
from kernelwright.prompts.answers import without_reasoning
from kernelwright.prompts.messages import NOT_JUDGED, initial_messages
from kernelwright.records import Candidate, Evaluation, Message, Task, Turn
from kernelwright.untrusted import line, without_marks

CONTEXTS = ("recent", "top_w", "summary")

Score = Callable[[Evaluation | None], float | None]


def shown_turns(turns: Sequence[Turn], kind: str, top_w: int, score: Score) -> list[int]:
    """Returns the numbers of the turns to show, in order; a turn without a score ranks last."""
    numbers = list(range(len(turns)))
    if kind != "top_w" or len(turns) <= top_w:
        return numbers
    return sorted(_best_first(turns, score)[:top_w])


def _best_first(turns: Sequence[Turn], score: Score) -> list[int]:
    """Ranks turn numbers by score, best first; the later turn wins a tie."""
    scores = [score(turn.evaluation) for turn in turns]
    worth = [float("-inf") if value is None else value for value in scores]
    return sorted(range(len(turns)), key=lambda i: (-worth[i], -i))


def answer_of(turn: Turn, kind: str) -> str:
    """Returns an earlier answer as the policy sees it."""
    answer = without_marks(turn.answer)
    return without_reasoning(answer).lstrip() if kind == "summary" else answer


def brief(candidate: Candidate | None, evaluation: Evaluation | None, parse_failure: str | None) -> str:
    """Summarizes an answer's evaluation in a few lines, for small models with short contexts."""
    if evaluation is not None and evaluation.verdict == "harness_error":
        return NOT_JUDGED
    if evaluation is None or candidate is None:
        return f"unreadable: {line(parse_failure or '')}"[:400]
    lines = [verdict_line(evaluation.verdict, evaluation.reason)]
    if evaluation.timing is not None and evaluation.timing.speedup is not None:
        lines.append(f"{evaluation.timing.speedup:.2f} x")
    return "\n".join(lines)


def verdict_line(verdict: str, reason: str) -> str:
    """Returns the first line of `brief`."""
    return f"{verdict}: {line(reason)}"[:400]


def converse(
    first: Sequence[Message],
    turns: Sequence[Turn],
    candidates: Sequence[Candidate | None],
    *,
    kind: str,
    top_w: int,
    score: Score,
    fits: Callable[[Sequence[Message]], bool],
) -> tuple[Message, ...]:
    """Returns the request and the shown turns with their feedback.

    Drops turns until `fits` holds: the oldest first, with `top_w` the lowest-scored first.
    """
    numbers = shown_turns(turns, kind, top_w, score)
    leaving = [i for i in reversed(_best_first(turns, score)) if i in numbers] if kind == "top_w" else list(numbers)
    while True:
        messages = list(first)
        for i in numbers:
            messages.append(Message(role="assistant", content=answer_of(turns[i], kind)))
            feedback = brief(candidates[i], turns[i].evaluation, turns[i].parse_failure)
            messages.append(Message(role="user", content=feedback))
        if not numbers or fits(messages):
            return tuple(messages)
        numbers.remove(leaving.pop(0))


def opening(task: Task, bare: bool) -> tuple[Message, ...]:
    """Returns the first messages of a conversation: the request in words, or with `bare` the task alone."""
    return bare_task(task) if bare else initial_messages(task)


def bare_task(task: Task) -> tuple[Message, ...]:
    """Returns the request in our own models' form: the task's source in normal form."""
    return (Message(role="user", content=task_prompt(task.source)),)
