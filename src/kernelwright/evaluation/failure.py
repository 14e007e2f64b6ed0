"""The exception that ends a judgement with a verdict, and a reason that several modules share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kernelwright.backends.triton import triton_support
from kernelwright.records import Finding, VerdictName

Cause = Literal["", "device", "killed", "closed", "memory"]
"""A possible cause outside the candidate's own code, set by the type of the fault that ended the judgement."""


@dataclass(eq=False)  # not frozen: a traceback is set on an exception that passes a `with`
class Failed(Exception):
    """Ends the judgement of a candidate with a verdict."""

    verdict: VerdictName
    reason: str
    finding: Finding | None = None
    log: str = ""
    exception: str = ""
    """The type of the candidate's exception, if one ended the judgement."""
    cause: Cause = ""
    """The role of process or device: the device failed, the process was killed or closed its channel, memory ended."""

    def __post_init__(self) -> None:
        super().__init__(self.reason)


def missing_library(names: Sequence[str]) -> str:
    """Returns the reason for a verdict on a candidate that needs libraries which are not installed."""
    hint = f"; {triton_support.HINT}" if "triton" in names else ""
    return f"missing-library: {', '.join(names)} is not installed here{hint}"
