"""Kernels over tiles and neighbours: products, convolutions, pooling, attention, transposes, histograms, distances."""

from __future__ import annotations

from sets.declared.case import Mutant, Original, inline, plain, string, task

MATMUL = Original(
    "matmul",
    "matmul",
    task("M = 512\nK = 3000\nN = 600", "a, b | a @ b", "torch.randn(M, K), torch.randn(K, N)"),
    inline(
        """
__global__ void product(const float* a, const float* b, float* c, int M, int N, int K) {
    __shared__ float x[16][16], y[16][17];
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    float sum = 0.f;
    for (int k = 0; k < K; k += 16) {
        x[threadIdx.y][threadIdx.x] = row < M && k + threadIdx.x < K ? a[row * K + k + threadIdx.x] : 0.f;
        y[threadIdx.y][threadIdx.x] = column < N && k + threadIdx.y < K ? b[(k + threadIdx.y) * N + column] : 0.f;
        __syncthreads();
        for (int i = 0; i < 16; i++) sum += x[threadIdx.y][i] * y[i][threadIdx.x];
        __syncthreads();
    }
    if (row < M && column < N) c[row * N + column] = sum;
}
""",
        """
torch::Tensor run(torch::Tensor a, torch::Tensor b) {
    int M = a.size(0), K = a.size(1), N = b.size(1);
    auto c = torch::empty({M, N}, a.options());
    dim3 grid((N + 15) / 16, (M + 15) / 16);
    product<<<grid, dim3(16, 16)>>>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), M, N, K);
    return c;
}
""",
        "ext.run(a, b)",
        "a, b",
    ),
    (
        Mutant(
            "depth-capped",
            "k < K; k += 16",
            "k < min(K, 2048); k += 16",
        ),
        Mutant(
            "tile-row-of-four-bits",
            "int row = blockIdx.y * 16 +",
            "int row = (blockIdx.y & 15) * 16 +",
        ),
    ),
)

MATVEC = Original(
    "matrix-vector",
    "matmul",
    task("rows = 6001\ncolumns = 3001", "a, v | a @ v", "torch.randn(rows, columns), torch.randn(columns)"),
    string(
        """
extern "C" __global__ void product(const float* a, const float* v, float* y, int rows, int n) {
    int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    float sum = 0.f;
    for (int c = lane; c < n; c += 32) sum += a[row * n + c] * v[c];
    for (int o = 16; o > 0; o /= 2) sum += __shfl_down_sync(0xffffffffu, sum, o);
    if (lane == 0) y[row] = sum;
}
""",
        """
        y = torch.empty(a.shape[0], device=a.device)
        module.product[(a.shape[0] + 3) // 4, 128](a, v, y, a.shape[0], a.shape[1])
        return y
        """,
        "a, v",
    ),
    (
        Mutant(
            "fixed-trips",
            "for (int c = lane; c < n; c += 32) sum",
            "for (int c = lane, k = 0; k < 80 && c < n; k++, c += 32) sum",
        ),
        Mutant(
            "rows-capped",
            "[(a.shape[0] + 3) // 4, 128]",
            "[min((a.shape[0] + 3) // 4, 1024), 128]",
        ),
    ),
)

BMM = Original(
    "batched-product",
    "matmul",
    task(
        "batch = 600\nside = 64",
        "a, b | torch.bmm(a, b)",
        "torch.randn(batch, side, side), torch.randn(batch, side, side)",
    ),
    inline(
        """
__global__ void product(const float* a, const float* b, float* c, int n) {
    const float* x = a + (int64_t)blockIdx.z * n * n;
    const float* y = b + (int64_t)blockIdx.z * n * n;
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    if (row >= n || column >= n) return;
    float sum = 0.f;
    for (int k = 0; k < n; k++) sum += x[row * n + k] * y[k * n + column];
    c[((int64_t)blockIdx.z * n + row) * n + column] = sum;
}
""",
        """
torch::Tensor run(torch::Tensor a, torch::Tensor b) {
    int batch = a.size(0), n = a.size(1);
    auto c = torch::empty_like(a);
    dim3 grid((n + 15) / 16, (n + 15) / 16, batch);
    product<<<grid, dim3(16, 16)>>>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), n);
    return c;
}
""",
        "ext.run(a, b)",
        "a, b",
    ),
    (
        Mutant("batches-from-512-ignored", "(n + 15) / 16, batch);", "(n + 15) / 16, std::min(batch, 512));"),
        Mutant("one-percent-off", "* n + column] = sum;", "* n + column] = blockIdx.z < 500 ? sum : sum * 1.01f;"),
    ),
)

CONV = Original(
    "convolution",
    "convolution",
    task(
        "batch = 16\nchannels = 16\nside = 130",
        "x | self.conv(x)",
        "torch.randn(batch, channels, side, side)",
        "channels",
        "self.conv = nn.Conv2d(channels, 16, 3, padding=1)",
    ),
    inline(
        """
__global__ void convolve(const float* x, const float* w, const float* b, float* y, int C, int K, int H, int W) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int k = blockIdx.y, n = blockIdx.z;
    if (i >= H * W) return;
    int r = i / W, s = i % W;
    float sum = b[k];
    for (int c = 0; c < C; c++)
        for (int dr = 0; dr < 3; dr++)
            for (int ds = 0; ds < 3; ds++) {
                int p = r + dr - 1, q = s + ds - 1;
                if (p >= 0 && p < H && q >= 0 && q < W)
                    sum += x[((n * C + c) * H + p) * W + q] * w[((k * C + c) * 3 + dr) * 3 + ds];
            }
    y[((n * K + k) * H + r) * W + s] = sum;
}
""",
        """
torch::Tensor run(torch::Tensor x, torch::Tensor w, torch::Tensor b) {
    int N = x.size(0), C = x.size(1), H = x.size(2), W = x.size(3), K = w.size(0);
    auto y = torch::empty({N, K, H, W}, x.options());
    dim3 grid((H * W + 127) / 128, K, N);
    convolve<<<grid, 128>>>(x.data_ptr<float>(), w.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(),
                            C, K, H, W);
    return y;
}
""",
        "ext.run(x, self.conv.weight, self.conv.bias)",
        "x",
        "channels",
        "self.conv = nn.Conv2d(channels, 16, 3, padding=1)",
    ),
    (
        Mutant("batches-from-8-ignored", "(H * W + 127) / 128, K, N);", "(H * W + 127) / 128, K, std::min(N, 8));"),
        Mutant(
            "pixel-blocks-of-seven-bits",
            "int i = blockIdx.x * blockDim.x + threadIdx.x;",
            "int i = (blockIdx.x & 127) * blockDim.x + threadIdx.x;",
        ),
    ),
)

CONV1D = Original(
    "depthwise-convolution",
    "convolution",
    task(
        "batch = 8\nchannels = 64\nlength = 16001",
        "x, w | torch.nn.functional.conv1d(x, w[:, None], padding=3, groups=w.shape[0])[..., : x.shape[-1]]",
        "torch.randn(batch, channels, length), torch.randn(channels, 4)",
    ),
    string(
        """
extern "C" __global__ void convolve(const float* x, const float* w, float* y, int channels, int length) {
    int row = blockIdx.y, c = row % channels;
    const float* from = x + (long long)row * length;
    for (int t = blockIdx.x * blockDim.x + threadIdx.x; t < length; t += gridDim.x * blockDim.x) {
        float sum = 0.f;
        for (int k = 0; k < 4; k++)
            if (t + k >= 3) sum += from[t + k - 3] * w[c * 4 + k];
        y[(long long)row * length + t] = sum;
    }
}
""",
        """
        y = torch.empty_like(x)
        module.convolve[(16, x.shape[0] * x.shape[1]), 128](x, w, y, x.shape[1], x.shape[2])
        return y
        """,
        "x, w",
    ),
    (
        Mutant(
            "fixed-trips",
            "t < length; t += gridDim",
            "t < min(length, 7 * 2048); t += gridDim",
        ),
        Mutant(
            "rows-capped",
            "[(16, x.shape[0] * x.shape[1]), 128]",
            "[(16, min(x.shape[0] * x.shape[1], 384)), 128]",
        ),
    ),
)

MAXPOOL = Original(
    "max-pool",
    "pooling",
    task(
        "batch = 34\nchannels = 32\nside = 98",
        "x | torch.nn.functional.max_pool2d(x, 2)",
        "torch.randn(batch, channels, side, side)",
    ),
    inline(
        """
__global__ void pool(const float* x, float* y, int planes, int H, int W, int h, int w) {
    for (int plane = blockIdx.y; plane < planes; plane += gridDim.y) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i >= h * w) return;
        const float* at = x + (int64_t)plane * H * W + i / w * 2 * W + i % w * 2;
        y[(int64_t)plane * h * w + i] = fmaxf(fmaxf(at[0], at[1]), fmaxf(at[W], at[W + 1]));
    }
}
""",
        """
torch::Tensor run(torch::Tensor x) {
    int H = x.size(2), W = x.size(3), h = H / 2, w = W / 2, planes = x.size(0) * x.size(1);
    auto y = torch::empty({x.size(0), x.size(1), h, w}, x.options());
    dim3 grid((h * w + 127) / 128, std::min(planes, 512));
    pool<<<grid, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), planes, H, W, h, w);
    return y;
}
""",
    ),
    (
        Mutant(
            "two-trips",
            "for (int plane = blockIdx.y; plane < planes;",
            "for (int plane = blockIdx.y, k = 0; k++ < 2 && plane < planes;",
        ),
        Mutant(
            "source-of-first-planes",
            "x + (int64_t)plane * H",
            "x + (int64_t)(plane & 1023) * H",
        ),
    ),
)

AVGPOOL = Original(
    "average-pool",
    "pooling",
    task(
        "batch = 16\nchannels = 41\nlength = 20002",
        "x | torch.nn.functional.avg_pool1d(x, 2)",
        "torch.randn(batch, channels, length)",
    ),
    plain(
        """
__global__ void pool(const float* x, float* y, int rows, int length, int half) {
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    for (int i = threadIdx.x; i < half; i += blockDim.x)
        y[(int64_t)row * half + i] = 0.5f * (x[(int64_t)row * length + 2 * i] + x[(int64_t)row * length + 2 * i + 1]);
}
""",
        """
torch::Tensor forward(torch::Tensor x) {
    int rows = x.size(0) * x.size(1), length = x.size(2), half = length / 2;
    auto y = torch::empty({x.size(0), x.size(1), half}, x.options());
    pool<<<dim3(1, (rows + 1) / 2), dim3(64, 2)>>>(x.data_ptr<float>(), y.data_ptr<float>(), rows, length, half);
    return y;
}
""",
    ),
    (
        Mutant(
            "positions-of-fourteen-bits",
            "length + 2 * i + 1]",
            "length + (2 * i & 16383) + 1]",
        ),
        Mutant(
            "row-blocks-of-eight-bits",
            "int row = blockIdx.y * blockDim.y",
            "int row = (blockIdx.y & 255) * blockDim.y",
        ),
    ),
    ".cu",
)

ATTENTION = Original(
    "attention",
    "attention",
    task(
        "batch = 2\nheads = 8\nlength = 700\nwidth = 64",
        "q, k, v | torch.softmax(q @ k.transpose(-1, -2) * 0.125, dim=-1) @ v",
        ", ".join(["torch.randn(batch, heads, length, width)"] * 3),
    ),
    inline(
        """
__global__ void attend(const float* q, const float* k, const float* v, float* y, int length, int width) {
    extern __shared__ float score[];
    __shared__ float part[64], query[64];
    int64_t head = (int64_t)blockIdx.y * length * width;
    int t = threadIdx.x, at = blockIdx.x;
    if (t < width) query[t] = q[head + at * width + t];
    __syncthreads();
    float top = -INFINITY;
    for (int j = t; j < length; j += 64) {
        float s = 0.f;
        for (int d = 0; d < width; d++) s += query[d] * k[head + j * width + d];
        score[j] = s * 0.125f;
        top = fmaxf(top, score[j]);
    }
    part[t] = top;
    __syncthreads();
    for (int i = 0; i < 64; i++) top = fmaxf(top, part[i]);
    if (t >= width) return;
    float sum = 0.f, out = 0.f;
    for (int j = 0; j < length; j++) {
        float e = __expf(score[j] - top);
        sum += e;
        out += e * v[head + j * width + t];
    }
    y[head + at * width + t] = out / sum;
}
""",
        """
torch::Tensor run(torch::Tensor q, torch::Tensor k, torch::Tensor v) {
    auto y = torch::empty_like(q);
    int length = q.size(2), heads = q.size(0) * q.size(1);
    attend<<<dim3(length, heads), 64, length * sizeof(float)>>>(q.data_ptr<float>(), k.data_ptr<float>(),
                                                               v.data_ptr<float>(), y.data_ptr<float>(), length,
                                                               q.size(3));
    return y;
}
""",
        "ext.run(q, k, v)",
        "q, k, v",
    ),
    (
        Mutant(
            "keys-past-512-ignored",
            "for (int j = 0; j < length; j++) {",
            "for (int j = 0; j < min(length, 512); j++) {",
        ),
        Mutant("scores-for-640-keys", "length * sizeof(float)>>>", "std::min(length, 640) * sizeof(float)>>>"),
    ),
)

TRANSPOSE = Original(
    "transpose",
    "layout",
    task("rows = 3001\ncolumns = 2503", "x | x.t().contiguous()", "torch.randn(rows, columns)"),
    string(
        """
extern "C" __global__ void transpose(const float* x, float* y, int rows, int columns) {
    __shared__ float tile[32][33];
    int r = blockIdx.y * 32, c = blockIdx.x * 32;
    for (int i = threadIdx.y; i < 32; i += 8)
        if (r + i < rows && c + threadIdx.x < columns) tile[i][threadIdx.x] = x[(r + i) * columns + c + threadIdx.x];
    __syncthreads();
    for (int i = threadIdx.y; i < 32; i += 8)
        if (c + i < columns && r + threadIdx.x < rows) y[(c + i) * rows + r + threadIdx.x] = tile[threadIdx.x][i];
}
""",
        """
        y = torch.empty(x.shape[1], x.shape[0], device=x.device)
        grid = ((x.shape[1] + 31) // 32, (x.shape[0] + 31) // 32)
        module.transpose[grid, (32, 8)](x, y, x.shape[0], x.shape[1])
        return y
        """,
    ),
    (
        Mutant("tile-column-of-six-bits", "c = blockIdx.x * 32;", "c = (blockIdx.x & 63) * 32;"),
        Mutant("grid-cap", "grid = ((x.shape[1] + 31) // 32,", "grid = (min((x.shape[1] + 31) // 32, 70),"),
    ),
)

PERMUTE = Original(
    "permute",
    "layout",
    task("A = 41\nB = 301\nC = 701", "x | x.permute(2, 0, 1).contiguous()", "torch.randn(A, B, C)"),
    inline(
        """
__global__ void permute(const float* x, float* y, int A, int B, int C) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= A * B * C) return;
    int b = i % B, a = i / B % A, c = i / (A * B);
    y[i] = x[(a * B + b) * C + c];
}
""",
        """
torch::Tensor run(torch::Tensor x) {
    int A = x.size(0), B = x.size(1), C = x.size(2);
    auto y = torch::empty({C, A, B}, x.options());
    permute<<<(A * B * C + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), A, B, C);
    return y;
}
""",
    ),
    (
        Mutant(
            "middle-extent-of-a-byte",
            "int b = i % B,",
            "int b = i % B & 255,",
        ),
        Mutant(
            "one-percent-off",
            "y[i] = x[(a * B + b) * C + c];",
            "y[i] = x[(a * B + b) * C + c] * (i > 8000000 ? 1.01f : 1);",
        ),
    ),
)

HISTOGRAM = Original(
    "histogram",
    "histogram",
    task(
        "count = 6000011",
        "x | torch.bincount(x, minlength=64).to(torch.int32)",
        "torch.randint(0, 64, (count,))",
    ),
    inline(
        """
__global__ void count(const int64_t* x, int* y, int64_t n) {
    __shared__ int local[64];
    if (threadIdx.x < 64) local[threadIdx.x] = 0;
    __syncthreads();
    for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&local[x[i]], 1);
    __syncthreads();
    if (threadIdx.x < 64) atomicAdd(&y[threadIdx.x], local[threadIdx.x]);
}
""",
        """
torch::Tensor run(torch::Tensor x) {
    auto y = torch::zeros({64}, x.options().dtype(torch::kInt));
    int blocks = std::min<int64_t>((x.numel() + 255) / 256, 64);
    count<<<blocks, 256>>>(x.data_ptr<int64_t>(), y.data_ptr<int>(), x.numel());
    return y;
}
""",
    ),
    (
        Mutant(
            "counts-of-ten-bits",
            "[threadIdx.x], local[threadIdx.x]);",
            "[threadIdx.x], local[threadIdx.x] & 1023);",
        ),
        Mutant(
            "fixed-trips",
            "i < n; i += gridDim.x",
            "i < n && i < 360 * 64 * 256; i += gridDim.x",
        ),
    ),
)

UPSAMPLE = Original(
    "upsample",
    "layout",
    task(
        "batch = 4\nchannels = 8\nside = 301",
        "x | torch.nn.functional.interpolate(x, scale_factor=2, mode='nearest')",
        "torch.randn(batch, channels, side, side)",
    ),
    string(
        """
extern "C" __global__ void upsample(const float* x, float* y, int H, int W) {
    int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y, plane = blockIdx.z;
    if (c >= 2 * W) return;
    y[((long long)plane * 2 * H + r) * 2 * W + c] = x[((long long)plane * H + r / 2) * W + c / 2];
}
""",
        """
        n, c, h, w = x.shape
        y = torch.empty(n, c, 2 * h, 2 * w, device=x.device)
        module.upsample[((2 * w + 127) // 128, 2 * h, n * c), 128](x, y, h, w)
        return y
        """,
    ),
    (
        Mutant(
            "rows-capped",
            "2 * h, n * c), 128]",
            "min(2 * h, 512), n * c), 128]",
        ),
        Mutant(
            "source-row-of-a-byte",
            "plane * H + r / 2)",
            "plane * H + (unsigned char)(r / 2))",
        ),
    ),
)

DISTANCE = Original(
    "pairwise-distance",
    "matmul",
    task(
        "rows = 3001\npoints = 2003\nwidth = 16",
        "a, b | torch.cdist(a, b) ** 2",
        "torch.rand(rows, width), torch.rand(points, width)",
    ),
    inline(
        """
__global__ void distance(const float* a, const float* b, float* y, int rows, int points, int width) {
    int p = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (p >= points || r >= rows) return;
    float sum = 0.f;
    for (int d = 0; d < width; d++) {
        float v = a[r * width + d] - b[p * width + d];
        sum += v * v;
    }
    y[(int64_t)r * points + p] = sum;
}
""",
        """
torch::Tensor run(torch::Tensor a, torch::Tensor b) {
    int rows = a.size(0), points = b.size(0);
    auto y = torch::empty({rows, points}, a.options());
    dim3 block(32, 8), grid((points + 31) / 32, (rows + 7) / 8);
    distance<<<grid, block>>>(a.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), rows, points, a.size(1));
    return y;
}
""",
        "ext.run(a, b)",
        "a, b",
    ),
    (
        Mutant(
            "one-percent-off",
            "* points + p] = sum;",
            "* points + p] = r < 2900 ? sum : 1.01f * sum;",
        ),
        Mutant(
            "grid-cap",
            "(rows + 7) / 8);",
            "std::min((rows + 7) / 8, 320));",
        ),
    ),
)

CASES = (
    MATMUL,
    MATVEC,
    BMM,
    CONV,
    CONV1D,
    MAXPOOL,
    AVGPOOL,
    ATTENTION,
    TRANSPOSE,
    PERMUTE,
    HISTOGRAM,
    UPSAMPLE,
    DISTANCE,
)
