"""The type of the `kernelwright` fixture: the command line, run in a process of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

Command = Callable[..., subprocess.CompletedProcess[str]]
