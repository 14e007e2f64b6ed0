// Thrust: counts, unique, gather, copy_if, partition, min and max, fill, and reduce_by_key.
#include <cstdio>
#include <thrust/copy.h>
#include <thrust/count.h>
#include <thrust/device_ptr.h>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/extrema.h>
#include <thrust/fill.h>
#include <thrust/gather.h>
#include <thrust/reduce.h>
#include <thrust/sort.h>
#include <thrust/unique.h>

struct is_even { __host__ __device__ bool operator()(int x) const { return x % 2 == 0; } };

int main() {
  const int n = 64;
  int *raw;
  cudaMalloc(&raw, n * sizeof(int));
  thrust::device_ptr<int> p(raw);
  thrust::fill(p, p + n, 3);
  int h[n];
  for (int i = 0; i < n; i++) h[i] = (i * i) % 17;
  cudaMemcpy(raw, h, sizeof h, cudaMemcpyHostToDevice);
  int even = thrust::count_if(thrust::device, p, p + n, is_even());
  thrust::device_vector<int> kept(n);
  auto end = thrust::copy_if(p, p + n, kept.begin(), is_even());
  int most = *thrust::max_element(p, p + n);
  thrust::sort(p, p + n, thrust::greater<int>());
  thrust::device_vector<int> keys(n), sums(n), ones(n, 1);
  auto ends = thrust::reduce_by_key(p, p + n, ones.begin(), keys.begin(), sums.begin());
  int distinct = ends.first - keys.begin();
  int left = thrust::unique(p, p + n) - p;
  int want_even = 0, seen[17] = {0}, want_distinct = 0, want_most = 0;
  for (int i = 0; i < n; i++) {
    want_even += h[i] % 2 == 0;
    want_distinct += !seen[h[i]]++;
    want_most = h[i] > want_most ? h[i] : want_most;
  }
  bool good = even == want_even && end - kept.begin() == even && distinct == want_distinct && left == distinct && most == want_most;
  for (int i = 0; i < distinct; i++) good &= sums[i] == seen[(int)keys[i]];
  puts(good ? "PASS" : "FAIL");
  return !good;
}
