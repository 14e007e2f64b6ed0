"""Shares a generation back-end between threads and returns each answer as soon as it is done.

`asking.Asker` answers batch by batch; here short answers are judged while long ones are still being generated.
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
    """A starter policy shared by threads; nothing else may use it meanwhile. Close it, or use it in a `with`."""

    def __init__(self, policy: StarterPolicy) -> None:
        self.policy = policy
        self._changed = threading.Condition()
        self._asked: list[_Asked] = []
        self._closed = False
        self.stepping = 0.0
        """Start (`time.time()`, in seconds) of the back-end's current step; 0 between steps."""
        self._thread = threading.Thread(target=self._serve, name="stream", daemon=True)
        self._thread.start()

    def ask(self, request: Request) -> SampledAnswer:
        """Returns the answer to one request. Raises `PolicyError` where there is none."""
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
            with contextlib.suppress(Exception):  # callers got the first error already
                self.policy.engine.rest()

    def _answer(self) -> None:
        while asked := self._take():
            self.stepping = time.time()
            try:
                self.policy.engine.step()
            except BaseException as error:  # raised in each waiting thread
                self._fail(error)
                return
            finally:
                self.stepping = 0.0
            done = {one for one in asked if one.running.finish_reason}
            for one in done:
                seconds = time.monotonic() - one.began
                one.future.set_result(self.policy.answered(one.running, seconds, one.asked))
            with self._changed:  # a request added meanwhile may be done too: the next step reports it
                self._asked = [one for one in self._asked if one not in done]
        self._fail(PolicyError("stopped before the policy had answered"))

    def _take(self) -> list[_Asked]:
        """Waits for requests and returns all open ones; empty once closed."""
        with self._changed:
            idle = not self._asked
            while not self._asked and not self._closed:
                self._changed.wait(1.0)
            if idle and not self._closed:
                self._changed.wait(LINGER_SECONDS)  # requests come in bursts: equal prompts are computed once
            return [] if self._closed else list(self._asked)

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._closed = True
            left, self._asked = self._asked, []
        for one in left:
            one.running.cancelled = True
        with contextlib.suppress(Exception):  # callers get the first error
            self.policy.engine.step()  # releases the cancelled requests
        for one in left:
            one.future.set_exception(error)

    def close(self) -> None:
        """Stops answering: waiting callers get a `PolicyError`."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
