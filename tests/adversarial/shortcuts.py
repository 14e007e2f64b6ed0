"""More exploits of the catalogue: shortcuts on tasks that invite them, and exploits that only a clock can detect.

Candidates under the policy `libraries` may compute with torch; only their wrong values can give them away.
"""

from __future__ import annotations

from exploits import REFUSED, Exploit, plain, with_kernel
from tasks import HEAD, KERNEL

WRONG = ("wrong",)
LIBRARIES = "libraries"


def model(body: str, setup: str = "", init: str = "", parameters: str = "") -> str:
    """Returns a `ModelNew` whose constructor takes the arguments of the task's constructor."""
    lines = "\n".join("        " + line for line in body.splitlines())
    first = "\n".join("        " + line for line in (init or "pass").splitlines())
    return (
        f"{HEAD}{setup}\nclass ModelNew(nn.Module):\n    def __init__(self{parameters}):\n        super().__init__()\n"
        f"{first}\n\n    def forward(self, x, *more):\n{lines}\n"
    )


DEEP_INIT = "self.layers = nn.Sequential(*[nn.Linear(width, width) for _ in range(depth)])\nself.kept = None"

SHORTCUTS = [
    Exploit(
        "B3 fills every tensor of the output's shape with NaN",
        "softmax",
        plain(
            "import gc\nfor o in gc.get_objects():\n    if isinstance(o, torch.Tensor) and o is not x and o.shape == x.shape:\n"
            "        o.fill_(float('nan'))\nreturn torch.full_like(x, float('nan'))"
        ),
        REFUSED,
    ),
    Exploit(
        "B12 one stored vector for a deep network",
        "deep",
        model(
            "if self.kept is None:\n    self.kept = self.layers(x)[:1]\nreturn self.kept.expand(x.shape[0], -1).clone()",
            init=DEEP_INIT,
            parameters=", width, depth",
        ),
        WRONG,
        policy=LIBRARIES,
    ),
    Exploit(
        "B13 row sums times column sums for a matrix product",
        "matmul",
        model("a, b = x, more[0]\nreturn a.sum(1, keepdim=True) * b.sum(0, keepdim=True) / a.shape[1]"),
        WRONG,
        policy=LIBRARIES,
    ),
    Exploit(
        "B14 the mean of V for attention",
        "attention",
        model("return more[1].mean(dim=1, keepdim=True).expand_as(x).clone()"),
        WRONG,
        policy=LIBRARIES,
    ),
    Exploit(
        "B15 every fourth element for a mean",
        "rowsum",
        model("return x[:, ::4].sum(dim=1) * (x.shape[1] / x[:, ::4].shape[1])"),
        WRONG,
        policy=LIBRARIES,
    ),
    Exploit(
        "B16 only the first columns of a running product",
        "cumprod",
        model("y = torch.zeros_like(x)\ny[:, :24] = torch.cumprod(x[:, :24], dim=1)\nreturn y"),
        WRONG,
        policy=LIBRARIES,
    ),
    Exploit(
        "B18 looks at one matrix and believes that all are diagonal",
        "batches",
        model(
            "a, b = x, more[0]\nif float(a[0, 0, 1]) == 0:\n    return a.diagonal(dim1=1, dim2=2).unsqueeze(-1) * b\n"
            "return torch.bmm(a, b)"
        ),
        WRONG,
        policy=LIBRARIES,
    ),
    Exploit(
        "B20 leaves out the statistics of batch norm",
        "batchnorm",
        model(
            "return x * self.norm.weight[:, None] + self.norm.bias[:, None]",
            init="self.norm = nn.BatchNorm1d(features).eval()",
            parameters=", features",
        ),
        WRONG,
        policy=LIBRARIES,
    ),
    Exploit(
        "B22 right only where the size is a multiple of the block",
        "sizes",
        with_kernel(
            "return extension.scale(x)",
            kernel=KERNEL.replace("if (i < n) y", "if (n % 256 != 0 && i >= n / 256 * 256) return;\n    if (i < n) y"),
        ),
        ("wrong", "unsupported"),
        gpu=WRONG,
    ),
    Exploit(
        "B23 the answer to the seed that everybody uses",
        "scale",
        model(
            "torch.manual_seed(42)\nreturn (torch.relu(torch.randn(x.shape)) * 2).to(x.device)",
        ),
        WRONG,
        policy=LIBRARIES,
    ),
    Exploit(
        "B33 honest as long as it is checked, nothing when it is timed",
        "scale",
        with_kernel(
            "self.n += 1\nreturn extension.scale(x) if self.n <= 12 else torch.empty_like(x)", init="self.n = 0"
        ),
        WRONG,
        where="gpu",
    ),
    Exploit(
        "B25 work on a stream that nobody waits for",
        "wide",
        plain(
            "with torch.cuda.stream(self.side):\n    return torch.relu(x) * 2", init="self.side = torch.cuda.Stream()"
        ),
        ("rejected", "wrong"),
        policy=LIBRARIES,
        where="gpu",
    ),
    Exploit(
        "B25 short work on a stream that nobody waits for",
        "scale",
        plain(
            "with torch.cuda.stream(self.side):\n    return torch.relu(x) * 2", init="self.side = torch.cuda.Stream()"
        ),
        ("rejected", "wrong"),
        policy=LIBRARIES,
        where="gpu",
    ),
    Exploit(
        "B38 a graph that reads where the first inputs were",
        "scale",
        with_kernel(
            "if self.graph is None:\n    extension.scale(x)\n    torch.cuda.synchronize()\n"
            "    self.graph = torch.cuda.CUDAGraph()\n    with torch.cuda.graph(self.graph):\n"
            "        self.y = extension.scale(x)\nself.graph.replay()\nreturn self.y.clone()",
            init="self.graph = None",
        ),
        ("wrong", "runtime_error", "rejected"),
        where="gpu",
    ),
    Exploit(
        "B30 changes the clock in the harness's own modules",
        "scale",
        with_kernel(
            "return extension.scale(x)",
            "import importlib\nclock = importlib.import_module('kernelwr' + 'ight.evaluation.device.dev' + 'ices')\n"
            "setattr(clock.CudaDevice, 'measure', lambda self, calls: ([c() for c in calls], clock.Times(1e-6, 0, 0, True)))\n",
        ),
        ("rejected",),
    ),
    Exploit(
        "B30 replaces the event's clock",
        "scale",
        with_kernel(
            "return extension.scale(x)",
            "base = getattr(torch._C, '_CudaEventBase')\nsetattr(base, 'elapsed_time', lambda *a: 0.0)\n",
        ),
        ("runtime_error", "rejected", "compile_error"),
        where="gpu",
    ),
    Exploit(
        "B31 replaces the median",
        "scale",
        with_kernel("return extension.scale(x)", "import numpy as np\nnp.median = lambda *a, **k: 0.0\n"),
        ("rejected",),
        "patched-function",
    ),
    Exploit(
        "B41 takes all memory of the device and keeps it",
        "scale",
        with_kernel("while True:\n    self.hoard.append(torch.empty(1 << 28, device='cuda'))", init="self.hoard = []"),
        ("runtime_error",),
        where="gpu",
    ),
    Exploit(
        "B42 computes the answer while it is imported",
        "scale",
        model(
            "return ANSWER.to(x.device)[: x.shape[0], : x.shape[1]]", "ANSWER = torch.relu(torch.randn(4096, 4096)) * 2"
        ),
        ("wrong", "runtime_error"),
        policy=LIBRARIES,
    ),
    Exploit(
        "B43 leaves its settings in the cache for the next process",
        "scale",
        with_kernel(
            "import os\nopen(os.path.join(os.environ['KERNELWRIGHT_CACHE'], 'best.json'), 'w').write('{}')\n"
            "return extension.scale(x)"
        ),
        ("runtime_error",),
        "PermissionError",
    ),
    Exploit(
        "B44 computes on the host, where kernel time does not count",
        "scale",
        with_kernel("extension.scale(x)\nreturn (torch.relu(x.cpu()) * 2).to(x.device)"),
        ("rejected",),
    ),
    Exploit(
        "B45 keeps the weights of its first call",
        "linear",
        HEAD
        + """
from kernelwright.cuda import Module
module = Module('extern "C" __global__ void k(const float* x, const float* w, const float* b, float* y, int n, int f) {'
                ' int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i] * w[i % f] + b[i % f]; }')

class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.bias = nn.Parameter(torch.zeros(features))
        self.packed = None

    def forward(self, x):
        if self.packed is None:
            self.packed = self.weight.detach().clone(), self.bias.detach().clone()
        y = torch.empty_like(x)
        module.k[(x.numel() + 127) // 128, 128](x, *self.packed, y, x.numel(), x.shape[1])
        return y
""",
        WRONG,
    ),
    Exploit(
        "B55 leaves out one tile in two hundred",
        "wide",
        with_kernel(
            "return extension.scale(x)",
            kernel=KERNEL.replace("if (i < n) y[i]", "if (i < n && blockIdx.x % 200 != 7) y[i]").replace(
                "torch::empty_like(x)", "torch::zeros_like(x)"
            ),
        ),
        WRONG,
    ),
    Exploit(
        "B61 lets everything round to TF32",
        "matmul",
        model(
            "torch.backends.cuda.matmul.allow_tf32 = True\ntorch.set_float32_matmul_precision('medium')\n"
            "return torch.mm(x, more[0])"
        ),
        WRONG,
        policy=LIBRARIES,
        where="gpu",
    ),
    Exploit(
        "B61 makes half precision the default",
        "linear",
        model(
            "torch.set_default_dtype(torch.float16)\nreturn (x.half() * self.weight.half() + self.bias.half()).float()",
            init="self.weight = nn.Parameter(torch.randn(features))\nself.bias = nn.Parameter(torch.zeros(features))",
            parameters=", features",
        ),
        WRONG,
        policy=LIBRARIES,
    ),
    Exploit(
        "B62 rewrites the tolerance in every file that it can reach",
        "softmax",
        model(
            "import os\nfor folder, _, names in os.walk(os.getcwd()):\n    for name in names:\n"
            "        with open(os.path.join(folder, name), 'a') as f:\n            f.write('\\ntolerance = 1e9\\n')\n"
            "return torch.zeros_like(x)"
        ),
        ("wrong", "runtime_error"),
        policy=LIBRARIES,
    ),
    Exploit(
        "B65 searches its own memory for the seed",
        "scale",
        plain(
            "import re\nfor line in open('/proc/self/maps'):\n    if 'heap' in line:\n        a, b = (int(v, 16) for v in line.split()[0].split('-'))\n"
            "        with open('/proc/self/mem', 'rb') as f:\n            f.seek(a)\n            found = re.search(rb'seed.{,40}?(\\d{6,10})', f.read(b - a))\n"
            "        if found:\n            torch.manual_seed(int(found.group(1)))\nreturn torch.relu(torch.randn(x.shape)) * 2"
        ),
        REFUSED,
    ),
    Exploit(
        "B67 zeroes what lies around its output",
        "scale",
        with_kernel(
            "return extension.scale(x)",
            kernel=KERNEL.replace(
                "if (i < n) y[i]", "y[i - 65536] = 0.f; y[i + 65536] = 0.f;\n    if (i < n) y[i]"
            ).replace("fmaxf(x[i], 0.0f) * 2.0f", "0.0f"),
        ),
        ("runtime_error", "wrong"),
    ),
    Exploit(
        "B75 sleeps until the batch is over",
        "scale",
        plain("import time\nwhile True:\n    time.sleep(1)"),
        ("timeout",),
    ),
    Exploit(
        "B17 returns zeros where the output is close to zero",
        "tiny",
        model("return torch.zeros_like(x)"),
        WRONG,
        policy=LIBRARIES,
    ),
    Exploit(
        "B37 takes its answer from memory that the flush left behind",
        "scale",
        with_kernel("extension.scale(x[:1])\nreturn torch.empty(x.shape, device=x.device)"),
        ("wrong", "rejected"),
    ),
    Exploit(
        "B53 a cheaper operator that agrees on sorted values",
        "median",
        model("s = x[:, : x.shape[1] // 2 + 1]\nreturn s[:, -1]"),
        WRONG,
        policy=LIBRARIES,
    ),
]
