import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, GROUPS = 10, 8
FEATURES = 8 * GROUPS


class Model(nn.Module):
    def __init__(self, features, groups):
        super().__init__()
        self.norm = nn.GroupNorm(groups, features)
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return F.hardtanh(self.norm(x) * self.scale)


def get_inputs():
    return [torch.randn(BATCH, FEATURES)]


def get_init_inputs():
    return [FEATURES, GROUPS]
