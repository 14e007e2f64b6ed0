"""Builds an extension with torch's own `load_inline`, nvcc and torch's real headers, where the stand-in falls short.

Runs in a subprocess of the builder; the library is built but not imported here, since importing runs the candidate's
code. Results are cached by content. A build takes tens of seconds, so it is used only for requests that are otherwise
`unsupported`. It compiles for one architecture, precompiles torch's headers once per set of flags, and runs as many
builds in parallel as memory allows.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import psutil

from kernelwright.backends.host_build import locked
from kernelwright.backends.source_text import diagnose
from kernelwright.builds import BuildRequest, BuildResult

SECONDS, HEADER_SECONDS = 170.0, 300.0
"""Time limits for a candidate's own text, and for torch's headers, which every machine compiles once."""
BUILD_BYTES = 4 << 30
"""Memory per build: two translation units with torch's headers at a time."""
_SCRIPT = """
import hashlib, json, os, pathlib, re, secrets, subprocess, sys
import torch
import torch.utils.cpp_extension as e
request, folder, headers = json.load(sys.stdin)
if (e.CUDA_HOME is None and request["cuda_source"]) or not e.is_ninja_available():
    sys.exit(77)
e._import_module_from_library = lambda *arguments: None
run = e._run_ninja_build

def precompiled(directory, *arguments, **options):
    # The flags are those that torch has just written for its compiler.
    path = pathlib.Path(directory, "build.ninja")
    text = path.read_text()
    compiler = re.search(r"^cxx = (.*)$", text, re.M).group(1)
    flags = re.sub(r"-DTORCH_EXTENSION_NAME=\\S+", "", re.search(r"^cflags = (.*)$", text, re.M).group(1))
    key = hashlib.sha256((torch.__version__ + compiler + flags).encode()).hexdigest()[:24]
    header = pathlib.Path(headers, key, "torch_extension.h")
    ready = pathlib.Path(str(header) + ".gch")
    if not ready.exists():
        header.parent.mkdir(parents=True, exist_ok=True)
        header.write_text("#include <torch/extension.h>\\n")
        busy = pathlib.Path(folder, "headers")
        busy.touch()
        made = pathlib.Path(f"{ready}.{secrets.token_hex(8)}")
        command = f"{compiler} {flags} -x c++-header {header} -o {made}"
        if subprocess.run(command, shell=True, capture_output=True).returncode == 0:
            os.replace(made, ready)
        made.unlink(missing_ok=True)
        busy.unlink()
    if ready.exists():
        line = re.search(r"^cflags = .*$", text, re.M).group(0)
        path.write_text(text.replace(line, f"{line} -include {header}", 1))
    return run(directory, *arguments, **options)

e._run_ninja_build = precompiled
e.load_inline(
    name=request["name"], cpp_sources=request["cpp_source"], cuda_sources=request["cuda_source"] or None,
    functions=request["functions"] or None, extra_cflags=request["cpp_flags"],
    extra_cuda_cflags=request["cuda_flags"], build_directory=folder, with_cuda=bool(request["cuda_source"]),
)
"""


class Unfinished(Exception):
    """Raised when the compiler exceeds its time limit. A slow machine may be the cause, so the result is not cached."""


@contextlib.contextmanager
def _room(folder: Path) -> Iterator[None]:
    """Holds one of a limited number of build slots; waits for a free one. The number follows from available memory.
    Slots are lock files, shared by the builders of all judging processes."""
    folder.mkdir(parents=True, exist_ok=True)
    places = max(1, min(os.cpu_count() or 1, int(psutil.virtual_memory().available // BUILD_BYTES)))
    files = [open(folder / f"place-{i}", "w") for i in range(places)]
    try:
        while True:
            for file in files:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    yield
                    return
            time.sleep(0.2)
    finally:
        for file in files:
            file.close()


def build(request: BuildRequest, folder: Path) -> BuildResult | None:
    """Builds an extension with torch in `folder`; returns None if this machine lacks nvcc or ninja.

    Precompiled headers and the slots of `_room` are in the parent folder. Raises `Unfinished`.
    """
    name = request.name if re.fullmatch(r"[A-Za-z_]\w*", request.name) else "extension"
    library = folder / f"{name}.so"
    folder.mkdir(parents=True, exist_ok=True)
    major_minor = re.sub(r"^sm_(\d+)(\d)", r"\1.\2", request.arch)  # sm_90a -> 9.0a
    environment = {
        **{k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "TMPDIR", "LC_ALL", "CUDA_HOME")},
        "TORCH_CUDA_ARCH_LIST": major_minor,
        "MAX_JOBS": "2",  # a translation unit with torch's headers takes 2 GB
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    }
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", "/usr/bin:/bin")])
    text = json.dumps([{**asdict(request), "name": name}, str(folder), str(folder.parent / "torch-headers")])
    with locked(folder / "building"), _room(folder.parent / "torch-builds"):
        (folder / "lock").unlink(missing_ok=True)  # torch's own lock of a killed build, on which it would wait forever
        code, log = _run(text, folder, environment)
    if code == 77:
        return None
    log = log.replace(f"{folder}/", "")
    if code or not library.exists():
        own = [line for line in log.splitlines() if "error" in line.lower()] or log.splitlines()[-5:]
        return BuildResult("compile_error", log=diagnose.truncate("\n".join(own)), built_by="load_inline")
    return BuildResult("ok", library=str(library), functions=request.functions, built_by="load_inline")


def _run(text: str, folder: Path, environment: dict[str, str]) -> tuple[int, str]:
    """Returns exit status and output of the build process; compiling the headers counts against a limit of its own."""
    left = {"own": SECONDS, "headers": HEADER_SECONDS}
    asked, said, making = folder / "request.json", folder / "log", folder / "headers"
    asked.write_text(text)
    making.unlink(missing_ok=True)  # of a build that was killed while compiling them
    with open(asked) as given, open(said, "w") as out:
        words = [sys.executable, "-c", _SCRIPT]
        with subprocess.Popen(words, stdin=given, stdout=out, stderr=out, env=environment, cwd=folder) as process:
            while min(left.values()) > 0:
                began, kind = time.monotonic(), "headers" if making.exists() else "own"
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.wait(timeout=0.2), said.read_text(errors="replace")
                left[kind] -= time.monotonic() - began
            for one in psutil.Process(process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
            process.kill()
    raise Unfinished(f"nvcc did not finish within {SECONDS:.0f} s")
