"""Device code of products: `product(a, b, c, M, K, N, sk, sn)`, with b at `k * sk + n * sn`, and `a` and `c` in rows.

Each text defines the kernel `product` of one warp a block; the grid has a block for each tile of 16 x 8 elements of c.
`absmax` leaves the largest magnitudes of a and b behind c, for the products that scale their operands.
"""

from __future__ import annotations

_HEAD = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#define ARGS const float* a, const float* b, float* c, const unsigned* largest, int M, int K, int N, int sk, int sn
struct Tile { int row, col, g, t; };
__device__ inline Tile tile() {
    return {(int)blockIdx.y * 16, (int)blockIdx.x * 8, (int)threadIdx.x >> 2, (int)threadIdx.x & 3};
}
__device__ inline void store(float* c, const float (&sum)[4], int M, int N) {
    const Tile w = tile();
    for (int i = 0; i < 4; ++i) {
        const int m = w.row + w.g + (i >> 1) * 8, n = w.col + 2 * w.t + (i & 1);
        if (m < M && n < N) c[(long long)m * N + n] = sum[i];
    }
}
extern "C" __global__ void absmax(const float* a, const float* b, long long na, long long nb, unsigned* largest) {
    const long long step = (long long)gridDim.x * blockDim.x;
    unsigned one = 0, other = 0;
    const long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    for (long long i = first; i < na; i += step) one = max(one, __float_as_uint(fabsf(a[i])));
    for (long long i = first; i < nb; i += step) other = max(other, __float_as_uint(fabsf(b[i])));
    atomicMax(largest, one);
    atomicMax(largest + 1, other);
}
"""

_LOADS = r"""
__device__ inline float at_a(const float* a, int m, int k, int M, int K) {
    return m < M && k < K ? a[(long long)m * K + k] : 0.f;
}
__device__ inline float at_b(const float* b, int k, int n, int K, int N, int sk, int sn) {
    return k < K && n < N ? b[(long long)k * sk + (long long)n * sn] : 0.f;
}
"""

_TF32 = r"""
__device__ inline void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ inline unsigned rounded(float x) {
    unsigned r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
    return r;
}
__device__ inline unsigned chopped(float x) { return __float_as_uint(x) & 0xffffe000u; }
extern "C" __global__ void product(ARGS) {
    const Tile w = tile();
    float sum[4] = {}, part[4] = {};
    for (int k0 = 0; k0 < K; k0 += 8) {
        unsigned ah[4], al[4], bh[2], bl[2];
        for (int i = 0; i < 4; ++i) {
            const float x = at_a(a, w.row + w.g + (i & 1) * 8, k0 + w.t + (i >> 1) * 4, M, K);
            ah[i] = CUT(x);
            al[i] = CUT(x - __uint_as_float(ah[i]));
        }
        for (int i = 0; i < 2; ++i) {
            const float x = at_b(b, k0 + w.t + i * 4, w.col + w.g, K, N, sk, sn);
            bh[i] = CUT(x);
            bl[i] = CUT(x - __uint_as_float(bh[i]));
        }
        if (SPLIT) { mma(part, al, bh); mma(part, ah, bl); }
        mma(part, ah, bh);
        if (!SPLIT || k0 % PROMOTED == PROMOTED - 8 || k0 + 8 >= K)
            for (int i = 0; i < 4; ++i) { sum[i] += part[i]; part[i] = 0.f; }
    }
    store(c, sum, M, N);
}
"""

_HALF = r"""
__device__ inline void mma(float (&d)[4], const unsigned (&a)[2], unsigned b) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32." TYPE "." TYPE ".f32 "
        "{%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(b));
}
__device__ inline float cut(float x) { return WIDE(NARROW(x)); }
__device__ inline unsigned pair(float x, float y) {
    HALF h[2] = {NARROW(x), NARROW(y)};
    return *reinterpret_cast<unsigned*>(h);
}
// The power of two that brings the largest magnitude to at least 2^12 and below 2^13.
__device__ inline int shift(unsigned largest) { return SCALED && largest ? 12 - ((int)(largest >> 23) - 127) : 0; }
extern "C" __global__ void product(ARGS) {
    const Tile w = tile();
    const int ea = shift(largest[0]), eb = shift(largest[1]);
    float sum[4] = {}, part[4] = {};
    for (int k0 = 0; k0 < K; k0 += 8) {
        unsigned ah[2], al[2];
        for (int i = 0; i < 2; ++i) {
            const int m = w.row + w.g + i * 8, k = k0 + 2 * w.t;
            const float x = ldexpf(at_a(a, m, k, M, K), ea), y = ldexpf(at_a(a, m, k + 1, M, K), ea);
            ah[i] = pair(x, y);
            al[i] = pair(x - cut(x), y - cut(y));
        }
        const int n = w.col + w.g, k = k0 + 2 * w.t;
        const float x = ldexpf(at_b(b, k, n, K, N, sk, sn), eb), y = ldexpf(at_b(b, k + 1, n, K, N, sk, sn), eb);
        if (SPLIT) { mma(part, al, pair(x, y)); mma(part, ah, pair(x - cut(x), y - cut(y))); }
        mma(part, ah, pair(x, y));
        if (k0 % PROMOTED == PROMOTED - 8 || k0 + 8 >= K)
            for (int i = 0; i < 4; ++i) { sum[i] += part[i]; part[i] = 0.f; }
    }
    for (int i = 0; i < 4; ++i) sum[i] = ldexpf(sum[i], -ea - eb);
    store(c, sum, M, N);
}
"""

_THREADS = r"""
__device__ inline float dot(const float* a, const float* b, int m, int n, int K, int N, int sk, int sn) {
    float sum = 0.f;
    ORDER
    return sum;
}
extern "C" __global__ void product(ARGS) {
    const Tile w = tile();
    float sum[4] = {};
    for (int i = 0; i < 4; ++i) {
        const int m = w.row + w.g + (i >> 1) * 8, n = w.col + 2 * w.t + (i & 1);
        if (m < M && n < N) sum[i] = dot(a, b, m, n, K, N, sk, sn);
    }
    store(c, sum, M, N);
}
"""
_TERM = "a[(long long)m * K + k], b[(long long)k * sk + (long long)n * sn]"


def _defined(text: str, **names: object) -> str:
    return _HEAD + _LOADS + "".join(f"#define {name} {value}\n" for name, value in names.items()) + text


def _ordered(loop: str) -> str:
    return _HEAD + _THREADS.replace("ORDER", loop.replace("TERM", _TERM))


_FP16 = {"TYPE": '"f16"', "HALF": "__half", "NARROW": "__float2half_rn", "WIDE": "__half2float"}
_BF16 = {"TYPE": '"bf16"', "HALF": "__nv_bfloat16", "NARROW": "__float2bfloat16_rn", "WIDE": "__bfloat162float"}

PRODUCTS: dict[str, str] = {
    "float32_forward": _ordered("for (int k = 0; k < K; ++k) sum = fmaf(TERM, sum);"),
    "float32_backward": _ordered("for (int k = K - 1; k >= 0; --k) sum = fmaf(TERM, sum);"),
    "float32_not_fused": _ordered(
        "for (int k = 0; k < K; ++k) { float p = __fmul_rn(TERM); sum = __fadd_rn(sum, p); }"
    ),
    "float32_parts": _ordered(
        "float parts[32] = {};\n"
        "    for (int k = 0; k < K; ++k) parts[k & 31] = fmaf(TERM, parts[k & 31]);\n"
        "    for (int i = 0; i < 32; ++i) sum += parts[i];"
    ),
    "tf32_three": _defined(_TF32, CUT="rounded", SPLIT=1, PROMOTED=32),
    "fp16_three_scaled": _defined(_HALF, SPLIT=1, SCALED=1, PROMOTED=32, **_FP16),
    "tf32_one": _defined(_TF32, CUT="rounded", SPLIT=0, PROMOTED=8),
    "tf32_one_chopped": _defined(_TF32, CUT="chopped", SPLIT=0, PROMOTED=8),
    "fp16_one": _defined(_HALF, SPLIT=0, SCALED=0, PROMOTED=8, **_FP16),
    "fp16_one_scaled": _defined(_HALF, SPLIT=0, SCALED=1, PROMOTED=8, **_FP16),
    "bf16_one": _defined(_HALF, SPLIT=0, SCALED=0, PROMOTED=8, **_BF16),
    "bf16_three": _defined(_HALF, SPLIT=1, SCALED=0, PROMOTED=32, **_BF16),
}
"""Device code by name. The first words name the operands' type. `bf16_three` carries 16 bits, fewer than float32."""

EXACT = tuple(name for name in PRODUCTS if name.startswith("float32") or name in ("tf32_three", "fp16_three_scaled"))
"""The products whose error is about that of float32 or less."""
