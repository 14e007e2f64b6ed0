"""Compares Triton's own interpreter with the functional machine: three kernels, equal inputs, a process for each way.

Both times are those of a second call; `first_s` includes late imports and compilation.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SIZES = {
    "softmax": ("triton-softmax", "(torch.randn(256, 1000, generator=g),)", "torch.softmax(x.double(), 1)"),
    "matmul-half": (
        "triton-matmul-half",
        "(torch.randn(256, 256, generator=g).half(), torch.randn(256, 256, generator=g).half())",
        "x.double() @ y.double()",
    ),
    "linear-bf16": (
        "triton-linear-bf16",
        "(torch.randn(256, 256, generator=g).bfloat16(), torch.randn(256, 256, generator=g).bfloat16())",
        "x.double() @ y.double().t()",
    ),
}
_SCRIPT = """
import json, pathlib, sys, time, types
sys.path[:0] = {path!r}
import torch
from sets.honest import CASES
interpreted = {interpreted!r}
case = next(c for c in CASES if c.name == {case!r})
g = torch.Generator().manual_seed(7)
inputs = {inputs}
x, y = inputs[0], inputs[-1]
expected = {expected}
torch.empty_like, torch.empty = torch.zeros_like, torch.zeros  # neither way shall gain by what it leaves unwritten
manager = None
if not interpreted:
    from kernelwright.backends.build import build
    from kernelwright.backends.triton import triton_support
    from kernelwright.evaluation.candidate import fake_cuda
    from kernelwright.machine.runtime import Runtime
    runtime = Runtime(lambda request: build(request, pathlib.Path({cache!r})))
    fake_cuda.install(runtime.unsupported)
    triton_support.attach(runtime)
    manager = fake_cuda.FakeCuda(runtime.register)
    runtime.begin_call()
place = pathlib.Path({folder!r}) / "candidate.py"
place.write_text(case.candidate_source)
module = types.ModuleType("candidate")
exec(compile(case.candidate_source, str(place), "exec"), module.__dict__)
model = module.ModelNew()
def call():
    start = time.perf_counter()
    with manager if manager is not None else torch.no_grad():
        out = model(*inputs)
    return out, time.perf_counter() - start
_, first = call()
out, again = call()
error = (out.double() - expected).abs().max().item()
print(json.dumps({{"first_s": round(first, 4), "again_s": round(again, 4), "max_error": error}}))
"""


def _run(kernel: str, interpreted: bool, folder: str) -> dict[str, object]:
    case, inputs, expected = SIZES[kernel]
    script = _SCRIPT.format(
        path=[str(Path(__file__).parent), str(Path(__file__).parents[1] / "tests"), *sys.path],
        interpreted=interpreted,
        case=case,
        inputs=inputs,
        expected=expected,
        folder=folder,
        cache=f"{folder}/cache",
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TRITON_CACHE_DIR": f"{folder}/triton"}
    environment |= {"TRITON_INTERPRET": "1"} if interpreted else {}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=300)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return {"failed": lines[-1][:300] if lines else f"status {done.returncode}"}
    found: dict[str, object] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def compare_with_interpreter() -> Iterator[dict[str, object]]:
    """Yields one row a kernel: seconds and the largest error of both ways, and their ratio of seconds."""
    import tempfile

    for kernel in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            machine, interpreter = _run(kernel, False, folder), _run(kernel, True, folder)
        row: dict[str, object] = {"kernel": kernel, "machine": machine, "interpreter": interpreter}
        if "failed" not in machine and "failed" not in interpreter:
            row["ratio"] = round(float(str(interpreter["again_s"])) / float(str(machine["again_s"])), 1)
        yield row
