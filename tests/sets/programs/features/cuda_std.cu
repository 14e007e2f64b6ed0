// libcu++: atomics with scopes, optional arrays and tuples, ratios, chrono, and limits on both sides.
#include <cstdio>
#include <cuda/atomic>
#include <cuda/std/array>
#include <cuda/std/cstdint>
#include <cuda/std/limits>
#include <cuda/std/tuple>
#include <cuda/std/type_traits>
#include <cuda/std/utility>

template <class T>
struct Bounds {
  cuda::std::array<T, 2> ends;
  __host__ __device__ T width() const { return ends[1] - ends[0]; }
};

__host__ __device__ cuda::std::tuple<int, float> split(float x) {
  int whole = static_cast<int>(x);
  return cuda::std::make_tuple(whole, x - whole);
}

__global__ void kernel(unsigned *count, const float *x, float *out, Bounds<float> b, int n) {
  cuda::atomic_ref<unsigned, cuda::thread_scope_device> all(*count);
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  auto parts = split(x[i]);
  static_assert(cuda::std::is_same<decltype(cuda::std::get<0>(parts)), int &>::value, "an int");
  if (cuda::std::get<0>(parts) % 2) all.fetch_add(1u, cuda::std::memory_order_relaxed);
  out[i] = cuda::std::get<1>(parts) * b.width() + (x[i] > cuda::std::numeric_limits<float>::max() ? 1 : 0);
}

int main() {
  const int n = 300;
  float *x, *out;
  unsigned *count;
  cudaMallocManaged(&x, n * sizeof(float));
  cudaMallocManaged(&out, n * sizeof(float));
  cudaMallocManaged(&count, sizeof(unsigned));
  *count = 0;
  for (int i = 0; i < n; i++) x[i] = 0.25f * i;
  Bounds<float> b{{1.0f, 5.0f}};
  kernel<<<3, 128>>>(count, x, out, b, n);
  cudaDeviceSynchronize();
  unsigned want = 0;
  int wrong = 0;
  for (int i = 0; i < n; i++) {
    auto parts = split(x[i]);
    want += cuda::std::get<0>(parts) % 2;
    wrong += out[i] != cuda::std::get<1>(parts) * 4.0f;
  }
  puts(!wrong && want == *count ? "PASS" : "FAIL");
  return wrong || want != *count;
}
