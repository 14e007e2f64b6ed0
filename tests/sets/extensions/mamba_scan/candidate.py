import os

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load

csrc = os.path.join(os.path.dirname(os.path.realpath(__file__)), "csrc")
selective_scan_cuda = load(
    "selective_scan_small",
    [os.path.join(csrc, name) for name in ("selective_scan.cpp", "selective_scan_fwd_fp32.cu")],
    extra_include_paths=[csrc],
    extra_cuda_cflags=["-O3", "-std=c++17", "-U__CUDA_NO_HALF_OPERATORS__", "--expt-relaxed-constexpr"],
)


class ModelNew(nn.Module):
    def forward(self, u, delta, A, B, C, D):
        out, x = selective_scan_cuda.fwd(
            u.contiguous(), delta.contiguous(), A.contiguous(), B.contiguous(), C.contiguous(), D, None, True
        )
        return out
