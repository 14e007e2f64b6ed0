// A product by wmma fragments beside the plain product.
#include <cstdio>
#include <cstdlib>
#include <mma.h>
#include <cuda_fp16.h>
using namespace nvcuda;
const int M = 32, N = 32, K = 48;

__global__ void gemm(const half *a, const half *b, float *c) {
  int row = blockIdx.y, col = blockIdx.x;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc;
  wmma::fill_fragment(acc, 0.0f);
  for (int k = 0; k < K; k += 16) {
    wmma::load_matrix_sync(fa, a + row * 16 * K + k, K);
    wmma::load_matrix_sync(fb, b + col * 16 * K + k, K);
    wmma::mma_sync(acc, fa, fb, acc);
  }
  wmma::store_matrix_sync(c + row * 16 * N + col * 16, acc, N, wmma::mem_row_major);
}

int main() {
  half *a, *b;
  float *c;
  cudaMallocManaged(&a, M * K * sizeof(half));
  cudaMallocManaged(&b, N * K * sizeof(half));
  cudaMallocManaged(&c, M * N * sizeof(float));
  for (int i = 0; i < M * K; i++) a[i] = __float2half((i % 7) - 3.0f);
  for (int i = 0; i < N * K; i++) b[i] = __float2half((i % 5) * 0.5f);
  gemm<<<dim3(N / 16, M / 16), 32>>>(a, b, c);
  cudaDeviceSynchronize();
  int wrong = 0;
  for (int i = 0; i < M; i++)
    for (int j = 0; j < N; j++) {
      float s = 0;
      for (int k = 0; k < K; k++) s += __half2float(a[i * K + k]) * __half2float(b[j * K + k]);
      wrong += s != c[i * N + j];
    }
  puts(wrong ? "FAIL" : "PASS");
  return wrong;
}
