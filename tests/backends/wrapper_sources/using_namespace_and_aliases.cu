#include <torch/extension.h>

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
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward, "forward"); }
