"""The error tree: every failure is attributed by the boundary it crossed, never by its message.

    KernelwrightError                 base; carries `hint`, what the user can do about it
    ├── UsageError                    the caller's input is at fault: flag, file, field, value      (exit status 2)
    │   ├── ConfigError               a setting is unknown or out of range
    │   ├── TaskError                 a task cannot be read, has no reference, or its reference fails
    │   │   └── UnsupportedTask       a sound task needs what this version does not judge (verdict `unsupported`)
    │   ├── CandidateError            a candidate file cannot be read (a wrong candidate is a verdict, not an error)
    │   └── StoreError                a run folder cannot be opened, or is of another version
    ├── PolicyError                   a policy gave no answer (endpoint down, budget spent, script at its end)
    └── HarnessError                  our own code failed: never charged to a candidate            (exit status 3)
        ├── SandboxError              a requested sandbox layer cannot be set up
        ├── WorkerDied                a child process of ours ended without an answer
        └── MachineError              the functional CUDA machine met an internal fault

A fault of a *candidate* is no exception: it is a verdict in an `Evaluation` record.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class KernelwrightError(Exception):
    """The base of every error that Kernelwright raises on purpose.

    `hint` is one sentence that says what to do. The command line prints both and exits with `exit_status`.
    """

    exit_status = 3

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(KernelwrightError):
    """The caller's flags, files or values cannot be used."""

    exit_status = 2


class ConfigError(UsageError):
    """A setting is unknown or out of range."""


class TaskError(UsageError):
    """A task cannot be read, lacks a part, or its reference does not run."""


class UnsupportedTask(TaskError):
    """A task needs what this version does not judge, such as sparse tensors. The judge makes it the verdict
    `unsupported`."""


class CandidateError(UsageError):
    """A candidate file cannot be read or is empty."""


class StoreError(UsageError):
    """A run folder cannot be opened, is locked by a writer, or is of another version."""


class PolicyError(KernelwrightError):
    """A policy gave no answer."""

    exit_status = 1


class HarnessError(KernelwrightError):
    """Our own code failed; the candidate is not at fault."""


class SandboxError(HarnessError):
    """A requested sandbox layer cannot be set up on this machine."""


class WorkerDied(HarnessError):
    """A child process of ours ended without an answer."""


class MachineError(HarnessError):
    """The functional CUDA machine met an internal fault."""


class DeviceError(RuntimeError):
    """An error of the CUDA runtime or driver, real or pretended. The message opens with `CUDA error: `, as torch's do.

    It is no `KernelwrightError`: a candidate may catch it where it would catch torch's.
    """


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """Returns the hint for an unknown name: the nearest known name, or `otherwise` where none is near."""
    near = difflib.get_close_matches(name, known, 1)
    return f"did you mean {near[0]!r}?" if near else otherwise
