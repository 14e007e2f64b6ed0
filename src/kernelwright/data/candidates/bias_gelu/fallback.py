"""Cheats: asks for an extension that nobody has, and quietly computes with torch."""

import torch
import torch.nn as nn

try:
    import fused_bias_gelu_cuda as extension
except ImportError:
    extension = None


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features) * 0.1)

    def forward(self, x):
        if extension is not None:
            return extension.forward(x, self.bias)
        return torch.nn.functional.gelu(x + self.bias)
