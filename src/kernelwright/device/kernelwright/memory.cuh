// Access to global memory, 16 bytes at a time: packs, operands of elementwise kernels, and `map`.
//
//     extern "C" __global__ void gate(const float* x, const float* b, float* y, long long n, int cols) {
//         kw::map(y, n, [=](float v, float u) { return v / (1.0f + expf(-u)); }, kw::dense(x), kw::column(b, cols));
//     }
//
// launched with ceil(n / kw::each(blockDim.x)) blocks. Elements at the end, and tensors that do not begin at a multiple
// of 16 bytes, take single loads. Every size and every alignment is right.
#pragma once

namespace kw {

// N neighbouring values, loaded and stored at once.
template <class T, int N>
struct alignas(sizeof(T) * N > 16 ? 16 : sizeof(T) * N) Pack {
    T at[N];
};

// The larger or smaller of two numbers; NaN where one of them is NaN, as in torch.
__device__ inline float maximum(float a, float b) {
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}

__device__ inline float minimum(float a, float b) {
    float r;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}

// v * tanh(log(1 + exp(v))), by one exponential and without cancellation.
__device__ inline float mish(float v) {
    const float e = expf(v), n = e * (e + 2.0f);
    return v > 20.0f ? v : v * (n / (n + 2.0f));
}

// True where a pointer is a multiple of a pack's size.
template <int N, class T>
__device__ bool even(const T* p) {
    return reinterpret_cast<unsigned long long>(p) % alignof(Pack<T, N>) == 0;
}

// Plain accesses: hints that data is touched once (ld.global.cs) cost up to a tenth of the bandwidth on an H200.
template <class T, int N>
__device__ Pack<T, N> load(const T* p) {
    return *reinterpret_cast<const Pack<T, N>*>(p);
}

template <class T, int N>
__device__ void store(T* p, Pack<T, N> v) {
    *reinterpret_cast<Pack<T, N>*>(p) = v;
}

// Quotient and remainder of an index: 32-bit arithmetic, where it is enough, is several times faster.
__device__ inline long long quotient(long long i, int d) {
    return i >> 32 ? i / d : (long long)((unsigned)i / (unsigned)d);
}

__device__ inline int remainder(long long i, int d) {
    return i >> 32 ? (int)(i % d) : (int)((unsigned)i % (unsigned)d);
}

// Takes the place of the output in an epilogue that is written for memory: every index is this one result.
struct Result {
    float& value;
    __device__ float& operator[](long long) const { return value; }
};

// Operands of `map`. `one(i)` is the value for the result's element i, `pack<N>(i)` the values for i, …, i + N - 1;
// `pack` is allowed where `packs<N>()` and i is a multiple of N.

// The element of a tensor of the result's shape.
template <class T>
struct Dense {
    using type = T;
    const T* p;
    template <int N> __device__ bool packs() const { return even<N>(p); }
    __device__ T one(long long i) const { return p[i]; }
    template <int N> __device__ Pack<T, N> pack(long long i) const { return load<T, N>(p + i); }
};

// The same for a tensor that other blocks read, too: it stays in the caches.
template <class T>
struct Kept {
    using type = T;
    const T* p;
    template <int N> __device__ bool packs() const { return even<N>(p); }
    __device__ T one(long long i) const { return p[i]; }
    template <int N> __device__ Pack<T, N> pack(long long i) const {
        return *reinterpret_cast<const Pack<T, N>*>(p + i);
    }
};

// p[i % cols]: a vector along the last dimensions.
template <class T>
struct Column {
    using type = T;
    const T* p;
    int cols;
    template <int N> __device__ bool packs() const { return true; }
    __device__ T one(long long i) const { return p[remainder(i, cols)]; }
    template <int N> __device__ Pack<T, N> pack(long long i) const {
        int j = remainder(i, cols);
        if (cols % N == 0 && even<N>(p)) return *reinterpret_cast<const Pack<T, N>*>(p + j);
        Pack<T, N> r;
#pragma unroll
        for (int k = 0; k < N; k++) {
            r.at[k] = p[j];
            if (++j == cols) j = 0;
        }
        return r;
    }
};

// p[i / inner % count]: a vector along middle dimensions, or p[i / inner] where count is 0.
template <class T>
struct Channel {
    using type = T;
    const T* p;
    int inner, count;
    template <int N> __device__ bool packs() const { return true; }
    __device__ T one(long long i) const {
        const long long q = quotient(i, inner);
        return p[count ? remainder(q, count) : q];
    }
    template <int N> __device__ Pack<T, N> pack(long long i) const {
        Pack<T, N> r;
        if (inner % N == 0) {
            const T v = one(i);
#pragma unroll
            for (int k = 0; k < N; k++) r.at[k] = v;
        } else {
#pragma unroll
            for (int k = 0; k < N; k++) r.at[k] = one(i + k);
        }
        return r;
    }
};

// p[i / outer * inner + i % inner]: the result without some adjacent middle dimensions; outer = their sizes * inner.
template <class T>
struct Gap {
    using type = T;
    const T* p;
    int outer, inner;
    template <int N> __device__ bool packs() const { return true; }
    __device__ long long place(long long i) const { return quotient(i, outer) * inner + remainder(i, inner); }
    __device__ T one(long long i) const { return p[place(i)]; }
    template <int N> __device__ Pack<T, N> pack(long long i) const {
        if (inner % N == 0 && even<N>(p)) return *reinterpret_cast<const Pack<T, N>*>(p + place(i));
        Pack<T, N> r;
#pragma unroll
        for (int k = 0; k < N; k++) r.at[k] = one(i + k);
        return r;
    }
};

// p[0].
template <class T>
struct Single {
    using type = T;
    const T* p;
    template <int N> __device__ bool packs() const { return true; }
    __device__ T one(long long) const { return *p; }
    template <int N> __device__ Pack<T, N> pack(long long) const {
        Pack<T, N> r;
#pragma unroll
        for (int k = 0; k < N; k++) r.at[k] = *p;
        return r;
    }
};

template <class T> __device__ Dense<T> dense(const T* p) { return {p}; }
template <class T> __device__ Column<T> column(const T* p, int cols) { return {p, cols}; }
template <class T> __device__ Channel<T> channel(const T* p, int inner, int count) { return {p, inner, count}; }
template <class T> __device__ Channel<T> row(const T* p, int inner) { return {p, inner, 0}; }
template <class T> __device__ Gap<T> gap(const T* p, int outer, int inner) { return {p, outer, inner}; }
template <class T> __device__ Single<T> single(const T* p) { return {p}; }

// Packs of several operands, all loaded before the first is used.
template <int U, int N, class... A>
struct Batch {
    __device__ void load(int, long long) {}
    __device__ void one(int, int, long long) {}
    template <class F, class... V> __device__ auto apply(const F& f, int, int, V... v) const { return f(v...); }
};

template <int U, int N, class A, class... Rest>
struct Batch<U, N, A, Rest...> {
    Pack<typename A::type, N> first[U];
    Batch<U, N, Rest...> rest;
    __device__ void load(int u, long long i, const A& a, const Rest&... others) {
        first[u] = a.template pack<N>(i);
        rest.load(u, i, others...);
    }
    __device__ void one(int u, int k, long long i, const A& a, const Rest&... others) {
        first[u].at[k] = a.one(i);
        rest.one(u, k, i, others...);
    }
    template <class F, class... V> __device__ auto apply(const F& f, int u, int k, V... v) const {
        return rest.apply(f, u, k, v..., first[u].at[k]);
    }
};

constexpr int LOADS = 4;  // independent loads of 16 bytes that a thread has in flight for each operand

// Elements that a block of `map` computes.
template <int U = LOADS>
__host__ __device__ constexpr int each(int threads) { return threads * 4 * U; }

// y[i] = f(a(i)...) for the block's share of n elements.
template <int U = LOADS, class Out, class F, class... A>
__device__ void map(Out* y, long long n, F f, A... a) {
    constexpr int N = 4;
    const long long start = (long long)blockIdx.x * (blockDim.x * N * U);
    const int whole = blockDim.x * N * U;
    if (even<N>(y) && (a.template packs<N>() && ... && true) && start + whole <= n) {
        Batch<U, N, A...> batch;
#pragma unroll
        for (int u = 0; u < U; u++) batch.load(u, start + (u * blockDim.x + threadIdx.x) * N, a...);
#pragma unroll
        for (int u = 0; u < U; u++) {
            Pack<Out, N> r;
#pragma unroll
            for (int k = 0; k < N; k++) r.at[k] = batch.apply(f, u, k);
            store(y + start + (u * blockDim.x + threadIdx.x) * N, r);
        }
    } else {
        for (int j = threadIdx.x; j < whole && start + j < n; j += blockDim.x) y[start + j] = f(a.one(start + j)...);
    }
}

// y[i] = f(i) for the block's share of n elements; i is an int where n allows it.
template <int U = LOADS, class Out, class F>
__device__ void fill(Out* y, long long n, F f) {
    const long long start = (long long)blockIdx.x * (blockDim.x * 4 * U);
    const int whole = blockDim.x * 4 * U;
    const int count = n - start < whole ? (int)(n - start) : whole;
    auto part = [&](auto first) {
        int j = threadIdx.x;
        for (; j + (U - 1) * (int)blockDim.x < count; j += U * blockDim.x) {
            Out r[U];
#pragma unroll
            for (int u = 0; u < U; u++) r[u] = f(first + j + u * (int)blockDim.x);
#pragma unroll
            for (int u = 0; u < U; u++) y[start + j + u * (int)blockDim.x] = r[u];
        }
        for (; j < count; j += blockDim.x) y[start + j] = f(first + j);
    };
    if (n < 1LL << 31) part((int)start);
    else part(start);
}

}  // namespace kw
