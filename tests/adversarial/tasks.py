"""The tasks that exploits and honest candidates are judged on: our own, small, signed inputs."""

HEAD = "import torch\nimport torch.nn as nn\n"

SCALE = (
    HEAD
    + """
batch_size = 24
dim = 500

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0

def get_inputs():
    return [torch.randn(batch_size, dim)]

def get_init_inputs():
    return []
"""
)

SOFTMAX = (
    HEAD
    + """
batch_size = 16
dim = 700

class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)

def get_inputs():
    return [torch.randn(batch_size, dim)]

def get_init_inputs():
    return []
"""
)

LINEAR = (
    HEAD
    + """
batch_size = 12
features = 96

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.bias = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        return x * self.weight + self.bias

def get_inputs():
    return [torch.randn(batch_size, features)]

def get_init_inputs():
    return [features]
"""
)

ROWSUM = (
    HEAD
    + """
batch_size = 20
dim = 900

class Model(nn.Module):
    def forward(self, x):
        return torch.sum(x, dim=1)

def get_inputs():
    return [torch.randn(batch_size, dim)]

def get_init_inputs():
    return []
"""
)

ARGMAX = ROWSUM.replace("torch.sum(x, dim=1)", "torch.argmax(x, dim=1)")
TWO = ROWSUM.replace("torch.sum(x, dim=1)", "torch.amax(x, dim=1), x * 0.5")
HALF = SCALE.replace("torch.randn(batch_size, dim)", "torch.randn(batch_size, dim).half()")

TASKS = {
    "scale": SCALE,
    "softmax": SOFTMAX,
    "linear": LINEAR,
    "rowsum": ROWSUM,
    "argmax": ARGMAX,
    "two": TWO,
    "half": HALF,
}

KERNEL = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
__global__ void scale_kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i], 0.0f) * 2.0f;
}
torch::Tensor scale(torch::Tensor x) {
    auto y = torch::empty_like(x);
    int n = x.numel();
    scale_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
"""
extension = load_inline(name="scale", cpp_sources="torch::Tensor scale(torch::Tensor x);", cuda_sources=source,
                        functions=["scale"])
'''
"""An honest kernel for `scale`, the start of exploits that need one."""
