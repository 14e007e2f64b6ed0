#pragma once
// Attention of float16 and bfloat16 operands on tensor cores in one pass: softmax(scale q k^T + mask) v, float32 sums
// (wgmma, sm_90a). Dao and others 2022, Shah and others 2024.
//
//   kw::Attention<__half, 128, 128, 2, true>::run(
//       {q, qm, qd}, {k, km, kd}, {v, vm, vd}, row_tile, M, N, scale, kw::NoMask(), store);
//
// A producer warpgroup copies blocks of keys and values, each consumer warpgroup holds 64 queries. The product of the
// next scores runs while the last weights multiply values.

#include <kernelwright/halves.cuh>
#include <kernelwright/wgmma.cuh>

namespace kw {

// A mask is a function (row, key, score) that returns the score to take, -infinity where the key is forbidden.
struct NoMask {
    static constexpr bool NONE = true;
    __device__ float operator()(long long, long long, float score) const { return score; }
};
template <class F>
struct Mask {
    static constexpr bool NONE = false;
    F f;
    __device__ explicit Mask(F f) : f(f) {}
    __device__ float operator()(long long row, long long key, float score) const { return f(row, key, score); }
};

__device__ inline float fast_exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

template <class T>
__device__ unsigned pair_of(float x, float y) {
    if constexpr (IS_HALF<T>) {
        __half2 pair = __floats2half2_rn(x, y);
        return *(unsigned*)&pair;
    } else {
        __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
        return *(unsigned*)&pair;
    }
}

// Computes the results of 64 GROUPS queries of one head. Blocks have 128 (GROUPS + 1) threads
// (`__launch_bounds__(threads, 1)`) and BYTES of dynamic shared memory. D: the size of a head, at most 256. KEYS: keys
// of a block (64 or 128). CAUSAL: a row sees the keys up to its own number.
// store(row, d, sum) is called for each result. A row without a key has zeros.
template <class T, int D, int KEYS, int STAGES, bool CAUSAL, int GROUPS = 2>
struct Attention {
    static constexpr int CHUNKS = (D + 63) / 64, WIDTH = 64 * CHUNKS, ROWS = 64 * GROUPS;
    static constexpr int Q_BYTES = ROWS * WIDTH * 2, BLOCK = KEYS * WIDTH * 2;
    static constexpr int BYTES = Q_BYTES + 2 * STAGES * BLOCK + 1024;
    static constexpr int WIDE = WIDTH % 128 ? 64 : 128, PARTS = WIDTH / WIDE;  // of the results in registers
    static constexpr int PRODUCER = GROUPS == 2 ? 72 : 56, CONSUMER = (512 - PRODUCER) / GROUPS / 8 * 8;

    unsigned base, q_full, full, empty;  // addresses; of keys, then of values
    float scale;
    long long row;   // this thread's first; its second is 8 below
    long long rows, keys;
    float scores[KEYS / 2];
    float results[PARTS][WIDE / 2];
    float most[2], total[2];

    template <class Masking, class Store>
    __device__ static void run(
        Matrix<T> q, Matrix<T> k, Matrix<T> v, long long tile, long long rows, long long keys, float scale,
        Masking mask, Store store) {
        extern __shared__ char dynamic_shared[];
        __shared__ unsigned long long barriers[4 * STAGES + 1];
        unsigned base = (shared_address(dynamic_shared) + 1023) & ~1023u, full = shared_address(barriers);
        unsigned empty = full + 16 * STAGES, q_full = empty + 16 * STAGES;
        if (threadIdx.x == 0) {
            for (int s = 0; s < 2 * STAGES; ++s) {
                barrier_init(full + 8 * s, 128 * CHUNKS);
                barrier_init(empty + 8 * s, 4 * GROUPS);
            }
            barrier_init(q_full, 128 * CHUNKS);
            barrier_init_done();
        }
        __syncthreads();
        long long row0 = tile * ROWS, seen = CAUSAL && row0 + ROWS < keys ? row0 + ROWS : keys;
        int blocks = seen > 0 ? (int)((seen + KEYS - 1) / KEYS) : 1;
        if (threadIdx.x / 128 == GROUPS) {
            fewer_registers<PRODUCER>();
            HalfCopy<T, true, GROUPS> queries(q, row0, rows, D);
            for (int c = 0; c < CHUNKS; ++c) queries.copy(c, base + c * ROWS * 128, q_full);
            HalfCopy<T, true, KEYS / 64> key(k, 0, keys, D), value(v, 0, keys, D);
            for (int i = 0; i < blocks; ++i) {
                int stage = i % STAGES, parity = (i / STAGES & 1) ^ 1;
                unsigned at = base + Q_BYTES + stage * 2 * BLOCK;
                key.row0 = value.row0 = (long long)i * KEYS;
                barrier_wait(empty + 16 * stage, parity);
                for (int c = 0; c < CHUNKS; ++c) key.copy(c, at + c * KEYS * 128, full + 16 * stage);
                barrier_wait(empty + 16 * stage + 8, parity);
                for (int c = 0; c < CHUNKS; ++c) value.copy(c, at + BLOCK + c * KEYS * 128, full + 16 * stage + 8);
            }
        } else {
            more_registers<CONSUMER>();
            Attention t;
            t.base = base, t.q_full = q_full, t.full = full, t.empty = empty, t.scale = scale;
            t.rows = rows, t.keys = keys;
            t.row = row0 + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
            t.consume(blocks, mask);
            t.finish(store);
        }
    }

    template <class Masking>
    __device__ void consume(int blocks, Masking mask) {
        unsigned weights[KEYS / 4];
        most[0] = most[1] = -INFINITY, total[0] = total[1] = 0.0f;
        barrier_wait(q_full, 0);
        multiply_keys(0);
        wgmma_wait<0>();
        release(0, 0);
        float first[2];
        soften(0, mask, first);
        pack(weights);
        for (int i = 1; i < blocks; ++i) {
            multiply_keys(i);
            if (i == 1)
                multiply_values<0>(weights, 0);
            else
                multiply_values<1>(weights, i - 1);
            wgmma_wait<1>();
            release(i, 0);
            float keep[2];
            soften(i, mask, keep);
            wgmma_wait<0>();
            release(i - 1, 8);
#pragma unroll
            for (int j = 0; j < WIDTH / 2; ++j) results[j / (WIDE / 2)][j % (WIDE / 2)] *= keep[j % 4 / 2];
            pack(weights);
        }
        if (blocks == 1)
            multiply_values<0>(weights, 0);
        else
            multiply_values<1>(weights, blocks - 1);
        wgmma_wait<0>();
    }

    // Tells the producer that this warp has read a block of keys (which = 0) or of values (8).
    __device__ void release(int block, int which) {
        if (threadIdx.x % 32 == 0) barrier_arrive(empty + 16 * (block % STAGES) + which);
    }

    __device__ void multiply_keys(int block) {
        int stage = block % STAGES;
        barrier_wait(full + 16 * stage, block / STAGES & 1);
        async_fence();
        unsigned queries = base + threadIdx.x / 128 * 8192, at = base + Q_BYTES + stage * 2 * BLOCK;
        wgmma_fence();
#pragma unroll
        for (int s = 0; s < (D + 15) / 16; ++s) {
            unsigned long long a = descriptor(queries + s / 4 * ROWS * 128) + s % 4 * 2;
            unsigned long long b = descriptor(at + s / 4 * KEYS * 128) + s % 4 * 2;
            if constexpr (IS_HALF<T>)
                Wgmma<KEYS>::template f16<0>(scores, a, b, s > 0);
            else
                Wgmma<KEYS>::template bf16<0>(scores, a, b, s > 0);
        }
        wgmma_commit();
    }

    template <int ADD>
    __device__ void multiply_values(const unsigned (&weights)[KEYS / 4], int block) {
        int stage = block % STAGES;
        barrier_wait(full + 16 * stage + 8, block / STAGES & 1);
        async_fence();
        unsigned at = base + Q_BYTES + stage * 2 * BLOCK + BLOCK;
        wgmma_fence();
#pragma unroll
        for (int s = 0; s < KEYS / 16; ++s) {
            unsigned a[4] = {weights[4 * s], weights[4 * s + 1], weights[4 * s + 2], weights[4 * s + 3]};
#pragma unroll
            for (int p = 0; p < PARTS; ++p) {
                unsigned long long b = descriptor_across(at + p * (WIDE / 64) * KEYS * 128 + s * 2048, KEYS * 128);
                if constexpr (IS_HALF<T>)
                    WgmmaRegisters<WIDE>::template f16<1>(results[p], a, b, ADD || s > 0);
                else
                    WgmmaRegisters<WIDE>::template bf16<1>(results[p], a, b, ADD || s > 0);
            }
        }
        wgmma_commit();
    }

    // Makes scores weights, and returns what earlier sums are multiplied by.
    template <class Masking>
    __device__ void soften(int block, Masking mask, float (&keep)[2]) {
        constexpr float LOG2E = 1.4426950408889634f;
        long long key0 = (long long)block * KEYS;
        float factor = scale * LOG2E;
        if (!Masking::NONE || scale < 0.0f) {
            for_each([&](float& x, long long row, long long key) {
                x = key < keys && row < rows ? mask(row, key, x * scale) : x * scale;
            }, key0);
            factor = LOG2E;
        }
        if (key0 + KEYS > keys || (CAUSAL && key0 + KEYS > row - row % 16)) {
            for_each([&](float& x, long long row, long long key) {
                if (key >= keys || (CAUSAL && key > row)) x = -INFINITY;
            }, key0);
        }
        float top[2] = {most[0], most[1]};
#pragma unroll
        for (int i = 0; i < KEYS / 2; ++i) top[i % 4 / 2] = fmaxf(top[i % 4 / 2], scores[i]);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            top[r] = fmaxf(top[r], __shfl_xor_sync(0xffffffffu, top[r], 1));
            top[r] = fmaxf(top[r], __shfl_xor_sync(0xffffffffu, top[r], 2));
            float base = top[r] == -INFINITY ? 0.0f : top[r] * factor;
            keep[r] = fast_exp2(most[r] * factor - base);
            most[r] = top[r], total[r] *= keep[r];
            top[r] = base;
        }
#pragma unroll
        for (int i = 0; i < KEYS / 2; ++i) {
            scores[i] = fast_exp2(scores[i] * factor - top[i % 4 / 2]);
            total[i % 4 / 2] += scores[i];
        }
    }

    template <class F>
    __device__ void for_each(F f, long long key0) {
        long long key = key0 + threadIdx.x % 4 * 2;
#pragma unroll
        for (int i = 0; i < KEYS / 2; ++i) f(scores[i], row + i % 4 / 2 * 8, key + i / 4 * 8 + i % 2);
    }

    __device__ void pack(unsigned (&weights)[KEYS / 4]) const {
#pragma unroll
        for (int i = 0; i < KEYS / 4; ++i) weights[i] = pair_of<T>(scores[2 * i], scores[2 * i + 1]);
    }

    template <class Store>
    __device__ void finish(Store store) {
        float factor[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            total[r] += __shfl_xor_sync(0xffffffffu, total[r], 1);
            total[r] += __shfl_xor_sync(0xffffffffu, total[r], 2);
            factor[r] = total[r] == 0.0f ? 0.0f : 1.0f / total[r];
        }
#pragma unroll
        for (int j = 0; j < WIDTH / 2; ++j) {
            int d = j / 4 * 8 + threadIdx.x % 4 * 2 + j % 2;
            long long m = row + j % 4 / 2 * 8;
            if (d < D && m < rows) store(m, d, results[j / (WIDE / 2)][j % (WIDE / 2)] * factor[j % 4 / 2]);
        }
    }
};

}  // namespace kw
