"""Triton's matrix products in every form, and attention with its gradients."""

from __future__ import annotations

from .case import Case, model, task
from .triton_kernels import IMPORT, triton_case

_MATMUL = """@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, m, n, k, am, ak, bk, bn, cm, cn,
                  BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, k, BK):
        q = start + tl.arange(0, BK)
        a = tl.load(a_ptr + i[:, None] * am + q[None, :] * ak, mask=(i[:, None] < m) & (q[None, :] < k), other=0.0)
        b = tl.load(b_ptr + q[:, None] * bk + j[None, :] * bn, mask=(q[:, None] < k) & (j[None, :] < n), other=0.0)
        acc += tl.dot(a, b)
    c = acc.to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + i[:, None] * cm + j[None, :] * cn, c, mask=(i[:, None] < m) & (j[None, :] < n))
"""
MATMUL_PLAIN = (
    IMPORT
    + _MATMUL
    + model(
        "a, b",
        "(m, k), n = a.shape, b.shape[1]\nc = torch.empty((m, n), device=a.device, dtype=a.dtype)\n"
        "grid = (triton.cdiv(m, 64), triton.cdiv(n, 64))\n"
        "matmul_kernel[grid](a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride(), BM=64, BN=64, BK=32, num_warps=4)\n"
        "return c",
    )
)
LINEAR_BF16 = (
    IMPORT
    + _MATMUL
    + model(
        "x, w",
        "(m, k), n = x.shape, w.shape[0]\ny = torch.empty((m, n), device=x.device, dtype=x.dtype)\nw = w.t()\n"
        "grid = lambda meta: (triton.cdiv(m, meta['BM']), triton.cdiv(n, meta['BN']))\n"
        "matmul_kernel[grid](x, w, y, m, n, k, x.stride(0), x.stride(1), w.stride(0), w.stride(1), y.stride(0),\n"
        "                    y.stride(1), BM=32, BN=64, BK=64, num_warps=4, num_stages=2)\nreturn y",
    )
)

SPLIT_K = (
    IMPORT
    + """@triton.autotune(
    configs=[triton.Config({"BM": 32, "BN": 32, "BK": 32, "SPLIT": s}, num_warps=2) for s in (2, 4)],
    key=["m", "n", "k"], reset_to_zero=["c_ptr"],
)
@triton.heuristics({"EVEN": lambda args: args["k"] % (args["BK"] * args["SPLIT"]) == 0})
@triton.jit
def split_k_kernel(a_ptr, b_ptr, c_ptr, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                   SPLIT: tl.constexpr, EVEN: tl.constexpr):
    pid, part = tl.program_id(0), tl.program_id(1)
    width = tl.cdiv(n, BN)
    i = (pid // width) * BM + tl.arange(0, BM)
    j = (pid % width) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(part * BK, k, BK * SPLIT):
        q = start + tl.arange(0, BK)
        if EVEN:
            a = tl.load(a_ptr + i[:, None] * k + q[None, :], mask=i[:, None] < m, other=0.0)
            b = tl.load(b_ptr + q[:, None] * n + j[None, :], mask=j[None, :] < n, other=0.0)
        else:
            a = tl.load(a_ptr + i[:, None] * k + q[None, :], mask=(i[:, None] < m) & (q[None, :] < k), other=0.0)
            b = tl.load(b_ptr + q[:, None] * n + j[None, :], mask=(q[:, None] < k) & (j[None, :] < n), other=0.0)
        acc = tl.dot(a, b, acc)
    tl.atomic_add(c_ptr + i[:, None] * n + j[None, :], acc, mask=(i[:, None] < m) & (j[None, :] < n))
"""
    + model(
        "a, b",
        "(m, k), n = a.shape, b.shape[1]\nc = torch.zeros((m, n), device=a.device, dtype=torch.float32)\n"
        "grid = lambda meta: (triton.cdiv(m, meta['BM']) * triton.cdiv(n, meta['BN']), meta['SPLIT'])\n"
        "split_k_kernel[grid](a, b, c, m, n, k)\nreturn c",
    )
)

_ATTENTION = """@triton.jit
def attention_kernel(q_ptr, k_ptr, v_ptr, o_ptr, l_ptr, n, scale, D, CAUSAL: tl.constexpr,
                     BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr):
    head = tl.program_id(1)
    base = head * n * D
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, BD)
    q = tl.load(q_ptr + base + i[:, None] * D + d[None, :], mask=(i[:, None] < n) & (d[None, :] < D), other=0.0)
    top = tl.full((BM,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    acc = tl.zeros((BM, BD), dtype=tl.float32)
    stop = tl.minimum(n, (tl.program_id(0) + 1) * BM) if CAUSAL else n
    for start in range(0, stop, BN):
        j = start + tl.arange(0, BN)
        k = tl.load(k_ptr + base + j[None, :] * D + d[:, None], mask=(j[None, :] < n) & (d[:, None] < D), other=0.0)
        v = tl.load(v_ptr + base + j[:, None] * D + d[None, :], mask=(j[:, None] < n) & (d[None, :] < D), other=0.0)
        s = tl.dot(q, k, input_precision="ieee") * scale
        keep = j[None, :] < n
        if CAUSAL:
            keep = keep & (i[:, None] >= j[None, :])
        s = tl.where(keep, s, -float("inf"))
        new = tl.maximum(top, tl.max(s, 1))
        shrink = tl.exp(top - new)
        p = tl.exp(s - new[:, None])
        total = total * shrink + tl.sum(p, 1)
        acc = acc * shrink[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        top = new
    tl.store(o_ptr + base + i[:, None] * D + d[None, :], (acc / total[:, None]).to(o_ptr.dtype.element_ty),
             mask=(i[:, None] < n) & (d[None, :] < D))
    tl.store(l_ptr + head * n + i, top + tl.log(total), mask=i < n)
"""
_FORWARD = """def padded(d):
    return max(16, triton.next_power_of_2(d))


def attention(q, k, v, causal):
    heads, n, d = q.shape
    o = torch.empty_like(q)
    l = torch.empty((heads, n), device=q.device, dtype=torch.float32)
    attention_kernel[(triton.cdiv(n, 32), heads)](q, k, v, o, l, n, d ** -0.5, d, causal,
                                                  BM=32, BN=32, BD=padded(d), num_warps=4, num_stages=2)
    return o, l
"""
FLASH_FORWARD = (
    IMPORT
    + _ATTENTION
    + "\n\n"
    + _FORWARD
    + model("q, k, v", "return attention(q.contiguous(), k.contiguous(), v.contiguous(), True)[0]")
)
FLASH_BACKWARD = (
    IMPORT
    + _ATTENTION
    + """

@triton.jit
def softsign_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, x / (1.0 + tl.abs(x)), mask=at < n)


@triton.jit
def softsign_gradient_kernel(x_ptr, g_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    slope = 1.0 / (1.0 + tl.abs(tl.load(x_ptr + at, mask=at < n)))
    tl.store(g_ptr + at, tl.load(g_ptr + at, mask=at < n) * slope * slope, mask=at < n)


@triton.jit
def tile(ptr, base, rows, n, d, D):
    return tl.load(ptr + base + rows[:, None] * D + d[None, :], mask=(rows[:, None] < n) & (d[None, :] < D), other=0.0)


@triton.jit
def probabilities(q, k, v, do, l, i, j, n, scale):
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    p = tl.where((i[:, None] < n) & (j[None, :] < n), tl.exp(s - l[:, None]), 0.0)
    return p, tl.dot(do, tl.trans(v), input_precision="ieee")


@triton.jit
def query_gradient_kernel(q_ptr, k_ptr, v_ptr, do_ptr, l_ptr, delta_ptr, dq_ptr, n, scale, D,
                          B: tl.constexpr, BD: tl.constexpr):
    head = tl.program_id(1)
    base = head * n * D
    i = tl.program_id(0) * B + tl.arange(0, B)
    d = tl.arange(0, BD)
    q, do = tile(q_ptr, base, i, n, d, D), tile(do_ptr, base, i, n, d, D)
    l = tl.load(l_ptr + head * n + i, mask=i < n, other=0.0)
    delta = tl.zeros((B,), dtype=tl.float32)
    for start in range(0, n, B):
        j = start + tl.arange(0, B)
        k, v = tile(k_ptr, base, j, n, d, D), tile(v_ptr, base, j, n, d, D)
        p, dp = probabilities(q, k, v, do, l, i, j, n, scale)
        delta += tl.sum(p * dp, 1)
    dq = tl.zeros((B, BD), dtype=tl.float32)
    for start in range(0, n, B):
        j = start + tl.arange(0, B)
        k, v = tile(k_ptr, base, j, n, d, D), tile(v_ptr, base, j, n, d, D)
        p, dp = probabilities(q, k, v, do, l, i, j, n, scale)
        dq += tl.dot(p * (dp - delta[:, None]) * scale, k, input_precision="ieee")
    mask = (i[:, None] < n) & (d[None, :] < D)
    tl.store(dq_ptr + base + i[:, None] * D + d[None, :], dq, mask=mask)
    tl.store(delta_ptr + head * n + i, delta, mask=i < n)


@triton.jit
def key_gradient_kernel(q_ptr, k_ptr, v_ptr, do_ptr, l_ptr, delta_ptr, dk_ptr, dv_ptr, n, scale, D,
                        B: tl.constexpr, BD: tl.constexpr):
    head = tl.program_id(1)
    base = head * n * D
    j = tl.program_id(0) * B + tl.arange(0, B)
    d = tl.arange(0, BD)
    k, v = tile(k_ptr, base, j, n, d, D), tile(v_ptr, base, j, n, d, D)
    dk = tl.zeros((B, BD), dtype=tl.float32)
    dv = tl.zeros((B, BD), dtype=tl.float32)
    for start in range(0, n, B):
        i = start + tl.arange(0, B)
        q, do = tile(q_ptr, base, i, n, d, D), tile(do_ptr, base, i, n, d, D)
        l = tl.load(l_ptr + head * n + i, mask=i < n, other=0.0)
        delta = tl.load(delta_ptr + head * n + i, mask=i < n, other=0.0)
        p, dp = probabilities(q, k, v, do, l, i, j, n, scale)
        dv += tl.dot(tl.trans(p), do, input_precision="ieee")
        dk += tl.dot(tl.trans(p * (dp - delta[:, None]) * scale), q, input_precision="ieee")
    mask = (j[:, None] < n) & (d[None, :] < D)
    tl.store(dk_ptr + base + j[:, None] * D + d[None, :], dk, mask=mask)
    tl.store(dv_ptr + base + j[:, None] * D + d[None, :], dv, mask=mask)


"""
    + _FORWARD
    + """

def bounded(x):
    y = torch.empty_like(x)
    softsign_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v):
        given, v = (q.contiguous(), k.contiguous()), v.contiguous()
        q, k = bounded(given[0]), bounded(given[1])
        o, l = attention(q, k, v, False)
        ctx.save_for_backward(*given, q, k, v, l)
        return o

    @staticmethod
    def backward(ctx, do):
        given_q, given_k, q, k, v, l = ctx.saved_tensors
        heads, n, d = q.shape
        do, delta = do.contiguous(), torch.empty_like(l)
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        grid, sizes = (triton.cdiv(n, 16), heads), dict(B=16, BD=padded(d))
        query_gradient_kernel[grid](q, k, v, do, l, delta, dq, n, d ** -0.5, d, **sizes)
        key_gradient_kernel[grid](q, k, v, do, l, delta, dk, dv, n, d ** -0.5, d, **sizes)
        for x, gradient in ((given_q, dq), (given_k, dk)):
            softsign_gradient_kernel[(triton.cdiv(x.numel(), 1024),)](x, gradient, x.numel(), BLOCK=1024)
        return dq, dk, dv
"""
    + model("q, k, v", "return Attention.apply(q, k, v)")
)


_PRODUCT = "return a @ b"
_HEADS = ", ".join(["torch.randn(heads, n, d)"] * 3)
CASES: tuple[Case, ...] = (
    triton_case(
        "matmul-half",
        task("m = 1000\nk = 700\nn = 900", "torch.randn(m, k).half(), torch.randn(k, n).half()", "a, b", _PRODUCT),
        MATMUL_PLAIN,
    ),
    # A product in TF32 is what Triton gives by default; the task says that it is enough.
    triton_case(
        "matmul-tf32",
        task("m = 1000\nk = 640\nn = 900", "torch.randn(m, k), torch.randn(k, n)", "a, b", _PRODUCT),
        MATMUL_PLAIN + "# TF32\n",
        tolerance=5e-3,
    ),
    triton_case(
        "linear-bf16",
        task(
            "m = 777\nk = 1024\nn = 1536",
            "torch.randn(m, k).bfloat16(), torch.randn(n, k).bfloat16()",
            "x, w",
            "return F.linear(x, w)",
        ),
        LINEAR_BF16,
    ),
    triton_case(
        "split-k-half",
        task(
            "m = 160\nk = 4096\nn = 192",
            "torch.randn(m, k).half(), torch.randn(k, n).half()",
            "a, b",
            "return a.float() @ b.float()",
        ),
        SPLIT_K,
    ),
    triton_case(
        "flash-attention-half",
        task(
            "heads = 24\nn = 1027\nd = 64",
            ", ".join(["torch.randn(heads, n, d).half()"] * 3),
            "q, k, v",
            "return F.scaled_dot_product_attention(q, k, v, is_causal=True)",
        ),
        FLASH_FORWARD,
    ),
    triton_case(
        "flash-attention-backward",
        task(
            "GRADIENTS = True\nheads = 8\nn = 515\nd = 32",
            _HEADS,
            "q, k, v",
            # Bounded queries and keys: where a softmax is saturated, gradients are nothing but rounding.
            "s = F.softsign(q) @ F.softsign(k).transpose(1, 2) * q.shape[-1] ** -0.5\nreturn torch.softmax(s, -1) @ v",
        ),
        FLASH_BACKWARD,
    ),
)
