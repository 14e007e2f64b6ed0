// Templates, packs, namespaces, anonymous namespaces, extern "C", static and managed variables, shared types and functions.
#include <cooperative_groups.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <vector>

namespace cg = cooperative_groups;
enum class Op { Add, Mul };
struct Pair {
  float a, b;
  __host__ __device__ float sum() const { return a + b; }
};
__host__ __device__ inline int ceil_div(int a, int b) { return (a + b - 1) / b; }
constexpr int kThreads = 64;
#define SQUARE(x) ((x) * (x))

__constant__ float scale[2];
static __device__ int counter = 5;
__managed__ int seen = 3;
namespace outer {
namespace inner {
__device__ Pair table[2] = {{1, 2}, {3, 4}};
template <typename T, int N, Op op>
__global__ void apply(T* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = op == Op::Add ? x[i] * scale[0] + N : x[i] * scale[1] * N;
  if (i == 0) {
    atomicAdd(&counter, 1);
    seen += 10;
  }
}
}  // namespace inner
}  // namespace outer
namespace {
__global__ void hidden(int* p) { p[threadIdx.x] = SQUARE((int)threadIdx.x); }
}  // namespace
extern "C" __global__ void plain(int* p) { p[threadIdx.x] += ceil_div(kThreads, 64); }
template <typename... Ts>
__global__ void pack(float* out, Ts... values) {
  out[0] = (values + ...);
}
template <class F>
__global__ void functor(float* out, F f) {
  out[threadIdx.x] = f(outer::inner::table[threadIdx.x & 1]);
}
struct Sum {
  float more;
  __device__ float operator()(Pair p) const { return p.sum() + more; }
};
static __global__ void half_sum(__half* x) { x[0] = __hadd(x[0], x[1]); }
__global__ void tile(int* out) {
  auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  int v = cg::this_thread_block().thread_rank();
  for (int d = 16; d; d /= 2) v += warp.shfl_down(v, d);
  if (warp.thread_rank() == 0) out[0] = v;
}

int main(int argc, char** argv) {
  using namespace outer::inner;
  const int n = 1000;
  std::vector<float> h(n, 1.f);
  float *d, factors[2] = {2, 3};
  cudaMalloc(&d, n * sizeof(float));
  cudaMemcpyToSymbol(scale, factors, sizeof factors);
  cudaMemcpy(d, h.data(), n * sizeof(float), cudaMemcpyHostToDevice);
  apply<float, 7, Op::Add><<<ceil_div(n, kThreads), kThreads>>>(d, n);
  apply<float, 2, Op::Mul><<<ceil_div(n, kThreads), kThreads>>>(d, n);
  cudaMemcpy(h.data(), d, n * sizeof(float), cudaMemcpyDeviceToHost);
  int count;
  cudaMemcpyFromSymbol(&count, counter, sizeof count);
  printf("apply %g counter %d seen %d\n", h[n - 1], count, seen);
  Pair given[2] = {{10, 20}, {30, 40}};
  cudaMemcpyToSymbol(table, &given[1], sizeof(Pair), sizeof(Pair));
  functor<<<1, 2>>>(d, Sum{0.5f});
  cudaMemcpy(h.data(), d, 8, cudaMemcpyDeviceToHost);
  printf("functor %g %g\n", h[0], h[1]);
  int* q;
  cudaMallocManaged(&q, 32 * sizeof(int));
  hidden<<<1, 32>>>(q);
  plain<<<1, 32>>>(q);
  cudaDeviceSynchronize();
  printf("managed %d\n", q[31]);
  pack<<<1, 1>>>(d, 1.5f, 2, 3.0);
  cudaMemcpy(h.data(), d, 4, cudaMemcpyDeviceToHost);
  printf("pack %g\n", h[0]);
  __half two[2] = {__float2half(1.5f), __float2half(2.25f)}, *dh;
  cudaMalloc(&dh, sizeof two);
  cudaMemcpy(dh, two, sizeof two, cudaMemcpyHostToDevice);
  half_sum<<<1, 1>>>(dh);
  cudaMemcpy(two, dh, sizeof two, cudaMemcpyDeviceToHost);
  printf("half %g\n", __half2float(two[0]));
  tile<<<1, 32>>>(q);
  cudaDeviceSynchronize();
  printf("tile %d\n", q[0]);
  printf("arguments %d %s\n", argc, argc > 1 ? argv[1] : "");
  return argc > 2 ? 7 : 0;
}
