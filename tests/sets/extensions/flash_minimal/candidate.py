import pathlib

import torch
from torch.utils.cpp_extension import load

root = pathlib.Path(__file__).parent
# Load the CUDA kernel as a python module
minimal_attn = load(name="minimal_attn", sources=[root / "main.cpp", root / "flash.cu"], extra_cuda_cflags=["-O2"])


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        return minimal_attn.forward(q, k, v)
