"""More Triton kernels: norms, losses, gathers and scatters, and further features of the language."""

from __future__ import annotations

from .case import Case, model, task
from .triton_kernels import IMPORT, triton_case

RMS_NORM = (
    IMPORT
    + """@triton.jit
def rms_norm_kernel(x_ptr, w_ptr, y_ptr, stride, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    j = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + j, mask=j < cols, other=0.0).to(tl.float32)
    scale = tl.math.rsqrt(tl.sum(x * x, axis=0) / cols + eps)
    w = tl.load(w_ptr + j, mask=j < cols, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * stride + j, (x * scale * w).to(tl.bfloat16), mask=j < cols)
"""
    + model(
        "x, w",
        "y = torch.empty_like(x)\nrows, cols = x.shape\nBLOCK = triton.next_power_of_2(cols)\n"
        "warps = min(max(BLOCK // 256, 1), 8)\n"
        "rms_norm_kernel[(rows,)](x, w, y, x.stride(0), cols, 1e-6, BLOCK=BLOCK, num_warps=warps)\nreturn y",
    )
)

CROSS_ENTROPY = (
    IMPORT
    + """@triton.jit
def cross_entropy_kernel(x_ptr, target_ptr, loss_ptr, classes, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * classes
    top, total = -float("inf"), 0.0
    for start in range(0, classes, BLOCK):
        j = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + j, mask=j < classes, other=-float("inf"))
        new = tl.maximum(top, tl.max(x, axis=0))
        total = total * tl.exp(top - new) + tl.sum(tl.exp(x - new), axis=0)
        top = new
    picked = tl.load(x_ptr + tl.load(target_ptr + row))
    tl.store(loss_ptr + row, top + tl.log(total) - picked)
"""
    + model(
        "x, target",
        "loss = torch.empty(x.shape[0], device=x.device)\n"
        "cross_entropy_kernel[(x.shape[0],)](x, target, loss, x.shape[1], BLOCK=512)\nreturn loss",
    )
)

_PHILOX_REFERENCE = """x = x.float()
mask = 0xFFFFFFFF
def high_low(a, b):
    low, middle = a * (b & 0xFFFF), a * (b >> 16)
    return ((middle + (low >> 16)) >> 16) & mask, (low + ((middle & 0xFFFF) << 16)) & mask
c0 = torch.arange(x.numel(), device=x.device)
c1, c2, c3 = torch.zeros_like(c0), torch.zeros_like(c0), torch.zeros_like(c0)
k0, k1 = 1234, 0
for _ in range(10):
    h0, l0 = high_low(c0, 0xD2511F53)
    h2, l2 = high_low(c2, 0xCD9E8D57)
    c0, c1, c2, c3 = h2 ^ c1 ^ k0, l2, h0 ^ c3 ^ k1, l0
    k0, k1 = (k0 + 0x9E3779B9) & mask, (k1 + 0xBB67AE85) & mask
signed = torch.where(c0 >= 2**31, 0xFFFFFFFF - c0, c0)
keep = (signed.double() * 4.6566127342e-10 > 0.3).view(x.shape)
return torch.where(keep, x / 0.7, 0.0)
"""
DROPOUT = (
    IMPORT
    + """@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    keep = tl.rand(seed, at) > p
    tl.store(y_ptr + at, tl.where(keep, x / (1 - p), 0.0), mask=at < n)
"""
    + model(
        "x",
        "y = torch.empty_like(x)\nn = x.numel()\n"
        "dropout_kernel[(triton.cdiv(n, 1024),)](x, y, n, 0.3, 1234, BLOCK=1024)\nreturn y",
    )
)

HISTOGRAM = (
    IMPORT
    + """@triton.jit
def histogram_kernel(x_ptr, y_ptr, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bins = tl.minimum(tl.maximum((tl.load(x_ptr + at, mask=at < n, other=0.0) * BINS).to(tl.int32), 0), BINS - 1)
    tl.atomic_add(y_ptr + bins, 1, mask=at < n, sem="relaxed")
"""
    + model(
        "x",
        "y = torch.zeros(64, device=x.device, dtype=torch.int32)\nn = x.numel()\n"
        "histogram_kernel[(triton.cdiv(n, 1024),)](x, y, n, BINS=64, BLOCK=1024)\nreturn y",
    )
)

TRANSPOSE = (
    IMPORT
    + """@triton.jit
def transpose_kernel(x_ptr, y_ptr, rows, cols, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    j = tl.program_id(1) * B + tl.arange(0, B)
    mask = (i[:, None] < rows) & (j[None, :] < cols)
    x = tl.load(x_ptr + i[:, None] * cols + j[None, :], mask=mask)
    tl.store(y_ptr + j[:, None] * rows + i[None, :], tl.trans(x), mask=tl.trans(mask))
"""
    + model(
        "x",
        "rows, cols = x.shape\ny = torch.empty((cols, rows), device=x.device, dtype=x.dtype)\n"
        "transpose_kernel[(triton.cdiv(rows, 64), triton.cdiv(cols, 64))](x, y, rows, cols, 64)\nreturn y",
    )
)

DESCRIPTORS = (
    IMPORT
    + """@triton.jit
def scaled_copy_kernel(x, y_ptr, rows, cols, factor, BR: tl.constexpr, BC: tl.constexpr):
    y = tl.make_tensor_descriptor(y_ptr, shape=[rows, cols], strides=[cols, 1], block_shape=[BR, BC])
    r, c = tl.program_id(0) * BR, tl.program_id(1) * BC
    y.store([r, c], x.load([r, c]) * factor)
"""
    + """

from triton.tools.tensor_descriptor import TensorDescriptor


def allocate(size, alignment, stream):
    return torch.empty(size, device="cuda", dtype=torch.int8)


triton.set_allocator(allocate)
"""
    + model(
        "x",
        "rows, cols = x.shape\ny = torch.empty_like(x)\n"
        "wide = (cols + 3) // 4 * 4\n"
        "if wide != cols:  # rows of a descriptor begin at multiples of 16 bytes\n"
        "    padded = torch.zeros((rows, wide), device=x.device)\n    padded[:, :cols] = x\n    x = padded\n"
        "    y = torch.empty((rows, wide), device=x.device)\n"
        "source = TensorDescriptor(x, [rows, wide], [wide, 1], [32, 64])\n"
        "scaled_copy_kernel[(triton.cdiv(rows, 32), triton.cdiv(wide, 64))](source, y, rows, wide, 1.5, BR=32, BC=64)\n"
        "return y[:, :cols].contiguous()",
    )
)

SORT = (
    IMPORT
    + """@triton.jit
def sort_kernel(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    j = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + j, mask=j < cols, other=float("inf"))
    tl.store(y_ptr + row * cols + j, tl.sort(x), mask=j < cols)
"""
    + model(
        "x",
        "y = torch.empty_like(x)\nrows, cols = x.shape\n"
        "sort_kernel[(rows,)](x, y, cols, BLOCK=triton.next_power_of_2(cols))\nreturn y",
    )
)

RECURRENCE = (
    IMPORT
    + """@triton.jit
def combine(a, b, c, d):
    return a * c, b * c + d


@triton.jit
def recurrence_kernel(a_ptr, b_ptr, h_ptr, steps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    t = tl.arange(0, BLOCK)
    a = tl.load(a_ptr + row * steps + t, mask=t < steps, other=1.0)
    b = tl.load(b_ptr + row * steps + t, mask=t < steps, other=0.0)
    _, h = tl.associative_scan((a, b), 0, combine)
    tl.store(h_ptr + row * steps + t, h, mask=t < steps)
"""
    + model(
        "a, b",
        "h = torch.empty_like(b)\nrows, steps = a.shape\n"
        "recurrence_kernel[(rows,)](a, b, h, steps, BLOCK=triton.next_power_of_2(steps))\nreturn h",
    )
)

WELFORD = (
    IMPORT
    + """@triton.jit
def join(mean_a, m2_a, count_a, mean_b, m2_b, count_b):
    count = count_a + count_b
    share = tl.where(count > 0, count_b / tl.maximum(count, 1.0), 0.0)
    delta = mean_b - mean_a
    return mean_a + delta * share, m2_a + m2_b + delta * delta * count_a * share, count


@triton.jit
def variance_kernel(x_ptr, mean_ptr, var_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    j = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + j, mask=j < cols, other=0.0)
    count = (j < cols).to(tl.float32)
    mean, m2, total = tl.reduce((x, tl.zeros_like(x), count), 0, join)
    tl.store(mean_ptr + row, mean)
    tl.store(var_ptr + row, m2 / total)
"""
    + model(
        "x",
        "rows, cols = x.shape\nmean = torch.empty(rows, device=x.device)\nvar = torch.empty(rows, device=x.device)\n"
        "variance_kernel[(rows,)](x, mean, var, cols, BLOCK=triton.next_power_of_2(cols), num_warps=4)\nreturn mean, var",
    )
)

LIBDEVICE_GELU = (
    IMPORT
    + """from triton.language.extra import libdevice


@triton.jit
def cube(x):
    return x * x * x


@triton.jit
def tanh_gelu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    y = 0.5 * x * (1.0 + libdevice.tanh(0.7978845608028654 * (x + 0.044715 * cube(x))))
    tl.store(y_ptr + at, y, mask=at < n)
"""
    + model(
        "x",
        "y = torch.empty_like(x)\nn = x.numel()\ntanh_gelu_kernel[(triton.cdiv(n, 512),)](x, y, n, BLOCK=512)\nreturn y",
    )
)

INLINE_ASSEMBLY = (
    IMPORT
    + '''@triton.jit
def clamp_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    y = tl.inline_asm_elementwise(
        """
        {
            .reg .f32 t;
            max.f32 t, $1, 0f00000000;
            min.f32 $0, t, 0f40C00000;
        }
        """,
        "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1,
    )
    tl.store(y_ptr + at, y, mask=at < n)
'''
    + model(
        "x",
        "y = torch.empty_like(x)\nn = x.numel()\nclamp_kernel[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)\nreturn y",
    )
)

EMBEDDING = (
    IMPORT
    + """@triton.jit
def embedding_kernel(table_ptr, index_ptr, y_ptr, count, width, ROWS: tl.constexpr, COLS: tl.constexpr):
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    row = tl.load(index_ptr + i, mask=i < count, other=0)
    for start in tl.range(0, width, COLS, num_stages=2):
        j = start + tl.arange(0, COLS)
        mask = (i[:, None] < count) & (j[None, :] < width)
        x = tl.load(table_ptr + row[:, None] * width + j[None, :], mask=mask)
        tl.store(y_ptr + i[:, None] * width + j[None, :], x, mask=mask)
"""
    + model(
        "table, index",
        "count, width = index.numel(), table.shape[1]\n"
        "y = torch.empty((count, width), device=table.device, dtype=table.dtype)\n"
        "embedding_kernel[(triton.cdiv(count, 16),)](table, index, y, count, width, ROWS=16, COLS=64)\nreturn y",
    )
)

PERSISTENT_SWIGLU = (
    IMPORT
    + """@triton.jit
def swiglu_kernel(x_ptr, y_ptr, rows, cols, BLOCK: tl.constexpr):
    tiles = tl.cdiv(cols, BLOCK)
    for tile in range(tl.program_id(0), rows * tiles, tl.num_programs(0)):
        row, j = tile // tiles, tile % tiles * BLOCK + tl.arange(0, BLOCK)
        gate = tl.load(x_ptr + row * 2 * cols + j, mask=j < cols).to(tl.float32)
        up = tl.load(x_ptr + row * 2 * cols + cols + j, mask=j < cols).to(tl.float32)
        y = gate * tl.sigmoid(gate) * up
        tl.store(y_ptr + row * cols + j, y.to(y_ptr.dtype.element_ty), mask=j < cols)


PROCESSORS = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
"""
    + model(
        "x",
        "rows, cols = x.shape[0], x.shape[1] // 2\ny = torch.empty((rows, cols), device=x.device, dtype=x.dtype)\n"
        "grid = (min(PROCESSORS, rows * triton.cdiv(cols, 256)),)\n"
        "swiglu_kernel[grid](x, y, rows, cols, BLOCK=256)\nreturn y",
    )
)

INT8_MATMUL = (
    IMPORT
    + """@triton.jit
def int8_matmul_kernel(a_ptr, b_ptr, c_ptr, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.int32)
    for start in range(0, k, BK):
        q = start + tl.arange(0, BK)
        a = tl.load(a_ptr + i[:, None] * k + q[None, :], mask=(i[:, None] < m) & (q[None, :] < k), other=0)
        b = tl.load(b_ptr + q[:, None] * n + j[None, :], mask=(q[:, None] < k) & (j[None, :] < n), other=0)
        acc = tl.dot(a, b, acc, out_dtype=tl.int32)
    tl.store(c_ptr + i[:, None] * n + j[None, :], acc, mask=(i[:, None] < m) & (j[None, :] < n))
"""
    + model(
        "a, b",
        "(m, k), n = a.shape, b.shape[1]\nc = torch.empty((m, n), device=a.device, dtype=torch.int32)\n"
        "int8_matmul_kernel[(triton.cdiv(m, 32), triton.cdiv(n, 32))](a, b, c, m, n, k, 32, 32, 64)\nreturn c",
    )
)

CHANNEL_NORM = (
    IMPORT
    + """@triton.jit
def batch_norm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, batch, channels, size, eps, BLOCK: tl.constexpr):
    c = tl.program_id(0)
    total, square = 0.0, 0.0
    count = batch * size
    for start in range(0, count, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + (at // size * channels + c) * size + at % size, mask=at < count, other=0.0)
        total += tl.sum(x)
    mean = total / count
    for start in range(0, count, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + (at // size * channels + c) * size + at % size, mask=at < count, other=0.0)
        square += tl.sum(tl.where(at < count, (x - mean) * (x - mean), 0.0))
    scale = tl.load(w_ptr + c) / tl.sqrt(square / count + eps)
    for start in range(0, count, BLOCK):
        at = start + tl.arange(0, BLOCK)
        place = (at // size * channels + c) * size + at % size
        x = tl.load(x_ptr + place, mask=at < count)
        tl.store(y_ptr + place, (x - mean) * scale + tl.load(b_ptr + c), mask=at < count)
"""
    + model(
        "x",
        "y = torch.empty_like(x)\nbatch, channels = x.shape[:2]\n"
        "batch_norm_kernel[(channels,)](x, self.weight, self.bias, y, batch, channels, x[0, 0].numel(), 1e-5, BLOCK=1024)\n"
        "return y",
        init="channels",
        setup="self.weight = nn.Parameter(torch.ones(channels))\nself.bias = nn.Parameter(torch.zeros(channels))",
    )
)


_FLAT = "n = 4_300_027"
CASES: tuple[Case, ...] = (
    triton_case(
        "rms-norm-bf16",
        task(
            "rows = 2003\ncols = 3000",
            "torch.randn(rows, cols).bfloat16(), torch.randn(cols).bfloat16()",
            "x, w",
            "f = x.float()\nreturn (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + 1e-6) * w.float()).to(x.dtype)",
        ),
        RMS_NORM,
    ),
    triton_case(
        "cross-entropy",
        task(
            "rows = 2000\nclasses = 5003",
            "torch.randn(rows, classes), torch.randint(0, classes, (rows,))",
            "x, target",
            'return F.cross_entropy(x, target, reduction="none")',
        ),
        CROSS_ENTROPY,
    ),
    triton_case("dropout-rand", task(_FLAT, "torch.randn(n)", "x", _PHILOX_REFERENCE), DROPOUT),
    triton_case(
        "histogram-atomics",
        task(
            _FLAT,
            "torch.rand(n)",
            "x",
            "bins = (x * 64).int().clamp(0, 63)\nreturn torch.bincount(bins.flatten().long(), minlength=64).int()",
        ),
        HISTOGRAM,
    ),
    triton_case(
        "transpose",
        task("rows = 2003\ncols = 1777", "torch.randn(rows, cols)", "x", "return x.t().contiguous()"),
        TRANSPOSE,
    ),
    triton_case(
        "tensor-descriptors",
        task("rows = 2003\ncols = 1700", "torch.randn(rows, cols)", "x", "return x * 1.5"),
        DESCRIPTORS,
    ),
    triton_case(
        "sort-rows",
        task("rows = 2000\ncols = 500", "torch.randn(rows, cols)", "x", "return torch.sort(x, dim=1).values"),
        SORT,
    ),
    triton_case(
        "linear-recurrence",
        task(
            "rows = 800\nsteps = 500",
            "torch.rand(rows, steps), torch.randn(rows, steps)",
            "a, b",
            "h, out = torch.zeros_like(b[:, 0]), []\nfor t in range(b.shape[1]):\n"
            "    h = a[:, t] * h + b[:, t]\n    out.append(h)\nreturn torch.stack(out, 1)",
        ),
        RECURRENCE,
    ),
    triton_case(
        "welford",
        task(
            "rows = 2003\ncols = 1900",
            "torch.randn(rows, cols)",
            "x",
            "return x.mean(1), x.var(1, unbiased=False)",
        ),
        WELFORD,
    ),
    triton_case(
        "gelu-libdevice", task(_FLAT, "torch.randn(n)", "x", 'return F.gelu(x, approximate="tanh")'), LIBDEVICE_GELU
    ),
    triton_case("relu6-inline-asm", task(_FLAT, "4 * torch.randn(n)", "x", "return F.relu6(x)"), INLINE_ASSEMBLY),
    triton_case(
        "embedding",
        task(
            "rows = 5000\nwidth = 300\ncount = 7001",
            "torch.randn(rows, width), torch.randint(0, rows, (count,))",
            "table, index",
            "return F.embedding(index, table)",
        ),
        EMBEDDING,
    ),
    triton_case(
        "swiglu-persistent",
        task(
            "rows = 1500\ncols = 1600",
            "torch.randn(rows, 2 * cols).half()",
            "x",
            "gate, up = x.chunk(2, dim=1)\nreturn F.silu(gate) * up",
        ),
        PERSISTENT_SWIGLU,
    ),
    triton_case(
        "matmul-int8",
        task(
            "m = 500\nk = 640\nn = 400",
            "torch.randint(-128, 128, (m, k), dtype=torch.int8), torch.randint(-128, 128, (k, n), dtype=torch.int8)",
            "a, b",
            "return (a.double() @ b.double()).int()",
        ),
        INT8_MATMUL,
    ),
    triton_case(
        "batch-norm",
        task(
            "batch = 16\nchannels = 64\nside = 61",
            "torch.randn(batch, channels, side, side)",
            "x",
            "return F.batch_norm(x, None, None, self.weight, self.bias, training=True)",
            init="channels",
            setup="self.weight = nn.Parameter(torch.ones(channels))\nself.bias = nn.Parameter(torch.zeros(channels))",
            init_inputs="channels",
        ),
        CHANNEL_NORM,
    ),
)
