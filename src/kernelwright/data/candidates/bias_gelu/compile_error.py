"""Does not compile: the kernel names a variable that does not exist."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void bias_gelu(const float* __restrict__ x, const float* __restrict__ bias, float* __restrict__ y,
                          long long count, int features) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= count) return;
    float v = x[i] + bias[i % num_features];
    y[i] = 0.5f * v * (1.0f + erff(v * 0.70710678f));
}

torch::Tensor forward(torch::Tensor x, torch::Tensor bias) {
    TORCH_CHECK(x.is_cuda() && x.is_contiguous(), "x must be a contiguous CUDA tensor");
    auto y = torch::empty_like(x);
    long long count = x.numel();
    bias_gelu<<<(count + 255) / 256, 256>>>(x.data_ptr<float>(), bias.data_ptr<float>(), y.data_ptr<float>(), count,
                                            (int)bias.size(0));
    return y;
}
"""

extension = load_inline(
    name="bias_gelu",
    cpp_sources="torch::Tensor forward(torch::Tensor x, torch::Tensor bias);",
    cuda_sources=cuda_source,
    functions=["forward"],
)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features) * 0.1)

    def forward(self, x):
        return extension.forward(x.contiguous(), self.bias)
