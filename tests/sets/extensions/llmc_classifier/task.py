import torch
import torch.nn as nn
import torch.nn.functional as F

B, T, V = 3, 8, 500


class Model(nn.Module):
    def forward(self, logits, targets):
        return F.cross_entropy(logits.float().view(-1, V), targets.view(-1), reduction="none").view(B, T)


def get_inputs():
    return [torch.randn(B, T, V, dtype=torch.bfloat16), torch.randint(0, V, (B, T))]


def get_init_inputs():
    return []
