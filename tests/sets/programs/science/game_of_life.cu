// Life on a torus: two buffers, std::bitset lines, and a kernel with a template boolean.
#include <algorithm>
#include <array>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>
namespace life {
using Cell = std::uint8_t;
constexpr int W = 40, H = 24;
struct World {
  std::vector<Cell> cells = std::vector<Cell>(W * H);
  int alive() const { return static_cast<int>(std::count(cells.begin(), cells.end(), Cell{1})); }
  void put(int x, int y, const std::array<const char *, 3> &shape) {
    for (int r = 0; r < 3; ++r)
      for (int c = 0; c < 3; ++c) cells[(y + r) % H * W + (x + c) % W] = shape[r][c] == '#';
  }
};
template <bool Torus>
__global__ void evolve(const Cell *now, Cell *next) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= W || y >= H) return;
  int n = 0;
  for (int dy = -1; dy <= 1; ++dy)
    for (int dx = -1; dx <= 1; ++dx)
      if (dx || dy) {
        if constexpr (Torus) n += now[(y + dy + H) % H * W + (x + dx + W) % W];
        else if (x + dx >= 0 && x + dx < W && y + dy >= 0 && y + dy < H) n += now[(y + dy) * W + x + dx];
      }
  next[y * W + x] = n == 3 || (n == 2 && now[y * W + x]);
}
}  // namespace life

int main() {
  using namespace life;
  World world;
  world.put(5, 5, {".#.", "..#", "###"});
  const auto before = world.cells;
  Cell *a, *b;
  cudaMalloc(&a, W * H);
  cudaMalloc(&b, W * H);
  cudaMemcpy(a, world.cells.data(), W * H, cudaMemcpyHostToDevice);
  dim3 block{16, 8}, grid{(W + block.x - 1) / block.x, (H + block.y - 1) / block.y};
  for (int step = 0; step < 4 * 8; ++step) {
    evolve<true><<<grid, block>>>(a, b);
    std::swap(a, b);
  }
  cudaMemcpy(world.cells.data(), a, W * H, cudaMemcpyDeviceToHost);
  bool good = world.alive() == 5;
  for (int y = 0; y < H; ++y)
    for (int x = 0; x < W; ++x) good = good && world.cells[(y + 8) % H * W + (x + 8) % W] == before[y * W + x];
  evolve<false><<<grid, block>>>(a, b);
  good = good && cudaDeviceSynchronize() == cudaSuccess;
  std::cout << std::string(good ? "PASS" : "FAIL") << '\n';
  return good ? 0 : 1;
}
