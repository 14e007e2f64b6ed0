#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/cuda/Atomic.cuh>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/DeviceUtils.cuh>
#include <ATen/core/TensorAccessor.h>
#include <c10/util/complex.h>
#include <c10/cuda/CUDAMathCompat.h>

#include "filter.h"

namespace filter {
namespace {

template <typename T, size_t N>
using Accessor = at::GenericPackedTensorAccessor<T, N, at::RestrictPtrTraits, int32_t>;

template <typename T>
__device__ __forceinline__ T warp_sum(T value) {
#pragma unroll
    for (int offset = C10_WARP_SIZE / 2; offset > 0; offset /= 2) value += WARP_SHFL_DOWN(value, offset);
    return value;
}

// A row of an accessor is an accessor, which has its own size and strides.
template <typename Row>
__device__ int length(Row row) {
    return row.size(0);
}

template <typename scalar_t>
__global__ C10_LAUNCH_BOUNDS_1(128) void filter_kernel(const Accessor<scalar_t, 2> re, const Accessor<scalar_t, 2> im,
                                                       const Accessor<scalar_t, 1> w_re,
                                                       const Accessor<scalar_t, 1> w_im, Accessor<scalar_t, 2> out_re,
                                                       Accessor<scalar_t, 2> out_im, scalar_t* energy) {
    using complex_t = c10::complex<scalar_t>;
    const auto row = re[blockIdx.x];
    scalar_t sum = 0;
    for (int j = threadIdx.x; j < length(row); j += blockDim.x) {
        const complex_t value(row[j], im[blockIdx.x][j]);
        const complex_t weight{w_re[j], w_im[j]};
        complex_t product = value * weight;
        out_re[blockIdx.x][j] = product.real();
        out_im[blockIdx.x][j] = product.imag();
        sum += std::norm(product);
    }
    sum = warp_sum(sum);
    if (threadIdx.x % C10_WARP_SIZE == 0) gpuAtomicAddNoReturn(&energy[blockIdx.x], sum);
}

}  // namespace

void launch(const at::Tensor& re, const at::Tensor& im, const at::Tensor& w_re, const at::Tensor& w_im,
            at::Tensor& out_re, at::Tensor& out_im, at::Tensor& energy, const Options& options) {
    TORCH_CHECK_NOT_IMPLEMENTED(!options.normalised && !options.gain.has_value(), "no gain yet");
    const auto stream = at::cuda::getCurrentCUDAStream();
    AT_DISPATCH_FLOATING_TYPES(re.scalar_type(), "filter", ([&] {
        filter_kernel<scalar_t><<<re.size(0), 64, 0, stream>>>(
            re.packed_accessor32<scalar_t, 2, at::RestrictPtrTraits>(),
            im.packed_accessor32<scalar_t, 2, at::RestrictPtrTraits>(),
            w_re.packed_accessor32<scalar_t, 1, at::RestrictPtrTraits>(),
            w_im.packed_accessor32<scalar_t, 1, at::RestrictPtrTraits>(),
            out_re.packed_accessor32<scalar_t, 2, at::RestrictPtrTraits>(),
            out_im.packed_accessor32<scalar_t, 2, at::RestrictPtrTraits>(), energy.mutable_data_ptr<scalar_t>());
    }));
    AT_CUDA_CHECK(cudaPeekAtLastError());
}

}  // namespace filter
