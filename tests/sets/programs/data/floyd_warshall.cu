// All pairs of shortest paths, with the time by high_resolution_clock, getopt, and an env-like config in a namespace.
#include <unistd.h>
#include <chrono>
#include <cstring>
#include <iostream>
#include <limits>
#include <memory>
namespace config {
struct Options { int nodes = 40; unsigned seed = 1; bool quiet = false; std::string label{"apsp"}; };
Options parse(int argc, char **argv) {
  Options o;
  for (int c; (c = getopt(argc, argv, "n:s:q")) != -1;) {
    if (c == 'n') o.nodes = std::stoi(optarg);
    else if (c == 's') o.seed = std::strtoul(optarg, nullptr, 0);
    else if (c == 'q') o.quiet = true;
  }
  return o;
}
}  // namespace config
static const int INF = std::numeric_limits<int>::max() / 2;
__global__ void pass(int *dist, int *via, int n, int k) {
  int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y;
  if (j >= n) return;
  int d = dist[i * n + k] + dist[k * n + j];
  if (d < dist[i * n + j]) { dist[i * n + j] = d; via[i * n + j] = k; }
}
int main(int argc, char **argv) {
  auto options = config::parse(argc, argv);
  const int n = options.nodes;
  auto dist = std::make_unique<int[]>(n * n), out = std::make_unique<int[]>(n * n);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) dist[i * n + j] = i == j ? 0 : (i * 31 + j * 17) % 7 ? INF : 1 + (i * j) % 13;
  int *d, *via;
  cudaMalloc(&d, n * n * sizeof(int));
  cudaMalloc(&via, n * n * sizeof(int));
  cudaMemset(via, 0xff, n * n * sizeof(int));
  cudaMemcpy(d, dist.get(), n * n * sizeof(int), cudaMemcpyHostToDevice);
  auto t0 = std::chrono::high_resolution_clock::now();
  for (int k = 0; k < n; k++) pass<<<dim3((n + 31) / 32, n), 32>>>(d, via, n, k);
  cudaDeviceSynchronize();
  std::chrono::duration<float> took = std::chrono::high_resolution_clock::now() - t0;
  cudaMemcpy(out.get(), d, n * n * sizeof(int), cudaMemcpyDeviceToHost);
  for (int k = 0; k < n; k++)
    for (int i = 0; i < n; i++)
      for (int j = 0; j < n; j++) dist[i * n + j] = std::min(dist[i * n + j], dist[i * n + k] + dist[k * n + j]);
  bool good = !std::memcmp(dist.get(), out.get(), n * n * sizeof(int)) && took.count() >= 0 && options.label == "apsp";
  std::cout << (good ? "PASS" : "FAIL") << std::endl;
  return !good;
}
