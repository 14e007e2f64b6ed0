// Reductions over warps, blocks, clusters and grids, and rows that are read from memory once.
//
//     extern "C" __global__ void softmax(const float* x, float* y, long long rows, int n) {
//         auto row = kw::rows<256, 4>(rows, n, x);  // 256 threads a row, each with 4 packs of 4 values
//         if (row.outside()) return;
//         float high = row.max([&](int j, float v) { return v; });
//         float total = row.sum([&](int j, float v) { return expf(v - high); });
//         row.store(y, [&](int j, float v) { return expf(v - high) / total; });
//     }
//
// launched with ceil(rows / (block / 256)) blocks. A row of up to 256 * 16 values stays in registers; a longer one is
// read again for each reduction. Rows of at most 32 threads share a block of any size; others have a block each. With a
// third number, the blocks of a cluster share a row: `kw::rows<512, 8, 4>` in a kernel with `__cluster_dims__(4, 1, 1)`,
// launched with four blocks a row. With several blocks along y of the grid each row is cut into as many parts, whose
// results the caller combines. `kw::columns` reads rows whose elements lie `inner` apart.
#pragma once
#include <kernelwright/pipeline.cuh>
#include <kernelwright/memory.cuh>

namespace kw {

struct Add {
    static __device__ float start() { return 0.0f; }
    __device__ float operator()(float a, float b) const { return a + b; }
};
struct Multiply {
    static __device__ float start() { return 1.0f; }
    __device__ float operator()(float a, float b) const { return a * b; }
};
struct Largest {
    static __device__ float start() { return -__int_as_float(0x7f800000); }
    __device__ float operator()(float a, float b) const { return maximum(a, b); }
};
struct Smallest {
    static __device__ float start() { return __int_as_float(0x7f800000); }
    __device__ float operator()(float a, float b) const { return minimum(a, b); }
};

// A value and its index. The first of equal values wins, and NaN wins over numbers, as in torch.
struct Place {
    float value;
    int at;
};
template <bool Max>
struct First {
    static __device__ Place start() {
        return {__int_as_float(Max ? 0xff800000 : 0x7f800000), 0x7fffffff};
    }
    __device__ Place operator()(Place a, Place b) const {
        const bool an = a.value != a.value, bn = b.value != b.value;
        const bool better = Max ? b.value > a.value : b.value < a.value;
        const bool same = an ? bn : b.value == a.value;
        return an != bn ? (bn ? b : a) : same ? (b.at < a.at ? b : a) : better ? b : a;
    }
};

// Number, mean and sum of squares around the mean of some values.
struct Moments {
    float count, mean, squares;
};
struct Merge {
    static __device__ Moments start() { return {0.0f, 0.0f, 0.0f}; }
    __device__ Moments operator()(Moments a, Moments b) const {
        const float count = a.count + b.count, share = count > 0.0f ? b.count / count : 0.0f, gap = b.mean - a.mean;
        return {count, a.mean + gap * share, a.squares + b.squares + gap * gap * a.count * share};
    }
};

__device__ inline float swap_lanes(unsigned mask, float v, int k) { return __shfl_xor_sync(mask, v, k); }
__device__ inline Place swap_lanes(unsigned mask, Place v, int k) {
    return {__shfl_xor_sync(mask, v.value, k), __shfl_xor_sync(mask, v.at, k)};
}
__device__ inline Moments swap_lanes(unsigned mask, Moments v, int k) {
    return {__shfl_xor_sync(mask, v.count, k), __shfl_xor_sync(mask, v.mean, k), __shfl_xor_sync(mask, v.squares, k)};
}

// Every one of `Width` neighbouring lanes gets their combined value.
template <int Width, class T, class Op>
__device__ T lanes_reduce(T v, Op op) {
    const unsigned lane = threadIdx.x % 32;
    const unsigned mask = Width == 32 ? 0xffffffffu : ((1u << Width % 32) - 1) << (lane / Width * Width);
#pragma unroll
    for (int k = Width / 2; k > 0; k /= 2) v = op(v, swap_lanes(mask, v, k));
    return v;
}

// Every thread of a block of `Threads` gets the combined value. Calls alternate between two slots, so that one barrier
// a call is enough.
template <int Threads, class T, class Op>
__device__ T block_reduce(T v, Op op, int slot) {
    __shared__ T parts[2][Threads / 32];
    v = lanes_reduce<32>(v, op);
    if (threadIdx.x % 32 == 0) parts[slot][threadIdx.x / 32] = v;
    __syncthreads();
    return lanes_reduce<Threads / 32>(parts[slot][threadIdx.x % (Threads / 32)], op);
}

__device__ inline unsigned cluster_rank() {
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// The value that another block of the cluster holds at the same place of its shared memory.
template <class T>
__device__ T in_block(const T* here, unsigned rank) {
    unsigned at = (unsigned)__cvta_generic_to_shared(here);
    asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(at) : "r"(rank));
    T v;
#pragma unroll
    for (int w = 0; w < sizeof(T) / 4; w++) {
        unsigned& word = reinterpret_cast<unsigned*>(&v)[w];
        asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(word) : "r"(at + 4 * w) : "memory");
    }
    return v;
}

template <int Cluster, class T, class Op>
__device__ T cluster_reduce(T v, Op op, int slot) {
    __shared__ T own[2];
    if (threadIdx.x == 0) own[slot] = v;
    cluster_barrier();
    return lanes_reduce<Cluster>(in_block(&own[slot], threadIdx.x % Cluster), op);
}

// A row of n values, a share of it in each thread. `Across`: elements lie `inner` apart; a warp holds 32 neighbouring
// rows, a lane one of them, and `Threads` warps share their elements.
template <int Threads, int Packs, int Cluster, bool Across, class... Held>
struct Row {
    static constexpr int Operands = sizeof...(Held);
    static constexpr int ITEMS = 4 * Packs, WIDTH = Threads * Cluster, CHUNK = WIDTH * ITEMS;
    long long row, base;
    int n, inner, limit, chunks, first, step, slot = 0;
    bool exists, wide;
    const void* from[Operands ? Operands : 1] = {};
    float held[Operands ? Operands : 1][ITEMS];

    __device__ Row(long long rows, int count, int apart, const Held*... p) : n(count), inner(apart), step(WIDTH) {
        if constexpr (Across) {
            const int tiles = (inner + 31) / 32, column = blockIdx.x % tiles * 32 + threadIdx.x % 32;
            const long long outer = blockIdx.x / tiles;
            exists = column < inner;
            row = exists ? outer * inner + column : 0;
            base = outer * n * inner + ::min(column, inner - 1);
            first = threadIdx.x / 32;
        } else if constexpr (Threads < 64) {
            row = (long long)blockIdx.x * (blockDim.x / Threads) + threadIdx.x / Threads;
            exists = row < rows;
            first = threadIdx.x % Threads;
        } else {
            row = blockIdx.x / Cluster;
            exists = true;
            first = Cluster > 1 ? cluster_rank() * Threads + threadIdx.x : threadIdx.x;
        }
        if constexpr (!Across) base = row * n;
        if (gridDim.y > 1) {
            const int share = ((n + gridDim.y - 1) / gridDim.y + 3) / 4 * 4, start = ::min(n, (int)blockIdx.y * share);
            base += Across ? (long long)start * inner : start;
            n = ::min(share, n - start);
        }
        limit = exists ? n : 0;
        chunks = (n + CHUNK - 1) / CHUNK;
        int o = 0;
        ((from[o++] = p + base), ...);
        wide = !Across && n % 4 == 0 && (even<4>(p + base) && ... && true);
        if (wide) first *= 4, step = 1;
        if (chunks == 1) fetch(0);
    }

    __device__ ~Row() {
        if constexpr (Cluster > 1) cluster_barrier();  // other blocks may still read this one's shared memory
    }

    // True for threads that have no row, and that no barrier waits for.
    __device__ bool outside() const { return !Across && !exists; }

    // True in the one thread that stores a result of the row.
    __device__ bool leads() const { return exists && first == 0; }

    // The index of the row's element j in the tensor.
    __device__ long long at(int j) const { return Across ? base + (long long)j * inner : base + j; }

    __device__ int place(int chunk, int k) const {
        return chunk * CHUNK + k / 4 * (4 * WIDTH) + k % 4 * step + first;
    }

    __device__ void fetch(int chunk) {
        int o = 0;
        (fetch_one<Held>(o++, chunk), ...);
    }

    template <class T>
    __device__ __forceinline__ void fetch_one(int o, int chunk) {
        const T* p = static_cast<const T*>(from[o]);
        if (wide) {
#pragma unroll
            for (int k = 0; k < ITEMS; k += 4) {
                const int j = place(chunk, k);
                Pack<T, 4> v = {};
                if (j < limit) v = chunks == 1 ? load<T, 4>(p + j) : Kept<T>{p}.template pack<4>(j);
#pragma unroll
                for (int e = 0; e < 4; e++) held[o][k + e] = v.at[e];
            }
        } else {
#pragma unroll
            for (int k = 0; k < ITEMS; k++) {
                const int j = place(chunk, k);
                held[o][k] = j < limit ? p[Across ? (long long)j * inner : j] : 0.0f;
            }
        }
    }

    template <int O, class F, class... V>
    __device__ auto call(const F& f, int j, int k, V... v) const {
        if constexpr (O < Operands) return call<O + 1>(f, j, k, v..., held[O][k]);
        else return f(j, v...);
    }

    // use(k, whether element j is the row's, value) for every value f(j, held values..., values of `more`...) of the
    // thread, chunk by chunk; then done(chunk).
    template <class F, class Use, class Done, class... P>
    __device__ void walk(const F& f, Use use, Done done, const P*... more) {
        const bool packs = wide && (even<4>(more) && ... && true);
        for (int chunk = 0; chunk < chunks; chunk++) {
            if (chunks > 1) fetch(chunk);
            Batch<Packs, 4, Kept<P>...> batch;
            if constexpr (sizeof...(P) > 0) {
#pragma unroll
                for (int k = 0; k < ITEMS; k++) {
                    const int j = place(chunk, k);
                    if (packs) {
                        if (k % 4 == 0 && j < limit) batch.load(k / 4, j, Kept<P>{more}...);
                    } else if (j < limit) {
                        batch.one(k / 4, k % 4, Across ? (long long)j * inner : j, Kept<P>{more}...);
                    }
                }
            }
            // Values beyond the row are computed, too, at an element of the row, and left out by `use`: a branch for
            // each element would keep the elements from being computed side by side.
#pragma unroll
            for (int k = 0; k < ITEMS; k++) {
                const int j = place(chunk, k), at = ::max(::min(j, n - 1), 0);
                auto value = [&](auto... late) { return call_with(f, at, k, late...); };
                use(k, j < limit, batch.apply(value, k / 4, k % 4));
            }
            done(chunk);
        }
    }

    template <class F, class... L>
    __device__ auto call_with(const F& f, int j, int k, L... late) const {
        return call<0>([&](int at, auto... own) { return f(at, own..., late...); }, j, k);
    }

    template <class T, class Op>
    __device__ T combined(T v, Op op) {
        slot ^= 1;
        if constexpr (Across) {
            if constexpr (Threads > 1) {
                __shared__ T parts[2][Threads][32];
                parts[slot][threadIdx.x / 32][threadIdx.x % 32] = v;
                __syncthreads();
                v = parts[slot][0][threadIdx.x % 32];
#pragma unroll 8
                for (int w = 1; w < Threads; w++) v = op(v, parts[slot][w][threadIdx.x % 32]);
            }
            return v;
        } else if constexpr (Threads < 64) {
            return lanes_reduce<Threads>(v, op);
        } else {
            v = block_reduce<Threads>(v, op, slot);
            if constexpr (Cluster > 1) v = cluster_reduce<Cluster>(v, op, slot);
            return v;
        }
    }

    template <class Op, class F, class... P>
    __device__ float fold(const F& f, const P*... more) {
        const Op op;
        float part[4] = {Op::start(), Op::start(), Op::start(), Op::start()};
        auto use = [&](int k, bool own, float v) { part[k % 4] = op(part[k % 4], own ? v : Op::start()); };
        walk(f, use, [](int) {}, more...);
        return combined(op(op(part[0], part[1]), op(part[2], part[3])), op);
    }

    template <class F, class... P> __device__ float sum(const F& f, const P*... more) { return fold<Add>(f, more...); }
    template <class F, class... P> __device__ float mean(const F& f, const P*... more) {
        return fold<Add>(f, more...) / n;
    }
    template <class F, class... P> __device__ float prod(const F& f, const P*... more) {
        return fold<Multiply>(f, more...);
    }
    template <class F, class... P> __device__ float max(const F& f, const P*... more) {
        return fold<Largest>(f, more...);
    }
    template <class F, class... P> __device__ float min(const F& f, const P*... more) {
        return fold<Smallest>(f, more...);
    }

    // Sets `high` to the largest f(j, …) and returns the sum of expf(f(j, …) - high). A row that does not fit into
    // registers is read once.
    template <class F, class... P>
    __device__ float exponentials(float& high, const F& f, const P*... more) {
        if (chunks == 1) {
            const float top = high = fold<Largest>(f, more...);
            return fold<Add>([&](int j, auto... v) { return expf(f(j, v...) - top); }, more...);
        }
        float values[ITEMS], total = 0.0f, largest = -3.402823466e+38f;  // finite: -inf - -inf is NaN
        walk(f, [&](int k, bool own, float v) { values[k] = own ? v : Largest::start(); }, [&](int) {
            float top = largest;
#pragma unroll
            for (int k = 0; k < ITEMS; k++) top = maximum(top, values[k]);
            float more_total = 0.0f;
#pragma unroll
            for (int k = 0; k < ITEMS; k++) {
                more_total += expf(values[k] - top);
            }
            total = total * expf(largest - top) + more_total;
            largest = top;
        }, more...);
        const float top = combined(largest, Largest());
        total = combined(total * expf(largest - top), Add());
        high = top;
        return total;
    }

    // Returns the mean of f(j, …) and sets `spread` to the mean of the squares around it. A row that does not fit into
    // registers is read once.
    template <class F, class... P>
    __device__ float moments(float& spread, const F& f, const P*... more) {
        if (chunks == 1) {
            const float centre = mean(f, more...);
            spread = mean([&](int j, auto... v) {
                const float gap = f(j, v...) - centre;
                return gap * gap;
            }, more...);
            return centre;
        }
        Moments all = Merge::start();
        float values[ITEMS];
        walk(f, [&](int k, bool, float v) { values[k] = v; }, [&](int chunk) {
            Moments part = Merge::start();
#pragma unroll
            for (int k = 0; k < ITEMS; k++) {
                if (place(chunk, k) < limit) part.count += 1.0f, part.mean += values[k];
            }
            if (part.count > 0.0f) part.mean /= part.count;
#pragma unroll
            for (int k = 0; k < ITEMS; k++) {
                const float gap = values[k] - part.mean;
                if (place(chunk, k) < limit) part.squares += gap * gap;
            }
            all = Merge()(all, part);
        }, more...);
        all = combined(all, Merge());
        spread = all.squares / n;
        return all.mean;
    }

    // The index of the first largest (or smallest) value.
    template <bool Max, class F, class... P>
    __device__ int place_of(const F& f, const P*... more) {
        const First<Max> op;
        Place best = First<Max>::start();
        walk([&](int j, auto... v) { return Place{f(j, v...), j}; }, [&](int, bool own, Place v) {
            // A thread meets its elements in order, so that a later one has to be better.
            const bool better = Max ? !(v.value <= best.value) : !(v.value >= best.value);
            const bool none = best.at == 0x7fffffff;
            if (own && (none || better && best.value == best.value)) best = v;
        }, [](int) {}, more...);
        return combined(best, op).at;
    }

    // y[row's element j] = f(j, …).
    template <class Out, class F, class... P>
    __device__ void store(Out* y, const F& f, const P*... more) {
        Out r[ITEMS];
        const bool packs = wide && even<4>(y + base);
        walk(f, [&](int k, bool, auto v) { r[k] = v; }, [&](int chunk) {
#pragma unroll
            for (int k = 0; k < ITEMS; k++) {
                const int j = place(chunk, k);
                if (!packs) {
                    if (j < limit) y[at(j)] = r[k];
                } else if (k % 4 == 0 && j < limit) {
                    Pack<Out, 4> v;
#pragma unroll
                    for (int e = 0; e < 4; e++) v.at[e] = r[k + e];
                    kw::store(y + base + j, v);
                }
            }
        }, more...);
    }
};

// Threads of a row, packs of a thread, blocks of a row; the tensors' rows are read at once.
template <int Threads, int Packs, int Cluster = 1, class... P>
__device__ Row<Threads, Packs, Cluster, false, P...> rows(long long count, int n, const P*... p) {
    return {count, n, 1, p...};
}

// Rows whose elements lie `inner` apart: blocks of 32 * Warps threads, ceil(inner / 32) of them for each `n * inner`
// elements; a thread holds 4 * Packs elements of one row.
template <int Warps, int Packs, class... P>
__device__ Row<Warps, Packs, 1, true, P...> columns(int n, int inner, const P*... p) {
    return {0, n, inner, p...};
}

// --- Channels of a batch --------------------------------------------------------------------------------------------

// Stores count, mean and sum of squares of the block's share of channel blockIdx.y of x[batch][channels][inner] at
// parts[3 * (channel * gridDim.x + blockIdx.x)].
template <int Threads>
__device__ void channel_moments(float* parts, const float* x, int batch, int channels, int inner) {
    constexpr int U = LOADS, N = 4;
    const int c = blockIdx.y;
    const long long all = (long long)batch * inner;
    const bool packs = inner % N == 0 && even<N>(x);
    Moments part = Merge::start();
    const long long stride = (long long)gridDim.x * Threads * N * U;
    for (long long start = (long long)blockIdx.x * Threads * N * U; start < all; start += stride) {
        auto place = [&](long long e) {
            const long long b = quotient(e, inner);
            return (b * channels + c) * inner + (e - b * inner);
        };
        float v[U * N] = {};
        int count = 0;
        if (packs) {
#pragma unroll
            for (int u = 0; u < U; u++) {
                const long long e = start + (u * Threads + threadIdx.x) * N;
                if (e >= all) continue;
                const Pack<float, N> four = load<float, N>(x + place(e));
#pragma unroll
                for (int k = 0; k < N; k++) v[u * N + k] = four.at[k];
                count = u * N + N;
            }
        } else {
#pragma unroll
            for (int k = 0; k < U * N; k++) {
                const long long e = start + k * Threads + threadIdx.x;
                if (e < all) v[k] = x[place(e)], count = k + 1;
            }
        }
        Moments own = {(float)count, 0.0f, 0.0f};
#pragma unroll
        for (int k = 0; k < U * N; k++) own.mean += k < count ? v[k] : 0.0f;
        if (count) own.mean /= count;
#pragma unroll
        for (int k = 0; k < U * N; k++) {
            const float gap = v[k] - own.mean;
            if (k < count) own.squares += gap * gap;
        }
        part = Merge()(part, own);
    }
    part = block_reduce<Threads>(part, Merge(), 0);
    if (threadIdx.x == 0) {
        float* p = parts + 3 * ((long long)c * gridDim.x + blockIdx.x);
        p[0] = part.count, p[1] = part.mean, p[2] = part.squares;
    }
}

// The moments of `count` parts, in every lane of a warp.
__device__ inline Moments merged(const float* parts, int count) {
    Moments all = Merge::start();
    for (int k = threadIdx.x % 32; k < count; k += 32) {
        all = Merge()(all, Moments{parts[3 * k], parts[3 * k + 1], parts[3 * k + 2]});
    }
    return lanes_reduce<32>(all, Merge());
}

// --- One value of a whole tensor ------------------------------------------------------------------------------------

// A sum that keeps what rounding loses.
struct Exact {
    float total = 0.0f, lost = 0.0f;
    __device__ void add(float v) {
        const float y = v - lost, t = total + y;
        const float gone = (t - total) - y;
        lost = gone - gone == 0.0f ? gone : 0.0f;  // infinities and NaN lose nothing
        total = t;
    }
    __device__ float value() const { return total - lost; }
};

template <class Op>
struct Part {
    float total = Op::start();
    __device__ void add(float v) { total = Op()(total, v); }
    __device__ float value() const { return total; }
};
template <>
struct Part<Add> : Exact {};

// Blocks of the running kernel that have stored their part; the last one sets it back to zero.
static __device__ unsigned arrived;

// finish(combined f(a(i)...) of all i < n), in one thread of the grid. `parts` has room for a float of each block.
template <int Threads, class Op, class F, class Finish, class... A>
__device__ void whole(float* parts, long long n, const F& f, const Finish& finish, A... a) {
    constexpr int U = LOADS, N = 4;
    __shared__ bool last;
    Part<Op> part[N];
    const long long stride = (long long)gridDim.x * Threads * N * U;
    const bool packs = (a.template packs<N>() && ... && true);
    for (long long start = (long long)blockIdx.x * Threads * N * U; start < n; start += stride) {
        if (packs && start + Threads * N * U <= n) {
            Batch<U, N, A...> batch;
#pragma unroll
            for (int u = 0; u < U; u++) batch.load(u, start + (u * Threads + threadIdx.x) * N, a...);
#pragma unroll
            for (int u = 0; u < U; u++) {
#pragma unroll
                for (int k = 0; k < N; k++) part[k].add(batch.apply(f, u, k));
            }
        } else {
            for (int j = threadIdx.x; j < Threads * N * U && start + j < n; j += Threads) {
                part[0].add(f(a.one(start + j)...));
            }
        }
    }
    const Op op;
    float v = op(op(part[0].value(), part[1].value()), op(part[2].value(), part[3].value()));
    v = block_reduce<Threads>(v, op, 0);
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = v;
        __threadfence();
        last = atomicAdd(&arrived, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    v = Op::start();
    for (int b = threadIdx.x; b < gridDim.x; b += Threads) v = op(v, __ldcg(parts + b));
    v = block_reduce<Threads>(v, op, 1);
    if (threadIdx.x == 0) {
        arrived = 0;
        finish(v);
    }
}

}  // namespace kw
