"""Examines this machine: each part that judging needs, its state, and the command that installs it.

`python -m kernelwright.doctor` builds the compiled parts, so that the first evaluation does not wait for them.
"""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table


@dataclass(frozen=True)
class Check:
    """The state of one part. `needed` marks parts without which nothing can be judged on a CPU; `hint` says what to do
    where the part is missing."""

    name: str
    ok: bool
    found: str
    needed: bool = True
    hint: str = ""


def examine() -> list[Check]:
    """Runs every check, in the order in which a user would fix them."""
    return [
        _python(),
        _package("torch"),
        _package("numpy"),
        _compiler(),
        _nvrtc(),
        _machine(),
        _triton(),
        *_sandbox(),
        _gpu(),
        _starter(),
        _cache(),
    ]


def _python() -> Check:
    version = platform.python_version()
    return Check("python", version.startswith(("3.11", "3.12")), version, hint="use Python 3.11 or 3.12")


def _package(name: str) -> Check:
    try:
        return Check(name, True, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Check(name, False, "not installed", hint=f"pip install {name}")


def _first_line(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip().splitlines()[0] if done.returncode == 0 and done.stdout.strip() else None


def _compiler() -> Check:
    found = _first_line(["g++", "--version"]) if shutil.which("g++") else None
    return Check("g++", found is not None, found or "not found", hint="install g++ (Debian: apt-get install g++)")


def _nvrtc() -> Check:
    try:
        from kernelwright.machine import nvrtc

        major, minor = nvrtc.version()
    except Exception as error:  # any error that keeps the library from loading is the result
        return Check("nvrtc", False, str(error).splitlines()[0], hint="pip install nvidia-cuda-nvrtc")
    return Check("nvrtc", True, f"{major}.{minor}")


def _machine() -> Check:
    from kernelwright.errors import MachineError
    from kernelwright.machine import library

    try:
        built = library.path().exists()
    except MachineError as error:
        return Check("CUDA machine", False, str(error), hint=error.hint or "")
    return Check("CUDA machine", True, "built" if built else "will be built at first use (about half a minute)")


def _triton() -> Check:
    from kernelwright.backends.triton import triton_support

    if not triton_support.installed():
        found = "not installed; Triton candidates are unsupported"
        return Check("triton", False, found, needed=False, hint=triton_support.HINT)
    return Check("triton", True, importlib.metadata.version("triton"), needed=False)


def _sandbox() -> list[Check]:
    from kernelwright.evaluation.processes import sandbox

    return [
        Check(f"sandbox: {layer}", text.startswith("yes"), text, needed=layer == "process")
        for layer, text in sandbox.probe().items()
    ]


def _gpu() -> Check:
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    found = _first_line(query) if shutil.which("nvidia-smi") else None
    return Check("GPU", found is not None, found or "none; candidates run on the CPU, untimed", needed=False)


def _starter() -> Check:
    from kernelwright.errors import ConfigError
    from kernelwright.inference import starter_folder

    try:
        return Check("starter model", True, str(starter_folder()), needed=False)
    except ConfigError as error:
        return Check("starter model", False, f"none: {error}", needed=False, hint=error.hint or "")


def _cache() -> Check:
    from kernelwright.config import cache_dir
    from kernelwright.errors import ConfigError

    try:
        return Check("cache folder", True, str(cache_dir()))
    except ConfigError as error:
        return Check("cache folder", False, str(error), hint=error.hint or "")


def show(checks: list[Check]) -> None:
    """Prints the checks as a table."""
    table = Table("part", "", "found", box=None, header_style="dim")
    for check in checks:
        mark = "[green]ok[/]" if check.ok else ("[red]missing[/]" if check.needed else "[yellow]no[/]")
        hint = f" [dim]({escape(check.hint)})[/]" if check.hint and not check.ok else ""
        table.add_row(check.name, mark, escape(check.found) + hint)
    Console(highlight=False).print(table)


def build() -> None:
    """Builds our C++ sources: the CUDA machine, the host library and its precompiled headers.

    Raises `HarnessError`, which names the missing part.
    """
    from kernelwright.backends import host_build
    from kernelwright.backends.build import cpp_flags
    from kernelwright.config import cache_dir
    from kernelwright.machine import library

    library.build()
    host_build.host_library(cache_dir())
    for flags in (host_build.DEFAULT_FLAGS, cpp_flags(())):
        host_build.precompiled_header(cache_dir(), flags)


def main() -> int:
    """Builds the compiled parts; returns the exit status."""
    from kernelwright.errors import KernelwrightError

    try:
        build()
    except KernelwrightError as error:
        print(f"error: {error}", file=sys.stderr)
        print(f"hint: {error.hint}" if error.hint else "", file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
