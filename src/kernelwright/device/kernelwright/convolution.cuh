#pragma once
// Convolutions as float32 products on tensor cores (`product.cuh`), whose right operand, pixels by channels of a window,
// is gathered from the split image while the product runs.
//
// The split image is an array [pixel][channel chunk] of 64 hi and 64 lo f16, 256 bytes; the scales lie apart.

#include <kernelwright/product.cuh>

namespace kw {

// Splits 64 pixels by 64 channels of a group: blockIdx.x = pixel chunk * chunks + channel chunk, 256 threads.
// read(pixel, chunk, channel of the chunk) returns the value, and 0 outside the image.
template <class Read>
__device__ void split_image(void* image, float* scales, long long pixels, int chunks, Read read) {
    float x[8][2];
    long long pixel0 = (long long)(blockIdx.x / chunks) * CHUNK;
    int chunk = blockIdx.x % chunks, lane = threadIdx.x % 32;
    read_chunk<false>(x, pixel0, 0, [&](long long pixel, int c) { return read(pixel, chunk, c); });
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        long long pixel = pixel0 + threadIdx.x / 32 + 8 * i;
        if (pixel >= pixels) break;
        char* place = (char*)image + (pixel * chunks + chunk) * 256 + lane * 4;
        split_row(x[i][0], x[i][1], place, place + 128, scales + pixel * chunks + chunk);
    }
}

// The right operand of a convolution. Row n of the product is a place of the window, place(n) = (image, z, y, x): the
// image and the coordinates of the window's first input pixel, which may lie outside. k chunks are ordered
// [window z][window y][window x][channel chunk of the group].
template <class Place>
struct Gathered {
    static constexpr int THREADS = 128, REGISTERS = 56;
    const void* image;
    const float* scales;
    int3 size;    // input extents z, y, x
    int3 window;  // places of the window
    int3 step;    // from one place of the window to the next, in pixels of the input
    int chunks, first, all;  // channel chunks of the group, the group's first, those of all groups
    int rows;                // N of the product
    Place place;
    int chunk, wz, wy, wx;  // the next chunk
    int4 mine;              // (first pixel, z, y, x) of this thread's row

    template <int ROWS>
    __device__ static int4* known() {
        __shared__ int4 rows[ROWS];
        return rows;
    }

    template <int ROWS>
    __device__ void tile(long long, long long tile_n, int, int k) {
        int t = threadIdx.x % 128, row = tile_n * ROWS + t, tap = k / chunks;
        chunk = k % chunks, wx = tap % window.z, wy = tap / window.z % window.y, wz = tap / window.z / window.y;
        mine = make_int4(0, 0x40000000, 0, 0);
        if (t < ROWS && row < rows) {
            mine = place(row);
            mine.x = ((mine.x * size.x + mine.y) * size.y + mine.z) * size.z + mine.w;
        }
        if (t < ROWS) known<ROWS>()[t] = mine;
        named_barrier(9, 128);
    }

    __device__ bool inside(int4 at, int z, int y, int x) const {
        return (unsigned)(at.y + z) < (unsigned)size.x && (unsigned)(at.z + y) < (unsigned)size.y &&
               (unsigned)(at.w + x) < (unsigned)size.z;
    }

    template <int ROWS>
    __device__ void copy(int, int, unsigned at, unsigned scale, unsigned done) {
        int t = threadIdx.x % 128, piece = t % 8, z = wz * step.x, y = wy * step.y, x = wx * step.z;
        int further = (z * size.y + y) * size.z + x;
        const char* from = (const char*)image + (first + chunk) * 256 + piece * 16;
        unsigned to = at + t / 8 * 128 + ((piece ^ t / 8 & 7) << 4);
        const int4* known_rows = known<ROWS>() + t / 8;
#pragma unroll
        for (int i = 0; i < ROWS / 16; ++i) {
            int4 row = known_rows[16 * i];
            bool in = inside(row, z, y, x);
            const char* pixel = from + (in ? (long long)(row.x + further) * (all * 256) : 0);
            copy16(to + 16 * 128 * i, pixel, in ? 16 : 0);
            copy16(to + ROWS * 128 + 16 * 128 * i, pixel + 128, in ? 16 : 0);
        }
        if (t < ROWS) {
            bool in = inside(mine, z, y, x);
            copy4(scale + t * 4, scales + (in ? (long long)(mine.x + further) * all : 0) + first + chunk, in);
        }
        copies_arrive(done);
        if (++chunk < chunks) return;
        chunk = 0;
        if (++wx < window.z) return;
        wx = 0;
        if (++wy < window.y) return;
        wy = 0, ++wz;
    }
};

}  // namespace kw
