"""What the language, the toolkit and torch offer beside plain kernels: grid barriers, asynchronous copies, inline PTX, ..."""

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

CASES = (
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
