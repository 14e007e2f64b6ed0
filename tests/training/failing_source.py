"""Failing jobs and a failing source of pairs; importable by fresh processes."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kernelwright.errors import StoreError


@dataclass(frozen=True)
class Failing:
    """A source whose shards `raises`, `dies` and `hangs` never succeed; `stumbles` dies only once, leaving `mark`."""

    mark: Path
    raises: int = -1
    dies: int = -1
    hangs: int = -1
    stumbles: int = -1
    full: int = -1
    """Raises as for a full disk."""

    def __call__(self, shard: int, skipped: Counter[str]) -> Iterator[tuple[str, str]]:
        yield "task", "answer"
        if shard == self.full:
            raise StoreError("no space is left", hint="free some")
        if shard == self.raises:
            raise AssertionError("this shard cannot be made")
        if shard == self.dies or (shard == self.stumbles and not self.mark.exists()):
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if shard == self.hangs:
            time.sleep(600)
        skipped["unreadable"] += 1
        yield from [("task", "answer")] * 2


def slow(number: int, beat: Callable[[], None]) -> int:
    """Runs a job of a tenth of a second."""
    time.sleep(0.1)
    return number


def hanging(number: int, beat: Callable[[], None]) -> int:
    """Writes its process id and never ends."""
    Path(os.environ["PIDS"], str(os.getpid())).touch()
    time.sleep(600)
    return number
