import torch
import torch.nn as nn

import small_vllm_C  # noqa: F401


class ModelNew(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(hidden) + 0.5)

    def forward(self, x):
        gated = torch.empty(x.shape[:-1] + (x.shape[-1] // 2,), dtype=x.dtype, device=x.device)
        torch.ops.small_vllm_C.silu_and_mul(gated, x)
        out = torch.empty_like(gated)
        torch.ops.small_vllm_C.rms_norm(out, gated, self.weight, 1e-6)
        return out
