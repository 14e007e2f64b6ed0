"""What a caller may choose about an evaluation, and the key under which its result is stored."""

from __future__ import annotations

import hashlib
import json
from typing import Literal

from pydantic import Field

from kernelwright.records import Candidate, Policy, Record, Task

PROTOCOL = 1
"""Raised whenever verdicts of earlier versions can no longer be trusted; part of every key."""


class EvalOptions(Record):
    """How to judge. Everything but `jobs`-like matters is part of the result's key."""

    backend: Literal["auto", "cpu", "gpu"] = "auto"
    policy: Policy | None = None
    """Overrides the task's own policy."""
    trials: int = Field(default=5, ge=1, le=100)
    """Calls that are checked; the first size is always called twice when there are at least two."""
    timeout: float = Field(default=30.0, gt=0)
    """Wall seconds that the candidate may use, builds not counted."""
    build_timeout: float = Field(default=60.0, gt=0)
    """Wall seconds that one build may take."""
    memory_mb: int = Field(default=4096, ge=256)
    """Address space that the candidate may add to that of a bare interpreter with torch."""
    seed: int | None = None
    """Seed of inputs and weights; drawn from the operating system when None. Never given to the candidate."""
    sandbox: str = "auto"
    """`auto`: the strongest there is. `strict`: fail without landlock and seccomp. `none`: process and limits."""

    def key(self, task: Task, candidate: Candidate) -> str:
        """Names the result of judging this candidate on this task with these options."""
        fields = self.model_dump(mode="json")
        fields["backend"] = "cpu" if self.backend == "auto" else self.backend
        fields["policy"] = self.policy or task.policy
        fields["sandbox"] = ""
        parts = [str(PROTOCOL), task.content_hash, candidate.code_hash, json.dumps(fields, sort_keys=True)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()
