"""Assembles PTX with the ptxas of Triton's wheel, and reads registers and spills. Runs in the builder.

Without ptxas there is no machine code; that is not an error.
"""

from __future__ import annotations

import base64
import importlib.util
import re
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

from kernelwright.builds import BuildRequest, BuildResult

SECONDS = 60.0
FLAGS = ("--fmad=false",)
"""The flags that a request may name."""
NAMES = ("ptxas-blackwell", "ptxas")
"""Names of the tool, newest first: Triton's wheel has a second ptxas of a newer CUDA, for sm_90 and later."""


@cache
def tool() -> str | None:
    """Returns the path of the ptxas in Triton's wheel, found without importing Triton; None if missing."""
    found = importlib.util.find_spec("triton")
    for folder in found.submodule_search_locations or () if found else ():
        for name in NAMES:
            path = Path(folder) / "backends" / "nvidia" / "bin" / name
            if path.exists():
                return str(path)
    return None


def assemble(request: BuildRequest) -> BuildResult:
    """Assembles `request.cuda_source`, which is PTX, for its `.target`."""
    ptx = request.cuda_source
    program = tool()
    target = re.search(r"^\.target\s+(sm_\d+[af]?)", ptx, re.MULTILINE)
    if program is None or target is None:
        return BuildResult("ok", log="no ptxas here", ptx=ptx)
    flags = [flag for flag in request.cuda_flags if flag in FLAGS]
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "kernel.ptx"
        text.write_text(ptx)
        made = Path(folder) / "kernel.cubin"
        command = [program, "-v", "-lineinfo", *flags, f"--gpu-name={target[1]}", str(text), "-o", str(made)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return BuildResult("compile_error", log=f"ptxas did not finish within {SECONDS:.0f} s")
        cubin = base64.b64encode(made.read_bytes()).decode() if made.exists() else None
    log = done.stderr.replace(str(text), f"{request.name}.ptx")
    seconds = {"ptxas": time.perf_counter() - started}
    if done.returncode:
        return BuildResult("compile_error", log=log or f"ptxas ended with status {done.returncode}", seconds=seconds)
    return BuildResult("ok", log=log, ptx=ptx, cubin=cubin, seconds=seconds, resources=resources(log))


def resources(log: str) -> dict[str, int]:
    """Parses the resources of the single kernel in a log of `ptxas -v`."""
    patterns = {"registers": r"Used (\d+) registers", "spilled_bytes": r"(\d+) bytes spill stores"}
    found = {name: re.search(pattern, log) for name, pattern in patterns.items()}
    return {name: int(match[1]) for name, match in found.items() if match}
