// Convolutions of few channels: a thread computes V neighbouring columns, R rows and OT channels of the output.
//
//     extern "C" __global__ void __launch_bounds__(128) blur(const float* x, const float* w, float* y, ...) {
//         auto finish = [&](long long n, int o, int od, int oh, int ow, float& result) { result = fmaxf(result, 0); };
//         kw::WindowTile<false, 1, 4, 4, 3, 3, 1, 1, 1, 1, 1>::run(x, w, y, sizes, finish);
//     }
//
// launched with `WindowTile::blocks` blocks and 4 * OT * (channels of a group) * (places of the window) bytes of shared
// memory, which hold the weights. Rows whose starts are multiples of 16 bytes are read and written 16 bytes at a time.
#pragma once
#include <kernelwright/memory.cuh>

namespace kw {

// What a convolution's kernel is given at run time. The window's height and width, their strides and dilations, and the
// padding along rows are template arguments instead.
struct WindowSizes {
    long long total;                 // results
    int channels, out, groups;       // of the input; of the output
    int depth, height, width;        // of the input
    int out_depth, out_height, out_width;
    int window_depth, step_depth, pad_depth, dilation_depth, pad_height;
};

__device__ constexpr int below(int a, int b) {  // a / b, rounded down
    return a >= 0 ? a / b : -((b - 1 - a) / b);
}

// COUNT neighbouring elements of a row of `width`, from `start` on, into v[SKIP], v[SKIP + 1], …; 0 outside the row.
// `packs`: start - SKIP, the width and the row's address are multiples of 4 elements.
template <int COUNT, int SKIP>
__device__ void segment(const float* row, int start, int width, bool packs, float* v) {
    if (packs) {
#pragma unroll
        for (int j = 0; j < SKIP + COUNT; j += 4) {
            const int at = start - SKIP + j;
            Pack<float, 4> four = {};
            if (at >= 0 && at < width) four = load<float, 4>(row + at);
#pragma unroll
            for (int i = 0; i < 4; ++i) v[j + i] = four.at[i];
        }
    } else {
#pragma unroll
        for (int j = 0; j < COUNT; ++j) {
            const int at = start + j;
            v[SKIP + j] = at >= 0 && at < width ? row[at] : 0.0f;
        }
    }
}

// BACK: a transposed convolution; V is then a multiple of SW and R is 1. KH, KW: the window; S, D: strides, dilations;
// PW: the padding along rows.
template <bool BACK, int OT, int R, int V, int KH, int KW, int SH, int SW, int DH, int DW, int PW>
struct WindowTile {
    static constexpr int THREADS = 128;
    // The first and the last column of the input that the columns 0 to V - 1 of the output read.
    static constexpr int FIRST = BACK ? below(PW - (KW - 1) * DW, SW) : -PW;
    static constexpr int LAST = BACK ? below(V - 1 + PW, SW) : (V - 1) * SW + (KW - 1) * DW - PW;
    static constexpr int COUNT = LAST - FIRST + 1, STEP = BACK ? V / SW : V * SW;
    static constexpr bool PACKS = STEP % 4 == 0;
    static constexpr int SKIP = PACKS ? FIRST - 4 * below(FIRST, 4) : 0;
    static constexpr int VALUES = (SKIP + COUNT + 3) / 4 * 4;

    struct Sums {
        float at[OT][R][V];
    };

    // Adds one row of the input times one row of the window, for the output's row r.
    static __device__ void add(Sums& sums, int r, const float* v, const float* weights) {
#pragma unroll
        for (int k = 0; k < KW; ++k) {
            const Pack<float, OT> w = load<float, OT>(weights + k * OT);
#pragma unroll
            for (int j = 0; j < V; ++j) {
                const int e = j + PW - k * DW, at = BACK ? below(e, SW) - FIRST : j * SW + k * DW;
                if (BACK && below(e, SW) * SW != e) continue;
#pragma unroll
                for (int o = 0; o < OT; ++o) sums.at[o][r][j] += v[SKIP + at] * w.at[o];
            }
        }
    }

    // Adds one plane of the input, `x`, times one plane of the window.
    static __device__ void plane(Sums& sums, const float* x, const float* ws, int oh, int first, bool packs,
                                 const WindowSizes& s) {
        float v[VALUES];
        if constexpr (R == 1) {
#pragma unroll 1
            for (int k = 0; k < KH; ++k) {
                int row = BACK ? oh + s.pad_height - k * DH : oh * SH - s.pad_height + k * DH;
                if (row < 0 || (BACK && row % SH)) continue;
                if (BACK) row /= SH;
                if (row >= s.height) continue;
                segment<COUNT, SKIP>(x + (long long)row * s.width, first, s.width, packs, v);
                add(sums, 0, v, ws + k * KW * OT);
            }
        } else {
#pragma unroll
            for (int j = 0; j <= (R - 1) * SH + (KH - 1) * DH; ++j) {
                const int row = oh * SH - s.pad_height + j;
                if (row < 0 || row >= s.height) continue;
                segment<COUNT, SKIP>(x + (long long)row * s.width, first, s.width, packs, v);
#pragma unroll
                for (int r = 0; r < R; ++r)
                    if (j >= r * SH && (j - r * SH) % DH == 0 && (j - r * SH) / DH < KH)
                        add(sums, r, v, ws + (j - r * SH) / DH * KW * OT);
            }
        }
    }

    template <class Finish>
    static __device__ void run(const float* x, const float* w, float* y, const WindowSizes s, Finish finish) {
        extern __shared__ __align__(16) float ws[];
        const int CG = s.channels / s.groups, OG = s.out / s.groups, Q = s.window_depth * KH * KW;
        const int across = (s.out_width + V - 1) / V, down = (s.out_height + R - 1) / R, sides = (OG + OT - 1) / OT;
        const long long images = s.total / s.out / s.out_height / s.out_width;  // times the output's depth
        const long long places = images * across * down, blocks = (places + THREADS - 1) / THREADS;
        const int side = blockIdx.x / blocks, g = side / sides, o0 = side % sides * OT, count = min(OT, OG - o0);
        for (int i = threadIdx.x; i < CG * Q * OT; i += THREADS) {
            const int r = i % OT, q = i / OT;
            const long long at = BACK ? (((long long)g * CG + q / Q) * OG + o0 + r) * Q + q % Q
                                      : ((long long)g * OG + o0 + r) * CG * Q + q;
            ws[i] = r < count ? w[at] : 0.0f;
        }
        __syncthreads();
        const long long t = blockIdx.x % blocks * THREADS + threadIdx.x;
        if (t >= places) return;
        const long long line = quotient(t, across), image = quotient(line, down);
        const int tile = remainder(t, across), oh = remainder(line, down) * R, ow = tile * V;
        const int od = remainder(image, s.out_depth);
        const long long n = quotient(image, s.out_depth), size = (long long)s.height * s.width;
        const bool packs = PACKS && s.width % 4 == 0 && even<4>(x);
        Sums sums = {};
        const float* from = x + (n * s.channels + (long long)g * CG) * s.depth * size;
#pragma unroll 1
        for (int c = 0; c < CG; ++c, from += s.depth * size)
#pragma unroll 1
            for (int k = 0; k < s.window_depth; ++k) {
                int d = BACK ? od + s.pad_depth - k * s.dilation_depth
                             : od * s.step_depth - s.pad_depth + k * s.dilation_depth;
                if (d < 0 || (BACK && d % s.step_depth)) continue;
                if (BACK) d /= s.step_depth;
                if (d >= s.depth) continue;
                const float* weights = ws + (c * s.window_depth + k) * KH * KW * OT;
                plane(sums, from + d * size, weights, oh, tile * STEP + FIRST, packs, s);
            }
#pragma unroll
        for (int o = 0; o < OT; ++o)
#pragma unroll
            for (int r = 0; r < R; ++r) {
                if (o >= count || oh + r >= s.out_height) continue;
                const int channel = g * OG + o0 + o;
                const long long above = ((n * s.out + channel) * s.out_depth + od) * s.out_height + oh + r;
                store_row(y + above * s.out_width, ow, s.out_width, V % 4 == 0 && s.out_width % 4 == 0 && even<4>(y),
                          sums.at[o][r], [&](int j, float& result) { finish(n, channel, od, oh + r, ow + j, result); });
            }
    }

    // Stores V results of a row from the column `ow` on, after `finish` has had each.
    template <class Finish>
    static __device__ void store_row(float* y, int ow, int width, bool packs, float* results, Finish finish) {
#pragma unroll
        for (int j = 0; j < V; ++j)
            if (ow + j < width) finish(j, results[j]);
        if (packs) {
#pragma unroll
            for (int j = 0; j < V; j += 4) {
                Pack<float, 4> four;
#pragma unroll
                for (int i = 0; i < 4; ++i) four.at[i] = j + i < V ? results[j + i < V ? j + i : 0] : 0.0f;
                if (ow + j < width) store<float, 4>(y + ow + j, four);
            }
        } else {
#pragma unroll
            for (int j = 0; j < V; ++j)
                if (ow + j < width) y[ow + j] = results[j];
        }
    }
};

}  // namespace kw
