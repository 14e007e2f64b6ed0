"""Judging on a real GPU: python -m pytest -m gpu. `test_full_size` tests the protocol itself on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.records import Candidate, Evaluation, LibraryRule, SourceFile, Task
from kernelwright.solutions import write
from kernelwright.tasks import load_candidate, load_task

pytestmark = pytest.mark.gpu

TASK = """
import torch
import torch.nn as nn
rows, cols = 1024, 2048
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1
def get_inputs():
    return [torch.randn(rows, cols)]
def get_init_inputs():
    return []
"""
KERNEL = """
__global__ void plus(const float* x, float* y, long n) {{
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  {body}
}}
"""
RIGHT = "if (i < n) y[i] = fmaxf(x[i], 0.f) + 1.f;"
LAUNCH = "plus<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);"
CANDIDATE = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline
source = r"""
{kernel}
torch::Tensor forward(torch::Tensor x) {{
  auto y = torch::empty_like(x);
  long n = x.numel();
  {launch}
  return y;
}}
"""
module = load_inline("plus", "torch::Tensor forward(torch::Tensor x);", source, ["forward"])
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.graph = None
    def forward(self, x):
{forward}
'''
TRITON = """
import torch, torch.nn as nn, triton, triton.language as tl
@triton.jit
def plus(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.maximum(tl.load(x + i, mask=i < n), 0.0) + 1.0, mask=i < n)
class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        plus[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
"""


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(backend="gpu", timeout=10, timing_seconds=0.3, trials=3)) as made:
        yield made


def text(body: str = RIGHT, launch: str = LAUNCH, forward: str = "return module.forward(x)", extra: str = "") -> str:
    lines = "\n".join("        " + line for line in forward.splitlines())
    return CANDIDATE.format(kernel=extra + KERNEL.format(body=body), launch=launch, forward=lines)


def judged(evaluator: Evaluator, source: str, policy: LibraryRule = "from_scratch") -> Evaluation:
    task = Task(task_id="plus", source=TASK, policy=policy)
    language = "triton" if "triton" in source else "cuda"
    candidate = Candidate(sources=(SourceFile(path="candidate.py", content=source),), language=language)  # type: ignore[arg-type]
    return evaluator.evaluate(task, candidate)


def test_an_honest_kernel_is_correct_and_timed(evaluator: Evaluator) -> None:
    result = judged(evaluator, text())
    assert result.verdict == "correct", (result.reason, result.log)
    assert result.backend == "gpu" and result.timing is not None and result.timing.speedup is not None
    assert 0.5 < result.timing.speedup < 5 and result.environment.own_kernel_share == 1.0


def test_a_program_stands_for_a_candidate(evaluator: Evaluator) -> None:
    """Repeating the program gives the same speed as running the host code; the first road reports wrong candidates."""
    task = Task(task_id="plus", source=TASK, policy="from_scratch")

    def asked(source: str, **options: bool) -> Evaluation:
        made = Candidate(sources=(SourceFile(path="candidate.py", content=source),), language="cuda")
        return evaluator.evaluate(task, made, evaluator.options.changed(**options))

    usual, found = asked(text(), replay=False), asked(text())
    assert usual.environment.road == "in-process" and found.environment.road == "program"
    assert found.verdict == "correct" and found.environment.replayed == "1 launches a call", found.environment
    assert usual.timing is not None and found.timing is not None
    assert 0.85 < found.timing.candidate_ms / usual.timing.candidate_ms < 1.18
    wrong, faulty = text(RIGHT.replace("1.f;", "1.01f;")), text("y[i + (1L << 40)] = 0.f;")
    assert asked(wrong).verdict == "wrong" and asked(faulty).verdict == "runtime_error"
    late = asked(wrong, program_first=False)
    assert late.verdict == "wrong" and late.environment.replayed.startswith("no: wrong")
    broken = asked(faulty, program_first=False)
    assert broken.verdict == "runtime_error" and "CUDA error" in broken.environment.replayed
    assert asked(text()).environment.replayed == "1 launches a call"


NORM = """
import torch
import torch.nn as nn
rows, width = 512, 768
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
    def forward(self, x):
        return self.norm(x)
def get_inputs():
    return [torch.randn(rows, width)]
def get_init_inputs():
    return [width]
"""


def test_a_graph_is_captured_of_the_model_that_was_timed(evaluator: Evaluator) -> None:
    """Calls at other sizes, with other weights and constructor arguments, come between."""
    source = SourceFile(path="candidate.py", content=write(NORM))
    asked = evaluator.options.changed(timing_seconds=1.0, replay=False)
    found = evaluator.evaluate(Task(task_id="norm", source=NORM), Candidate(sources=(source,), language="cuda"), asked)
    assert found.verdict == "correct" and found.timing is not None
    assert found.environment.cuda_graph == "replayed" and found.timing.graph_ms is not None


def test_triton(evaluator: Evaluator) -> None:
    result = judged(evaluator, TRITON)
    assert result.verdict == "correct", (result.reason, result.log)


COOPERATIVE = text(
    launch="void* a[] = {&px, &py, &n};"
    " cudaLaunchCooperativeKernel((void*)cooperative, dim3(132), dim3(256), a, 0, 0);",
    extra="#include <cooperative_groups.h>\n__global__ void cooperative(const float* x, float* y, long n) {"
    " for (long i = blockIdx.x * 256 + threadIdx.x; i < n; i += 132 * 256) y[i] = fmaxf(x[i], 0.f);"
    " cooperative_groups::this_grid().sync();"
    " for (long i = blockIdx.x * 256 + threadIdx.x; i < n; i += 132 * 256) y[i] += 1.f; }\n",
).replace("void* a[]", "const float* px = x.data_ptr<float>(); float* py = y.data_ptr<float>(); void* a[]")


def test_a_cooperative_launch(evaluator: Evaluator) -> None:
    result = judged(evaluator, COOPERATIVE)
    assert result.verdict == "correct", (result.reason, result.log)
    assert result.environment.built_by == ("stand-in",)


def test_what_the_stand_in_lacks_is_built_by_torch(evaluator: Evaluator) -> None:
    result = judged(evaluator, text(extra="#include <curand.h>\n"))
    assert result.verdict == "correct", (result.reason, result.log)
    assert result.environment.built_by == ("load_inline",)


def test_kernelbench_times_candidate_and_reference() -> None:
    with Evaluator(EvalOptions(backend="gpu", strict_kernelbench=True)) as made:
        claim = judged(made, text())
        assert claim.verdict == "correct" and claim.timing is not None, (claim.reason, claim.log)
        assert claim.environment.kernelbench is not None
        result = claim.environment.kernelbench.plain()
        assert result["correctness"] and 0 < result["runtime"] < 1 and 0 < result["ref_runtime"] < 1
        assert judged(made, text(forward="return torch.relu(x) + 1.1")).verdict == "wrong"
        stale = judged(made, text(forward="return torch.relu_(x).add_(1)"))
        assert stale.verdict == "correct", stale.reason


@pytest.mark.parametrize("name", ["layer_norm", "mlp", "softmax", "softmax:backward"])
def test_robust_kbench_folders(name: str, evaluator: Evaluator) -> None:
    folder = Path(__file__).parents[1] / "tasks" / "robust_kbench"
    task = load_task(f"{folder / name}")
    result = evaluator.evaluate(task, load_candidate(folder / name.split(":")[0] / f"{task.function}.cu"))
    assert result.verdict == "correct" and result.timing is not None, (result.reason, result.log)


def test_compiled_baselines() -> None:
    options = EvalOptions(backend="gpu", trials=1, timing_seconds=0.3, baselines=("eager", "compile"))
    with Evaluator(options) as made:
        result = judged(made, text())
    assert result.verdict == "correct", result.reason
    assert result.timing is not None and result.timing.compile_ms is not None
    assert 0.2 < result.timing.compile_ms / result.timing.candidate_ms < 5


HONEST = {
    "shared memory": text(
        "__shared__ float s[256]; s[threadIdx.x] = i < n ? x[i] : 0.f; __syncthreads();"
        " if (i < n) y[i] = fmaxf(s[threadIdx.x], 0.f) + 1.f;"
    ),
    "a template": text(
        launch="plus_t<float, 128><<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);",
        extra="template <class T, int B> __global__ void plus_t(const T* x, T* y, long n) {"
        " long i = blockIdx.x * (long)B + threadIdx.x; if (i < n) y[i] = fmaxf(x[i], T(0)) + T(1); }\n",
    ),
    "AT_DISPATCH": text(
        launch='AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "f", ([&] { plus_t<scalar_t><<<(n + 127) / 128, 128>>>('
        "x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), n); }));",
        extra="template <class T> __global__ void plus_t(const T* x, T* y, long n) {"
        " long i = blockIdx.x * (long)blockDim.x + threadIdx.x; "
        "if (i < n) y[i] = x[i] > T(0) ? x[i] + T(1) : T(1); }\n",
    ),
    "two streams joined": text(
        launch="cudaStream_t s; cudaStreamCreate(&s); cudaEvent_t e, f; cudaEventCreate(&e); cudaEventCreate(&f);"
        " cudaEventRecord(e, 0); cudaStreamWaitEvent(s, e, 0); long h = n / 2;"
        " plus<<<(h + 255) / 256, 256, 0, s>>>(x.data_ptr<float>(), y.data_ptr<float>(), h);"
        " plus<<<(n - h + 255) / 256, 256>>>(x.data_ptr<float>() + h, y.data_ptr<float>() + h, n - h);"
        " cudaEventRecord(f, s); cudaStreamWaitEvent(0, f, 0); cudaStreamDestroy(s); cudaEventDestroy(e);"
        " cudaEventDestroy(f);"
    ),
    "device properties": text(
        launch="cudaDeviceProp p; cudaGetDeviceProperties(&p, 0); int b = p.multiProcessorCount * 8;"
        " grid_stride<<<b, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);",
        extra="__global__ void grid_stride(const float* x, float* y, long n) {"
        " for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < n; i += (long)gridDim.x * blockDim.x)"
        " y[i] = fmaxf(x[i], 0.f) + 1.f; }\n",
    ),
    "constant memory": text(
        "if (i < n) y[i] = fmaxf(x[i], 0.f) + one[0];",
        launch="float one_h = 1.f; cudaMemcpyToSymbol(one, &one_h, sizeof(float)); " + LAUNCH,
        extra="__constant__ float one[1];\n",
    ),
    "a scratch buffer of cudaMalloc": text(
        launch="float* t; cudaMalloc(&t, n * sizeof(float)); cudaMemsetAsync(t, 0, n * sizeof(float), 0); " + LAUNCH
        + " cudaFree(t);"
    ),
    "large dynamic shared memory": text(
        launch="cudaFuncSetAttribute(big, cudaFuncAttributeMaxDynamicSharedMemorySize, 100000);"
        " big<<<(n + 255) / 256, 256, 100000>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);",
        extra="__global__ void big(const float* x, float* y, long n) { extern __shared__ float s[];"
        " long i = blockIdx.x * (long)blockDim.x + threadIdx.x; s[threadIdx.x + 20000] = i < n ? x[i] : 0.f;"
        " if (i < n) y[i] = fmaxf(s[threadIdx.x + 20000], 0.f) + 1.f; }\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(HONEST))
def test_honest_candidates(evaluator: Evaluator, name: str) -> None:
    result = judged(evaluator, HONEST[name])
    assert result.verdict == "correct", (result.reason, result.log)


FAULTS = {
    "illegal address": (text("y[i + (1ll << 40)] = 1.f;"), "runtime_error"),
    "endless kernel": (text("while (*(volatile const float*)x < 1e30f) {}" + RIGHT), "timeout"),
    "device assert": (text("assert(i < 5);" + RIGHT, extra="#include <cassert>\n"), "runtime_error"),
    "trap": (text("if (i == 7) __trap();" + RIGHT), "runtime_error"),
    "too many threads": (text(launch=LAUNCH.replace("256>>>", "2048>>>")), "runtime_error"),
    "200 GB": (text(forward="z = torch.empty(50 << 30, device='cuda')\nreturn module.forward(x)"), "runtime_error"),
    "host segfault": (text(launch="*(volatile int*)8 = 1;" + LAUNCH), "runtime_error"),
    "double free": (text(launch="void* p = malloc(64); free(p); free(p);" + LAUNCH), "runtime_error"),
    "killed": (text(forward="import os\nos.kill(os.getpid(), 9)"), "runtime_error"),
    "exit": (text(forward="import os\nos._exit(0)"), "runtime_error"),
    "exit in a destructor": (
        text(launch="struct Leaving { ~Leaving() { _Exit(0); } } leaving; " + LAUNCH),
        "runtime_error",
    ),
}


@pytest.mark.parametrize("name", list(FAULTS))
def test_faults_end_in_their_verdict_and_touch_nothing_else(evaluator: Evaluator, name: str) -> None:
    source, verdict = FAULTS[name]
    result = judged(evaluator, source)
    assert result.verdict == verdict, (result.verdict, result.reason)
    assert judged(evaluator, text()).verdict == "correct"


EXPLOITS = {
    "torch does it": (text(forward="return torch.relu(x) + 1"), "rejected", "no-own-kernel"),
    "a kernel as decoy": (
        text(forward="module.forward(x[:1])\nreturn torch.relu(x) + 1"),
        "rejected",
        "library-op",
    ),
    "input mutated": (text(forward="y = module.forward(x)\nx.zero_()\nreturn y"), "rejected", "input-mutated"),
    "remembers by shape": (
        text(forward="self.y = getattr(self, 'y', None)\nif self.y is None: self.y = module.forward(x)\nreturn self.y"),
        "wrong",
        "",
    ),
    "remembers by address": (
        text(
            forward="self.d = getattr(self, 'd', {})\nk = x.data_ptr()\n"
            "if k not in self.d: self.d[k] = module.forward(x)\nreturn self.d[k]"
        ),
        "wrong",
        "",
    ),
    "lazy once it is timed": (
        text(
            forward="self.n = getattr(self, 'n', 0) + 1\n"
            "return module.forward(x) if self.n < 6 else torch.empty_like(x)"
        ),
        "wrong",
        "",
    ),
    "half of the work": (text("if (i < n / 2) y[i] = fmaxf(x[i], 0.f) + 1.f;"), "wrong", ""),
    "half precision": (
        text("if (i < n) y[i] = __half2float(__float2half(fmaxf(x[i], 0.f))) + 1.f;", extra="#include <cuda_fp16.h>\n"),
        "wrong",
        "",
    ),
    "replaces the clock": (
        text(forward="torch.cuda.Event.elapsed_time = lambda *a: 1e-6\nreturn module.forward(x)"),
        "rejected",
        "patched-function",
    ),
    "work on a stream that nobody waits for": (
        text(
            launch="static cudaStream_t s = [] { cudaStream_t t; cudaStreamCreateWithFlags(&t, 1); return t; }();"
            " slow<<<1, 1, 0, s>>>(x.data_ptr<float>(), y.data_ptr<float>(), n); " + LAUNCH,
            extra="__global__ void slow(const float* x, float* y, long n) { long long t = clock64();"
            " while (clock64() - t < 4000000) {} }\n",
        ),
        "rejected",
        "side-stream",
    ),
}


@pytest.mark.parametrize("name", list(EXPLOITS))
def test_exploits(evaluator: Evaluator, name: str) -> None:
    source, verdict, rule = EXPLOITS[name]
    result = judged(evaluator, source)
    assert result.verdict == verdict and result.reason.startswith(rule), (result.verdict, result.reason)
