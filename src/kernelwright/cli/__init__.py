"""The command line: `verbs.py` has most verbs and `main`, `ending.py` how a command ends, the others one group each."""

from kernelwright.cli.verbs import app, main

__all__ = ["app", "main"]
