"""Wrong: the row's maximum is not subtracted, so large values overflow. Right for small inputs only."""

import torch
import torch.nn as nn

from kernelwright.cuda import Module

kernels = Module(r"""
extern "C" __global__ void softmax(const float* x, float* y, int cols) {
    __shared__ float scratch[128];
    const float* row = x + (long long)blockIdx.x * cols;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < cols; i += 128) sum += expf(row[i]);
    scratch[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 64; half > 0; half >>= 1) {
        if (threadIdx.x < half) scratch[threadIdx.x] += scratch[threadIdx.x + half];
        __syncthreads();
    }
    for (int i = threadIdx.x; i < cols; i += 128) y[(long long)blockIdx.x * cols + i] = expf(row[i]) / scratch[0];
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernels.softmax[(x.shape[0], 1, 1), (128, 1, 1), 0](x.contiguous(), y, x.shape[1])
        return y
