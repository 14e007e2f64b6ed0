// The arithmetic of matrix instructions: elements to doubles, sums of products, results to registers.
#include "half_lanes.h"
#include "tensor.h"

namespace kw::tensor {
namespace {
typedef double Four __attribute__((vector_size(32), aligned(8)));

struct Fp8Table {
  double value[2][256];
  Fp8Table() {
    for (int e5m2 = 0; e5m2 < 2; e5m2++)
      for (int v = 0; v < 256; v++) value[e5m2][v] = (double)half_to_float(fp8_to_half((u8)v, e5m2 != 0));
  }
};
const Fp8Table fp8;

template <bool BF>
void unpack_halves(const u16* h, int count, double* out) {
  float f[64];
  for (int at = 0; at < count; at += 64) {
    int n = std::min(64, count - at);
    if (n % 8) {
      for (int i = 0; i < n; i++) f[i] = BF ? bf16_to_float(h[at + i]) : half_to_float(h[at + i]);
    } else {
      to_floats<BF>(h + at, f, n, false);
    }
    for (int i = 0; i < n; i++) out[at + i] = (double)f[i];
  }
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
      for (int h = 0; h < 2; h++) sum[r][h] = *reinterpret_cast<const Four*>(c + r * n + j + 4 * h);
    for (int i = 0; i < k; i++) {
      Four low = *reinterpret_cast<const Four*>(b + i * n + j), high = *reinterpret_cast<const Four*>(b + i * n + j + 4);
      for (int r = 0; r < R; r++) {
        double x = a[r * k + i];
        sum[r][0] += x * low;
        sum[r][1] += x * high;
      }
    }
    for (int r = 0; r < R; r++)
      for (int h = 0; h < 2; h++) *reinterpret_cast<Four*>(c + r * n + j + 4 * h) = sum[r][h];
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

void unpack(Element e, const void* packed, int count, double* out) {
  const u32* words = static_cast<const u32*>(packed);
  const u8* bytes = static_cast<const u8*>(packed);
  switch (e) {
    case Half:
      return unpack_halves<false>(static_cast<const u16*>(packed), count, out);
    case Bf16:
      return unpack_halves<true>(static_cast<const u16*>(packed), count, out);
    case Tf32:  // the tensor core does not see the low 13 bits
      for (int i = 0; i < count; i++) out[i] = (double)bit_cast<float>(words[i] & 0xffffe000u);
      return;
    case E4m3:
    case E5m2:
      for (int i = 0; i < count; i++) out[i] = fp8.value[e == E5m2][bytes[i]];
      return;
    case Int8:
      for (int i = 0; i < count; i++) out[i] = (i8)bytes[i];
      return;
    case Uint8:
      for (int i = 0; i < count; i++) out[i] = bytes[i];
      return;
    case Int4:
      return unpack_nibbles<true>(bytes, count, out);
    case Uint4:
      return unpack_nibbles<false>(bytes, count, out);
    case Single:
      for (int i = 0; i < count; i++) out[i] = (double)bit_cast<float>(words[i]);
      return;
    case Int32:
      for (int i = 0; i < count; i++) out[i] = (i32)words[i];
      return;
    case Double:
      std::memcpy(out, packed, (size_t)count * 8);
      return;
    case Bit:
      return;
  }
}

void transpose(int rows, int columns, const double* from, double* to) {
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < columns; j++) to[j * rows + i] = from[i * columns + j];
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
  double tile[LANES * 8];
  for (u32 r = 0; r < count; r++) {
    unpack(e, w.regs + regs[r], 8 * width, tile);
    double* to = out + (int)r % row_tiles * 8 * columns + (int)r / row_tiles * width;
    for (int i = 0; i < 8; i++) std::memcpy(to + i * columns, tile + i * width, (size_t)width * sizeof(double));
  }
}

void read_accumulators(const Warp& w, const u32* regs, Element e, int row_tiles, int columns, double* c) {
  double tile[2][LANES];
  for (int t = 0; t < columns / 8 * row_tiles; t++) {
    double* to = c + t % row_tiles * 8 * columns + t / row_tiles * 8;
    if (e == Half) {
      unpack(e, w.regs + regs[t], 64, tile[0]);  // a register is one tile
      for (int i = 0; i < 8; i++) std::memcpy(to + i * columns, tile[0] + i * 8, 8 * sizeof(double));
      continue;
    }
    for (int v = 0; v < 2; v++) unpack(e, w.regs + regs[2 * t + v], LANES, tile[v]);
    for (int i = 0; i < 8; i++)
      for (int j = 0; j < 4; j++)
        for (int v = 0; v < 2; v++) to[i * columns + 2 * j + v] = tile[v][4 * i + j];
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
      continue;
    }
    for (int v = 0; v < 2; v++) {
      if (e == Double) {
        double* d = slot<double>(w, regs[2 * t + v]);
        for (int i = 0; i < LANES; i++) d[i] = from[i / 4 * columns + i % 4 * 2 + v];
        continue;
      }
      u32* d = slot<u32>(w, regs[2 * t + v]);
      if (e == Single) {
        for (int i = 0; i < LANES; i++) {
          float f = (float)from[i / 4 * columns + i % 4 * 2 + v];
          d[i] = f != f ? 0x7fffffffu : bit_cast<u32>(f);
        }
      } else {
        for (int i = 0; i < LANES; i++) d[i] = round_result(e, from[i / 4 * columns + i % 4 * 2 + v], clamp);
      }
    }
  }
}
}  // namespace kw::tensor
