"""The exception that ends a judgement with a verdict, and reasons that several modules give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kernelwright.backends.triton import triton_support
from kernelwright.records import Finding, VerdictName

Cause = Literal["", "device", "killed", "closed", "memory"]
"""What beside the candidate's own code may have ended a judgement; told by type where the fault arises."""


@dataclass(eq=False)  # not frozen: a traceback is set on an exception that passes a `with`
class Failed(Exception):
    """The candidate's road ends here."""

    verdict: VerdictName
    reason: str
    finding: Finding | None = None
    log: str = ""
    exception: str = ""
    """The type of the exception that the candidate raised, where one ended the judgement."""
    cause: Cause = ""
    """How the process or the device took part: the device failed, the process was killed or closed its channel, memory
    ended."""

    def __post_init__(self) -> None:
        super().__init__(self.reason)


def missing_library(names: Sequence[str]) -> str:
    """The reason for a verdict on a candidate that needs libraries which are not here."""
    hint = f"; {triton_support.HINT}" if "triton" in names else ""
    return f"missing-library: {', '.join(names)} is not installed here{hint}"
