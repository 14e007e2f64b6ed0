import torch
import torch.nn as nn

CELLS, STEPS = 300, 6


class Model(nn.Module):
    def forward(self, x):
        for _ in range(STEPS):
            left = torch.cat((x[:1], x[:-1]))
            right = torch.cat((x[1:], x[-1:]))
            x = 0.5 * x + 0.25 * (left + right)
        return x


def get_inputs():
    return [torch.randn(CELLS)]


def get_init_inputs():
    return []
