"""Tasks with one product of float32 matrices, and the candidates' text around the product's device code."""

from __future__ import annotations

from dataclasses import dataclass

_TASK = """
import torch
import torch.nn as nn
import torch.nn.functional as F
M, K, N = {m}, {k}, {n}


class Model(nn.Module):
{members}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return [{init}]
"""

_CANDIDATE = '''
import torch
import torch.nn as nn

from kernelwright.cuda import Module

kernels = Module(r"""{device}
// One thread a row: what follows the product.
extern "C" __global__ void follow(const float* y, const float* bias, float* out, int M, int N) {{
    const int m = blockIdx.x * blockDim.x + threadIdx.x;
    if (m >= M) return;
    y += (long long)m * N;
    {follow}
}}
""")


def product(a, b, n, sk, sn):
    a, b = a.contiguous(), b.contiguous()
    M, K = a.shape
    c = torch.empty(M, n, device=a.device)
    largest = torch.zeros(2, dtype=torch.int32, device=a.device)
    kernels.absmax[(64, 1, 1), (256, 1, 1)](a, b, a.numel(), b.numel(), largest)
    kernels.product[((n + 7) // 8, (M + 15) // 16, 1), (32, 1, 1)](a, b, c, largest, M, K, n, sk, sn)
    return c


class ModelNew(nn.Module):
{members}
'''

_PLAIN = """    def forward(self, a, b):
        return product(a, b, b.shape[1], b.shape[1], 1)
"""
_LINEAR = """    def __init__(self, K, N):
        super().__init__()
        self.linear = nn.Linear(K, N)

    def forward(self, x):
        w = self.linear.weight
        y = product(x, w, w.shape[0], 1, w.shape[1])
        out = torch.empty({shape}, device=x.device)
        kernels.follow[((x.shape[0] + 63) // 64, 1, 1), (64, 1, 1)](y, self.linear.bias, out, *y.shape)
        return out
"""


@dataclass(frozen=True)
class Chain:
    """A task with one product: how the reference writes it, and what a kernel does with a row of the product."""

    reference: str
    inputs: str
    follow: str = ""
    shape: str = "x.shape[0], w.shape[0]"

    def task(self, m: int, k: int, n: int) -> str:
        """Returns the reference's module."""
        if not self.follow:
            members = f"    def forward(self, a, b):\n        return {self.reference}"
            return _TASK.format(m=m, k=k, n=n, members=members, inputs=self.inputs, init="")
        members = (
            "    def __init__(self, K, N):\n        super().__init__()\n        self.linear = nn.Linear(K, N)\n\n"
            f"    def forward(self, x):\n        return {self.reference}"
        )
        return _TASK.format(m=m, k=k, n=n, members=members, inputs=self.inputs, init="K, N")

    def candidate(self, device: str) -> str:
        """Returns a candidate's module around the device code of a product."""
        members = _LINEAR.format(shape=self.shape) if self.follow else _PLAIN
        return _CANDIDATE.format(device=device, follow=self.follow, members=members)


_EACH = "for (int n = 0; n < N; ++n) {{ const float v = y[n] + bias[n]; out[(long long)m * N + n] = {value}; }}"
_SUM = """float sum = 0.f;
    for (int n = 0; n < N; ++n) {{ const float v = y[n] + bias[n]; sum += {value}; }}
    out[m] = {result};"""

CHAINS: dict[str, Chain] = {
    "normal": Chain("torch.matmul(a, b)", "torch.randn(M, K), torch.randn(K, N)"),
    "uniform": Chain("torch.matmul(a, b)", "torch.rand(M, K), torch.rand(K, N)"),
    "linear_relu": Chain("F.relu(self.linear(x))", "torch.randn(M, K)", _EACH.format(value="fmaxf(v, 0.f)")),
    "linear_sigmoid": Chain(
        "torch.sigmoid(self.linear(x))", "torch.rand(M, K)", _EACH.format(value="1.f / (1.f + expf(-v))")
    ),
    "linear_sigmoid_sum": Chain(
        "torch.sigmoid(self.linear(x)).sum(dim=1)",
        "torch.rand(M, K)",
        _SUM.format(value="1.f / (1.f + expf(-v))", result="sum"),
        "x.shape[0]",
    ),
    "linear_square_mean": Chain(
        "self.linear(x).square().mean(dim=1)",
        "torch.randn(M, K)",
        _SUM.format(value="v * v", result="sum / N"),
        "x.shape[0]",
    ),
    "linear_logsumexp": Chain(
        "torch.logsumexp(self.linear(x), dim=1)",
        "torch.rand(M, K)",
        "float top = -INFINITY, sum = 0.f;\n"
        "    for (int n = 0; n < N; ++n) top = fmaxf(top, y[n] + bias[n]);\n"
        "    for (int n = 0; n < N; ++n) sum += expf(y[n] + bias[n] - top);\n"
        "    out[m] = top + logf(sum);",
        "x.shape[0]",
    ),
    "linear_scaled_residual": Chain(
        "1.0 + 0.01 * torch.tanh(self.linear(x))", "torch.rand(M, K)", _EACH.format(value="1.f + 0.01f * tanhf(v)")
    ),
}
"""Chains by name. In the later ones less of the product's error reaches the output."""
