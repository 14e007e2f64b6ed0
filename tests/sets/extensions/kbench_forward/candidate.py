import os
import tempfile

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load

code_path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "forward.cu")
cuda_fn = load(
    name="forward_kernel",
    sources=[code_path],
    extra_cuda_cflags=["-O3", "--use_fast_math"],
    with_cuda=True,
    build_directory=tempfile.mkdtemp(),
    verbose=True,
)


def module_fn(x, weight, bias, scale, groups, fn=cuda_fn.forward):
    return fn(x, weight, bias, scale, num_groups=groups, eps=1e-5)


class ModelNew(nn.Module):
    def __init__(self, features, groups):
        super().__init__()
        self.norm = nn.GroupNorm(groups, features)
        self.scale = nn.Parameter(torch.randn(features))
        self.groups = groups

    def forward(self, x, fn=module_fn):
        return fn(x, self.norm.weight, self.norm.bias, self.scale, self.groups)
