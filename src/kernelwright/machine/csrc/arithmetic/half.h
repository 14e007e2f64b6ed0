// Half-precision numbers: conversions that round once, in every mode.
#pragma once
#include <cfenv>

#include "launch/machine.h"
#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace kw {
inline float flush(float x) {  // subnormals become a zero of the same sign
  u32 u = bit_cast<u32>(x);
  return bit_cast<float>(u & 0x7f800000u ? u : u & 0x80000000u);
}
inline bool is_nan(float x) { return x != x; }

inline float half_to_float(u16 h) {
#if defined(__F16C__)
  return _cvtsh_ss(h);
#else
  u32 sign = (u32)(h & 0x8000) << 16, e = h >> 10 & 31, f = h & 0x3ff;
  if (e == 31) return bit_cast<float>(sign | 0x7f800000u | f << 13);
  if (e) return bit_cast<float>(sign | (e + 112) << 23 | f << 13);
  float v = (float)f * 0x1p-24f;
  return sign ? -v : v;
#endif
}

// A double to a small binary format of `mant` stored bits and exponents down to `emin`, in PTX rounding mode:
// 0 nearest even, 1 toward zero, 2 down, 3 up, 4 nearest away. Gives the magnitude's significand as an exact double.
inline double round_to(double x, int mant, int emin, int mode) {
  if (x == 0 || std::isnan(x) || std::isinf(x)) return x;
  int e;
  std::frexp(x, &e);
  e = std::max(e - 1, emin) - mant;
  double s = std::ldexp(std::fabs(x), -e), f = std::floor(s), r = s - f;
  bool up = mode == 0   ? (r > 0.5 || (r == 0.5 && std::fmod(f, 2) == 1))
            : mode == 2 ? (r > 0 && x < 0)
            : mode == 3 ? (r > 0 && x > 0)
            : mode == 4 ? r >= 0.5
                        : false;
  return std::copysign(std::ldexp(f + (up ? 1 : 0), e), x);
}

inline u16 half_bits(double exact) {  // of a double that a half holds exactly, or overflow
  float f = (float)exact;
  if (std::isnan(exact)) return 0x7fff;
  u32 u = bit_cast<u32>(f);
  u16 sign = (u16)(u >> 16 & 0x8000);
  double a = std::fabs(exact);
  if (a >= 65536.0) return (u16)(sign | 0x7c00);
  if (a < 0x1p-14) return (u16)(sign | (u16)(a * 0x1p24));
  return (u16)(sign | (((u >> 23 & 0xff) - 112) << 10) | (u >> 13 & 0x3ff));
}

inline u16 double_to_half(double x, int mode) {
  if (std::isnan(x)) return 0x7fff;
  double r = round_to(x, 10, -14, mode);
  // Overflow: nearest and outward modes give infinity, inward ones the largest number.
  if (std::fabs(r) > 65504.0 && !std::isinf(x) && (mode == 1 || (mode == 2 && x > 0) || (mode == 3 && x < 0)))
    r = std::copysign(65504.0, x);
  return half_bits(r);
}

inline u16 float_to_half(float x) {
#if defined(__F16C__)
  return is_nan(x) ? (u16)0x7fff : (u16)_cvtss_sh(x, 0);
#else
  return double_to_half(x, 0);
#endif
}

inline float bf16_to_float(u16 h) { return bit_cast<float>((u32)h << 16); }

inline u16 float_to_bf16(float x) {
  u32 u = bit_cast<u32>(x);
  return is_nan(x) ? (u16)0x7fff : (u16)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

inline u16 double_to_bf16(double x, int mode) {
  if (std::isnan(x)) return 0x7fff;
  double r = round_to(x, 7, -126, mode);
  constexpr double most = 0x1.fep127;
  if (std::fabs(r) > most && !std::isinf(x)) {
    bool inward = mode == 1 || (mode == 2 && x > 0) || (mode == 3 && x < 0);
    r = std::copysign(inward ? most : INFINITY, x);
  }
  return (u16)(bit_cast<u32>((float)r) >> 16);
}

inline u32 float_to_tf32(float x, int mode) {
  if (is_nan(x)) return 0x7fffe000;
  if (std::isinf(x)) return bit_cast<u32>(x);
  double r = round_to((double)x, 10, -126, mode);
  return bit_cast<u32>((float)r);
}

// fp8: e4m3 (no infinity, NaN 0x7f, largest 448) and e5m2 (largest 57344), nearest even, saturating to the largest.
inline u8 float_to_fp8(float x, bool e5m2) {
  if (is_nan(x)) return 0x7f;
  double most = e5m2 ? 57344.0 : 448.0;
  int mant = e5m2 ? 2 : 3, emin = e5m2 ? -14 : -6;
  u8 sign = std::signbit(x) ? 0x80 : 0;
  double r = std::min(std::fabs(round_to(std::min(std::max((double)x, -1e6), 1e6), mant, emin, 0)), most);
  if (r == 0) return sign;
  int e;
  std::frexp(r, &e);
  e = std::max(e - 1, emin);
  u32 f = (u32)std::ldexp(r, mant - e);  // includes the hidden bit when normal
  u32 normal = f >> mant;
  return (u8)(sign | (normal ? ((u32)(e - emin + 1) << mant) | (f & ((1u << mant) - 1)) : f));
}

inline u16 fp8_to_half(u8 v, bool e5m2) {
  if (e5m2) return (u8)(v << 1) > 0xf8 ? 0x7fff : (u16)((u32)v << 8);
  u32 e = v >> 3 & 15, f = v & 7;
  if (e == 15 && f == 7) return 0x7fff;
  float m = e ? std::ldexp(1.0f + (float)f / 8, (int)e - 7) : std::ldexp((float)f / 8, -6);
  return float_to_half(v & 0x80 ? -m : m);
}

// a * b + c rounded to odd in single precision, ready for one more rounding to half. Exact for half inputs.
inline float fma_odd(float a, float b, float c) {
  float p = a * b, s = p + c, z = s - p;
  float err = (p - (s - z)) + (c - z);
  i32 u = bit_cast<i32>(s);
  // An inexact even result moves one step towards the error, which makes it odd.
  i32 step = ((err > 0) == (s > 0)) ? 1 : -1;
  bool fix = err != 0 && !(u & 1) && err == err && s - s == 0;
  return bit_cast<float>(u + (fix ? step : 0));
}
inline double fma_odd(double a, double b, double c) {
  double p = a * b, s = p + c, z = s - p;
  double err = (p - (s - z)) + (c - z);
  i64 u = bit_cast<i64>(s);
  i64 step = ((err > 0) == (s > 0)) ? 1 : -1;
  bool fix = err != 0 && !(u & 1) && err == err && s - s == 0;
  return bit_cast<double>(u + (fix ? step : 0));
}
// A double to single precision, rounded to odd.
inline float odd_float(double x) {
  float f = (float)x;
  if ((double)f == x || x != x || f - f != 0) return f;
  i32 u = bit_cast<i32>(f);
  if (u & 1) return f;
  bool grow = std::fabs(x) > std::fabs((double)f);
  return bit_cast<float>(u + (grow ? 1 : -1));
}
}  // namespace kw
