"""Asking a generation back-end from many threads at once: each answer is there as soon as it is done.

Unlike `asking.Asker`, which answers batch by batch: so that judging the short answers goes on beside the long ones.
"""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelwright.errors import ConfigError, PolicyError
from kernelwright.inference.repeating import Asking
from kernelwright.policies.asking import LINGER_SECONDS
from kernelwright.policies.base import Request
from kernelwright.policies.starter import SampledAnswer, StarterPolicy

if TYPE_CHECKING:
    from kernelwright.inference.engine import Running


@dataclass(frozen=True, eq=False)
class _Asked:
    running: Running
    asked: Asking
    future: Future[SampledAnswer]
    began: float


class Stream:
    """A starter policy that threads share, alone. Close it, or use it in a `with`."""

    def __init__(self, policy: StarterPolicy) -> None:
        self.policy = policy
        self._changed = threading.Condition()
        self._asked: list[_Asked] = []
        self._closed = False
        self.stepping = 0.0
        """Since when (`time.time()`) the back-end has been at a step; 0 between steps."""
        self._thread = threading.Thread(target=self._serve, name="stream", daemon=True)
        self._thread.start()

    def ask(self, request: Request) -> SampledAnswer:
        """The answer to one question; raises `PolicyError` where there is none."""
        prompt = self.policy.asked(request)
        sampling = self.policy.sampling(request.seed, request.temperature)
        with self._changed:
            if self._closed:
                raise PolicyError("the policy is closed")
            try:
                running = self.policy.engine.add(prompt.ids, sampling)
            except ConfigError as error:
                raise PolicyError(str(error), hint=error.hint) from error
            asked = _Asked(running, prompt.asked, Future(), time.monotonic())
            self._asked.append(asked)
            self._changed.notify_all()
        return asked.future.result()

    def _serve(self) -> None:
        try:
            self._answer()
        finally:
            with contextlib.suppress(Exception):  # who waited was told what was wrong at first
                self.policy.engine.rest()

    def _answer(self) -> None:
        while asked := self._take():
            self.stepping = time.time()
            try:
                self.policy.engine.step()
            except BaseException as error:  # who waits is told, each in its own thread
                self._fail(error)
                return
            finally:
                self.stepping = 0.0
            done = {one for one in asked if one.running.finish_reason}
            for one in done:
                seconds = time.monotonic() - one.began
                one.future.set_result(self.policy.answered(one.running, seconds, one.asked))
            with self._changed:  # one that was asked meanwhile may be done as well: it is told the next time
                self._asked = [one for one in self._asked if one not in done]
        self._fail(PolicyError("stopped before the policy had answered"))

    def _take(self) -> list[_Asked]:
        """What is on its way, once there is anything; nothing when it is over."""
        with self._changed:
            idle = not self._asked
            while not self._asked and not self._closed:
                self._changed.wait(1.0)
            if idle and not self._closed:
                self._changed.wait(LINGER_SECONDS)  # many ask at once: equal prompts are computed once
            return [] if self._closed else list(self._asked)

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._closed = True
            left, self._asked = self._asked, []
        for one in left:
            one.running.cancelled = True
        with contextlib.suppress(Exception):  # who waits is told what was wrong at first
            self.policy.engine.step()  # lets them go
        for one in left:
            one.future.set_exception(error)

    def close(self) -> None:
        """Answers nothing more; who waits gets a `PolicyError`."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
