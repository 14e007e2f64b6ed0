"""Memory that torch leaves uninitialised: poison however it was asked for; and what was written is not called so."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from kernelwright.evaluation import EvalOptions, Evaluation, Evaluator
from kernelwright.evaluation.candidate.fake_cuda import OperatorLog
from kernelwright.evaluation.candidate.fresh_memory import FreshMemory
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.machine.tensor_shadows import TensorShadows
from kernelwright.records import Candidate, SourceFile, Task

SIZE = 96
ONES = torch.ones(SIZE)


@pytest.fixture
def shadows() -> Iterator[TensorShadows]:
    made = TensorShadows()
    with OperatorLog(FreshMemory(made)):
        yield made


def unwritten(shadows: TensorShadows, tensor: torch.Tensor) -> int:
    """Counts the unwritten bytes of a tensor's memory."""
    storage = tensor.untyped_storage()
    shadow = shadows.of(storage.data_ptr(), storage.nbytes())
    return shadow.unwritten(0, storage.nbytes()) if shadow is not None else 0


def all_ones(tensor: torch.Tensor) -> bool:
    return bytes(tensor.contiguous().view(torch.uint8).tolist()) == b"\xff" * tensor.nbytes


WAYS: list[Callable[[], torch.Tensor]] = [
    lambda: torch.empty(SIZE),
    lambda: torch.empty_like(ONES),
    lambda: torch.empty_strided((SIZE,), (1,)),
    lambda: torch.empty_permuted((SIZE,), (0,)),
    lambda: torch.empty(SIZE, out=torch.ones(0)),
    lambda: ONES.new(SIZE),
    lambda: ONES.new_empty(SIZE),
    lambda: ONES.new_empty_strided((SIZE,), (1,)),
    lambda: torch.Tensor(SIZE),
    lambda: torch.FloatTensor(torch.Size([SIZE])),
    lambda: torch.ones(0).resize_(SIZE),
    lambda: torch.ones(0).resize_as_(ONES),
    lambda: torch._C._VariableFunctions.empty(SIZE),
    lambda: torch.ops.aten.empty.memory_format([SIZE]),
    lambda: torch.nn.Linear(SIZE, 1, bias=False, device="meta").to_empty(device="cpu").weight.new_empty(SIZE),
]


@pytest.mark.parametrize("way", WAYS)
def test_whoever_asks_gets_poison(shadows: TensorShadows, way: Callable[[], torch.Tensor]) -> None:
    made = way()
    assert unwritten(shadows, made) == made.untyped_storage().nbytes() == 4 * SIZE
    assert all_ones(made)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_quantised_memory_and_other_dtypes(shadows: TensorShadows) -> None:
    model = torch.quantize_per_tensor(ONES, 1.0, 0, torch.quint8)
    assert unwritten(shadows, torch.empty_quantized([SIZE], model)) == SIZE
    for dtype in (torch.bfloat16, torch.int64, torch.uint8, torch.float8_e4m3fn, torch.complex64):
        assert all_ones(torch.empty(SIZE, dtype=dtype))


def test_what_grows_keeps_what_it_held(shadows: TensorShadows) -> None:
    grown = torch.zeros(SIZE).resize_(3 * SIZE)
    assert unwritten(shadows, grown) == 8 * SIZE
    assert not grown[:SIZE].any() and all_ones(grown[SIZE:])
    again = torch.empty(SIZE)
    again[: SIZE // 2] = 0
    again.resize_(2 * SIZE)
    assert unwritten(shadows, again) == 6 * SIZE


def test_operators_write(shadows: TensorShadows) -> None:
    made = torch.empty(8, 12)
    made[:, 0] = 1
    assert unwritten(shadows, made) == 4 * 88
    made.t()[1:4].fill_(-1)
    assert unwritten(shadows, made) == 4 * 64
    torch.add(torch.ones(8, 8), 1, out=made[:, 4:])
    assert unwritten(shadows, made) == 0
    targets = [torch.empty(4), torch.empty(4)]
    torch._foreach_zero_(targets)
    assert [unwritten(shadows, t) for t in targets] == [0, 0]


def test_memory_that_was_freed_is_another_ones(shadows: TensorShadows) -> None:
    for _ in range(50):
        torch.empty(SIZE)
        assert unwritten(shadows, torch.ones(SIZE)) == 0


MANY = """
import torch, torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        return x * 7
def get_inputs():
    return [torch.randn(96)]
def get_init_inputs():
    return []
"""
POISONED = r"""
import torch, torch.nn as nn
from kernelwright.cuda import Module
from torch.utils.cpp_extension import load_inline
k = Module('''extern "C" __global__ void take(const float* x, const unsigned* m, float* y) {
  int t = threadIdx.x;
  if (m[t] == 0xffffffffu) y[t] += x[t];
}''')
host = load_inline("host", cpp_sources="torch::Tensor like(torch::Tensor x); torch::Tensor own(torch::Tensor x);"
    " torch::Tensor taken(torch::Tensor x, torch::Tensor y);", cuda_sources=r'''
#include <torch/extension.h>
#include <cuda_runtime.h>
__global__ void take(const float* x, const unsigned* m, float* y) {
  int t = threadIdx.x;
  if (m[t] == 0xffffffffu) y[t] += x[t];
}
torch::Tensor like(torch::Tensor x) { return torch::empty_like(x); }
torch::Tensor own(torch::Tensor x) { return torch::empty({x.size(0)}, x.options()); }
torch::Tensor taken(torch::Tensor x, torch::Tensor y) {
  unsigned *m, *a;
  cudaMalloc(&m, 384);
  cudaMallocAsync(&a, 384, 0);
  take<<<1, 96>>>(x.data_ptr<float>(), m, y.data_ptr<float>());
  take<<<1, 96>>>(x.data_ptr<float>(), a, y.data_ptr<float>());
  cudaFree(m);
  cudaFreeAsync(a, 0);
  return y;
}
''', functions=["like", "own", "taken"])
def grown():
    t = torch.ones(1, device="cuda")
    t.untyped_storage().resize_(384 * 4)
    return t.as_strided((96,), (1,), 96)
class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.zeros_like(x)
        for m in (x.new(96), torch.cuda.FloatTensor(96), grown(), host.like(x), host.own(x)):
            k.take[1, 96](x, m, y)
        return host.taken(x, y)
"""


@pytest.fixture(scope="module")
def evaluator(pool: Pool) -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(backend="cpu", trials=1, sample_large=False), pool=pool) as made:
        yield made


def judged(evaluator: Evaluator, source: str, text: str) -> Evaluation:
    candidate = Candidate(sources=(SourceFile(path="candidate.py", content=text),), language="cuda")
    return evaluator.evaluate(Task(task_id="t", source=source), candidate)


def test_kernels_find_poison_whoever_allocated(evaluator: Evaluator) -> None:
    result = judged(evaluator, MANY, POISONED)
    assert result.verdict == "correct", f"{result.reason}\n{result.log}"


ADDED = r"""
import torch, torch.nn as nn
from kernelwright.cuda import Module
k = Module('''extern "C" __global__ void add(const float* x, float* y) {
  atomicAdd(&y[threadIdx.x % 32], x[threadIdx.x] * 3);
}''')
class ModelNew(nn.Module):
    def forward(self, x):
        y = FRESH
        k.add[1, 96](x, y)
        return y.repeat(3)
"""


@pytest.mark.parametrize(
    ("fresh", "named"), [("x.new(32)", True), ("x.new(32).fill_(float('nan'))", False), ("x.new_zeros(32)", False)]
)
def test_the_reason_names_what_was_never_written(evaluator: Evaluator, fresh: str, named: bool) -> None:
    result = judged(evaluator, MANY, ADDED.replace("FRESH", fresh))
    assert result.verdict == "wrong"
    assert result.reason.startswith("uninitialised-read: read of argument 1 ('y', tensor (32,)) at byte 0") == named


WRITTEN = r"""
import torch, torch.nn as nn
from torch.utils.cpp_extension import load_inline
host = load_inline("host", cpp_sources="torch::Tensor wrong(torch::Tensor x);", cuda_sources=r'''
#include <torch/extension.h>
#include <cuda_runtime.h>
__global__ void sum(const float* x, const int* a, const int* b, const unsigned char* c, const int* d, float* y) {
  int t = threadIdx.x;
  y[t] = x[t] * 8 + a[t] + b[t] + c[t] + d[t];
}
torch::Tensor wrong(torch::Tensor x) {
  auto a = torch::full({96}, -1, x.options().dtype(torch::kInt32));
  auto d = torch::empty({96}, x.options().dtype(torch::kInt32));
  d.fill_(-1);
  auto c = torch::empty({96}, x.options().dtype(torch::kUInt8));
  c.copy_(torch::full({96}, 0x5a, x.options().dtype(torch::kUInt8)));
  int *b, *e;
  cudaMalloc(&b, 384);
  cudaMalloc(&e, 384);
  cudaMemset(e, 0xff, BYTES);
  cudaMemcpy(b, e, 384, cudaMemcpyDeviceToDevice);
  auto y = torch::empty_like(x);
  sum<<<1, 96>>>(x.data_ptr<float>(), a.data_ptr<int>(), b, c.data_ptr<unsigned char>(), d.data_ptr<int>(),
                 y.data_ptr<float>());
  cudaFree(b);
  cudaFree(e);
  return y;
}
''', functions=["wrong"])
class ModelNew(nn.Module):
    def forward(self, x):
        return host.wrong(x)
"""


@pytest.mark.parametrize(("filled", "named"), [(384, False), (380, True)])
def test_what_host_code_has_written_is_written(evaluator: Evaluator, filled: int, named: bool) -> None:
    result = judged(evaluator, MANY, WRITTEN.replace("BYTES", str(filled)))
    assert result.verdict == "wrong", result.log
    assert ("uninitialised-read" in result.reason) == named
    assert [f.rule for f in result.findings] == ["uninitialised-read"] * named
