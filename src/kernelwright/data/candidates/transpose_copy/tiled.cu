// Right: a plain .cu file. A tile goes through shared memory, so that reads and writes are both consecutive.
#include <torch/extension.h>

constexpr int TILE = 16;

__global__ void transpose(const float* __restrict__ x, float* __restrict__ y, int height, int width) {
    __shared__ float tile[TILE][TILE + 1];  // one more column, so that a column's elements lie in different banks
    long long base = (long long)blockIdx.z * height * width;
    int col = blockIdx.x * TILE + threadIdx.x, row = blockIdx.y * TILE + threadIdx.y;
    if (row < height && col < width) tile[threadIdx.y][threadIdx.x] = x[base + (long long)row * width + col];
    __syncthreads();
    col = blockIdx.y * TILE + threadIdx.x;
    row = blockIdx.x * TILE + threadIdx.y;
    if (row < width && col < height) y[base + (long long)row * height + col] = tile[threadIdx.x][threadIdx.y];
}

torch::Tensor forward(torch::Tensor x) {
    int batch = x.size(0), height = x.size(1), width = x.size(2);
    auto y = torch::empty({batch, width, height}, x.options());
    dim3 grid((width + TILE - 1) / TILE, (height + TILE - 1) / TILE, batch), block(TILE, TILE);
    transpose<<<grid, block>>>(x.data_ptr<float>(), y.data_ptr<float>(), height, width);
    return y;
}
