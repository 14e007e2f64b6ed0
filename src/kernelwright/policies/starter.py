"""The starter policy: our small decoder, run by our own engine, offline, on the CPU or a GPU.

Its prompt is the task's source alone. It was not trained on feedback, so each turn of a conversation is an independent
sample. The first turn is greedy, unless a temperature is given, since the greedy answer is the likeliest to be right.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelwright.config import number_of_environment
from kernelwright.errors import ConfigError, PolicyError
from kernelwright.inference import load_engine
from kernelwright.inference.chat import begun, source_of, speed_asked, task_prompt
from kernelwright.inference.repeating import Asking, asking
from kernelwright.policies.base import Answer, Request, turn_of
from kernelwright.records import Message, Task, Usage

if TYPE_CHECKING:
    from kernelwright.generation import GenerationBackend
    from kernelwright.inference.engine import Running
    from kernelwright.inference.sampling import Sampling

TEMPERATURE = 0.8
MAX_TOKENS = 3584
"""Answers to whole networks need that many; the context of 4096 tokens has to hold the task, too."""


@dataclass(frozen=True)
class SampledAnswer(Answer):
    """An answer with its token ids, the end token included, and the model's log-probability of each."""

    token_ids: tuple[int, ...] = ()
    log_probs: tuple[float, ...] = ()


@dataclass(frozen=True)
class Prompt:
    """The token ids of a request. `asked` turns the model's text into an answer to the original task."""

    ids: list[int]
    asked: Asking = Asking("")


class StarterPolicy:
    """A checkpoint that answers tasks. Threads may share it; concurrent requests should come as `generate_many`."""

    def __init__(
        self,
        engine: GenerationBackend,
        name: str = "starter",
        *,
        temperature: float | None = None,
        top_p: float = 1.0,
        top_k: int = 0,
        max_tokens: int = MAX_TOKENS,
        room: int | None = None,
    ) -> None:
        self.engine = engine
        self.name = name
        self.room = max_tokens if room is None else room
        """Tokens of the context reserved for an answer."""
        self.temperature, self.top_p, self.top_k, self.max_tokens = temperature, top_p, top_k, max_tokens
        self._turn = threading.Lock()
        self.sampling(0, None)  # raises at once for a setting out of range

    @classmethod
    def from_spec(cls, spec: str, *, temperature: float | None = None, top_p: float | None = None) -> StarterPolicy:
        """Loads `starter` or `starter:FOLDER`. Raises `ConfigError`.

        Defaults come from KERNELWRIGHT_TEMPERATURE, _TOP_P, _TOP_K and _MAX_TOKENS.
        """
        stated = (
            temperature if temperature is not None else number_of_environment("KERNELWRIGHT_TEMPERATURE", 0.0, 100.0)
        )
        share = top_p if top_p is not None else number_of_environment("KERNELWRIGHT_TOP_P", 0.0, 1.0)
        engine = load_engine(spec)
        max_tokens = int(_stated_tokens() or MAX_TOKENS)
        return cls(
            engine,
            spec,
            temperature=stated,
            top_p=1.0 if share is None else share,
            top_k=int(number_of_environment("KERNELWRIGHT_TOP_K", 0, 2**31, whole=True) or 0),
            max_tokens=max_tokens,
            room=room_of(max_tokens, engine.context),
        )

    @property
    def parallel(self) -> int:
        """The best number of concurrent requests: twice the back-end's batch rows."""
        return 2 * self.engine.rows

    def generate(
        self,
        messages: Sequence[Message],
        *,
        seed: int,
        task: Task | None = None,
        temperature: float | None = None,
        turn: int | None = None,
    ) -> SampledAnswer:
        """Returns one answer: greedy on the first turn where no temperature is given. Raises `PolicyError`."""
        if temperature is None and self.temperature is None and turn_of(messages, turn) == 0:
            temperature = 0.0
        (answer,) = self.generate_many([Request(tuple(messages), seed, task, temperature, turn)])
        return answer

    def generate_many(self, requests: Sequence[Request]) -> list[SampledAnswer]:
        """Answers requests in one batch. Raises `PolicyError` where a task is too long for the model."""
        found: dict[int, SampledAnswer] = {}
        self.generate_each(requests, found.__setitem__)
        return [found[number] for number in range(len(requests))]

    def generate_each(
        self,
        requests: Sequence[Request],
        done: Callable[[int, SampledAnswer], None],
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """Answers requests in one batch; `done` gets a request's number and its answer as soon as it has ended.

        Raises `PolicyError` where a task is too long, and once `stopped` returns true.
        """
        began = time.monotonic()
        prompts = [self.asked(r) for r in requests]
        samplings = [self.sampling(r.seed, r.temperature) for r in requests]
        told: set[int] = set()

        def watch(asked: Sequence[Running]) -> None:
            for number in [n for n, r in enumerate(asked) if r.finish_reason and n not in told]:
                told.add(number)
                seconds = (time.monotonic() - began) / len(told)
                done(number, self.answered(asked[number], seconds, prompts[number].asked))
            if stopped():
                raise PolicyError("stopped before the answer had ended")

        try:
            with self._turn:
                watch(self.engine.generate([prompt.ids for prompt in prompts], samplings, None, watch))
        except ConfigError as error:
            raise PolicyError(str(error), hint=error.hint) from error

    def asked(self, request: Request) -> Prompt:
        """Makes a request's prompt, with the answer's first line where the model knows several schedules.

        A greedy first try takes the first schedule; the request's seed chooses for all others.
        """
        prompt = self.prompt(request.messages, request.task)
        begin = self.begin(request) if self.engine.bare_task else ""
        return Prompt([*prompt.ids, *self.engine.tokenizer.encode(begin)], prompt.asked) if begin else prompt

    def begin(self, request: Request) -> str:
        """Returns the text that the answer begins with (`chat.begun`).

        It is empty where the request asks for a speed: the model then chooses the schedule by that speed.
        """
        if speed_asked(request.messages):
            return ""
        first = turn_of(request.messages, request.turn) == 0
        greedy = self.sampling(request.seed, request.temperature).temperature == 0.0
        return begun(self.engine.schedules, 0 if first and greedy else request.seed)

    def prompt(self, messages: Sequence[Message], task: Task | None) -> Prompt:
        """Makes the prompt: the task alone in the normal form that our models read, else the conversation."""
        if not self.engine.bare_task:
            return Prompt(self.engine.tokenizer.prompt(messages))
        asked = asking(task_prompt(task.source) if task is not None else source_of(messages))
        words = "\n\n".join(part for part in (speed_asked(messages), asked.text) if part)
        return Prompt(self.engine.tokenizer.prompt([Message(role="user", content=words)]), asked)

    def fits(self, messages: Sequence[Message]) -> bool:
        """Tells whether a conversation leaves room for an answer."""
        return len(self.prompt(messages, None).ids) <= self.engine.context - self.room

    def sampling(self, seed: int, temperature: float | None) -> Sampling:
        """Returns a request's sampling settings, with its own temperature or the policy's. Raises `ConfigError`."""
        from kernelwright.inference.sampling import Sampling

        own = self.temperature if self.temperature is not None else TEMPERATURE
        chosen = own if temperature is None else temperature
        return Sampling(chosen, self.top_p, self.top_k, self.max_tokens, seed).checked()

    def answered(self, running: Running, seconds: float, asked: Asking) -> SampledAnswer:
        """Makes the answer of a finished request; `seconds` is the time it took. Its tokens stay as drawn."""
        usage = Usage(prompt_tokens=len(running.prompt), completion_tokens=len(running.ids), seconds=round(seconds, 3))
        text, drawn = asked.answered(running.text), (tuple(running.ids), tuple(running.log_probs))
        return SampledAnswer(text, usage, running.finish_reason, self.name, *drawn)


class ConversationPolicy(StarterPolicy):
    """A starter policy whose prompt is the whole conversation, for a model that was trained on feedback."""

    def begin(self, request: Request) -> str:
        """Returns an empty string: the model was trained to choose its schedule."""
        return ""

    @property
    def bare(self) -> bool:
        """Tells whether a conversation begins with the task's source alone."""
        return self.engine.bare_task

    def prompt(self, messages: Sequence[Message], task: Task | None) -> Prompt:
        """Makes the prompt of the unchanged conversation."""
        return Prompt(self.engine.tokenizer.prompt(messages))


def room_of(max_tokens: int, context: int) -> int:
    """Returns the tokens reserved for an answer: `max_tokens` where the environment sets it, else at most half of the
    context, since the default limit would leave no room for earlier turns."""
    return max_tokens if _stated_tokens() is not None else min(max_tokens, context // 2)


def _stated_tokens() -> float | None:
    return number_of_environment("KERNELWRIGHT_MAX_TOKENS", 1, 2**31, whole=True)
