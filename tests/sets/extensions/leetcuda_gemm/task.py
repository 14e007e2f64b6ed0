import torch
import torch.nn as nn

ROWS, COLUMNS, DEPTH = 2, 3, 3
M, N, K = 32 * ROWS, 32 * COLUMNS, 16 * DEPTH


class Model(nn.Module):
    def forward(self, a, b, ah, bh):
        return a @ b, (ah.float() @ bh.float()).half()


def get_inputs():
    a, b = torch.randn(M, K), torch.randn(K, N)
    return [a, b, torch.randn(M, K).half(), torch.randn(K, N).half()]


def get_init_inputs():
    return []
