import os

import torch
from torch.utils.cpp_extension import load

torch.set_grad_enabled(False)

# Load the CUDA kernel as a python module
lib = load(
    name="hardshrink_lib",
    sources=[os.path.join(os.path.dirname(__file__), "hardshrink.cu")],
    extra_cuda_cflags=[
        "-O3",
        "-U__CUDA_NO_HALF_OPERATORS__",
        "-U__CUDA_NO_HALF_CONVERSIONS__",
        "-U__CUDA_NO_HALF2_OPERATORS__",
        "-U__CUDA_NO_BFLOAT16_CONVERSIONS__",
        "--expt-relaxed-constexpr",
        "--expt-extended-lambda",
        "--use_fast_math",
    ],
    extra_cflags=["-std=c++17"],
)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        y32, y16, y16x8 = torch.empty_like(a), torch.empty_like(b), torch.empty_like(b)
        lib.hardshrink_f32x4(a, y32)
        lib.hardshrink_f16x2(b, y16)
        lib.hardshrink_f16x8_pack(b, y16x8)
        return y32, y16, y16x8
