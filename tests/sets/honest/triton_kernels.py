"""Triton kernels. They need Triton, with a GPU or without; a CUDA graph needs the GPU."""

from __future__ import annotations

from .case import HEAD, Case, model, task

IMPORT = HEAD + "import triton\nimport triton.language as tl\n\n\n"
_REASON = "Triton is an optional extra"

SWISH = (
    IMPORT
    + """@triton.jit
def swish_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask)
    tl.store(y_ptr + at, x * tl.sigmoid(x), mask=mask)
"""
    + model(
        "x",
        "y = torch.empty_like(x)\nn = x.numel()\nswish_kernel[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)\nreturn y",
    )
)

ADD_RELU_HALF = (
    IMPORT
    + """@triton.jit
def add_relu_kernel(a_ptr, b_ptr, y_ptr, n, scale, BLOCK: tl.constexpr):
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    at = start + tl.arange(0, BLOCK)
    a = tl.load(a_ptr + at, mask=at < n, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + at, mask=at < n, other=0.0).to(tl.float32)
    y = tl.maximum(a + scale * b, 0.0)
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=at < n)
"""
    + model(
        "a, b",
        "y = torch.empty_like(a)\nn = a.numel()\ngrid = lambda meta: (triton.cdiv(n, meta['BLOCK']),)\n"
        "add_relu_kernel[grid](a, b, y, n, 0.5, BLOCK=2048, num_warps=8)\nreturn y",
    )
)

SOFTMAX = (
    IMPORT
    + """@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    j = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + j, mask=j < cols, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * stride + j, e / tl.sum(e, axis=0), mask=j < cols)
"""
    + model(
        "x",
        "y = torch.empty_like(x)\nrows, cols = x.shape\n"
        "softmax_kernel[(rows,)](x, y, x.stride(0), cols, BLOCK=triton.next_power_of_2(cols), num_warps=8)\nreturn y",
    )
)

LAYER_NORM = (
    IMPORT
    + """@triton.jit
def layer_norm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, cols, eps, BLOCK: tl.constexpr):
    x_ptr += tl.program_id(0) * cols
    y_ptr += tl.program_id(0) * cols
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, cols, BLOCK):
        j = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + j, mask=j < cols, other=0.0)
    mean = tl.sum(total, axis=0) / cols
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, cols, BLOCK):
        j = start + tl.arange(0, BLOCK)
        d = tl.where(j < cols, tl.load(x_ptr + j, mask=j < cols, other=0.0) - mean, 0.0)
        total += d * d
    scale = 1.0 / tl.sqrt(tl.sum(total, axis=0) / cols + eps)
    for start in range(0, cols, BLOCK):
        j = start + tl.arange(0, BLOCK)
        mask = j < cols
        w = tl.load(w_ptr + j, mask=mask)
        b = tl.load(b_ptr + j, mask=mask)
        tl.store(y_ptr + j, (tl.load(x_ptr + j, mask=mask) - mean) * scale * w + b, mask=mask)
"""
    + model(
        "x",
        "y = torch.empty_like(x)\ncols = x.shape[-1]\n"
        "layer_norm_kernel[(x.numel() // cols,)](x, self.norm.weight, self.norm.bias, y, cols, 1e-5, BLOCK=1024)\nreturn y",
        init="width",
        setup="self.norm = nn.LayerNorm(width)",
    )
)

_MATMUL_BODY = """def matmul_kernel(a_ptr, b_ptr, c_ptr, m, n, k, am, ak, bk, bn, cm, cn,
                  BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    pid = tl.program_id(0)
    rows, cols = tl.cdiv(m, BM), tl.cdiv(n, BN)
    # Programs go down GROUP rows of tiles before the next column, so that operands stay in L2.
    width = GROUP * cols
    first = pid // width * GROUP
    size = min(rows - first, GROUP)
    pm, pn = first + pid % width % size, pid % width // size
    i = pm * BM + tl.arange(0, BM)
    j = pn * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for t in range(0, k, BK):
        q = t + tl.arange(0, BK)
        a = tl.load(a_ptr + i[:, None] * am + q[None, :] * ak, mask=(i[:, None] < m) & (q[None, :] < k), other=0.0)
        b = tl.load(b_ptr + q[:, None] * bk + j[None, :] * bn, mask=(q[:, None] < k) & (j[None, :] < n), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    c = acc.to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + i[:, None] * cm + j[None, :] * cn, c, mask=(i[:, None] < m) & (j[None, :] < n))
"""
_MATMUL_MODEL = model(
    "a, b",
    "(m, k), n = a.shape, b.shape[1]\nc = torch.empty((m, n), device=a.device, dtype=a.dtype)\n"
    "matmul_kernel[GRID(m, n)](a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride()SIZES)\nreturn c",
)
MATMUL = (
    IMPORT
    + "@triton.jit\n"
    + _MATMUL_BODY
    + _MATMUL_MODEL.replace("[GRID(m, n)]", "[(triton.cdiv(m, 64) * triton.cdiv(n, 64),)]").replace(
        "SIZES", ", BM=64, BN=64, BK=32, GROUP=8"
    )
)
MATMUL_TUNED = (
    IMPORT
    + """@triton.autotune(
    configs=[
        triton.Config({"BM": 64, "BN": 64, "BK": 32, "GROUP": 8}, num_stages=2, num_warps=4),
        triton.Config({"BM": 128, "BN": 64, "BK": 32, "GROUP": 8}, num_stages=3, num_warps=4),
    ],
    key=["m", "n", "k"],
)
@triton.jit
"""
    + _MATMUL_BODY
    + _MATMUL_MODEL.replace(
        "[GRID(m, n)]", "[lambda meta: (triton.cdiv(m, meta['BM']) * triton.cdiv(n, meta['BN']),)]"
    ).replace("SIZES", "")
)

TUNED_GELU = (
    IMPORT
    + """@triton.autotune(
    configs=[triton.Config({"BLOCK": b}, num_warps=w) for b, w in ((512, 4), (1024, 4), (2048, 8))], key=["n"]
)
@triton.jit
def gelu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476)), mask=at < n)
"""
    + model(
        "x",
        "y = torch.empty_like(x)\nn = x.numel()\n"
        "gelu_kernel[lambda meta: (triton.cdiv(n, meta['BLOCK']),)](x, y, n)\nreturn y",
    )
)

SCAN = (
    IMPORT
    + """@triton.jit
def cumsum_kernel(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    x_ptr += tl.program_id(0) * cols
    y_ptr += tl.program_id(0) * cols
    carry = 0.0
    for start in range(0, cols, BLOCK):
        j = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + j, mask=j < cols, other=0.0)
        tl.store(y_ptr + j, tl.cumsum(x, axis=0) + carry, mask=j < cols)
        carry += tl.sum(x, axis=0)
"""
    + model("x", "y = torch.empty_like(x)\ncumsum_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=1024)\nreturn y")
)

COLUMN_SUM = (
    IMPORT
    + """@triton.jit
def column_sum_kernel(x_ptr, y_ptr, rows, cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    j = tl.program_id(0) * COLS + tl.arange(0, COLS)
    total = tl.zeros((COLS,), dtype=tl.float32)
    for start in range(tl.program_id(1) * ROWS, rows, tl.num_programs(1) * ROWS):
        i = start + tl.arange(0, ROWS)
        mask = (i[:, None] < rows) & (j[None, :] < cols)
        total += tl.sum(tl.load(x_ptr + i[:, None] * cols + j[None, :], mask=mask, other=0.0), axis=0)
    tl.atomic_add(y_ptr + j, total, mask=j < cols)
"""
    + model(
        "x",
        "rows, cols = x.shape\ny = torch.zeros(cols, device=x.device)\n"
        "column_sum_kernel[(triton.cdiv(cols, 64), 8)](x, y, rows, cols, ROWS=32, COLS=64)\nreturn y",
    )
)

GRAPHED = SWISH.replace(
    model(
        "x",
        "y = torch.empty_like(x)\nn = x.numel()\nswish_kernel[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)\nreturn y",
    ),
    """

def swish(x):
    y = torch.empty_like(x)
    swish_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.graphs = {}

    def forward(self, x):
        if x.shape not in self.graphs:
            static = x.clone()
            swish(static)  # compiles before anything is captured
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = swish(swish(static))
            self.graphs[x.shape] = (graph, static, out)
        graph, static, out = self.graphs[x.shape]
        static.copy_(x)
        graph.replay()
        return out.clone()
""",
)


def triton_case(name: str, task_source: str, candidate: str, tolerance: float | None = None) -> Case:
    return Case(f"triton-{name}", task_source, candidate, needs="triton", reason=_REASON, tolerance=tolerance)


_FLAT = "n = 4_300_027"
_ROWS = "rows = 1601\ncols = 2803"
_PRODUCT = "return a @ b"
CASES = (
    triton_case("swish", task(_FLAT, "torch.randn(n)", "x", "return F.silu(x)"), SWISH),
    triton_case(
        "add-relu-half",
        task(_FLAT, "torch.randn(n).half(), torch.randn(n).half()", "a, b", "return torch.relu(a + 0.5 * b)"),
        ADD_RELU_HALF,
    ),
    triton_case("softmax", task(_ROWS, "torch.randn(rows, cols)", "x", "return torch.softmax(x, 1)"), SOFTMAX),
    triton_case(
        "layer-norm",
        task(
            "rows = 2003\nwidth = 1537",
            "torch.randn(rows, width)",
            "x",
            "return self.norm(x)",
            init="width",
            setup="self.norm = nn.LayerNorm(width)",
            init_inputs="width",
        ),
        LAYER_NORM,
    ),
    triton_case(
        "matmul",
        task("m = 1000\nk = 515\nn = 777", "torch.randn(m, k), torch.randn(k, n)", "a, b", _PRODUCT),
        MATMUL,
    ),
    triton_case(
        "matmul-autotuned-half",
        task("m = 1024\nk = 768\nn = 1280", "torch.randn(m, k).half(), torch.randn(k, n).half()", "a, b", _PRODUCT),
        MATMUL_TUNED,
    ),
    triton_case("gelu-autotuned", task(_FLAT, "torch.randn(n)", "x", "return F.gelu(x)"), TUNED_GELU),
    triton_case("cumsum", task(_ROWS, "torch.randn(rows, cols)", "x", "return torch.cumsum(x, 1)"), SCAN),
    triton_case("column-sum-atomics", task(_ROWS, "torch.randn(rows, cols)", "x", "return x.sum(0)"), COLUMN_SUM),
    Case(
        "triton-graph",
        task(_FLAT, "torch.randn(n)", "x", "return F.silu(F.silu(x))"),
        GRAPHED,
        needs="gpu",
        reason="the functional machine has no CUDA graphs",
    ),
    # Named like a library's kernel, but defined in the text, so it counts as the candidate's own.
    triton_case(
        "library-name",
        task("m = 700\nk = 513\nn = 641", "torch.randn(m, k), torch.randn(k, n)", "a, b", _PRODUCT),
        MATMUL.replace("matmul_kernel", "flash_fwd_gemm_kernel"),
    ),
)
