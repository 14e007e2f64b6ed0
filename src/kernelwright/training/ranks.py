"""Communication between the processes of one training run; a no-op for a single process.

Objects go over gloo, GPU tensors over NCCL. A process whose peer is gone raises `PeerLost`; the launcher reports the
process that died and the cause.
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
"""The longest wait for the slowest process: a step's longest rollout, with judging."""


class PeerLost(WorkerDied):
    """Another process of the run is gone; the launcher reports its error."""


def launched() -> bool:
    """Tells whether this process is one of several of a run."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


@dataclass(frozen=True)
class Ranks:
    """This process's rank, and the number of processes of its run."""

    rank: int = 0
    count: int = 1

    @classmethod
    def join(cls) -> Ranks:
        """Joins the run named by RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; without them, a run of one process."""
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
        """True for rank 0, which writes and reports."""
        return self.rank == 0

    def gather(self, mine: Any) -> list[Any]:
        """Gathers a value of each process, by rank, on all processes."""
        if self.count == 1:
            return [mine]
        from torch import distributed

        found: list[Any] = [None] * self.count
        with _peers():
            distributed.all_gather_object(found, mine)
        return found

    def from_first(self, value: Any) -> Any:
        """Broadcasts the value of rank 0."""
        return self.gather(value if self.first else None)[0]

    def wait(self) -> None:
        """Waits until all processes call it: a barrier."""
        self.gather(None)

    def add(self, tensors: Iterable[Any]) -> None:
        """Replaces each tensor by its sum over the processes (all-reduce), in buckets."""
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
        """Destroys the process group at the end of a run."""
        if self.count > 1:
            from torch import distributed

            distributed.destroy_process_group()


_BUCKET = 2**26
"""The most elements of one all-reduce."""


def _buckets(tensors: Iterable[Any]) -> Iterator[list[Any]]:
    """Groups tensors of one dtype, up to `_BUCKET` elements."""
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
    """Converts connection failures to `PeerLost`."""
    try:
        yield
    except RuntimeError as error:
        raise PeerLost(f"another process of this run is gone: {str(error).splitlines()[0][:200]}") from error
