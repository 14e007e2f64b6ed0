"""The thread that drives an engine, and the jobs that the server's coroutines await."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence

from kernelwright.errors import HarnessError
from kernelwright.inference.engine import Engine, Running
from kernelwright.inference.sampling import Sampling


class GenerationJob:
    """One answer in progress, awaited by one coroutine."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.failure: BaseException | None = None
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()

    def tell(self) -> None:
        """Wakes the coroutine; called by the worker's thread."""
        try:
            self._loop.call_soon_threadsafe(self._changed.set)
        except RuntimeError:  # the event loop is closed, and nothing awaits the answer
            self.running.cancelled = True

    async def progress(self) -> AsyncIterator[int]:
        """Yields the number of tokens so far until the answer is done. Raises `HarnessError` if the engine failed."""
        while not self.running.finish_reason:
            await self._changed.wait()
            self._changed.clear()
            if self.failure is not None:
                raise HarnessError(f"the engine failed: {self.failure}") from self.failure
            yield len(self.running.ids)


class GenerationWorker:
    """One engine and its thread. Coroutines add jobs; concurrent jobs share the engine's batch."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._jobs: list[GenerationJob] = []
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)
        self._thread.start()

    def submit(self, prompt: Sequence[int], samplings: Sequence[Sampling]) -> list[GenerationJob]:
        """Starts jobs for one prompt. Raises `ConfigError` for a prompt too long, or a setting out of range."""
        with self._changed:
            jobs = [GenerationJob(self.engine.add(prompt, sampling)) for sampling in samplings]
            self._jobs += jobs
            self._changed.notify_all()
        return jobs

    def close(self) -> None:
        """Ends the thread after its current step."""
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
            except Exception as error:  # the server goes on; the waiting coroutines raise
                for job in jobs:
                    job.failure, job.running.cancelled = error, True
            for job in jobs:
                job.tell()
            with self._changed:  # a job added during the step may be done too: the next step reports it
                over = {j for j in jobs if j.running.finish_reason or j.failure is not None}
                self._jobs = [j for j in self._jobs if j not in over]
