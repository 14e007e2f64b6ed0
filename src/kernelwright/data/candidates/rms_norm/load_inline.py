"""Right: one block a row, vector loads where the row allows them."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

template <int THREADS>
__global__ void rms_norm(const float* __restrict__ x, const float* __restrict__ weight, float* __restrict__ y,
                         int features, float eps) {
    const float* row = x + (long long)blockIdx.x * features;
    float* out = y + (long long)blockIdx.x * features;
    float sum = 0.0f;
    if (features % 4 == 0) {
        const float4* wide = reinterpret_cast<const float4*>(row);
        for (int i = threadIdx.x; i < features / 4; i += THREADS) {
            float4 v = wide[i];
            sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
        }
    } else {
        for (int i = threadIdx.x; i < features; i += THREADS) sum += row[i] * row[i];
    }
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffffu, sum, offset);
    __shared__ float parts[THREADS / 32];
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    float total = 0.0f;
#pragma unroll
    for (int w = 0; w < THREADS / 32; ++w) total += parts[w];
    float scale = rsqrtf(total / features + eps);
    for (int i = threadIdx.x; i < features; i += THREADS) out[i] = row[i] * scale * weight[i];
}

torch::Tensor forward(torch::Tensor x, torch::Tensor weight, double eps) {
    auto y = torch::empty_like(x);
    int features = x.size(-1);
    int rows = x.numel() / features;
    auto stream = at::cuda::getCurrentCUDAStream();
    rms_norm<256><<<rows, 256, 0, stream>>>(x.data_ptr<float>(), weight.data_ptr<float>(), y.data_ptr<float>(),
                                            features, static_cast<float>(eps));
    return y;
}
"""

extension = load_inline(
    name="rms_norm",
    cpp_sources="torch::Tensor forward(torch::Tensor x, torch::Tensor weight, double eps);",
    cuda_sources=cuda_source,
    functions=["forward"],
)


class ModelNew(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.weight = nn.Parameter(1 + torch.randn(features) * 0.1)
        self.eps = eps

    def forward(self, x):
        return extension.forward(x.contiguous(), self.weight, self.eps)
