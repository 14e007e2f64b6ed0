"""Runs commands that depend on each other, several at once, one a GPU, each with a time limit; resumes.

A job is done once `OUT/jobs/NAME.json` records its success. A failure or a timeout is recorded in the same file, with
the end of the output, and the next call starts the job again. The job's own files tell where it resumes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

GRACE_SECONDS = 20.0
"""Seconds between interrupting a job and killing it."""


@dataclass(frozen=True)
class Job:
    """One command, or one function of this process. It holds `gpus` GPUs while it runs."""

    name: str
    do: list[str] | Callable[[Path, float, dict[str, str]], dict[str, Any]]
    """A command, or a function that returns the result. Its arguments are a folder for its files, its limit in seconds
    and the environment for its children."""
    seconds: float
    needs: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    """Jobs that must have ended before, successfully or not."""
    gpus: int = 1
    environment: dict[str, str] = field(default_factory=dict)
    least: float = 5.0
    """The job is not started with fewer seconds left."""


class Runner:
    """All jobs of one call. `gpus`: a name for CUDA_VISIBLE_DEVICES for each job at once, or empty names where there is
    no GPU; a GPU that is named twice has two jobs at once."""

    def __init__(self, out: Path, gpus: Sequence[str], deadline: float) -> None:
        self.out, self.deadline = out, deadline
        self.free = list(gpus)
        self.total = _places(self.free)
        self.changed = threading.Condition()
        self.failed: set[str] = set()
        self.ended: set[str] = set()
        self.stopping = threading.Event()
        (out / "jobs").mkdir(parents=True, exist_ok=True)

    def result(self, name: str) -> dict[str, Any] | None:
        """Returns the result of a finished job; None if it is not done."""
        path = self.out / "jobs" / f"{name}.json"
        row: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        return row if row.get("status") == "done" else None

    def run(self, jobs: Sequence[Job], after_each: Callable[[], None]) -> None:
        """Runs the jobs that are not done, in order as far as GPUs and dependencies allow.

        Ctrl-C ends the running jobs, and counts as a timeout.
        """
        threads: list[threading.Thread] = []
        try:
            self._begin(jobs, after_each, threads)
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:
            self.stopping.set()
            for thread in threads:
                thread.join()
            raise
        finally:
            after_each()

    def _begin(self, jobs: Sequence[Job], after_each: Callable[[], None], threads: list[threading.Thread]) -> None:
        """Starts every job once it may run, each in a thread, which is added to `threads`."""
        waiting = [job for job in jobs if self.result(job.name) is None]
        with self.changed:
            while waiting:
                lost = [j for j in waiting if any(n in self.failed for n in j.needs) or j.gpus > self.total]
                for job in lost:
                    why = "too few GPUs" if job.gpus > self.total else f"needs {', '.join(job.needs)}"
                    self._end(job, {"status": "left out", "why": why})
                left = self.deadline - time.monotonic()
                for job in [j for j in waiting if j not in lost and left < j.least]:
                    self._end(job, {"status": "left out", "why": "no time left"})
                    lost.append(job)
                waiting = [j for j in waiting if j not in lost]
                ready = next((j for j in waiting if self._ready(j)), None)
                if ready is None:
                    self.changed.wait(1.0)
                    continue
                waiting.remove(ready)
                held = self._take(ready.gpus)
                threads.append(threading.Thread(target=self._serve, args=(ready, held, after_each)))
                threads[-1].start()

    def _ready(self, job: Job) -> bool:
        if any(name not in self.ended and self.result(name) is None for name in job.after):
            return False
        return _places(self.free) >= job.gpus and all(self.result(n) is not None for n in job.needs)

    def _take(self, count: int) -> list[str]:
        """Takes different GPUs, or places without a GPU, out of the free ones."""
        held: list[str] = []
        for name in [*self.free]:
            if len(held) < count and (not name or name not in held):
                held.append(name)
                self.free.remove(name)
        return held

    def _serve(self, job: Job, held: list[str], after_each: Callable[[], None]) -> None:
        began = time.monotonic()
        seconds = min(job.seconds, self.deadline - began)
        print(f"{job.name}: at most {seconds:.0f} s", flush=True)
        try:
            if callable(job.do):
                folder = self.out / "work" / job.name
                row = {"status": "done", "result": job.do(folder, seconds, _environment(job, held))}
            else:
                row = self._command(job, held, seconds)
        except Exception as error:  # a part that fails is a result, and the others go on
            row = {"status": "failed", "why": f"{type(error).__name__}: {error}"[:1000]}
        row["seconds"] = round(time.monotonic() - began, 1)
        with self.changed:
            self._end(job, row)
            self.free += held
            self.changed.notify_all()
        print(f"{job.name}: {row['status']} after {row['seconds']} s", flush=True)
        after_each()

    def _end(self, job: Job, row: dict[str, Any]) -> None:
        self.ended.add(job.name)
        if row["status"] != "done":
            self.failed.add(job.name)
        if isinstance(job.do, list):
            row = {**row, "command": job.do}
        path = self.out / "jobs" / f"{job.name}.json"
        part = path.with_suffix(".part")
        part.write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")
        os.replace(part, path)

    def _command(self, job: Job, held: list[str], seconds: float) -> dict[str, Any]:
        assert isinstance(job.do, list)
        log = self.out / "jobs" / f"{job.name}.log"
        with open(log, "ab") as errors, open(log.with_suffix(".out"), "wb") as output:
            child = subprocess.Popen(
                job.do,
                stdout=output,
                stderr=errors,
                env=_environment(job, held),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            status = wait(child, seconds, self.stopping)
        text = log.with_suffix(".out").read_text(encoding="utf-8", errors="replace").strip()
        last = text.splitlines()[-1] if text else ""
        if status == 0:
            return {"status": "done", "result": json.loads(last) if last.startswith("{") else last}
        said = log.read_text(encoding="utf-8", errors="replace")[-1500:]
        return {"status": "failed" if status is not None else "cut", "exit": status, "said": said}


def _places(names: Sequence[str]) -> int:
    """Counts different GPUs, or places without a GPU."""
    return len({name for name in names if name}) or len(names)


def _environment(job: Job, held: Sequence[str]) -> dict[str, str]:
    """Returns this process's environment with the GPUs that the job holds."""
    gpus = {"CUDA_VISIBLE_DEVICES": ",".join(held)} if any(held) else {}
    return {**os.environ, **job.environment, **gpus}


def wait(child: subprocess.Popen[Any], seconds: float, stopping: threading.Event | None = None) -> int | None:
    """Returns the exit status; None if the process was ended, by its limit or by `stopping` (interrupted first)."""
    end = time.monotonic() + max(1.0, seconds)
    while time.monotonic() < end and not (stopping and stopping.is_set()):
        try:
            return child.wait(0.2)
        except subprocess.TimeoutExpired:
            continue
    for sign, patience in ((signal.SIGINT, GRACE_SECONDS), (signal.SIGKILL, 5.0)):
        try:
            os.killpg(child.pid, sign) if sign == signal.SIGKILL else child.send_signal(sign)
            child.wait(patience)
        except (subprocess.TimeoutExpired, ProcessLookupError):
            continue
        break
    return None


def interrupted_by_term() -> None:
    """Makes SIGTERM, which `timeout` sends, act like Ctrl-C."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
