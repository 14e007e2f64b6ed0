"""A source of pairs whose second shard fails; importable by worker processes."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Failing:
    seconds: float = 0.2

    def __call__(self, shard: int) -> list[tuple[str, str]]:
        if shard == 1:
            raise AssertionError("the second shard cannot be made")
        time.sleep(self.seconds)
        return [("task", "answer")] * 3
