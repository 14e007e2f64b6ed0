"""What a fault of one process on a GPU does to others that compute there, and how they get over it.

Seen on an H100 (driver 580, three tries of three): where a kernel reads an illegal address, another process whose
kernels are on the device at that moment may wait for them for ever, with no error. A process that only waits is not
touched, nor is one that begins afterwards. So whoever meets a fault notes it, and who goes on without an answer after a
fault of another is asked again in a fresh process.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernelwright.errors import HarnessError, WorkerDied
from kernelwright.evaluation.processes.pool import Child, Pool
from kernelwright.evaluation.processes.roles import Role

OPEN_SECONDS = (15.0, 60.0, 120.0)
"""How long a child may take to open a GPU, try by try; it usually takes one or two."""
STUCK_SECONDS = 5.0
"""Who has no answer so long after a fault of another is taken for one that waits for ever: most have one in less than
a second, and who is taken for one by mistake is asked again."""
NOTICE_SECONDS = 1.0
"""How long after a fault it is noted, at most."""


class Disturbed(HarnessError):
    """A trusted child waits for ever, since another process has met a fault on the GPU. Workers judge again, alone."""


class Faults:
    """When a kernel has last met a fault on one GPU, as all processes note it that share the card. Seconds as of
    `time.time()`."""

    def __init__(self, path: Path) -> None:
        """`path` is what all of them name that share the GPU, as of their `Lease`."""
        self._path = path.with_suffix(".fault")

    def note(self) -> None:
        """A candidate has just met one."""
        with contextlib.suppress(OSError):  # it only helps others
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.touch()

    def since(self, began: float) -> bool:
        """Whether there was one after `began`."""
        return self._last() >= began - NOTICE_SECONDS

    def stuck(self, began: float, seconds: float | None = None) -> bool:
        """Whether who has had no answer since `began` is to be taken for one that waits for ever: after so many seconds
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
    """A child with the GPU opened, by the second or third try where one did not come up, until nobody wants it
    (`stopped`). Raises `WorkerDied`."""
    for number, seconds in enumerate(OPEN_SECONDS, 1):
        try:
            return pool.spawn(role, cpu_seconds=0, memory_mb=0, device=device, programs=programs, start_seconds=seconds)
        except WorkerDied:
            if number == len(OPEN_SECONDS) or stopped():
                raise
    raise HarnessError("unreachable: the last try returns or raises")
