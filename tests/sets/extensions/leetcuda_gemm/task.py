import torch
import torch.nn as nn

M, N, K = 64, 96, 48


class Model(nn.Module):
    def forward(self, a, b, ah, bh):
        return a @ b, (ah.float() @ bh.float()).half()


def get_inputs():
    a, b = torch.randn(M, K), torch.randn(K, N)
    return [a, b, torch.randn(M, K).half(), torch.randn(K, N).half()]


def get_init_inputs():
    return []
