"""Families that move data: transposes, gathers, scatters, histograms, pads, embeddings, losses."""

from __future__ import annotations

from .family import Edit, small

TRANSPOSE = small(
    "transpose", "rows, cols = 75, 50", "torch.randn(rows, cols)", "x", "return @torch@",
    r"""
#define T @tile@
extern "C" __global__ void k(const float* x, float* y, int rows, int cols) {
    __shared__ float s[T][T + 1];
    int col = blockIdx.x * T + threadIdx.x, row = blockIdx.y * T + threadIdx.y;
    if (row < rows && col < cols) s[threadIdx.y][threadIdx.x] = x[row * cols + col];
    __syncthreads();
    int to_col = blockIdx.y * T + threadIdx.x, to_row = blockIdx.x * T + threadIdx.y;
    if (to_row < cols && to_col < rows) y[to_row * rows + to_col] = s[threadIdx.x][threadIdx.y]@scale@;
}""",
    "rows, cols = x.shape\ny = torch.empty(cols, rows, device=x.device)\n"
    "module.k[((cols + @tile@ - 1) // @tile@, (rows + @tile@ - 1) // @tile@), (@tile@, @tile@)](x, y, rows, cols)\nreturn y",
    {
        "16": {"tile": "16", "scale": "", "torch": "x.T.contiguous()"},
        "32": {"tile": "32", "scale": " * 0.5f", "torch": "(x * 0.5).T.contiguous()"},
        "8": {"tile": "8", "scale": " + 1.f", "torch": "(x + 1).T.contiguous()"},
    },
    (
        Edit("barrier", "__syncthreads();", "", ("16", "32", "8")),
        Edit("index", "s[threadIdx.x][threadIdx.y]", "s[threadIdx.y][threadIdx.x]", ("16",)),
        Edit("guard", "to_row < cols && to_col < rows", "to_row < rows && to_col < cols", ("32",)),
        Edit("stride", "to_row * rows", "to_row * cols", ("8",)),
        Edit("width", "s[T][T + 1]", "s[T][T / 2]", ("16",)),
    ),
)  # fmt: skip

PERMUTE = small(
    "permute", "a, b, c = 7, 11, 13", "torch.randn(a, b, c)", "x", "return x.permute(@order@).contiguous()",
    r"""
extern "C" __global__ void k(const float* x, float* y, int A, int B, int C) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= A * B * C) return;
    int c = i % C, b = i / C % B, a = i / (B * C);
    y[@place@] = x[i];
}""",
    "y = torch.empty([x.shape[d] for d in (@order@)], device=x.device)\n"
    "module.k[(x.numel() + 63) // 64, 64](x, y, *x.shape)\nreturn y",
    {
        "201": {"order": "2, 0, 1", "place": "(c * A + a) * B + b"},
        "120": {"order": "1, 2, 0", "place": "(b * C + c) * A + a"},
        "021": {"order": "0, 2, 1", "place": "(a * C + c) * B + b"},
    },
    (
        Edit("stride", "(c * A + a) * B + b", "(c * B + a) * A + b"),
        Edit("index", "(b * C + c) * A + a", "(c * B + b) * A + a", ("120",)),
        Edit("operation", "i / C % B", "i / C % A", ("021",)),
        Edit("tail", "(x.numel() + 63) // 64", "x.numel() // 64", ("201",)),
    ),
)  # fmt: skip

GATHER = small(
    "gather", "rows, cols, n = 40, 30, 55", "torch.randn(rows, cols), torch.randint(0, rows, (n,))", "x, at", "return @torch@",
    r"""
extern "C" __global__ void k(const float* x, const long long* at, float* y, int cols, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n * cols) return;
    int row = i / cols, col = i % cols;
    y[i] = @cuda@;
}""",
    "n, cols = at.numel(), x.shape[1]\ny = torch.empty(n, cols, device=x.device)\n"
    "module.k[(n * cols + 255) // 256, 256](x, at, y, cols, n)\nreturn y",
    {
        "rows": {"torch": "x[at]", "cuda": "x[at[row] * cols + col]"},
        "scaled": {"torch": "x[at] * at[:, None].float()", "cuda": "x[at[row] * cols + col] * (float)at[row]"},
        "flipped": {"torch": "x[at].flip(1)", "cuda": "x[at[row] * cols + cols - 1 - col]"},
    },
    (
        Edit("conversion", "const long long* at", "const int* at"),
        Edit("index", "x[at[row] * cols + col]", "x[row * cols + col]", ("scaled",)),
        Edit("off-by-one", "cols - 1 - col", "cols - col", ("flipped",)),
        Edit("stride", "i / cols, col = i % cols", "i / n, col = i % n", ("rows",)),
        Edit("guard", "if (i >= n * cols) return;", "", ("scaled",)),
    ),
)  # fmt: skip

HISTOGRAM = small(
    "histogram", "n, bins = 5000, 40", "torch.randint(0, bins, (n,), dtype=torch.int32)", "x",
    "return torch.bincount(x.long(), minlength=bins)[:bins].to(torch.int32)",
    r"""
#define BINS 40
extern "C" __global__ void k(const int* x, int* y, int n) {
    @begin@
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(@cell@, 1);
    @end@
}""",
    "y = torch.zeros(40, dtype=torch.int32, device=x.device)\nmodule.k[6, 128](x, y, x.numel())\nreturn y",
    {
        "global": {"begin": "", "cell": "&y[x[i]]", "end": ""},
        "shared": {"begin": "__shared__ int s[BINS];\n    for (int b = threadIdx.x; b < BINS; b += blockDim.x) s[b] = 0;\n    __syncthreads();  // zeroed",
                   "cell": "&s[x[i]]", "end": "__syncthreads();  // counted\n    for (int b = threadIdx.x; b < BINS; b += blockDim.x) atomicAdd(&y[b], s[b]);"},
        "copies": {"begin": "__shared__ int s[4][BINS];\n    for (int b = threadIdx.x; b < 4 * BINS; b += blockDim.x) (&s[0][0])[b] = 0;\n    __syncthreads();  // zeroed",
                   "cell": "&s[threadIdx.x / 32][x[i]]", "end": "__syncthreads();  // counted\n    for (int b = threadIdx.x; b < BINS; b += blockDim.x) atomicAdd(&y[b], s[0][b] + s[1][b] + s[2][b] + s[3][b]);"},
    },
    (
        Edit("race", "atomicAdd(&y[x[i]], 1)", "y[x[i]]++"),
        Edit("race", "atomicAdd(&s[x[i]], 1)", "s[x[i]] += 1", ("shared",)),
        Edit("zeroing", "s[b] = 0;", ";", ("shared",)),
        Edit("zeroing", "torch.zeros(40", "torch.empty(40", ("copies", "global")),
        Edit("barrier", "__syncthreads();  // zeroed", "", ("shared", "copies")),
        Edit("barrier", "__syncthreads();  // counted", "", ("shared", "copies")),
        Edit("race", "atomicAdd(&y[b], s[0][b]", "y[b] += (s[0][b]", ("copies",)),
        Edit("operation", "+ s[2][b] + s[3][b]", "+ s[2][b]", ("copies",)),
        Edit("index", "&s[threadIdx.x / 32][x[i]]", "&s[threadIdx.x / 16][x[i]]", ("copies",)),
    ),
)  # fmt: skip

SCATTER = small(
    "scatter", "n, groups, width = 90, 12, 20", "torch.randn(n, width), torch.randint(0, groups, (n,))", "x, to",
    "return torch.zeros(groups, x.shape[1], device=x.device).index_@torch@",
    r"""
__device__ void biggest(float* at, float v) {
    int old = __float_as_int(*at), seen;
    do {
        seen = old;
        if (__int_as_float(seen) >= v) return;
        old = atomicCAS((int*)at, seen, __float_as_int(v));
    } while (old != seen);
}
extern "C" __global__ void k(const float* x, const long long* to, float* y, int width, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n * width) @cuda@;
}""",
    "n, width = x.shape\ny = torch.zeros(12, width, device=x.device)\n"
    "module.k[(n * width + 127) // 128, 128](x, to, y, width, n)\nreturn y",
    {
        "add": {"torch": "add_(0, to, x)", "cuda": "atomicAdd(&y[to[i / width] * width + i % width], x[i])"},
        "max": {"torch": "reduce_(0, to, x, 'amax')", "cuda": "biggest(&y[to[i / width] * width + i % width], x[i])"},
    },
    (
        Edit("race", "atomicAdd(&y[to[i / width] * width + i % width], x[i])", "y[to[i / width] * width + i % width] += x[i]"),
        Edit("index", "to[i / width] * width", "to[i % width] * width", ("add",)),
        Edit("operation", "old = atomicCAS((int*)at, seen, __float_as_int(v));", "*at = v; old = seen;", ("max",)),
        Edit("operation", ">= v) return", "<= v) return", ("max",)),
        Edit("zeroing", "torch.zeros(12", "torch.ones(12", ("add",)),
    ),
)  # fmt: skip

LAYOUT = small(
    "layout", "planes, h, w = 8, 9, 10", "torch.randn(planes, h, w)", "x", "return @torch@",
    r"""
extern "C" __global__ void k(const float* x, float* y, int H, int W, int P, int Q, int total) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    int q = i % Q, p = i / Q % P, plane = i / (P * Q);
    @cuda@
}""",
    "N, H, W = x.shape\nP, Q, planes = @sizes@\ny = torch.empty(planes, P, Q, device=x.device)\n"
    "module.k[(y.numel() + 95) // 96, 96](x, y, H, W, P, Q, y.numel())\nreturn y",
    {
        "pad": {"torch": "F.pad(x, (2, 1, 1, 2))", "sizes": "H + 3, W + 3, N",
                "cuda": "int u = p - 1, v = q - 2;\n    y[i] = u >= 0 && u < H && v >= 0 && v < W ? x[(plane * H + u) * W + v] : 0.f;"},
        "nearest": {"torch": "F.interpolate(x[None], scale_factor=2.0)[0]", "sizes": "2 * H, 2 * W, N",
                    "cuda": "y[i] = x[(plane * H + p / 2) * W + q / 2];"},
        "crop": {"torch": "x[:, 1:-1, 2:].contiguous()", "sizes": "H - 2, W - 2, N",
                 "cuda": "y[i] = x[(plane * H + p + 1) * W + q + 2];"},
        "roll": {"torch": "torch.roll(x, (3, -2), (1, 2))", "sizes": "H, W, N",
                 "cuda": "int u = ((p - 3) % H + H) % H, v = (q + 2) % W;\n    y[i] = x[(plane * H + u) * W + v];"},
        "triangle": {"torch": "x.tril()", "sizes": "H, W, N", "cuda": "y[i] = q <= p ? x[i] : 0.f;"},
    },
    (
        Edit("guard", "u >= 0 && u < H && v >= 0 && v < W", "u < H && v < W"),
        Edit("off-by-one", "v = q - 2", "v = q - 1", ("pad",)),
        Edit("operation", "p / 2) * W", "p / 3) * W", ("nearest",)),
        Edit("stride", "* W + q + 2", "* Q + q + 2", ("crop",)),
        Edit("operation", "((p - 3) % H + H) % H", "(p - 3) % H", ("roll",)),
        Edit("operation", "q <= p", "q < p", ("triangle",)),
        Edit("index", "i / (P * Q)", "i / (H * W) % 8", ("nearest",)),
    ),
)  # fmt: skip

LOSS = small(
    "loss", "rows, cols = 45, 20", "torch.randn(rows, cols), torch.randint(0, cols, (rows,))", "x, label", "return @torch@",
    r"""
extern "C" __global__ void k(const float* x, const long long* label, float* y, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float* r = x + row * cols;
    float m = -INFINITY, sum = 0.f;
    for (int j = 0; j < cols; ++j) m = fmaxf(m, r[j]);
    for (int j = 0; j < cols; ++j) sum += expf(r[j] - m);
    float loss = m + logf(sum) - r[label[row]];
    @cuda@;
}""",
    "rows, cols = x.shape\ny = torch.zeros(@n@, device=x.device)\nmodule.k[(rows + 31) // 32, 32](x, label, y, rows, cols)\nreturn y",
    {
        "each": {"torch": "F.cross_entropy(x, label, reduction='none')", "n": "rows", "cuda": "y[row] = loss"},
        "mean": {"torch": "F.cross_entropy(x, label).reshape(1)", "n": "1", "cuda": "atomicAdd(y, loss / rows)"},
        "focal": {"torch": "(1 - torch.exp(-F.cross_entropy(x, label, reduction='none'))) * F.cross_entropy(x, label, reduction='none')",
                  "n": "rows", "cuda": "y[row] = (1.f - expf(-loss)) * loss"},
    },
    (
        Edit("race", "atomicAdd(y, loss / rows)", "y[0] += loss / rows", ("mean",)),
        Edit("operation", "loss / rows", "loss", ("mean",)),
        Edit("operation", "m + logf(sum)", "logf(sum)", ("each",)),
        Edit("index", "r[label[row]]", "r[label[0]]", ("focal", "each")),
        Edit("off-by-one", "for (int j = 0; j < cols; ++j) sum", "for (int j = 1; j < cols; ++j) sum", ("focal",)),
        Edit("guard", "if (row >= rows) return;", "if (row > rows) return;", ("each",)),
        Edit("stride", "x + row * cols", "x + row * rows", ("mean",)),
    ),
)  # fmt: skip

COLUMN_SCAN = small(
    "column-scan", "rows, cols = 30, 50", "torch.randn(rows, cols)", "x", "return @torch@",
    r"""
extern "C" __global__ void k(const float* x, float* y, int rows, int cols) {
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (col >= cols) return;
    float v = @init@;
    for (int r = 0; r < rows; ++r) { float e = x[r * cols + col]; v = @join@; y[r * cols + col] = v; }
}""",
    "y = torch.empty_like(x)\nmodule.k[(x.shape[1] + 31) // 32, 32](x, y, *x.shape)\nreturn y",
    {
        "sum": {"torch": "x.cumsum(0)", "init": "0.f", "join": "v + e"},
        "min": {"torch": "x.cummin(0).values", "init": "INFINITY", "join": "fminf(v, e)"},
        "decay": {"torch": "torch.stack([sum(0.5 ** (i - j) * x[j] for j in range(i + 1)) for i in range(x.shape[0])])",
                  "init": "0.f", "join": "0.5f * v + e"},
    },
    (
        Edit("init", "float v = INFINITY", "float v = 0.f", ("min",)),
        Edit("stride", "y[r * cols + col]", "y[r + rows * col]", ("sum",)),
        Edit("operation", "0.5f * v + e", "0.5f * (v + e)", ("decay",)),
        Edit("off-by-one", "r = 0; r < rows", "r = 1; r < rows", ("sum",)),
        Edit("tail", "(x.shape[1] + 31) // 32", "x.shape[1] // 32", ("decay",)),
    ),
)  # fmt: skip

FAMILIES = (TRANSPOSE, PERMUTE, GATHER, HISTOGRAM, SCATTER, LAYOUT, LOSS, COLUMN_SCAN)
