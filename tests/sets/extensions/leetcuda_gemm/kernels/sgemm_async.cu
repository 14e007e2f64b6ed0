#include "utils.h"

// 4x4 results a thread, two buffers, cp.async.
template <const int BM = 32, const int BN = 32, const int BK = 8, const int TM = 4, const int TN = 4,
          const int OFFSET = 4>
__global__ void sgemm_t_4x4_sliced_k_async_kernel(float *a, float *b, float *c, const int M, const int N, const int K) {
  const int bx = blockIdx.x;
  const int by = blockIdx.y;
  const int tx = threadIdx.x;
  const int ty = threadIdx.y;
  const int tid = ty * blockDim.x + tx;
  __shared__ __align__(16) float s_a[2][BM][BK + OFFSET];
  __shared__ __align__(16) float s_b[2][BK][BN + OFFSET];

  float r_c[TM][TN] = {0.0};

  // 64 threads: 32x8 floats of a are 64 vectors, 8x32 of b as well
  const int load_a_smem_m = tid / 2;
  const int load_a_smem_k = (tid & 1) << 2;
  const int load_b_smem_k = tid / 8;
  const int load_b_smem_n = (tid % 8) << 2;
  const int load_a_gmem_m = by * BM + load_a_smem_m;
  const int load_b_gmem_n = bx * BN + load_b_smem_n;
  if (load_a_gmem_m >= M || load_b_gmem_n >= N)
    return;

  {
    uint32_t dst_a = __cvta_generic_to_shared(&s_a[0][load_a_smem_m][load_a_smem_k]);
    CP_ASYNC_CA(dst_a, &a[load_a_gmem_m * K + load_a_smem_k], 16);
    uint32_t dst_b = __cvta_generic_to_shared(&s_b[0][load_b_smem_k][load_b_smem_n]);
    CP_ASYNC_CA(dst_b, &b[load_b_smem_k * N + load_b_gmem_n], 16);
    CP_ASYNC_COMMIT_GROUP();
    CP_ASYNC_WAIT_GROUP(0);
  }
  __syncthreads();

  for (int bk = 1; bk < (K + BK - 1) / BK; ++bk) {
    const int cur = (bk - 1) & 1;
    const int next = bk & 1;
    uint32_t dst_a = __cvta_generic_to_shared(&s_a[next][load_a_smem_m][load_a_smem_k]);
    CP_ASYNC_CA(dst_a, &a[load_a_gmem_m * K + bk * BK + load_a_smem_k], 16);
    uint32_t dst_b = __cvta_generic_to_shared(&s_b[next][load_b_smem_k][load_b_smem_n]);
    CP_ASYNC_CA(dst_b, &b[(bk * BK + load_b_smem_k) * N + load_b_gmem_n], 16);
    CP_ASYNC_COMMIT_GROUP();
#pragma unroll
    for (int tk = 0; tk < BK; tk++) {
      float4 r_b = FLOAT4(s_b[cur][tk][tx * TN]);
#pragma unroll
      for (int tm = 0; tm < TM; tm++) {
        const float r_a = s_a[cur][ty * TM + tm][tk];
        r_c[tm][0] = __fmaf_rn(r_a, r_b.x, r_c[tm][0]);
        r_c[tm][1] = __fmaf_rn(r_a, r_b.y, r_c[tm][1]);
        r_c[tm][2] = __fmaf_rn(r_a, r_b.z, r_c[tm][2]);
        r_c[tm][3] = __fmaf_rn(r_a, r_b.w, r_c[tm][3]);
      }
    }
    CP_ASYNC_WAIT_GROUP(0);
    __syncthreads();
  }
  const int last = ((K + BK - 1) / BK - 1) & 1;
#pragma unroll
  for (int tk = 0; tk < BK; tk++) {
#pragma unroll
    for (int tm = 0; tm < TM; tm++)
#pragma unroll
      for (int tn = 0; tn < TN; tn++)
        r_c[tm][tn] = __fmaf_rn(s_a[last][ty * TM + tm][tk], s_b[last][tk][tx * TN + tn], r_c[tm][tn]);
  }
#pragma unroll
  for (int tm = 0; tm < TM; tm++) {
    int store_gmem_m = by * BM + ty * TM + tm;
    FLOAT4(c[store_gmem_m * N + bx * BN + tx * TN]) = FLOAT4(r_c[tm][0]);
  }
}

void sgemm_t_4x4_sliced_k_async(torch::Tensor a, torch::Tensor b, torch::Tensor c) {
  CHECK_TORCH_TENSOR_DTYPE(a, torch::kFloat32)
  CHECK_TORCH_TENSOR_DTYPE(b, torch::kFloat32)
  CHECK_TORCH_TENSOR_DTYPE(c, torch::kFloat32)
  const int M = a.size(0);
  const int K = a.size(1);
  const int N = b.size(1);
  CHECK_TORCH_TENSOR_SHAPE(a, M, K)
  CHECK_TORCH_TENSOR_SHAPE(b, K, N)
  CHECK_TORCH_TENSOR_SHAPE(c, M, N)
  constexpr int BM = 32;
  constexpr int BN = 32;
  constexpr int BK = 8;

  dim3 block(BN / 4, BM / 4);
  dim3 grid((N + BN - 1) / BN, (M + BM - 1) / BM);
  sgemm_t_4x4_sliced_k_async_kernel<BM, BN, BK><<<grid, block>>>(
      reinterpret_cast<float *>(a.data_ptr()), reinterpret_cast<float *>(b.data_ptr()),
      reinterpret_cast<float *>(c.data_ptr()), M, N, K);
}
