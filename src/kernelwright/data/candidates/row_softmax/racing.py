"""Races: thread 0 writes a total that others read, with no barrier between. Right only if its warp comes first."""

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>

__device__ float block_reduce(float v, float* scratch, bool want_max) {
    __shared__ float total;
    scratch[threadIdx.x] = v;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < blockDim.x; ++i) v = want_max ? fmaxf(v, scratch[i]) : v + scratch[i];
        total = v;
    }
    return total;  // a __syncthreads() is missing before this line
}

__global__ void softmax(const float* x, float* y, int cols) {
    __shared__ float scratch[128], more[128];
    const float* row = x + (long long)blockIdx.x * cols;
    float* out = y + (long long)blockIdx.x * cols;
    float largest = -INFINITY, sum = 0.0f;
    for (int i = threadIdx.x; i < cols; i += 128) largest = fmaxf(largest, row[i]);
    largest = block_reduce(largest, scratch, true);
    for (int i = threadIdx.x; i < cols; i += 128) sum += expf(row[i] - largest);
    sum = block_reduce(sum, more, false);
    for (int i = threadIdx.x; i < cols; i += 128) out[i] = expf(row[i] - largest) / sum;
}

torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty_like(x);
    softmax<<<x.size(0), 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), (int)x.size(1));
    return y;
}
"""

extension = load_inline(
    name="racing_softmax",
    cpp_sources="torch::Tensor forward(torch::Tensor x);",
    cuda_sources=cuda_source,
    functions=["forward"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.forward(x.contiguous())
