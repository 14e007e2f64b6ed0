import torch
import torch.nn as nn
import torch.nn.functional as F

TOKENS, HIDDEN = 9, 128


class Model(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(hidden) + 0.5)

    def forward(self, x):
        d = x.shape[-1] // 2
        gated = F.silu(x[..., :d]) * x[..., d:]
        variance = gated.pow(2).mean(dim=-1, keepdim=True)
        return gated * torch.rsqrt(variance + 1e-6) * self.weight


def get_inputs():
    return [torch.randn(TOKENS, 2 * HIDDEN)]


def get_init_inputs():
    return [HIDDEN]
