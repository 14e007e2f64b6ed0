"""Support for Triton candidates besides Triton itself: detection, ptxas, line numbers, recorded compile errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernelwright.backends.triton import ptxas, triton_support
from kernelwright.builds import BuildRequest
from kernelwright.evaluation import Evaluator
from kernelwright.evaluation.failure import missing_library
from kernelwright.evaluation.processes import messages
from kernelwright.evaluation.text import source_lines
from kernelwright.machine import Fault
from kernelwright.machine.runtime import Runtime
from kernelwright.records import Candidate, SourceFile, Task

TASK = "import torch\nn = 64\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x + 1\n"
TASK += "def get_inputs():\n    return [torch.randn(n)]\ndef get_init_inputs():\n    return []\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import triton", True),
        ("from triton import jit", True),
        ("import triton.language as tl", True),
        ("import torch  # no tritons here", False),
        ("class Tritonic: pass", False),
    ],
)
def test_wanted(text: str, found: bool) -> None:
    assert triton_support.wanted(text) is found


def test_nothing_imports_triton_before_it_is_wanted() -> None:
    code = "import sys; import kernelwright.evaluation.candidate.runner, kernelwright.evaluation.judge.worker; "
    code += "assert not [m for m in sys.modules if m.split('.')[0] == 'triton'], 'imported'"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_hint_is_for_triton_only() -> None:
    assert triton_support.HINT in missing_library(["triton"])
    assert triton_support.HINT not in missing_library(["cupy"])


@pytest.mark.skipif(triton_support.installed(), reason="Triton is installed")
def test_without_triton_a_candidate_is_unsupported() -> None:
    source = "import torch, triton\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x + 1\n"
    candidate = Candidate(sources=(SourceFile(path="candidate.py", content=source),), language="triton")
    with Evaluator() as evaluator:
        result = evaluator.evaluate(Task(task_id="plus", source=TASK), candidate)
    assert result.verdict == "unsupported" and triton_support.HINT in result.reason


def test_resources_of_a_log() -> None:
    log = "ptxas info    : Compiling entry function 'k' for 'sm_90a'\n    8 bytes stack frame, 16 bytes spill stores,"
    log += " 24 bytes spill loads\nptxas info    : Used 255 registers, used 1 barriers, 400 bytes cmem[0]\n"
    assert ptxas.resources(log) == {"registers": 255, "spilled_bytes": 16}
    assert ptxas.resources("") == {}


def test_without_ptxas_there_is_nothing_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptxas, "tool", lambda: None)
    result = ptxas.assemble(BuildRequest("ptxas", "k", cuda_source=".version 8.8\n.target sm_90a\n"))
    assert result.status == "ok" and not result.resources


@pytest.mark.skipif(ptxas.tool() is None, reason="needs the ptxas of Triton's wheel")
def test_ptxas_refuses_what_is_no_ptx() -> None:
    head = ".version 8.8\n.target sm_90a\n.address_size 64\n"
    good = ptxas.assemble(BuildRequest("ptxas", "k", cuda_source=head + ".visible .entry k() { ret; }\n"))
    assert good.status == "ok" and good.resources["registers"] > 0
    bad = ptxas.assemble(BuildRequest("ptxas", "k", cuda_source=head + ".visible .entry k() { no.such; }\n"))
    assert bad.status == "compile_error" and "k.ptx" in bad.log and "/" not in bad.log.split("k.ptx")[0]


def finding(**fields: Any) -> dict[str, Any]:
    return {"kernel": "k", "line": 2, "file": "candidate.py", **fields}


def test_a_line_of_the_candidate_itself() -> None:
    assert source_lines.of_finding("a\nb\nc", [], finding()) == 2
    assert source_lines.of_finding("a\nb\nc", [], finding(file="standard.py")) is None
    for line in (0, 4, -1, True, None, "2"):
        assert source_lines.of_finding("a\nb\nc", [], finding(line=line)) is None


def test_compile_errors_are_read_with_sound_types() -> None:
    error = {"type": "CompilationError", "log": "at 1:2", "message": "no", "source": "def k(): no", "line": 1}
    read = messages.read(messages.Loaded, {"kind": "loaded", "compile_errors": [error]})
    assert [one.model_dump() for one in read.compile_errors] == [error]
    for wrong in ({"line": "many"}, {"type": 5}, {"log": None}):
        with pytest.raises(messages.Unsound):
            messages.read(messages.Loaded, {"kind": "loaded", "compile_errors": [error | wrong]})


def test_facts_about_a_kernel_are_told_once() -> None:
    runtime = Runtime(lambda _request: pytest.fail("nothing is built"))
    for _ in range(3):
        runtime.tell("kernel-resources", "k: 40 registers", "k")
    assert [f["severity"] for f in runtime.findings] == ["info"]


def test_a_place_in_python_is_named_by_its_file() -> None:
    runtime = Runtime(lambda _request: pytest.fail("nothing is built"))
    runtime._find(Fault("trap", "trapped", "k", line=7, file="candidate.py"), "fault")
    runtime._find(Fault("trap", "trapped", "other", line=7, file="cuda.cu"), "fault")
    told = [f["evidence"] for f in runtime.findings]
    assert "line 7 of candidate.py" in told[0] and "line 7 of the CUDA source" in told[1]


KEEPS = """
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from kernelwright.backends.triton import triton_support
kept = []
triton_support.keep_errors(kept)
from triton.compiler import compile  # as Triton itself does when it launches
@triton.jit
def broken(x):
    tl.store(x, tl.sigmoidal(1.0))
source = triton.compiler.ASTSource(broken, {"x": "*fp32"}, {})
try:
    compile(source, target=GPUTarget("cuda", 90, 32))
except triton.CompilationError:
    (error,) = kept
    assert error["type"] == "CompilationError" and "sigmoidal" in error["message"], error
    assert error["line"] and "def broken" in error["source"]
    print("kept")
"""


@pytest.mark.skipif(not triton_support.installed(), reason="needs Triton")
def test_failed_compilations_are_kept_on_a_gpu_too(tmp_path: Path) -> None:
    """Triton's own compiler runs for the card until it fails; that needs no device."""
    (tmp_path / "keeps.py").write_text(KEEPS)
    done = subprocess.run([sys.executable, tmp_path / "keeps.py"], capture_output=True, text=True)
    assert done.stdout == "kept\n", done.stderr
