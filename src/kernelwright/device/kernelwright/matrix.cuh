// Four neighbouring elements of a float32 matrix at once, in either layout, and products from registers on them.
//
//     extern "C" __global__ void __launch_bounds__(128) multiply(const float* a, const float* b, float* y, int M, int N,
//                                                                int K) {
//         auto finish = [&](long long m, long long n, float& result) { result *= 2.0f; };
//         kw::VectorTile<true, false>::run({a, K, 1}, {b, 1, N}, y, M, N, K, finish);
//     }
//
// launched with ceil(M / 128) * ceil(N / 64) blocks. Sums are in the order of k.
#pragma once
#include <kernelwright/memory.cuh>

namespace kw {

// A matrix whose element (row, k) is p[row * step + k * apart].
struct Rows {
    const float* p;
    long long step, apart;

    // True where `four<ALONG>` may read packs: neighbouring k (or rows) are adjacent, and every fourth is aligned.
    template <bool ALONG>
    __device__ bool packs() const {
        return (ALONG ? apart : step) == 1 && (ALONG ? step : apart) % 4 == 0 && even<4>(p);
    }

    // The elements (row, k) to (row, k + 3) or, not ALONG, to (row + 3, k); 0 outside the matrix.
    template <bool ALONG>
    __device__ Pack<float, 4> four(long long row, int k, long long rows, int K, bool packs) const {
        const float* from = p + row * step + k * apart;
        if (packs && (ALONG ? row < rows && k < K - 3 : row + 3 < rows && k < K)) return load<float, 4>(from);
        Pack<float, 4> v;
#pragma unroll
        for (int i = 0; i < 4; ++i)
            v.at[i] = row + (ALONG ? 0 : i) < rows && k < K - (ALONG ? i : 0) ? from[i * (ALONG ? apart : step)] : 0.0f;
        return v;
    }
};

// A block's tile of 128 rows and 64 columns; a thread computes 8 by 8 results. A_ALONG, B_ALONG: neighbouring k are
// adjacent in memory; otherwise neighbouring rows of the left operand or columns of the right one are.
template <bool A_ALONG, bool B_ALONG>
struct VectorTile {
    static constexpr int BM = 128, BN = 64, BK = 16, THREADS = 128;

    template <bool ALONG, int EDGE>
    struct Side {
        static constexpr int PACKS = EDGE * BK / 4 / THREADS;
        Pack<float, 4> held[PACKS];

        static __device__ int row(int s) {
            const int i = threadIdx.x + s * THREADS;
            return ALONG ? i / (BK / 4) : i % (EDGE / 4) * 4;
        }
        static __device__ int depth(int s) {
            const int i = threadIdx.x + s * THREADS;
            return ALONG ? i % (BK / 4) * 4 : i / (EDGE / 4);
        }
        __device__ void fetch(const Rows& m, long long first, int k0, long long rows, int K, bool packs) {
#pragma unroll
            for (int s = 0; s < PACKS; ++s)
                held[s] = m.four<ALONG>(first + row(s), k0 + depth(s), rows, K, packs);
        }
        __device__ void put(float (*tile)[EDGE + 4]) {
#pragma unroll
            for (int s = 0; s < PACKS; ++s) {
                if (ALONG) {
#pragma unroll
                    for (int i = 0; i < 4; ++i) tile[depth(s) + i][row(s)] = held[s].at[i];
                } else {
                    store<float, 4>(&tile[depth(s)][row(s)], held[s]);
                }
            }
        }
    };

    template <class Finish>
    static __device__ void run(Rows a, Rows b, float* y, int M, int N, int K, Finish finish) {
        __shared__ __align__(16) float ta[2][BK][BM + 4], tb[2][BK][BN + 4];
        const long long tiles = ((long long)M + BM - 1) / BM;
        const long long m0 = blockIdx.x % tiles * BM, n0 = blockIdx.x / tiles * BN;
        const int row = threadIdx.x / 8 * 4, column = threadIdx.x % 8 * 4;
        const bool packs_a = a.packs<A_ALONG>(), packs_b = b.packs<B_ALONG>();
        Side<A_ALONG, BM> left;
        Side<B_ALONG, BN> right;
        float sums[8][8] = {};
        left.fetch(a, m0, 0, M, K, packs_a);
        right.fetch(b, n0, 0, N, K, packs_b);
        const int chunks = (int)(((long long)K + BK - 1) / BK);
        for (int chunk = 0; chunk < chunks; ++chunk) {
            const int now = chunk & 1;
            left.put(ta[now]);
            right.put(tb[now]);
            __syncthreads();
            if (chunk + 1 < chunks) {
                left.fetch(a, m0, (chunk + 1) * BK, M, K, packs_a);
                right.fetch(b, n0, (chunk + 1) * BK, N, K, packs_b);
            }
#pragma unroll
            for (int k = 0; k < BK; ++k) {
                const Pack<float, 4> u[2] = {load<float, 4>(&ta[now][k][row]), load<float, 4>(&ta[now][k][BM / 2 + row])};
                const Pack<float, 4> v[2] = {load<float, 4>(&tb[now][k][column]),
                                             load<float, 4>(&tb[now][k][BN / 2 + column])};
#pragma unroll
                for (int i = 0; i < 8; ++i)
#pragma unroll
                    for (int j = 0; j < 8; ++j) sums[i][j] += u[i / 4].at[i % 4] * v[j / 4].at[j % 4];
            }
        }
        const bool packs_y = N % 4 == 0 && even<4>(y);
#pragma unroll
        for (int i = 0; i < 8; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const long long m = m0 + i / 4 * (BM / 2) + row + i % 4, n = n0 + half * (BN / 2) + column;
                if (m >= M || n >= N) continue;
                Pack<float, 4> four;
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    four.at[j] = sums[i][half * 4 + j];
                    if (n + j < N) finish(m, n + j, four.at[j]);
                }
                if (packs_y) {
                    store<float, 4>(y + m * N + n, four);
                } else {
#pragma unroll
                    for (int j = 0; j < 4; ++j)
                        if (n + j < N) y[m * N + n + j] = four.at[j];
                }
            }
    }
};

}  // namespace kw
