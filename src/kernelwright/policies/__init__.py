"""Policies: who proposes candidates. One protocol, one table; each policy is one module.

template                    parametric CUDA templates, offline
starter[:FOLDER]            the small model that ships with the package, or another checkpoint of its shape; offline
hf:FOLDER_OR_HUB_ID         any causal language model, through transformers
vllm:FOLDER_OR_HUB_ID       the same, through vLLM
scripted:FILE               replays recorded answers
openai:MODEL@BASE_URL       any OpenAI-compatible endpoint
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from kernelwright.errors import ConfigError, did_you_mean
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


POLICIES = (
    "template",
    "starter[:FOLDER]",
    "hf:FOLDER_OR_HUB_ID",
    "vllm:FOLDER_OR_HUB_ID",
    "scripted:FILE",
    "openai:MODEL@BASE_URL",
)


def load_policy(
    spec: str,
    *,
    cache: Path | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    conversation: bool = False,
) -> Policy:
    """The policy that a spec names. `cache` is the folder for answers that cost something. Raises `ConfigError`.

    `temperature` and `top_p` hold for policies that sample; the others have no use for them. `conversation` has a
    model that is asked with the task alone, as ours are, asked with whole conversations.
    """
    kind, _, rest = spec.partition(":")
    if kind == "template":
        from kernelwright.policies.template import TemplatePolicy

        return TemplatePolicy()
    if kind == "scripted":
        from kernelwright.policies.scripted import ScriptedPolicy

        return ScriptedPolicy(Path(rest))
    if kind == "openai":
        from kernelwright.policies.openai_http import OpenAIPolicy

        return OpenAIPolicy.from_spec(rest, cache, temperature=temperature, top_p=top_p)
    if kind == "starter":
        from kernelwright.policies.starter import ConversationPolicy, StarterPolicy

        starter = ConversationPolicy if conversation else StarterPolicy
        return starter.from_spec(spec, temperature=temperature, top_p=top_p)
    if kind in ("hf", "vllm"):
        from kernelwright.policies.local_hf import HFConversationPolicy, HFPolicy

        local = HFConversationPolicy if conversation else HFPolicy
        return local.from_spec(spec, temperature=temperature, top_p=top_p)
    kinds = ("template", "scripted", "openai", "starter", "hf", "vllm")
    hint = did_you_mean(kind, kinds, f"policies: {', '.join(POLICIES)}")
    raise ConfigError(f"there is no policy {spec!r}", hint=hint)
