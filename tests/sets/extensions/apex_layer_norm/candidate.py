import importlib

import torch
import torch.nn as nn

fused_layer_norm_cuda = importlib.import_module("fused_layer_norm_cuda")


class ModelNew(nn.Module):
    def __init__(self, hidden, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(hidden) + 0.5)
        self.bias = nn.Parameter(torch.randn(hidden))
        self.eps = eps

    def forward(self, x):
        output, mean, invvar = fused_layer_norm_cuda.forward_affine(
            x.contiguous(), (x.shape[-1],), self.weight, self.bias, self.eps
        )
        return output
