import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, DIM, STATE, LENGTH = 2, 3, 4, 150


class Model(nn.Module):
    def forward(self, u, delta, A, B, C, D):
        delta = F.softplus(delta)
        state = u.new_zeros(u.shape[0], u.shape[1], A.shape[1])
        ys = []
        for t in range(u.shape[2]):
            state = torch.exp(delta[:, :, t, None] * A) * state
            state = state + delta[:, :, t, None] * B[:, None, :, t] * u[:, :, t, None]
            ys.append((state * C[:, None, :, t]).sum(-1))
        return torch.stack(ys, dim=2) + u * D[None, :, None]


def get_inputs():
    return [
        torch.randn(BATCH, DIM, LENGTH),
        torch.randn(BATCH, DIM, LENGTH) * 0.5,
        -torch.rand(DIM, STATE) - 0.1,
        torch.randn(BATCH, STATE, LENGTH),
        torch.randn(BATCH, STATE, LENGTH),
        torch.randn(DIM),
    ]


def get_init_inputs():
    return []
