// What host headers give to device code, for NVRTC, which has none: integer types, limits, and the small parts of std
// that kernels use. Included before every device text. Slim on purpose: it is parsed for each candidate.
#pragma once

// The same types as CCCL's cuda/std/cstdint, so that both may be included.
using int8_t = signed char;
using int16_t = signed short;
using int32_t = signed int;
using int64_t = signed long long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
using intptr_t = signed long long;
using uintptr_t = unsigned long long;
using ssize_t = signed long;
using uint = unsigned int;
using ulong = unsigned long;
using ushort = unsigned short;
using uchar = unsigned char;

// Handles that a struct of the host's may hold beside what its kernel reads.
typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
typedef struct cudaArray* cudaArray_t;

#ifndef CHAR_BIT
#define CHAR_BIT 8
#define SCHAR_MAX 127
#define SCHAR_MIN (-128)
#define UCHAR_MAX 255
#define SHRT_MAX 32767
#define SHRT_MIN (-32768)
#define USHRT_MAX 65535
#define INT_MAX 2147483647
#define INT_MIN (-INT_MAX - 1)
#define UINT_MAX 4294967295U
#define LONG_MAX 9223372036854775807L
#define LONG_MIN (-LONG_MAX - 1L)
#define ULONG_MAX 18446744073709551615UL
#define LLONG_MAX 9223372036854775807LL
#define LLONG_MIN (-LLONG_MAX - 1LL)
#define ULLONG_MAX 18446744073709551615ULL
#endif
#ifndef INT32_MAX
#define INT8_MAX SCHAR_MAX
#define INT8_MIN SCHAR_MIN
#define UINT8_MAX UCHAR_MAX
#define INT16_MAX SHRT_MAX
#define INT16_MIN SHRT_MIN
#define UINT16_MAX USHRT_MAX
#define INT32_MAX INT_MAX
#define INT32_MIN INT_MIN
#define UINT32_MAX UINT_MAX
#define INT64_MAX LLONG_MAX
#define INT64_MIN LLONG_MIN
#define UINT64_MAX ULLONG_MAX
#define SIZE_MAX ULONG_MAX
#endif
#ifndef FLT_MAX
#define FLT_MAX 3.402823466e+38F
#define FLT_MIN 1.175494351e-38F
#define FLT_EPSILON 1.192092896e-07F
#define FLT_DIG 6
#define DBL_MAX 1.7976931348623158e+308
#define DBL_MIN 2.2250738585072014e-308
#define DBL_EPSILON 2.2204460492503131e-16
#endif
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif
#ifndef HUGE_VALF
#define HUGE_VALF INFINITY
#define HUGE_VAL ((double)INFINITY)
#endif
#ifndef M_PI
#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_LOG10E 0.43429448190325182765
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
#endif
#ifndef assert
#ifdef NDEBUG
#define assert(condition) ((void)0)
#else
extern "C" __device__ void __assertfail(const char*, const char*, unsigned, const char*, unsigned long);
#define assert(condition) ((condition) ? (void)0 : __assertfail(#condition, __FILE__, __LINE__, __func__, 1))
#endif
#endif
#define C10_HOST_DEVICE __host__ __device__
#define C10_DEVICE __device__
#define C10_HOST __host__
#define C10_RESTRICT __restrict__
#define C10_ALWAYS_INLINE __forceinline__ inline
#define C10_LIKELY(x) (__builtin_expect(static_cast<bool>(x), 1))
#define C10_UNLIKELY(x) (__builtin_expect(static_cast<bool>(x), 0))
#define C10_LAUNCH_BOUNDS_1(a) __launch_bounds__(a)
#define C10_LAUNCH_BOUNDS_2(a, b) __launch_bounds__(a, b)
#define C10_WARP_SIZE 32
#define CUDA_KERNEL_ASSERT(condition) assert(condition)

// Kernels may read constexpr members of these on either side, hence constexpr throughout.
namespace std {
template <class T>
struct numeric_limits {
  static constexpr bool is_specialized = false;
};
#define KW_INTEGER_LIMITS(T, LOW, HIGH, SIGNED, DIGITS)          \
  template <>                                                    \
  struct numeric_limits<T> {                                     \
    static constexpr bool is_specialized = true;                 \
    static constexpr bool is_integer = true;                     \
    static constexpr bool is_signed = SIGNED;                    \
    static constexpr bool has_infinity = false;                  \
    static constexpr bool has_quiet_NaN = false;                 \
    static constexpr int digits = DIGITS;                        \
    static constexpr T min() { return LOW; }                     \
    static constexpr T lowest() { return LOW; }                  \
    static constexpr T max() { return HIGH; }                    \
    static constexpr T epsilon() { return 0; }                   \
    static constexpr T infinity() { return 0; }                  \
    static constexpr T quiet_NaN() { return 0; }                 \
  }
KW_INTEGER_LIMITS(bool, false, true, false, 1);
KW_INTEGER_LIMITS(char, -128, 127, true, 7);
KW_INTEGER_LIMITS(signed char, -128, 127, true, 7);
KW_INTEGER_LIMITS(unsigned char, 0, 255, false, 8);
KW_INTEGER_LIMITS(short, -32768, 32767, true, 15);
KW_INTEGER_LIMITS(unsigned short, 0, 65535, false, 16);
KW_INTEGER_LIMITS(int, INT_MIN, INT_MAX, true, 31);
KW_INTEGER_LIMITS(unsigned int, 0, UINT_MAX, false, 32);
KW_INTEGER_LIMITS(long, LONG_MIN, LONG_MAX, true, 63);
KW_INTEGER_LIMITS(unsigned long, 0, ULONG_MAX, false, 64);
KW_INTEGER_LIMITS(long long, LLONG_MIN, LLONG_MAX, true, 63);
KW_INTEGER_LIMITS(unsigned long long, 0, ULLONG_MAX, false, 64);
#undef KW_INTEGER_LIMITS
#define KW_FLOAT_LIMITS(T, SMALLEST, LARGEST, STEP, INF, QUIET, DIGITS) \
  template <>                                                          \
  struct numeric_limits<T> {                                           \
    static constexpr bool is_specialized = true;                       \
    static constexpr bool is_integer = false;                          \
    static constexpr bool is_signed = true;                            \
    static constexpr bool has_infinity = true;                         \
    static constexpr bool has_quiet_NaN = true;                        \
    static constexpr int digits = DIGITS;                              \
    static constexpr T min() { return SMALLEST; }                      \
    static constexpr T lowest() { return -LARGEST; }                   \
    static constexpr T max() { return LARGEST; }                       \
    static constexpr T epsilon() { return STEP; }                      \
    static constexpr T infinity() { return INF; }                      \
    static constexpr T quiet_NaN() { return QUIET; }                   \
    static constexpr T signaling_NaN() { return QUIET; }               \
  }
KW_FLOAT_LIMITS(float, FLT_MIN, FLT_MAX, FLT_EPSILON, __builtin_bit_cast(float, 0x7f800000),
                __builtin_bit_cast(float, 0x7fc00000), 24);
KW_FLOAT_LIMITS(double, DBL_MIN, DBL_MAX, DBL_EPSILON, __builtin_bit_cast(double, 0x7ff0000000000000ll),
                __builtin_bit_cast(double, 0x7ff8000000000000ll), 53);
#undef KW_FLOAT_LIMITS

template <class T, T V>
struct integral_constant {
  static constexpr T value = V;
  using value_type = T;
  constexpr operator T() const { return V; }
};
using true_type = integral_constant<bool, true>;
using false_type = integral_constant<bool, false>;
template <class A, class B>
struct is_same : false_type {};
template <class A>
struct is_same<A, A> : true_type {};
template <class A, class B>
inline constexpr bool is_same_v = is_same<A, B>::value;
template <bool C, class A, class B>
struct conditional {
  using type = A;
};
template <class A, class B>
struct conditional<false, A, B> {
  using type = B;
};
template <bool C, class A, class B>
using conditional_t = typename conditional<C, A, B>::type;
template <bool C, class T = void>
struct enable_if {};
template <class T>
struct enable_if<true, T> {
  using type = T;
};
template <bool C, class T = void>
using enable_if_t = typename enable_if<C, T>::type;
template <class T>
struct remove_reference {
  using type = T;
};
template <class T>
struct remove_reference<T&> {
  using type = T;
};
template <class T>
struct remove_reference<T&&> {
  using type = T;
};
template <class T>
using remove_reference_t = typename remove_reference<T>::type;
template <class T>
struct remove_const {
  using type = T;
};
template <class T>
struct remove_const<const T> {
  using type = T;
};
template <class T>
using remove_const_t = typename remove_const<T>::type;
template <class T>
struct remove_cv {
  using type = remove_const_t<T>;
};
template <class T>
struct remove_cv<volatile T> {
  using type = remove_const_t<T>;
};
template <class T>
using remove_cv_t = typename remove_cv<T>::type;
template <size_t Bytes, size_t Align = (Bytes < 16 ? Bytes : 16)>
struct aligned_storage {
  struct type {
    alignas(Align) unsigned char data[Bytes];
  };
};
template <size_t Bytes, size_t Align = (Bytes < 16 ? Bytes : 16)>
using aligned_storage_t = typename aligned_storage<Bytes, Align>::type;
template <class T>
using decay_t = remove_cv_t<remove_reference_t<T>>;
template <class T>
struct is_floating_point
    : integral_constant<bool, is_same_v<remove_cv_t<T>, float> || is_same_v<remove_cv_t<T>, double>> {};
template <class T>
inline constexpr bool is_floating_point_v = is_floating_point<T>::value;
template <class T>
struct is_integral : integral_constant<bool, numeric_limits<remove_cv_t<T>>::is_specialized &&
                                                 !is_floating_point<T>::value> {};
template <class T>
inline constexpr bool is_integral_v = is_integral<T>::value;
// std::move and std::forward are NVRTC's own.
template <class T>
constexpr const T& min(const T& a, const T& b) {
  return b < a ? b : a;
}
template <class T>
constexpr const T& max(const T& a, const T& b) {
  return a < b ? b : a;
}
template <class T, class F>
constexpr const T& min(const T& a, const T& b, F less) {
  return less(b, a) ? b : a;
}
template <class T, class F>
constexpr const T& max(const T& a, const T& b, F less) {
  return less(a, b) ? b : a;
}
template <class T>
constexpr T min(initializer_list<T> all) {
  T found = *all.begin();
  for (const T& one : all) found = one < found ? one : found;
  return found;
}
template <class T>
constexpr T max(initializer_list<T> all) {
  T found = *all.begin();
  for (const T& one : all) found = found < one ? one : found;
  return found;
}
template <class T>
constexpr const T& clamp(const T& value, const T& low, const T& high) {
  return value < low ? low : (high < value ? high : value);
}
template <class T>
constexpr void swap(T& a, T& b) {
  T held = move(a);
  a = move(b);
  b = move(held);
}
template <class A, class B>
struct pair {
  A first;
  B second;
};
template <class T, size_t N>
struct array {
  T data_[N];
  constexpr T& operator[](size_t i) { return data_[i]; }
  constexpr const T& operator[](size_t i) const { return data_[i]; }
  constexpr size_t size() const { return N; }
  constexpr T* data() { return data_; }
  constexpr const T* data() const { return data_; }
  constexpr T* begin() { return data_; }
  constexpr const T* begin() const { return data_; }
  constexpr T* end() { return data_ + N; }
  constexpr const T* end() const { return data_ + N; }
  constexpr void fill(const T& value) {
    for (T& one : data_) one = value;
  }
};
template <class A, class B>
constexpr pair<remove_cv_t<remove_reference_t<A>>, remove_cv_t<remove_reference_t<B>>> make_pair(A&& a, B&& b) {
  return {static_cast<A&&>(a), static_cast<B&&>(b)};
}
template <size_t I, class A, class B>
constexpr auto& get(pair<A, B>& p) {
  if constexpr (I == 0) return p.first;
  else return p.second;
}
template <size_t I, class A, class B>
constexpr const auto& get(const pair<A, B>& p) {
  if constexpr (I == 0) return p.first;
  else return p.second;
}
template <size_t I, class T, size_t N>
constexpr T& get(array<T, N>& a) { return a.data_[I]; }
template <size_t I, class T, size_t N>
constexpr const T& get(const array<T, N>& a) { return a.data_[I]; }
using ::abs;
using ::acos;
using ::asin;
using ::atan;
using ::atan2;
using ::cbrt;
using ::ceil;
using ::copysign;
using ::cos;
using ::cosh;
using ::erf;
using ::erfc;
using ::exp;
using ::exp2;
using ::expm1;
using ::fabs;
using ::floor;
using ::fma;
using ::fmax;
using ::fmin;
using ::fmod;
using ::hypot;
using ::lgamma;
using ::log;
using ::log10;
using ::log1p;
using ::log2;
using ::nearbyint;
using ::pow;
using ::rint;
using ::round;
using ::sin;
using ::sinh;
using ::sqrt;
using ::tan;
using ::tanh;
using ::tgamma;
using ::trunc;
__device__ inline bool isnan(float x) { return x != x; }
__device__ inline bool isnan(double x) { return x != x; }
__device__ inline bool isinf(float x) { return fabsf(x) == INFINITY; }
__device__ inline bool isinf(double x) { return ::fabs(x) == (double)INFINITY; }
__device__ inline bool isfinite(float x) { return fabsf(x) < INFINITY; }
__device__ inline bool isfinite(double x) { return ::fabs(x) < (double)INFINITY; }
using ::size_t;
using ::int8_t;
using ::int16_t;
using ::int32_t;
using ::int64_t;
using ::uint8_t;
using ::uint16_t;
using ::uint32_t;
using ::uint64_t;
}  // namespace std
