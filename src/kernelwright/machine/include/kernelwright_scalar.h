// torch's 16-bit types for device code: c10::Half and c10::BFloat16, computing in float as torch's own do, and the types
// that torch accumulates in. Included only where a device text names one of them.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace c10 {
#define KW_SCALAR(NAME, NATIVE, TO_FLOAT, FROM_FLOAT)                                                                 \
  struct alignas(2) NAME {                                                                                            \
    unsigned short x;                                                                                                 \
    struct from_bits_t {};                                                                                            \
    NAME() = default;                                                                                                 \
    __host__ __device__ constexpr NAME(unsigned short bits, from_bits_t) : x(bits) {}                                 \
    __device__ NAME(float value) { *this = NAME(FROM_FLOAT(value)); }                                                 \
    __device__ NAME(double value) : NAME(static_cast<float>(value)) {}                                                \
    __device__ NAME(int value) : NAME(static_cast<float>(value)) {}                                                   \
    __device__ NAME(long value) : NAME(static_cast<float>(value)) {}                                                  \
    __device__ NAME(long long value) : NAME(static_cast<float>(value)) {}                                             \
    __device__ NAME(unsigned value) : NAME(static_cast<float>(value)) {}                                              \
    __device__ NAME(bool value) : NAME(value ? 1.0f : 0.0f) {}                                                        \
    __device__ NAME(const NATIVE& value) { x = *reinterpret_cast<const unsigned short*>(&value); }                    \
    __device__ operator float() const { return TO_FLOAT(*reinterpret_cast<const NATIVE*>(this)); }                    \
    __device__ operator NATIVE() const { return *reinterpret_cast<const NATIVE*>(this); }                             \
  };                                                                                                                  \
  __device__ inline NAME operator+(const NAME& a, const NAME& b) { return NAME((float)a + (float)b); }                \
  __device__ inline NAME operator-(const NAME& a, const NAME& b) { return NAME((float)a - (float)b); }                \
  __device__ inline NAME operator*(const NAME& a, const NAME& b) { return NAME((float)a * (float)b); }                \
  __device__ inline NAME operator/(const NAME& a, const NAME& b) { return NAME((float)a / (float)b); }                \
  __device__ inline NAME operator-(const NAME& a) { return NAME(-(float)a); }                                         \
  __device__ inline NAME& operator+=(NAME& a, const NAME& b) { return a = a + b; }                                    \
  __device__ inline NAME& operator-=(NAME& a, const NAME& b) { return a = a - b; }                                    \
  __device__ inline NAME& operator*=(NAME& a, const NAME& b) { return a = a * b; }                                    \
  __device__ inline NAME& operator/=(NAME& a, const NAME& b) { return a = a / b; }                                    \
  __device__ inline float operator+(NAME a, float b) { return (float)a + b; }                                         \
  __device__ inline float operator-(NAME a, float b) { return (float)a - b; }                                         \
  __device__ inline float operator*(NAME a, float b) { return (float)a * b; }                                         \
  __device__ inline float operator/(NAME a, float b) { return (float)a / b; }                                         \
  __device__ inline float operator+(float a, NAME b) { return a + (float)b; }                                         \
  __device__ inline float operator-(float a, NAME b) { return a - (float)b; }                                         \
  __device__ inline float operator*(float a, NAME b) { return a * (float)b; }                                         \
  __device__ inline float operator/(float a, NAME b) { return a / (float)b; }                                         \
  __device__ inline float& operator+=(float& a, const NAME& b) { return a += (float)b; }                              \
  __device__ inline float& operator-=(float& a, const NAME& b) { return a -= (float)b; }                              \
  __device__ inline float& operator*=(float& a, const NAME& b) { return a *= (float)b; }                              \
  __device__ inline double operator+(NAME a, double b) { return (double)(float)a + b; }                               \
  __device__ inline double operator-(NAME a, double b) { return (double)(float)a - b; }                               \
  __device__ inline double operator*(NAME a, double b) { return (double)(float)a * b; }                               \
  __device__ inline double operator/(NAME a, double b) { return (double)(float)a / b; }                               \
  __device__ inline double operator+(double a, NAME b) { return a + (double)(float)b; }                               \
  __device__ inline double operator-(double a, NAME b) { return a - (double)(float)b; }                               \
  __device__ inline double operator*(double a, NAME b) { return a * (double)(float)b; }                               \
  __device__ inline double operator/(double a, NAME b) { return a / (double)(float)b; }                               \
  __device__ inline NAME operator+(NAME a, int b) { return a + NAME(b); }                                             \
  __device__ inline NAME operator-(NAME a, int b) { return a - NAME(b); }                                             \
  __device__ inline NAME operator*(NAME a, int b) { return a * NAME(b); }                                             \
  __device__ inline NAME operator/(NAME a, int b) { return a / NAME(b); }                                             \
  __device__ inline NAME operator+(int a, NAME b) { return NAME(a) + b; }                                             \
  __device__ inline NAME operator-(int a, NAME b) { return NAME(a) - b; }                                             \
  __device__ inline NAME operator*(int a, NAME b) { return NAME(a) * b; }                                             \
  __device__ inline NAME operator/(int a, NAME b) { return NAME(a) / b; }                                             \
  __device__ inline bool operator<(const NAME& a, const NAME& b) { return (float)a < (float)b; }                      \
  __device__ inline bool operator>(const NAME& a, const NAME& b) { return (float)a > (float)b; }                      \
  __device__ inline bool operator<=(const NAME& a, const NAME& b) { return (float)a <= (float)b; }                    \
  __device__ inline bool operator>=(const NAME& a, const NAME& b) { return (float)a >= (float)b; }                    \
  __device__ inline bool operator==(const NAME& a, const NAME& b) { return (float)a == (float)b; }                    \
  __device__ inline bool operator!=(const NAME& a, const NAME& b) { return (float)a != (float)b; }

KW_SCALAR(Half, __half, __half2float, __float2half)
KW_SCALAR(BFloat16, __nv_bfloat16, __bfloat162float, __float2bfloat16)
#undef KW_SCALAR
}  // namespace c10

namespace at {
using c10::BFloat16;
using c10::Half;
template <typename T, bool is_cuda = true>
struct AccumulateType {
  using type = T;
};
template <>
struct AccumulateType<c10::Half, true> {
  using type = float;
};
template <>
struct AccumulateType<c10::BFloat16, true> {
  using type = float;
};
template <typename T, bool is_cuda = true>
using acc_type = typename AccumulateType<T, is_cuda>::type;
template <typename T>
using opmath_type = typename AccumulateType<T, true>::type;
}  // namespace at
namespace torch {
using c10::BFloat16;
using c10::Half;
}  // namespace torch

namespace std {
template <>
struct numeric_limits<c10::Half> {
  static constexpr bool is_specialized = true;
  static constexpr bool is_integer = false;
  static __device__ c10::Half min() { return {0x0400, c10::Half::from_bits_t()}; }
  static __device__ c10::Half lowest() { return {0xFBFF, c10::Half::from_bits_t()}; }
  static __device__ c10::Half max() { return {0x7BFF, c10::Half::from_bits_t()}; }
  static __device__ c10::Half epsilon() { return {0x1400, c10::Half::from_bits_t()}; }
  static __device__ c10::Half infinity() { return {0x7C00, c10::Half::from_bits_t()}; }
  static __device__ c10::Half quiet_NaN() { return {0x7E00, c10::Half::from_bits_t()}; }
};
template <>
struct numeric_limits<c10::BFloat16> {
  static constexpr bool is_specialized = true;
  static constexpr bool is_integer = false;
  static __device__ c10::BFloat16 min() { return {0x0080, c10::BFloat16::from_bits_t()}; }
  static __device__ c10::BFloat16 lowest() { return {0xFF7F, c10::BFloat16::from_bits_t()}; }
  static __device__ c10::BFloat16 max() { return {0x7F7F, c10::BFloat16::from_bits_t()}; }
  static __device__ c10::BFloat16 epsilon() { return {0x3C00, c10::BFloat16::from_bits_t()}; }
  static __device__ c10::BFloat16 infinity() { return {0x7F80, c10::BFloat16::from_bits_t()}; }
  static __device__ c10::BFloat16 quiet_NaN() { return {0x7FC0, c10::BFloat16::from_bits_t()}; }
};
}  // namespace std
