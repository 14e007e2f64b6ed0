"""Convolution, pooling and resampling: direct, implicit product, depthwise, transposed, dilated, tiles with a halo."""

from __future__ import annotations

from .case import Case, bound, file, inline, model, plain, task

DIRECT = inline(
    "torch::Tensor conv(torch::Tensor x, torch::Tensor w, torch::Tensor b, int64_t stride, int64_t pad);",
    r"""
__global__ void direct(const float* x, const float* w, const float* b, float* y, int channels, int height, int width,
                       int filters, int kernel, int out_h, int out_w, int stride, int pad, int total) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    int ow = i % out_w, oh = i / out_w % out_h, f = i / (out_w * out_h) % filters, n = i / (out_w * out_h * filters);
    float sum = b[f];
    for (int c = 0; c < channels; ++c)
        for (int p = 0; p < kernel; ++p) {
            int ih = oh * stride - pad + p;
            if (ih < 0 || ih >= height) continue;
            for (int q = 0; q < kernel; ++q) {
                int iw = ow * stride - pad + q;
                if (iw >= 0 && iw < width)
                    sum += x[((n * channels + c) * height + ih) * width + iw] *
                           w[((f * channels + c) * kernel + p) * kernel + q];
            }
        }
    y[i] = sum;
}
torch::Tensor conv(torch::Tensor x, torch::Tensor w, torch::Tensor b, int64_t stride, int64_t pad) {
    const int kernel = w.size(2), height = x.size(2), width = x.size(3);
    const int out_h = (height + 2 * pad - kernel) / stride + 1, out_w = (width + 2 * pad - kernel) / stride + 1;
    auto y = torch::empty({x.size(0), w.size(0), out_h, out_w}, x.options());
    const int total = y.numel();
    direct<<<(total + 255) / 256, 256>>>(x.data_ptr<float>(), w.data_ptr<float>(), b.data_ptr<float>(),
                                         y.data_ptr<float>(), x.size(1), height, width, w.size(0), kernel, out_h,
                                         out_w, stride, pad, total);
    return y;
}
""",
    model(
        "x",
        "return extension.conv(x, self.conv.weight, self.conv.bias, 2, 1)",
        init="channels, filters",
        setup="self.conv = nn.Conv2d(channels, filters, 3, stride=2, padding=1)",
    ),
)

IMPLICIT = bound(
    "conv",
    r"""
// The convolution as a product of (filters x patch) and (patch x positions), patches gathered on the fly.
constexpr int T = 16;
__global__ void implicit(const float* x, const float* w, float* y, int channels, int height, int width, int filters,
                         int out_h, int out_w) {
    __shared__ float ws[T][T], ps[T][T + 1];
    const int patch = channels * 9, plane = out_h * out_w, n = blockIdx.z;
    const int f = blockIdx.y * T + threadIdx.y, position = blockIdx.x * T + threadIdx.x;
    float sum = 0.f;
    for (int t = 0; t < patch; t += T) {
        ws[threadIdx.y][threadIdx.x] = f < filters && t + threadIdx.x < patch ? w[f * patch + t + threadIdx.x] : 0.f;
        const int k = t + threadIdx.y;
        float v = 0.f;
        if (k < patch && position < plane) {
            const int ih = position / out_w + k % 9 / 3, iw = position % out_w + k % 3;
            v = x[((n * channels + k / 9) * height + ih) * width + iw];
        }
        ps[threadIdx.y][threadIdx.x] = v;
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < T; ++i) sum += ws[threadIdx.y][i] * ps[i][threadIdx.x];
        __syncthreads();
    }
    if (f < filters && position < plane) y[(n * filters + f) * plane + position] = sum;
}
torch::Tensor conv(torch::Tensor x, torch::Tensor w) {
    const int out_h = x.size(2) - 2, out_w = x.size(3) - 2, filters = w.size(0);
    auto y = torch::empty({x.size(0), filters, out_h, out_w}, x.options());
    dim3 grid((out_h * out_w + T - 1) / T, (filters + T - 1) / T, x.size(0));
    implicit<<<grid, dim3(T, T)>>>(x.data_ptr<float>(), w.data_ptr<float>(), y.data_ptr<float>(), x.size(1), x.size(2),
                                   x.size(3), filters, out_h, out_w);
    return y;
}
""",
    model(
        "x",
        "return extension.conv(x, self.weight)",
        init="channels, filters",
        setup="self.weight = nn.Parameter(torch.randn(filters, channels, 3, 3) / 10)",
    ),
)

DEPTHWISE = plain(
    r"""
// A tile with its halo in shared memory; one channel a block.
#define TX 32
#define TY 8
template <int K> __global__ void depthwise(const float* x, const float* w, float* y, int channels, int height, int width) {
    __shared__ float tile[TY + K - 1][TX + K - 1];
    __shared__ float taps[K * K];
    const int plane = blockIdx.z, c = plane % channels, x0 = blockIdx.x * TX - K / 2, y0 = blockIdx.y * TY - K / 2;
    const int me = threadIdx.y * TX + threadIdx.x;
    const float* in = x + (size_t)plane * height * width;
    if (me < K * K) taps[me] = w[c * K * K + me];
    for (int i = me; i < (TY + K - 1) * (TX + K - 1); i += TX * TY) {
        int r = y0 + i / (TX + K - 1), s = x0 + i % (TX + K - 1);
        tile[i / (TX + K - 1)][i % (TX + K - 1)] = r >= 0 && r < height && s >= 0 && s < width ? in[r * width + s] : 0.f;
    }
    __syncthreads();
    int col = blockIdx.x * TX + threadIdx.x, row = blockIdx.y * TY + threadIdx.y;
    if (col >= width || row >= height) return;
    float sum = 0.f;
    #pragma unroll
    for (int p = 0; p < K; ++p)
        #pragma unroll
        for (int q = 0; q < K; ++q) sum += tile[threadIdx.y + p][threadIdx.x + q] * taps[p * K + q];
    y[(size_t)plane * height * width + row * width + col] = sum;
}
""",
    model(
        "x",
        "b, c, h, w = x.shape\ny = torch.empty_like(x)\n"
        'module.get("depthwise<5>")[((w + 31) // 32, (h + 7) // 8, b * c), (32, 8)](x, self.conv.weight, y, c, h, w)\nreturn y',
        init="channels",
        setup="self.conv = nn.Conv2d(channels, channels, 5, padding=2, groups=channels, bias=False)",
    ),
)

CONV_1D = file(
    r"""
__global__ void causal_conv(const float* x, const float* w, float* y, int channels, int filters, int length, int taps,
                            int dilation) {
    extern __shared__ float own[];  // this filter's weights
    const int f = blockIdx.y, n = blockIdx.z;
    for (int i = threadIdx.x; i < channels * taps; i += blockDim.x) own[i] = w[f * channels * taps + i];
    __syncthreads();
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= length) return;
    float sum = 0.f;
    for (int c = 0; c < channels; ++c)
        for (int k = 0; k < taps; ++k) {
            const int at = t - (taps - 1 - k) * dilation;
            if (at >= 0) sum += x[(n * channels + c) * length + at] * own[c * taps + k];
        }
    y[(n * filters + f) * length + t] = sum;
}
torch::Tensor forward(torch::Tensor x, torch::Tensor w) {
    const int channels = x.size(1), length = x.size(2), filters = w.size(0), taps = w.size(2);
    auto y = torch::empty({x.size(0), filters, length}, x.options());
    dim3 grid((length + 127) / 128, filters, x.size(0));
    causal_conv<<<grid, 128, channels * taps * sizeof(float)>>>(x.data_ptr<float>(), w.data_ptr<float>(),
                                                                y.data_ptr<float>(), channels, filters, length, taps, 3);
    return y;
}
"""
)

TRANSPOSED = inline(
    "torch::Tensor upconv(torch::Tensor x, torch::Tensor w);",
    r"""
// Stride 2, kernel 4, padding 1: each output gathers from at most four inputs a channel.
__global__ void upconv_kernel(const float* x, const float* w, float* y, int channels, int filters, int height, int width) {
    const int ow = blockIdx.x * blockDim.x + threadIdx.x, oh = blockIdx.y, f = blockIdx.z % filters, n = blockIdx.z / filters;
    if (ow >= 2 * width) return;
    float sum = 0.f;
    for (int p = (oh + 1) % 2; p < 4; p += 2) {
        const int ih = (oh + 1 - p) / 2;
        if (oh + 1 < p || ih >= height) continue;
        for (int q = (ow + 1) % 2; q < 4; q += 2) {
            const int iw = (ow + 1 - q) / 2;
            if (ow + 1 < q || iw >= width) continue;
            for (int c = 0; c < channels; ++c)
                sum += x[((n * channels + c) * height + ih) * width + iw] * w[((c * filters + f) * 4 + p) * 4 + q];
        }
    }
    y[((size_t)blockIdx.z * 2 * height + oh) * 2 * width + ow] = sum;
}
torch::Tensor upconv(torch::Tensor x, torch::Tensor w) {
    const int height = x.size(2), width = x.size(3), filters = w.size(1);
    auto y = torch::empty({x.size(0), filters, 2 * height, 2 * width}, x.options());
    upconv_kernel<<<dim3((2 * width + 63) / 64, 2 * height, x.size(0) * filters), 64>>>(
        x.data_ptr<float>(), w.data_ptr<float>(), y.data_ptr<float>(), x.size(1), filters, height, width);
    return y;
}
""",
    model("x, w", "return extension.upconv(x, w)"),
)

CONV_3D = bound(
    "conv3d",
    r"""
__constant__ float taps[64 * 27];
__global__ void volume(const float* x, float* y, int depth, int height, int width, int channels) {
    const int w = blockIdx.x * blockDim.x + threadIdx.x, h = blockIdx.y, d = blockIdx.z % depth, plane = blockIdx.z / depth;
    if (w >= width) return;
    const float* in = x + (size_t)plane * depth * height * width;
    const float* own = taps + plane % channels * 27;
    float sum = 0.f;
    for (int i = 0; i < 27; ++i) {
        const int z = d + i / 9 - 1, r = h + i / 3 % 3 - 1, c = w + i % 3 - 1;
        if (z >= 0 && z < depth && r >= 0 && r < height && c >= 0 && c < width)
            sum += own[i] * in[(z * height + r) * width + c];
    }
    y[((size_t)(plane * depth + d) * height + h) * width + w] = sum;
}
torch::Tensor conv3d(torch::Tensor x, torch::Tensor w) {
    TORCH_CHECK(w.numel() <= 64 * 27, "at most 64 channels");
    auto y = torch::empty_like(x);
    const int channels = x.size(1), depth = x.size(2), height = x.size(3), width = x.size(4);
    cudaMemcpyToSymbol(taps, w.data_ptr<float>(), w.numel() * sizeof(float), 0, cudaMemcpyDeviceToDevice);
    volume<<<dim3((width + 63) / 64, height, x.size(0) * channels * depth), 64>>>(x.data_ptr<float>(), y.data_ptr<float>(),
                                                                                  depth, height, width, channels);
    return y;
}
""",
    model("x, w", "return extension.conv3d(x, w.contiguous())"),
)

IM2COL = inline(
    "torch::Tensor conv(torch::Tensor x, torch::Tensor w);",
    r"""
// Two kernels: patches into a matrix, then a tiled product.
__global__ void im2col(const float* x, float* cols, int channels, int height, int width, int out_h, int out_w) {
    const int plane = out_h * out_w, i = blockIdx.x * blockDim.x + threadIdx.x, k = blockIdx.y, n = blockIdx.z;
    if (i >= plane) return;
    const int c = k / 4, ih = i / out_w * 2 + k % 4 / 2, iw = i % out_w * 2 + k % 2;
    cols[((size_t)n * channels * 4 + k) * plane + i] = x[((n * channels + c) * height + ih) * width + iw];
}
__global__ void product(const float* w, const float* cols, float* y, int filters, int patch, int plane) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, f = blockIdx.y * 4, n = blockIdx.z;
    if (i >= plane) return;
    float sums[4] = {};
    for (int k = 0; k < patch; ++k) {
        const float v = cols[((size_t)n * patch + k) * plane + i];
        for (int u = 0; u < 4; ++u) if (f + u < filters) sums[u] += w[(f + u) * patch + k] * v;
    }
    for (int u = 0; u < 4; ++u) if (f + u < filters) y[((size_t)n * filters + f + u) * plane + i] = sums[u];
}
torch::Tensor conv(torch::Tensor x, torch::Tensor w) {
    const int batch = x.size(0), channels = x.size(1), out_h = x.size(2) / 2, out_w = x.size(3) / 2, plane = out_h * out_w;
    const int filters = w.size(0), patch = channels * 4;
    auto cols = torch::empty({batch, patch, plane}, x.options());
    auto y = torch::empty({batch, filters, out_h, out_w}, x.options());
    im2col<<<dim3((plane + 127) / 128, patch, batch), 128>>>(x.data_ptr<float>(), cols.data_ptr<float>(), channels,
                                                             x.size(2), x.size(3), out_h, out_w);
    product<<<dim3((plane + 127) / 128, (filters + 3) / 4, batch), 128>>>(w.data_ptr<float>(), cols.data_ptr<float>(),
                                                                          y.data_ptr<float>(), filters, patch, plane);
    return y;
}
""",
    model("x, w", "return extension.conv(x, w)"),
)

MAX_POOL = plain(
    r"""
extern "C" __global__ void max_pool(const float* x, float* y, long long* where, int height, int width, int out_h, int out_w) {
    int ow = blockIdx.x * blockDim.x + threadIdx.x, oh = blockIdx.y, plane = blockIdx.z;
    if (ow >= out_w) return;
    const float* in = x + (size_t)plane * height * width;
    float best = -INFINITY;
    int place = -1;
    for (int p = 0; p < 3; ++p)
        for (int q = 0; q < 3; ++q) {
            int at = (oh * 2 + p) * width + ow * 2 + q;
            if (place < 0 || in[at] > best) { best = in[at]; place = at; }
        }
    size_t out = ((size_t)plane * out_h + oh) * out_w + ow;
    y[out] = best;
    where[out] = place;
}
""",
    model(
        "x",
        "b, c, h, w = x.shape\noh, ow = (h - 3) // 2 + 1, (w - 3) // 2 + 1\n"
        "y = torch.empty(b, c, oh, ow, device=x.device)\nwhere = torch.empty(b, c, oh, ow, dtype=torch.int64, device=x.device)\n"
        "module.max_pool[((ow + 63) // 64, oh, b * c), 64](x, y, where, h, w, oh, ow)\nreturn y, where",
    ),
)

AVG_POOL = bound(
    "avg_pool",
    r"""
// Separable: sums of rows in shared memory, then of columns.
__global__ void avg_pool_kernel(const float* x, float* y, int height, int width) {
    extern __shared__ float sums[];
    const int row = blockIdx.x, plane = blockIdx.y;
    const float* in = x + (size_t)plane * height * width;
    const int first = max(row - 1, 0), last = min(row + 1, height - 1);
    for (int j = threadIdx.x; j < width; j += blockDim.x) {
        float s = 0.f;
        for (int r = first; r <= last; ++r) s += in[r * width + j];
        sums[j] = s;
    }
    __syncthreads();
    for (int j = threadIdx.x; j < width; j += blockDim.x) {
        const float left = j > 0 ? sums[j - 1] : 0.f, right = j + 1 < width ? sums[j + 1] : 0.f;
        y[((size_t)plane * height + row) * width + j] = (left + sums[j] + right) / 9.f;  // padding counts
    }
}
torch::Tensor avg_pool(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const int height = x.size(2), width = x.size(3);
    avg_pool_kernel<<<dim3(height, x.size(0) * x.size(1)), 128, width * sizeof(float)>>>(
        x.data_ptr<float>(), y.data_ptr<float>(), height, width);
    return y;
}
""",
    model("x", "return extension.avg_pool(x)"),
)

GLOBAL_POOL = inline(
    "torch::Tensor pool(torch::Tensor x);",
    r"""
#include <cuda_bf16.h>
__global__ void pool_kernel(const __nv_bfloat16* x, __nv_bfloat16* y, int plane, int planes) {
    const int mine = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (mine >= planes) return;
    float sum = 0.f;
    for (int i = lane; i < plane; i += 32) sum += __bfloat162float(x[(size_t)mine * plane + i]);
    for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
    if (lane == 0) y[mine] = __float2bfloat16(sum / plane);
}
torch::Tensor pool(torch::Tensor x) {
    const int planes = x.size(0) * x.size(1), plane = x.size(2) * x.size(3);
    auto y = torch::empty({x.size(0), x.size(1), 1, 1}, x.options());
    pool_kernel<<<(planes + 3) / 4, 128>>>(reinterpret_cast<const __nv_bfloat16*>(x.data_ptr<at::BFloat16>()),
                                           reinterpret_cast<__nv_bfloat16*>(y.data_ptr<at::BFloat16>()), plane, planes);
    return y;
}
""",
    model("x", "return extension.pool(x)"),
)

BILINEAR = file(
    r"""
__global__ void upsample(const float* x, float* y, int planes, int height, int width, int factor) {
    const int out_h = height * factor, out_w = width * factor;
    for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < (long)planes * out_h * out_w;
         i += (long)gridDim.x * blockDim.x) {
        const int ow = i % out_w, oh = i / out_w % out_h;
        const float* in = x + i / (out_w * out_h) * height * width;
        const float fy = fmaxf((oh + 0.5f) / factor - 0.5f, 0.f), fx = fmaxf((ow + 0.5f) / factor - 0.5f, 0.f);
        const int y0 = fy, x0 = fx, y1 = min(y0 + 1, height - 1), x1 = min(x0 + 1, width - 1);
        const float dy = fy - y0, dx = fx - x0;
        const float top = in[y0 * width + x0] * (1 - dx) + in[y0 * width + x1] * dx;
        const float bottom = in[y1 * width + x0] * (1 - dx) + in[y1 * width + x1] * dx;
        y[i] = top * (1 - dy) + bottom * dy;
    }
}
torch::Tensor forward(torch::Tensor x) {
    const int factor = 2;
    auto y = torch::empty({x.size(0), x.size(1), x.size(2) * factor, x.size(3) * factor}, x.options());
    const int blocks = std::min<int64_t>((y.numel() + 255) / 256, 2112);
    upsample<<<blocks, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(0) * x.size(1), x.size(2), x.size(3), factor);
    return y;
}
"""
)

_IMAGES = "batch = {0}\nchannels = {1}\nheight = {2}\nwidth = {3}"
_X = "torch.randn(batch, channels, height, width)"
CASES = (
    Case(
        "conv-direct-stride-2",
        task(
            _IMAGES.format(12, 16, 67, 71) + "\nfilters = 24",
            _X,
            "x",
            "return self.conv(x)",
            init="channels, filters",
            setup="self.conv = nn.Conv2d(channels, filters, 3, stride=2, padding=1)",
            init_inputs="channels, filters",
        ),
        DIRECT,
    ),
    Case(
        "conv-implicit-product",
        task(
            _IMAGES.format(8, 24, 61, 59) + "\nfilters = 40",
            _X,
            "x",
            "return F.conv2d(x, self.weight)",
            init="channels, filters",
            setup="self.weight = nn.Parameter(torch.randn(filters, channels, 3, 3) / 10)",
            init_inputs="channels, filters",
        ),
        IMPLICIT,
    ),
    Case(
        "conv-depthwise-halo",
        task(
            _IMAGES.format(6, 48, 119, 127),
            _X,
            "x",
            "return self.conv(x)",
            init="channels",
            setup="self.conv = nn.Conv2d(channels, channels, 5, padding=2, groups=channels, bias=False)",
            init_inputs="channels",
        ),
        DEPTHWISE,
    ),
    Case(
        "conv-causal-dilated-file",
        task(
            "batch = 8\nchannels = 24\nlength = 4099\nfilters = 32",
            "torch.randn(batch, channels, length), torch.randn(filters, channels, 3)",
            "x, w",
            "return F.conv1d(F.pad(x, (6, 0)), w, dilation=3)",
        ),
        CONV_1D,
        suffix=".cu",
    ),
    Case(
        "conv-transposed-gather",
        task(
            _IMAGES.format(8, 24, 33, 37) + "\nfilters = 17",
            _X + ", torch.randn(channels, filters, 4, 4) / 10",
            "x, w",
            "return F.conv_transpose2d(x, w, stride=2, padding=1)",
        ),
        TRANSPOSED,
    ),
    Case(
        "conv-3d-constant-memory",
        task(
            "batch = 4\nchannels = 12\ndepth = 17\nside = 71",
            "torch.randn(batch, channels, depth, side, side), torch.randn(channels, 1, 3, 3, 3)",
            "x, w",
            "return F.conv3d(x, w, padding=1, groups=x.shape[1])",
        ),
        CONV_3D,
    ),
    Case(
        "conv-im2col-two-kernels",
        task(
            "batch = 7\nchannels = 24\nhalf_h = 32\nhalf_w = 39\nfilters = 37",
            "torch.randn(batch, channels, 2 * half_h, 2 * half_w), torch.randn(filters, channels, 2, 2)",
            "x, w",
            "return F.conv2d(x, w, stride=2)",
        ),
        IM2COL,
    ),
    Case(
        "max-pool-with-indices",
        task(
            _IMAGES.format(8, 40, 119, 121),
            _X,
            "x",
            "return F.max_pool2d(x, 3, stride=2, return_indices=True)",
        ),
        MAX_POOL,
    ),
    Case(
        "avg-pool-separable",
        task(_IMAGES.format(8, 36, 125, 127), _X, "x", "return F.avg_pool2d(x, 3, stride=1, padding=1)"),
        AVG_POOL,
    ),
    Case(
        "global-pool-bf16",
        task(_IMAGES.format(16, 256, 37, 39), _X + ".bfloat16()", "x", "return F.adaptive_avg_pool2d(x, 1)"),
        GLOBAL_POOL,
    ),
    Case(
        "upsample-bilinear-file",
        task(
            _IMAGES.format(5, 12, 143, 141),
            _X,
            "x",
            'return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)',
        ),
        BILINEAR,
        suffix=".cu",
    ),
)
