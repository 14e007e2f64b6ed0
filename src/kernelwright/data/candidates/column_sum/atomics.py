"""Right: blocks of columns by slabs of rows, combined with atomics."""

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>

__global__ void column_sum(const float* x, float* y, int rows, int cols) {
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (col >= cols) return;
    float sum = 0.0f;
    for (int row = blockIdx.y; row < rows; row += gridDim.y) sum += x[(long long)row * cols + col];
    atomicAdd(&y[col], sum);
}

torch::Tensor forward(torch::Tensor x) {
    int rows = x.size(0), cols = x.size(1);
    auto y = torch::zeros({cols}, x.options());
    dim3 grid((cols + 127) / 128, std::min(rows, 16));
    column_sum<<<grid, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), rows, cols);
    return y;
}
"""

extension = load_inline(
    name="column_sum",
    cpp_sources="torch::Tensor forward(torch::Tensor x);",
    cuda_sources=cuda_source,
    functions=["forward"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.forward(x.contiguous())
