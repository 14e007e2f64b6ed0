#include <torch/extension.h>

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
  if (err != cudaSuccess) { printf("CUDA error: %s\n", cudaGetErrorString(err)); }
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward, "forward"); }
