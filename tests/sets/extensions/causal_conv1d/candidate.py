import torch
import torch.nn as nn

import conv1d_causal_cuda


def causal_conv1d_fn(x, weight, bias=None, activation=None):
    if activation not in [None, "silu", "swish"]:
        raise NotImplementedError("activation must be None, silu, or swish")
    if x.stride(2) != 1 and x.stride(1) != 1:
        x = x.contiguous()
    bias = bias.contiguous() if bias is not None else None
    return conv1d_causal_cuda.causal_conv1d_fwd(x, weight, bias, activation in ["silu", "swish"])


class ModelNew(nn.Module):
    def __init__(self, dim, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim, width))
        self.bias = nn.Parameter(torch.randn(dim))

    def forward(self, x):
        return causal_conv1d_fn(x, self.weight, self.bias, "silu")
