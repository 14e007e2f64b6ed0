// Scans along rows: sums, products, largest and smallest values so far.
//
//     extern "C" __global__ void cumsum(const float* x, float* y, long long rows, int n) {
//         long long row = kw::scan_row<256>(), base = row * n;
//         kw::scan<256, 4, kw::Add>(y + base, n, [](int j, float v) { return v; },
//                                   [](int j, float sum) { return sum; }, x + base);
//     }
//
// launched with a block of 256 threads a row; with rows of 32 threads a block of any size has several. The first
// function gives the value of element j, the second the result from the value so far.
#pragma once
#include <kernelwright/reduce.cuh>

namespace kw {

template <int Threads>
__device__ long long scan_row() {
    return Threads > 32 ? blockIdx.x : (long long)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
}

// Scans n neighbouring elements by `Threads` threads, 128 * Packs elements of a warp at a time. `Reverse` starts from the
// end, `Exclusive` leaves out the element itself.
template <int Threads, int Packs, class Op, bool Reverse = false, bool Exclusive = false, class F, class G, class... P>
__device__ void scan(float* y, int n, const F& f, const G& g, const P*... p) {
    constexpr int WARPS = Threads / 32, STRIPE = 128, SHARE = STRIPE * Packs, TILE = WARPS * SHARE;
    const Op op;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % WARPS;
    const bool packs = n % 4 == 0 && even<4>(y) && (even<4>(p) && ... && true);
    float carry = Op::start();
    int slot = 0;
    for (int start = 0; start < n; start += TILE, slot ^= 1) {
        const int first = start + warp * SHARE + lane * 4;
        Batch<Packs, 4, Kept<P>...> batch;
        auto at = [&](int e) { return Reverse ? n - 1 - e : e; };
        if constexpr (sizeof...(P) > 0) {
#pragma unroll
            for (int u = 0; u < Packs; u++) {
                const int e = first + u * STRIPE;
                if (packs) {
                    if (e < n) batch.load(u, Reverse ? n - 4 - e : e, Kept<P>{p}...);
                } else {
#pragma unroll
                    for (int k = 0; k < 4; k++) {
                        if (e + k < n) batch.one(u, Reverse ? 3 - k : k, at(e + k), Kept<P>{p}...);
                    }
                }
            }
        }
        float v[Packs][4], before[Packs], whole[Packs];
#pragma unroll
        for (int u = 0; u < Packs; u++) {
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int e = first + u * STRIPE + k;
                float own = Op::start();
                if (e < n) own = batch.apply([&](auto... w) { return f(at(e), w...); }, u, Reverse ? 3 - k : k);
                v[u][k] = k ? op(v[u][k - 1], own) : own;
            }
            float sum = v[u][3];
#pragma unroll
            for (int d = 1; d < 32; d *= 2) {
                const float other = __shfl_up_sync(0xffffffffu, sum, d);
                if (lane >= d) sum = op(other, sum);
            }
            const float left = __shfl_up_sync(0xffffffffu, sum, 1);
            before[u] = lane ? left : Op::start();
            whole[u] = __shfl_sync(0xffffffffu, sum, 31);
        }
        float sum = Op::start();
#pragma unroll
        for (int u = 0; u < Packs; u++) {
            before[u] = op(sum, before[u]);
            sum = op(sum, whole[u]);
        }
        float base = carry;
        if constexpr (WARPS > 1) {
            __shared__ float sums[2][WARPS];
            if (lane == 0) sums[slot][warp] = sum;
            __syncthreads();
#pragma unroll
            for (int w = 0; w < WARPS; w++) {
                if (w == warp) base = carry;
                carry = op(carry, sums[slot][w]);
            }
        } else {
            carry = op(carry, sum);
        }
#pragma unroll
        for (int u = 0; u < Packs; u++) {
            const int e = first + u * STRIPE;
            const float left = op(base, before[u]);
            Pack<float, 4> r;
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const float so_far = !Exclusive ? op(left, v[u][k]) : k ? op(left, v[u][k - 1]) : left;
                if (e + k < n) r.at[Reverse ? 3 - k : k] = g(at(e + k), so_far);
            }
            if (packs) {
                if (e < n) store(y + (Reverse ? n - 4 - e : e), r);
            } else {
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    if (e + k < n) y[at(e + k)] = r.at[Reverse ? 3 - k : k];
                }
            }
        }
    }
}

// Scans n elements that lie `inner` apart in one thread, with U loads in flight.
template <int U, class Op, bool Reverse = false, bool Exclusive = false, class F, class G, class... P>
__device__ void scan_apart(float* y, int n, int inner, const F& f, const G& g, const P*... p) {
    const Op op;
    float so_far = Op::start();
    for (int start = 0; start < n; start += U) {
        float v[U];
#pragma unroll
        for (int u = 0; u < U; u++) {
            const int j = Reverse ? n - 1 - start - u : start + u;
            if (start + u < n) v[u] = f(j, p[(long long)j * inner]...);
        }
#pragma unroll
        for (int u = 0; u < U; u++) {
            const int j = Reverse ? n - 1 - start - u : start + u;
            if (start + u >= n) continue;
            const float before = so_far;
            so_far = op(so_far, v[u]);
            y[(long long)j * inner] = g(j, Exclusive ? before : so_far);
        }
    }
}

}  // namespace kw
