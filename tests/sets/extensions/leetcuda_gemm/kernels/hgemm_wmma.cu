#include "utils.h"
using namespace nvcuda;

// 4 warps (2x2), each 16x16x16.
template <const int WMMA_M = 16, const int WMMA_N = 16, const int WMMA_K = 16, const int WMMA_TILE_M = 2,
          const int WMMA_TILE_N = 2>
__global__ void __launch_bounds__(128)
    hgemm_wmma_m16n16k16_mma2x2_kernel(const half *A, const half *B, half *C, int M, int N, int K) {
  const int bx = blockIdx.x;
  const int by = blockIdx.y;
  const int NUM_K_TILES = div_ceil(K, WMMA_K);
  constexpr int BM = WMMA_M * WMMA_TILE_M; // 32
  constexpr int BN = WMMA_N * WMMA_TILE_N; // 32
  constexpr int BK = WMMA_K;
  __shared__ half s_a[BM][BK + 8], s_b[BK][BN + 8];

  const int tid = threadIdx.y * blockDim.x + threadIdx.x;
  const int warp_id = tid / WARP_SIZE;
  const int warp_m = warp_id / 2;
  const int warp_n = warp_id % 2;
  // 128 threads: 4 halves of a and 4 of b each
  const int load_smem_a_m = tid / 4;
  const int load_smem_a_k = (tid % 4) * 4;
  const int load_smem_b_k = tid / 8;
  const int load_smem_b_n = (tid % 8) * 4;
  const int load_gmem_a_m = by * BM + load_smem_a_m;
  const int load_gmem_b_n = bx * BN + load_smem_b_n;
  if (load_gmem_a_m >= M && load_gmem_b_n >= N)
    return;

  wmma::fragment<wmma::accumulator, WMMA_M, WMMA_N, WMMA_K, float> C_frag;
  wmma::fill_fragment(C_frag, 0.0f);
  wmma::fragment<wmma::matrix_a, WMMA_M, WMMA_N, WMMA_K, half, wmma::row_major> A_frag;
  wmma::fragment<wmma::matrix_b, WMMA_M, WMMA_N, WMMA_K, half, wmma::row_major> B_frag;

#pragma unroll
  for (int k = 0; k < NUM_K_TILES; ++k) {
    int load_gmem_a_addr = load_gmem_a_m * K + k * WMMA_K + load_smem_a_k;
    int load_gmem_b_addr = (k * WMMA_K + load_smem_b_k) * N + load_gmem_b_n;
    LDST64BITS(s_a[load_smem_a_m][load_smem_a_k]) = *reinterpret_cast<const float2 *>(&A[load_gmem_a_addr]);
    LDST64BITS(s_b[load_smem_b_k][load_smem_b_n]) = *reinterpret_cast<const float2 *>(&B[load_gmem_b_addr]);
    __syncthreads();
    wmma::load_matrix_sync(A_frag, &s_a[warp_m * WMMA_M][0], BK + 8);
    wmma::load_matrix_sync(B_frag, &s_b[0][warp_n * WMMA_N], BN + 8);
    wmma::mma_sync(C_frag, A_frag, B_frag, C_frag);
    __syncthreads();
  }
  wmma::fragment<wmma::accumulator, WMMA_M, WMMA_N, WMMA_K, half> C_half;
#pragma unroll
  for (int t = 0; t < C_frag.num_elements; ++t)
    C_half.x[t] = __float2half(C_frag.x[t]);
  const int store_gmem_a_m = by * BM + warp_m * WMMA_M;
  const int store_gmem_a_n = bx * BN + warp_n * WMMA_N;
  wmma::store_matrix_sync(C + store_gmem_a_m * N + store_gmem_a_n, C_half, N, wmma::mem_row_major);
}

void hgemm_wmma_m16n16k16_mma2x2(torch::Tensor a, torch::Tensor b, torch::Tensor c) {
  CHECK_TORCH_TENSOR_DTYPE(a, torch::kHalf)
  CHECK_TORCH_TENSOR_DTYPE(b, torch::kHalf)
  CHECK_TORCH_TENSOR_DTYPE(c, torch::kHalf)
  const int M = a.size(0);
  const int K = a.size(1);
  const int N = b.size(1);
  CHECK_TORCH_TENSOR_SHAPE(a, M, K)
  CHECK_TORCH_TENSOR_SHAPE(b, K, N)
  CHECK_TORCH_TENSOR_SHAPE(c, M, N)
  dim3 block(128);
  dim3 grid(div_ceil(N, 32), div_ceil(M, 32));

  hgemm_wmma_m16n16k16_mma2x2_kernel<16, 16, 16, 2, 2><<<grid, block>>>(
      reinterpret_cast<half *>(a.data_ptr()), reinterpret_cast<half *>(b.data_ptr()),
      reinterpret_cast<half *>(c.data_ptr()), M, N, K);
}
