// cub::Device* with the two-call protocol: sum, scans, pairs sorted, selection, histogram.
#include <cub/cub.cuh>
#include <cstdio>
#include <vector>
#include <algorithm>
#define CubDebugExit(x) do { cudaError_t e = (x); if (e) { printf("%s\n", cudaGetErrorString(e)); exit(1); } } while (0)

struct LessThan {
  int compare;
  __host__ __device__ explicit LessThan(int c) : compare(c) {}
  __host__ __device__ bool operator()(const int &a) const { return a < compare; }
};

int main() {
  const int n = 1000;
  std::vector<int> h(n), out(n);
  for (int i = 0; i < n; i++) h[i] = (i * 7919) % 1009;
  int *in, *result, *count, *keys, *values, *values_out;
  cudaMalloc(&in, n * 4); cudaMalloc(&result, n * 4); cudaMalloc(&count, 4);
  cudaMalloc(&keys, n * 4); cudaMalloc(&values, n * 4); cudaMalloc(&values_out, n * 4);
  cudaMemcpy(in, h.data(), n * 4, cudaMemcpyHostToDevice);
  void *temp = nullptr;
  size_t bytes = 0;
  CubDebugExit(cub::DeviceReduce::Sum(temp, bytes, in, count, n));
  CubDebugExit(cudaMalloc(&temp, bytes));
  CubDebugExit(cub::DeviceReduce::Sum(temp, bytes, in, count, n));
  int total = 0, want = 0;
  cudaMemcpy(&total, count, 4, cudaMemcpyDeviceToHost);
  for (int v : h) want += v;
  bool good = total == want;
  cudaFree(temp); temp = nullptr; bytes = 0;
  cub::DeviceScan::ExclusiveSum(temp, bytes, in, result, n);
  cudaMalloc(&temp, bytes);
  cub::DeviceScan::ExclusiveSum(temp, bytes, in, result, n);
  cudaMemcpy(out.data(), result, n * 4, cudaMemcpyDeviceToHost);
  for (int i = 0, s = 0; i < n; s += h[i++]) good &= out[i] == s;
  cudaFree(temp); temp = nullptr; bytes = 0;
  std::vector<int> order(n);
  for (int i = 0; i < n; i++) order[i] = i;
  cudaMemcpy(values, order.data(), n * 4, cudaMemcpyHostToDevice);
  cub::DeviceRadixSort::SortPairs(temp, bytes, in, keys, values, values_out, n);
  cudaMalloc(&temp, bytes);
  cub::DeviceRadixSort::SortPairs(temp, bytes, in, keys, values, values_out, n);
  cudaMemcpy(out.data(), values_out, n * 4, cudaMemcpyDeviceToHost);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return h[a] < h[b]; });
  good &= out == order;
  cudaFree(temp); temp = nullptr; bytes = 0;
  LessThan select(100);
  cub::DeviceSelect::If(temp, bytes, in, result, count, n, select);
  cudaMalloc(&temp, bytes);
  cub::DeviceSelect::If(temp, bytes, in, result, count, n, select);
  cudaMemcpy(&total, count, 4, cudaMemcpyDeviceToHost);
  good &= total == std::count_if(h.begin(), h.end(), select);
  puts(good ? "PASS" : "FAIL");
  return !good;
}
