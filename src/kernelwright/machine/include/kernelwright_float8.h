// torch's 8-bit floating-point numbers (c10/util/Float8_*.h): they widen to float, and are rounded from float to the
// nearest, ties to even. What is too large becomes the largest number of e4m3fn, which has no infinity (older versions of
// torch make it NaN), and infinite in e5m2.
//
// Compiled twice, as kernelwright_accessor.h is. On the device it is included only where a text names one of them.
#pragma once

#ifdef __CUDACC__
#define KW_FLOAT8 __host__ __device__ inline
#define KW_FLOAT8_COPY memcpy
#else
#define KW_FLOAT8 inline
#define KW_FLOAT8_COPY __builtin_memcpy
#endif

namespace c10 {
namespace kw_float8 {
KW_FLOAT8 unsigned bits_of(float value) {
  unsigned bits;
  KW_FLOAT8_COPY(&bits, &value, 4);
  return bits;
}
KW_FLOAT8 float of_bits(unsigned bits) {
  float value;
  KW_FLOAT8_COPY(&value, &bits, 4);
  return value;
}
// MANTISSA: bits of the fraction; BIAS: of the exponent; FINITE: all exponents have numbers.
template <int MANTISSA, int BIAS, bool FINITE>
KW_FLOAT8 float widened(unsigned char x) {
  unsigned sign = unsigned(x & 0x80) << 24, magnitude = x & 0x7f, fraction = x & ((1u << MANTISSA) - 1);
  int exponent = int(magnitude >> MANTISSA);
  constexpr int last = (0x7f >> MANTISSA);
  bool special = FINITE ? magnitude == 0x7f : exponent == last;
  if (special) return of_bits(sign | (FINITE || fraction ? 0x7fc00000u : 0x7f800000u));
  unsigned digits = exponent ? fraction | (1u << MANTISSA) : fraction;
  float scale = of_bits(unsigned((exponent ? exponent : 1) - BIAS - MANTISSA + 127) << 23);
  return of_bits(sign | bits_of(float(digits) * scale));
}
template <int MANTISSA, int BIAS, bool FINITE>
KW_FLOAT8 unsigned char narrowed(float value) {
  constexpr int shift = 23 - MANTISSA;
  unsigned bits = bits_of(value), sign = (bits >> 24) & 0x80, found;
  bits &= 0x7fffffffu;
  constexpr unsigned largest = FINITE ? 0x7e : (0x7fu >> MANTISSA << MANTISSA) - 1, infinite = FINITE ? largest : largest + 1;
  if (bits > 0x7f800000u) return (unsigned char)(sign | 0x7f);
  if (bits >= 0x7f800000u) return (unsigned char)(sign | infinite);
  if (bits < unsigned(1 - BIAS + 127) << 23) {  // below the normal numbers: the sum's last digit is the result's
    float anchor = of_bits(unsigned(1 - BIAS + 127 + shift) << 23);
    found = bits_of(of_bits(bits) + anchor) - bits_of(anchor);
  } else {
    unsigned odd = (bits >> shift) & 1;
    found = (bits - (unsigned(127 - BIAS) << 23) + ((1u << (shift - 1)) - 1) + odd) >> shift;
  }
  return (unsigned char)(sign | (found > largest ? infinite : found));
}
}  // namespace kw_float8

#define KW_FLOAT8_TYPE(NAME, ...)                                                                \
  struct alignas(1) NAME {                                                                       \
    unsigned char x;                                                                             \
    struct from_bits_t {};                                                                       \
    KW_FLOAT8 static constexpr from_bits_t from_bits() { return from_bits_t(); }                 \
    NAME() = default;                                                                            \
    KW_FLOAT8 constexpr NAME(unsigned char bits, from_bits_t) : x(bits) {}                       \
    KW_FLOAT8 NAME(float value) : x(kw_float8::narrowed<__VA_ARGS__>(value)) {}                  \
    KW_FLOAT8 operator float() const { return kw_float8::widened<__VA_ARGS__>(x); }              \
    KW_FLOAT8 bool isnan() const { float value = *this; return value != value; }                 \
  };                                                                                             \
  KW_FLOAT8 NAME& operator+=(NAME& a, NAME b) { return a = NAME(float(a) + float(b)); }          \
  KW_FLOAT8 NAME& operator-=(NAME& a, NAME b) { return a = NAME(float(a) - float(b)); }          \
  KW_FLOAT8 NAME& operator*=(NAME& a, NAME b) { return a = NAME(float(a) * float(b)); }          \
  KW_FLOAT8 NAME& operator/=(NAME& a, NAME b) { return a = NAME(float(a) / float(b)); }
KW_FLOAT8_TYPE(Float8_e4m3fn, 3, 7, true)
KW_FLOAT8_TYPE(Float8_e5m2, 2, 15, false)
#undef KW_FLOAT8_TYPE
#undef KW_FLOAT8_COPY
#undef KW_FLOAT8
}  // namespace c10

namespace at {
using c10::Float8_e4m3fn;
using c10::Float8_e5m2;
}  // namespace at
namespace torch {
using c10::Float8_e4m3fn;
using c10::Float8_e5m2;
}  // namespace torch
