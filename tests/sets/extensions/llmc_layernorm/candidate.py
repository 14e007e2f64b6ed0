import os

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load

here = os.path.dirname(os.path.abspath(__file__))
layernorm = load(
    name="layernorm_fused",
    sources=[os.path.join(here, "llmc", "layernorm.cu")],
    extra_cuda_cflags=["-O3", "-DENABLE_FP32", "--use_fast_math"],
    verbose=False,
)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.LayerNorm(channels)
        with torch.no_grad():
            self.norm.weight.copy_(torch.rand(channels) + 0.5)
            self.norm.bias.copy_(torch.randn(channels))

    def forward(self, inp1, inp2):
        out, _mean, _rstd = layernorm.fused_residual_forward(inp1, inp2, self.norm.weight, self.norm.bias)
        return out
