import os

import torch
from torch.utils.cpp_extension import load

csrc = os.path.join(os.path.dirname(os.path.abspath(__file__)), "csrc")
load(
    name="vision_own_C",
    sources=[
        os.path.join(csrc, "ops", "box_pool.cpp"),
        os.path.join(csrc, "ops", "cuda", "box_pool_kernel.cu"),
    ],
    extra_include_paths=[csrc],
    extra_cflags=["-DWITH_CUDA"],
    extra_cuda_cflags=["-DCUDA_HAS_FP16=1", "-D__CUDA_NO_HALF_OPERATORS__", "-D__CUDA_NO_HALF2_OPERATORS__"],
    is_python_module=False,
)


class ModelNew(torch.nn.Module):
    def forward(self, x, boxes):
        return torch.ops.vision_own.box_pool(x, boxes, 3, 3)
