import torch
import torch.nn as nn

ROWS, VECTORS = 24, 16
COLS = 8 * VECTORS


class Model(nn.Module):
    def forward(self, a, b):
        half = torch.nn.functional.hardshrink(b, 0.5)
        return torch.nn.functional.hardshrink(a, 0.5), half, half


def get_inputs():
    return [torch.randn(ROWS, COLS), torch.randn(ROWS, COLS).half()]


def get_init_inputs():
    return []
