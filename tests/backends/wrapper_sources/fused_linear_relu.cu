#include <torch/extension.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <vector>

template <typename scalar_t>
__global__ void bias_relu_kernel(scalar_t* __restrict__ y, const scalar_t* __restrict__ b, const int64_t rows, const int64_t cols) {
  const int64_t index = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (index < rows * cols) {
    scalar_t v = y[index] + b[index % cols];
    y[index] = v > scalar_t(0) ? v : scalar_t(0);
  }
}

torch::Tensor forward(torch::Tensor input, torch::Tensor weight, torch::Tensor bias) {
  TORCH_CHECK(input.dim() == 2, "input must be 2D, got ", input.dim(), "D");
  TORCH_CHECK(input.size(1) == weight.size(1), "in_features mismatch: ", input.sizes(), " and ", weight.sizes());
  auto output = torch::matmul(input, weight.t()).contiguous();
  const int threads = 256;
  const int blocks = (output.numel() + threads - 1) / threads;
  AT_DISPATCH_FLOATING_TYPES(output.scalar_type(), "bias_relu", ([&] {
    bias_relu_kernel<scalar_t><<<blocks, threads>>>(
        output.data_ptr<scalar_t>(), bias.data_ptr<scalar_t>(), output.size(0), output.size(1));
  }));
  cudaError_t err = cudaGetLastError();
  TORCH_CHECK(err == cudaSuccess, "CUDA error: ", cudaGetErrorString(err));
  return output;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
