#pragma once
// Matrix products of float16 and bfloat16 operands on tensor cores, float32 sums (wgmma, sm_90a).
//
//   kw::HalfTile<__half, true, false, 1, 256, 4>::run({a, K, 1}, {b, 1, N}, M, N, K, store);
//
// A producer warpgroup copies chunks of 64 k into shared memory, two consumer warpgroups multiply. Operands are read
// where they are: in pieces of 16 bytes where their addresses allow it, element by element otherwise.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <kernelwright/pipeline.cuh>
#include <kernelwright/wgmma.cuh>

namespace kw {

// An operand: the element of row r and summed index k is data[r * step + k * k_step].
template <class T>
struct Matrix {
    const T* data;
    long long step, k_step;
};

template <class T>
constexpr bool IS_HALF = false;
template <>
inline constexpr bool IS_HALF<__half> = true;

// Brings 64 IMAGES lines of 128 bytes into shared memory, by 128 threads: line l of an image lies at byte 128 l of its
// 8192, its piece p of 16 bytes at p ^ (l & 7). A line is a row's 64 k (ALONG_K), or 64 rows' elements of one k.
template <class T, bool ALONG_K, int IMAGES>
struct HalfCopy {
    const T* data;
    long long line_step, piece_step, row0, rows;
    int K;
    bool aligned;

    __device__ HalfCopy(Matrix<T> of, long long row0, long long rows, int K)
        : data(of.data), line_step(ALONG_K ? of.step : of.k_step), piece_step(ALONG_K ? of.k_step : of.step),
          row0(row0), rows(rows), K(K) {
        aligned = piece_step == 1 && (((unsigned long long)data | line_step * 2) & 15) == 0;
    }

    // Copies chunk k to address `at`, and arrives on the barrier.
    __device__ void copy(int k, unsigned at, unsigned done) const {
        int first = threadIdx.x % 128 / 8, piece = threadIdx.x % 8;
        at += first * 128 + ((piece ^ first & 7) << 4);
        long long line = (ALONG_K ? row0 : 64LL * k) + first, place = (ALONG_K ? 64LL * k : row0) + 8 * piece;
        long long lines = ALONG_K ? rows : K, places = ALONG_K ? K : rows;
        if (!aligned) return gather(at, done, line, place, lines, places);
        const T* from = data + line * line_step + place;
        long long hop = 16 * line_step;
        if (row0 + 64 * IMAGES <= rows && 64 * k + 64 <= K) {
#pragma unroll
            for (int c = 0; c < IMAGES; ++c) {
                const T* next = ALONG_K ? from + 4 * c * hop : from + 64 * c;
#pragma unroll
                for (int j = 0; j < 4; ++j) copy16(at + c * 8192 + j * 2048, next + j * hop, 16);
            }
        } else {
            for (int i = 0; i < 4 * IMAGES; ++i) {
                int c = i / 4, j = i % 4;
                long long here = line + 16 * j + (ALONG_K ? 64 * c : 0), left = places - place - (ALONG_K ? 0 : 64 * c);
                int bytes = here < lines && left > 0 ? (left < 8 ? 2 * (int)left : 16) : 0;
                const T* next = ALONG_K ? from + i * hop : from + j * hop + 64 * c;
                copy16(at + c * 8192 + j * 2048, bytes ? next : data, bytes);
            }
        }
        copies_arrive(done);
    }

    __device__ void gather(
        unsigned at, unsigned done, long long line, long long place, long long lines, long long places) const {
        for (int i = 0; i < 4 * IMAGES; ++i) {
            int c = i / 4, j = i % 4;
            long long here = line + 16 * j + (ALONG_K ? 64 * c : 0), start = place + (ALONG_K ? 0 : 64 * c);
            const T* from = data + here * line_step + start * piece_step;
            alignas(16) T piece[8];
#pragma unroll
            for (int e = 0; e < 8; ++e) piece[e] = here < lines && start + e < places ? from[e * piece_step] : T(0.0f);
            *(uint4*)__cvta_shared_to_generic(at + c * 8192 + j * 2048) = *(uint4*)piece;
        }
        async_fence();
        barrier_arrive(done);
    }
};

// Computes one tile of 128 ROWS rows by BN columns. Blocks have 384 threads (`__launch_bounds__(384, 1)`) and BYTES of
// dynamic shared memory; blockIdx.x counts tiles. ALONG_K of an operand: neighbouring k are adjacent in memory (else
// neighbouring rows are); other strides are right, too, and slow.
// store(n) returns a function of (m, sum), which is called for each result of column n inside M x N, by lanes of
// neighbouring n.
template <class T, bool A_ALONG_K, bool B_ALONG_K, int ROWS, int BN, int STAGES>
struct HalfTile {
    static constexpr int BM = 128 * ROWS, A_BYTES = BM * 128, B_BYTES = BN * 128, STAGE = A_BYTES + B_BYTES;
    static constexpr int BYTES = STAGES * STAGE + 1024;
    static constexpr int PITCH = BN + 8;  // floats between rows of the turned sums, without bank conflicts
    static constexpr int GROUP_BYTES = 64 * ROWS * 128;

    template <class Store>
    __device__ static void run(Matrix<T> a, Matrix<T> b, long long M, long long N, int K, Store store) {
        extern __shared__ char dynamic_shared[];
        __shared__ unsigned long long barriers[2 * STAGES];
        unsigned base = (shared_address(dynamic_shared) + 1023) & ~1023u;
        unsigned full = shared_address(barriers), empty = full + 8 * STAGES;
        if (threadIdx.x == 0) {
            for (int s = 0; s < STAGES; ++s) {
                barrier_init(full + 8 * s, 256);  // 128 threads copy two operands
                barrier_init(empty + 8 * s, 8);   // warps
            }
            barrier_init_done();
        }
        __syncthreads();
        // Strips of 1024 rows share the columns that they read, so that both stay in the L2 cache.
        constexpr int HIGH = 8 / ROWS;
        long long tiles_m = (M + BM - 1) / BM, tiles_n = (N + BN - 1) / BN, tile = blockIdx.x;
        if (tile >= tiles_m * tiles_n) return;
        long long strip = tile / (HIGH * tiles_n), in_strip = tile % (HIGH * tiles_n);
        long long height = tiles_m - strip * HIGH < HIGH ? tiles_m - strip * HIGH : HIGH;
        long long m0 = (strip * HIGH + in_strip % height) * BM, n0 = in_strip / height * BN;
        int chunks = K > 0 ? (K + 63) / 64 : 1;
        if (threadIdx.x / 128 == 2) {
            fewer_registers<72>();
            HalfCopy<T, A_ALONG_K, 2 * ROWS> left(a, m0, M, K);
            HalfCopy<T, B_ALONG_K, BN / 64> right(b, n0, N, K);
            for (int i = 0; i < chunks; ++i) {
                int stage = i % STAGES;
                barrier_wait(empty + 8 * stage, (i / STAGES & 1) ^ 1);
                left.copy(i, base + stage * STAGE, full + 8 * stage);
                right.copy(i, base + stage * STAGE + A_BYTES, full + 8 * stage);
            }
        } else {
            more_registers<216>();
            float sums[ROWS][BN / 2];
            barrier_wait(full, 0);
            async_fence();
            multiply<0>(sums, base);
            for (int i = 1; i < chunks; ++i) {
                int stage = i % STAGES;
                barrier_wait(full + 8 * stage, i / STAGES & 1);
                async_fence();
                multiply<1>(sums, base + stage * STAGE);
                wgmma_wait<1>();  // the chunk before is done: its stage may be filled again
                if (threadIdx.x % 32 == 0) barrier_arrive(empty + 8 * ((i - 1) % STAGES));
            }
            wgmma_wait<0>();
            float* memory = (float*)(dynamic_shared + (base - shared_address(dynamic_shared)));
            finish(sums, memory, m0, n0, M, N, store);
        }
    }

    // Starts the products of one chunk. ADD: 0 starts new sums.
    template <int ADD>
    __device__ static void multiply(float (&sums)[ROWS][BN / 2], unsigned at) {
        constexpr int A_STEP = A_ALONG_K ? 2 : 128, B_STEP = B_ALONG_K ? 2 : 128;  // 16 k, in the descriptor's units
        unsigned mine = at + threadIdx.x / 128 * GROUP_BYTES;
        auto described = [](bool along, unsigned at) { return along ? descriptor(at) : descriptor_across(at); };
        unsigned long long right = described(B_ALONG_K, at + A_BYTES);
        wgmma_fence();
#pragma unroll
        for (int s = 0; s < 4; ++s) {
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                unsigned long long left = described(A_ALONG_K, mine + r * 8192) + A_STEP * s;
                if constexpr (IS_HALF<T>)
                    Wgmma<BN>::template f16<!B_ALONG_K, !A_ALONG_K>(sums[r], left, right + B_STEP * s, ADD || s > 0);
                else
                    Wgmma<BN>::template bf16<!B_ALONG_K, !A_ALONG_K>(sums[r], left, right + B_STEP * s, ADD || s > 0);
            }
        }
        wgmma_commit();
    }

    // Puts the sums into shared memory by rows, so that lanes of neighbouring columns store them.
    template <class Store>
    __device__ static void finish(
        const float (&sums)[ROWS][BN / 2], float* memory, long long m0, long long n0, long long M, long long N,
        Store store) {
        named_barrier(1, 256);
        int lane = threadIdx.x % 32, group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4;
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            float* place = memory + (group * 64 * ROWS + r * 64 + warp * 16 + lane / 4) * PITCH + lane % 4 * 2;
#pragma unroll
            for (int j = 0; j < BN / 8; ++j) {
                *(float2*)(place + 8 * j) = make_float2(sums[r][4 * j], sums[r][4 * j + 1]);
                *(float2*)(place + 8 * PITCH + 8 * j) = make_float2(sums[r][4 * j + 2], sums[r][4 * j + 3]);
            }
        }
        __syncwarp();
        for (int j = lane; j < BN; j += 64) {
            auto first = store(n0 + j), second = store(n0 + j + 32);
            bool one = n0 + j < N, two = n0 + j + 32 < N;
            for (int r = 0; r < ROWS; ++r) {
                int row = group * 64 * ROWS + r * 64 + warp * 16;
#pragma unroll 8
                for (int i = 0; i < 16; ++i) {
                    if (m0 + row + i >= M) break;
                    const float* place = memory + (row + i) * PITCH + j;
                    if (one) first(m0 + row + i, place[0]);
                    if (two) second(m0 + row + i, place[32]);
                }
            }
        }
    }
};

}  // namespace kw
