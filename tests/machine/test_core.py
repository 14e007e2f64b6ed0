"""Kernels of the usual families, compiled by NVRTC and compared with numpy, in every order of blocks and warps."""

from __future__ import annotations

import ctypes
import struct
from fractions import Fraction

import numpy as np
import pytest
from machine_launch import ORDERS, launch, program

FAMILIES = r"""
extern "C" __global__ void add4(const float4* a, const float4* b, float4* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { float4 x = a[i], y = b[i]; c[i] = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w); }
}
extern "C" __global__ void softmax(const float* x, float* y, int n) {
  __shared__ float s[32];
  const float* r = x + (long long)blockIdx.x * n;
  float m = -1e38f, t = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) m = fmaxf(m, r[i]);
  for (int o = 16; o; o >>= 1) m = fmaxf(m, __shfl_xor_sync(~0u, m, o));
  int w = threadIdx.x >> 5, l = threadIdx.x & 31;
  if (!l) s[w] = m;
  __syncthreads();
  for (int i = 0; i < blockDim.x / 32; i++) m = fmaxf(m, s[i]);
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) t += expf(r[i] - m);
  for (int o = 16; o; o >>= 1) t += __shfl_xor_sync(~0u, t, o);
  if (!l) s[w] = t;
  __syncthreads();
  t = 0;
  for (int i = 0; i < blockDim.x / 32; i++) t += s[i];
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[(long long)blockIdx.x * n + i] = expf(r[i] - m) / t;
}
extern "C" __global__ void matmul(const float* a, const float* b, float* c, int M, int N, int K) {
  __shared__ float A[16][16], B[16][16];
  int r = blockIdx.y * 16 + threadIdx.y, q = blockIdx.x * 16 + threadIdx.x;
  float s = 0;
  for (int k = 0; k < K; k += 16) {
    A[threadIdx.y][threadIdx.x] = r < M && k + threadIdx.x < K ? a[r * K + k + threadIdx.x] : 0;
    B[threadIdx.y][threadIdx.x] = k + threadIdx.y < K && q < N ? b[(k + threadIdx.y) * N + q] : 0;
    __syncthreads();
    for (int j = 0; j < 16; j++) s += A[threadIdx.y][j] * B[j][threadIdx.x];
    __syncthreads();
  }
  if (r < M && q < N) c[r * N + q] = s;
}
extern "C" __global__ void reduce(const float* x, float* y, int n) {
  extern __shared__ float s[];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  s[threadIdx.x] = i < n ? x[i] : 0;
  __syncthreads();
  for (int o = blockDim.x / 2; o; o >>= 1) {
    if (threadIdx.x < o) s[threadIdx.x] += s[threadIdx.x + o];
    __syncthreads();
  }
  if (!threadIdx.x) atomicAdd(y, s[0]);
}
extern "C" __global__ void histogram(const int* x, int* h, int n) {
  __shared__ int s[64];
  for (int i = threadIdx.x; i < 64; i += blockDim.x) s[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&s[x[i] & 63], 1);
  __syncthreads();
  for (int i = threadIdx.x; i < 64; i += blockDim.x) atomicAdd(&h[i], s[i]);
}
extern "C" __global__ void transpose(const float* x, float* y, int R, int C) {
  __shared__ float t[32][33];
  int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.x;
  for (int j = threadIdx.y; j < 32; j += 8)
    if (blockIdx.y * 32 + j < R && c < C) t[j][threadIdx.x] = x[(blockIdx.y * 32 + j) * C + c];
  __syncthreads();
  for (int j = threadIdx.y; j < 32; j += 8)
    if (r < R && blockIdx.x * 32 + j < C) y[(blockIdx.x * 32 + j) * R + r] = t[threadIdx.x][j];
}
extern "C" __global__ void scan(const float* x, float* y, int n) {
  extern __shared__ float s[];
  int t = threadIdx.x;
  float carry = 0;
  for (int b = 0; b < n; b += blockDim.x) {
    s[t] = b + t < n ? x[blockIdx.x * n + b + t] : 0;
    __syncthreads();
    for (int o = 1; o < blockDim.x; o <<= 1) {
      float v = t >= o ? s[t - o] : 0;
      __syncthreads();
      s[t] += v;
      __syncthreads();
    }
    if (b + t < n) y[blockIdx.x * n + b + t] = s[t] + carry;
    carry += s[blockDim.x - 1];
    __syncthreads();
  }
}
extern "C" __global__ void conv(const float* x, const float* w, float* y, int C, int H, int O) {
  int at = blockIdx.x * blockDim.x + threadIdx.x, P = H - 2;
  if (at >= O * P * P) return;
  int o = at / (P * P), r = at / P % P, c = at % P;
  float s = 0;
  for (int k = 0; k < C; k++)
    for (int i = 0; i < 3; i++)
      for (int j = 0; j < 3; j++) s += x[(k * H + r + i) * H + c + j] * w[((o * C + k) * 3 + i) * 3 + j];
  y[at] = s;
}
"""


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def floats(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape, dtype=np.float32)


@pytest.mark.parametrize("order", ORDERS)
def test_families(order: str, rng: np.random.Generator) -> None:
    loaded = program(FAMILIES)
    a, b = floats(rng, 4004), floats(rng, 4004)
    c = np.full_like(a, np.nan)
    reports = [launch(loaded, "add4", 8, 128, [a, b, c, 1001], order=order)]
    assert np.array_equal(c, a + b)

    x = floats(rng, 7, 999)
    y = np.zeros_like(x)
    reports.append(launch(loaded, "softmax", 7, 128, [x, y, 999], order=order))
    e = np.exp(x - x.max(1, keepdims=True).astype(np.float64))
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-5)

    a, b = floats(rng, 50, 37), floats(rng, 37, 61)
    c = np.zeros((50, 61), np.float32)
    reports.append(launch(loaded, "matmul", (4, 4), (16, 16), [a, b, c, 50, 61, 37], order=order))
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)

    x, total = floats(rng, 5003), np.zeros(1, np.float32)
    reports.append(launch(loaded, "reduce", 20, 256, [x, total, 5003], 1024, order=order))
    assert abs(total[0] - x.sum(dtype=np.float64)) < 1e-3

    values, counts = rng.integers(0, 64, 10_000, dtype=np.int32), np.zeros(64, np.int32)
    reports.append(launch(loaded, "histogram", 6, 96, [values, counts, 10_000], order=order))
    assert np.array_equal(counts, np.bincount(values, minlength=64))

    x = floats(rng, 70, 45)
    y = np.zeros((45, 70), np.float32)
    reports.append(launch(loaded, "transpose", (2, 3), (32, 8), [x, y, 70, 45], order=order))
    assert np.array_equal(y, x.T)

    x = floats(rng, 3, 500)
    y = np.zeros_like(x)
    reports.append(launch(loaded, "scan", 3, 128, [x, y, 500], 512, order=order))
    np.testing.assert_allclose(y, np.cumsum(x, 1, dtype=np.float64), atol=1e-4)

    image, weight, out = floats(rng, 3, 9, 9), floats(rng, 5, 3, 3, 3), np.zeros((5, 7, 7), np.float32)
    reports.append(launch(loaded, "conv", 2, 128, [image, weight, out, 3, 9, 5], order=order))
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3), (1, 2))
    np.testing.assert_allclose(out, np.einsum("krcij,okij->orc", windows, weight), rtol=1e-4, atol=1e-4)
    assert not [w for report in reports for w in report.warnings]


def test_report_counts_what_ran(rng: np.random.Generator) -> None:
    a, b, c = floats(rng, 1024), floats(rng, 1024), np.zeros(1024, np.float32)
    report = launch(program(FAMILIES), "add4", 2, 128, [a, b, c, 200])
    assert report.read == (3200, 3200, 0) and report.written == (0, 0, 3200)
    counters = report.counters
    assert counters["global_load_bytes"] == 6400 and counters["global_store_bytes"] == 3200
    assert counters["global_loads"] == 400 and counters["instructions_float"] == 800
    assert sum(v for name, v in counters.items() if name.startswith("instructions_")) == report.instructions
    x, y = floats(rng, 256), np.zeros(1, np.float32)
    counters = launch(program(FAMILIES), "reduce", 1, 256, [x, y, 256], 1024).counters
    assert counters["barriers"] == 256 * 9 and counters["atomics"] == 1
    assert counters["shared_stores"] == 256 + 255 and counters["divergent_branches"] > 0


def test_half_and_bfloat16_round_exactly(rng: np.random.Generator) -> None:
    source = r"""#include <cuda_fp16.h>
    #include <cuda_bf16.h>
    extern "C" __global__ void halves(const half2* a, const half2* b, half2* y) {
      half2* o = y + threadIdx.x * 6;
      half2 p = a[threadIdx.x], q = b[threadIdx.x];
      o[0] = __hfma2(p, q, p); o[1] = __hadd2(p, q); o[2] = __hmul2(p, q); o[3] = __hmax2(p, q); o[4] = __hsub2(p, q);
      o[5] = __hfma2_relu(p, q, q);
    }
    extern "C" __global__ void brains(const __nv_bfloat16* a, const __nv_bfloat16* b, float* y) {
      __nv_bfloat16 p = a[threadIdx.x], q = b[threadIdx.x];
      float* o = y + threadIdx.x * 4;
      o[0] = __bfloat162float(__hfma(p, q, p)); o[1] = __bfloat162float(__hadd(p, q));
      o[2] = __bfloat162float(__hmul(p, q)); o[3] = __bfloat162float(__float2bfloat16(__bfloat162float(p) * 1.3f));
    }"""
    loaded = program(source)
    a = (rng.standard_normal(256) * 10.0 ** rng.integers(-6, 3, 256)).astype(np.float16)
    b = rng.standard_normal(256).astype(np.float16)
    y = np.zeros((128, 6, 2), np.float16)
    launch(loaded, "halves", 1, 128, [a, b, y])
    p, q = a.reshape(128, 2).astype(np.float64), b.reshape(128, 2).astype(np.float64)
    expected = [p * q + p, p + q, p * q, np.maximum(p, q), p - q, np.maximum(p * q + q, 0)]
    assert np.array_equal(y, np.stack(expected, 1).astype(np.float16))

    def brain(v: np.ndarray) -> np.ndarray:  # nearest even, of numbers far from the ends of the range
        bits = v.astype(np.float32).view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)

    def widen(v: np.ndarray) -> np.ndarray:
        return (v.astype(np.uint32) << 16).view(np.float32)

    p16, q16 = brain(rng.standard_normal(64)), brain(rng.standard_normal(64))
    out = np.zeros((64, 4), np.float32)
    launch(loaded, "brains", 1, 64, [p16, q16, out])
    p, q = widen(p16).astype(np.float64), widen(q16).astype(np.float64)
    sums = np.stack([p * q + p, p + q, p * q], 1)
    assert np.array_equal(out[:, :3], widen(brain(sums)))
    assert np.array_equal(out[:, 3], widen(brain(widen(p16) * np.float32(1.3))))


def test_directed_rounding(rng: np.random.Generator) -> None:
    source = r"""extern "C" __global__ void k(const float* a, const float* b, float* y) {
      float p = a[threadIdx.x], q = b[threadIdx.x], *o = y + threadIdx.x * 5;
      o[0] = __fadd_ru(p, q); o[1] = __fadd_rd(p, q); o[2] = __fmul_ru(p, q); o[3] = __fdiv_rd(p, q);
      o[4] = __fmaf_ru(p, q, p);
    }"""
    a, b, y = floats(rng, 64), floats(rng, 64), np.zeros((64, 5), np.float32)
    launch(program(source), "k", 1, 64, [a, b, y])
    for p, q, row in zip(a, b, y, strict=True):
        x, z = Fraction(float(p)), Fraction(float(q))
        for exact, value, up in zip([x + z, x + z, x * z, x / z, x * z + x], row, [1, 0, 1, 0, 1], strict=True):
            here, inner = Fraction(float(value)), np.nextafter(value, np.float32(-np.inf if up else np.inf))
            assert here >= exact > Fraction(float(inner)) if up else here <= exact < Fraction(float(inner))


def test_integers_of_64_bits(rng: np.random.Generator) -> None:
    source = r"""typedef long long L; typedef unsigned long long U;
    extern "C" __global__ void k(const L* a, const L* b, L* y) {
      L p = a[threadIdx.x], q = b[threadIdx.x], *o = y + threadIdx.x * 7;
      o[0] = p / q; o[1] = p % q; o[2] = __clzll(p); o[3] = __umul64hi(p, q); o[4] = p >> (q & 63); o[5] = __popcll(p);
      o[6] = (U)p / (U)q;
    }"""
    low, high, wrap = -(2**63), 2**63 - 1, 2**64
    a, b = rng.integers(low, high, 64), rng.integers(low, high, 64)
    b[::2] >>= 40
    a[::3] >>= 30
    b[b == 0] = 1
    y = np.zeros((64, 7), np.int64)
    launch(program(source), "k", 1, 64, [a, b, y])
    for p, q, row in zip(a.tolist(), b.tolist(), y.tolist(), strict=True):
        quotient = abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1)
        u, v = p % wrap, q % wrap
        expected = [quotient, p - q * quotient, 64 - u.bit_length(), u * v >> 64, p >> (q & 63), u.bit_count(), u // v]
        assert [value % wrap for value in row] == [value % wrap for value in expected]


def test_atomics() -> None:
    source = r"""typedef unsigned long long U;
    extern "C" __global__ void k(int* i, unsigned* u, U* q, float* f, double* d, int* old) {
      int t = blockIdx.x * blockDim.x + threadIdx.x, v = t * 7 % 101 - 50, o;
      atomicAdd(i, t); atomicSub(i + 1, t); atomicMax(i + 2, v); atomicMin(i + 3, v);
      atomicAnd(u, ~(1u << (t & 15))); atomicOr(u + 1, 1u << (t & 31)); atomicXor(u + 2, t); atomicInc(u + 3, 99);
      atomicAdd(q, (U)t << 20); atomicMax(q + 1, (U)t << 33);
      atomicAdd(f, 0.5f); atomicAdd(d, 0.25);
      old[t] = atomicExch(i + 4, t);
      do o = i[5]; while (atomicCAS(i + 5, o, o + 1) != o);
    }"""
    n = 512
    t = np.arange(n)
    i, q, old = np.zeros(6, np.int32), np.zeros(2, np.uint64), np.zeros(n, np.int32)
    u = np.array([2**32 - 1, 0, 0, 0], np.uint32)
    f, d = np.zeros(1, np.float32), np.zeros(1)
    launch(program(source), "k", 4, 128, [i, u, q, f, d, old])
    v = t * 7 % 101 - 50
    assert i.tolist() == [t.sum(), -t.sum(), max(0, v.max()), min(0, v.min()), i[4], n]
    assert u.tolist() == [0xFFFF0000, 0xFFFFFFFF, np.bitwise_xor.reduce(t), n % 100]
    assert q.tolist() == [int(t.sum()) << 20, 511 << 33] and f[0] == n / 2 and d[0] == n / 4
    assert sorted([*old.tolist(), int(i[4])]) == sorted([0, *range(n)])


def test_warp_instructions() -> None:
    source = r"""extern "C" __global__ void k(int* y) {
      int l = threadIdx.x, *o = y + l * 9;
      o[0] = __ballot_sync(~0u, l % 3 == 0); o[1] = __match_any_sync(~0u, l % 5); o[2] = __reduce_max_sync(~0u, l ^ 5);
      o[3] = __shfl_sync(~0u, l * 10, 3, 8); o[4] = __shfl_up_sync(~0u, l, 2, 16); o[5] = __shfl_down_sync(~0u, l, 3);
      if (l & 1) o[6] = __ballot_sync(0xaaaaaaaa, l > 7); else o[6] = __ballot_sync(0x55555555, l > 10);
      o[7] = __syncthreads_count(l % 7 == 0); o[8] = __syncthreads_or(l == 63) + 2 * __syncthreads_and(l < 5);
    }"""
    y = np.zeros((64, 9), np.int32)
    launch(program(source), "k", 1, 64, [y])
    for t, row in enumerate(y.tolist()):
        warp = range(t // 32 * 32, t // 32 * 32 + 32)

        def mask(chosen: list[int], first: int = warp[0]) -> int:
            return int(np.uint32(sum(1 << (x - first) for x in chosen)).view(np.int32))

        half = [x for x in warp if x % 2 == t % 2 and x > (7 if t & 1 else 10)]
        up = t - 2 if t % 16 >= 2 else t
        down = t + 3 if t % 32 + 3 < 32 else t
        expected = [mask([x for x in warp if x % 3 == 0]), mask([x for x in warp if x % 5 == t % 5])]
        expected += [max(x ^ 5 for x in warp), (t // 8 * 8 + 3) * 10, up, down, mask(half), 10, 1]
        assert row == expected


def test_calls_constants_structs_and_local_arrays(rng: np.random.Generator) -> None:
    source = r"""
    __constant__ float scale[16];
    __device__ int counter;
    struct P { float a; int b[3]; double c; };
    template <class F> __device__ float apply(F f, float v) { return f(v); }
    __noinline__ __device__ float deep(float x, int n, float* p) { p[n & 3] += x; return n > 2 ? x * p[0] : x + p[1]; }
    extern "C" __global__ void k(const float* x, float* y, P p, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i >= n) return;
      float a = p.a, loc[4] = {1, 2, 3, 4};
      float v = apply([=](float q) { return q * a + (float)p.c; }, x[i]) + scale[i & 15] + p.b[i % 3];
      v += deep(x[i], i & 7, loc) + loc[i & 3];
      atomicAdd(&counter, 1);
      if (i == 3) printf("%f\n", v);
      y[i] = v;
    }"""
    loaded, n = program(source), 500
    x, y, scale = floats(rng, n), np.zeros(n, np.float32), np.arange(16, dtype=np.float32)
    address, size = loaded.global_symbol("scale")
    assert size == 64
    ctypes.memmove(address, scale.ctypes.data, size)
    launch(loaded, "k", 2, 256, [x, y, struct.pack("<fiiid", 1.25, 10, 20, 30, 0.5), n])
    for i in range(n):
        loc, m = [1.0, 2.0, 3.0, 4.0], i & 7
        loc[m & 3] += float(x[i])
        value = x[i] * 1.25 + 0.5 + scale[i & 15] + [10, 20, 30][i % 3]
        value += (x[i] * loc[0] if m > 2 else x[i] + loc[1]) + loc[i & 3]
        assert abs(y[i] - value) < 1e-4 * max(1, abs(value))
    address, _ = loaded.global_symbol("counter")
    assert ctypes.c_int.from_address(address).value == n


@pytest.mark.parametrize("order", ORDERS)
def test_waits_inside_a_block_end(order: str) -> None:
    source = r"""
    extern "C" __global__ void lock(int* lock, int* c) {
      while (atomicCAS(lock, 0, 1) != 0);
      *(volatile int*)c += 1;
      __threadfence();
      atomicExch(lock, 0);
    }
    extern "C" __global__ void flag(int* c) {
      __shared__ volatile int s;
      if (threadIdx.x == 0) s = 0;
      __syncthreads();
      if (threadIdx.x == 40) { while (s == 0); c[0] = 5; }
      if (threadIdx.x == 100) s = 1;
    }
    extern "C" __global__ void named(int* y) {
      __shared__ int s[64];
      int w = threadIdx.x / 32;
      if (w < 2) {
        s[threadIdx.x] = threadIdx.x;
        asm volatile("bar.sync 1, 64;");
        y[threadIdx.x] = s[63 - threadIdx.x];
      } else {
        asm volatile("bar.sync 2, 64;");
        y[threadIdx.x] = -1;
      }
      if (w == 0) asm volatile("bar.arrive 3, 128;"); else asm volatile("bar.sync 3, 128;");
    }"""
    loaded = program(source)
    count = np.zeros(1, np.int32)
    launch(loaded, "lock", 2, 64, [np.zeros(1, np.int32), count], order=order, budget=50_000_000)
    assert count[0] == 128
    launch(loaded, "flag", 1, 128, [count], order=order, budget=50_000_000)
    assert count[0] == 5
    y = np.zeros(128, np.int32)
    assert not launch(loaded, "named", 1, 128, [y], order=order).warnings
    assert np.array_equal(y, np.r_[np.arange(63, -1, -1), -np.ones(64)])


@pytest.mark.parametrize("shape", [(16, 16, 16), (32, 8, 16), (8, 32, 16)])
def test_wmma(shape: tuple[int, int, int], rng: np.random.Generator) -> None:
    m, n, k = shape
    source = f"""#include <mma.h>
    #include <cuda_fp16.h>
    using namespace nvcuda;
    extern "C" __global__ void k(const half* a, const half* b, float* c) {{
      wmma::fragment<wmma::matrix_a, {m}, {n}, {k}, half, wmma::row_major> fa;
      wmma::fragment<wmma::matrix_b, {m}, {n}, {k}, half, wmma::col_major> fb;
      wmma::fragment<wmma::accumulator, {m}, {n}, {k}, float> fc;
      wmma::fill_fragment(fc, 0.5f);
      wmma::load_matrix_sync(fa, a, {k});
      wmma::load_matrix_sync(fb, b, {k});
      wmma::mma_sync(fc, fa, fb, fc);
      for (int i = 0; i < fc.num_elements; i++) fc.x[i] *= 2.f;
      wmma::store_matrix_sync(c, fc, {n}, wmma::mem_row_major);
    }}"""
    a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((n, k)).astype(np.float16)
    c = np.zeros((m, n), np.float32)
    report = launch(program(source), "k", 1, 32, [a, b, c])
    np.testing.assert_allclose(c, 2 * (a.astype(np.float64) @ b.T.astype(np.float64) + 0.5), atol=1e-4)
    assert report.counters["mma"] == 1


def test_mma_and_ldmatrix_in_inline_assembly(rng: np.random.Generator) -> None:
    source = r"""#include <cuda_fp16.h>
    extern "C" __global__ void k(const half* a, const half* b, float* c) {
      __shared__ __align__(16) half A[256], B[128];
      int l = threadIdx.x;
      for (int i = l; i < 256; i += 32) A[i] = a[i];
      for (int i = l; i < 128; i += 32) B[i] = b[i];
      __syncwarp();
      unsigned r[4], s[2], pa = __cvta_generic_to_shared(A + (l % 16) * 16 + l / 16 * 8);
      unsigned pb = __cvta_generic_to_shared(B + (l % 16) * 8);
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                   : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(pa));
      asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(s[0]), "=r"(s[1]) : "r"(pb));
      float d[4] = {0, 0, 0, 0};
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                   "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                   : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                   : "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "r"(s[0]), "r"(s[1]));
      float* o = c + (l >> 2) * 8 + (l & 3) * 2;
      o[0] = d[0]; o[1] = d[1]; o[64] = d[2]; o[65] = d[3];
    }"""
    a, b = rng.standard_normal((16, 16)).astype(np.float16), rng.standard_normal((16, 8)).astype(np.float16)
    c = np.zeros((16, 8), np.float32)
    assert not launch(program(source), "k", 1, 32, [a, b, c]).warnings
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), atol=1e-4)


def test_asynchronous_copies(rng: np.random.Generator) -> None:
    source = r"""#include <cuda_pipeline.h>
    extern "C" __global__ void k(const float4* x, float4* y) {
      __shared__ float4 s[128];
      __pipeline_memcpy_async(&s[threadIdx.x], &x[blockIdx.x * 128 + threadIdx.x], 16);
      __pipeline_commit();
      __pipeline_wait_prior(0);
      __syncthreads();
      y[blockIdx.x * 128 + threadIdx.x] = s[127 - threadIdx.x];
    }"""
    x = floats(rng, 4, 128, 4)
    y = np.zeros_like(x)
    assert not launch(program(source), "k", 4, 128, [x, y]).warnings
    assert np.array_equal(y, x[:, ::-1])


def test_flushing_subnormals_is_honoured() -> None:
    source = r"""extern "C" __global__ void k(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x] * 0.5f; }"""
    x, y = np.array([1e-38, -1e-39, 1.0, 3e-38], np.float32), np.zeros(4, np.float32)
    launch(program(source), "k", 1, 4, [x, y])
    assert np.array_equal(y, x * np.float32(0.5))
    launch(program(source, ("--ftz=true",)), "k", 1, 4, [x, y])
    assert y.tolist() == [0.0, 0.0, 0.5, float(np.float32(1.5e-38))]
    assert np.signbit(y[1])
