"""A Triton product, in a module of its own: Triton reads the kernel's source from the file."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def dot(a, b, c, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, N_MAJOR: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.arange(0, BN)
    inner = tl.arange(0, BK)
    sums = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, k, BK):
        x = tl.load(a + rows[:, None] * k + (k0 + inner)[None, :])
        if N_MAJOR:
            y = tl.load(b + (k0 + inner)[:, None] * n + columns[None, :])
        else:
            y = tl.load(b + columns[None, :] * k + (k0 + inner)[:, None])
        sums = tl.dot(x, y, sums)
    tl.store(c + rows[:, None] * n + columns[None, :], sums)
