"""The command line: `verbs.py` has most verbs and `main`, the other files one group of verbs each."""

from kernelwright.cli.verbs import app, main

__all__ = ["app", "main"]
