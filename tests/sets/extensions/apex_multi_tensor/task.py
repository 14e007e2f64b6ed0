import torch
import torch.nn as nn

SIZES = (700, 64, 1025)


class Model(nn.Module):
    def forward(self, x0, x1, x2, y0, y1, y2):
        return 2.0 * x0 - 0.5 * y0, 2.0 * x1 - 0.5 * y1, 2.0 * x2 - 0.5 * y2


def get_inputs():
    return [torch.randn(n) for n in SIZES] + [torch.randn(n) for n in SIZES]


def get_init_inputs():
    return []
