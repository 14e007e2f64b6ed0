"""Families that work on rows: reductions, softmax, norms, scans, sorts."""

from __future__ import annotations

from .family import Edit, small

_ROWS = "rows, cols = 33, 300"
_X = "torch.randn(rows, cols)"
_LAUNCH = "rows, cols = x.shape\ny = torch.empty(rows, device=x.device)\nmodule.k[rows, 128](x, y, cols)\nreturn y"

TREE = small(
    "tree", _ROWS, _X, "x", "return @torch@",
    r"""
extern "C" __global__ void k(const float* x, float* y, int cols) {
    __shared__ float s[128];
    int t = threadIdx.x;
    float v = @init@;
    for (int j = t; j < cols; j += 128) { float e = x[blockIdx.x * cols + j]; v = @step@; }
    s[t] = v;
    __syncthreads();  // filled
    for (int h = 64; h > 0; h /= 2) {
        if (t < h) { float e = s[t + h]; v = s[t]; s[t] = @join@; }
        __syncthreads();  // halved
    }
    if (t == 0) y[blockIdx.x] = @last@;
}""",
    _LAUNCH,
    {
        "sum": {"torch": "x.sum(1)", "init": "0.f", "step": "v + e", "join": "v + e", "last": "s[0]"},
        "max": {"torch": "x.amax(1)", "init": "-INFINITY", "step": "fmaxf(v, e)", "join": "fmaxf(v, e)", "last": "s[0]"},
        "min-abs": {"torch": "x.abs().amin(1)", "init": "INFINITY", "step": "fminf(v, fabsf(e))", "join": "fminf(v, e)",
                    "last": "s[0]"},
        "mean": {"torch": "x.mean(1)", "init": "0.f", "step": "v + e", "join": "v + e", "last": "s[0] / cols"},
        "norm": {"torch": "x.norm(dim=1)", "init": "0.f", "step": "fmaf(e, e, v)", "join": "v + e", "last": "sqrtf(s[0])"},
        "logsum": {"torch": "x.exp().sum(1).log()", "init": "0.f", "step": "v + expf(e)", "join": "v + e", "last": "logf(s[0])"},
    },
    (
        Edit("barrier", "__syncthreads();  // filled", "", ("sum", "max")),
        Edit("barrier", "__syncthreads();  // halved", "", ("sum", "mean")),
        Edit("width", "h = 64", "h = 32", ("norm", "max")),
        Edit("width", "h = 64", "h = 128", ("sum",)),
        Edit("off-by-one", "h > 0", "h > 1", ("mean",)),
        Edit("init", "float v = -INFINITY", "float v = 5.f", ("max",)),
        Edit("init", "float v = INFINITY", "float v = 0.f", ("min-abs",)),
        Edit("init", "float v = 0.f", "float v", ("logsum",)),
        Edit("operation", "s[0] / cols", "s[0] / 128", ("mean",)),
        Edit("index", "blockIdx.x * cols + j", "blockIdx.x * 128 + j", ("norm",)),
        Edit("off-by-one", "j = t; j < cols", "j = t + 1; j < cols", ("logsum",)),
        Edit("tail", "j < cols; j += 128", "j < cols - 128; j += 128", ("sum",)),
    ),
)  # fmt: skip

SHUFFLE = small(
    "shuffle", _ROWS, _X, "x", "return @torch@",
    r"""
extern "C" __global__ void k(const float* x, float* y, int cols) {
    __shared__ float part[4];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float v = @init@;
    for (int j = threadIdx.x; j < cols; j += blockDim.x) { float e = x[blockIdx.x * cols + j]; v = @step@; }
    for (int o = 16; o; o >>= 1) { float e = __shfl_xor_sync(0xffffffffu, v, o); v = @join@; }
    if (lane == 0) part[warp] = v;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < 4; ++w) { float e = part[w]; v = @join@; }
        y[blockIdx.x] = v;
    }
}""",
    _LAUNCH,
    {
        "sum": {"torch": "x.sum(1)", "init": "0.f", "step": "v + e", "join": "v + e"},
        "max": {"torch": "x.amax(1)", "init": "-INFINITY", "step": "fmaxf(v, e)", "join": "fmaxf(v, e)"},
        "square-sum": {"torch": "(x * x).sum(1)", "init": "0.f", "step": "v + e * e", "join": "v + e"},
        "product": {"torch": "(1 + 0.01 * x).prod(1)", "init": "1.f", "step": "v * (1.f + 0.01f * e)", "join": "v * e"},
    },
    (
        Edit("width", "o = 16", "o = 8"),
        Edit("barrier", "__syncthreads();", "", ("max", "sum")),
        Edit("off-by-one", "w < 4", "w < 3", ("square-sum",)),
        Edit("init", "float v = 1.f", "float v = 0.f", ("product",)),
        Edit("index", "part[warp] = v", "part[lane] = v", ("sum",)),
        Edit("operation", "v + e * e", "v + fabsf(e)", ("square-sum",)),
        Edit("guard", "if (lane == 0) part", "if (warp == 0) part", ("max",)),
        Edit("stride", "j += blockDim.x", "j += 32", ("sum",)),
        Edit("operation", "__shfl_xor_sync(0xffffffffu, v, o)", "__shfl_up_sync(0xffffffffu, v, o)", ("max",)),
    ),
)  # fmt: skip

WHOLE = small(
    "whole", "n = 6007", "torch.randn(n)", "x", "return @torch@",
    r"""
extern "C" __global__ void k(const float* x, @type@* y, int n) {
    @type@ own = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) own += @cuda@;
    atomicAdd(y, own);
}""",
    "y = torch.zeros(1, dtype=torch.@dtype@, device=x.device)\nmodule.k[5, 96](x, y, x.numel())\nreturn y.@final@",
    {
        "sum": {"torch": "x.sum().reshape(1)", "type": "double", "dtype": "float64", "cuda": "x[i]", "final": "float()"},
        "count": {"torch": "(x > 0.5).sum().reshape(1)", "type": "unsigned long long", "dtype": "int64",
                  "cuda": "x[i] > 0.5f", "final": "long()"},
        "abs-mean": {"torch": "x.abs().sum().reshape(1)", "type": "float", "dtype": "float32", "cuda": "fabsf(x[i])",
                     "final": "float()"},
    },
    (
        Edit("race", "atomicAdd(y, own)", "*y += own", ("sum", "count", "abs-mean")),
        Edit("zeroing", "torch.zeros(1,", "torch.empty(1,", ("sum", "count")),
        Edit("operation", "> 0.5f", ">= 0.f", ("count",)),
        Edit("stride", "i += gridDim.x * blockDim.x", "i += blockDim.x", ("abs-mean",)),
        Edit("off-by-one", "i < n;", "i < n - 1;", ("sum",)),
        Edit("init", "double own = 0", "double own = 1", ("sum",)),
    ),
)  # fmt: skip

SOFTMAX = small(
    "softmax", "rows, cols = 21, 203", "torch.randn(rows, cols) * 3", "x", "return @torch@",
    r"""
__device__ float together(float v, float* s, bool biggest) {
    s[threadIdx.x] = v;
    __syncthreads();  // filled
    for (int h = 32; h; h >>= 1) {
        if (threadIdx.x < h) s[threadIdx.x] = biggest ? fmaxf(s[threadIdx.x], s[threadIdx.x + h]) : s[threadIdx.x] + s[threadIdx.x + h];
        __syncthreads();  // halved
    }
    v = s[0];
    __syncthreads();  // read
    return v;
}
extern "C" __global__ void k(const float* x, float* y, int cols) {
    __shared__ float s[64];
    x += blockIdx.x * cols;
    y += blockIdx.x * cols;
    float m = -INFINITY, sum = 0.f;
    for (int j = threadIdx.x; j < cols; j += 64) m = fmaxf(m, @scale@ * x[j]);
    m = together(m, s, true);
    for (int j = threadIdx.x; j < cols; j += 64) sum += expf(@scale@ * x[j] - m);
    sum = together(sum, s, false);
    for (int j = threadIdx.x; j < cols; j += 64) y[j] = @last@;
}""",
    "y = torch.empty_like(x)\nmodule.k[x.shape[0], 64](x, y, x.shape[1])\nreturn y",
    {
        "plain": {"torch": "torch.softmax(x, 1)", "scale": "1.f", "last": "expf(x[j] - m) / sum"},
        "log": {"torch": "torch.log_softmax(x, 1)", "scale": "1.f", "last": "x[j] - m - logf(sum)"},
        "warm": {"torch": "torch.softmax(x / 2, 1)", "scale": "0.5f", "last": "expf(0.5f * x[j] - m) / sum"},
        "min": {"torch": "F.softmin(x, 1)", "scale": "-1.f", "last": "expf(-x[j] - m) / sum"},
    },
    (
        Edit("barrier", "__syncthreads();  // read", "", ("plain", "log")),
        Edit("barrier", "__syncthreads();  // filled", "", ("warm",)),
        Edit("barrier", "__syncthreads();  // halved", "", ("min",)),
        Edit("init", "sum = 0.f", "sum = 1.f"),
        Edit("operation", "- m - logf(sum)", "- m - sum", ("log",)),
        Edit("operation", "together(sum, s, false)", "together(sum, s, true)", ("plain",)),
        Edit("width", "h = 32", "h = 16", ("warm",)),
        Edit("operation", "expf(0.5f * x[j] - m) / sum", "expf(x[j] - m) / sum", ("warm",)),
        Edit("index", "y += blockIdx.x * cols", "y += blockIdx.x * 64", ("plain",)),
    ),
)  # fmt: skip

NORM = small(
    "norm", "rows, cols = 18, 150", "torch.randn(rows, cols), torch.randn(cols), torch.randn(cols)", "x, w, b",
    "return @torch@",
    r"""
extern "C" __global__ void k(const float* x, const float* w, const float* b, float* y, int cols) {
    __shared__ float s[2][64];
    x += blockIdx.x * cols;
    y += blockIdx.x * cols;
    int t = threadIdx.x;
    float sum = 0.f, square = 0.f;
    for (int j = t; j < cols; j += 64) { sum += x[j]; square += x[j] * x[j]; }
    s[0][t] = sum;
    s[1][t] = square;
    __syncthreads();
    sum = square = 0.f;
    for (int i = 0; i < 64; ++i) { sum += s[0][i]; square += s[1][i]; }
    float mean = sum / cols, var = square / cols - mean * mean;
    float r = rsqrtf(@spread@ + 1e-5f);
    for (int j = t; j < cols; j += 64) y[j] = @last@;
}""",
    "y = torch.empty_like(x)\nmodule.k[x.shape[0], 64](x, w, b, y, x.shape[1])\nreturn y",
    {
        "layer": {"torch": "F.layer_norm(x, (x.shape[1],), w, b)", "spread": "var", "last": "(x[j] - mean) * r * w[j] + b[j]"},
        "rms": {"torch": "x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-5) * w + 0 * b", "spread": "square / cols",
                "last": "x[j] * r * w[j]"},
        "plain": {"torch": "F.layer_norm(x, (x.shape[1],)) + 0 * w + 0 * b", "spread": "var", "last": "(x[j] - mean) * r"},
    },
    (
        Edit("operation", "- mean * mean", "", ("layer",)),
        Edit("operation", "* w[j] + b[j]", "* b[j] + w[j]", ("layer",)),
        Edit("barrier", "__syncthreads();", "", ("layer", "rms")),
        Edit("index", "r * w[j]", "r * w[t]", ("rms",)),
        Edit("width", "i < 64", "i < 32", ("plain",)),
        Edit("operation", "sum / cols, var", "sum / 64, var", ("plain",)),
        Edit("operation", "1e-5f", "0.5f", ("rms",)),
        Edit("zeroing", "sum = square = 0.f;\n    for", "for", ("layer",)),
    ),
)  # fmt: skip

SCAN = small(
    "scan", "rows, cols = 9, 256", "torch.randn(rows, cols)", "x", "return @torch@",
    r"""
extern "C" __global__ void k(const float* x, float* y, int cols) {
    __shared__ float s[256];
    int t = threadIdx.x;
    s[t] = t < cols ? x[blockIdx.x * cols + t] : @unit@;
    __syncthreads();  // filled
    for (int d = 1; d < 256; d *= 2) {
        float v = s[t], e = t >= d ? s[t - d] : @unit@;
        __syncthreads();  // read
        s[t] = @join@;
        __syncthreads();  // written
    }
    if (t < cols) y[blockIdx.x * cols + t] = @last@;
}""",
    "y = torch.empty_like(x)\nassert x.shape[1] <= 256\nmodule.k[x.shape[0], 256](x, y, x.shape[1])\nreturn y",
    {
        "sum": {"torch": "x.cumsum(1)", "unit": "0.f", "join": "v + e", "last": "s[t]"},
        "max": {"torch": "x.cummax(1).values", "unit": "-INFINITY", "join": "fmaxf(v, e)", "last": "s[t]"},
        "exclusive": {"torch": "x.cumsum(1) - x", "unit": "0.f", "join": "v + e", "last": "t ? s[t - 1] : 0.f"},
        "min": {"torch": "x.cummin(1).values", "unit": "INFINITY", "join": "fminf(v, e)", "last": "s[t]"},
    },
    (
        Edit("barrier", "__syncthreads();  // read", ""),
        Edit("barrier", "__syncthreads();  // written", "", ("max", "min")),
        Edit("barrier", "__syncthreads();  // filled", "", ("exclusive",)),
        Edit("width", "d < 256", "d < 128", ("sum", "exclusive")),
        Edit("off-by-one", "t >= d ?", "t > d ?", ("max",)),
        Edit("index", "s[t - 1] : 0.f", "s[t] : 0.f", ("exclusive",)),
        Edit("init", "t >= d ? s[t - d] : -INFINITY", "t >= d ? s[t - d] : 0.f", ("max",)),
    ),
)  # fmt: skip

SORT = small(
    "sort", "rows, cols = 7, 128", "torch.randn(rows, cols)", "x", "return torch.sort(x, 1, descending=@down@).values",
    r"""
extern "C" __global__ void k(const float* x, float* y, int cols) {
    __shared__ float s[128];
    int t = threadIdx.x;
    s[t] = t < cols ? x[blockIdx.x * cols + t] : @rest@;
    __syncthreads();  // filled
    for (int size = 2; size <= 128; size *= 2) {
        for (int d = size / 2; d > 0; d /= 2) {
            int other = t ^ d;
            if (other > t) {
                bool up = (t & size) == 0;
                float a = s[t], b = s[other];
                if ((a @less@ b) == up) { s[t] = b; s[other] = a; }
            }
            __syncthreads();  // swapped
        }
    }
    if (t < cols) y[blockIdx.x * cols + t] = s[t];
}""",
    "y = torch.empty_like(x)\nassert x.shape[1] <= 128\nmodule.k[x.shape[0], 128](x, y, x.shape[1])\nreturn y",
    {
        "up": {"down": "False", "rest": "INFINITY", "less": ">"},
        "down": {"down": "True", "rest": "-INFINITY", "less": "<"},
    },
    (
        Edit("barrier", "__syncthreads();  // swapped", ""),
        Edit("operation", "a < b", "a > b", ("down",)),
        Edit("index", "t ^ d", "t + d < 128 ? t + d : t", ("up",)),
        Edit("width", "size <= 128", "size <= 64", ("up", "down")),
        Edit("operation", "(t & size) == 0", "(t & d) == 0", ("down",)),
    ),
)  # fmt: skip

ARGMAX = small(
    "argmax", "rows, cols = 40, 77", "torch.randn(rows, cols)", "x", "return torch.@torch@(x, 1)",
    r"""
extern "C" __global__ void k(const float* x, long long* y, int cols) {
    int lane = threadIdx.x % 32, row = blockIdx.x;
    float best = @init@;
    int place = 0;
    for (int j = lane; j < cols; j += 32) {
        float v = x[row * cols + j];
        if (v @better@ best) { best = v; place = j; }
    }
    for (int o = 16; o; o >>= 1) {
        float v = __shfl_down_sync(0xffffffffu, best, o);
        int p = __shfl_down_sync(0xffffffffu, place, o);
        if (v @better@ best || (v == best && p < place)) { best = v; place = p; }
    }
    if (lane == 0) y[row] = place;
}""",
    "y = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)\nmodule.k[x.shape[0], 32](x, y, x.shape[1])\nreturn y",
    {
        "largest": {"torch": "argmax", "init": "-INFINITY", "better": ">"},
        "smallest": {"torch": "argmin", "init": "INFINITY", "better": "<"},
    },
    (
        Edit("init", "float best = INFINITY", "float best = -1.f", ("smallest",)),
        Edit("conversion", "long long* y", "int* y"),
        Edit("width", "o = 16", "o = 4", ("largest", "smallest")),
        Edit("operation", "__shfl_down_sync(0xffffffffu, place, o)", "place + o", ("largest",)),
        Edit("index", "place = j;", "place = lane;", ("smallest",)),
    ),
)  # fmt: skip

COLUMNS = small(
    "columns", "rows, cols = 70, 45", "torch.randn(rows, cols)", "x", "return @torch@",
    r"""
extern "C" __global__ void k(const float* x, float* y, int rows, int cols) {
    __shared__ float s[8][32];
    int col = blockIdx.x * 32 + threadIdx.x;
    float sum = 0.f;
    if (col < cols) for (int r = threadIdx.y; r < rows; r += 8) { float e = x[r * cols + col]; sum += @cuda@; }
    s[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && col < cols) {
        for (int i = 1; i < 8; ++i) sum += s[i][threadIdx.x];
        y[col] = @last@;
    }
}""",
    "rows, cols = x.shape\ny = torch.empty(cols, device=x.device)\nmodule.k[(cols + 31) // 32, (32, 8)](x, y, rows, cols)\nreturn y",
    {
        "sum": {"torch": "x.sum(0)", "cuda": "e", "last": "sum"},
        "rms": {"torch": "(x * x).mean(0).sqrt()", "cuda": "e * e", "last": "sqrtf(sum / rows)"},
        "positive": {"torch": "(x > 0).float().mean(0)", "cuda": "e > 0.f ? 1.f : 0.f", "last": "sum / rows"},
    },
    (
        Edit("barrier", "__syncthreads();", "", ("sum", "positive")),
        Edit("stride", "r * cols + col", "r * rows + col", ("rms",)),
        Edit("stride", "r += 8", "r += 4", ("sum",)),
        Edit("off-by-one", "i = 1; i < 8", "i = 0; i < 8", ("positive",)),
        Edit("operation", "sum / rows);", "sum / cols);", ("rms",)),
        Edit("tail", "(cols + 31) // 32, (32", "cols // 32, (32", ("sum",)),
        Edit("width", "s[8][32]", "s[4][32]", ("rms",)),
    ),
)  # fmt: skip

FAMILIES = (TREE, SHUFFLE, WHOLE, SOFTMAX, NORM, SCAN, SORT, ARGMAX, COLUMNS)
