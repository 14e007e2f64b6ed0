// Transposes through shared memory, so that loads and stores are both of 16 neighbouring bytes a thread.
//
//     extern "C" __global__ void transposed(const float* x, float* y, int rows, int cols) {
//         kw::transpose(y, x, rows, cols, [](float v) { return v; });
//     }
//
// launched with blocks of 256 threads, ceil(rows / 64) * ceil(cols / 64) of them for each matrix.
#pragma once
#include <kernelwright/memory.cuh>

namespace kw {

// y[m][c][r] = f(x[m][r][c]) for matrices of rows x cols.
template <class Out, class F>
__device__ void transpose(Out* y, const float* x, int rows, int cols, const F& f) {
    constexpr int EDGE = 64;
    __shared__ float tile[EDGE][EDGE + 1];
    const int across = (cols + EDGE - 1) / EDGE, down = (rows + EDGE - 1) / EDGE;
    const long long matrix = blockIdx.x / across / down * ((long long)rows * cols);
    const int c0 = blockIdx.x % across * EDGE, r0 = blockIdx.x / across % down * EDGE;
    const int quad = threadIdx.x % 16 * 4, line = threadIdx.x / 16;
    if (cols % 4 == 0 && even<4>(x)) {
        Pack<float, 4> v[4] = {};
#pragma unroll
        for (int u = 0; u < 4; u++) {
            const int r = r0 + line + u * 16;
            if (r < rows && c0 + quad < cols) v[u] = load<float, 4>(x + matrix + (long long)r * cols + c0 + quad);
        }
#pragma unroll
        for (int u = 0; u < 4; u++) {
#pragma unroll
            for (int k = 0; k < 4; k++) tile[line + u * 16][quad + k] = v[u].at[k];
        }
    } else {
#pragma unroll 4
        for (int e = threadIdx.x; e < EDGE * EDGE; e += 256) {
            const int r = r0 + e / EDGE, c = c0 + e % EDGE;
            tile[e / EDGE][e % EDGE] = r < rows && c < cols ? x[matrix + (long long)r * cols + c] : 0.0f;
        }
    }
    __syncthreads();
    if (rows % 4 == 0 && even<4>(y)) {
#pragma unroll
        for (int u = 0; u < 4; u++) {
            const int c = c0 + line + u * 16;
            if (c >= cols || r0 + quad >= rows) continue;
            Pack<Out, 4> v;
#pragma unroll
            for (int k = 0; k < 4; k++) v.at[k] = f(tile[quad + k][line + u * 16]);
            store(y + matrix + (long long)c * rows + r0 + quad, v);
        }
    } else {
        for (int e = threadIdx.x; e < EDGE * EDGE; e += 256) {
            const int c = c0 + e / EDGE, r = r0 + e % EDGE;
            if (r < rows && c < cols) y[matrix + (long long)c * rows + r] = f(tile[e % EDGE][e / EDGE]);
        }
    }
}

// p[o][s][t][e] as the operand of a result of shape [o][t][s][e]: swapped middle dimensions.
template <class T>
struct Swapped {
    using type = T;
    const T* p;
    int first, second, last;  // sizes of s, t and e
    __device__ long long place(long long i) const {
        const long long line = quotient(i, last);
        const int e = i - line * last;
        const long long up = quotient(line, first);
        const int s = line - up * first;
        const long long o = quotient(up, second);
        const int t = up - o * second;
        return ((o * first + s) * second + t) * last + e;
    }
    template <int N> __device__ bool packs() const { return true; }
    __device__ T one(long long i) const { return p[place(i)]; }
    template <int N> __device__ Pack<T, N> pack(long long i) const {
        if (last % N == 0 && even<N>(p)) return load<T, N>(p + place(i));
        Pack<T, N> r;
#pragma unroll
        for (int k = 0; k < N; k++) r.at[k] = one(i + k);
        return r;
    }
};
template <class T>
__device__ Swapped<T> swapped(const T* p, int first, int second, int last) { return {p, first, second, last}; }

}  // namespace kw
