"""The slow road for a GPU: torch's own `load_inline` with nvcc and its real headers, for what the stand-in lacks.

Runs in the builder, in a process of its own; the library is built but not imported here, since importing runs the
candidate's code. Kept by content under the cache folder. Takes tens of seconds, so only what is otherwise
`unsupported` comes here.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from kernelwright.backends import diagnose
from kernelwright.builds import BuildRequest, BuildResult

SECONDS = 170.0
_SCRIPT = """
import json, sys
import torch.utils.cpp_extension as e
request, folder = json.load(sys.stdin)
if e.CUDA_HOME is None:
    sys.exit(77)
e._import_module_from_library = lambda *arguments: None
e.load_inline(
    name=request["name"], cpp_sources=request["cpp_source"], cuda_sources=request["cuda_source"] or None,
    functions=request["functions"] or None, extra_cflags=request["cpp_flags"],
    extra_cuda_cflags=request["cuda_flags"], build_directory=folder, with_cuda=True,
)
"""


def build(request: BuildRequest, folder: Path) -> BuildResult | None:
    """The library of an extension, built by torch in `folder`; None where this machine has no nvcc."""
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
    text = json.dumps([{**asdict(request), "name": name}, str(folder)])
    try:
        done = subprocess.run(
            [sys.executable, "-c", _SCRIPT],
            input=text,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
            env=environment,
            cwd=folder,
        )
    except subprocess.TimeoutExpired:
        return BuildResult("compile_error", log=f"nvcc did not finish within {SECONDS:.0f} s")
    if done.returncode == 77:
        return None
    log = (done.stdout + done.stderr).replace(f"{folder}/", "")
    if done.returncode or not library.exists():
        own = [line for line in log.splitlines() if "error" in line.lower()] or log.splitlines()[-5:]
        return BuildResult("compile_error", log=diagnose.truncate("\n".join(own)), built_by="load_inline")
    return BuildResult("ok", library=str(library), functions=request.functions, built_by="load_inline")
