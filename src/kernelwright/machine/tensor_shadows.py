"""The shadows of torch's memory, where torch stands for the device: which bytes of a tensor something has written.

`fresh` begins a shadow for memory that torch allocated without contents; operators, copies and fills of host code mark
what they write here, and launches mark it by themselves. All other memory counts as written.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernelwright.machine.device_memory import Shadow

if TYPE_CHECKING:
    import torch


@dataclass
class _Tracked:
    """One storage with unwritten bytes. A storage's Python object lives as long as its memory."""

    storage: weakref.ref[Any]
    shadow: Shadow

    def lives(self, address: int) -> bool:
        """Tells whether the storage is still there, at its address and size, and not written in full."""
        storage = self.storage()
        here = storage is not None and (storage.data_ptr(), storage.nbytes()) == (address, self.shadow.nbytes)
        return here and not self.shadow.complete()


class TensorShadows:
    """The storages of this process that have unwritten bytes."""

    def __init__(self) -> None:
        self._tracked: dict[int, _Tracked] = {}

    def __len__(self) -> int:
        """Returns the number of shadows; an upper bound, since memory may have been freed or written in full."""
        return len(self._tracked)

    def fresh(self, storage: torch.UntypedStorage, contents: int = 0, before: Shadow | None = None) -> None:
        """Begins the shadow of a storage whose first `contents` bytes were there before it grew, under the shadow
        `before`."""
        shadow = Shadow(storage.nbytes())
        if before is None:
            shadow.mark(0, contents)
        else:
            shadow.copy_from(0, before.marks(0, contents))
        if not shadow.complete():
            self._tracked[storage.data_ptr()] = _Tracked(weakref.ref(storage), shadow)

    def forget(self, storage: torch.UntypedStorage) -> None:
        """Ends the shadow of a storage: all of it counts as written."""
        self._tracked.pop(storage.data_ptr(), None)

    def of(self, address: int, nbytes: int) -> Shadow | None:
        """Returns the shadow of a storage; None if all of it is written."""
        found = self._at(address)
        return found[1] if found is not None and found[0] == address and found[1].nbytes == nbytes else None

    def wrote(self, tensor: torch.Tensor) -> None:
        """Notes that all elements of a tensor were written."""
        found = self._at(tensor.data_ptr()) if self._tracked and tensor.numel() else None
        if found is not None:
            start, shadow = found
            form = tensor.size(), tensor.stride(), tensor.element_size()
            shadow.elements(tensor.data_ptr() - start, *form)[...] = 1

    def wrote_range(self, address: int, nbytes: int, source: int = 0) -> None:
        """Notes that host code filled a range, or copied it from the address `source`, with the marks of that."""
        found = self._at(address) if self._tracked else None
        if found is None:
            return
        start, shadow = found
        nbytes = min(nbytes, shadow.nbytes - (address - start))
        origin = self._at(source)
        if origin is None:
            return shadow.mark(address - start, nbytes)
        shadow.copy_from(address - start, origin[1].marks(source - origin[0], nbytes))

    def _at(self, address: int) -> tuple[int, Shadow] | None:
        """Returns start and shadow of the tracked storage that contains an address."""
        for start, tracked in list(self._tracked.items()):
            if not tracked.lives(start):
                del self._tracked[start]
            elif start <= address < start + tracked.shadow.nbytes:
                return start, tracked.shadow
        return None
