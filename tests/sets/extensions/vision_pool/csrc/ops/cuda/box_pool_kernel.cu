#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <float.h>
#include <torch/library.h>
#include <ATen/cuda/Atomic.cuh>
#include <ATen/native/cuda/KernelUtils.cuh>

#include "cuda_helpers.h"
#include "../box_pool.h"

namespace vision {
namespace ops {

namespace {

template <typename T>
__global__ void box_pool_kernel_impl(
    int nthreads,
    const T* input,
    int channels,
    int height,
    int width,
    int pooled_height,
    int pooled_width,
    const T* rois,
    T* output) {
  // One thread per element of a box: it adds its share to the bin.
  CUDA_1D_KERNEL_LOOP(index, nthreads) {
    int pw = index % pooled_width;
    int ph = (index / pooled_width) % pooled_height;
    int c = (index / pooled_width / pooled_height) % channels;
    int n = index / pooled_width / pooled_height / channels;

    const T* offset_rois = rois + n * 5;
    int roi_batch_ind = offset_rois[0];
    int x0 = offset_rois[1];
    int y0 = offset_rois[2];
    int w = offset_rois[3];
    int h = offset_rois[4];
    const T* plane = input + (roi_batch_ind * channels + c) * height * width;
    const T share = T(1) / (w * h);
    for (int y = y0 + ph * h; y < y0 + (ph + 1) * h; ++y)
      for (int x = x0 + pw * w; x < x0 + (pw + 1) * w; ++x)
        gpuAtomicAdd(output + index, plane[y * width + x] * share);
  }
}

at::Tensor box_pool_forward_kernel(
    const at::Tensor& input,
    const at::Tensor& rois,
    int64_t pooled_height,
    int64_t pooled_width) {
  TORCH_CHECK(input.is_cuda(), "input must be a CUDA tensor");
  TORCH_CHECK(rois.is_cuda(), "rois must be a CUDA tensor");
  TORCH_CHECK(rois.size(1) == 5, "rois must have shape as Tensor[K, 5]");

  at::TensorArg input_t{input, "input", 1}, rois_t{rois, "rois", 2};

  at::CheckedFrom c = "box_pool_forward_kernel";
  at::checkAllSameGPU(c, {input_t, rois_t});
  at::checkAllSameType(c, {input_t, rois_t});

  at::cuda::CUDAGuard device_guard(input.device());

  auto num_rois = rois.size(0);
  auto channels = input.size(1);
  auto height = input.size(2);
  auto width = input.size(3);

  at::Tensor output = detail::_box_pool_out_of(input, num_rois, pooled_height, pooled_width);

  auto output_size = num_rois * pooled_height * pooled_width * channels;
  cudaStream_t stream = at::cuda::getCurrentCUDAStream();

  dim3 grid(std::min(
      ceil_div(static_cast<int64_t>(output_size), static_cast<int64_t>(512)),
      static_cast<int64_t>(4096)));
  dim3 block(512);

  if (output.numel() == 0) {
    AT_CUDA_CHECK(cudaGetLastError());
    return output;
  }

  auto input_ = input.contiguous(), rois_ = rois.contiguous();
  AT_DISPATCH_FLOATING_TYPES_AND_HALF(
      input.scalar_type(), "box_pool_forward_kernel", [&] {
        box_pool_kernel_impl<scalar_t><<<grid, block, 0, stream>>>(
            output_size,
            input_.data_ptr<scalar_t>(),
            channels,
            height,
            width,
            pooled_height,
            pooled_width,
            rois_.data_ptr<scalar_t>(),
            output.data_ptr<scalar_t>());
      });
  AT_CUDA_CHECK(cudaGetLastError());
  return output;
}

} // namespace

TORCH_LIBRARY_IMPL(vision_own, CUDA, m) {
  m.impl(
      TORCH_SELECTIVE_NAME("vision_own::box_pool"),
      TORCH_FN(box_pool_forward_kernel));
}

} // namespace ops
} // namespace vision
