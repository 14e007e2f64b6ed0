import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, DIM, LENGTH, WIDTH = 2, 6, 300, 4


class Model(nn.Module):
    def __init__(self, dim, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim, width))
        self.bias = nn.Parameter(torch.randn(dim))

    def forward(self, x):
        out = F.conv1d(x, self.weight.unsqueeze(1), self.bias, padding=WIDTH - 1, groups=x.shape[1])
        return F.silu(out[..., : x.shape[-1]])


def get_inputs():
    return [torch.randn(BATCH, DIM, LENGTH)]


def get_init_inputs():
    return [DIM, WIDTH]
