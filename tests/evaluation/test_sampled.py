"""Sizes that are too large to run: findings from a sample of the blocks, and findings that it must not report."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kernelwright.backends.triton import triton_support
from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.judge import large_sizes
from kernelwright.evaluation.judge.worker import PLAN_BUDGET, Worker
from kernelwright.evaluation.options import SMALL_BUDGET
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.evaluation.trials import TaskPlan, Trial
from kernelwright.machine.runtime import BUDGET
from kernelwright.records import Candidate, Evaluation, Finding, SourceFile, Task, Workload

TASK = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return {expression}

batch_size = {batch}
dim = {dim}

def get_inputs():
    return [torch.{draw}]

def get_init_inputs():
    return []
"""
NORMAL = "randn(batch_size, dim)"
TWICE = TASK.format(expression="x * 2", batch=8192, dim=393216, draw=NORMAL)
ROWS = TASK.format(expression="x * 2", batch=70000, dim=4096, draw=NORMAL)
PICK = TASK.format(expression="x * 2", batch=65536, dim=4096, draw="randint(0, dim, (batch_size, dim))")

HEAD = '''
import torch
import torch.nn as nn
from kernelwright.cuda import Module

module = Module("""
{kernels}
""")

class ModelNew(nn.Module):
    def forward(self, x):
'''
FLAT = """extern "C" __global__ void twice(const float* x, float* y, INDEX n) {
    INDEX i = (INDEX)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * 2;
}"""
BY_ROW = """extern "C" __global__ void twice(const float* x, float* y, int columns) {
    long long row = blockIdx.ROW;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) y[row * columns + c] = x[row * columns + c] * 2;
}"""
STAGED = """extern "C" __global__ void twice(const float* x, float* y, int columns) {
    __shared__ float row[ROOM];
    const float* from = x + (long long)blockIdx.x * columns;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) row[c] = from[c];
    __syncthreads();
    for (int c = threadIdx.x; c < columns; c += blockDim.x) y[(long long)blockIdx.x * columns + c] = row[c] * 2;
}"""
LAUNCH_FLAT = "module.twice[(x.numel() + 255) // 256, 256](x, y, x.numel())"
LAUNCH_ROWS = "module.twice[{grid}, 128](x, y, x.shape[1])"


def candidate(kernels: str, *body: str) -> Candidate:
    lines = "".join(f"        {line}\n" for line in body)
    text = HEAD.replace("{kernels}", kernels) + lines
    return Candidate(sources=(SourceFile(path="candidate.py", content=text),), language="cuda")


def simple(kernels: str, launch: str) -> Candidate:
    return candidate(kernels, "y = torch.empty_like(x)", launch, "return y")


@pytest.fixture(scope="module")
def evaluator(pool: Pool) -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(backend="cpu", trials=2, seed=3), pool=pool) as shared:
        yield shared


def judged(evaluator: Evaluator, task: str, made: Candidate, options: EvalOptions | None = None) -> Evaluation:
    return evaluator.evaluate(Task(task_id="t", source=task), made, options)


def test_an_index_that_overflows_at_the_tasks_own_size_only(evaluator: Evaluator) -> None:
    wrong = simple(FLAT.replace("INDEX", "int"), LAUNCH_FLAT.replace("x.numel())", "2147483647)"))
    result = judged(evaluator, TWICE, wrong)
    assert result.verdict == "runtime_error" and result.reason.startswith("index-overflow at the task's own size")
    finding = result.findings[0]
    assert (finding.rule, finding.line, finding.workload) == ("index-overflow", 8, "declared (sampled)")
    assert "16 of 12582912 blocks" in finding.evidence
    assert all(w.passed for w in result.workloads), "what could be run was right"
    ignored = judged(evaluator, TWICE, wrong, EvalOptions(backend="cpu", trials=2, seed=3, sample_large=False))
    assert ignored.verdict == "correct" and "sampled_size" not in ignored.environment


def test_a_right_kernel_of_the_same_size(evaluator: Evaluator) -> None:
    result = judged(evaluator, TWICE, simple(FLAT.replace("INDEX", "long long"), LAUNCH_FLAT))
    assert (result.verdict, result.findings) == ("correct", ())
    assert result.environment.sampled_size == "declared: nothing found in a sample of the blocks of 1 launches"


def test_a_grid_that_only_the_real_size_makes_too_large(evaluator: Evaluator) -> None:
    along_y = simple(BY_ROW.replace("ROW", "y"), LAUNCH_ROWS.format(grid="(1, x.shape[0])"))
    result = judged(evaluator, ROWS, along_y)
    assert result.verdict == "runtime_error" and "grid.y is 70000, allowed are 1 to 65535" in result.reason
    along_x = simple(BY_ROW.replace("ROW", "x"), LAUNCH_ROWS.format(grid="x.shape[0]"))
    assert judged(evaluator, ROWS, along_x).verdict == "correct"


COMPILED = """
import torch, torch.nn as nn
from torch.utils.cpp_extension import load_inline
source = '''
#include <torch/extension.h>
KERNEL
torch::Tensor forward(torch::Tensor x) {
  auto y = torch::empty_like(x);
  twice<<<dim3(1, x.size(0)), 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
  return y;
}
'''
module = load_inline("rows", "torch::Tensor forward(torch::Tensor x);", source, functions=["forward"])
class ModelNew(nn.Module):
    def forward(self, x):
        return module.forward(x)
"""


def test_a_grid_that_compiled_code_makes_too_large(evaluator: Evaluator) -> None:
    text = COMPILED.replace("KERNEL", BY_ROW.replace("ROW", "y"))
    result = judged(
        evaluator, ROWS, Candidate(sources=(SourceFile(path="candidate.py", content=text),), language="cuda")
    )
    assert result.verdict == "runtime_error" and "grid.y is 70000, allowed are 1 to 65535" in result.reason


def test_a_failure_that_is_caught_is_told_all_the_same(evaluator: Evaluator) -> None:
    launch = LAUNCH_ROWS.format(grid="(1, x.shape[0])")
    caught = candidate(
        BY_ROW.replace("ROW", "y"), "y = torch.empty_like(x)", "try:", "    " + launch, "except Exception:", "    pass",
        "return y",
    )  # fmt: skip
    assert judged(evaluator, ROWS, caught).verdict == "runtime_error"


@pytest.mark.parametrize(("room", "verdict"), [(2048, "runtime_error"), (4096, "correct")])
def test_a_shared_array_that_is_too_small_for_a_real_row(evaluator: Evaluator, room: int, verdict: str) -> None:
    result = judged(evaluator, ROWS, simple(STAGED.replace("ROOM", str(room)), LAUNCH_ROWS.format(grid="x.shape[0]")))
    assert result.verdict == verdict, result.reason
    if verdict == "runtime_error":
        assert "out-of-bounds-write" in result.reason and "'row' (8192 bytes)" in result.reason


COUNTED = """
extern "C" __global__ void ends(const float* x, int* end, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) end[i] = i + 1;
}
extern "C" __global__ void twice(const float* x, const int* end, float* y, int columns) {
    long long row = end[blockIdx.x] - 1;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) y[row * columns + c] = x[row * columns + c] * 2;
}"""


def test_integers_of_another_launch_are_no_evidence(evaluator: Evaluator) -> None:
    """The second kernel reads indices of which the sampled first wrote few: zero minus one is out of bounds."""
    honest = candidate(
        COUNTED,
        "y = torch.empty_like(x)",
        "end = torch.empty(x.shape[0], dtype=torch.int32, device=x.device)",
        "module.ends[(x.shape[0] + 255) // 256, 256](x, end, x.shape[0])",
        "module.twice[x.shape[0], 64](x, end, y, x.shape[1])",
        "return y",
    )
    result = judged(evaluator, ROWS, honest)
    assert (result.verdict, result.findings) == ("correct", ())
    assert "not decided: out-of-bounds-read on line 9" in result.environment.sampled_size


def test_a_launch_whose_size_was_read_from_the_device_is_no_evidence(evaluator: Evaluator) -> None:
    """Reads of missing values are refused; if the refusal leads to an empty grid, that is no fault."""
    honest = candidate(
        BY_ROW.replace("ROW", "x"),
        "y = torch.empty_like(x)",
        "try:",
        "    rows = int(torch.isfinite(x[:, 0]).sum().item())",
        "except RuntimeError:",
        "    rows = 0",
        LAUNCH_ROWS.format(grid="rows"),
        "return y",
    )
    options = EvalOptions(backend="cpu", trials=2, seed=3, policy="libraries")
    result = judged(evaluator, ROWS, honest, options)
    assert result.verdict == "correct" and [f.rule for f in result.findings] == ["fallback"]
    assert "not decided" in result.environment.sampled_size


LABELS = """extern "C" __global__ void twice(const long long* x, long long* y, int columns) {
    long long row = blockIdx.x;
    __shared__ int seen[1];
    for (int c = threadIdx.x; c < columns; c += blockDim.x) {
        long long at = x[row * columns + c];
        if (at < columns) y[row * columns + c] = at * 2;
        if (c == 0) seen[0 * at] = 1;
    }
}"""


def test_integer_inputs_and_operators_over_all_of_them(evaluator: Evaluator) -> None:
    honest = candidate(
        LABELS,
        "y = torch.zeros_like(x)",
        "x = x.t().contiguous().t().contiguous()",
        LAUNCH_ROWS.format(grid="x.shape[0]"),
        "return y",
    )
    result = judged(evaluator, PICK, honest, EvalOptions(backend="cpu", trials=2, seed=3, policy="libraries"))
    assert (result.verdict, result.findings) == ("correct", ()), result.reason
    assert "nothing found" in result.environment.sampled_size


def test_a_candidate_that_wants_all_of_the_memory_is_not_accused(evaluator: Evaluator) -> None:
    """It takes 12 GB of host memory at full size and is refused them, which is no evidence against it."""
    greedy = candidate(
        FLAT.replace("INDEX", "long long"),
        "y = torch.empty_like(x)",
        "host = torch.ones(y.numel()) if y.numel() > 1 << 20 else None",
        LAUNCH_FLAT,
        "return y",
    )
    result = judged(evaluator, TWICE, greedy)
    assert result.verdict == "correct", result.reason
    assert "not decided" in result.environment.sampled_size


def test_a_stated_size_that_is_too_large_is_sampled(evaluator: Evaluator) -> None:
    workloads = (
        Workload(name="small", constants={"batch_size": 3, "dim": 1000}),
        Workload(name="huge", constants={"batch_size": 65536, "dim": 65537}),
    )
    task = Task(task_id="t", source=TWICE, workloads=workloads)
    wrong = evaluator.evaluate(task, simple(BY_ROW.replace("ROW", "z"), LAUNCH_ROWS.format(grid="(1, 1, x.shape[0])")))
    assert wrong.verdict == "runtime_error" and wrong.findings[0].workload == "huge (sampled)"
    assert "grid.z is 65536" in wrong.reason


TRITON = """
import torch, torch.nn as nn, triton, triton.language as tl

@triton.jit
def twice(x, y, columns, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)CAST
    for c in range(0, columns, BLOCK):
        i = c + tl.arange(0, BLOCK)
        tl.store(y + row * stride + i, tl.load(x + row * stride + i, mask=i < columns) * 2.0, mask=i < columns)

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        twice[(x.shape[0],)](x, y, x.shape[1], x.stride(0), BLOCK=1024)
        return y
"""


@pytest.mark.skipif(not triton_support.installed(), reason="Triton is not installed")
@pytest.mark.parametrize(("cast", "verdict"), [("", "runtime_error"), (".to(tl.int64)", "correct")])
def test_a_row_of_triton_that_begins_beyond_32_bits(evaluator: Evaluator, cast: str, verdict: str) -> None:
    source = SourceFile(path="candidate.py", content=TRITON.replace("CAST", cast))
    result = judged(evaluator, TWICE, Candidate(sources=(source,), language="triton"))
    assert result.verdict == verdict, result.reason
    assert verdict == "correct" or "(accessed on line 9)" in result.reason


@pytest.mark.parametrize(
    ("rule", "flops", "verdict"),
    [
        ("instruction-budget", BUDGET // 100, "runtime_error"),  # it never ends
        ("instruction-budget", BUDGET // 4, "unsupported"),  # or is as slow as this size makes it
        ("out-of-bounds-read", BUDGET // 4, "runtime_error"),
    ],
)
def test_who_is_stopped_at_a_large_size_is_not_said_to_be_endless(rule: str, flops: int, verdict: str) -> None:
    trial = Trial(Workload(name="declared", elements=1, flops=flops), "own", 1, 2)
    found = large_sizes.fault(Finding(rule=rule, evidence="stopped", severity="fault"), trial)
    assert found.verdict == verdict and (found.finding is None) == (verdict == "unsupported")
    assert large_sizes.fault(Finding(rule=rule, evidence="stopped", severity="fault"), None).verdict == "runtime_error"


def test_a_task_that_cannot_be_that_small_has_its_usual_sizes(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(_worker: Worker, _task: Task, budget: dict[str, int]) -> TaskPlan:
        flops = 3_500_000_000 if budget == SMALL_BUDGET else 24_000_000
        return TaskPlan([Workload(name="any", elements=1000, flops=flops)], None, ["own"])

    monkeypatch.setattr(Worker, "_plan", plan)
    worker = Worker(pool)
    task = Task(task_id="rows", source=ROWS)
    assert worker.plan(task, SMALL_BUDGET).workloads[0].flops == 24_000_000 <= PLAN_BUDGET["flop_budget"]
    worker.close()
