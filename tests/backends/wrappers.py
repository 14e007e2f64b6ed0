"""Host wrappers in the styles that people and models write, each with what it must compute. Data for `test_wrappers`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

EXT = "#include <torch/extension.h>\n"


@dataclass(frozen=True)
class Wrapper:
    """`check(module)` gives pairs of (got, expected)."""

    name: str
    cuda: str
    check: Callable[[Any], list[tuple[Any, Any]]]
    cpp: str = ""
    functions: tuple[str, ...] = ()
    cuda_flags: tuple[str, ...] = ()


def _x(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


WRAPPERS: list[Wrapper] = []


def add(name: str, cuda: str, check: Callable[[Any], list[tuple[Any, Any]]], **fields: Any) -> None:
    WRAPPERS.append(Wrapper(name, cuda, check, **fields))


MODULE = 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward, "forward"); }\n'

add(
    "declared_in_cpp",
    """
__global__ void relu_kernel(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = fmaxf(x[i], 0.f);
}
torch::Tensor relu(torch::Tensor x) {
  auto y = torch::empty_like(x);
  int n = x.numel();
  relu_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  return y;
}
""",
    lambda m: [(m.relu(_x(5, 37)), _x(5, 37).relu())],
    cpp="torch::Tensor relu(torch::Tensor x);",
    functions=("relu",),
)

add(
    "default_arguments_in_both_files",
    """
__global__ void scale_kernel(const float* x, float* y, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i];
}
torch::Tensor scale(torch::Tensor x, double a = 2.0) {
  auto y = torch::empty_like(x);
  scale_kernel<<<(x.numel() + 63) / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), a, x.numel());
  return y;
}
""",
    lambda m: [(m.scale(_x(33), 3.0), _x(33) * 3)],
    cpp="torch::Tensor scale(torch::Tensor x, double a = 2.0);",
    functions=("scale",),
)

add(
    "dispatch_with_half",
    EXT
    + """
#include <cuda_fp16.h>
template <typename scalar_t>
__global__ void gelu_kernel(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, size_t n) {
  const size_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { float v = static_cast<float>(x[i]); y[i] = static_cast<scalar_t>(0.5f * v * (1.f + erff(v * 0.70710678f))); }
}
torch::Tensor forward(torch::Tensor x) {
  TORCH_CHECK(x.is_cuda(), "x must be a CUDA tensor");
  auto y = torch::empty_like(x);
  const int threads = 128;
  const int blocks = (x.numel() + threads - 1) / threads;
  AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "gelu", ([&] {
    gelu_kernel<scalar_t><<<blocks, threads>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), x.numel());
  }));
  return y;
}
"""
    + MODULE,
    lambda m: [
        (m.forward(_x(7, 9)), torch.nn.functional.gelu(_x(7, 9))),
        (m.forward(_x(50).half()).float(), torch.nn.functional.gelu(_x(50).half().float()).half().float()),
        (m.forward(_x(11).double()), torch.nn.functional.gelu(_x(11).double())),
    ],
)

add(
    "packed_accessors",
    EXT
    + """
template <typename scalar_t>
__global__ void rows(const torch::PackedTensorAccessor32<scalar_t, 2, torch::RestrictPtrTraits> x,
                     torch::PackedTensorAccessor32<scalar_t, 1, torch::RestrictPtrTraits> y) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r < x.size(0)) { scalar_t s = 0; for (int c = 0; c < x.size(1); ++c) s += x[r][c]; y[r] = s; }
}
torch::Tensor forward(torch::Tensor x) {
  auto y = torch::zeros({x.size(0)}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "rows", [&] {
    rows<scalar_t><<<(x.size(0) + 31) / 32, 32>>>(
        x.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>(),
        y.packed_accessor32<scalar_t, 1, torch::RestrictPtrTraits>());
  });
  return y;
}
"""
    + MODULE,
    lambda m: [(m.forward(_x(9, 6)), _x(9, 6).sum(1)), (m.forward(_x(6, 9).t()), _x(6, 9).t().sum(1))],
)

add(
    "vector_of_tensors_and_tuple",
    EXT
    + """
#include <vector>
__global__ void minmax(const float* x, float* lo, float* hi, int n) {
  if (threadIdx.x == 0 && blockIdx.x == 0) {
    float a = x[0], b = x[0];
    for (int i = 1; i < n; ++i) { a = fminf(a, x[i]); b = fmaxf(b, x[i]); }
    *lo = a; *hi = b;
  }
}
std::vector<at::Tensor> both(const at::Tensor& x) {
  auto lo = at::empty({}, x.options()), hi = at::empty({}, x.options());
  minmax<<<1, 32>>>(x.data_ptr<float>(), lo.data_ptr<float>(), hi.data_ptr<float>(), (int)x.numel());
  return {lo, hi};
}
std::tuple<at::Tensor, int64_t> pair(const at::Tensor& x) { return std::make_tuple(both(x)[0], x.numel()); }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("both", &both); m.def("pair", &pair); }
""",
    lambda m: [(torch.stack(m.both(_x(40))), torch.stack([_x(40).min(), _x(40).max()])), (m.pair(_x(40))[1], 40)],
)

add(
    "optional_bias",
    EXT
    + """
__global__ void linear_kernel(const float* x, const float* w, const float* b, float* y, int n, int k, int m) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n * m) return;
  int r = i / m, c = i % m;
  float s = b != nullptr ? b[c] : 0.0f;
  for (int j = 0; j < k; ++j) s += x[r * k + j] * w[c * k + j];
  y[i] = s;
}
torch::Tensor forward(torch::Tensor x, torch::Tensor w, c10::optional<torch::Tensor> bias) {
  auto xc = x.contiguous();
  auto wc = w.contiguous();
  const int n = xc.size(0), k = xc.size(1), m = wc.size(0);
  auto y = torch::empty({n, m}, xc.options());
  const float* b = bias.has_value() && bias->defined() ? bias->data_ptr<float>() : nullptr;
  linear_kernel<<<(n * m + 127) / 128, 128>>>(xc.data_ptr<float>(), wc.data_ptr<float>(), b, y.data_ptr<float>(), n, k, m);
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("forward", &forward, "linear", py::arg("x"), py::arg("w"), py::arg("bias") = py::none());
}
""",
    lambda m: [
        (m.forward(_x(4, 6), _x(5, 6)), _x(4, 6) @ _x(5, 6).t()),
        (m.forward(_x(4, 6), _x(5, 6), bias=_x(5)), _x(4, 6) @ _x(5, 6).t() + _x(5)),
    ],
)

add(
    "scalar_arguments",
    EXT
    + """
__global__ void mix(const float* x, float* y, float a, double b, int c, long long d, bool e, int n) {
  int i = threadIdx.x;
  if (i < n) y[i] = e ? a * x[i] + (float)b + c + (float)d : 0.f;
}
torch::Tensor forward(torch::Tensor x, float a, double b, int c, int64_t d, bool e) {
  auto y = torch::empty_like(x);
  mix<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), a, b, c, d, e, x.numel());
  return y;
}
"""
    + MODULE,
    lambda m: [(m.forward(_x(20), 2.0, 0.5, 3, 4, True), _x(20) * 2 + 7.5), (m.forward(_x(20), 1, 1, 1, 1, False), _x(20) * 0)],
)

add(
    "launch_in_lambda_macro_and_helper",
    EXT
    + """
#define THREADS 128
#define LAUNCH(kernel, n, ...) kernel<<<((n) + THREADS - 1) / THREADS, THREADS>>>(__VA_ARGS__)
__global__ void twice(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
template <typename T>
__global__ void plus(const T* x, T* y, T a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + a;
}
template <typename T>
void run_plus(const torch::Tensor& x, torch::Tensor& y, T a) {
  dim3 block(64);
  dim3 grid((x.numel() + block.x - 1) / block.x);
  plus<T><<<grid, block, 0>>>(x.data_ptr<T>(), y.data_ptr<T>(), a, x.numel());
}
torch::Tensor forward(torch::Tensor x) {
  auto a = torch::empty_like(x), b = torch::empty_like(x), c = torch::empty_like(x);
  LAUNCH(twice, x.numel(), x.data_ptr<float>(), a.data_ptr<float>(), (int)x.numel());
  auto go = [&](const torch::Tensor& from, torch::Tensor to) {
    twice<<<(from.numel() + 31) / 32, 32>>>(from.data_ptr<float>(), to.data_ptr<float>(), from.numel());
  };
  go(a, b);
  run_plus<float>(b, c, 1.5f);
  return c;
}
"""
    + MODULE,
    lambda m: [(m.forward(_x(300)), _x(300) * 4 + 1.5)],
)

add(
    "kernels_in_namespaces",
    EXT
    + """
namespace {
constexpr int kThreads = 64;
__device__ __forceinline__ float sq(float v) { return v * v; }
__global__ void square(const float* x, float* y, int n) {
  int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < n) y[i] = sq(x[i]);
}
}  // namespace
namespace ops { namespace detail {
template <typename T, int N>
__global__ void times(const T* x, T* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * static_cast<T>(N);
}
}
__global__ void negate(float* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = -y[i]; }
}
static __global__ void one(float* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] += 1.f; }
torch::Tensor forward(torch::Tensor x) {
  auto y = torch::empty_like(x);
  auto z = torch::empty_like(x);
  int n = x.numel();
  square<<<(n + kThreads - 1) / kThreads, kThreads>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  ops::detail::times<float, 3><<<(n + 31) / 32, 32>>>(y.data_ptr<float>(), z.data_ptr<float>(), n);
  ops::negate<<<(n + 31) / 32, 32>>>(z.data_ptr<float>(), n);
  one<<<(n + 31) / 32, 32>>>(z.data_ptr<float>(), n);
  return z;
}
"""
    + MODULE,
    lambda m: [(m.forward(_x(100)), 1 - 3 * _x(100) ** 2)],
)

add(
    "function_pointers_and_launch_kernel",
    EXT
    + """
__global__ void up(float* y, int n) { int i = threadIdx.x; if (i < n) y[i] += 1.f; }
__global__ void down(float* y, int n) { int i = threadIdx.x; if (i < n) y[i] -= 2.f; }
template <int STEP> __global__ void by(float* y, int n) { int i = threadIdx.x; if (i < n) y[i] += STEP; }
torch::Tensor forward(torch::Tensor x, bool use_up) {
  auto y = x.clone();
  void (*kernel)(float*, int) = use_up ? up : down;
  kernel<<<1, 128>>>(y.data_ptr<float>(), y.numel());
  float* p = y.data_ptr<float>();
  int n = y.numel();
  void* args[] = {&p, &n};
  cudaError_t e = cudaLaunchKernel((void*)up, dim3(1), dim3(128), args, 0, 0);
  TORCH_CHECK(e == cudaSuccess, cudaGetErrorString(e));
  auto k5 = &by<5>;
  C10_CUDA_CHECK(cudaFuncSetAttribute(by<5>, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536));
  k5<<<1, 128, 65536>>>(p, n);
  return y;
}
"""
    + MODULE.replace("PYBIND11", "\nPYBIND11").replace("TORCH_EXTENSION_NAME", "TORCH_EXTENSION_NAME"),
    lambda m: [(m.forward(_x(60), True), _x(60) + 7), (m.forward(_x(60), False), _x(60) + 4)],
)
WRAPPERS[-1] = Wrapper(
    WRAPPERS[-1].name, WRAPPERS[-1].cuda.replace(EXT, EXT + "#include <c10/cuda/CUDAException.h>\n"), WRAPPERS[-1].check
)

add(
    "constant_memory",
    EXT
    + """
__constant__ float WEIGHTS[4];
__constant__ int ROUNDS = 2;
__global__ void poly(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { float s = 0; for (int k = 3; k >= 0; --k) s = s * x[i] + WEIGHTS[k]; y[i] = s * ROUNDS; }
}
torch::Tensor forward(torch::Tensor x, torch::Tensor w) {
  auto y = torch::empty_like(x);
  cudaMemcpyToSymbol(WEIGHTS, w.data_ptr<float>(), 4 * sizeof(float), 0, cudaMemcpyDeviceToDevice);
  poly<<<(x.numel() + 63) / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
"""
    + MODULE,
    lambda m: [
        (
            m.forward(_x(30), torch.tensor([1.0, 2.0, 0.5, -1.0])),
            2 * (1 + 2 * _x(30) + 0.5 * _x(30) ** 2 - _x(30) ** 3),
        )
    ],
)

add(
    "arithmetic_on_results",
    EXT
    + """
__global__ void square(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * x[i];
}
torch::Tensor forward(torch::Tensor x) {
  auto y = torch::empty_like(x);
  square<<<(x.numel() + 63) / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  auto norm = torch::sqrt(y.sum(-1, /*keepdim=*/true)) + 1e-6;
  auto z = x / norm;
  z = torch::cumsum(z.flip({1}), 1).flip({1});
  z *= 2.0f;
  return (z - 1) * 0.5 + torch::ones_like(z) / 4;
}
"""
    + MODULE,
    lambda m: [
        (
            m.forward(_x(5, 8)),
            ((_x(5, 8) / (_x(5, 8).norm(dim=-1, keepdim=True) + 1e-6)).flip(1).cumsum(1).flip(1) * 2 - 1) * 0.5 + 0.25,
        )
    ],
)

add(
    "used_before_definition",
    EXT
    + """
template <typename T> __global__ void later(const T* x, T* y, int n);
__global__ void also_later(float* y, int n);
torch::Tensor forward(torch::Tensor x) {
  auto y = torch::empty_like(x);
  later<float><<<(x.numel() + 31) / 32, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  also_later<<<(x.numel() + 31) / 32, 32>>>(y.data_ptr<float>(), x.numel());
  return y;
}
template <typename T>
__global__ void later(const T* x, T* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + T(1);
}
__global__ void also_later(float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] *= 3.f;
}
"""
    + MODULE,
    lambda m: [(m.forward(_x(70)), (_x(70) + 1) * 3)],
)

add(
    "template_bool_enum_and_default",
    EXT
    + """
enum class Mode : int { Sum = 0, Mean = 1 };
template <typename T, bool RELU, Mode MODE = Mode::Sum, unsigned BLOCK = 32u>
__global__ __launch_bounds__(BLOCK) void reduce(const T* x, T* y, int n) {
  __shared__ T s[BLOCK];
  T v = 0;
  for (int i = threadIdx.x; i < n; i += BLOCK) { T t = x[i]; if (RELU) t = t > 0 ? t : 0; v += t; }
  s[threadIdx.x] = v;
  __syncthreads();
  if (threadIdx.x == 0) { T t = 0; for (unsigned k = 0; k < BLOCK; ++k) t += s[k]; y[0] = MODE == Mode::Mean ? t / n : t; }
}
torch::Tensor forward(torch::Tensor x) {
  auto y = torch::zeros({3}, x.options());
  float* p = y.data_ptr<float>();
  reduce<float, false><<<1, 32>>>(x.data_ptr<float>(), p, (int)x.numel());
  reduce<float, true, Mode::Mean><<<1, 32>>>(x.data_ptr<float>(), p + 1, (int)x.numel());
  reduce<float, true, Mode::Sum, 64><<<1, 64>>>(x.data_ptr<float>(), p + 2, (int)x.numel());
  return y;
}
"""
    + MODULE,
    lambda m: [(m.forward(_x(200)), torch.stack([_x(200).sum(), _x(200).relu().mean(), _x(200).relu().sum()]))],
)

add(
    "dynamic_shared_in_template",
    EXT
    + """
template <typename scalar_t>
__global__ void softmax(const scalar_t* x, scalar_t* y, int cols) {
  extern __shared__ char raw[];
  scalar_t* s = reinterpret_cast<scalar_t*>(raw);
  const scalar_t* row = x + blockIdx.x * cols;
  scalar_t m = -INFINITY;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) m = max(m, row[c]);
  s[threadIdx.x] = m; __syncthreads();
  for (int k = blockDim.x / 2; k > 0; k >>= 1) {
    if (threadIdx.x < k) s[threadIdx.x] = max(s[threadIdx.x], s[threadIdx.x + k]);
    __syncthreads();
  }
  m = s[0]; __syncthreads();
  scalar_t t = 0;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) t += exp(row[c] - m);
  s[threadIdx.x] = t; __syncthreads();
  for (int k = blockDim.x / 2; k > 0; k >>= 1) { if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k]; __syncthreads(); }
  for (int c = threadIdx.x; c < cols; c += blockDim.x) y[blockIdx.x * cols + c] = exp(row[c] - m) / s[0];
}
torch::Tensor forward(torch::Tensor x) {
  auto y = torch::empty_like(x);
  int rows = x.size(0), cols = x.size(1), threads = 64;
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "softmax", ([&] {
    softmax<scalar_t><<<rows, threads, threads * sizeof(scalar_t)>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), cols);
  }));
  return y;
}
"""
    + MODULE,
    lambda m: [(m.forward(_x(4, 77)), _x(4, 77).softmax(1)), (m.forward(_x(3, 5).double()), _x(3, 5).double().softmax(1))],
)

add(
    "functor_struct",
    EXT
    + """
#include <cmath>
struct Sigmoid { __device__ __forceinline__ float operator()(float v) const { return 1.f / (1.f + __expf(-v)); } };
struct Scale { float a; Scale(float v) : a(v) {} __host__ __device__ float operator()(float v) const { return a * v; } };
template <typename F>
__global__ void map(const float* x, float* y, int n, F f) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = f(x[i]);
}
torch::Tensor forward(torch::Tensor x) {
  auto y = torch::empty_like(x), z = torch::empty_like(x);
  map<<<(x.numel() + 63) / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), (int)x.numel(), Sigmoid());
  map<Scale><<<(x.numel() + 63) / 64, 64>>>(y.data_ptr<float>(), z.data_ptr<float>(), (int)x.numel(), Scale(3.f));
  return z;
}
"""
    + MODULE,
    lambda m: [(m.forward(_x(90)), _x(90).sigmoid() * 3)],
)

add(
    "streams_guards_and_properties",
    EXT
    + """
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
__global__ void inc(float* y, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] += 1.f;
}
torch::Tensor forward(torch::Tensor x) {
  const at::cuda::OptionalCUDAGuard guard(device_of(x));
  const c10::cuda::CUDAGuard other(x.device());
  auto y = x.clone();
  int dev; cudaGetDevice(&dev);
  cudaDeviceProp prop; cudaGetDeviceProperties(&prop, dev);
  int sms = at::cuda::getCurrentDeviceProperties()->multiProcessorCount;
  TORCH_CHECK(prop.multiProcessorCount == sms && prop.warpSize == 32 && prop.major >= 8);
  int occupancy = 0, grid = 0, block = 0;
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&occupancy, inc, 128, 0);
  cudaOccupancyMaxPotentialBlockSize(&grid, &block, inc, 0, 0);
  TORCH_CHECK(occupancy > 0 && grid > 0 && block >= 32);
  cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  inc<<<std::min(2, sms), 64, 0, stream>>>(y.data_ptr<float>(), y.numel());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  AT_CUDA_CHECK(cudaGetLastError());
  cudaStreamSynchronize(stream);
  cudaStream_t mine; cudaStreamCreate(&mine);
  inc<<<1, 64, 0, mine>>>(y.data_ptr<float>(), y.numel());
  cudaDeviceSynchronize(); cudaStreamDestroy(mine);
  cudaEvent_t a, b; cudaEventCreate(&a); cudaEventCreate(&b); cudaEventRecord(a, stream); cudaEventRecord(b, stream);
  cudaEventSynchronize(b); float ms; cudaEventElapsedTime(&ms, a, b); cudaEventDestroy(a); cudaEventDestroy(b);
  cudaError_t err = cudaGetLastError();
  if (err != cudaSuccess) { printf("CUDA error: %s\\n", cudaGetErrorString(err)); }
  return y;
}
"""
    + MODULE,
    lambda m: [(m.forward(_x(500)), _x(500) + 2)],
)

add(
    "raw_device_memory",
    EXT
    + """
__global__ void copy(const float* x, float* t, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) t[i] = x[i] * 2; }
torch::Tensor forward(torch::Tensor x) {
  auto y = torch::empty_like(x);
  float* temp = nullptr;
  size_t bytes = x.numel() * sizeof(float);
  cudaMalloc(&temp, bytes);
  cudaMemset(temp, 0, bytes);
  copy<<<(x.numel() + 63) / 64, 64>>>(x.data_ptr<float>(), temp, x.numel());
  cudaMemcpyAsync(y.data_ptr<float>(), temp, bytes, cudaMemcpyDeviceToDevice, 0);
  std::vector<float> host(x.numel());
  cudaMemcpy(host.data(), temp, bytes, cudaMemcpyDeviceToHost);
  TORCH_CHECK(host.size() == (size_t)x.numel());
  cudaFree(temp);
  return y;
}
"""
    + MODULE,
    lambda m: [(m.forward(_x(130)), _x(130) * 2)],
)

add(
    "kernel_defining_macro",
    EXT
    + """
#define UNARY(NAME, EXPR)                                        \\
  __global__ void NAME##_kernel(const float* x, float* y, int n) { \\
    int i = blockIdx.x * blockDim.x + threadIdx.x;               \\
    if (i < n) { float v = x[i]; y[i] = EXPR; }                  \\
  }                                                              \\
  torch::Tensor NAME(torch::Tensor x) {                          \\
    auto y = torch::empty_like(x);                               \\
    NAME##_kernel<<<(x.numel() + 63) / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel()); \\
    return y;                                                    \\
  }
UNARY(cube, v * v * v)
UNARY(leaky, (v > 0 ? v : 0.1f * v))
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("cube", &cube); m.def("leaky", &leaky); }
""",
    lambda m: [(m.cube(_x(70)), _x(70) ** 3), (m.leaky(_x(70)), torch.nn.functional.leaky_relu(_x(70), 0.1))],
)

add(
    "qualifier_macros_and_extern_c",
    EXT
    + """
#define HD __host__ __device__ __forceinline__
#define CHECK_CUDA(x) TORCH_CHECK(x.device().is_cuda(), #x " must be a CUDA tensor")
#define CHECK_CONTIGUOUS(x) TORCH_CHECK(x.is_contiguous(), #x " must be contiguous")
#define CHECK_INPUT(x) CHECK_CUDA(x); CHECK_CONTIGUOUS(x)
HD int ceil_of(int a, int b) { return (a + b - 1) / b; }
extern "C" {
__global__ void half_of(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] / ceil_of(3, 2);
}
}
extern "C" __global__ void plus_one(float* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] += 1; }
torch::Tensor forward(torch::Tensor x) {
  CHECK_INPUT(x);
  auto y = torch::empty_like(x);
  half_of<<<ceil_of(x.numel(), 64), 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  plus_one<<<ceil_of(x.numel(), 64), 64>>>(y.data_ptr<float>(), x.numel());
  return y;
}
"""
    + MODULE,
    lambda m: [(m.forward(_x(65)), _x(65) / 2 + 1)],
)

add(
    "vectorised_loads",
    EXT
    + """
__global__ void add4(const float4* a, const float4* b, float4* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { float4 u = a[i], v = b[i]; c[i] = make_float4(u.x + v.x, u.y + v.y, u.z + v.z, u.w + v.w); }
}
__global__ void add1(const float* a, const float* b, float* c, int from, int n) {
  int i = from + blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}
torch::Tensor forward(torch::Tensor a, torch::Tensor b) {
  auto c = torch::empty_like(a);
  int n = a.numel(), n4 = n / 4;
  if (n4) add4<<<(n4 + 31) / 32, 32>>>(reinterpret_cast<const float4*>(a.data_ptr<float>()),
      reinterpret_cast<const float4*>(b.data_ptr<float>()), reinterpret_cast<float4*>(c.data_ptr<float>()), n4);
  if (n4 * 4 < n) add1<<<1, 32>>>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), n4 * 4, n);
  return c;
}
"""
    + MODULE,
    lambda m: [(m.forward(_x(103), _x(103)), _x(103) * 2)],
)

add(
    "integer_and_bool_tensors",
    EXT
    + """
__global__ void pick(const float* x, const int64_t* index, const bool* mask, float* y, int n) {
  int i = threadIdx.x;
  if (i < n) y[i] = mask[i] ? x[index[i]] : -1.f;
}
torch::Tensor forward(torch::Tensor x, torch::Tensor index, torch::Tensor mask) {
  TORCH_CHECK(index.scalar_type() == torch::kInt64 && mask.dtype() == torch::kBool);
  auto y = torch::full({index.size(0)}, 0.0, torch::TensorOptions().dtype(torch::kFloat32).device(x.device()));
  pick<<<1, 64>>>(x.data_ptr<float>(), index.data_ptr<int64_t>(), mask.data_ptr<bool>(), y.data_ptr<float>(), y.numel());
  return y;
}
"""
    + MODULE,
    lambda m: [
        (
            m.forward(_x(9), torch.tensor([3, 1, 8]), torch.tensor([True, False, True])),
            torch.stack([_x(9)[3], torch.tensor(-1.0), _x(9)[8]]),
        )
    ],
)

add(
    "dispatch_integral_and_all",
    EXT
    + """
template <typename scalar_t>
__global__ void iota(scalar_t* y, int n) { int i = threadIdx.x; if (i < n) y[i] = static_cast<scalar_t>(i * 2); }
torch::Tensor forward(torch::Tensor x) {
  auto y = torch::zeros_like(x);
  AT_DISPATCH_ALL_TYPES_AND2(at::ScalarType::Half, at::ScalarType::BFloat16, x.scalar_type(), "iota", [&] {
    iota<scalar_t><<<1, 32>>>(y.data_ptr<scalar_t>(), y.numel());
  });
  return y;
}
"""
    + MODULE,
    lambda m: [
        (m.forward(torch.zeros(10, dtype=d)).double(), torch.arange(10).double() * 2)
        for d in (torch.int32, torch.int64, torch.uint8, torch.float32)
    ],
)

add(
    "gradient_like_pair_of_functions",
    """
#include <torch/extension.h>
#include <vector>
template <typename scalar_t>
__global__ void fwd(const scalar_t* x, scalar_t* y, int64_t n) {
  int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = tanh(x[i]);
}
template <typename scalar_t>
__global__ void bwd(const scalar_t* g, const scalar_t* y, scalar_t* dx, int64_t n) {
  int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) dx[i] = g[i] * (scalar_t(1) - y[i] * y[i]);
}
torch::Tensor tanh_forward(torch::Tensor x) {
  auto y = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "f", ([&] { fwd<scalar_t><<<(x.numel() + 63) / 64, 64>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), x.numel()); }));
  return y;
}
std::vector<torch::Tensor> tanh_backward(torch::Tensor g, torch::Tensor y) {
  auto dx = torch::empty_like(g);
  AT_DISPATCH_FLOATING_TYPES(g.scalar_type(), "b", ([&] { bwd<scalar_t><<<(g.numel() + 63) / 64, 64>>>(g.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), dx.data_ptr<scalar_t>(), g.numel()); }));
  return {dx};
}
""",
    lambda m: [
        (m.tanh_forward(_x(40)), _x(40).tanh()),
        (m.tanh_backward(_x(40), _x(40).tanh())[0], _x(40) * (1 - _x(40).tanh() ** 2)),
    ],
    cpp="""#include <vector>
torch::Tensor tanh_forward(torch::Tensor x);
std::vector<torch::Tensor> tanh_backward(torch::Tensor g, torch::Tensor y);
""",
    functions=("tanh_forward", "tanh_backward"),
)

add(
    "module_in_cpp_source",
    """
#include <torch/extension.h>
#include <cuda_runtime.h>
__global__ void twice(const float* x, float* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = 2 * x[i]; }
void launch_twice(const float* x, float* y, int n, cudaStream_t stream) { twice<<<(n + 63) / 64, 64, 0, stream>>>(x, y, n); }
""",
    lambda m: [(m.run(_x(50)), _x(50) * 2)],
    cpp="""
#include <c10/cuda/CUDAStream.h>
void launch_twice(const float* x, float* y, int n, cudaStream_t stream);
torch::Tensor run(torch::Tensor x) {
  TORCH_CHECK(x.is_contiguous(), "contiguous");
  torch::Tensor y = torch::empty(x.sizes(), x.options());
  launch_twice(x.data_ptr<float>(), y.data_ptr<float>(), static_cast<int>(x.numel()), c10::cuda::getCurrentCUDAStream().stream());
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run, "run"); }
""",
)

add(
    "struct_argument_and_array_member",
    EXT
    + """
struct Shape { int dims[4]; float scale; };
template <int N> struct Strides { int64_t v[N]; };
__global__ void walk(const float* x, float* y, Shape s, Strides<2> st) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < s.dims[0] * s.dims[1]) y[i] = s.scale * x[(i / s.dims[1]) * st.v[0] + (i % s.dims[1]) * st.v[1]];
}
torch::Tensor forward(torch::Tensor x) {
  auto y = torch::empty({x.size(0), x.size(1)}, x.options());
  Shape s{{(int)x.size(0), (int)x.size(1), 0, 0}, 0.5f};
  Strides<2> st; st.v[0] = x.stride(0); st.v[1] = x.stride(1);
  walk<<<(x.numel() + 63) / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), s, st);
  return y;
}
"""
    + MODULE,
    lambda m: [(m.forward(_x(5, 7).t()), _x(5, 7).t() * 0.5)],
)

add(
    "device_function_as_template_argument",
    EXT
    + """
typedef float (*Op)(float);
__device__ float dbl(float v) { return v + v; }
__device__ __forceinline__ float neg(float v) { return -v; }
template <Op F> __global__ void apply(const float* x, float* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = F(x[i]); }
torch::Tensor forward(torch::Tensor x, int which) {
  auto y = torch::empty_like(x);
  switch (which) {
    case 0: apply<dbl><<<(x.numel() + 63) / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel()); break;
    default: apply<neg><<<(x.numel() + 63) / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  }
  return y;
}
"""
    + MODULE,
    lambda m: [(m.forward(_x(30), 0), _x(30) * 2), (m.forward(_x(30), 1), -_x(30))],
)

add(
    "using_namespace_and_aliases",
    EXT
    + """
using namespace torch;
using at::Tensor;
using index_t = int64_t;
typedef unsigned int u32;
static const int TILE = 16;
const float EPS = 1e-5f;
static int calls = 0;
__global__ void transpose(const float* __restrict__ x, float* __restrict__ y, u32 rows, u32 cols) {
  __shared__ float tile[TILE][TILE + 1];
  index_t c = blockIdx.x * TILE + threadIdx.x, r = blockIdx.y * TILE + threadIdx.y;
  if (r < rows && c < cols) tile[threadIdx.y][threadIdx.x] = x[r * cols + c] + EPS - EPS;
  __syncthreads();
  c = blockIdx.y * TILE + threadIdx.x; r = blockIdx.x * TILE + threadIdx.y;
  if (r < cols && c < rows) y[r * rows + c] = tile[threadIdx.x][threadIdx.y];
}
Tensor forward(Tensor x) {
  ++calls;
  Tensor y = at::empty({x.size(1), x.size(0)}, x.options());
  dim3 block(TILE, TILE), grid((x.size(1) + TILE - 1) / TILE, (x.size(0) + TILE - 1) / TILE);
  transpose<<<grid, block>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(0), x.size(1));
  return y;
}
"""
    + MODULE,
    lambda m: [(m.forward(_x(19, 34)), _x(19, 34).t())],
)

add(
    "conditional_compilation",
    EXT
    + """
#ifndef WIDTH
#define WIDTH 4
#endif
#if WIDTH > 2
typedef float acc_t;
#else
typedef double acc_t;
#endif
__global__ void sums(const float* x, float* y, int n) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
  acc_t s = 0;
#else
  acc_t s = 1e9;
#endif
#pragma unroll
  for (int k = 0; k < WIDTH; ++k) { int i = threadIdx.x * WIDTH + k; if (i < n) s += x[i]; }
  y[threadIdx.x] = s;
}
torch::Tensor forward(torch::Tensor x) {
  auto y = torch::zeros({(x.size(0) + WIDTH - 1) / WIDTH}, x.options());
  sums<<<1, y.size(0)>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(0));
  return y;
}
"""
    + MODULE,
    lambda m: [(m.forward(_x(32)), _x(32).view(4, 8).sum(1))],
    cuda_flags=("-O3", "-DWIDTH=8", "--use_fast_math", "-Xptxas", "-v"),
)

add(
    "list_arguments",
    EXT
    + """
__global__ void add(const float* x, float* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] += x[i]; }
torch::Tensor total(std::vector<torch::Tensor> xs, std::vector<int64_t> shape, const std::string& mode) {
  auto y = torch::zeros(shape, xs[0].options());
  for (auto& x : xs) add<<<(x.numel() + 63) / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  if (mode == "mean") y.div_((double)xs.size());
  return y;
}
int64_t count(at::TensorList xs, at::IntArrayRef dims) { return xs.size() * dims.size(); }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("total", &total, py::arg("xs"), py::arg("shape"), py::arg("mode") = "sum");
  m.def("count", &count);
}
""",
    lambda m: [
        (m.total([_x(12), _x(12)], [3, 4]), _x(12).view(3, 4) * 2),
        (m.total([_x(12), _x(12)], [12], mode="mean"), _x(12)),
        (m.count([_x(1), _x(2)], [1, 2, 3]), 6),
    ],
)

add(
    "nested_launch_arguments",
    EXT
    + """
__global__ void fill(float* y, float v, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = v; }
struct Launcher {
  int threads = 32;
  dim3 grid(int n) const { return dim3((n + threads - 1) / threads); }
  void operator()(torch::Tensor& y, float v) const {
    fill<<<grid(static_cast<int>(y.numel())), dim3(threads, 1, 1), (size_t)(0), nullptr>>>(
        y.data_ptr<float>(), /* value */ v, std::max<int>(static_cast<int>(y.numel()), 0));  // trailing <<< comment >>>
  }
};
torch::Tensor forward(torch::Tensor x, double v) {
  auto y = torch::empty_like(x);
  const char* text = "fill<<<1, 2>>>(not a launch)";
  TORCH_CHECK(text[4] == '<');
  Launcher()(y, (float)v);
  return y;
}
"""
    + MODULE,
    lambda m: [(m.forward(_x(70), 2.5), torch.full((70,), 2.5))],
)

add(
    "half_pointers",
    EXT
    + """
#include <cuda_fp16.h>
__global__ void add_half(const __half* a, const __half* b, __half* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = __hadd(a[i], b[i]);
}
torch::Tensor forward(torch::Tensor a, torch::Tensor b) {
  auto c = torch::empty_like(a);
  add_half<<<(a.numel() + 63) / 64, 64>>>(reinterpret_cast<const __half*>(a.data_ptr<at::Half>()),
      reinterpret_cast<const __half*>(b.data_ptr<at::Half>()), reinterpret_cast<__half*>(c.data_ptr<at::Half>()), a.numel());
  return c;
}
"""
    + MODULE,
    lambda m: [(m.forward(_x(33).half(), _x(33).half()).float(), (_x(33).half() * 2).float())],
)
