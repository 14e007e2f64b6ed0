#include <torch/extension.h>

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
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward, "forward"); }
