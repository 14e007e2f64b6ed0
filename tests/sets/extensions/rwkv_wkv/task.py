import torch
import torch.nn as nn

B, T, WARPS = 2, 20, 2
C = 32 * WARPS


class Model(nn.Module):
    def forward(self, w, u, k, v):
        w = -torch.exp(w)
        a, b = torch.zeros_like(k[:, 0]), torch.zeros_like(k[:, 0])
        largest = torch.full_like(a, -1e38)
        out = []
        for t in range(k.shape[1]):
            top = torch.maximum(largest, u + k[:, t])
            e1, e2 = torch.exp(largest - top), torch.exp(u + k[:, t] - top)
            out.append((e1 * a + e2 * v[:, t]) / (e1 * b + e2))
            top = torch.maximum(w + largest, k[:, t])
            e1, e2 = torch.exp(w + largest - top), torch.exp(k[:, t] - top)
            a, b, largest = e1 * a + e2 * v[:, t], e1 * b + e2, top
        return torch.stack(out, dim=1)


def get_inputs():
    return [torch.randn(C), torch.randn(C), torch.randn(B, T, C), torch.randn(B, T, C)]


def get_init_inputs():
    return []
