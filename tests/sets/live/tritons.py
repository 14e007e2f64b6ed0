"""Honest candidates in Triton that tune themselves, take descriptors, scratch memory or clusters, or differentiate."""

from __future__ import annotations

from . import tasks

HEAD = "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n"
_WIDE = "class ModelNew(nn.Module):\n    def __init__(self, width):\n        super().__init__()\n" + (
    "        self.scale = nn.Parameter(torch.ones(width))\n"
)
_TUNED = (
    """
@triton.autotune(configs=[triton.Config({"BLOCK": b}, num_warps=w) for b, w in ((256, 2), (1024, 4), (2048, 8))],
                 key=["n"])
@triton.jit
def scaled(x_ptr, s_ptr, y_ptr, n, cols, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, s = tl.load(x_ptr + i, mask=i < n), tl.load(s_ptr + i % cols, mask=i < n)
    tl.store(y_ptr + i, tl.maximum(x, 0.0) * s, mask=i < n)
"""
    + _WIDE
    + """    def forward(self, x):
        y = torch.empty_like(x)
        scaled[lambda m: (triton.cdiv(x.numel(), m["BLOCK"]),)](x, self.scale, y, x.numel(), x.shape[1])
        return y
"""
)
_SOFTMAX = """
@triton.autotune(configs=[triton.Config({}, num_warps=w) for w in (2, 4, 8)], key=["cols"])
@triton.jit
def softmax(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * cols + at, mask=at < cols, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + tl.program_id(0) * cols + at, e / tl.sum(e, axis=0), mask=at < cols)
class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        softmax[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
"""
_PRODUCT = """
@triton.autotune(configs=[triton.Config({"M": m, "N": n, "K": 32}, num_warps=4, num_stages=s)
                          for m, n, s in ((32, 32, 2), (64, 64, 3), (64, 32, 4))], key=["m", "n", "k"])
@triton.jit
def product(a_ptr, b_ptr, c_ptr, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows, cols = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1) * N + tl.arange(0, N)
    sums = tl.zeros((M, N), dtype=tl.float32)
    for first in range(0, k, K):
        at = first + tl.arange(0, K)
        a = tl.load(a_ptr + rows[:, None] * k + at[None, :], mask=(rows[:, None] < m) & (at[None, :] < k), other=0.0)
        b = tl.load(b_ptr + at[:, None] * n + cols[None, :], mask=(at[:, None] < k) & (cols[None, :] < n), other=0.0)
        sums += tl.dot(a, b, input_precision="ieee")
    tl.store(c_ptr + rows[:, None] * n + cols[None, :], sums, mask=(rows[:, None] < m) & (cols[None, :] < n))
class ModelNew(nn.Module):
    def forward(self, a, b):
        (m, k), n = a.shape, b.shape[1]
        c = torch.empty(m, n, device=a.device)
        product[lambda t: (triton.cdiv(m, t["M"]), triton.cdiv(n, t["N"]))](a, b, c, m, n, k)
        return c
"""
_DESCRIBED = (
    """
from triton.tools.tensor_descriptor import TensorDescriptor
@triton.jit
def scaled(x, s_ptr, y, cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    at, across = [tl.program_id(0) * ROWS, tl.program_id(1) * COLS], tl.program_id(1) * COLS + tl.arange(0, COLS)
    s = tl.load(s_ptr + across, mask=across < cols, other=0.0)
    y.store(at, tl.maximum(x.load(at), 0.0) * s[None, :])
@triton.jit
def plain(x_ptr, s_ptr, y_ptr, n, cols, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, s = tl.load(x_ptr + i, mask=i < n), tl.load(s_ptr + i % cols, mask=i < n)
    tl.store(y_ptr + i, tl.maximum(x, 0.0) * s, mask=i < n)
"""
    + _WIDE
    + """    def forward(self, x):
        y, (rows, cols) = torch.empty_like(x), x.shape
        if cols % 4:
            plain[(triton.cdiv(x.numel(), 1024),)](x, self.scale, y, x.numel(), cols, BLOCK=1024)
            return y
        two = [TensorDescriptor.from_tensor(t, [16, 64]) for t in (x, y)]
        grid = (triton.cdiv(rows, 16), triton.cdiv(cols, 64))
        scaled[grid](two[0], self.scale, two[1], cols, ROWS=16, COLS=64)
        return y
"""
)
_SCRATCH = (
    """
triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
@triton.jit
def scaled(x_ptr, s_ptr, y_ptr, rows, cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [rows, cols], [cols, 1], [ROWS, COLS])
    y = tl.make_tensor_descriptor(y_ptr, [rows, cols], [cols, 1], [ROWS, COLS])
    at, across = [tl.program_id(0) * ROWS, tl.program_id(1) * COLS], tl.program_id(1) * COLS + tl.arange(0, COLS)
    s = tl.load(s_ptr + across, mask=across < cols, other=0.0)
    y.store(at, tl.maximum(x.load(at), 0.0) * s[None, :])
@triton.jit
def plain(x_ptr, s_ptr, y_ptr, n, cols, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, s = tl.load(x_ptr + i, mask=i < n), tl.load(s_ptr + i % cols, mask=i < n)
    tl.store(y_ptr + i, tl.maximum(x, 0.0) * s, mask=i < n)
"""
    + _WIDE
    + """    def forward(self, x):
        y, (rows, cols) = torch.empty_like(x), x.shape
        if cols % 4:
            plain[(triton.cdiv(x.numel(), 1024),)](x, self.scale, y, x.numel(), cols, BLOCK=1024)
        else:
            scaled[(triton.cdiv(rows, 16), triton.cdiv(cols, 64))](x, self.scale, y, rows, cols, ROWS=16, COLS=64)
        return y
"""
)
_CLUSTERS = (
    """
@triton.jit
def scaled(x_ptr, s_ptr, y_ptr, n, cols, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, s = tl.load(x_ptr + i, mask=i < n), tl.load(s_ptr + i % cols, mask=i < n)
    tl.store(y_ptr + i, tl.maximum(x, 0.0) * s, mask=i < n)
"""
    + _WIDE
    + """    def forward(self, x):
        y = torch.empty_like(x)
        scaled[(triton.cdiv(x.numel(), 1024),)](x, self.scale, y, x.numel(), x.shape[1], BLOCK=1024, num_ctas=2)
        return y
"""
)
_BACKWARD = """
@triton.jit
def silu(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, x * tl.sigmoid(x), mask=i < n)
@triton.jit
def silu_back(x_ptr, g_ptr, d_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, g = tl.load(x_ptr + i, mask=i < n), tl.load(g_ptr + i, mask=i < n)
    s = tl.sigmoid(x)
    tl.store(d_ptr + i, g * s * (1 + x * (1 - s)), mask=i < n)
class Silu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        y = torch.empty_like(x)
        silu[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        d = torch.empty_like(x)
        silu_back[(triton.cdiv(x.numel(), 1024),)](x, g.contiguous(), d, x.numel(), BLOCK=1024)
        return d
class ModelNew(nn.Module):
    def forward(self, x):
        return Silu.apply(x)
"""

TEXTS = [
    ("triton-autotune", tasks.RELU, HEAD + _TUNED),
    ("triton-autotune-softmax", tasks.SOFTMAX, HEAD + _SOFTMAX),
    ("triton-autotune-product", tasks.PRODUCT, HEAD + _PRODUCT),
    ("triton-descriptors", tasks.RELU, HEAD + _DESCRIBED),
    ("triton-scratch", tasks.RELU, HEAD + _SCRATCH),
    ("triton-clusters", tasks.RELU, HEAD + _CLUSTERS),
    ("triton-autograd", tasks.SQUARES, HEAD + _BACKWARD),
]
