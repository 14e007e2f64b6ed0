import torch

import muladd_ext


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        fused = muladd_ext.ops.mymuladd(a, b, 1.5)
        out = torch.empty_like(fused)
        muladd_ext.ops.mymul_out(fused, b, out)
        return out
