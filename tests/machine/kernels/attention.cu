#include <cuda_runtime.h>
#define D 16
#define BR 16

// Attention with online softmax over tiles of keys: a thread for each query, causal or not.
extern "C" __global__ void attention(const float* Q, const float* K, const float* V, float* O, int T, float scale, int causal) {
    __shared__ float Ks[BR][D], Vs[BR][D];
    const float* q = Q + blockIdx.y * T * D;
    const float* k = K + blockIdx.y * T * D;
    const float* v = V + blockIdx.y * T * D;
    int row = blockIdx.x * BR + threadIdx.x;
    float qi[D], oi[D], m = -1e30f, l = 0.f;
    for (int d = 0; d < D; ++d) { qi[d] = row < T ? q[row * D + d] : 0.f; oi[d] = 0.f; }
    for (int start = 0; start < T; start += BR) {
        int r = start + threadIdx.x;
        for (int d = 0; d < D; ++d) {
            Ks[threadIdx.x][d] = r < T ? k[r * D + d] : 0.f;
            Vs[threadIdx.x][d] = r < T ? v[r * D + d] : 0.f;
        }
        __syncthreads();
        for (int j = 0; j < BR && start + j < T; ++j) {
            if (causal && start + j > row) break;
            float s = 0.f;
            for (int d = 0; d < D; ++d) s += qi[d] * Ks[j][d];
            s *= scale;
            float bigger = fmaxf(m, s), keep = __expf(m - bigger), p = __expf(s - bigger);
            l = l * keep + p;
            for (int d = 0; d < D; ++d) oi[d] = oi[d] * keep + p * Vs[j][d];
            m = bigger;
        }
        __syncthreads();
    }
    if (row < T)
        for (int d = 0; d < D; ++d) O[(blockIdx.y * T + row) * D + d] = oi[d] / l;
}
