import os

import torch
from torch.utils.cpp_extension import load

T_MAX = 64
here = os.path.dirname(os.path.abspath(__file__))
wkv_cuda = load(
    name=f"wkv_{T_MAX}",
    sources=[f"{here}/cuda/wkv_op.cpp", f"{here}/cuda/wkv_cuda.cu"],
    verbose=True,
    extra_cuda_cflags=[
        "-res-usage",
        "--maxrregcount 60",
        "--use_fast_math",
        "-O3",
        "-Xptxas -O3",
        "--extra-device-vectorization",
        f"-DTmax={T_MAX}",
    ],
)


class WKV(torch.autograd.Function):
    @staticmethod
    def forward(ctx, B, T, C, w, u, k, v):
        ctx.B, ctx.T, ctx.C = B, T, C
        assert T <= T_MAX
        assert B * C % min(C, 32) == 0
        w = -torch.exp(w.float().contiguous())
        u = u.float().contiguous()
        k = k.float().contiguous()
        v = v.float().contiguous()
        y = torch.empty((B, T, C), device=w.device, memory_format=torch.contiguous_format)
        wkv_cuda.forward(B, T, C, w, u, k, v, y)
        ctx.save_for_backward(w, u, k, v, y)
        return y

    @staticmethod
    def backward(ctx, gy):
        raise NotImplementedError


def run_cuda(B, T, C, w, u, k, v):
    return WKV.apply(B, T, C, w, u, k, v)


class ModelNew(torch.nn.Module):
    def forward(self, w, u, k, v):
        B, T, C = k.size()
        return run_cuda(B, T, C, w, u, k, v)
