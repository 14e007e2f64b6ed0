"""Candidates that compute with cuDNN, without a GPU: correct ones under their policy, and verdicts on wrong ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.records import Candidate, Evaluation, LibraryRule, SourceFile, Task

TASK = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, channels, outputs):
        super().__init__()
        self.conv = nn.Conv2d(channels, outputs, 3, stride=2, padding=1)
    def forward(self, x):
        return torch.relu(self.conv(x))

batch_size = 4
channels = 6
outputs = 8

def get_inputs():
    return [torch.randn(batch_size, channels, 20, 20)]

def get_init_inputs():
    return [channels, outputs]
"""
CANDIDATE = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cudnn/Handle.h>
#include <cudnn.h>

torch::Tensor conv_relu(torch::Tensor x, torch::Tensor w, torch::Tensor b) {
  auto handle = at::native::getCudnnHandle();
  cudnnTensorDescriptor_t xd, yd, bd;
  cudnnFilterDescriptor_t wd;
  cudnnConvolutionDescriptor_t cd;
  cudnnActivationDescriptor_t ad;
  for (auto d : {&xd, &yd, &bd}) AT_CUDNN_CHECK(cudnnCreateTensorDescriptor(d));
  AT_CUDNN_CHECK(cudnnCreateFilterDescriptor(&wd));
  AT_CUDNN_CHECK(cudnnCreateConvolutionDescriptor(&cd));
  AT_CUDNN_CHECK(cudnnCreateActivationDescriptor(&ad));
  AT_CUDNN_CHECK(cudnnSetTensor4dDescriptor(xd, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, x.size(0), x.size(1),
                                            x.size(2), x.size(3)));
  AT_CUDNN_CHECK(cudnnSetFilter4dDescriptor(wd, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, w.size(0), w.size(1), 3, 3));
  AT_CUDNN_CHECK(cudnnSetConvolution2dDescriptor(cd, 1, 1, 2, 2, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
  AT_CUDNN_CHECK(cudnnSetConvolutionMathType(cd, CUDNN_FMA_MATH));
  int n, c, h, v;
  AT_CUDNN_CHECK(cudnnGetConvolution2dForwardOutputDim(cd, xd, wd, &n, &c, &h, &v));
  auto y = torch::zeros({n, c, h, v}, x.options());
  AT_CUDNN_CHECK(cudnnSetTensor4dDescriptor(yd, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, n, c, h, v));
  AT_CUDNN_CHECK(cudnnSetTensor4dDescriptor(bd, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, c, 1, 1));
  AT_CUDNN_CHECK(cudnnSetActivationDescriptor(ad, CUDNN_ACTIVATION_RELU, CUDNN_NOT_PROPAGATE_NAN, 0.0));
  const float one = 1.f, zero = 0.f;
  AT_CUDNN_CHECK(cudnnConvolutionForward(handle, &one, xd, x.data_ptr(), wd, w.data_ptr(), cd,
                                         CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
                                         nullptr, 0, &zero, yd, y.data_ptr()));
  AT_CUDNN_CHECK(cudnnAddTensor(handle, &one, bd, b.data_ptr(), &one, yd, y.data_ptr()));
  AT_CUDNN_CHECK(cudnnActivationForward(handle, ad, &one, yd, y.data_ptr(), &zero, yd, y.data_ptr()));
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("conv_relu", &conv_relu); }
"""
module = load_inline("dnn", "", source, extra_ldflags=["-lcudnn"])

class ModelNew(nn.Module):
    def __init__(self, channels, outputs):
        super().__init__()
        self.conv = nn.Conv2d(channels, outputs, 3, stride=2, padding=1)
    def forward(self, x):
        return module.conv_relu(x.contiguous(), self.conv.weight, self.conv.bias)
'''
STEPS = "CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT"


@pytest.fixture(scope="module")
def evaluator(pool: Pool) -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(backend="cpu", trials=2, seed=3), pool=pool) as shared:
        yield shared


def _judged(evaluator: Evaluator, policy: LibraryRule, old: str = "", new: str = "") -> Evaluation:
    """Judges the candidate with one text replaced by another."""
    assert old in CANDIDATE
    content = CANDIDATE.replace(old, new) if old else CANDIDATE
    candidate = Candidate(sources=(SourceFile(path="candidate.py", content=content),), language="cuda")
    return evaluator.evaluate(Task(task_id="conv", source=TASK, policy=policy), candidate)


@pytest.mark.parametrize(
    ("policy", "verdict"),
    [
        ("libraries", "correct"),
        ("libraries:cudnn", "correct"),
        ("libraries:cublas", "rejected"),
        ("from_scratch", "rejected"),
    ],
)
def test_a_convolution_by_cudnn_is_a_library_operator(evaluator: Evaluator, policy: LibraryRule, verdict: str) -> None:
    result = _judged(evaluator, policy)
    assert result.verdict == verdict, result.reason
    used = {"cudnnConvolutionForward", "cudnnAddTensor", "cudnnActivationForward"}
    assert {*result.library_ops} == (used if verdict == "correct" else {"cudnnConvolutionForward"})  # the first refused
    assert verdict == "correct" or "cudnnConvolutionForward" in result.reason, result.reason


@pytest.mark.parametrize(
    ("old", "new", "verdict", "said"),
    [
        (f"cd, 1, 1, 2, 2, 1, 1, {STEPS}", f"cd, 1, 1, 1, 2, 1, 1, {STEPS}", "wrong", ""),
        ("  return y;", "  cudnnScaleTensor(handle, yd, y.data_ptr(), &one); return y;",
         "unsupported", "cudnnScaleTensor"),
        ("xd, CUDNN_TENSOR_NCHW", "xd, CUDNN_TENSOR_NHWC", "unsupported", "CUDNN_TENSOR_NHWC"),
        ("CUDNN_DATA_FLOAT, 1, c, 1, 1", "CUDNN_DATA_FLOAT, 1, c + 1, 1, 1", "runtime_error", "CUDNN_STATUS_BAD_PARAM"),
        ("#include <ATen/cudnn/Handle.h>\n", "", "compile_error", "getCudnnHandle"),
    ],
    ids=["stride", "unknown function", "layout", "bias", "header"],
)  # fmt: skip
def test_what_is_wrong_with_a_call_is_said(evaluator: Evaluator, old: str, new: str, verdict: str, said: str) -> None:
    result = _judged(evaluator, "libraries", old, new)
    assert result.verdict == verdict, result.reason
    assert said in result.reason, result.reason
