// The arithmetic of matrix instructions: elements to doubles, sums of products, results to registers.
#include "tensor_cores/tensor.h"

namespace kw::tensor {
namespace {
typedef double Four __attribute__((vector_size(32), aligned(8)));

Four& four(double* p) { return *reinterpret_cast<Four*>(p); }
const Four& four(const double* p) { return *reinterpret_cast<const Four*>(p); }

// Products of everything but f64 are exact in double, so that fusing them with the sum changes nothing.
Four multiply_add(double x, Four y, Four sum) {
#if defined(__FMA__)
  return (Four)_mm256_fmadd_pd(_mm256_set1_pd(x), (__m256d)y, (__m256d)sum);
#else
  return sum + x * y;
#endif
}

struct Fp8Table {
  double value[2][256];
  Fp8Table() {
    for (int e5m2 = 0; e5m2 < 2; e5m2++)
      for (int v = 0; v < 256; v++) value[e5m2][v] = (double)half_to_float(fp8_to_half((u8)v, e5m2 != 0));
  }
};
const Fp8Table fp8;

// Calls f for each row: where it is read and where it goes.
template <class T, class F>
void each_row(const void* packed, int rows, int per_unit, int width, double* out, int columns, F f) {
  const T* from = static_cast<const T*>(packed);
  for (int r = 0; r < rows; r++) f(from + (size_t)r * (size_t)(width / per_unit), out + (size_t)r * (size_t)columns);
}

template <bool BF>
[[gnu::always_inline]] inline void eight_halves(const u16* h, double* out) {
#if defined(__F16C__) && defined(__AVX2__)
  __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(h));
  __m256 f = BF ? _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16)) : _mm256_cvtph_ps(bits);
  _mm256_storeu_pd(out, _mm256_cvtps_pd(_mm256_castps256_ps128(f)));
  _mm256_storeu_pd(out + 4, _mm256_cvtps_pd(_mm256_extractf128_ps(f, 1)));
#else
  for (int i = 0; i < 8; i++) out[i] = BF ? bf16_to_float(h[i]) : half_to_float(h[i]);
#endif
}

template <bool BF>
void unpack_half_rows(const void* packed, int rows, int width, double* out, int columns) {
  each_row<u16>(packed, rows, 1, width, out, columns, [&](const u16* h, double* to) {
    int i = 0;
    for (; i + 8 <= width; i += 8) eight_halves<BF>(h + i, to + i);
    for (; i < width; i++) to[i] = BF ? bf16_to_float(h[i]) : half_to_float(h[i]);
  });
}

template <bool SIGNED>
void unpack_nibbles(const u8* p, int count, double* out) {
  for (int i = 0; i < count; i++) {
    int v = p[i / 2] >> (4 * (i & 1)) & 15;
    out[i] = SIGNED ? (v ^ 8) - 8 : v;
  }
}

// R rows of c, eight columns at a time, in registers.
template <int R>
void multiply_rows(int n, int k, const double* a, const double* b, double* c) {
  for (int j = 0; j < n; j += 8) {
    Four sum[R][2];
    for (int r = 0; r < R; r++)
      for (int h = 0; h < 2; h++) sum[r][h] = four(c + r * n + j + 4 * h);
    for (int i = 0; i < k; i++) {
      Four low = four(b + i * n + j), high = four(b + i * n + j + 4);
#pragma GCC unroll 4
      for (int r = 0; r < R; r++) {
        sum[r][0] = multiply_add(a[r * k + i], low, sum[r][0]);
        sum[r][1] = multiply_add(a[r * k + i], high, sum[r][1]);
      }
    }
    for (int r = 0; r < R; r++)
      for (int h = 0; h < 2; h++) four(c + r * n + j + 4 * h) = sum[r][h];
  }
}

void multiply_fused(const Shape& s, const double* a, const double* b, double* c) {
  for (int i = 0; i < s.m; i++)
    for (int k = 0; k < s.k; k++)
      for (int j = 0; j < s.n; j++) c[i * s.n + j] = std::fma(a[i * s.k + k], b[k * s.n + j], c[i * s.n + j]);
}
}  // namespace

int bits_of(Element e) {
  switch (e) {
    case Half:
    case Bf16:
      return 16;
    case E4m3:
    case E5m2:
    case Int8:
    case Uint8:
      return 8;
    case Int4:
    case Uint4:
      return 4;
    case Bit:
      return 1;
    case Double:
      return 64;
    default:
      return 32;
  }
}

void unpack_rows(Element e, const void* packed, int rows, int width, double* out, int columns) {
  auto elementwise = [&](auto zero, auto value) {
    each_row<decltype(zero)>(packed, rows, 1, width, out, columns, [&](const auto* p, double* to) {
      for (int i = 0; i < width; i++) to[i] = value(p[i]);
    });
  };
  auto nibbles = [&](auto unpack_row) {
    each_row<u8>(packed, rows, 2, width, out, columns, [&](const u8* p, double* to) { unpack_row(p, width, to); });
  };
  switch (e) {
    case Half:
      return unpack_half_rows<false>(packed, rows, width, out, columns);
    case Bf16:
      return unpack_half_rows<true>(packed, rows, width, out, columns);
    case Tf32:  // the tensor core does not see the low 13 bits
      return elementwise(u32(), [](u32 v) { return (double)bit_cast<float>(v & 0xffffe000u); });
    case E4m3:
    case E5m2:
      return elementwise(u8(), [table = fp8.value[e == E5m2]](u8 v) { return table[v]; });
    case Int8:
      return elementwise(i8(), [](i8 v) { return (double)v; });
    case Uint8:
      return elementwise(u8(), [](u8 v) { return (double)v; });
    case Int4:
      return nibbles(unpack_nibbles<true>);
    case Uint4:
      return nibbles(unpack_nibbles<false>);
    case Single:
      return elementwise(float(), [](float v) { return (double)v; });
    case Int32:
      return elementwise(i32(), [](i32 v) { return (double)v; });
    case Double:
      return elementwise(double(), [](double v) { return v; });
    case Bit:
      return;
  }
}

void unpack(Element e, const void* packed, int count, double* out) { unpack_rows(e, packed, 1, count, out, 0); }

// Blocks of four by four where there are any.
void transpose(int rows, int columns, const double* from, double* to) {
#if defined(__AVX__)
  for (int i = 0; i < rows; i += 4)
    for (int j = 0; j < columns; j += 4) {
      __m256d r[4];
      for (int k = 0; k < 4; k++) r[k] = _mm256_loadu_pd(from + (i + k) * columns + j);
      __m256d a = _mm256_unpacklo_pd(r[0], r[1]), b = _mm256_unpackhi_pd(r[0], r[1]);
      __m256d c = _mm256_unpacklo_pd(r[2], r[3]), d = _mm256_unpackhi_pd(r[2], r[3]);
      _mm256_storeu_pd(to + j * rows + i, _mm256_permute2f128_pd(a, c, 0x20));
      _mm256_storeu_pd(to + (j + 1) * rows + i, _mm256_permute2f128_pd(b, d, 0x20));
      _mm256_storeu_pd(to + (j + 2) * rows + i, _mm256_permute2f128_pd(a, c, 0x31));
      _mm256_storeu_pd(to + (j + 3) * rows + i, _mm256_permute2f128_pd(b, d, 0x31));
    }
#else
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < columns; j++) to[j * rows + i] = from[i * columns + j];
#endif
}

void multiply(const Shape& s, const double* a, const double* b, double* c, bool fused) {
  if (fused) return multiply_fused(s, a, b, c);
  for (int i = 0; i < s.m; i += 4) multiply_rows<4>(s.n, s.k, a + i * s.k, b, c + i * s.n);
}

void multiply_bits(int m, int n, int words, const u32* a, const u32* b, u32* c, bool use_xor) {
  for (int i = 0; i < m; i++)
    for (int j = 0; j < n; j++)
      for (int k = 0; k < words; k++) {
        u32 x = a[i * words + k], y = b[j * words + k];
        c[i * n + j] += (u32)__builtin_popcount(use_xor ? x ^ y : x & y);
      }
}

void read_tiles(const Warp& w, const u32* regs, u32 count, Element e, int row_tiles, int columns, double* out) {
  int width = 4 * per_register(e);
  for (u32 r = 0; r < count; r++) {
    double* to = out + (int)r % row_tiles * 8 * columns + (int)r / row_tiles * width;
    unpack_rows(e, w.regs + regs[r], 8, width, to, columns);
  }
}

namespace {
// Registers v = 0, 1 of a tile hold the even and the odd columns.
template <class T>
void read_pair(const T* even, const T* odd, int columns, double* to) {
  for (int i = 0; i < 8; i++)
    for (int j = 0; j < 4; j++) {
      to[i * columns + 2 * j] = (double)even[4 * i + j];
      to[i * columns + 2 * j + 1] = (double)odd[4 * i + j];
    }
}

void write_pair(const double* from, int columns, u32* even, u32* odd) {
  for (int i = 0; i < 8; i++) {
    alignas(32) float f[8];
    for (int j = 0; j < 8; j++) f[j] = (float)from[i * columns + j];
    for (int j = 0; j < 8; j++) f[j] = f[j] == f[j] ? f[j] : bit_cast<float>(0x7fffffffu);
    for (int j = 0; j < 4; j++) even[4 * i + j] = bit_cast<u32>(f[2 * j]), odd[4 * i + j] = bit_cast<u32>(f[2 * j + 1]);
  }
}
}  // namespace

void read_accumulators(const Warp& w, const u32* regs, Element e, int row_tiles, int columns, double* c) {
  for (int t = 0; t < columns / 8 * row_tiles; t++) {
    double* to = c + t % row_tiles * 8 * columns + t / row_tiles * 8;
    if (e == Half)
      unpack_rows(e, w.regs + regs[t], 8, 8, to, columns);  // a register is one tile
    else if (e == Single)
      read_pair(slot<float>(w, regs[2 * t]), slot<float>(w, regs[2 * t + 1]), columns, to);
    else if (e == Double)
      read_pair(slot<double>(w, regs[2 * t]), slot<double>(w, regs[2 * t + 1]), columns, to);
    else
      read_pair(slot<i32>(w, regs[2 * t]), slot<i32>(w, regs[2 * t + 1]), columns, to);
  }
}

u32 round_result(Element e, double x, Clamp clamp) {
  if (e == Int32) {
    if (clamp == Clamp::Saturate) x = std::min(std::max(x, -2147483648.0), 2147483647.0);
    return (u32)(i64)x;
  }
  if (clamp == Clamp::Saturate) {
    double most = e == Half ? 65504.0 : 0x1.fffffep127;
    x = x != x ? 0.0 : std::min(std::max(x, -most), most);
  }
  if (e == Half) return float_to_half(odd_float(x));
  float f = (float)x;
  return f != f ? 0x7fffffffu : bit_cast<u32>(f);
}

void write_accumulators(Warp& w, const u32* regs, Element e, int row_tiles, int columns, const double* c, Clamp clamp) {
  for (int t = 0; t < columns / 8 * row_tiles; t++) {
    const double* from = c + t % row_tiles * 8 * columns + t / row_tiles * 8;
    if (e == Half) {
      u16* d = slot<u16>(w, regs[t]);
      for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++) d[8 * i + j] = (u16)round_result(e, from[i * columns + j], clamp);
    } else if (e == Single) {
      write_pair(from, columns, slot<u32>(w, regs[2 * t]), slot<u32>(w, regs[2 * t + 1]));
    } else {
      for (int v = 0; v < 2; v++)
        for (int i = 0; i < LANES; i++) {
          double x = from[i / 4 * columns + i % 4 * 2 + v];
          if (e == Double)
            slot<double>(w, regs[2 * t + v])[i] = x;
          else
            slot<u32>(w, regs[2 * t + v])[i] = round_result(e, x, clamp);
        }
    }
  }
}
}  // namespace kw::tensor
