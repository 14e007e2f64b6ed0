"""The ladder on a machine without a GPU: bundled candidates end to end, the target on the CPU, and bad requests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from running import Command

from kernelwright.errors import CandidateError, UsageError
from kernelwright.evaluation.options import gpu_count
from kernelwright.profile import ProfileOptions, ladder, profile
from kernelwright.tasks import candidate_from_text, load_candidate, load_task

pytestmark = pytest.mark.usefixtures("commands_are_warm")  # each profile has a pool of its own

DATA = Path(ladder.__file__).resolve().parents[1] / "data" / "candidates"
STATIC = ProfileOptions(backend="cpu", arch="sm_90")


def _made(task: str, file: str, options: ProfileOptions = STATIC) -> ladder.Profile:
    return profile(load_task(task), load_candidate(DATA / task / file), options)


@pytest.mark.parametrize(
    "task, file, kernel, block",
    [
        ("row_softmax", "module.py", "softmax", (128, 1, 1)),
        ("bias_gelu", "load_inline.py", "bias_gelu", (256, 1, 1)),
        ("transpose_copy", "tiled.cu", "transpose", (16, 16, 1)),
        ("small_matmul", "tiled.py", "matmul", (16, 16, 1)),
    ],
)
def test_bundled_candidates(task: str, file: str, kernel: str, block: tuple[int, int, int]) -> None:
    found = _made(task, file)
    assert (found.rung, found.arch, found.card) == ("static", "sm_90", "")
    assert [m.rung for m in found.missed] == ["ncu", "trace"]
    assert all(m.reason == "no-gpu: --backend cpu leaves the rung static" for m in found.missed)
    (one,) = [k for k in found.kernels if k.launches]
    assert (one.name, one.block, one.origin) == (kernel, block, "candidate")
    assert one.resources is not None and one.resources.registers > 5 and one.resources.arch == 90
    assert one.occupancy is not None and one.occupancy.threads == block[0] * block[1] * block[2]


TEMPLATE = r'''
import torch
from torch.utils.cpp_extension import load_inline
cuda = """
template <typename T, int N> __global__ void __launch_bounds__(N) rows(const T* x, T* y, int n) {
    extern __shared__ float kept[];
    kept[threadIdx.x] = x[blockIdx.x * n + threadIdx.x % n];
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += N) y[blockIdx.x * n + i] = x[blockIdx.x * n + i] * 2.1;
}
torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty_like(x);
    rows<float, 96><<<x.size(0), 96, 40000>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}
"""
ext = load_inline(name="t", cpp_sources="torch::Tensor forward(torch::Tensor x);", cuda_sources=cuda,
                  functions=["forward"])
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return ext.forward(x)
'''


def test_templates_dynamic_shared_memory_and_advice() -> None:
    found = profile(load_task("row_softmax"), candidate_from_text(TEMPLATE, "t"), STATIC)
    (one,) = found.kernels
    assert one.name == "rows<float, 96>" and one.resources is not None and one.resources.max_threads == 96
    assert one.occupancy is not None
    assert (one.occupancy.blocks, one.occupancy.limiter) == (5, "shared memory")
    (line,) = found.advice  # 64 blocks in all: occupancy limits nothing at this size
    assert line.startswith("rows: line 9: ") and "double precision" in line


def test_a_candidate_without_kernels() -> None:
    found = _made("bias_gelu", "fallback.py")
    assert found.kernels == () and "no device code" in found.advice[0]


def test_a_kernel_that_fails_is_described_all_the_same() -> None:
    found = _made("column_sum", "out_of_bounds.py")
    assert found.kernels and all(k.resources is not None for k in found.kernels)
    assert "runtime_error" in found.notes[0] and "not known" in found.notes[1]


SWALLOWED = r"""
import torch
from torch.utils.cpp_extension import load_inline
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        cuda = "__global__ void k(float* x) { x[0] = missing; } void f(torch::Tensor x) {}"
        try:
            self.ext = load_inline(name="s", cpp_sources="void f(torch::Tensor x);", cuda_sources=cuda, functions=["f"])
        except Exception:
            self.ext = None
    def forward(self, x):
        return torch.softmax(x, 1)
"""


def test_a_build_that_failed_in_silence_is_told() -> None:
    found = profile(load_task("row_softmax"), candidate_from_text(SWALLOWED, "s"), STATIC)
    assert found.kernels == () and found.notes[0].startswith("a build failed: ")
    assert found.advice[0].startswith("0 kernels of your own ran; a build failed: ") and "missing" in found.advice[0]


ONLY_LARGE = r'''
import torch
from kernelwright.cuda import Module
kernels = Module(r"""
extern "C" __global__ void halve(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] / 2;
}
""")
class ModelNew(torch.nn.Module):
    def forward(self, x):
        if x.shape != (64, 1000):
            return torch.softmax(x, 1)
        y = torch.empty_like(x)
        kernels.halve[(x.numel() + 191) // 192, 192](x, y, x.numel())
        return y
'''


def test_a_kernel_for_the_own_size_only_is_seen_there() -> None:
    found = profile(load_task("row_softmax"), candidate_from_text(ONLY_LARGE, "l"), STATIC)
    assert (found.size, found.kernels[0].block) == ("declared", (192, 1, 1))


def test_what_does_not_compile_is_told() -> None:
    with pytest.raises(CandidateError, match="compile_error: .*num_features"):
        _made("bias_gelu", "compile_error.py")
    with pytest.raises(CandidateError, match="SyntaxError"):
        profile(load_task("bias_gelu"), candidate_from_text("def (", "x"), STATIC)


def test_wishes_that_cannot_be_had() -> None:
    with pytest.raises(UsageError, match="nothing is known about sm_61"):
        _made("row_softmax", "module.py", ProfileOptions(backend="cpu", arch="sm_61"))
    with pytest.raises(UsageError, match="does not compile for sm_70"):
        _made("row_softmax", "module.py", ProfileOptions(backend="cpu", arch="sm_70"))
    with pytest.raises(UsageError, match="needs a GPU"):
        _made("row_softmax", "module.py", ProfileOptions(backend="cpu", rung="ncu"))


@pytest.mark.skipif(gpu_count() > 0, reason="there is a GPU")
def test_a_gpu_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="no NVIDIA GPU"):
        _made("row_softmax", "module.py", ProfileOptions(backend="gpu"))
    with pytest.raises(UsageError, match="'trace' cannot be reached: no-gpu"):
        _made("row_softmax", "module.py", ProfileOptions(rung="trace", arch="sm_90"))


@pytest.mark.parametrize(
    "text, names",
    [
        ("__global__ void a(int x) {}", {"a"}),
        ('extern "C" __global__ void __launch_bounds__(256, 2) b(int x) {}', {"b"}),
        ("template <int N>\n__global__ __launch_bounds__(N) void c (int x) {}", {"c"}),
        ("static __global__ void\nd(float* y)", {"d"}),
        ("@triton.jit\ndef e(x): pass", {"e"}),
        ("@triton.autotune(configs=[])\n@triton.jit\ndef f(x): pass", {"f"}),
        ("def g(x): pass\n__device__ float h(float x)", set()),
    ],
)
def test_names_of_own_kernels(text: str, names: set[str]) -> None:
    assert ladder.own_names(candidate_from_text(text, "t")) == names


def test_the_command_line(kernelwright: Command) -> None:
    file = DATA / "row_softmax" / "module.py"
    shown = kernelwright("profile", "row_softmax", file, "--backend", "cpu")
    assert shown.returncode == 0, shown.stderr
    assert "softmax" in shown.stdout and "100 %" in shown.stdout and "no ncu: no-gpu" in shown.stdout
    asked = kernelwright("profile", "row_softmax", file, "--backend", "cpu", "--json")
    assert json.loads(asked.stdout)["kernels"][0]["resources"]["shared_bytes"] == 128


@pytest.mark.parametrize(
    "words, said",
    [
        (("--rung", "best"), "--rung 'best'"),
        (("--arch", "hopper"), "--arch 'hopper'"),
        (("--timeout", "0"), "--timeout 0"),
        (("--sandbox", "thick"), "--sandbox 'thick'"),
        (("--backend", "tpu"), "--backend 'tpu'"),
    ],
)
def test_bad_flags(kernelwright: Command, words: tuple[str, str], said: str) -> None:
    done = kernelwright("profile", "row_softmax", DATA / "row_softmax" / "module.py", *words)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr


def _target(tmp_path: Path, candidate: Path, *words: str) -> subprocess.CompletedProcess[str]:
    task = DATA.parent / "tasks" / "bias_gelu" / "reference.py"
    command = [sys.executable, "-m", "kernelwright.profile.target", "--task", str(task), "--candidate", str(candidate)]
    command += ["--device", "cpu", "--facts", str(tmp_path / "facts.json"), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_the_target_counts_bytes_and_operations(tmp_path: Path) -> None:
    candidate = tmp_path / "candidate.py"
    candidate.write_text((DATA / "bias_gelu" / "fallback.py").read_text())
    done = _target(tmp_path, candidate, "--trace", str(tmp_path / "trace.json"), "--calls", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert facts["dtype"] == "float32" and facts["bytes"] > 0 and facts["flops"] > 0
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert sum(1 for e in events if e.get("name") == "aten::gelu") == 3


def test_a_target_that_fails_says_so_in_one_line(tmp_path: Path) -> None:
    candidate = tmp_path / "candidate.py"
    candidate.write_text("raise SystemExit('leaving\\nearly')")
    done = _target(tmp_path, candidate)
    assert done.returncode == 4 and done.stdout.strip() == "target-failed: SystemExit: leaving"


def test_the_environment_holds_no_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_SERVICE_API_KEY", "secret")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    kept = ladder._environment(tmp_path)
    assert "SOME_SERVICE_API_KEY" not in kept and kept["CUDA_VISIBLE_DEVICES"] == "0" and "PATH" in kept
