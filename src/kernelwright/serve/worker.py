"""The thread that drives an engine, and the jobs that a server's coroutines wait for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence

from kernelwright.errors import HarnessError
from kernelwright.inference.engine import Engine, Running
from kernelwright.inference.sampling import Sampling


class GenerationJob:
    """One answer on its way, for one coroutine."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.failure: BaseException | None = None
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()

    def tell(self) -> None:
        """Wakes the coroutine; called by the worker's thread."""
        try:
            self._loop.call_soon_threadsafe(self._changed.set)
        except RuntimeError:  # the server's loop is gone, and with it whoever waited
            self.running.cancelled = True

    async def progress(self) -> AsyncIterator[int]:
        """Yields how many tokens there are, again and again until the answer is done. Raises what stopped it."""
        while not self.running.finish_reason:
            await self._changed.wait()
            self._changed.clear()
            if self.failure is not None:
                raise HarnessError(f"the engine failed: {self.failure}") from self.failure
            yield len(self.running.ids)


class GenerationWorker:
    """One engine and its thread. Coroutines add jobs; all that are there at once share the engine's batch."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._jobs: list[GenerationJob] = []
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)
        self._thread.start()

    def submit(self, prompt: Sequence[int], samplings: Sequence[Sampling]) -> list[GenerationJob]:
        """Jobs for one prompt. Raises `ConfigError` where the prompt is too long or a setting is out of range."""
        with self._changed:
            jobs = [GenerationJob(self.engine.add(prompt, sampling)) for sampling in samplings]
            self._jobs += jobs
            self._changed.notify_all()
        return jobs

    def close(self) -> None:
        """Ends the thread after the step that it is at."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(30)

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._jobs and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                jobs = list(self._jobs)
            try:
                self.engine.step()
            except Exception as error:  # the server goes on; who waits is told
                for job in jobs:
                    job.failure, job.running.cancelled = error, True
            for job in jobs:
                job.tell()
            with self._changed:  # a job that came during the step may be done as well: it is told the next time
                over = {j for j in jobs if j.running.finish_reason or j.failure is not None}
                self._jobs = [j for j in self._jobs if j not in over]
