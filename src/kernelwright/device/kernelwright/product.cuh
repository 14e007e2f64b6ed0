#pragma once
// float32 matrix products on tensor cores, with less error than float32 instructions have.
//
// Each operand is packed once: a value x becomes hi + lo, two f16 numbers with 22 bits together, after a power of two
// that brings the largest of 64 neighbouring k of its row to [2^14, 2^15). A product then is lo hi + hi lo + hi hi.
// Sums of 64 k are made by the tensor core, which truncates, and are added to float32 registers, which round
// (Ootomo and Yokota 2022; the promotion is DeepSeek's for FP8). Rows with NaN or infinity get the scale NaN, and
// their results are computed again by float32 instructions.
//
// A packed operand is an array of chunks [row chunk][k chunk] of 64 rows by 64 k: the f16 image of hi (128-byte rows,
// 128-byte swizzle), the image of lo, and 64 scales.

#include <cuda_fp16.h>
#include <kernelwright/pipeline.cuh>
#include <kernelwright/wgmma.cuh>

namespace kw {

constexpr int CHUNK = 64;
constexpr int IMAGE_BYTES = CHUNK * CHUNK * 2;
constexpr int CHUNK_BYTES = 2 * IMAGE_BYTES + CHUNK * 4;

// Return the power of two that brings `largest`, the bits of the largest magnitude of a row, to [2^14, 2^15), and its
// inverse; 0 and NaN for NaN and infinity.
__device__ inline unsigned scale_exponent(unsigned largest) { return min(268u - (largest >> 23), 253u); }
__device__ inline float scale_of(unsigned largest) {
    return largest < 0x7f800000u ? __uint_as_float(scale_exponent(largest) << 23) : 0.0f;
}
__device__ inline float unscale_of(unsigned largest) {
    return __uint_as_float(largest < 0x7f800000u ? (254u - scale_exponent(largest)) << 23 : 0x7fffffffu);
}

// Splits the values of 64 neighbouring k of one row, two neighbours a lane, and stores both images and the scale.
__device__ inline void split_row(float x, float y, char* hi, char* lo, float* scale) {
    unsigned largest = max(__float_as_uint(fabsf(x)), __float_as_uint(fabsf(y)));
    largest = __reduce_max_sync(0xffffffffu, largest);
    float up = scale_of(largest);
    float u = up != 0.0f ? x * up : 0.0f, v = up != 0.0f ? y * up : 0.0f;
    __half2 high = __floats2half2_rn(u, v);
    float2 back = __half22float2(high);
    *(__half2*)hi = high;
    *(__half2*)lo = __floats2half2_rn(u - back.x, v - back.y);
    if (threadIdx.x % 32 == 0) *scale = unscale_of(largest);
}

// Reads 64 rows by 64 k: warp w gets rows w, w + 8, … and lane l the k 2 l and 2 l + 1. 256 threads.
// ALONG_K: neighbouring k are adjacent in memory; else neighbouring rows are.
template <bool ALONG_K, class Read>
__device__ void read_chunk(float (&x)[8][2], long long row0, int k0, Read read) {
    __shared__ float turned[ALONG_K ? 1 : CHUNK][CHUNK + 1];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if constexpr (ALONG_K) {
#pragma unroll
        for (int i = 0; i < 8; ++i)
            for (int j = 0; j < 2; ++j) x[i][j] = read(row0 + warp + 8 * i, k0 + lane + 32 * j);
#pragma unroll
        for (int i = 0; i < 8; ++i) {  // lanes 0 to 15 take the neighbours among the first 32 k, the others the rest
            float first[2], rest[2];
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                first[j] = __shfl_sync(0xffffffffu, x[i][0], (2 * lane + j) % 32);
                rest[j] = __shfl_sync(0xffffffffu, x[i][1], (2 * lane + j) % 32);
            }
#pragma unroll
            for (int j = 0; j < 2; ++j) x[i][j] = lane < 16 ? first[j] : rest[j];
        }
    } else {
        float v[16];
#pragma unroll
        for (int i = 0; i < 16; ++i) v[i] = read(row0 + threadIdx.x % CHUNK, k0 + (int)threadIdx.x / CHUNK + 4 * i);
#pragma unroll
        for (int i = 0; i < 16; ++i) turned[threadIdx.x / CHUNK + 4 * i][threadIdx.x % CHUNK] = v[i];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 8; ++i)
            for (int j = 0; j < 2; ++j) x[i][j] = turned[2 * lane + j][warp + 8 * i];
    }
}

// Packs one chunk of an operand: blockIdx.x = row chunk * k chunks + k chunk, blockIdx.z the product, 256 threads.
// read(row, k) returns the value, and 0 outside the operand.
template <bool ALONG_K, class Read>
__device__ void pack(void* packed, int k_chunks, Read read) {
    float x[8][2];
    read_chunk<ALONG_K>(x, (long long)(blockIdx.x / k_chunks) * CHUNK, blockIdx.x % k_chunks * CHUNK, read);
    char* chunk = (char*)packed + (blockIdx.z * (long long)gridDim.x + blockIdx.x) * CHUNK_BYTES;
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        int row = threadIdx.x / 32 + 8 * i;
        char* place = chunk + row * 128 + (lane * 4 ^ (row & 7) << 4);
        split_row(x[i][0], x[i][1], place, place + IMAGE_BYTES, (float*)(chunk + 2 * IMAGE_BYTES) + row);
    }
}

// The right operands of a tile. THREADS of the last warpgroup arrive on the barrier of a chunk one by one; REGISTERS is
// what a thread of it needs. tile() starts a tile, copy() brings chunk k of its ROWS rows into shared memory: the image of
// hi to `at`, the image of lo behind it, the scales.

// A packed operand, copied by one thread.
struct Packed {
    static constexpr int THREADS = 0, REGISTERS = 32;
    const void* data;

    template <int ROWS>
    __device__ void tile(long long tiles, long long tile_n, int k_chunks, int) {
        data = (const char*)data + (blockIdx.z * tiles + tile_n) * (ROWS / CHUNK) * k_chunks * CHUNK_BYTES;
    }

    template <int ROWS>
    __device__ void copy(int k, int k_chunks, unsigned at, unsigned scales, unsigned done) const {
        for (int c = 0; c < ROWS / CHUNK; ++c) {
            const char* from = (const char*)data + ((long long)c * k_chunks + k) * CHUNK_BYTES;
            bulk_copy(at + c * IMAGE_BYTES, from, IMAGE_BYTES, done);
            bulk_copy(at + (ROWS / CHUNK + c) * IMAGE_BYTES, from + IMAGE_BYTES, IMAGE_BYTES, done);
            bulk_copy(scales + c * CHUNK * 4, from + 2 * IMAGE_BYTES, CHUNK * 4, done);
        }
    }
};

// An operand that is read where it is and split on the way. read(row) returns a function of k, which returns the value,
// and 0 outside the operand. ALONG_K: neighbouring k are adjacent in memory; else neighbouring rows are.
template <bool ALONG_K, class Read>
struct Computed {
    static constexpr int THREADS = 128, REGISTERS = 104;
    using Row = decltype(((Read*)nullptr)->operator()(0LL));
    Read read;
    long long row0;
    Row mine;  // this thread's row, where neighbouring rows are adjacent

    __device__ explicit Computed(Read read) : read(read), row0(0), mine(read(0)) {}

    template <int ROWS>
    __device__ void tile(long long, long long tile_n, int, int) {
        row0 = tile_n * ROWS;
        if constexpr (!ALONG_K) new (&mine) Row(read(row0 + threadIdx.x % 128 / (128 / ROWS)));
    }

    template <int ROWS>
    __device__ void copy(int k, int, unsigned at, unsigned scales, unsigned done) const {
        char* hi = (char*)__cvta_shared_to_generic(at);
        float* scale = (float*)__cvta_shared_to_generic(scales);
        if constexpr (ALONG_K) {
            int lane = threadIdx.x % 32;
            for (int first = threadIdx.x / 32 % 4; first < ROWS; first += 64) {
                float x[16], y[16];
#pragma unroll
                for (int i = 0; i < 16; ++i) {
                    auto at = read(row0 + first + 4 * i);
                    x[i] = at(k * CHUNK + 2 * lane), y[i] = at(k * CHUNK + 2 * lane + 1);
                }
#pragma unroll
                for (int i = 0; i < 16; ++i) {
                    int row = first + 4 * i;
                    char* place = hi + row * 128 + (lane * 4 ^ (row & 7) << 4);
                    split_row(x[i], y[i], place, place + ROWS * 128, scale + row);
                }
            }
        } else {
            constexpr int PARTS = 128 / ROWS, COUNT = CHUNK / PARTS;  // threads of a row, each with COUNT k
            int row = threadIdx.x % 128 / PARTS, part = threadIdx.x % PARTS;
            float x[COUNT];
#pragma unroll
            for (int i = 0; i < COUNT; ++i) x[i] = mine(k * CHUNK + part * COUNT + i);
            unsigned largest = 0;
#pragma unroll
            for (int i = 0; i < COUNT; ++i) largest = max(largest, __float_as_uint(fabsf(x[i])));
            if constexpr (PARTS == 2) largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
            float up = scale_of(largest);
            if (part == 0) scale[row] = unscale_of(largest);
#pragma unroll
            for (int p = 0; p < COUNT / 8; ++p) {
                __half2 high[4], low[4];
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    float u = up != 0.0f ? x[8 * p + 2 * i] * up : 0.0f, v = up != 0.0f ? x[8 * p + 2 * i + 1] * up : 0.0f;
                    high[i] = __floats2half2_rn(u, v);
                    float2 back = __half22float2(high[i]);
                    low[i] = __floats2half2_rn(u - back.x, v - back.y);
                }
                char* place = hi + row * 128 + ((part * COUNT / 8 + p ^ row & 7) << 4);
                *(uint4*)place = *(uint4*)high;
                *(uint4*)(place + ROWS * 128) = *(uint4*)low;
            }
        }
        async_fence();
        barrier_arrive(done);
    }
};

template <bool ALONG_K, class Read>
__device__ Computed<ALONG_K, Read> computed(Read read) {
    return Computed<ALONG_K, Read>(read);
}

// Computes one tile of 64 GROUPS rows by BN columns. Blocks have (GROUPS + 1) * 128 threads and BYTES of dynamic shared
// memory; blockIdx.x counts tiles, blockIdx.z products. left is packed, with row chunks for whole tiles; right is
// `Packed`, `Computed` or `Gathered`.
// store(n) returns a function of (m, sum), which is called for each result of column n inside M x N, by lanes of
// neighbouring n. exact(m, n) returns the result by float32 instructions.
// SPLIT > 1: the blocks of a cluster (`__cluster_dims__(SPLIT)`, SPLIT times the tiles) share the k of a tile.
template <int GROUPS, int BN, int STAGES, int SPLIT = 1>
struct SplitTile {
    static constexpr int A_BYTES = GROUPS * 2 * IMAGE_BYTES, B_BYTES = BN / CHUNK * 2 * IMAGE_BYTES;
    static constexpr int SCALES = (GROUPS + BN / CHUNK) * CHUNK * 4;
    static constexpr int STAGE = A_BYTES + B_BYTES;
    static constexpr int BYTES = STAGES * (STAGE + SCALES) + 1024;
    // Registers of a thread: all of a multiprocessor's, for two blocks where a block has one group.
    static constexpr int QUARTERS = GROUPS == 1 ? 256 : 512;  // of 128 registers
    template <class Right>
    static constexpr int CONSUMER = (QUARTERS - Right::REGISTERS) / GROUPS / 8 * 8 > 232
                                        ? 232
                                        : (QUARTERS - Right::REGISTERS) / GROUPS / 8 * 8;
    static constexpr int PITCH = BN + 8;  // floats between rows of the turned sums, without bank conflicts

    unsigned base, full, empty;  // addresses in shared memory
    float* memory;
    int group;

    template <class Right, class Store, class Exact>
    __device__ static void run(
        const void* left, Right right, long long M, long long N, int k_chunks, Store store, Exact exact) {
        extern __shared__ char dynamic_shared[];
        __shared__ unsigned long long barriers[2 * STAGES];
        SplitTile t;
        t.base = (shared_address(dynamic_shared) + 1023) & ~1023u;
        t.memory = (float*)(dynamic_shared + (t.base - shared_address(dynamic_shared)));
        t.full = shared_address(barriers), t.empty = t.full + 8 * STAGES, t.group = threadIdx.x / 128;
        if (threadIdx.x == 0) {
            for (int s = 0; s < STAGES; ++s) {
                barrier_init(t.full + 8 * s, 1 + Right::THREADS);
                barrier_init(t.empty + 8 * s, GROUPS);
            }
            barrier_init_done();
        }
        __syncthreads();
        // Eight tiles of rows share the columns that they read, so that both stay in the L2 cache.
        long long tiles_m = (M + 64 * GROUPS - 1) / (64 * GROUPS), tiles_n = (N + BN - 1) / BN, tile = blockIdx.x / SPLIT;
        if (tile >= tiles_m * tiles_n) return;  // of a product that is smaller than the largest of the launch
        long long strip = tile / (8 * tiles_n), in_strip = tile % (8 * tiles_n);
        long long height = tiles_m - strip * 8 < 8 ? tiles_m - strip * 8 : 8;
        long long tile_m = strip * 8 + in_strip % height, tile_n = in_strip / height;
        int rank = blockIdx.x % SPLIT, first = (long long)k_chunks * rank / SPLIT;
        int last = (long long)k_chunks * (rank + 1) / SPLIT;
        if (t.group == GROUPS) {
            fewer_registers<Right::REGISTERS>();
            long long a = (blockIdx.z * tiles_m + tile_m) * GROUPS * k_chunks;
            right.template tile<BN>(tiles_n, tile_n, k_chunks, first);
            t.produce((const char*)left + a * CHUNK_BYTES, right, k_chunks, first, last);
            __syncwarp();
        } else {
            more_registers<CONSUMER<Right>>();
            float sums[BN / 2];
            t.template consume<Right::THREADS != 0>(sums, last - first);
            t.turn(sums);
            if constexpr (SPLIT == 1) t.finish(tile_m, tile_n, M, N, store, exact);
        }
        if constexpr (SPLIT > 1) {
            cluster_barrier();
            if (t.group < GROUPS) t.finish(tile_m, tile_n, M, N, store, exact);
            cluster_barrier();  // other blocks read this block's sums
        }
    }

    // Copies the chunks of k from `first` on, whose left ones start at a.
    template <class Right>
    __device__ void produce(const char* a, Right& right, int k_chunks, int first, int last) {
        if (Right::THREADS == 0 && threadIdx.x % 128) return;
        for (int i = 0; i < last - first; ++i) {
            int stage = i % STAGES;
            unsigned at = base + stage * STAGE, scales = base + STAGES * STAGE + stage * SCALES, done = full + 8 * stage;
            barrier_wait(empty + 8 * stage, (i / STAGES & 1) ^ 1);
            if (threadIdx.x % 128 == 0) {
                barrier_expect(done, Right::THREADS ? A_BYTES + GROUPS * CHUNK * 4 : STAGE + SCALES);
                for (int c = 0; c < GROUPS; ++c) {
                    const char* from = a + ((long long)c * k_chunks + first + i) * CHUNK_BYTES;
                    bulk_copy(at + c * 2 * IMAGE_BYTES, from, 2 * IMAGE_BYTES, done);
                    bulk_copy(scales + c * CHUNK * 4, from + 2 * IMAGE_BYTES, CHUNK * 4, done);
                }
            }
            right.template copy<BN>(first + i, k_chunks, at + A_BYTES, scales + GROUPS * CHUNK * 4, done);
        }
    }

    // FENCE: the right operand was not written by bulk copies.
    template <bool FENCE>
    __device__ void consume(float (&sums)[BN / 2], int count) {
        float part[BN / 2];
        int row = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
        for (int i = 0; i < BN / 2; ++i) sums[i] = 0.0f;
        for (int i = 0; i < count; ++i) {
            int stage = i % STAGES;
            barrier_wait(full + 8 * stage, i / STAGES & 1);
            if constexpr (FENCE) async_fence();
            unsigned at = base + stage * STAGE + group * 2 * IMAGE_BYTES, bt = base + stage * STAGE + A_BYTES;
            unsigned long long a_hi = descriptor(at), a_lo = descriptor(at + IMAGE_BYTES);
            unsigned long long b_hi = descriptor(bt), b_lo = descriptor(bt + B_BYTES / 2);
            wgmma_fence();
#pragma unroll
            for (int s = 0; s < 4; ++s) {  // 16 k are 32 bytes, 2 units of the descriptor
                Wgmma<BN>::f16(part, a_lo + 2 * s, b_hi + 2 * s, s > 0);
                Wgmma<BN>::f16(part, a_hi + 2 * s, b_lo + 2 * s, 1);
            }
#pragma unroll
            for (int s = 0; s < 4; ++s) Wgmma<BN>::f16(part, a_hi + 2 * s, b_hi + 2 * s, 1);
            wgmma_commit();
            const float* scales = memory + (STAGES * STAGE + stage * SCALES) / 4;
            float above = scales[group * CHUNK + row], below = scales[group * CHUNK + row + 8];
            const float2* across = (const float2*)(scales + GROUPS * CHUNK) + threadIdx.x % 4;
            wgmma_wait<0>();
#pragma unroll
            for (int j = 0; j < BN / 8; ++j) {
                float2 s = across[4 * j];
                sums[4 * j] += part[4 * j] * (s.x * above);
                sums[4 * j + 1] += part[4 * j + 1] * (s.y * above);
                sums[4 * j + 2] += part[4 * j + 2] * (s.x * below);
                sums[4 * j + 3] += part[4 * j + 3] * (s.y * below);
            }
            named_barrier(1 + group, 128);
            if (threadIdx.x % 128 == 0) barrier_arrive(empty + 8 * stage);
        }
    }

    // Puts the sums into shared memory by rows, so that lanes of neighbouring columns store them.
    __device__ void turn(const float (&sums)[BN / 2]) {
        named_barrier(8, GROUPS * 128);
        int lane = threadIdx.x % 32;
        float* place = memory + (threadIdx.x / 32 * 16 + lane / 4) * PITCH + lane % 4 * 2;
#pragma unroll
        for (int j = 0; j < BN / 8; ++j) {
            *(float2*)(place + 8 * j) = make_float2(sums[4 * j], sums[4 * j + 1]);
            *(float2*)(place + 8 * PITCH + 8 * j) = make_float2(sums[4 * j + 2], sums[4 * j + 3]);
        }
        __syncwarp();
    }

    template <class Store, class Exact>
    __device__ void finish(long long tile_m, long long tile_n, long long M, long long N, Store store, Exact exact) {
        long long n0 = tile_n * BN + threadIdx.x % 32;
        if constexpr (BN == 64) {
            decltype(store(n0)) put[] = {store(n0), store(n0 + 32)};
            finish_rows(put, tile_m * GROUPS * 64, n0, M, N, exact);
        } else {
            decltype(store(n0)) put[] = {store(n0), store(n0 + 32), store(n0 + 64), store(n0 + 96)};
            finish_rows(put, tile_m * GROUPS * 64, n0, M, N, exact);
        }
    }

    template <class Put, class Exact>
    __device__ void finish_rows(
        Put (&put)[BN / 32], long long tile_row, long long n0, long long M, long long N, Exact exact) {
        constexpr int ROWS = 16 / SPLIT;  // rows of a warp
        int row = blockIdx.x % SPLIT * (64 * GROUPS / SPLIT) + threadIdx.x / 32 * ROWS;
#pragma unroll 4
        for (int i = 0; i < ROWS; ++i) {
            long long m = tile_row + row + i;
            if (m >= M) break;
#pragma unroll
            for (int j = 0; j < BN / 32; ++j) {
                float* place = memory + (row + i) * PITCH + threadIdx.x % 32 + 32 * j;
                float sum = 0.0f;
                if constexpr (SPLIT == 1) {
                    sum = *place;
                } else {
#pragma unroll
                    for (int r = 0; r < SPLIT; ++r) sum += cluster_read(shared_address(place), r);
                }
                if (n0 + 32 * j >= N) continue;
                if (sum != sum) sum = exact(m, n0 + 32 * j);
                put[j](m, sum);
            }
        }
    }
};

}  // namespace kw
