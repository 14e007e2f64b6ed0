"""The tasks of the candidates whose programs depend on values."""

from __future__ import annotations

_HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"


def _task(body: str, inputs: str, sizes: str = "rows, cols = 4096, 4096", init: str = "") -> str:
    indented = body.replace("\n", "\n        ")
    made = "super().__init__()\n        self.scale = nn.Parameter(torch.ones(width))" if init else ""
    constructor = f"    def __init__(self, width):\n        {made}\n" if init else ""
    return (
        f"{_HEAD}{sizes}\nclass Model(nn.Module):\n{constructor}    def forward(self, x):\n        {indented}\n"
        f"def get_inputs():\n    return [{inputs}]\ndef get_init_inputs():\n    return [{init}]\n"
    )


RELU = _task("return torch.relu(x) * self.scale", "torch.randn(rows, cols)", init="cols")
LARGEST = _task("return x / x.abs().max()", "torch.randn(rows, cols)")
SPARSE = _task("return torch.where(x > 0, torch.exp(-x), torch.zeros_like(x))", "torch.randn(rows, cols)")
ROOT = _task("return torch.sqrt(x)", "torch.rand(rows, cols) * 3 + 0.1")
SORTED = _task("return torch.sort(x, dim=-1).values", "torch.randn(rows, cols)", "rows, cols = 65536, 16")
SOFTMAX = _task("return torch.softmax(x, dim=-1)", "torch.randn(rows, cols)", "rows, cols = 8192, 1024")
PRODUCT = (
    f"{_HEAD}m, n, k = 1024, 1024, 512\nclass Model(nn.Module):\n    def forward(self, a, b):\n"
    "        return a @ b\ndef get_inputs():\n    return [torch.randn(m, k), torch.randn(k, n)]\n"
    "def get_init_inputs():\n    return []\n"
)
SQUARES = f"{_HEAD}GRADIENTS = True\nrows, cols = 2048, 2048\n" + (
    "class Model(nn.Module):\n    def forward(self, x):\n        return x * torch.sigmoid(x)\n"
    "def get_inputs():\n    return [torch.randn(rows, cols)]\ndef get_init_inputs():\n    return []\n"
)
