"""What back-ends other than our engine share: requests that wait, answers as text, asking for many at once."""

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
    """Requests by their order. What its methods do is said in `GenerationBackend`."""

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
        """Whether a step would do anything."""
        return bool(self._waiting)

    def add(self, prompt: Sequence[int], sampling: Sampling) -> Running:
        """Queues a request. Raises `ConfigError` where the prompt leaves no room, or for texts to stop at."""
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
        """Tokens that an answer may have."""
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
        """Answers to all prompts, in their order. `on_done` and `watch`: see `finish`."""
        for prompt in prompts:  # all before the first is queued: one that does not fit must leave none behind
            check_length(prompt, self.context)
        asked = [self.add(p, s) for p, s in zip(prompts, samplings, strict=True)]
        try:
            finish(asked, self.step, on_done, watch)
        except BaseException:
            with contextlib.suppress(Exception):  # what was wrong at first is raised
                self.step()
            raise
        finally:
            self.rest()
        return asked

    def sweep(self) -> None:
        """Lets cancelled requests go that have not begun."""
        with self._lock:
            gone = [r for r in self._waiting if r.cancelled]
            for running in gone:
                self._waiting.remove(running)
        for running in gone:
            running.finish_reason = "cancelled"

    def finish(self, running: Running, ids: Sequence[int], log_probs: Sequence[float]) -> None:
        """Writes an answer down; the reason last, which other threads take as the sign that all else is there."""
        running.ids, running.log_probs = list(ids), list(log_probs)
        running.text = self.tokenizer.decode([i for i in ids if i not in self.ends])
        ended = bool(ids) and ids[-1] in self.ends
        running.finish_reason = "cancelled" if running.cancelled and not ended else "stop" if ended else "length"
