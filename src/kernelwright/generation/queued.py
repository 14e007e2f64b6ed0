"""The base class of back-ends other than our engine: a queue of requests, decoding of answers, batch generation."""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence

from kernelwright.errors import ConfigError
from kernelwright.generation.hub import HubTokenizer
from kernelwright.inference.engine import Running, check_length, finish
from kernelwright.inference.sampling import Sampling


class Queued(ABC):
    """A first-in, first-out queue of requests; `GenerationBackend` documents the methods."""

    name = ""

    def __init__(
        self,
        tokenizer: HubTokenizer,
        ends: frozenset[int],
        context: int,
        rows: int,
        asked: tuple[bool, tuple[str, ...]],
    ) -> None:
        self.tokenizer, self.ends, self.context, self.rows = tokenizer, ends, context, rows
        self.bare_task, self.schedules = asked
        self._waiting: deque[Running] = deque()
        self._lock = threading.Lock()

    @property
    def busy(self) -> bool:
        """Tells whether a step would do anything."""
        return bool(self._waiting)

    def add(self, prompt: Sequence[int], sampling: Sampling) -> Running:
        """Queues a request. Raises `ConfigError` where the prompt leaves no room for an answer, or for stop texts."""
        check_length(prompt, self.context)
        if sampling.stop:
            raise ConfigError(
                f"{self.name} does not stop at texts", hint="leave them out; answers end with their token"
            )
        running = Running(tuple(prompt), sampling.checked())
        with self._lock:
            self._waiting.append(running)
        return running

    def limit(self, running: Running) -> int:
        """Returns the bound on an answer's tokens."""
        return min(running.sampling.max_tokens, self.context - len(running.prompt))

    @abstractmethod
    def step(self) -> None: ...

    @abstractmethod
    def rest(self) -> None: ...

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        samplings: Sequence[Sampling],
        on_done: Callable[[int], None] | None = None,
        watch: Callable[[Sequence[Running]], None] | None = None,
    ) -> list[Running]:
        """Answers all prompts, in their order. `on_done` and `watch`: see `finish`."""
        for prompt in prompts:  # all before the first is queued: a prompt too long must leave none in the queue
            check_length(prompt, self.context)
        asked = [self.add(p, s) for p, s in zip(prompts, samplings, strict=True)]
        try:
            finish(asked, self.step, on_done, watch)
        except BaseException:
            with contextlib.suppress(Exception):  # the first error is raised
                self.step()
            raise
        finally:
            self.rest()
        return asked

    def sweep(self) -> None:
        """Drops cancelled requests that have not begun."""
        with self._lock:
            gone = [r for r in self._waiting if r.cancelled]
            for running in gone:
                self._waiting.remove(running)
        for running in gone:
            running.finish_reason = "cancelled"

    def finish(self, running: Running, ids: Sequence[int], log_probs: Sequence[float]) -> None:
        """Fills in a request's answer; `finish_reason` last, since other threads read it as the sign of completion."""
        running.ids, running.log_probs = list(ids), list(log_probs)
        running.text = self.tokenizer.decode([i for i in ids if i not in self.ends])
        ended = bool(ids) and ids[-1] in self.ends
        running.finish_reason = "cancelled" if running.cancelled and not ended else "stop" if ended else "length"
