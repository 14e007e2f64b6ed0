"""Not from scratch: torch's own operators. Rejected by default, right with --libraries-allowed."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, mask):
        return torch.cumsum(torch.where(mask, x, torch.zeros_like(x)), dim=1)
