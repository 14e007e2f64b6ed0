"""What the processes of one training run say to each other: everything, or nothing where there is only one.

Objects go over gloo, tensors over NCCL where they are on a GPU. A process whose peer is gone raises `PeerLost`: which
one died, and why, is for the launcher to say.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from kernelwright.errors import WorkerDied

TIMEOUT = timedelta(hours=2)
"""How long a process waits for the slowest one: a step's longest rollout, judged."""


class PeerLost(WorkerDied):
    """Another process of the run is gone; whoever started them says which and why."""


def launched() -> bool:
    """Whether this process is one of several that train together."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


@dataclass(frozen=True)
class Ranks:
    """This process among those of its run."""

    rank: int = 0
    count: int = 1

    @classmethod
    def join(cls) -> Ranks:
        """The run that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT name; alone where they name none."""
        if not launched():
            return cls()
        import torch
        from torch import distributed

        local = int(os.environ.get("LOCAL_RANK", "0"))
        if torch.cuda.is_available():
            torch.cuda.set_device(local)
        if not distributed.is_initialized():
            backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
            with _peers():
                distributed.init_process_group(backend, timeout=TIMEOUT)
        return cls(distributed.get_rank(), distributed.get_world_size())

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes and reports."""
        return self.rank == 0

    def gather(self, mine: Any) -> list[Any]:
        """What each process gave, by rank; the same list everywhere."""
        if self.count == 1:
            return [mine]
        from torch import distributed

        found: list[Any] = [None] * self.count
        with _peers():
            distributed.all_gather_object(found, mine)
        return found

    def from_first(self, value: Any) -> Any:
        """The first process's value; waits for it."""
        return self.gather(value if self.first else None)[0]

    def wait(self) -> None:
        """Until all processes are here."""
        self.gather(None)

    def add(self, tensors: Iterable[Any]) -> None:
        """Replaces each tensor by its sum over the processes, bucket by bucket."""
        if self.count == 1:
            return
        import torch
        from torch import distributed

        for bucket in _buckets(tensors):
            flat = torch.cat([t.reshape(-1) for t in bucket])
            with _peers():
                distributed.all_reduce(flat)
            for tensor, summed in zip(bucket, flat.split([t.numel() for t in bucket]), strict=True):
                tensor.copy_(summed.view_as(tensor))

    def leave(self) -> None:
        """Ends the connection, at the end of a run."""
        if self.count > 1:
            from torch import distributed

            distributed.destroy_process_group()


_BUCKET = 2**26
"""Numbers that are summed at once."""


def _buckets(tensors: Iterable[Any]) -> Iterator[list[Any]]:
    """Tensors of one type together, up to a size."""
    bucket: list[Any] = []
    size = 0
    for tensor in tensors:
        if bucket and (size + tensor.numel() > _BUCKET or tensor.dtype != bucket[0].dtype):
            yield bucket
            bucket, size = [], 0
        bucket.append(tensor)
        size += tensor.numel()
    if bucket:
        yield bucket


@contextlib.contextmanager
def _peers() -> Iterator[None]:
    """Failures of the connection as what they are."""
    try:
        yield
    except RuntimeError as error:
        raise PeerLost(f"another process of this run is gone: {str(error).splitlines()[0][:200]}") from error
