"""Honest idioms that resemble a broken rule, each beside an exploit that must be rejected."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.records import Evaluation, Task
from kernelwright.tasks import candidate_from_text

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
MODULE = HEAD + "import numpy as np\nfrom kernelwright.cuda import Module\n"

THRESHOLD = (
    HEAD
    + """
n = 20_000
class Model(nn.Module):
    def forward(self, x):
        return F.threshold(x, 0.999, 0.0)
def get_inputs():
    return [torch.rand(n)]
def get_init_inputs():
    return []
"""
)
SPARSE = (
    MODULE
    + '''
module = Module("""
extern "C" __global__ void keep(const float* x, float* y, int n, float least) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] > least) y[i] = x[i];
}
""")
class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.zeros_like(x)
        module.keep[(x.numel() + 255) // 256, 256](x.contiguous(), y, x.numel(), LEAST)
        return y
'''
)
ROTARY = (
    HEAD
    + """
rows, length, width = 2, 150, 64
class Model(nn.Module):
    def forward(self, x):
        angle = torch.outer(torch.arange(x.shape[1], device=x.device).float(), 10000.0 ** (-torch.arange(0, x.shape[2], 2, device=x.device) / x.shape[2]))
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()), -1).flatten(-2)
def get_inputs():
    return [torch.randn(rows, length, width)]
def get_init_inputs():
    return []
"""
)
TURN = '''
module = Module("""
extern "C" __global__ void turn(const float* x, const float* c, const float* s, float* y, int n, int half, int length) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int j = i % (half * length);
    float a = x[2 * i], b = x[2 * i + 1];
    y[2 * i] = a * c[j] - b * s[j];
    y[2 * i + 1] = a * s[j] + b * c[j];
}
""")
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.length, self.tables = 0, None
    def forward(self, x):
        length, half = x.shape[1], x.shape[2] // 2
        if self.length != length:
            self.length = length
            TABLES
        y = torch.empty_like(x)
        n = x.numel() // 2
        module.turn[(n + 127) // 128, 128](x.contiguous(), *self.tables, y, n, half, length)
        return y
'''
LAZY_TABLE = MODULE + TURN.replace(
    "TABLES",
    "angle = torch.outer(torch.arange(length, device=x.device).float(), "
    "10000.0 ** (-torch.arange(0, 2 * half, 2, device=x.device) / (2 * half)))\n"
    "            self.tables = (angle.cos().contiguous(), angle.sin().contiguous())",
)
LAYERS = (
    HEAD
    + """
rows, width = 9, 24
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.other = nn.Linear(width, width)
    def forward(self, x):
        y = self.second(torch.relu(self.first(x)))
        return y + self.other(x)
def get_inputs():
    return [torch.randn(rows, width)]
def get_init_inputs():
    return [width]
"""
)
LINEAR = (
    MODULE
    + '''
module = Module("""
extern "C" __global__ void linear(const float* x, const float* w, const float* b, float* y, int rows, int k, int n, int relu) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * n) return;
    float sum = b[i % n];
    for (int j = 0; j < k; ++j) sum += x[i / n * k + j] * w[j * n + i % n];
    y[i] = relu ? fmaxf(sum, 0.0f) : sum;
}
""")
class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.other = nn.Linear(width, width)
        KEEP
    def linear(self, x, w, b, relu):
        y = torch.empty(x.shape[0], w.shape[1], device=x.device)
        module.linear[(y.numel() + 63) // 64, 64](x, w, b, y, x.shape[0], w.shape[0], w.shape[1], relu)
        return y
    def forward(self, x):
        x = x.contiguous()
        USE
'''
)
LISTED = LINEAR.replace(
    "KEEP", "self.kept = [m.weight.detach().t().contiguous() for m in (self.first, self.second, self.other)]"
).replace(
    "USE",
    "h = self.linear(x, self.kept[0], self.first.bias, 1)\n"
    "        h = torch.cat((h, x), 1)\n"
    "        w = torch.cat((self.kept[1], self.kept[2]))\n"
    "        return self.linear(h, w, self.second.bias + self.other.bias, 0)",
)
JOINED = LINEAR.replace(
    "KEEP", "self.kept = {'w': torch.cat((self.second.weight.detach().t(), self.other.weight.detach().t()))}"
).replace(
    "USE",
    "h = self.linear(x, self.first.weight.t().contiguous(), self.first.bias, 1)\n"
    "        return self.linear(torch.cat((h, x), 1), self.kept['w'], self.second.bias + self.other.bias, 0)",
)
QUIET = (
    "import io\nimport sys\nsys.dont_write_bytecode = True\nbefore, sys.stdout = sys.stdout, io.StringIO()\n"
    + SPARSE.replace("LEAST", "0.999").replace("class ModelNew", "sys.stdout = before\nclass ModelNew")
)
HANDED = THRESHOLD.replace("0.999, 0.0)", "0.999, 0.0), x")
HANDS = SPARSE.replace("LEAST", "0.999").replace("return y", "return y, x")
TURNED = THRESHOLD.replace("n = 20_000", "rows, n = 90, 110").replace("rand(n)", "rand(rows, n)")
TURNED = TURNED.replace("F.threshold(x, 0.999, 0.0)", "x.t().contiguous()")
COPIES = SPARSE.replace("x[i] > least", "true").replace("LEAST", "0.0")
FROM_BLOB = (
    HEAD
    + '''
from torch.utils.cpp_extension import load_inline
extension = load_inline("blob", "torch::Tensor keep(torch::Tensor x);", cuda_sources="""
#include <torch/extension.h>
__global__ void keep_kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] > 0.999f ? x[i] : 0.0f;
}
torch::Tensor keep(torch::Tensor x) {
    float* p;
    int n = x.numel();
    cudaMalloc(&p, n * sizeof(float));
    keep_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), p, n);
    auto y = torch::from_blob(p, x.sizes(), x.options()).clone();
    cudaFree(p);
    return y;
}
""", functions=["keep"])
class ModelNew(nn.Module):
    def forward(self, x):
        return extension.keep(x)
'''
)
COPIED_BY_THE_DEVICE = FROM_BLOB.replace(
    "auto y = torch::from_blob(p, x.sizes(), x.options()).clone();",
    "auto y = torch::empty_like(x);\n    cudaMemcpy(y.data_ptr<float>(), p, n * 4, cudaMemcpyDeviceToDevice);",
)
KEEPS = SPARSE.replace("LEAST", "0.999")
IN_A_THREAD = KEEPS.replace("module = Module(", "text = (").replace(
    "class ModelNew",
    "import threading\nbuilt = []\nbuilder = threading.Thread(target=lambda: built.append(Module(text)))\n"
    "builder.start()\nbuilder.join()\nmodule = built[0]\nclass ModelNew",
)
MARKED = KEEPS.replace("class ModelNew", "class Marked(torch.Tensor):\n    pass\nclass ModelNew").replace(
    "y = torch.zeros_like(x)",
    "x = x.as_subclass(Marked)\n        assert x.is_cuda and x.device.type == 'cuda'\n"
    "        y = torch.zeros(x.shape, device=x.device)",
)
LOOKS = KEEPS.replace(
    "y = torch.zeros_like(x)",
    """few = x[:4].cpu().numpy()
        held = torch.empty(4)
        held.copy_(x[:4])
        there = x[4:8].to("cpu", copy=True)
        seen = [few.sum(), held.numpy().sum(), there.numpy().sum(), x[0].item(), *x[:2].tolist()]
        assert np.isfinite(seen).all() and torch.tensor(seen).numpy().shape == (6,)
        y = torch.zeros_like(x)""",
)
BESIDE = "import threading\n" + KEEPS.replace(
    "y = torch.zeros_like(x)",
    """y = torch.empty_like(x)
        thread = threading.Thread(target=lambda: [y.zero_() for _ in range(200)])
        thread.start()
        for _ in range(200):
            z = torch.zeros_like(x)
        thread.join()
        y = z""",
)
HONEST = {
    "a few values looked at on the host": (THRESHOLD, LOOKS),
    "torch at work in two threads": (THRESHOLD, BESIDE),
    "memory of the device under a tensor": (THRESHOLD, FROM_BLOB),
    "a copy of the device's into the output": (THRESHOLD, COPIED_BY_THE_DEVICE),
    "a build in a thread": (THRESHOLD, IN_A_THREAD),
    "a class of tensors that only says what they are": (THRESHOLD, MARKED),
    "an input handed through, as the reference does": (HANDED, HANDS),
    "a view of an input, as the reference's": (
        HANDED.replace("0.0), x", "0.0), x.view(2, -1)"),
        HANDS.replace("y, x", "y, x.reshape(2, x.numel() // 2)"),
    ),
    "stores where a condition holds": (THRESHOLD, SPARSE.replace("LEAST", "0.999")),
    "output in the form of a table of numpy": (
        THRESHOLD,
        SPARSE.replace("LEAST", "0.999").replace(
            "y = torch.zeros_like(x)",
            "y = torch.zeros_like(torch.from_numpy(np.ones(x.numel(), np.float32)).to(x.device))",
        ),
    ),
    "tables made with the first call": (ROTARY, LAZY_TABLE),
    "weights in a list, biases added": (LAYERS, LISTED),
    "weights joined in a dictionary": (LAYERS, JOINED),
    "standard output put aside": (THRESHOLD, QUIET),
}
CHEATS = {
    "a kernel's copy turned by torch": (
        TURNED,
        COPIES.replace("return y", "return y.t().contiguous()"),
        "decoy-kernel",
    ),
    "turned by torch beside a kernel": (
        TURNED,
        COPIES.replace("return y", "return x.t().contiguous()"),
        "decoy-kernel",
    ),
    "turned by torch, row by row, beside a kernel": (
        TURNED,
        COPIES.replace(
            "return y",
            "z = x.new_empty(x.shape[1], x.shape[0])\n        for i in range(x.shape[0]):\n            z[:, i] = x[i]\n"
            "        return z",
        ),
        "decoy-kernel",
    ),
    "an input handed through that the reference copies": (
        HANDED.replace("0.0), x", "0.0), x + 0"),
        HANDS,
        "aliased-output",
    ),
    "never stores": (
        THRESHOLD.replace("0.999, 0.0", "-1e30, 0.0"),
        SPARSE.replace("LEAST", "3e38").replace("torch.zeros_like(x)", "x.clone()"),
        "decoy-kernel",
    ),
    "a table of the inputs' values": (
        ROTARY,
        LAZY_TABLE.replace("angle.cos().contiguous()", "torch.cos(angle + 0 * x[0, :, ::2]).contiguous()"),
        "library-op",
    ),
}


@pytest.fixture(scope="module")
def evaluator(pool: Pool) -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(seed=6), pool=pool) as shared:
        yield shared


def judged(evaluator: Evaluator, task: str, candidate: str) -> Evaluation:
    return evaluator.evaluate(Task(task_id="idiom", source=task), candidate_from_text(candidate, "test"))


@pytest.mark.parametrize("name", HONEST)
def test_honest(evaluator: Evaluator, name: str) -> None:
    result = judged(evaluator, *HONEST[name])
    assert result.verdict == "correct", f"{result.verdict}: {result.reason}\n{result.log}"
    assert not [f for f in result.findings if f.severity in ("reject", "fault")]


@pytest.mark.parametrize("name", CHEATS)
def test_what_looks_alike_and_is_not(evaluator: Evaluator, name: str) -> None:
    *texts, rule = CHEATS[name]
    result = judged(evaluator, *texts)
    assert result.verdict == "rejected" and result.reason.startswith(rule), f"{result.verdict}: {result.reason}"


NAIVE = (
    MODULE
    + '''
module = Module("""
extern "C" __global__ void softmax(const float* x, float* y, int n) {
    const float* row = x + (size_t)blockIdx.x * n;
    __shared__ float sum;
    if (threadIdx.x == 0) { sum = 0.0f; for (int i = 0; i < n; ++i) sum += expf(row[i]); }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += 64) y[(size_t)blockIdx.x * n + i] = expf(row[i]) / sum;
}
""")
class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        module.softmax[x.shape[0], 64](x.contiguous(), y, x.shape[1])
        return y
'''
)


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_a_softmax_that_overflows_is_wrong_whatever_the_seed(pool: Pool, seed: int) -> None:
    """In every judgement, at every size, some value is too large for its exponential."""
    with Evaluator(EvalOptions(seed=seed), pool=pool) as evaluator:
        result = judged(evaluator, TURNED.replace("x.t().contiguous()", "torch.softmax(x, 1)"), NAIVE)
    assert result.verdict == "wrong", f"{result.verdict}: {result.reason}"
