"""What a child has worked out for the task at hand, kept for the next candidate that is asked the same.

Answers of one group are judged on equal inputs, of one seed: the model, its inputs and what is expected of them are the
same for all of them then, and working them out is much of what a judgement takes besides the candidate's own calls.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any


class Kept:
    """Results by what was asked, as long as they are small; what was asked for longest ago goes first."""

    def __init__(self, limit: int) -> None:
        """`limit`: bytes of all results together. What takes more than half of it is not kept."""
        self.limit, self.nbytes = limit, 0
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def find(self, key: Hashable) -> Any | None:
        """The result, or None."""
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key][0]

    def has_room(self, nbytes: int) -> bool:
        """Whether a result of so many bytes would be kept."""
        return 2 * nbytes <= self.limit

    def keep(self, key: Hashable, value: Any, nbytes: int) -> None:
        """Keeps a result that was not kept, where there is room for it."""
        if not self.has_room(nbytes) or key in self._entries:
            return
        self._entries[key] = value, nbytes
        self.nbytes += nbytes
        while self.nbytes > self.limit:
            self.nbytes -= self._entries.popitem(last=False)[1][1]

    def clear(self) -> None:
        self._entries.clear()
        self.nbytes = 0
