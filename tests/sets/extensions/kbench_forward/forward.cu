#include <torch/extension.h>
#include <pybind11/pybind11.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/Optional.h>
#include <limits>

namespace py = pybind11;

template <typename scalar_t, int kGroupSize>
__global__ void __launch_bounds__(256)
group_norm_scale_kernel(
    const torch::PackedTensorAccessor32<scalar_t, 2, torch::RestrictPtrTraits> x,
    const torch::PackedTensorAccessor32<scalar_t, 1, torch::RestrictPtrTraits> gamma,
    const torch::PackedTensorAccessor32<scalar_t, 1, torch::RestrictPtrTraits> beta,
    const scalar_t* __restrict__ scale,
    torch::PackedTensorAccessor32<scalar_t, 2, torch::RestrictPtrTraits> out,
    const float lo, const float hi, const float eps) {
    static_assert(kGroupSize <= 32 && (kGroupSize & (kGroupSize - 1)) == 0, "a group is a part of a warp");
    const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const int64_t total = static_cast<int64_t>(x.size(0)) * x.size(1);
    const unsigned active = __ballot_sync(0xffffffffu, index < total);
    if (index >= total) return;
    const int row = index / x.size(1), col = index % x.size(1);
    const scalar_t v = x[row][col];
    scalar_t sum = v, squares = v * v;
    #pragma unroll
    for (int offset = kGroupSize / 2; offset > 0; offset >>= 1) {
        sum += __shfl_xor_sync(active, sum, offset, kGroupSize);
        squares += __shfl_xor_sync(active, squares, offset, kGroupSize);
    }
    const scalar_t mean = sum / kGroupSize;
    const scalar_t variance = fmaxf(squares / kGroupSize - mean * mean, scalar_t(0));
    const scalar_t normed = (v - mean) * rsqrtf(variance + eps);
    const scalar_t scaled = (normed * __ldg(&gamma[col]) + __ldg(&beta[col])) * scale[col];
    out[row][col] = min(max(scaled, scalar_t(lo)), scalar_t(hi));
}

torch::Tensor forward(
    torch::Tensor x,
    torch::Tensor gamma,
    torch::Tensor beta,
    torch::Tensor scale,
    int64_t num_groups,
    c10::optional<double> eps,
    std::tuple<double, double> limits) {
    TORCH_CHECK(x.is_cuda(), "x must be a CUDA tensor");
    TORCH_CHECK_EQ(x.dim(), 2);
    TORCH_INTERNAL_ASSERT(gamma.sizes() == beta.sizes());
    const c10::cuda::CUDAGuard guard(x.device());
    auto out = torch::empty(x.sizes(), torch::TensorOptions().dtype(x.dtype()).device(x.device()));
    const auto total = x.numel();
    const int threads = 256;
    const int blocks = at::ceil_div<int64_t>(total, threads);
    const auto stream = c10::cuda::getCurrentCUDAStream(x.get_device());
    const int group_size = x.size(1) / num_groups;
    TORCH_CHECK(group_size == 8, "unsupported group size ", group_size);

    AT_DISPATCH_SWITCH(x.scalar_type(), "group_norm_scale", AT_DISPATCH_CASE(at::ScalarType::Float, [&] {
        group_norm_scale_kernel<scalar_t, 8><<<blocks, threads, 0, stream>>>(
            x.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>(),
            gamma.packed_accessor32<scalar_t, 1, torch::RestrictPtrTraits>(),
            beta.packed_accessor32<scalar_t, 1, torch::RestrictPtrTraits>(),
            scale.const_data_ptr<scalar_t>(),
            out.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>(),
            static_cast<float>(std::get<0>(limits)), static_cast<float>(std::get<1>(limits)),
            static_cast<float>(eps.value_or(1e-5)));
    }));
    cudaError_t err = cudaGetLastError();
    if (err != cudaSuccess) {
        throw std::runtime_error(std::string("kernel launch failed: ") + cudaGetErrorString(err));
    }
    return out;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.doc() = "group norm, scale and hardtanh in one kernel";
    m.def("forward", &forward, "fused forward", py::arg("x"), py::arg("gamma"), py::arg("beta"), py::arg("scale"),
          py::arg("num_groups"), py::arg("eps") = py::none(), py::arg("limits") = std::make_tuple(-1.0, 1.0),
          py::call_guard<py::gil_scoped_release>());
}
