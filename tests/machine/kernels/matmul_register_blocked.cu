// 64x64 of C for each block of 256 threads, 4x4 for each thread; sizes are multiples of the tiles.
constexpr int BM = 64, BN = 64, BK = 16, TM = 4, TN = 4;

__global__ void __launch_bounds__(256, 2) sgemm(const float* __restrict__ A, const float* __restrict__ B,
                                                float* __restrict__ C, int M, int N, int K) {
    __shared__ float As[BK][BM + 4];
    __shared__ __align__(16) float Bs[BK][BN];
    const int tid = threadIdx.x, tx = tid % 16, ty = tid / 16;
    const int rowBase = blockIdx.y * BM, colBase = blockIdx.x * BN;
    float acc[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        {   // A: 64 rows of 16, a float4 for each thread, stored transposed
            int r = tid / 4, c = (tid % 4) * 4;
            float4 v = *reinterpret_cast<const float4*>(&A[(rowBase + r) * K + k0 + c]);
            As[c + 0][r] = v.x; As[c + 1][r] = v.y; As[c + 2][r] = v.z; As[c + 3][r] = v.w;
            int br = tid / 16, bc = (tid % 16) * 4;
            *reinterpret_cast<float4*>(&Bs[br][bc]) = *reinterpret_cast<const float4*>(&B[(k0 + br) * N + colBase + bc]);
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < BK; ++k) {
            float a[TM], b[TN];
#pragma unroll
            for (int i = 0; i < TM; ++i) a[i] = As[k][ty * TM + i];
#pragma unroll
            for (int j = 0; j < TN; ++j) b[j] = Bs[k][tx * TN + j];
#pragma unroll
            for (int i = 0; i < TM; ++i)
#pragma unroll
                for (int j = 0; j < TN; ++j) acc[i][j] += a[i] * b[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < TM; ++i)
        *reinterpret_cast<float4*>(&C[(rowBase + ty * TM + i) * N + colBase + tx * TN]) =
            make_float4(acc[i][0], acc[i][1], acc[i][2], acc[i][3]);
}
