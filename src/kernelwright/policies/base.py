"""The policy protocol, with the records for one question and one answer."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kernelwright.records import Message, Task, Usage


@dataclass(frozen=True)
class Answer:
    """One answer of a policy: its text, what it cost, and why it ended (`stop`, `length`, …)."""

    text: str
    usage: Usage = Usage()
    finish_reason: str = "stop"
    model: str = ""


@dataclass(frozen=True)
class Request:
    """One question to a policy. `temperature` in place of the policy's own where it is given; 0 is greedy. `turn`, from
    0, where the asker knows it: the messages may show fewer turns than there were."""

    messages: tuple[Message, ...]
    seed: int
    task: Task | None = None
    temperature: float | None = None
    turn: int | None = None


class Policy(Protocol):
    """Anything that answers a conversation about a task. Raises `PolicyError` when it has no answer.

    One that samples takes a keyword `temperature` as well, and one that answers by the turn a keyword `turn` (`ask`
    gives both where they are taken, None for what nobody knows). One that answers many at once also has
    `generate_many(requests: Sequence[Request]) -> list[Answer]`, in the order of the requests. One that may wait long
    for somebody else has `stop()`, after which it answers nothing more, and who waits is let go.
    """

    name: str

    def generate(self, messages: Sequence[Message], *, seed: int, task: Task | None = None) -> Answer: ...


def ask(policy: Policy, request: Request) -> Answer:
    """The answer of a policy, told as much of the request as it takes. Raises `PolicyError`."""
    taken = inspect.signature(policy.generate).parameters
    more: dict[str, Any] = {"temperature": request.temperature, "turn": request.turn}
    extra = {name: value for name, value in more.items() if value is not None and name in taken}
    return policy.generate(request.messages, seed=request.seed, task=request.task, **extra)


def turn_of(messages: Sequence[Message], turn: int | None = None) -> int:
    """Which turn is asked for: the one that the asker names, else the number of answers that the messages show."""
    return sum(m.role == "assistant" for m in messages) if turn is None else turn
