#pragma once
#include <vector>
namespace common {
struct Plus {
  template <typename T> static __device__ T apply(T a, T b) { return a + b; }
  template <typename T> static T identity() { return T{}; }
};
struct Greatest {
  template <typename T> static __device__ T apply(T a, T b) { return a > b ? a : b; }
  template <typename T> static T identity() { return T{}; }
};
namespace detail {
template <typename T, typename Op, int THREADS>
__global__ void reduce(const T *in, T *out, int n, T start) {
  __shared__ T s[THREADS];
  T v = start;
  for (int i = threadIdx.x; i < n; i += THREADS) v = Op::apply(v, in[i]);
  s[threadIdx.x] = v;
  for (int d = THREADS / 2; d > 0; d /= 2) {
    __syncthreads();
    if (threadIdx.x < d) s[threadIdx.x] = Op::apply(s[threadIdx.x], s[threadIdx.x + d]);
  }
  if (threadIdx.x == 0) *out = s[0];
}
}  // namespace detail
template <typename T, typename Op>
T reduce(const std::vector<T> &v) {
  T *in, *out, result;
  cudaMalloc(&in, v.size() * sizeof(T));
  cudaMalloc(&out, sizeof(T));
  cudaMemcpy(in, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice);
  detail::reduce<T, Op, 128><<<1, 128>>>(in, out, (int)v.size(), Op::template identity<T>());
  cudaMemcpy(&result, out, sizeof(T), cudaMemcpyDeviceToHost);
  cudaFree(in);
  cudaFree(out);
  return result;
}
}  // namespace common
