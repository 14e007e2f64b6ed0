import torch
import torch.nn as nn

ROWS, COLS = 32, 256


class Model(nn.Module):
    def forward(self, a, b, c):
        return a.sum(), b.float().sum(), c.sum().to(torch.int32)


def get_inputs():
    return [
        torch.rand(ROWS, COLS),
        torch.rand(ROWS, COLS).to(torch.bfloat16),
        torch.randint(-9, 9, (ROWS, COLS), dtype=torch.int8),
    ]


def get_init_inputs():
    return []
