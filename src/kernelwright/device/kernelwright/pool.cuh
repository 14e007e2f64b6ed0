// Pooling over windows of up to three dimensions whose sizes are known to the compiler.
//
//     extern "C" __global__ void pooled(const float* x, float* y, long long planes, int H, int W, int OH, int OW) {
//         kw::pool<kw::Largest, kw::Window<1>, kw::Window<3, 2, 1>, kw::Window<3, 2, 1>>(
//             y, x, planes, 1, H, W, 1, OH, OW, [](float v, int, int, int, long long) { return v; });
//     }
//
// launched with ceil(planes * OD * ceil(OH / 4) * OW / block) blocks.
#pragma once
#include <kernelwright/reduce.cuh>

namespace kw {

// Size, stride, padding and dilation of a window along one dimension.
template <int Size, int Stride = 1, int Padding = 0, int Dilation = 1>
struct Window {
    static constexpr int size = Size, stride = Stride, padding = Padding, dilation = Dilation;
};

constexpr int POOLED = 4;  // neighbouring results along H that a thread computes, so that windows share their loads

// y[i] = f(combined window, od, oh, ow, i) for results i of [planes][OD][OH][OW].
template <class Op, class D_, class H_, class W_, class F>
__device__ void pool(float* y, const float* x, long long planes, int D, int H, int W, int OD, int OH, int OW,
                     const F& f) {
    constexpr int V = POOLED, LINES = (V - 1) * H_::stride + (H_::size - 1) * H_::dilation + 1;
    const Op op;
    const int groups = (OH + V - 1) / V;
    const long long t = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    const long long line = quotient(t, OW);
    const int ow = t - line * OW;
    const long long level = quotient(line, groups);
    const int oh = (line - level * groups) * V;
    const long long plane = quotient(level, OD);
    const int od = level - plane * OD;
    if (plane >= planes) return;
    const int d0 = od * D_::stride - D_::padding, h0 = oh * H_::stride - H_::padding;
    const int w0 = ow * W_::stride - W_::padding;
    float acc[V];
#pragma unroll
    for (int v = 0; v < V; v++) acc[v] = Op::start();
#pragma unroll
    for (int kd = 0; kd < D_::size; kd++) {
        const int d = d0 + kd * D_::dilation;
        if (d < 0 || d >= D) continue;
        const float* p = x + ((plane * D + d) * H + h0) * W + w0;
#pragma unroll
        for (int l = 0; l < LINES; l++) {
            const bool inside = h0 + l >= 0 && h0 + l < H;
            float part = Op::start();
#pragma unroll
            for (int k = 0; k < W_::size; k++) {
                const int w = w0 + k * W_::dilation;
                const float u = inside && w >= 0 && w < W ? p[(long long)l * W + k * W_::dilation] : Op::start();
                part = k ? op(part, u) : u;
            }
#pragma unroll
            for (int v = 0; v < V; v++) {
                const int k = l - v * H_::stride;
                if (k >= 0 && k % H_::dilation == 0 && k / H_::dilation < H_::size) acc[v] = op(acc[v], part);
            }
        }
    }
    const long long i = ((plane * OD + od) * OH + oh) * OW + ow;
#pragma unroll
    for (int v = 0; v < V; v++) {
        if (oh + v < OH) y[i + (long long)v * OW] = f(acc[v], od, oh + v, ow, i + (long long)v * OW);
    }
}

}  // namespace kw
