"""Names that host and device code of one text share, and names that nvcc keeps separate."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernelwright.backends.build import build
from kernelwright.backends.extension import Extension
from kernelwright.builds import BuildRequest, BuildResult
from kernelwright.machine.runtime import Runtime

EXT = "#include <torch/extension.h>\n"
LAUNCH = "torch::Tensor forward(torch::Tensor x) { auto y = torch::empty_like(x); %s; return y; }\n"
MODULE = 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }\n'
POINTERS = "x.data_ptr<float>(), y.data_ptr<float>()"
PLAIN = LAUNCH % f"k<<<1, 32>>>({POINTERS})"
BY_PARAMS = "__global__ void k(P p) { p.y[threadIdx.x] = 2.f * p.x[threadIdx.x]; }\n"
PARAMS = LAUNCH % f"k<<<1, 32>>>(P{{{POINTERS}}})"

SHARED = {
    "alias template": "template <typename T> using Ptr = T*;\n"
    "__global__ void k(Ptr<const float> x, Ptr<float> y) { y[threadIdx.x] = 2.f * x[threadIdx.x]; }\n" + PLAIN,
    "constructor that takes tensors": "struct P { const float* x; float* y; P(const torch::Tensor& a, at::Tensor& b)"
    " : x(a.data_ptr<float>()), y{b.data_ptr<float>()} {} };\n" + BY_PARAMS + LAUNCH % "k<<<1, 32>>>(P(x, y))",
    "template with such a constructor": "template <typename T> struct View { T* p; int64_t n;\n"
    " View(torch::Tensor t) : p(t.data_ptr<T>()), n(t.numel()) {} };\n"
    "__global__ void k(View<float> x, View<float> y)\n"
    "{ if (threadIdx.x < x.n) y.p[threadIdx.x] = 2.f * x.p[threadIdx.x]; }\n"
    + LAUNCH % "k<<<1, 32>>>(View<float>(x), View<float>(y))",
    "factory beside a device function": "struct P { const float* x; float* y;\n"
    " static P make(const torch::Tensor& a, torch::Tensor& b) { return P{a.data_ptr<float>(), b.data_ptr<float>()}; }\n"
    " __device__ float at(int i) const { return 2.f * x[i]; } };\n"
    "__global__ void k(P p) { p.y[threadIdx.x] = p.at(threadIdx.x); }\n" + LAUNCH % "k<<<1, 32>>>(P::make(x, y))",
    "member that launches": "__global__ void k(const float* x, float* y) { y[threadIdx.x] = 2.f * x[threadIdx.x]; }\n"
    "struct Run { static void go(const float* x, float* y) { k<<<1, 32>>>(x, y); } };\n"
    + LAUNCH % f"Run::go({POINTERS})",
    "stream among the arguments": "struct P { const float* x; float* y; cudaStream_t stream = nullptr; };\n"
    + BY_PARAMS
    + PARAMS,
    "members that only the host calls": "struct P { const float* x; float* y; int blocks() const { return 1; } };\n"
    + BY_PARAMS
    + LAUNCH % f"P p{{{POINTERS}}}; k<<<p.blocks(), 32>>>(p)",
    "constexpr members": "struct Two { static constexpr float of(float v) { return 2.f * v; } };\n"
    "__global__ void k(const float* x, float* y) { y[threadIdx.x] = Two::of(x[threadIdx.x]); }\n" + PLAIN,
    "annotations by macros": "#ifdef __CUDACC__\n#define HD __host__ __device__ __forceinline__\n#else\n"
    "#define HD\n#endif\n"
    "struct Op { float f; HD Op(float f) : f(f) {} HD float operator()(float v) const { return f * v; } };\n"
    "__global__ void k(const float* x, float* y) { y[threadIdx.x] = Op(2.f)(x[threadIdx.x]); }\n" + PLAIN,
    "elements of constant arrays that become numbers": "constexpr float TABLE[2] = {1.f, 2.f};\n"
    "__global__ void k(const float* x, float* y) { y[threadIdx.x] = TABLE[1] * x[threadIdx.x]; }\n" + PLAIN,
    "arrays that only the host reads": "const int SIZES[2] = {16, 32};\n"
    "__global__ void k(const float* x, float* y) { y[threadIdx.x] = 2.f * x[threadIdx.x]; }\n"
    + LAUNCH % f"k<<<1, SIZES[x.numel() > 16]>>>({POINTERS})",
    "kernels for nvcc only": "#if defined(__CUDACC__) && __CUDACC_VER_MAJOR__ >= 11 && CUDART_VERSION >= 11000\n"
    "__global__ void k(const float* x, float* y) { y[threadIdx.x] = 2.f * x[threadIdx.x]; }\n#endif\n"
    "#if TORCH_VERSION_MAJOR < 2\n#error too old\n#endif\n" + PLAIN,
    "condition on a type":
    "template <typename T, typename = std::enable_if_t<std::is_floating_point<T>::value>, int = 3>\n"
    "__global__ void k(const T* x, T* y) { y[threadIdx.x] = T(2) * x[threadIdx.x]; }\n" + PLAIN,
    "parameter pack": "template <typename... Ts> __global__ void k(const float* x, float* y, Ts... more)\n"
    "{ y[threadIdx.x] = x[threadIdx.x] * (0.f + ... + more); }\n" + LAUNCH % f"k<<<1, 32>>>({POINTERS}, 1.5f, 0.5)",
    "dead code that is not balanced": "#if 0\nvoid old( { it's /* never\n compiled */\n#elif 1\n#endif\n"
    "#if 1\n__global__ void k(const float* x, float* y) { y[threadIdx.x] = 2.f * x[threadIdx.x]; }\n"
    "#else\n}}}\n#endif\n"
    + PLAIN,
    "two signatures of one body": "#ifdef USE_DOUBLE\n__global__ void k(const double* x, double* y) {\n#else\n"
    "__global__ void k(const float* x, float* y) {\n#endif\n  y[threadIdx.x] = 2 * x[threadIdx.x];\n}\n" + PLAIN,
    "two signatures of one host function": "__global__ void k(const float* x, float* y)\n"
    "{ y[threadIdx.x] = 2.f * x[threadIdx.x]; }\n#if TORCH_VERSION_MAJOR >= 2\n"
    "torch::Tensor forward(torch::Tensor x) {\n#else\nat::Tensor forward(at::Tensor x, bool) {\n#endif\n"
    + PLAIN.partition("{")[2],
    "two heads of one loop": "#define STRIDE 1\n__global__ void k(const float* x, float* y) {\n"
    "#if STRIDE && __CUDA_ARCH__ >= 700\n  for (int i = threadIdx.x; i < 32; i += blockDim.x) {\n#else\n"
    "  int i = threadIdx.x; if (i < 16) {\n#endif\n    y[i] = 2.f * x[i];\n  }\n}\n" + PLAIN,
    "specialisations of a kernel": "template <typename T, int N> __global__ void k(const T* x, T* y) {}\n"
    "template <> __global__ void __launch_bounds__(32) k<float, 2>(const float* x, float* y)\n"
    "{ y[threadIdx.x] = 2.f * x[threadIdx.x]; }\n" + LAUNCH % f"k<float, 2><<<1, 32>>>({POINTERS})",
    "specialisations alone": "namespace n { template <typename T> __global__ void k(const T*, T* y);\n"
    "template <> __global__ void k<float>(const float* x, float* y) { y[threadIdx.x] = 2.f * x[threadIdx.x]; }\n"
    "template <> __global__ void k(const double* x, double* y) { y[threadIdx.x] = x[threadIdx.x]; } }\n"
    + LAUNCH % f"n::k<float><<<1, 32>>>({POINTERS})",
    "a specialisation that is declared before it is used":
    "template <typename T, bool B> __global__ void k(const T*, T*) {}\n"
    "template <> __global__ void k<float, true>(const float*, float*);\n"
    + LAUNCH % f"k<float, true><<<1, 32>>>({POINTERS})"
    + "template <> __global__ void k<float, true>(const float* x, float* y)\n"
    "{ y[threadIdx.x] = 2.f * x[threadIdx.x]; }\ntemplate __global__ void k<double, true>(const double*, double*);\n",
    "a specialisation outside of its namespace": "namespace a { namespace b {\n"
    "template <typename T> __global__ void k(const T*, T* y); } }\n"
    "template <> __global__ void a::b::k<float>(const float* x, float* y) { y[threadIdx.x] = 2.f * x[threadIdx.x]; }\n"
    + LAUNCH % f"a::b::k<float><<<1, 32>>>({POINTERS})",
    "specialisations whose arguments are deduced": "template <typename T> __global__ void k(const T*, T* y);\n"
    "template <> __global__ void k(const float* x, float* y) { y[threadIdx.x] = 2.f * x[threadIdx.x]; }\n" + PLAIN,
    "torch's loop over a grid": "#include <ATen/cuda/detail/KernelUtils.h>\n"
    "__global__ void k(const float* x, float* y, int n) { CUDA_KERNEL_LOOP(i, n) { y[i] = 2.f * x[i]; } }\n"
    + LAUNCH % f"k<<<at::cuda::detail::GET_BLOCKS(x.numel(), 8), 8>>>({POINTERS}, x.numel())",
    "template template parameters": "namespace { template <typename T> struct Twice\n"
    "{ __device__ T operator()(T v) const { return T(2) * v; } }; }\n"
    "template <template <typename> class Op, typename T> __global__ void k(const T* x, T* y)\n"
    "{ y[threadIdx.x] = Op<T>()(x[threadIdx.x]); }\n" + LAUNCH % f"k<Twice><<<1, 32>>>({POINTERS})",
    "functions annotated by torch's macros": "template <typename T> C10_DEVICE T own(const T* x)"
    " { return x[threadIdx.x]; }\nC10_HOST_DEVICE inline int two() { return 2; }\n"
    "__global__ void k(const float* x, float* y) { y[threadIdx.x] = two() * own(x); }\n"
    + LAUNCH % f"k<<<two() - 1, 32>>>({POINTERS})",
    "an attribute before an annotation": "[[nodiscard]] __device__ float twice(float v) { return 2.f * v; }\n"
    "__global__ void k(const float* x, float* y) { y[threadIdx.x] = twice(x[threadIdx.x]); }\n" + PLAIN,
    "other names for namespaces of the device's": "#include <ATen/cuda/CUDAContext.h>\n#include <cuda/std/array>\n"
    "namespace cs = cuda::std;\n"
    "using Pair = cuda::std::array<float, 2>;\nusing Stream = at::cuda::CUDAStream;\n"
    "__global__ void k(const float* x, float* y)\n"
    "{ Pair p{x[threadIdx.x], 2.f}; cs::array<int, 1> i{1}; y[threadIdx.x] = p[0] * p[i[0]]; }\n"
    + LAUNCH % f"Stream s = at::cuda::getCurrentCUDAStream(); k<<<1, 32, 0, s>>>({POINTERS})",
    "other names for namespaces of the host's": "namespace t = torch;\nusing t::Tensor;\n"
    "struct P { const float* x; float* y; P(const t::Tensor& a, Tensor& b)\n"
    " : x(a.data_ptr<float>()), y(b.data_ptr<float>()) {} };\n" + BY_PARAMS + LAUNCH % "k<<<1, 32>>>(P(x, y))",
    "concepts": "template <typename T> concept Floating = std::is_floating_point_v<T>;\n"
    "template <Floating T> __device__ T twice(T v) { return T(2) * v; }\n"
    "template <typename T> requires Floating<T>\n"
    "__global__ void k(const T* x, T* y) { y[threadIdx.x] = twice(x[threadIdx.x]); }\n" + PLAIN,
    "what std has beside the everyday": "#include <bit>\n#include <tuple>\n#include <functional>\n"
    "template <int... I> __device__ float sum(float v, std::integer_sequence<int, I...>)\n"
    "{ return ((v + 0 * I) + ...); }\n"
    "__device__ std::tuple<float, int> both(float v) { return std::make_tuple(v, 2); }\n"
    "__global__ void k(const float* x, float* y) {\n  auto [v, n] = both(x[threadIdx.x]);\n"
    "  const float w = std::plus<float>()(v, v) - sum(v, std::make_integer_sequence<int, 2>{});\n"
    "  y[threadIdx.x] = std::max({w, std::bit_cast<float>(__float_as_int(v) * 1), -1.f}) * n; }\n" + PLAIN,
    "torch's complex numbers": "template <typename T> __global__ void k(const c10::complex<T>* x, c10::complex<T>* y)\n"
    "{ auto z = x[threadIdx.x]; y[threadIdx.x] = std::conj(std::conj(z)) * std::abs(c10::complex<T>(0, 2)); }\n"
    + LAUNCH % "k<float><<<1, 16>>>((const c10::complex<float>*)x.data_ptr(), (c10::complex<float>*)y.data_ptr())",
    "unrolling by a macro": '#define UNROLL _Pragma("unroll")\n__global__ void k(const float* x, float* y) {\n'
    "  UNROLL for (int i = 0; i < 2; ++i) y[threadIdx.x + 16 * i] = 2.f * x[threadIdx.x + 16 * i];\n"
    '  _Pragma("unroll 2") for (int i = 0; i < 2; ++i) {} }\n' + LAUNCH % f"k<<<1, 16>>>({POINTERS})",
    "parameters by macros": "#define IN(T) const T* x\n#define OUT(T, name) T* __restrict__ name\n"
    "#define REST , int n, \\\n  float f\n__global__ void k(IN(float), OUT(float, y) REST)\n"
    "{ if (threadIdx.x < n) y[threadIdx.x] = f * x[threadIdx.x]; }\n"
    + LAUNCH % f"k<<<1, 32>>>({POINTERS}, 32, 2.f)",
    "complex numbers of CUDA's": "#include <cuComplex.h>\n"
    "__global__ void k(const float* x, float* y, cuFloatComplex i) {\n"
    "  y[threadIdx.x] = -cuCrealf(cuCmulf(i, make_cuComplex(0.f, x[threadIdx.x]))); }\n"
    + LAUNCH % f"k<<<1, 32>>>({POINTERS}, cuCaddf(make_cuFloatComplex(0.f, 1.f), {{0.f, 1.f}}))",
}  # fmt: skip
CALLED = 'calling a __host__ function("'
REFUSED = {
    "functor": (
        "struct Op { float operator()(float v) const { return 2.f * v; } };\n"
        "__global__ void k(const float* x, float* y, Op f) { y[threadIdx.x] = f(x[threadIdx.x]); }\n"
        + LAUNCH % f"k<<<1, 32>>>({POINTERS}, Op{{}})", CALLED),
    "constructor": ("struct Sum { float a; Sum() : a(0.f) {} __device__ void add(float v) { a += v; } };\n"
    "__global__ void k(const float* x, float* y) { Sum s; s.add(x[threadIdx.x]); y[threadIdx.x] = s.a; }\n"
    + PLAIN, CALLED),
    "static member": ("struct Op { static float apply(float v) { return 2.f * v; } };\n"
    "__global__ void k(const float* x, float* y) { y[threadIdx.x] = Op::apply(x[threadIdx.x]); }\n" + PLAIN, CALLED),
    "constant array": ("const float TABLE[32] = {2.f};\n"
    "__global__ void k(const float* x, float* y) { y[threadIdx.x] = TABLE[threadIdx.x] * x[threadIdx.x]; }\n" + PLAIN,
    'identifier "TABLE" is undefined in device code'),
    "constexpr array in a namespace": ("namespace tables { constexpr float W[32] = {2.f}; }\n"
    "__global__ void k(const float* x, float* y) { y[threadIdx.x] = tables::W[threadIdx.x] * x[threadIdx.x]; }\n"
    + PLAIN,
    'identifier "W" is undefined in device code'),
    "specialisation after its use": ("template <typename T> __global__ void k(const T* x, T* y) {}\n"
    + LAUNCH % f"k<float><<<1, 32>>>({POINTERS})" + "template <> __global__ void k<float>(const float*, float*) {}\n",
    "after instantiation"),
    "specialisation that is missing": ("template <typename T> __global__ void k(const T* x, T* y);\n"
    "template <> __global__ void k<double>(const double* x, double* y) {}\n"
    + LAUNCH % f"k<float><<<1, 32>>>({POINTERS})", "undefined reference"),
}  # fmt: skip


def built(cache: Path, text: str, flags: tuple[str, ...] = ()) -> BuildResult:
    return build(BuildRequest("extension", "halves", EXT + text + MODULE, cuda_flags=flags), cache)


@pytest.fixture
def runtime(cache: Path) -> Runtime:
    return Runtime(lambda request: build(request, cache))


def doubled(result: BuildResult, runtime: Runtime) -> bool:
    assert result.status == "ok", result.log
    x = torch.arange(32, dtype=torch.float32)
    return torch.equal(Extension(result, runtime).forward(x), 2 * x)


@pytest.mark.parametrize("name", SHARED)
def test_what_both_halves_may_say(cache: Path, runtime: Runtime, name: str) -> None:
    assert doubled(built(cache, SHARED[name]), runtime)


@pytest.mark.parametrize("name", REFUSED)
def test_what_nvcc_refuses_in_device_code(cache: Path, name: str) -> None:
    text, message = REFUSED[name]
    result = built(cache, text)
    assert result.status == "compile_error" and message in result.log, (result.status, result.log)


@pytest.mark.parametrize(
    "flags", [("-DTWO=(1.f + 1.f)", "-DOF(a, b)=a * b"), ("-D", "TWO=2.0", "-D", "OF(a, b)=b * a")]
)
def test_definitions_on_the_command_line(cache: Path, runtime: Runtime, flags: tuple[str, ...]) -> None:
    text = "__global__ void k(const float* x, float* y) { y[threadIdx.x] = OF(TWO, x[threadIdx.x]); }\n" + PLAIN
    assert doubled(built(cache, text + 'static_assert(OF(1, 2) == 2 && TWO == 2, "");\n', flags), runtime)


def test_the_version_of_torch_without_cuda(cache: Path) -> None:
    text = "#if TORCH_VERSION_MAJOR < 2\n#error old\n#endif\nint two() { return TORCH_VERSION_MINOR >= 0 ? 2 : 0; }\n"
    result = build(BuildRequest("extension", "plain", cpp_source=EXT + text, functions=("two",)), cache)
    assert result.status == "ok", result.log


def test_a_conditional_that_cannot_be_decided_is_no_fault(cache: Path) -> None:
    text = "#if __has_include(<nothing.h>)\nvoid k2(double x) {\n#else\nvoid k2(float x) {\n#endif\n}\n"
    kernel = "__global__ void k(const float* x, float* y) { y[threadIdx.x] = 2.f * x[threadIdx.x]; }\n"
    result = built(cache, kernel + text + PLAIN)
    assert result.status == "unsupported" and "conditional" in result.missing[0], result.log


def test_a_type_that_device_code_cannot_have_is_no_fault(cache: Path) -> None:
    text = "struct P { const float* x; float* y; std::vector<int> sizes; };\n" + BY_PARAMS.replace("P p", "const P& p")
    result = built(cache, text + LAUNCH % f"k<<<1, 32>>>(P{{{POINTERS}, {{}}}})")
    assert result.status == "unsupported" and result.missing == ("P in device code",), result.log


def test_a_type_of_parameters_that_is_missing_is_no_fault(cache: Path) -> None:
    kernel = "__global__ void k(cudaTextureObject_t t, float* y) { y[0] = tex1Dfetch<float>(t, 0); }\n"
    result = built(cache, kernel + LAUNCH % "k<<<1, 1>>>(0, y.data_ptr<float>())")
    assert result.status == "unsupported" and result.missing == ("cudaTextureObject_t",), result.log
