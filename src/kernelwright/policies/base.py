"""The policy protocol, with the records for one question and one answer."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kernelwright.records import Message, Task, Usage


@dataclass(frozen=True)
class Answer:
    """One answer of a policy: its text, its cost, and the reason why it ended (`stop`, `length`, …)."""

    text: str
    usage: Usage = Usage()
    finish_reason: str = "stop"
    model: str = ""


@dataclass(frozen=True)
class Request:
    """One request to a policy.

    `temperature` overrides the policy's own where it is given; 0 is greedy. `turn` counts from 0 and is None where the
    caller does not know it: the messages may show fewer turns than there were.
    """

    messages: tuple[Message, ...]
    seed: int
    task: Task | None = None
    temperature: float | None = None
    turn: int | None = None


class Policy(Protocol):
    """Anything that answers a conversation about a task. Raises `PolicyError` when it has no answer.

    A policy that samples also takes a keyword `temperature`, and a policy that answers by the turn a keyword `turn`;
    `ask` passes those that `generate` takes and that are known. A policy that answers batches also has
    `generate_many(requests: Sequence[Request]) -> list[Answer]`, in the order of the requests. A policy that may wait
    long for a server has `stop()`: it then answers nothing more, and waiting callers are released.
    """

    name: str

    def generate(self, messages: Sequence[Message], *, seed: int, task: Task | None = None) -> Answer: ...


def ask(policy: Policy, request: Request) -> Answer:
    """Returns a policy's answer; passes those fields of the request that `generate` takes. Raises `PolicyError`."""
    taken = inspect.signature(policy.generate).parameters
    more: dict[str, Any] = {"temperature": request.temperature, "turn": request.turn}
    extra = {name: value for name, value in more.items() if value is not None and name in taken}
    return policy.generate(request.messages, seed=request.seed, task=request.task, **extra)


def turn_of(messages: Sequence[Message], turn: int | None = None) -> int:
    """Returns the number of the requested turn: `turn` where it is given, else the count of assistant messages."""
    return sum(m.role == "assistant" for m in messages) if turn is None else turn
