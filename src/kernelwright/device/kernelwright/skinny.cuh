// Products of a large matrix and a few rows, a vector among them: the large matrix is read once, 16 bytes at a time.
//
//     extern "C" __global__ void __launch_bounds__(256) apply(const float* x, const float* w, float* y, int M, int N,
//                                                             int K) {
//         auto store = [&](long long f, long long l, float sum) { y[f * N + l] = sum; };
//         kw::Skinny<true, 8>::run({x, K, 1}, {w, K, 1}, M, N, K, store);
//     }
//
// launched with ceil(M / ROWS) * ceil(N / Skinny::COLUMNS) blocks. All sums are in a fixed order.
#pragma once
#include <kernelwright/memory.cuh>

namespace kw {

// A matrix whose element (row, k) is p[row * step + k * apart].
struct Rows {
    const float* p;
    long long step, apart;
};

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
// the large matrix are adjacent in memory; otherwise neighbouring rows are. Other layouts are right, and slow.
template <bool ALONG, int ROWS>
struct Skinny {
    static constexpr int WARPS = 8, THREADS = 32 * WARPS, COLUMNS = ALONG ? 4 : 32, SUMS = 4 * ROWS;
    static constexpr int EACH = ALONG ? 128 : 16;      // k of a warp's step
    static constexpr int LAST = ALONG ? 1 : 8;         // the lowest bit of the lanes that share a sum
    static constexpr int KEPT = ALONG ? (SUMS + 31) / 32 : SUMS / 4;

    // The elements (row, k) to (row, k + 3); 0 from K on.
    static __device__ Pack<float, 4> along(const Rows& m, long long row, int k, int K, bool packs) {
        const float* p = m.p + row * m.step + k * m.apart;
        if (packs && k + 3 < K) return load<float, 4>(p);
        Pack<float, 4> four;
#pragma unroll
        for (int i = 0; i < 4; ++i) four.at[i] = k + i < K ? p[i * m.apart] : 0.0f;
        return four;
    }

    // The elements (row, k) to (row + 3, k); 0 outside the matrix.
    static __device__ Pack<float, 4> across(const Rows& m, long long row, long long rows, int k, int K, bool packs) {
        const float* p = m.p + row * m.step + k * m.apart;
        if (packs && row + 3 < rows && k < K) return load<float, 4>(p);
        Pack<float, 4> four;
#pragma unroll
        for (int i = 0; i < 4; ++i) four.at[i] = row + i < rows && k < K ? p[i * m.step] : 0.0f;
        return four;
    }

    template <class Store>
    static __device__ void run(Rows small, Rows large, long long few, long long many, int K, Store store) {
        __shared__ float parts[WARPS][ROWS * COLUMNS];
        const long long tiles = (few + ROWS - 1) / ROWS;
        const long long f0 = blockIdx.x % tiles * ROWS, l0 = blockIdx.x / tiles * COLUMNS;
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, column = ALONG ? 0 : lane % 8 * 4;
        const bool packs_small = small.apart == 1 && small.step % 4 == 0 && even<4>(small.p);
        const bool packs = (ALONG ? large.apart : large.step) == 1 && (ALONG ? large.step : large.apart) % 4 == 0 &&
                           even<4>(large.p);
        float sums[SUMS] = {};
        for (int k = warp * EACH + (ALONG ? lane : lane / 8) * 4; k < K; k += WARPS * EACH) {
            Pack<float, 4> w[4];  // [row of the large matrix][k] or [k][row]
#pragma unroll
            for (int i = 0; i < 4; ++i)
                w[i] = ALONG ? along(large, l0 + i < many ? l0 + i : many - 1, k, K, packs)
                             : across(large, l0 + column, many, k + i, K, packs);
#pragma unroll
            for (int f = 0; f < ROWS; ++f) {
                const Pack<float, 4> x = along(small, f0 + f < few ? f0 + f : few - 1, k, K, packs_small);
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
