"""Shares a policy between threads: requests go one by one, or in batches where the policy takes batches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from kernelwright.errors import HarnessError, PolicyError
from kernelwright.policies.base import Answer, Policy, Request, ask

LINGER_SECONDS = 0.02
"""Time for which a batch waits for more requests once it has one."""
MAX_BATCH = 256
PARALLEL = 4


Waiting = tuple[Request, Future[Answer]]


class Asker:
    """A policy that threads share. Close it, or use it in a `with`."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.many: Callable[[list[Request]], list[Any]] | None = getattr(policy, "generate_many", None)
        self.each: Callable[..., None] | None = getattr(policy, "generate_each", None)
        """Set for a policy that reports each answer when it has ended, and can be stopped in between."""
        self.parallel = int(getattr(policy, "parallel", MAX_BATCH if self.many else PARALLEL))
        """Number of concurrent requests beyond which more bring nothing."""
        self._changed = threading.Condition()
        self._waiting: list[Waiting] = []
        self._closed = False
        self._thread: threading.Thread | None = None

    def ask(self, request: Request) -> Answer:
        """Returns the answer to one request. Raises `PolicyError` where there is none."""
        if self.many is None:
            return ask(self.policy, request)
        future: Future[Answer] = Future()
        with self._changed:
            if self._closed:
                raise PolicyError("the policy is closed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, daemon=True)
                self._thread.start()
            self._waiting.append((request, future))
            self._changed.notify_all()
        return future.result()

    def _serve(self) -> None:
        while (batch := self._take()) is not None:
            self._answer(batch)

    def _answer(self, batch: list[Waiting]) -> None:
        """Answers a batch. A batch that the policy refuses is halved, so that only unanswerable requests fail."""
        try:
            assert self.many is not None
            if self.each is not None:
                self.each([r for r, _ in batch], lambda n, a: batch[n][1].set_result(a), lambda: self._closed)
                return
            answers = self.many([request for request, _ in batch])
            if len(answers) != len(batch):
                raise HarnessError(f"{self.policy.name} gave {len(answers)} answers to {len(batch)} questions")
        except PolicyError as error:
            left = [one for one in batch if not one[1].done()]
            if len(left) < 2 or self._closed:
                self._fail(left, error)
                return
            half = len(left) // 2
            self._answer(left[:half])
            self._answer(left[half:])
        except BaseException as error:
            self._fail(batch, error)
        else:
            for (_, future), answer in zip(batch, answers, strict=True):
                future.set_result(answer)

    @staticmethod
    def _fail(batch: list[Waiting], error: BaseException) -> None:
        for _, future in batch:
            if not future.done():
                future.set_exception(error)

    def _take(self) -> list[Waiting] | None:
        """Returns the waiting requests once none has arrived for `LINGER_SECONDS`; None when closed."""
        with self._changed:
            while not self._waiting:
                if self._closed:
                    return None
                self._changed.wait(1.0)
            deadline = time.monotonic() + 10 * LINGER_SECONDS
            seen = 0
            while seen < len(self._waiting) < self.parallel and time.monotonic() < deadline and not self._closed:
                seen = len(self._waiting)
                self._changed.wait(LINGER_SECONDS)
            batch, self._waiting = self._waiting[: self.parallel], self._waiting[self.parallel :]
            return batch

    def close(self) -> None:
        """Stops answering: waiting callers get a `PolicyError`. The batch in progress is not waited for."""
        with self._changed:
            self._closed = True
            waiting, self._waiting = self._waiting, []
            self._changed.notify_all()
        for _, future in waiting:
            future.set_exception(PolicyError("stopped before the policy was asked"))

    def __enter__(self) -> Asker:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
