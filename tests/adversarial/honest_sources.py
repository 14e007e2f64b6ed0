"""Honest candidates of different style, as pairs of a task's name and a whole file. No rule may reject one."""

from __future__ import annotations

from tasks import HEAD, KERNEL

INLINE = "from torch.utils.cpp_extension import load_inline\n"
MODEL = "\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return extension.scale(x)\n"

F1 = (
    HEAD
    + '''
from kernelwright.cuda import Module

module = Module("""
extern "C" __global__ void scale(const float* x, float* y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        y[i] = x[i] > 0.0f ? 2.0f * x[i] : 0.0f;
}
""")

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        module.scale[(min(1024, (x.numel() + 127) // 128),), (128,)](x, y, x.numel())
        return y
'''
)

PYBIND = (
    HEAD
    + INLINE
    + '''
extension = load_inline(name="bound", cpp_sources="""
#include <torch/extension.h>
torch::Tensor run(torch::Tensor x, double factor);
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("scale", &run, "scaled relu", py::arg("x"), py::arg("factor") = 2.0);
}
""", cuda_sources="""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
namespace {
template <typename scalar_t, int BLOCK>
__global__ void kernel(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, scalar_t factor, int64_t n) {
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i < n) y[i] = x[i] > scalar_t(0) ? x[i] * factor : scalar_t(0);
}
}
torch::Tensor run(torch::Tensor x, double factor) {
    TORCH_CHECK(x.is_cuda() && x.is_contiguous(), "a contiguous CUDA tensor is needed");
    auto y = torch::empty_like(x);
    const int64_t n = x.numel();
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "scale", ([&] {
        kernel<scalar_t, 192><<<(n + 191) / 192, 192, 0, c10::cuda::getCurrentCUDAStream()>>>(
            x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), static_cast<scalar_t>(factor), n);
    }));
    return y;
}
""")
'''
    + MODEL.replace("scale(x)", "scale(x, factor=2.0)")
)

VECTOR = KERNEL.replace(
    "int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) y[i] = fmaxf(x[i], 0.0f) * 2.0f;",
    "int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);\n"
    "    if (i + 3 < n) {\n        float4 v = *reinterpret_cast<const float4*>(x + i);\n"
    "        v.x = fmaxf(v.x, 0.f) * 2.f; v.y = fmaxf(v.y, 0.f) * 2.f; v.z = fmaxf(v.z, 0.f) * 2.f; v.w = fmaxf(v.w, 0.f) * 2.f;\n"
    "        *reinterpret_cast<float4*>(y + i) = v;\n"
    "    } else {\n        for (; i < n; ++i) y[i] = fmaxf(x[i], 0.f) * 2.f;\n    }",
)

LAZY = (
    HEAD
    + '''
import os
import threading

_lock = threading.Lock()

class ModelNew(nn.Module):
    _extension = None

    @classmethod
    def build(cls):
        with _lock:
            if cls._extension is None:
                from torch.utils.cpp_extension import load_inline
                cls._extension = load_inline(
                    name=f"lazy_{os.getpid()}",
                    cpp_sources="torch::Tensor scale(torch::Tensor x);",
                    cuda_sources="""
                        #include <torch/extension.h>
                        __global__ void k(const float* x, float* y, size_t n) {
                            size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
                            if (i < n) y[i] = max(x[i], 0.0f) + max(x[i], 0.0f);
                        }
                        torch::Tensor scale(torch::Tensor x) {
                            torch::Tensor y = torch::zeros(x.sizes(), x.options());
                            k<<<dim3((x.numel() + 63) / 64), dim3(64)>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
                            cudaError_t status = cudaGetLastError();
                            TORCH_CHECK(status == cudaSuccess, cudaGetErrorString(status));
                            return y;
                        }
                    """,
                    functions=["scale"], extra_cuda_cflags=["-O3"], verbose=True)
        return cls._extension

    def forward(self, x):
        assert x.is_cuda and torch.cuda.is_available()
        with torch.cuda.device(x.device), torch.no_grad():
            y = self.build().scale(x.contiguous())
        torch.cuda.current_stream().synchronize()
        print("one call", tuple(x.shape))
        return y
'''
)

SOFTMAX = (
    HEAD
    + INLINE
    + '''
extension = load_inline(name="softmax", cpp_sources="torch::Tensor softmax(torch::Tensor x);", functions=["softmax"],
cuda_sources=r"""
#include <torch/extension.h>
#include <cfloat>
__device__ __forceinline__ float warp_max(float v) {
    #pragma unroll
    for (int o = 16; o; o /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffff, v, o));
    return v;
}
__device__ __forceinline__ float warp_sum(float v) {
    #pragma unroll
    for (int o = 16; o; o /= 2) v += __shfl_down_sync(0xffffffff, v, o);
    return __shfl_sync(0xffffffff, v, 0);
}
__global__ void __launch_bounds__(256) softmax_kernel(const float* x, float* y, int n) {
    extern __shared__ float row[];
    __shared__ float part[8];
    const float* in = x + (size_t)blockIdx.x * n;
    float m = -FLT_MAX;
    for (int i = threadIdx.x; i < n; i += blockDim.x) { row[i] = in[i]; m = fmaxf(m, row[i]); }
    m = warp_max(m);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = m;
    __syncthreads();
    m = part[0];
    for (int w = 1; w < 8; ++w) m = fmaxf(m, part[w]);
    float s = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) { row[i] = __expf(row[i] - m); s += row[i]; }
    s = warp_sum(s);
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
    __syncthreads();
    s = 0;
    for (int w = 0; w < 8; ++w) s += part[w];
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[(size_t)blockIdx.x * n + i] = row[i] / s;
}
torch::Tensor softmax(torch::Tensor x) {
    auto y = torch::empty_like(x);
    int rows = x.size(0), n = x.size(-1);
    softmax_kernel<<<rows, 256, n * sizeof(float)>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
""")
'''
    + MODEL.replace("scale(x)", "softmax(x)")
)

ONLINE = (
    SOFTMAX.replace("softmax_kernel<<<rows, 256, n * sizeof(float)>>>", "online<<<(rows + 3) / 4, 128>>>")
    .replace("y.data_ptr<float>(), n);", "y.data_ptr<float>(), rows, n);")
    .replace(
        "torch::Tensor softmax(torch::Tensor x) {",
        """// One warp a row, one pass for maximum and sum together.
__global__ void online(const float* x, float* y, int rows, int n) {
    int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x & 31;
    if (row >= rows) return;
    float m = -INFINITY, s = 0;
    for (int i = lane; i < n; i += 32) {
        float v = x[row * n + i], bigger = fmaxf(m, v);
        s = s * expf(m - bigger) + expf(v - bigger);
        m = bigger;
    }
    for (int o = 16; o; o >>= 1) {
        float m2 = __shfl_xor_sync(~0u, m, o), s2 = __shfl_xor_sync(~0u, s, o), bigger = fmaxf(m, m2);
        s = (m == -INFINITY ? 0.f : s * expf(m - bigger)) + (m2 == -INFINITY ? 0.f : s2 * expf(m2 - bigger));
        m = bigger;
    }
    for (int i = lane; i < n; i += 32) y[row * n + i] = expf(x[row * n + i] - m) / s;
}
torch::Tensor softmax(torch::Tensor x) {""",
        1,
    )
)

LINEAR = (
    HEAD
    + '''
from dataclasses import dataclass
from kernelwright.cuda import Module

@dataclass(frozen=True)
class Config:
    block: int = 160

CONFIG = Config()
module = Module(r"""
struct Shape { int n; int features; };
template <int ITEMS> __global__ void affine(const float* x, const float* w, const float* b, float* y, int n, int features) {
    #pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        int i = (blockIdx.x * ITEMS + k) * blockDim.x + threadIdx.x;
        if (i < n) y[i] = fmaf(x[i], w[i % features], b[i % features]);
    }
}
""")

class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.bias = nn.Parameter(torch.zeros(features))
        self.kernel = module.get("affine<3>")

    def forward(self, x):
        y = torch.empty_like(x)
        per_block = 3 * CONFIG.block
        self.kernel[(x.numel() + per_block - 1) // per_block, CONFIG.block](x, self.weight, self.bias, y, x.numel(), x.shape[1])
        return y
'''
)

ROWSUM = (
    HEAD
    + INLINE
    + '''
extension = load_inline(name="rowsum", cpp_sources="torch::Tensor rowsum(torch::Tensor x);", functions=["rowsum"],
cuda_sources="""
#include <torch/extension.h>
__global__ void partial(const float* x, float* y, int n) {
    __shared__ float cache[128];
    float s = 0.f;
    for (int i = threadIdx.x; i < n; i += 128) s += x[blockIdx.x * n + i];
    cache[threadIdx.x] = s;
    __syncthreads();
    for (int half = 64; half > 0; half >>= 1) {
        if (threadIdx.x < half) cache[threadIdx.x] += cache[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) y[blockIdx.x] = cache[0];
}
torch::Tensor rowsum(torch::Tensor x) {
    auto y = torch::empty({x.size(0)}, x.options());
    partial<<<x.size(0), 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}
""")
'''
    + MODEL.replace("scale(x)", "rowsum(x)")
)

ATOMIC = ROWSUM.replace(
    "if (threadIdx.x == 0) y[blockIdx.x] = cache[0];", "if (threadIdx.x == 0) atomicAdd(y + blockIdx.x, cache[0]);"
).replace("torch::empty({x.size(0)}, x.options())", "torch::zeros({x.size(0)}, x.options())")

VOLATILE = ROWSUM.replace(
    "for (int half = 64; half > 0; half >>= 1) {", "for (int half = 64; half > 32; half >>= 1) {"
).replace(
    "if (threadIdx.x == 0) y[blockIdx.x] = cache[0];",
    "if (threadIdx.x < 32) {\n        volatile float* v = cache;\n        v[threadIdx.x] += v[threadIdx.x + 32];\n"
    "        for (int half = 16; half > 0; half >>= 1) { __syncwarp(); float t = v[threadIdx.x + half]; __syncwarp(); if (threadIdx.x < half) v[threadIdx.x] += t; }\n    }\n"
    "    if (threadIdx.x == 0) y[blockIdx.x] = cache[0];",
)

FINISHED_BY_TORCH = ROWSUM.replace("x.size(0), 128>>>", "dim3(x.size(0)), dim3(128)>>>").replace(
    MODEL.replace("scale(x)", "rowsum(x)"),
    "\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return extension.rowsum(x.contiguous()).view(-1).clone()\n",
)

ARGMAX = (
    HEAD
    + '''
from kernelwright.cuda import Module
module = Module("""
extern "C" __global__ void first_largest(const float* x, long long* y, int rows, int n) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    int best = 0;
    for (int i = 1; i < n; ++i) if (x[(size_t)row * n + i] > x[(size_t)row * n + best]) best = i;
    y[row] = best;
}
""")

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
        module.first_largest[(x.shape[0] + 31) // 32, 32](x, y, x.shape[0], x.shape[1])
        return y
'''
)

TWO = (
    HEAD
    + INLINE
    + '''
extension = load_inline(name="two", cpp_sources="std::vector<torch::Tensor> two(torch::Tensor x);", functions=["two"],
cuda_sources="""
#include <torch/extension.h>
#include <vector>
#include <limits>
__global__ void largest(const float* x, float* y, int n) {
    float m = -std::numeric_limits<float>::infinity();
    for (int i = threadIdx.x; i < n; i += 32) m = fmaxf(m, x[blockIdx.x * n + i]);
    for (int o = 1; o < 32; o <<= 1) m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, o));
    if (threadIdx.x == 0) y[blockIdx.x] = m;
}
__global__ void half_of(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = 0.5f * x[i];
}
std::vector<torch::Tensor> two(torch::Tensor x) {
    const at::Tensor in = x.contiguous();
    auto options = torch::TensorOptions().dtype(in.dtype()).device(in.device());
    auto peak = torch::empty({in.size(0)}, options), scaled = torch::empty_like(in);
    largest<<<in.size(0), 32>>>(in.data_ptr<float>(), peak.data_ptr<float>(), (int)in.size(1));
    const int n = in.numel(), block = 96;
    half_of<<<(n + block - 1) / block, block>>>(in.data_ptr<float>(), scaled.data_ptr<float>(), n);
    return {peak, scaled};
}
""")

class ModelNew(nn.Module):
    def forward(self, x):
        peak, scaled = extension.two(x)
        return peak, scaled
'''
)

HALF = (
    HEAD
    + INLINE
    + '''
extension = load_inline(name="half", cpp_sources="torch::Tensor scale(torch::Tensor x);", functions=["scale"],
cuda_sources="""
#include <torch/extension.h>
#include <cuda_fp16.h>
__global__ void k(const __half* x, __half* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { float v = __half2float(x[i]); y[i] = __float2half(v > 0 ? 2 * v : 0); }
}
torch::Tensor scale(torch::Tensor x) {
    auto y = torch::empty_like(x);
    k<<<(x.numel() + 255) / 256, 256>>>(reinterpret_cast<const __half*>(x.data_ptr<at::Half>()),
                                        reinterpret_cast<__half*>(y.data_ptr<at::Half>()), x.numel());
    return y;
}
""")
'''
    + MODEL
)

CPP = (
    HEAD
    + INLINE
    + '''
extension = load_inline(name="host", functions=["scale"], extra_cflags=["-O3"], cpp_sources="""
#include <torch/extension.h>
#include <algorithm>
torch::Tensor scale(const torch::Tensor& x) {
    auto in = x.contiguous();
    auto y = torch::empty_like(in);
    const float* a = in.data_ptr<float>();
    float* b = y.data_ptr<float>();
    for (int64_t i = 0; i < in.numel(); ++i) b[i] = 2.0f * std::max(a[i], 0.0f);
    return y;
}
""")
'''
    + MODEL
)

AUTOGRAD = (
    KERNEL
    + """

class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return extension.scale(x.contiguous())

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 2 * (x > 0)

class ModelNew(nn.Module):
    def forward(self, x):
        return Scale.apply(x)
"""
)

GUARDED_IMPORT = (
    KERNEL.replace(
        "from torch.utils.cpp_extension import load_inline",
        "try:\n    import triton\nexcept ImportError:\n    triton = None\nfrom torch.utils.cpp_extension import load_inline",
    )
    + MODEL
)

HONEST = {
    "load_inline with functions": ("scale", KERNEL + MODEL),
    "plain launch from Python": ("scale", F1),
    "pybind module, template, dispatch, stream": ("scale", PYBIND),
    "vector loads with a tail": ("scale", VECTOR + MODEL),
    "built lazily behind a lock, prints": ("scale", LAZY),
    "softmax in shared memory": ("softmax", SOFTMAX),
    "online softmax, one warp a row": ("softmax", ONLINE),
    "weights and a template instance": ("linear", LINEAR),
    "tree reduction": ("rowsum", ROWSUM),
    "atomics on zeros": ("rowsum", ATOMIC),
    "volatile last warp": ("rowsum", VOLATILE),
    "views and copies by torch": ("rowsum", FINISHED_BY_TORCH),
    "integer output": ("argmax", ARGMAX),
    "two outputs, two kernels": ("two", TWO),
    "half precision task": ("half", HALF),
    "host C++": ("scale", CPP),
    "autograd function": ("scale", AUTOGRAD),
    "torch's own run-time compiler": (
        "scale",
        HEAD
        + """
source = "extern \\"C\\" __global__ void k(const float* x, float* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = fmaxf(x[i], 0.f) * 2.f; }"
kernel = torch.cuda._compile_kernel(source, "k")

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel(grid=((x.numel() + 255) // 256, 1, 1), block=(256, 1, 1), args=[x, y, x.numel()])
        return y
""",
    ),
    "moves to the device by itself": (
        "scale",
        KERNEL
        + """

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.cuda().to("cuda", dtype=torch.float32)
        y = extension.scale(x.reshape(-1)).view_as(x)
        torch.cuda.synchronize()
        return y.to(x.device)
""",
    ),
    "built in the constructor": (
        "scale",
        HEAD
        + '''
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        from torch.utils import cpp_extension
        self.module = cpp_extension.load_inline("late", ["torch::Tensor f(torch::Tensor);"], ["""
#include <torch/extension.h>
#define CEIL(a, b) (((a) + (b) - 1) / (b))
constexpr int THREADS = 224;
static __device__ inline float twice_positive(float v) { return v < 0 ? 0 : v + v; }
static __global__ void kernel(float* out, const float* in, long n) {
    long i = threadIdx.x + (long)blockDim.x * blockIdx.x;
    if (i < n) out[i] = twice_positive(__ldg(in + i));
}
torch::Tensor f(torch::Tensor x) {
    torch::Tensor out = at::empty(x.sizes(), x.options());
    kernel<<<CEIL(x.numel(), THREADS), THREADS>>>(out.data_ptr<float>(), x.const_data_ptr<float>(), x.numel());
    return out;
}
"""], functions="f")

    def forward(self, x):
        return self.module.f(x)
''',
    ),
    "another library may be missing": ("scale", GUARDED_IMPORT),
    "kernel used before its definition": (
        "scale",
        KERNEL.replace(
            "__global__ void scale_kernel(const float* x, float* y, int n) {\n    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) y[i] = fmaxf(x[i], 0.0f) * 2.0f;\n}\n",
            "__global__ void scale_kernel(const float* x, float* y, int n);\n",
        ).replace(
            'return y;\n}\n"""',
            "return y;\n}\n__global__ void scale_kernel(const float* x, float* y, int n) {\n"
            '    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) y[i] = fmaxf(x[i], 0.0f) * 2.0f;\n}\n"""',
        )
        + MODEL,
    ),
}
