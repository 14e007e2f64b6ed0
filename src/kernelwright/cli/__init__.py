"""The command line: `verbs.py` has most verbs and `main`, `ending.py` the exit of a command, others one group."""

from kernelwright.cli.verbs import app, main

__all__ = ["app", "main"]
