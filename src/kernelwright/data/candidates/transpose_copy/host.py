"""Right: host C++, no GPU code at all."""

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cpp_source = r"""
#include <torch/extension.h>
#include <vector>

torch::Tensor forward(torch::Tensor x) {
    const auto batch = x.size(0), height = x.size(1), width = x.size(2);
    auto y = torch::empty({batch, width, height}, x.options());
    const float* from = x.data_ptr<float>();
    float* to = y.data_ptr<float>();
    for (int64_t b = 0; b < batch; ++b)
        for (int64_t i = 0; i < width; ++i)
            for (int64_t j = 0; j < height; ++j)
                to[(b * width + i) * height + j] = from[(b * height + j) * width + i];
    return y;
}
"""

extension = load_inline(name="transpose_host", cpp_sources=cpp_source, functions=["forward"])


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.forward(x.contiguous())
