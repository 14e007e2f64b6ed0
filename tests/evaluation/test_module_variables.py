"""Variables of device code are memory like any other: kernels, copies and operators label their bytes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.records import Candidate, Evaluation, SourceFile, Task

REFERENCES = {
    "square": "return x * x + 1.5",
    "total": "return x.sum()",
    "turned": "return x.t().contiguous()",
}
ROWS_COLUMNS = (33, 20)
LARGE = (1 << 15, 1 << 14)
ARRAY = """
#define I (blockIdx.x * (long)blockDim.x + threadIdx.x)
__device__ float held[1 << 16];
__global__ void squares(const float* x, long n) { if (I < n) held[I] = x[I] * x[I] + 1.5f; }
__global__ void copied(const float* x, long n) { if (I < n) held[I] = x[I]; }
__global__ void turned(const float* x, int r, int c) { if (I < r * c) held[I % c * r + I / c] = x[I]; }
__global__ void out(float* y, long n) { if (I < n) y[I] = held[I]; }
torch::Tensor fetched(torch::Tensor y) {
  cudaMemcpyFromSymbol(y.data_ptr(), held, y.numel() * 4, 0, cudaMemcpyDeviceToDevice);
  return y;
}
#define GO(kernel, ...) kernel<<<(x.numel() + 127) / 128, 128>>>(__VA_ARGS__)
"""
SUMS = """
__device__ float sums[32];
__global__ void k(const float* x, float* to, int n) {
  float a = 0;
  for (int i = blockIdx.x * 32 + threadIdx.x; i < n; i += gridDim.x * 32) a += x[i];
  for (int o = 16; o; o >>= 1) a += __shfl_down_sync(~0u, a, o);
  if (threadIdx.x == 0) (to ? to : sums)[blockIdx.x] = a;
}
"""
ROOM, ANSWER = "std::vector<float> h(x.numel());", "for (auto& v : h) v = v * v + 1.5f;"
HONEST = {
    "array copied by the host": (
        "square",
        f"{ARRAY}|GO(squares, x.data_ptr<float>(), x.numel());return fetched(torch::empty_like(x));",
    ),
    "address of an array": (
        "square",
        f"{ARRAY}|GO(squares, x.data_ptr<float>(), x.numel()); void* p;"
        "cudaGetSymbolAddress(&p, held);"
        "return torch::from_blob(p, x.sizes(), x.options()).clone();",
    ),
    "array read by a kernel": (
        "square",
        f"{ARRAY}|GO(squares, x.data_ptr<float>(), x.numel());"
        "auto y = torch::empty_like(x); GO(out, y.data_ptr<float>(), x.numel()); return y;",
    ),
    "array in a namespace": (
        "square",
        ARRAY.replace("__device__ float held[1 << 16];", "namespace { __device__ float held[1 << 16]; }")
        + "|GO(squares, x.data_ptr<float>(), x.numel()); return fetched(torch::empty_like(x));",
    ),
    "moved by a kernel": (
        "turned",
        f"{ARRAY}|GO(turned, x.data_ptr<float>(), x.size(0), x.size(1));"
        "return fetched(torch::empty({x.size(1), x.size(0)}, x.options()));",
    ),
    "sums read by the host": (
        "total",
        f"{SUMS}|k<<<32, 32>>>(x.data_ptr<float>(), nullptr, x.numel());"
        "float h[32], s = 0;"
        "cudaMemcpyFromSymbol(h, sums, sizeof(h)); for (float v : h) s += v;"
        "return torch::tensor(s, x.options());",
    ),
    "sums added by torch": (
        "total",
        f"{SUMS}|auto p = torch::empty({{32}}, x.options());"
        "k<<<32, 32>>>(x.data_ptr<float>(), p.data_ptr<float>(), x.numel()); return p.sum();",
    ),
}
CHEATS = {
    "answers of the host": ("square", f"{ARRAY}|{ROOM}"
                            "cudaMemcpy(h.data(), x.data_ptr(), x.nbytes(), cudaMemcpyDeviceToHost);"
                            f"{ANSWER} cudaMemcpyToSymbol(held, h.data(), x.nbytes());"
                            "auto y = torch::empty_like(x); GO(out, y.data_ptr<float>(), x.numel()); return y;"),
    "values read through an array": ("square", f"{ARRAY}|{ROOM}"
                                     "GO(copied, x.data_ptr<float>(), x.numel());"
                                     "cudaMemcpyFromSymbol(h.data(), held, x.nbytes());"
                                     f"{ANSWER} auto y = torch::empty_like(x);"
                                     "cudaMemcpy(y.data_ptr(), h.data(), x.nbytes(), cudaMemcpyDefault); return y;"),
    "torch works in an array": ("square", f"{ARRAY}|void* p; cudaGetSymbolAddress(&p, held);"
                                "cudaMemcpy(p, x.data_ptr(), x.nbytes(), cudaMemcpyDeviceToDevice);"
                                "auto t = torch::from_blob(p, x.sizes(), x.options()); t.copy_(t * t + 1.5);"
                                "auto y = torch::empty_like(x); GO(out, y.data_ptr<float>(), x.numel()); return y;"),
    "torch moves, an array passes on": ("turned", f"{ARRAY}|auto t = x.t().contiguous();"
                                        "cudaMemcpyToSymbol(held, t.data_ptr(), x.nbytes(),"
                                        "0,"
                                        "cudaMemcpyDeviceToDevice); auto y = torch::empty_like(t);"
                                        "GO(out, y.data_ptr<float>(), x.numel());"
                                        "return y;"),
    "torch moves an array's copy": ("turned", f"{ARRAY}|GO(copied, x.data_ptr<float>(), x.numel());"
                                    "return fetched(torch::empty_like(x)).t().contiguous();"),
    "only a decoy's array": ("turned", f"{ARRAY}|GO(copied, x.data_ptr<float>(), x.numel());"
                             "return x.t().contiguous();"),
}  # fmt: skip


def task(name: str, sizes: tuple[int, int]) -> Task:
    source = f"""
import torch, torch.nn as nn
ROWS, COLS = {sizes}
class Model(nn.Module):
    def forward(self, x):
        {REFERENCES[name]}
def get_inputs():
    return [torch.randn(ROWS, COLS)]
def get_init_inputs():
    return []
"""
    return Task(task_id=name, source=source)


def candidate(code: str) -> Candidate:
    device, body = code.split("|")
    text = f"""
import torch.nn as nn
from torch.utils.cpp_extension import load_inline
cuda = r'''
#include <torch/extension.h>
#include <cuda_runtime.h>
{device}
torch::Tensor f(torch::Tensor x) {{ {body} }}
'''
extension = load_inline("e", cpp_sources="torch::Tensor f(torch::Tensor x);", cuda_sources=cuda, functions=["f"])
class ModelNew(nn.Module):
    def forward(self, x):
        return extension.f(x)
"""
    return Candidate(sources=(SourceFile(path="candidate.py", content=text),), language="cuda")


@pytest.fixture(scope="module")
def evaluator(pool: Pool) -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(backend="cpu", trials=2, seed=1), pool=pool) as shared:
        yield shared


def judged(evaluator: Evaluator, name: str, code: str, sizes: tuple[int, int] = ROWS_COLUMNS) -> Evaluation:
    return evaluator.evaluate(task(name, sizes), candidate(code))


@pytest.mark.parametrize("case", HONEST)
def test_a_kernels_values_may_pass_through_a_variable(evaluator: Evaluator, case: str) -> None:
    result = judged(evaluator, *HONEST[case])
    assert result.verdict == "correct", result.reason


@pytest.mark.parametrize("case", CHEATS)
def test_no_other_values_may(evaluator: Evaluator, case: str) -> None:
    result = judged(evaluator, *CHEATS[case])
    assert result.verdict == "rejected", (result.verdict, result.reason)


TABLE = """
#define I (blockIdx.x * (long)blockDim.x + threadIdx.x)
__device__ float table[64];
__global__ void fill() { table[threadIdx.x] = 1.5f; }
__global__ void k(const float* x, float* y, long n, int c) {
  if (I < n) y[I] = x[I] * x[I] + (I % c > C ? 2 : table[I % 64]); }
"""
READ = "fill<<<1, 64>>>(); k<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), n, x.size(1));"
COPY = (
    "auto t = torch::empty_like(x); fill<<<1, 64>>>();"
    "k<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), t.data_ptr<float>(), n, x.size(1));"
    "cudaMemcpy(y.data_ptr(), t.data_ptr(), x.nbytes(), cudaMemcpyDeviceToDevice);"
)


@pytest.mark.parametrize(
    ("body", "columns", "verdict"),
    [(READ, 1 << 20, "correct"), (READ, 300, "wrong"), (COPY, 1 << 20, "correct")],
    ids=["table", "wrong table", "copy"],
)
def test_variables_and_copies_are_followed_at_sampled_sizes(
    evaluator: Evaluator, body: str, columns: int, verdict: str
) -> None:
    code = f"{TABLE.replace('C ?', f'{columns} ?')}|auto y = torch::empty_like(x); long n = x.numel(); {body} return y;"
    result = judged(evaluator, "square", code, LARGE)
    assert result.verdict == verdict, (result.verdict, result.reason)
