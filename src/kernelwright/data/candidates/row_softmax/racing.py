"""Races: two barriers are missing, so warps may read shared memory before others have written it."""

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>

__global__ void softmax(const float* x, float* y, int cols) {
    __shared__ float scratch[128];
    const float* row = x + (long long)blockIdx.x * cols;
    float* out = y + (long long)blockIdx.x * cols;
    int t = threadIdx.x;
    float largest = -INFINITY;
    for (int i = t; i < cols; i += 128) largest = fmaxf(largest, row[i]);
    scratch[t] = largest;
    for (int half = 64; half > 0; half >>= 1) {  // no __syncthreads() before another thread's value is read
        if (t < half) scratch[t] = fmaxf(scratch[t], scratch[t + half]);
    }
    largest = scratch[0];
    __syncthreads();
    float sum = 0.0f;
    for (int i = t; i < cols; i += 128) sum += expf(row[i] - largest);
    scratch[t] = sum;
    __syncthreads();
    for (int half = 64; half > 0; half >>= 1) {
        if (t < half) scratch[t] += scratch[t + half];
        __syncthreads();
    }
    for (int i = t; i < cols; i += 128) out[i] = expf(row[i] - largest) / scratch[0];
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
