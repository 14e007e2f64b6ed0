// Products of a large matrix and a few rows, a vector among them: the large matrix is read once, 16 bytes at a time.
//
//     extern "C" __global__ void __launch_bounds__(256) apply(const float* x, const float* w, float* y, int M, int N,
//                                                             int K) {
//         auto store = [&](long long f, long long l, float sum) { y[f * N + l] = sum; };
//         kw::Skinny<true, 8, 8>::run({x, K, 1}, {w, K, 1}, M, N, K, store);
//     }
//
// launched with ceil(M / ROWS) * ceil(N / Skinny::COLUMNS) blocks. All sums are in a fixed order.
#pragma once
#include <kernelwright/matrix.cuh>

namespace kw {

// Adds v[0 … COUNT - 1] over the lanes whose numbers differ in the bits WIDTH, WIDTH / 2, …, LAST. Each lane keeps a part
// of the sums in v[0], v[1], …; `first` is the index of its v[0]. Returns the bits over which all lanes hold the same.
template <int COUNT, int WIDTH, int LAST>
__device__ __forceinline__ int scatter_sums(float* v, int& first) {
    if constexpr (WIDTH < LAST) {
        return 0;
    } else if constexpr (COUNT > 1) {
        constexpr int HALF = COUNT / 2;
        const bool upper = threadIdx.x & WIDTH;
#pragma unroll
        for (int i = 0; i < HALF; ++i) {
            const float keep = upper ? v[i + HALF] : v[i], give = upper ? v[i] : v[i + HALF];
            v[i] = keep + __shfl_xor_sync(~0u, give, WIDTH);
        }
        if (upper) first += HALF;
        return scatter_sums<HALF, WIDTH / 2, LAST>(v, first);
    } else {
        v[0] += __shfl_xor_sync(~0u, v[0], WIDTH);
        return WIDTH | scatter_sums<1, WIDTH / 2, LAST>(v, first);
    }
}

// Products of ROWS rows of the small matrix (a power of two) and COLUMNS rows of the large one. ALONG: neighbouring k of
// the large matrix are adjacent in memory; otherwise neighbouring rows are. The WARPS of a block share k. Other layouts are right, and slow.
template <bool ALONG, int ROWS, int WARPS>
struct Skinny {
    static constexpr int THREADS = 32 * WARPS, COLUMNS = ALONG ? 4 : 32, SUMS = 4 * ROWS;
    static constexpr int EACH = ALONG ? 128 : 16;      // k of a warp's step
    static constexpr int LAST = ALONG ? 1 : 8;         // the lowest bit of the lanes that share a sum
    static constexpr int KEPT = ALONG ? (SUMS + 31) / 32 : SUMS / 4;

    template <class Store>
    static __device__ void run(Rows small, Rows large, long long few, long long many, int K, Store store) {
        __shared__ float parts[WARPS][ROWS * COLUMNS];
        const long long tiles = (few + ROWS - 1) / ROWS;
        const long long f0 = blockIdx.x % tiles * ROWS, l0 = blockIdx.x / tiles * COLUMNS;
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, column = ALONG ? 0 : lane % 8 * 4;
        const bool packs_small = small.packs<true>(), packs = large.packs<ALONG>();
        float sums[SUMS] = {};
        for (int k = warp * EACH + (ALONG ? lane : lane / 8) * 4; k < K; k += WARPS * EACH) {
            Pack<float, 4> w[4];  // [row of the large matrix][k] or [k][row]
#pragma unroll
            for (int i = 0; i < 4; ++i)
                w[i] = large.four<ALONG>(l0 + column + (ALONG ? i : 0), k + (ALONG ? 0 : i), many, K, packs);
#pragma unroll
            for (int f = 0; f < ROWS; ++f) {
                const Pack<float, 4> x = small.four<true>(f0 + f, k, few, K, packs_small);
#pragma unroll
                for (int j = 0; j < 4; ++j)
#pragma unroll
                    for (int i = 0; i < 4; ++i) sums[4 * f + j] += x.at[i] * (ALONG ? w[j].at[i] : w[i].at[j]);
            }
            if (k > 0x7fffffff - WARPS * EACH) break;
        }
        int first = 0;
        const int same = scatter_sums<SUMS, 16, LAST>(sums, first);
        if ((lane & same) == 0)
#pragma unroll
            for (int i = 0; i < KEPT; ++i) {
                const int at = first + i;
                parts[warp][at / 4 * COLUMNS + column + at % 4] = sums[i];
            }
        __syncthreads();
        for (int i = threadIdx.x; i < ROWS * COLUMNS; i += THREADS) {
            float sum = 0.0f;
#pragma unroll
            for (int j = 0; j < WARPS; ++j) sum += parts[j][i];
            const long long f = f0 + i / COLUMNS, l = l0 + i % COLUMNS;
            if (f < few && l < many) store(f, l, sum);
        }
    }
};

}  // namespace kw
