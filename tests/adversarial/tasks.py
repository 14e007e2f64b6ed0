"""Small tasks of our own with signed inputs, on which exploits and honest candidates are judged."""

from kernelwright.records import LibraryRule, Task, Workload

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


def _task(body: str, inputs: str, constants: str, init: str = "", arguments: str = "") -> str:
    """Returns a reference with these constants, constructor lines, forward expression and inputs."""
    first = f"    def __init__(self{''.join(', ' + a for a in arguments.split())}):\n        super().__init__()\n        {init}\n\n"
    return (
        f"{HEAD}\n{constants}\n\nclass Model(nn.Module):\n{first if init else ''}    def forward(self, x, *more):\n"
        f"        return {body}\n\ndef get_inputs():\n    return {inputs}\n\ndef get_init_inputs():\n"
        f"    return [{', '.join(arguments.split())}]\n"
    )


MATMUL = _task("x @ more[0]", "[torch.rand(m, k), torch.rand(k, n)]", "m, k, n = 96, 512, 80")
ATTENTION = _task(
    "torch.softmax(x @ more[0].transpose(1, 2) / width ** 0.5, dim=-1) @ more[1]",
    "[torch.rand(heads, length, width) for _ in range(3)]",
    "heads, length, width = 4, 64, 32",
)
CUMPROD = _task("torch.cumprod(x, dim=1)", "[torch.rand(batch_size, dim)]", "batch_size = 16\ndim = 400")
BATCHES = _task(
    "torch.bmm(x, more[0])",
    "[torch.diag_embed(torch.randn(batch_size, dim)) + torch.randn(batch_size, dim, dim).tril(-1), "
    "torch.randn(batch_size, dim, dim)]",
    "batch_size = 6\ndim = 48",
)
DEEP = _task(
    "self.layers(x)",
    "[torch.rand(batch_size, width)]",
    "batch_size = 8\nwidth = 64\ndepth = 12",
    "self.layers = nn.Sequential(*[nn.Linear(width, width) for _ in range(depth)])",
    "width depth",
)
BATCHNORM = _task(
    "self.norm(x)",
    "[torch.randn(batch_size, features, length)]",
    "batch_size = 8\nfeatures = 24\nlength = 70",
    "self.norm = nn.BatchNorm1d(features).eval()",
    "features",
)
TINY = SOFTMAX.replace("torch.softmax(x, dim=1)", "torch.softmax(x, dim=1) * 1e-6")
MEDIAN = ROWSUM.replace("torch.sum(x, dim=1)", "torch.median(x, dim=1).values").replace(
    "torch.randn(batch_size, dim)", "torch.sort(torch.randn(batch_size, dim), dim=1).values"
)
WIDE = SCALE.replace("batch_size = 24", "batch_size = 2048").replace("dim = 500", "dim = 4096")

POWER = _task("x @ x", "[torch.randn(size, size)]", "size = 512")

WORKLOADS = {"sizes": ({"batch_size": 32, "dim": 512}, {"batch_size": 3, "dim": 333})}
"""Sizes that a task states itself."""

TASKS = {
    "scale": SCALE,
    "softmax": SOFTMAX,
    "linear": LINEAR,
    "rowsum": ROWSUM,
    "argmax": ARGMAX,
    "two": TWO,
    "half": HALF,
    "matmul": MATMUL,
    "attention": ATTENTION,
    "cumprod": CUMPROD,
    "batches": BATCHES,
    "deep": DEEP,
    "batchnorm": BATCHNORM,
    "tiny": TINY,
    "median": MEDIAN,
    "wide": WIDE,
    "sizes": SCALE,
    "power": POWER,
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


def task(name: str, policy: LibraryRule = "from_scratch") -> Task:
    """Returns a task of this module."""
    sizes = WORKLOADS.get(name, ())
    workloads = tuple(Workload(name=f"size{i}", scope="declared", constants=c) for i, c in enumerate(sizes))
    return Task(task_id=name, source=TASKS[name], policy=policy, workloads=workloads)
