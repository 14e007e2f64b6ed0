// Thrust: vectors, transforms, reductions, sorts by key, scans, and a functor on both sides.
#include <thrust/device_vector.h>
#include <thrust/host_vector.h>
#include <thrust/transform.h>
#include <thrust/reduce.h>
#include <thrust/sort.h>
#include <thrust/scan.h>
#include <thrust/sequence.h>
#include <thrust/functional.h>
#include <thrust/transform_reduce.h>
#include <thrust/iterator/zip_iterator.h>
#include <thrust/iterator/counting_iterator.h>
#include <iostream>

struct saxpy_functor {
  const float a;
  saxpy_functor(float _a) : a(_a) {}
  __host__ __device__ float operator()(const float &x, const float &y) const { return a * x + y; }
};
template <typename T> struct square { __host__ __device__ T operator()(const T &x) const { return x * x; } };

__global__ void touch(int *p, int n) { int i = threadIdx.x; if (i < n) p[i] += 1; }

int main() {
  thrust::host_vector<float> h(100);
  for (int i = 0; i < 100; i++) h[i] = (i * 37) % 100;
  thrust::device_vector<float> x = h, y(100, 1.0f);
  thrust::transform(x.begin(), x.end(), y.begin(), y.begin(), saxpy_functor(2.0f));
  float total = thrust::reduce(y.begin(), y.end(), 0.0f, thrust::plus<float>());
  float norm = thrust::transform_reduce(x.begin(), x.end(), square<float>(), 0.0f, thrust::plus<float>());
  thrust::device_vector<int> keys(100), values(100);
  thrust::sequence(values.begin(), values.end());
  for (int i = 0; i < 100; i++) keys[i] = (i * 37) % 100;
  thrust::sort_by_key(keys.begin(), keys.end(), values.begin());
  thrust::inclusive_scan(keys.begin(), keys.end(), keys.begin());
  touch<<<1, 128>>>(thrust::raw_pointer_cast(values.data()), 100);
  cudaDeviceSynchronize();
  thrust::host_vector<int> v = values, k = keys;
  bool good = total == 2 * 4950 + 100 && norm == 328350 && k[99] == 4950 && k[10] == 55;
  for (int i = 0; i < 100; i++) good = good && ((v[i] - 1) * 37) % 100 == i;
  std::cout << (good ? "PASS" : "FAIL") << std::endl;
  return !good;
}
