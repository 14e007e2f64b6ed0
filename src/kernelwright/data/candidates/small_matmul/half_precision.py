"""Wrong: multiplies in half precision what the task states in single, which a loose tolerance would let pass."""

import torch
import torch.nn as nn

from kernelwright.cuda import Module

kernels = Module(r"""
#include <cuda_fp16.h>
extern "C" __global__ void matmul(const float* a, const float* b, float* c, int M, int K, int N) {
    int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    if (col >= N) return;
    __half sum = __float2half(0.0f);
    for (int k = 0; k < K; ++k)
        sum = __hadd(sum, __hmul(__float2half(a[row * K + k]), __float2half(b[k * N + col])));
    c[row * N + col] = __half2float(sum);
}
""")


class ModelNew(nn.Module):
    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[1]
        c = torch.empty(M, N, device=a.device)
        kernels.matmul[((N + 63) // 64, M, 1), (64, 1, 1), 0](a.contiguous(), b.contiguous(), c, M, K, N)
        return c
