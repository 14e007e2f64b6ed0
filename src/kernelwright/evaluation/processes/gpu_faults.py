"""Detects processes left hanging by another process's GPU fault.

Seen on an H100 (driver 580, three tries of three): when a kernel reads an illegal address, another process whose
kernels are on the device at that moment may wait for them for ever, with no error. A process that only waits is not
affected, nor is a process that begins afterwards. So every process that meets a fault records it, and a request that
stays unanswered after another process's fault is repeated in a fresh process.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernelwright.errors import HarnessError, WorkerDied
from kernelwright.evaluation.processes.pool import Child, ChildLimits, Pool
from kernelwright.evaluation.processes.roles import Role

OPEN_SECONDS = (15.0, 60.0, 120.0)
"""Seconds that a child may take to open a GPU, try by try; it usually takes one or two."""
STUCK_SECONDS = 5.0
"""A process without an answer this long after another's fault counts as hanging: most answer in less than a second, and
a process that is taken for hanging by mistake is asked again."""
NOTICE_SECONDS = 1.0
"""A bound on the seconds between a fault and its record."""


class Disturbed(HarnessError):
    """A trusted child hangs, since another process met a fault on the GPU. Workers retry with an exclusive lease."""


class Faults:
    """The time of the last kernel fault on one GPU, recorded by all processes that share the card. Seconds as of
    `time.time()`."""

    def __init__(self, path: Path) -> None:
        """Records beside `path`, the path of the GPU's `Lease`, which all processes share."""
        self._path = path.with_suffix(".fault")

    def note(self) -> None:
        """Records that a candidate has just met a fault."""
        with contextlib.suppress(OSError):  # the record only helps others
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.touch()

    def since(self, began: float) -> bool:
        """Tells whether a fault was recorded after `began`."""
        return self._last() >= began - NOTICE_SECONDS

    def stuck(self, began: float, seconds: float | None = None) -> bool:
        """Tells whether a process without an answer since `began` counts as hanging after this number of seconds
        (`STUCK_SECONDS`)."""
        limit = STUCK_SECONDS if seconds is None else seconds
        return self.since(began) and time.time() - max(self._last(), began) > limit

    def _last(self) -> float:
        try:
            return self._path.stat().st_mtime
        except OSError:
            return 0.0


def opened(
    pool: Pool, role: Role, device: dict[str, Any], programs: bool, stopped: Callable[[], bool] = lambda: False
) -> Child:
    """Returns a child with the GPU opened, by the second or third try if one does not start. Gives up when `stopped`
    returns True. Raises `WorkerDied`."""
    for number, seconds in enumerate(OPEN_SECONDS, 1):
        try:
            return pool.spawn(role, ChildLimits(), device=device, programs=programs, start_seconds=seconds)
        except WorkerDied:
            if number == len(OPEN_SECONDS) or stopped():
                raise
    raise HarnessError("unreachable: the last try returns or raises")
