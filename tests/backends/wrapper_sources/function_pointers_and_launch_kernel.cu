#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>

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

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward, "forward"); }
