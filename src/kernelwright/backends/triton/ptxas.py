"""Whether ptxas takes a kernel's PTX, and what it needs: registers, spills. Runs in the builder, from Triton's wheel.

Without a ptxas there is nothing to check and nothing to say, which is no error.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

from kernelwright.builds import BuildRequest, BuildResult

SECONDS = 60.0
NAMES = ("ptxas-blackwell", "ptxas")
"""Newest first: Triton's wheel has a second one, of a newer CUDA, for everything from sm_90 on."""


@cache
def tool() -> str | None:
    """The ptxas of Triton's wheel; importing Triton is not needed to find it."""
    found = importlib.util.find_spec("triton")
    for folder in found.submodule_search_locations or () if found else ():
        for name in NAMES:
            path = Path(folder) / "backends" / "nvidia" / "bin" / name
            if path.exists():
                return str(path)
    return None


def assemble(request: BuildRequest) -> BuildResult:
    """Assembles `request.cuda_source`, which is PTX, for the target that it names."""
    program = tool()
    target = re.search(r"^\.target\s+(sm_\d+[af]?)", request.cuda_source, re.MULTILINE)
    if program is None or target is None:
        return BuildResult("ok", log="no ptxas here")
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "kernel.ptx"
        text.write_text(request.cuda_source)
        command = [program, "-v", f"--gpu-name={target[1]}", str(text), "-o", str(Path(folder) / "kernel.cubin")]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return BuildResult("compile_error", log=f"ptxas did not finish within {SECONDS:.0f} s")
    log = done.stderr.replace(str(text), f"{request.name}.ptx")
    seconds = {"ptxas": time.perf_counter() - started}
    if done.returncode:
        return BuildResult("compile_error", log=log or f"ptxas ended with status {done.returncode}", seconds=seconds)
    return BuildResult("ok", log=log, seconds=seconds, resources=resources(log))


def resources(log: str) -> dict[str, int]:
    """Numbers of the one kernel in a log of `ptxas -v`."""
    patterns = {"registers": r"Used (\d+) registers", "spilled_bytes": r"(\d+) bytes spill stores"}
    found = {name: re.search(pattern, log) for name, pattern in patterns.items()}
    return {name: int(match[1]) for name, match in found.items() if match}
