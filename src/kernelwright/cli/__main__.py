"""Runs the command line by `python -m kernelwright.cli`."""

from kernelwright.cli.verbs import main

main()
