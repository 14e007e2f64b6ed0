"""Right: a CUDA string launched from Python. One block a row, reductions by warp shuffles."""

import torch
import torch.nn as nn

from kernelwright.cuda import Module

kernels = Module(r"""
__device__ float block_reduce(float v, bool want_max) {
    __shared__ float parts[32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (int offset = 16; offset > 0; offset >>= 1) {
        float other = __shfl_xor_sync(0xffffffffu, v, offset);
        v = want_max ? fmaxf(v, other) : v + other;
    }
    __syncthreads();  // parts may still be read from the reduction before
    if (lane == 0) parts[warp] = v;
    __syncthreads();
    float result = parts[0];
    for (int w = 1; w < (int)(blockDim.x >> 5); ++w) result = want_max ? fmaxf(result, parts[w]) : result + parts[w];
    return result;
}

extern "C" __global__ void softmax(const float* x, float* y, int cols) {
    const float* row = x + (long long)blockIdx.x * cols;
    float* out = y + (long long)blockIdx.x * cols;
    float largest = -INFINITY;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) largest = fmaxf(largest, row[i]);
    largest = block_reduce(largest, true);
    float sum = 0.0f;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) sum += expf(row[i] - largest);
    sum = block_reduce(sum, false);
    for (int i = threadIdx.x; i < cols; i += blockDim.x) out[i] = expf(row[i] - largest) / sum;
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        kernels.softmax[(x.shape[0], 1, 1), (128, 1, 1), 0](x, y, x.shape[1])
        return y
