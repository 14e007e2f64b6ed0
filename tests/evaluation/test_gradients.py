"""Tasks that ask for gradients: the results of a candidate's backward pass are compared like its outputs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.records import Candidate, Evaluation, LibraryRule, SourceFile, Task

TASK = """
import torch
import torch.nn as nn
GRADIENTS = True
rows, width = 24, 65
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
    def forward(self, x):
        return torch.tanh(x) * self.scale
def get_inputs():
    return [torch.randn(rows, width)]
def get_init_inputs():
    return [width]
"""
TORCH = """
import torch
import torch.nn as nn
class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
    def forward(self, x):
        return {expression}
"""
KERNELS = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline
source = """
__global__ void forward_kernel(const float* x, const float* s, float* y, int n, int width) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = tanhf(x[i]) * s[i % width];
}
__global__ void backward_kernel(const float* x, const float* s, const float* g, float* dx, float* ds, int rows,
                                int width) {
  int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= width) return;
  float total = 0.f;
  for (int row = 0; row < rows; ++row) {
    int i = row * width + column;
    float t = tanhf(x[i]);
    dx[i] = g[i] * s[column] * (1.f - t * t);
    total += g[i] * t;
  }
  ds[column] = total;
}
torch::Tensor run(torch::Tensor x, torch::Tensor s) {
  auto y = torch::empty_like(x);
  int n = x.numel();
  forward_kernel<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), s.data_ptr<float>(), y.data_ptr<float>(), n,
                                            (int)x.size(1));
  return y;
}
std::vector<torch::Tensor> back(torch::Tensor x, torch::Tensor s, torch::Tensor g) {
  auto dx = torch::empty_like(x);
  auto ds = torch::empty_like(s);
  int rows = x.size(0), width = x.size(1);
  backward_kernel<<<(width + 63) / 64, 64>>>(x.data_ptr<float>(), s.data_ptr<float>(), g.data_ptr<float>(),
                                             dx.data_ptr<float>(), ds.data_ptr<float>(), rows, width);
  return {dx, ds};
}
"""
declarations = """
torch::Tensor run(torch::Tensor x, torch::Tensor s);
std::vector<torch::Tensor> back(torch::Tensor x, torch::Tensor s, torch::Tensor g);
"""
module = load_inline("scaled_tanh", declarations, source, ["run", "back"])
class ScaledTanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, s):
        ctx.save_for_backward(x, s)
        return module.run(x, s)
    @staticmethod
    def backward(ctx, g):
        return tuple(module.back(*ctx.saved_tensors, g.contiguous()))
class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
    def forward(self, x):
        return ScaledTanh.apply(x, self.scale)
'''


@pytest.fixture(scope="module", params=["cpu", "host", pytest.param("gpu", marks=pytest.mark.gpu)])
def evaluator(request: pytest.FixtureRequest, pool: Pool) -> Iterator[Evaluator]:
    """Returns an evaluator for the CPU protocol, for the GPU protocol on the host device, or for a GPU."""
    options = EvalOptions(timing_seconds=0.05, trials=3, timeout=20)
    if request.param == "gpu":
        options = options.changed(backend="gpu")
    with (
        Evaluator(options, device="cpu", pool=pool)
        if request.param == "host"
        else Evaluator(options, pool=pool) as made
    ):
        yield made


def judged(evaluator: Evaluator, text: str, policy: LibraryRule) -> Evaluation:
    task = Task(task_id="scaled-tanh", source=TASK, policy=policy)
    return evaluator.evaluate(task, Candidate(sources=(SourceFile(path="c.py", content=text),), language="cuda"))


def test_a_kernel_with_a_backward_pass(evaluator: Evaluator) -> None:
    result = judged(evaluator, KERNELS, "from_scratch")
    assert result.verdict == "correct", (result.reason, result.log)
    assert all(any(name in one.kernel for one in result.launches) for name in ("forward_kernel", "backward_kernel"))


def test_autograd_of_torch_itself(evaluator: Evaluator) -> None:
    result = judged(evaluator, TORCH.format(expression="torch.tanh(x) * self.scale"), "libraries")
    assert result.verdict == "correct", result.reason


@pytest.mark.parametrize(
    "text",
    [
        KERNELS.replace("(1.f - t * t)", "(1.f - t)"),
        KERNELS.replace("total += g[i] * t;", "total += g[i];"),
        TORCH.format(expression="(torch.tanh(x) * self.scale).detach()"),
        TORCH.format(expression="torch.tanh(x) * self.scale.detach()"),
    ],
    ids=["input", "weight", "no graph", "no graph to the weight"],
)
def test_wrong_gradients(evaluator: Evaluator, text: str) -> None:
    result = judged(evaluator, text, "libraries")
    assert result.verdict == "wrong", (result.verdict, result.reason)
    assert "output 1" in result.reason or "output 2" in result.reason


def test_a_backward_pass_has_its_device(evaluator: Evaluator) -> None:
    """Makes memory on the device by name, and asks a tensor where it is."""
    made = 'assert g.is_cuda and g.data_ptr()\n        torch.zeros(3, device="cuda")\n        '
    text = KERNELS.replace("return tuple(module.back", made + "return tuple(module.back")
    result = judged(evaluator, text, "from_scratch")
    assert result.verdict == "correct", (result.reason, result.log)
