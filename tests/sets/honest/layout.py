"""Data movement: transposes, concatenation, gathers, embeddings, padding, scatters, masks, packing."""

from __future__ import annotations

from .case import Case, bound, file, inline, model, plain, task

TRANSPOSE = inline(
    "torch::Tensor transpose(torch::Tensor x);",
    r"""
constexpr int TILE = 32, ROWS = 8;
template <typename T> __global__ void transpose_kernel(const T* x, T* y, int rows, int cols) {
    __shared__ T tile[TILE][TILE + 1];
    int col = blockIdx.x * TILE + threadIdx.x, row = blockIdx.y * TILE + threadIdx.y;
    for (int r = 0; r < TILE; r += ROWS)
        if (row + r < rows && col < cols) tile[threadIdx.y + r][threadIdx.x] = x[(size_t)(row + r) * cols + col];
    __syncthreads();
    col = blockIdx.y * TILE + threadIdx.x;
    row = blockIdx.x * TILE + threadIdx.y;
    for (int r = 0; r < TILE; r += ROWS)
        if (row + r < cols && col < rows) y[(size_t)(row + r) * rows + col] = tile[threadIdx.x][threadIdx.y + r];
}
torch::Tensor transpose(torch::Tensor x) {
    const int rows = x.size(0), cols = x.size(1);
    auto y = torch::empty({cols, rows}, x.options());
    dim3 grid((cols + TILE - 1) / TILE, (rows + TILE - 1) / TILE), block(TILE, ROWS);
    AT_DISPATCH_ALL_TYPES(x.scalar_type(), "transpose", [&] {
        transpose_kernel<scalar_t><<<grid, block>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), rows, cols);
    });
    return y;
}
""",
    model("x", "return extension.transpose(x)"),
)

PERMUTE = plain(
    r"""
// (batch, length, heads, width) to (batch, heads, width, length), a tile of (length, width) at a time.
extern "C" __global__ void permute(const float* x, float* y, int length, int heads, int width) {
    __shared__ float tile[16][17];
    int b = blockIdx.z / heads, h = blockIdx.z % heads;
    int w = blockIdx.x * 16 + threadIdx.x, l = blockIdx.y * 16 + threadIdx.y;
    if (l < length && w < width) tile[threadIdx.y][threadIdx.x] = x[((size_t)(b * length + l) * heads + h) * width + w];
    __syncthreads();
    w = blockIdx.x * 16 + threadIdx.y;
    l = blockIdx.y * 16 + threadIdx.x;
    if (l < length && w < width) y[((size_t)(b * heads + h) * width + w) * length + l] = tile[threadIdx.x][threadIdx.y];
}
""",
    model(
        "x",
        "b, l, h, w = x.shape\ny = torch.empty(b, h, w, l, device=x.device)\n"
        "module.permute[((w + 15) // 16, (l + 15) // 16, b * h), (16, 16)](x, y, l, h, w)\nreturn y",
    ),
)

CONCAT = bound(
    "concat",
    r"""
struct Parts { const float* data[3]; int widths[3]; };  // passed by value, as one parameter
__global__ void concat_kernel(Parts parts, float* y, int total) {
    const int row = blockIdx.x;
    for (int j = threadIdx.x; j < total; j += blockDim.x) {
        int k = 0, at = j;
        while (at >= parts.widths[k]) at -= parts.widths[k++];
        y[(size_t)row * total + j] = parts.data[k][(size_t)row * parts.widths[k] + at];
    }
}
torch::Tensor concat(std::vector<torch::Tensor> tensors) {
    TORCH_CHECK(tensors.size() == 3, "three tensors are needed");
    Parts parts;
    int total = 0;
    for (size_t k = 0; k < 3; ++k) {
        parts.data[k] = tensors[k].data_ptr<float>();
        parts.widths[k] = tensors[k].size(1);
        total += parts.widths[k];
    }
    auto y = torch::empty({tensors[0].size(0), total}, tensors[0].options());
    concat_kernel<<<tensors[0].size(0), 256>>>(parts, y.data_ptr<float>(), total);
    return y;
}
""",
    model("a, b, c", "return extension.concat([a, b, c])"),
)

GATHER = inline(
    "torch::Tensor gather(torch::Tensor x, torch::Tensor index);",
    r"""
__global__ void gather_kernel(const float* x, const int64_t* index, float* y, int cols, int picks) {
    for (int j = threadIdx.x; j < picks; j += blockDim.x)
        y[(size_t)blockIdx.x * picks + j] = __ldg(x + (size_t)blockIdx.x * cols + index[(size_t)blockIdx.x * picks + j]);
}
torch::Tensor gather(torch::Tensor x, torch::Tensor index) {
    auto y = torch::empty(index.sizes(), x.options());
    gather_kernel<<<x.size(0), 128>>>(x.data_ptr<float>(), index.data_ptr<int64_t>(), y.data_ptr<float>(), x.size(1),
                                      index.size(1));
    return y;
}
""",
    model("x, index", "return extension.gather(x, index)"),
)

EMBEDDING = file(
    r"""
__global__ void look_up(const int64_t* ids, const float4* table, float4* y, int quads) {
    const float4* row = table + ids[blockIdx.x] * quads;
    for (int j = threadIdx.x; j < quads; j += blockDim.x) y[(size_t)blockIdx.x * quads + j] = row[j];
}
__global__ void look_up_single(const int64_t* ids, const float* table, float* y, int width) {
    for (int j = threadIdx.x; j < width; j += blockDim.x) y[(size_t)blockIdx.x * width + j] = table[ids[blockIdx.x] * width + j];
}
torch::Tensor forward(torch::Tensor ids, torch::Tensor table) {
    const int width = table.size(1), count = ids.numel();
    auto y = torch::empty({ids.size(0), ids.size(1), width}, table.options());
    if (width % 4 == 0)
        look_up<<<count, 64>>>(ids.data_ptr<int64_t>(), (const float4*)table.data_ptr<float>(), (float4*)y.data_ptr<float>(), width / 4);
    else
        look_up_single<<<count, 64>>>(ids.data_ptr<int64_t>(), table.data_ptr<float>(), y.data_ptr<float>(), width);
    return y;
}
"""
)

BAG = bound(
    "bag",
    r"""
__global__ void bag_kernel(const int64_t* ids, const float* weights, const float* table, float* y, int length, int width) {
    extern __shared__ char raw[];
    int* rows = reinterpret_cast<int*>(raw);
    float* scale = reinterpret_cast<float*>(rows + length);
    for (int i = threadIdx.x; i < length; i += blockDim.x) {
        rows[i] = (int)ids[(size_t)blockIdx.x * length + i];
        scale[i] = weights[(size_t)blockIdx.x * length + i];
    }
    __syncthreads();
    for (int j = threadIdx.x; j < width; j += blockDim.x) {
        float sum = 0.f;
        for (int i = 0; i < length; ++i) sum = fmaf(scale[i], table[(size_t)rows[i] * width + j], sum);
        y[(size_t)blockIdx.x * width + j] = sum;
    }
}
torch::Tensor bag(torch::Tensor ids, torch::Tensor weights, torch::Tensor table) {
    const int length = ids.size(1), width = table.size(1);
    auto y = torch::empty({ids.size(0), width}, table.options());
    bag_kernel<<<ids.size(0), 128, length * 8>>>(ids.data_ptr<int64_t>(), weights.data_ptr<float>(),
                                                 table.data_ptr<float>(), y.data_ptr<float>(), length, width);
    return y;
}
""",
    model(
        "ids, weights",
        "return extension.bag(ids, weights, self.table.weight)",
        init="entries, width",
        setup="self.table = nn.Embedding(entries, width)",
    ),
)

REFLECT = inline(
    "torch::Tensor reflect(torch::Tensor x, int64_t pad);",
    r"""
__device__ int mirrored(int i, int n) { i = abs(i); return i < n ? i : 2 * n - 2 - i; }
__global__ void reflect_kernel(const float* x, float* y, int height, int width, int pad) {
    const int w = blockIdx.x * blockDim.x + threadIdx.x, h = blockIdx.y, wide = width + 2 * pad, high = height + 2 * pad;
    if (w < wide)
        y[((size_t)blockIdx.z * high + h) * wide + w] =
            x[((size_t)blockIdx.z * height + mirrored(h - pad, height)) * width + mirrored(w - pad, width)];
}
torch::Tensor reflect(torch::Tensor x, int64_t pad) {
    const int height = x.size(2), width = x.size(3);
    auto y = torch::empty({x.size(0), x.size(1), height + 2 * pad, width + 2 * pad}, x.options());
    reflect_kernel<<<dim3((width + 2 * pad + 127) / 128, height + 2 * pad, x.size(0) * x.size(1)), 128>>>(
        x.data_ptr<float>(), y.data_ptr<float>(), height, width, pad);
    return y;
}
""",
    model("x", "return extension.reflect(x, 3)"),
)

SCATTER = plain(
    r"""
extern "C" __global__ void scatter_add(const int* x, const long long* index, int* y, int n, int buckets) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && index[i] < buckets) atomicAdd(y + index[i], x[i]);
}
""",
    model(
        "x, index",
        "y = torch.zeros(self.buckets, dtype=torch.int32, device=x.device)\nn = x.numel()\n"
        "module.scatter_add[(n + 255) // 256, 256](x, index, y, n, self.buckets)\nreturn y",
        init="buckets",
        setup="self.buckets = buckets",
    ),
)

TRIANGLE = inline(
    "torch::Tensor lower(torch::Tensor x, int64_t diagonal);",
    r"""
template <typename scalar_t> __global__ void lower_kernel(
        const torch::PackedTensorAccessor64<scalar_t, 3, torch::RestrictPtrTraits> x,
        torch::PackedTensorAccessor64<scalar_t, 3, torch::RestrictPtrTraits> y, int64_t diagonal) {
    const int64_t j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y, b = blockIdx.z;
    if (j < x.size(2)) y[b][i][j] = j - i <= diagonal ? x[b][i][j] : scalar_t(0);
}
torch::Tensor lower(torch::Tensor x, int64_t diagonal) {
    auto y = torch::empty_like(x);
    dim3 grid((x.size(2) + 255) / 256, x.size(1), x.size(0));
    AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "lower", ([&] {
        lower_kernel<scalar_t><<<grid, 256>>>(x.packed_accessor64<scalar_t, 3, torch::RestrictPtrTraits>(),
                                              y.packed_accessor64<scalar_t, 3, torch::RestrictPtrTraits>(), diagonal);
    }));
    return y;
}
""",
    model("x", "return extension.lower(x, 2)"),
)

ONE_HOT = plain(
    r"""
extern "C" __global__ void one_hot(const long long* labels, long long* y, int classes, long long total) {
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < total; i += (long long)gridDim.x * blockDim.x)
        y[i] = labels[i / classes] == i % classes;
}
""",
    model(
        "labels",
        "y = torch.empty(labels.shape[0], 37, dtype=torch.int64, device=labels.device)\n"
        "module.one_hot[512, 256](labels, y, 37, y.numel())\nreturn y",
    ),
)

PACK_BITS = bound(
    "pack",
    r"""
// 32 flags become one word by a vote of a warp.
__global__ void pack_kernel(const bool* x, int* y, int64_t n) {
    const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    const unsigned word = __ballot_sync(0xffffffffu, i < n && x[i]);
    if (i % 32 == 0 && i < n) y[i / 32] = (int)word;
}
torch::Tensor pack(torch::Tensor x) {
    const int64_t n = x.numel();
    auto y = torch::empty({x.size(0)}, x.options().dtype(at::kInt));
    pack_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<bool>(), y.data_ptr<int>(), n);
    return y;
}
""",
    model("x", "return extension.pack(x)"),
)

SHUFFLE = file(
    r"""
__global__ void channel_shuffle(const float* __restrict__ x, float* __restrict__ y, int channels, int groups, int plane) {
    const int c = blockIdx.x % channels, n = blockIdx.x / channels, per = channels / groups;
    const float* in = x + ((size_t)n * channels + c % groups * per + c / groups) * plane;
    for (int i = threadIdx.x; i < plane; i += blockDim.x) y[(size_t)blockIdx.x * plane + i] = in[i];
}
torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty_like(x);
    channel_shuffle<<<x.size(0) * x.size(1), 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1), 4, x.size(2) * x.size(3));
    return y;
}
"""
)

ROLL = inline(
    "torch::Tensor roll(torch::Tensor x, int64_t by);",
    r"""
#include <cuda_bf16.h>
__global__ void roll_kernel(const uint16_t* x, uint16_t* y, int cols, int by) {
    const size_t base = (size_t)blockIdx.x * cols;
    for (int j = threadIdx.x; j < cols; j += blockDim.x) y[base + (j + by) % cols] = x[base + j];
}
torch::Tensor roll(torch::Tensor x, int64_t by) {
    auto y = torch::empty_like(x);
    const int cols = x.size(1);
    roll_kernel<<<x.size(0), 256>>>(reinterpret_cast<const uint16_t*>(x.data_ptr()),
                                    reinterpret_cast<uint16_t*>(y.data_ptr()), cols, (int)(by % cols));
    return y;
}
""",
    model("x", "return extension.roll(x, 77)"),
)

LAST_STEP = plain(
    r"""
// Only the last step of each sequence is read.
extern "C" __global__ void last_step(const float* x, float* y, int length, int width) {
    const float* from = x + ((size_t)blockIdx.x * length + length - 1) * width;
    for (int j = threadIdx.x; j < width; j += blockDim.x) y[(size_t)blockIdx.x * width + j] = tanhf(from[j]);
}
""",
    model(
        "x",
        "b, length, width = x.shape\ny = torch.empty(b, width, device=x.device)\n"
        "module.last_step[b, 128](x, y, length, width)\nreturn y",
    ),
)

CASES = (
    Case(
        "transpose-tile",
        task("rows = 2099\ncols = 2203", "torch.randn(rows, cols)", "x", "return x.t().contiguous()"),
        TRANSPOSE,
    ),
    Case(
        "transpose-tile-int64",
        task("rows = 1033\ncols = 4099", "torch.randint(-9, 9, (rows, cols))", "x", "return x.t().contiguous()"),
        TRANSPOSE,
    ),
    Case(
        "permute-heads",
        task(
            "batch = 5\nlength = 251\nheads = 12\nwidth = 293",
            "torch.randn(batch, length, heads, width)",
            "x",
            "return x.permute(0, 2, 3, 1).contiguous()",
        ),
        PERMUTE,
    ),
    Case(
        "concat-three",
        task(
            "rows = 2011\na_width = 513\nb_width = 700\nc_width = 1001",
            "torch.randn(rows, a_width), torch.randn(rows, b_width), torch.randn(rows, c_width)",
            "a, b, c",
            "return torch.cat([a, b, c], dim=1)",
        ),
        CONCAT,
    ),
    Case(
        "gather-columns",
        task(
            "rows = 2003\ncols = 2111\npicks = 701",
            "torch.randn(rows, cols), torch.randint(0, cols, (rows, picks))",
            "x, index",
            "return torch.gather(x, 1, index)",
        ),
        GATHER,
    ),
    Case(
        "embedding-float4-file",
        task(
            "entries = 10_007\nwidth = 256\nbatch = 31\nlength = 257",
            "torch.randint(0, entries, (batch, length)), torch.randn(entries, width)",
            "ids, table",
            "return F.embedding(ids, table)",
        ),
        EMBEDDING,
        suffix=".cu",
    ),
    Case(
        "embedding-bag-weighted",
        task(
            "entries = 20_011\nwidth = 130\nbags = 4001\nlength = 23",
            "torch.randint(0, entries, (bags, length)), torch.rand(bags, length)",
            "ids, weights",
            'return F.embedding_bag(ids, self.table.weight, mode="sum", per_sample_weights=weights)',
            init="entries, width",
            setup="self.table = nn.Embedding(entries, width)",
            init_inputs="entries, width",
        ),
        BAG,
    ),
    Case(
        "pad-reflect",
        task(
            "batch = 6\nchannels = 24\nheight = 171\nwidth = 173",
            "torch.randn(batch, channels, height, width)",
            "x",
            'return F.pad(x, (3, 3, 3, 3), mode="reflect")',
        ),
        REFLECT,
    ),
    Case(
        "scatter-add-integers",
        task(
            "n = 4_200_013\nbuckets = 3001",
            "torch.randint(-9, 9, (n,), dtype=torch.int32), torch.randint(0, buckets, (n,))",
            "x, index",
            "y = torch.zeros(self.buckets, dtype=torch.int32, device=x.device)\nreturn y.scatter_add(0, index, x)",
            init="buckets",
            setup="self.buckets = buckets",
            init_inputs="buckets",
        ),
        SCATTER,
    ),
    Case(
        "lower-triangle-half",
        task("batch = 17\nn = 509", "torch.randn(batch, n, n).half()", "x", "return torch.tril(x, 2)"),
        TRIANGLE,
    ),
    Case(
        "one-hot",
        task("n = 130_003", "torch.randint(0, 37, (n,))", "labels", "return F.one_hot(labels, 37)"),
        ONE_HOT,
    ),
    Case(
        "pack-flags-into-words",
        task(
            "words = 140_009",
            "torch.rand(words, 32) > 0.5",
            "x",
            "bits = x.to(torch.int64) << torch.arange(32, device=x.device)\nreturn bits.sum(1).to(torch.int32)",
        ),
        PACK_BITS,
    ),
    Case(
        "channel-shuffle-file",
        task(
            "batch = 12\nper_group = 10\nheight = 95\nwidth = 97",
            "torch.randn(batch, 4 * per_group, height, width)",
            "x",
            "return F.channel_shuffle(x, 4)",
        ),
        SHUFFLE,
        suffix=".cu",
    ),
    Case(
        "roll-bf16-bits",
        task("rows = 2003\ncols = 2201", "torch.randn(rows, cols).bfloat16()", "x", "return torch.roll(x, 77, 1)"),
        ROLL,
    ),
    # Most of these inputs need not be read: less than all of them is no impossible speed.
    Case(
        "embedding-large-table",
        task(
            "entries = 400_003\nwidth = 128\nbatch = 16\nlength = 101",
            "torch.randint(0, entries, (batch, length)), torch.randn(entries, width)",
            "ids, table",
            "return F.embedding(ids, table)",
        ),
        EMBEDDING,
        suffix=".cu",
    ),
    Case(
        "last-step-of-sequences",
        task(
            "batch = 64\nlength = 1000\nwidth = 900",
            "torch.randn(batch, length, width)",
            "x",
            "return torch.tanh(x[:, -1])",
        ),
        LAST_STEP,
    ),
    Case(
        "lower-triangle-large",
        task("batch = 64\nn = 1000", "torch.randn(batch, n, n)", "x", "return torch.tril(x, 2)"),
        TRIANGLE,
    ),
)
