#include <torch/extension.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/CUDAException.h>
#include <ATen/cuda/CUDAEvent.h>
__global__ void scale_kernel(const float* x, float* y, float s, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * s;
}

at::Tensor forward(const at::Tensor& x) {
  const at::cuda::OptionalCUDAGuard device_guard(at::device_of(x));
  c10::cuda::CUDAGuard guard(x.device());
  at::cuda::CUDAEvent event;
  auto y = at::empty_like(x);
  auto side = at::cuda::getStreamFromPool();
  {
    c10::cuda::CUDAStreamGuard on(side);
    scale_kernel<<<2, 64, 0, c10::cuda::getCurrentCUDAStream().stream()>>>(x.data_ptr<float>(), y.data_ptr<float>(), 0.5f, x.numel());
    event.record(side);
  }
  event.block(at::cuda::getCurrentCUDAStream());
  cudaStream_t own;
  C10_CUDA_CHECK(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
  cudaEvent_t from, to;
  AT_CUDA_CHECK(cudaEventCreate(&from));
  cudaEventCreate(&to);
  cudaEventRecord(from, own);
  scale_kernel<<<2, 64, 0, own>>>(y.data_ptr<float>(), y.data_ptr<float>(), 4.f, x.numel());
  cudaEventRecord(to, own);
  cudaEventSynchronize(to);
  float ms = 0;
  cudaEventElapsedTime(&ms, from, to);
  C10_CUDA_CHECK(cudaStreamSynchronize(own));
  cudaEventDestroy(from);
  cudaEventDestroy(to);
  cudaStreamDestroy(own);
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
