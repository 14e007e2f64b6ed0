"""The verbs of the functional machine: `kernelwright machine run FILE.cu`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from kernelwright.cli.options import path_argument, path_option
from kernelwright.cli.whole_help import WholeHelp

machine_app = typer.Typer(
    help="Run whole CUDA programs without a GPU.", no_args_is_help=True, rich_markup_mode=None, cls=WholeHelp
)


@machine_app.callback()
def _root() -> None:
    pass


@machine_app.command("run")
def machine_run(
    file: Annotated[Path, path_argument("A .cu file with a main function.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[-- ARGS]", help="Program arguments.")] = None,
    files: Annotated[
        list[Path] | None, path_option("Further source, header, input file or folder; repeatable.", "--file")
    ] = None,
    folders: Annotated[list[Path] | None, path_option("Folder of headers; repeatable.", "--include", "-I")] = None,
    keep: Annotated[Path | None, path_option("Folder for the files that the program writes.")] = None,
    flags: Annotated[list[str] | None, typer.Option("--flag", help="A flag of nvcc, e.g. -DN=4; repeatable.")] = None,
    races: Annotated[bool, typer.Option(help="Check for data races, which takes longer.")] = True,
    order: Annotated[str, typer.Option(help="Order of blocks and warps: forward, reverse or random.")] = "forward",
    timeout: Annotated[float, typer.Option(help="Wall seconds for the program.")] = 120.0,
    memory_mb: Annotated[int, typer.Option("--memory-mb", help="Memory limit in MB.")] = 8192,
    sandbox: Annotated[str, typer.Option(help="auto, strict (fail without landlock and seccomp) or none.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Run one CUDA program on the CPU: print its output, then the machine's findings with source lines.

    The program runs in a sandbox, in an empty folder. Exit status: the program's own; 1 with findings, when it does not
    compile, needs a missing part, or exceeds its time; 128 plus the signal's number after a signal.
    """
    from kernelwright.checks import program_checks
    from kernelwright.errors import ConfigError
    from kernelwright.evaluation.judge.programs import ProgramLimits
    from kernelwright.evaluation.options import MAX_MEMORY_MB, MAX_SECONDS
    from kernelwright.machine import ORDERS
    from kernelwright.report import terminal

    if sandbox not in ("auto", "strict", "none"):
        raise ConfigError(f"--sandbox {sandbox!r} is not a level", hint="use auto, strict or none")
    if order not in ORDERS:
        raise ConfigError(f"--order {order!r} is not an order", hint=f"use {', '.join(ORDERS)}")
    if not 0 < timeout <= MAX_SECONDS:
        raise ConfigError(f"--timeout {timeout!r} is out of range", hint=f"use more than 0, at most {MAX_SECONDS:g} s")
    if not 64 <= memory_mb <= MAX_MEMORY_MB:
        raise ConfigError(f"--memory-mb {memory_mb} is out of range", hint=f"use a number from 64 to {MAX_MEMORY_MB}")
    flags = [*(flags or []), *(f"-I{folder}" for folder in folders or ())]
    for flag in program_checks.idle_flags(flags):
        print(f"warning: --flag {flag} changes nothing here", file=sys.stderr)
    with terminal.spinner(f"running {file.name}"):
        options = program_checks.MachineOptions(tuple(flags), races, order, ProgramLimits(timeout, memory_mb), sandbox)
        complaint, step = program_checks.run_file(file, arguments or [], options, files=files or [], keep=keep)
    if as_json:
        print(json.dumps(program_checks.facts(complaint, step)))
    else:
        program_checks.print_run(file, complaint, step)
    sys.stdout.flush()
    raise typer.Exit(program_checks.exit_status(complaint, step))
