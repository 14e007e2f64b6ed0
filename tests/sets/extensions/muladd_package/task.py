import torch
import torch.nn as nn

SIZE = 999


class Model(nn.Module):
    def forward(self, a, b):
        return torch.add(a * b, 1.5) * b


def get_inputs():
    return [torch.randn(SIZE), torch.randn(SIZE)]


def get_init_inputs():
    return []
