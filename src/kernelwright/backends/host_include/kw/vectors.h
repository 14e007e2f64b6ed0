// CUDA's built-in vector types and dim3 for host code, laid out as on the device.
#pragma once

#include "value.h"

#define KW_VECTOR(base, name, align1, align2, align4)                                             \
  struct name##1 { base x; };                                                                     \
  struct alignas(align2) name##2 { base x, y; };                                                  \
  struct name##3 { base x, y, z; };                                                               \
  struct alignas(align4) name##4 { base x, y, z, w; };                                            \
  inline name##1 make_##name##1(base x) { return {x}; }                                           \
  inline name##2 make_##name##2(base x, base y) { return {x, y}; }                                \
  inline name##3 make_##name##3(base x, base y, base z) { return {x, y, z}; }                     \
  inline name##4 make_##name##4(base x, base y, base z, base w) { return {x, y, z, w}; }
typedef unsigned char kw_uchar;
typedef unsigned short kw_ushort;
typedef unsigned int kw_uint;
typedef unsigned long kw_ulong;
typedef long long kw_longlong;
typedef unsigned long long kw_ulonglong;
KW_VECTOR(signed char, char, 1, 2, 4)
KW_VECTOR(kw_uchar, uchar, 1, 2, 4)
KW_VECTOR(short, short, 2, 4, 8)
KW_VECTOR(kw_ushort, ushort, 2, 4, 8)
KW_VECTOR(int, int, 4, 8, 16)
KW_VECTOR(kw_uint, uint, 4, 8, 16)
KW_VECTOR(long, long, 8, 16, 16)
KW_VECTOR(kw_ulong, ulong, 8, 16, 16)
KW_VECTOR(kw_longlong, longlong, 8, 16, 16)
KW_VECTOR(kw_ulonglong, ulonglong, 8, 16, 16)
KW_VECTOR(float, float, 4, 8, 16)
KW_VECTOR(double, double, 8, 16, 16)
#undef KW_VECTOR

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned vx = 1, unsigned vy = 1, unsigned vz = 1) : x(vx), y(vy), z(vz) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return uint3{x, y, z}; }
};

// Annotations that reach the host text inside macros; the splitter removes the others.
#define __host__
#define __device__
#define __global__
#define __constant__
#define __shared__
#define __managed__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))

struct __half {
  unsigned short bits;
  __half() = default;
  __half(float v) : bits(c10_bits(v)) {}
  __half(double v) : __half(static_cast<float>(v)) {}
  __half(int v) : __half(static_cast<float>(v)) {}
  operator float() const;
  static unsigned short c10_bits(float v);
};
struct __nv_bfloat16 {
  unsigned short bits;
  __nv_bfloat16() = default;
  __nv_bfloat16(float v) : bits(c10_bits(v)) {}
  __nv_bfloat16(double v) : __nv_bfloat16(static_cast<float>(v)) {}
  __nv_bfloat16(int v) : __nv_bfloat16(static_cast<float>(v)) {}
  operator float() const;
  static unsigned short c10_bits(float v);
};
// cuda_fp8.h: the numbers are torch's but for conversions, which saturate.
using __nv_fp8_storage_t = unsigned char;
using __nv_fp8x2_storage_t = unsigned short;
using __nv_fp8x4_storage_t = unsigned;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };
#define KW_FP8(NAME)                                       \
  struct NAME {                                            \
    __nv_fp8_storage_t __x;                                \
    NAME() = default;                                      \
    explicit NAME(float v);                                \
    explicit NAME(double v) : NAME(static_cast<float>(v)) {} \
    explicit NAME(int v) : NAME(static_cast<float>(v)) {}  \
    explicit operator float() const;                       \
  };
KW_FP8(__nv_fp8_e4m3)
KW_FP8(__nv_fp8_e5m2)
#undef KW_FP8
struct alignas(2) __nv_fp8x2_e4m3 { __nv_fp8x2_storage_t __x; };
struct alignas(2) __nv_fp8x2_e5m2 { __nv_fp8x2_storage_t __x; };
struct alignas(4) __nv_fp8x4_e4m3 { __nv_fp8x4_storage_t __x; };
struct alignas(4) __nv_fp8x4_e5m2 { __nv_fp8x4_storage_t __x; };
struct alignas(4) __half2 { __half x, y; };
struct alignas(4) __nv_bfloat162 { __nv_bfloat16 x, y; };
using half = __half;
using half2 = __half2;
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;
using __nv_half = __half;
inline __half __float2half(float v) { return __half(v); }
inline __half __float2half_rn(float v) { return __half(v); }
inline __half __double2half(double v) { return __half(static_cast<float>(v)); }
inline float __half2float(__half v) { return float(v); }
inline __nv_bfloat16 __float2bfloat16(float v) { return __nv_bfloat16(v); }
inline __nv_bfloat16 __float2bfloat16_rn(float v) { return __nv_bfloat16(v); }
inline float __bfloat162float(__nv_bfloat16 v) { return float(v); }
inline __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }

// nvcc's own host-side min and max live in the global namespace.
#define KW_MIN_MAX(T)                                 \
  inline T min(T a, T b) { return b < a ? b : a; }    \
  inline T max(T a, T b) { return a < b ? b : a; }
KW_MIN_MAX(int) KW_MIN_MAX(unsigned) KW_MIN_MAX(long) KW_MIN_MAX(unsigned long) KW_MIN_MAX(long long)
KW_MIN_MAX(unsigned long long) KW_MIN_MAX(float) KW_MIN_MAX(double)
#undef KW_MIN_MAX
#define KW_MIN_MAX_MIXED(A, B, R)                                                   \
  inline R min(A a, B b) { return min(static_cast<R>(a), static_cast<R>(b)); }      \
  inline R max(A a, B b) { return max(static_cast<R>(a), static_cast<R>(b)); }
KW_MIN_MAX_MIXED(int, unsigned, unsigned) KW_MIN_MAX_MIXED(unsigned, int, unsigned)
KW_MIN_MAX_MIXED(long, unsigned long, unsigned long) KW_MIN_MAX_MIXED(unsigned long, long, unsigned long)
KW_MIN_MAX_MIXED(long long, unsigned long long, unsigned long long)
KW_MIN_MAX_MIXED(unsigned long long, long long, unsigned long long)
KW_MIN_MAX_MIXED(float, double, double) KW_MIN_MAX_MIXED(double, float, double)
#undef KW_MIN_MAX_MIXED
inline float rsqrtf(float v) { return 1.0f / std::sqrt(v); }
inline double rsqrt(double v) { return 1.0 / std::sqrt(v); }
inline float rsqrt(float v) { return 1.0f / std::sqrt(v); }

namespace cooperative_groups {}
namespace nvcuda {
namespace wmma {}
}
namespace cub {}
