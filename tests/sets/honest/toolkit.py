"""Features of language, toolkit and torch beside plain kernels: grid barriers, asynchronous copies, inline PTX, ..."""

from __future__ import annotations

from .case import HEAD, Case, bound, inline, model, task

_FLAT = "n = 4_300_043"
_SCALE = task(_FLAT, "torch.randn(n)", "x", "return torch.relu(x) * 2.0")
_MODEL = model("x", "return extension.scale(x)")
_KERNEL = r"""
__global__ void scale_kernel(const float* x, float* y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = 2.f * fmaxf(x[i], 0.f);
}
"""

OCCUPANCY = bound(
    "scale",
    "#include <ATen/cuda/CUDAContext.h>\n"
    + _KERNEL
    + r"""
torch::Tensor scale(torch::Tensor x) {
    auto y = torch::empty_like(x);
    int per_sm = 0;
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, scale_kernel, 256, 0);
    const int blocks = per_sm * at::cuda::getCurrentDeviceProperties()->multiProcessorCount;
    scale_kernel<<<std::max(1, blocks), 256, 0, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), y.data_ptr<float>(),
                                                                                    (int)x.numel());
    return y;
}
""",
    _MODEL,
)

INLINE_PTX = inline(
    "torch::Tensor scale(torch::Tensor x);",
    r"""
__device__ __forceinline__ float relu_twice(float v) {
    float r;
    asm("{ .reg .f32 t; max.f32 t, %1, 0f00000000; add.f32 %0, t, t; }" : "=f"(r) : "f"(v));
    return r;
}
__global__ void scale_kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v;
    if (i < n) {
        asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(v) : "l"(x + i));
        y[i] = relu_twice(v);
    }
}
torch::Tensor scale(torch::Tensor x) {
    auto y = torch::empty_like(x);
    scale_kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
""",
    _MODEL,
)

ASYNC_COPY = inline(
    "torch::Tensor scale(torch::Tensor x);",
    r"""
#include <cuda_pipeline.h>
// Tiles of 1024 floats are fetched while the one before is worked on.
__global__ void scale_kernel(const float* x, float* y, int tiles, int n) {
    __shared__ alignas(16) float buffer[2][1024];
    auto fetch = [&](int tile, int stage) {
        const int at = tile * 1024 + threadIdx.x * 4;
        if (at + 4 <= n) __pipeline_memcpy_async(&buffer[stage][threadIdx.x * 4], x + at, 16);
        else for (int k = at; k < min(at + 4, n); ++k) buffer[stage][threadIdx.x * 4 + k - at] = x[k];
        __pipeline_commit();
    };
    int stage = 0;
    if (blockIdx.x < tiles) fetch(blockIdx.x, 0);
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, stage ^= 1) {
        if (tile + gridDim.x < tiles) fetch(tile + gridDim.x, stage ^ 1);
        else __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        for (int k = threadIdx.x; k < 1024; k += 256)
            if (tile * 1024 + k < n) y[tile * 1024 + k] = 2.f * fmaxf(buffer[stage][k], 0.f);
        __syncthreads();
    }
}
torch::Tensor scale(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const int n = x.numel(), tiles = (n + 1023) / 1024;
    scale_kernel<<<std::min(tiles, 528), 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), tiles, n);
    return y;
}
""",
    _MODEL,
)

GRID_BARRIER = bound(
    "centred",
    r"""
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
// One launch: every block adds up, the grid waits, every block subtracts the mean.
__global__ void centred_kernel(const float* x, float* y, double* sum, int n) {
    __shared__ double part[256];
    double own = 0;
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) own += x[i];
    part[threadIdx.x] = own;
    __syncthreads();
    for (int h = 128; h; h /= 2) {
        if (threadIdx.x < h) part[threadIdx.x] += part[threadIdx.x + h];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(sum, part[0]);
    cg::this_grid().sync();
    const float mean = (float)(*(volatile double*)sum / n);
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) y[i] = x[i] - mean;
}
torch::Tensor centred(torch::Tensor x) {
    auto y = torch::empty_like(x), sum = torch::zeros({1}, x.options().dtype(torch::kDouble));
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    double* total = sum.data_ptr<double>();
    int n = x.numel();
    void* args[] = {&in, &out, &total, &n};
    auto status = cudaLaunchCooperativeKernel((void*)centred_kernel, dim3(64), dim3(256), args, 0, 0);
    TORCH_CHECK(status == cudaSuccess, cudaGetErrorString(status));
    return y;
}
""",
    model("x", "return extension.centred(x)"),
)

TORCH_LIBRARY = (
    HEAD
    + '''from torch.utils.cpp_extension import load_inline

load_inline(name="registered", cpp_sources="", is_python_module=False, cuda_sources=r"""
#include <torch/extension.h>
#include <torch/library.h>
'''
    + _KERNEL
    + r"""
torch::Tensor scale(const torch::Tensor& x) {
    auto y = torch::empty_like(x);
    scale_kernel<<<512, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), (int)x.numel());
    return y;
}
TORCH_LIBRARY(honest_kernels, m) {
    m.def("scale(Tensor x) -> Tensor");
    m.impl("scale", torch::kCUDA, &scale);
}
"""
    + '""")\n'
    + model("x", "return torch.ops.honest_kernels.scale(x)")
)

CUSTOM_OP = inline(
    "torch::Tensor scale(torch::Tensor x);",
    _KERNEL
    + r"""
torch::Tensor scale(torch::Tensor x) {
    auto y = torch::empty_like(x);
    scale_kernel<<<512, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), (int)x.numel());
    return y;
}
""",
    """
@torch.library.custom_op("honest_python::scale", mutates_args=())
def scale(x: torch.Tensor) -> torch.Tensor:
    return extension.scale(x.contiguous())


@scale.register_fake
def _(x):
    return torch.empty_like(x)
"""
    + model("x", "return scale(x)"),
)

ARGUMENTS = bound(
    "mixed",
    r"""
#include <optional>
#include <tuple>
__global__ void mixed_kernel(const float* x, const float* bias, float* y, bool* positive, int cols, int n, float alpha) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = alpha * x[i] + (bias ? bias[i % cols] : 0.f);
    y[i] = v;
    positive[i] = v > 0.f;
}
std::tuple<torch::Tensor, torch::Tensor> mixed(torch::Tensor x, std::optional<torch::Tensor> bias, double alpha,
                                               std::string mode) {
    TORCH_CHECK(mode == "affine", "unknown mode ", mode);
    auto y = torch::empty_like(x), positive = torch::empty_like(x, x.options().dtype(torch::kBool));
    const int n = x.numel();
    mixed_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), bias.has_value() ? bias->data_ptr<float>() : nullptr,
                                           y.data_ptr<float>(), positive.data_ptr<bool>(), x.size(1), n, alpha);
    return std::make_tuple(y, positive);
}
""",
    model("x, bias", 'y, positive = extension.mixed(x, bias, 0.5, "affine")\nreturn y, positive'),
)

AUTOGRAD = inline(
    "torch::Tensor scale(torch::Tensor x);",
    _KERNEL
    + r"""
torch::Tensor scale(torch::Tensor x) {
    auto y = torch::empty_like(x);
    scale_kernel<<<264, 512>>>(x.data_ptr<float>(), y.data_ptr<float>(), (int)x.numel());
    return y;
}
""",
    """
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return extension.scale(x)

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad * (ctx.saved_tensors[0] > 0)
"""
    + model("x", "return Scale.apply(x)"),
)

FROM_FILES = (
    HEAD
    + '''import os
import tempfile
from torch.utils.cpp_extension import load

folder = tempfile.mkdtemp()
path = os.path.join(folder, "scale.cu")
with open(path, "w") as source:
    source.write(r"""
#include <torch/extension.h>
'''
    + _KERNEL
    + '''
torch::Tensor scale(torch::Tensor x) {
    auto y = torch::empty_like(x);
    scale_kernel<<<264, 512>>>(x.data_ptr<float>(), y.data_ptr<float>(), (int)x.numel());
    return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("scale", &scale); }
""")
extension = load(name="scale_from_file", sources=[path], extra_cuda_cflags=["-O3", "--use_fast_math"])
'''
    + _MODEL
)

RAW_MODULE = (
    HEAD
    + '''
source = r"""
extern "C" __global__ void scale_kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.f * fmaxf(x[i], 0.f);
}
"""
kernel = torch.cuda._compile_kernel(source, "scale_kernel")
'''
    + model(
        "x",
        "y = torch.empty_like(x)\nn = x.numel()\n"
        "kernel(grid=((n + 255) // 256, 1, 1), block=(256, 1, 1), args=[x, y, n])\nreturn y",
    )
)

SHARED_64K = inline(
    "torch::Tensor reversed(torch::Tensor x);",
    r"""
template <int THREADS> __global__ void reversed_kernel(const float* x, float* y, int cols) {
    extern __shared__ __align__(16) unsigned char raw[];
    float* row = reinterpret_cast<float*>(raw);
    for (int j = threadIdx.x; j < cols; j += THREADS) row[j] = x[(size_t)blockIdx.x * cols + j];
    __syncthreads();
    for (int j = threadIdx.x; j < cols; j += THREADS) y[(size_t)blockIdx.x * cols + j] = row[cols - 1 - j];
}
torch::Tensor reversed(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const int cols = x.size(1), bytes = cols * (int)sizeof(float);
    auto* kernel = &reversed_kernel<512>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    kernel<<<x.size(0), 512, bytes>>>(x.data_ptr<float>(), y.data_ptr<float>(), cols);
    return y;
}
""",
    model("x", "return extension.reversed(x)"),
)

FAST_MATH = inline(
    "torch::Tensor tanh_scaled(torch::Tensor x);",
    r"""
#define CHECK_INPUT(t) TORCH_CHECK((t).is_cuda() && (t).is_contiguous(), #t " must be contiguous on the GPU")
#pragma nv_diag_suppress 177
__device__ __constant__ float half_of = 0.5f;
template <unsigned ITEMS> __global__ __launch_bounds__(256, 4) void tanh_kernel(float const* __restrict__ const x,
                                                                               float* __restrict__ const y, unsigned n) {
    unsigned const first = blockIdx.x * 256u * ITEMS + threadIdx.x;
#pragma unroll
    for (unsigned k = 0u; k < ITEMS; ++k)
        if (auto const i = first + k * 256u; i < n) y[i] = half_of * tanhf(x[i]);
}
torch::Tensor tanh_scaled(torch::Tensor x) {
    CHECK_INPUT(x);
    auto y = torch::empty_like(x);
    auto const n = static_cast<unsigned>(x.numel());
    tanh_kernel<4u><<<(n + 1023u) / 1024u, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
""",
    model("x", "return extension.tanh_scaled(x)"),
    flags='"-O3", "--use_fast_math", "-std=c++17", "-lineinfo"',
)

MMA_PTX = inline(
    "torch::Tensor product(torch::Tensor a, torch::Tensor bt);",
    r"""
#include <cuda_fp16.h>
#include <cstdint>
// c = a b with b given transposed, one warp a 16 x 8 tile, fragments loaded by hand, zeros beyond the edges.
__device__ uint32_t pair(const __half* base, int row, int rows, int col, int k) {
    const __half zero = __float2half(0.f);
    const __half low = row < rows && col < k ? base[(size_t)row * k + col] : zero;
    const __half high = row < rows && col + 1 < k ? base[(size_t)row * k + col + 1] : zero;
    return __half_as_ushort(low) | (uint32_t)__half_as_ushort(high) << 16;
}
__global__ void mma_kernel(const __half* a, const __half* bt, float* c, int m, int n, int k) {
    const int lane = threadIdx.x % 32, row = blockIdx.y * 16 + lane / 4, col = blockIdx.x * 8 + lane / 4, t = lane % 4 * 2;
    float d[4] = {0.f, 0.f, 0.f, 0.f};
    for (int q = 0; q < k; q += 16) {
        const uint32_t a0 = pair(a, row, m, q + t, k), a1 = pair(a, row + 8, m, q + t, k);
        const uint32_t a2 = pair(a, row, m, q + t + 8, k), a3 = pair(a, row + 8, m, q + t + 8, k);
        const uint32_t b0 = pair(bt, col, n, q + t, k), b1 = pair(bt, col, n, q + t + 8, k);
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    }
    const int out = blockIdx.x * 8 + t;
    for (int h = 0; h < 4; ++h)
        if (row + h / 2 * 8 < m && out + h % 2 < n) c[(size_t)(row + h / 2 * 8) * n + out + h % 2] = d[h];
}
torch::Tensor product(torch::Tensor a, torch::Tensor bt) {
    const int m = a.size(0), k = a.size(1), n = bt.size(0);
    auto c = torch::empty({m, n}, a.options().dtype(torch::kFloat));
    mma_kernel<<<dim3((n + 7) / 8, (m + 15) / 16), 32>>>(reinterpret_cast<const __half*>(a.data_ptr<at::Half>()),
                                                         reinterpret_cast<const __half*>(bt.data_ptr<at::Half>()),
                                                         c.data_ptr<float>(), m, n, k);
    return c;
}
""",
    model("a, bt", "return extension.product(a, bt)"),
)

CUDA_BARRIER = inline(
    "torch::Tensor neighbours(torch::Tensor x);",
    r"""
#include <cuda/barrier>
__global__ void neighbours_kernel(const float* x, float* y, int n) {
    __shared__ float tile[258];
    #pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
    if (threadIdx.x == 0) init(&barrier, blockDim.x);
    __syncthreads();
    const int i = blockIdx.x * 256 + threadIdx.x;
    tile[threadIdx.x + 1] = i < n ? x[i] : 0.f;
    if (threadIdx.x == 0) tile[0] = i > 0 ? x[i - 1] : 0.f;
    if (threadIdx.x == 255) tile[257] = i + 1 < n ? x[i + 1] : 0.f;
    barrier.arrive_and_wait();
    if (i < n) y[i] = tile[threadIdx.x] + tile[threadIdx.x + 1] + (i + 1 < n ? tile[threadIdx.x + 2] : 0.f);
}
torch::Tensor neighbours(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const int n = x.numel();
    neighbours_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
""",
    model("x", "return extension.neighbours(x)"),
)

CUB_DEVICE = bound(
    "sorted_keys",
    r"""
#include <cub/cub.cuh>
#include <ATen/cuda/CUDAContext.h>
__global__ void halve(const int* x, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] >> 1;
}
torch::Tensor sorted_keys(torch::Tensor x) {
    const int n = x.numel();
    auto keys = torch::empty_like(x), out = torch::empty_like(x);
    auto stream = at::cuda::getCurrentCUDAStream();
    halve<<<(n + 255) / 256, 256, 0, stream>>>(x.data_ptr<int>(), keys.data_ptr<int>(), n);
    size_t bytes = 0;
    cub::DeviceRadixSort::SortKeys(nullptr, bytes, keys.data_ptr<int>(), out.data_ptr<int>(), n, 0, 32, stream);
    auto room = torch::empty({(int64_t)bytes}, x.options().dtype(torch::kUInt8));
    cub::DeviceRadixSort::SortKeys(room.data_ptr(), bytes, keys.data_ptr<int>(), out.data_ptr<int>(), n, 0, 32, stream);
    return out;
}
""",
    model("x", "return extension.sorted_keys(x)"),
)

CASES = (
    Case(
        "toolkit-mma-ptx",
        task(
            "m = 1003\nn = 1201\nk = 645",
            "torch.randn(m, k).half(), torch.randn(n, k).half()",
            "a, bt",
            "return a.float() @ bt.float().t()",
        ),
        MMA_PTX,
    ),
    Case(
        "toolkit-cuda-barrier",
        task(_FLAT, "torch.randn(n)", "x", "p = F.pad(x, (1, 1))\nreturn p[:-2] + p[1:-1] + p[2:]"),
        CUDA_BARRIER,
        needs="gpu",
        reason="the functional machine has no mbarrier",
    ),
    Case(
        "toolkit-cub-device",
        task(
            "n = 3_000_017",
            "torch.randint(-100_000, 100_000, (n,), dtype=torch.int32)",
            "x",
            "return torch.sort(x >> 1).values",
        ),
        CUB_DEVICE,
        policy="libraries",
        needs="gpu",
        reason="NVRTC cannot compile cub's device-wide algorithms",
    ),
    Case("toolkit-occupancy", _SCALE, OCCUPANCY),
    Case("toolkit-inline-ptx", _SCALE, INLINE_PTX),
    Case("toolkit-async-copy", _SCALE, ASYNC_COPY),
    Case(
        "toolkit-grid-barrier",
        task(_FLAT, "torch.randn(n)", "x", "return x - x.mean()"),
        GRID_BARRIER,
        needs="gpu",
        reason="the functional machine runs blocks one after another, so no grid can wait for itself",
    ),
    Case(
        "toolkit-torch-library",
        _SCALE,
        TORCH_LIBRARY,
        needs="gpu",
        reason="TORCH_LIBRARY needs torch's own headers and nvcc",
    ),
    Case("toolkit-custom-op", _SCALE, CUSTOM_OP),
    Case(
        "toolkit-arguments",
        task(
            "rows = 2003\ncols = 2111",
            "torch.randn(rows, cols), torch.randn(cols)",
            "x, bias",
            "y = 0.5 * x + bias\nreturn y, y > 0",
        ),
        ARGUMENTS,
    ),
    Case("toolkit-autograd-function", _SCALE, AUTOGRAD),
    Case("toolkit-load-from-files", _SCALE, FROM_FILES),
    Case("toolkit-compile-kernel", _SCALE, RAW_MODULE),
    Case(
        "toolkit-large-shared-memory",
        task("rows = 331\ncols = 14_001", "torch.randn(rows, cols)", "x", "return x.flip(1)"),
        SHARED_64K,
    ),
    Case("toolkit-fast-math", task(_FLAT, "torch.randn(n)", "x", "return 0.5 * torch.tanh(x)"), FAST_MATH),
)
