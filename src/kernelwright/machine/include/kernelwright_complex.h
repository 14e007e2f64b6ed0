// torch's complex numbers (c10/util/complex.h) with one layout for host and device: the real part, then the imaginary.
//
// Compiled twice, as kernelwright_accessor.h is. On the device it is included only where a text names c10::complex.
#pragma once

#ifdef __CUDACC__
#define KW_COMPLEX __host__ __device__ constexpr
#define KW_COMPLEX_MATH __device__ inline
#else
#include <cmath>
#define KW_COMPLEX constexpr
#define KW_COMPLEX_MATH inline
#endif

namespace c10 {
template <class T>
struct alignas(sizeof(T) * 2) complex {
  using value_type = T;
  T real_ = T(0);
  T imag_ = T(0);
  constexpr complex() = default;
  KW_COMPLEX complex(const T& real, const T& imag = T()) : real_(real), imag_(imag) {}
  template <class U>
  KW_COMPLEX complex(const complex<U>& z) : real_(static_cast<T>(z.real_)), imag_(static_cast<T>(z.imag_)) {}
  KW_COMPLEX T real() const { return real_; }
  KW_COMPLEX T imag() const { return imag_; }
  KW_COMPLEX void real(T value) { real_ = value; }
  KW_COMPLEX void imag(T value) { imag_ = value; }
  KW_COMPLEX explicit operator bool() const { return real_ != T(0) || imag_ != T(0); }
  KW_COMPLEX complex& operator=(T real) { real_ = real, imag_ = T(0); return *this; }
  KW_COMPLEX complex& operator+=(T real) { real_ += real; return *this; }
  KW_COMPLEX complex& operator-=(T real) { real_ -= real; return *this; }
  KW_COMPLEX complex& operator*=(T real) { real_ *= real, imag_ *= real; return *this; }
  KW_COMPLEX complex& operator/=(T real) { real_ /= real, imag_ /= real; return *this; }
  template <class U>
  KW_COMPLEX complex& operator+=(const complex<U>& z) { real_ += z.real_, imag_ += z.imag_; return *this; }
  template <class U>
  KW_COMPLEX complex& operator-=(const complex<U>& z) { real_ -= z.real_, imag_ -= z.imag_; return *this; }
  template <class U>
  KW_COMPLEX complex& operator*=(const complex<U>& z) {
    const T a = real_, b = imag_;
    real_ = a * z.real_ - b * z.imag_;
    imag_ = a * z.imag_ + b * z.real_;
    return *this;
  }
  template <class U>
  KW_COMPLEX complex& operator/=(const complex<U>& z) {
    // Scaled by the larger part of the divisor, so that its square does not overflow.
    const T c = z.real_, d = z.imag_, a = real_, b = imag_;
    if ((c < 0 ? -c : c) >= (d < 0 ? -d : d)) {
      const T ratio = d / c, scale = T(1) / (c + d * ratio);
      real_ = (a + b * ratio) * scale;
      imag_ = (b - a * ratio) * scale;
    } else {
      const T ratio = c / d, scale = T(1) / (d + c * ratio);
      real_ = (a * ratio + b) * scale;
      imag_ = (b * ratio - a) * scale;
    }
    return *this;
  }
};
#define KW_COMPLEX_OPERATOR(OP, ASSIGN)                                                                      \
  template <class T>                                                                                         \
  KW_COMPLEX complex<T> operator OP(const complex<T>& a, const complex<T>& b) { complex<T> r = a; return r ASSIGN b; } \
  template <class T>                                                                                         \
  KW_COMPLEX complex<T> operator OP(const complex<T>& a, const T& b) { complex<T> r = a; return r ASSIGN b; } \
  template <class T>                                                                                         \
  KW_COMPLEX complex<T> operator OP(const T& a, const complex<T>& b) { complex<T> r(a); return r ASSIGN b; }
KW_COMPLEX_OPERATOR(+, +=)
KW_COMPLEX_OPERATOR(-, -=)
KW_COMPLEX_OPERATOR(*, *=)
KW_COMPLEX_OPERATOR(/, /=)
#undef KW_COMPLEX_OPERATOR
template <class T>
KW_COMPLEX complex<T> operator+(const complex<T>& z) { return z; }
template <class T>
KW_COMPLEX complex<T> operator-(const complex<T>& z) { return {-z.real_, -z.imag_}; }
template <class T>
KW_COMPLEX bool operator==(const complex<T>& a, const complex<T>& b) { return a.real_ == b.real_ && a.imag_ == b.imag_; }
template <class T>
KW_COMPLEX bool operator!=(const complex<T>& a, const complex<T>& b) { return !(a == b); }
template <class T>
KW_COMPLEX bool operator==(const complex<T>& a, const T& b) { return a.real_ == b && a.imag_ == T(0); }
template <class T>
KW_COMPLEX bool operator!=(const complex<T>& a, const T& b) { return !(a == b); }
template <class T>
KW_COMPLEX_MATH complex<T> polar(const T& length, const T& angle = T()) {
  return {length * static_cast<T>(::cos(angle)), length * static_cast<T>(::sin(angle))};
}
}  // namespace c10
#ifdef __CUDACC__  // on the host at::complex is an operator of tensors
namespace at {
using c10::complex;
}
namespace torch {
using c10::complex;
}
#endif

namespace std {
template <class T>
KW_COMPLEX T real(const c10::complex<T>& z) { return z.real_; }
template <class T>
KW_COMPLEX T imag(const c10::complex<T>& z) { return z.imag_; }
template <class T>
KW_COMPLEX T norm(const c10::complex<T>& z) { return z.real_ * z.real_ + z.imag_ * z.imag_; }
template <class T>
KW_COMPLEX c10::complex<T> conj(const c10::complex<T>& z) { return {z.real_, -z.imag_}; }
template <class T>
KW_COMPLEX_MATH T abs(const c10::complex<T>& z) { return static_cast<T>(::hypot(z.real_, z.imag_)); }
template <class T>
KW_COMPLEX_MATH T arg(const c10::complex<T>& z) { return static_cast<T>(::atan2(z.imag_, z.real_)); }
template <class T>
KW_COMPLEX_MATH c10::complex<T> exp(const c10::complex<T>& z) {
  return c10::polar(static_cast<T>(::exp(z.real_)), z.imag_);
}
template <class T>
KW_COMPLEX_MATH c10::complex<T> log(const c10::complex<T>& z) {
  return {static_cast<T>(::log(std::abs(z))), std::arg(z)};
}
template <class T>
KW_COMPLEX_MATH c10::complex<T> sqrt(const c10::complex<T>& z) {
  const T length = std::abs(z);
  const T a = static_cast<T>(::sqrt((length + z.real_) / 2)), b = static_cast<T>(::sqrt((length - z.real_) / 2));
  return {a, z.imag_ < 0 ? -b : b};
}
template <class T>
KW_COMPLEX_MATH c10::complex<T> pow(const c10::complex<T>& z, const c10::complex<T>& p) {
  return z == T(0) ? c10::complex<T>(p == T(0) ? T(1) : T(0)) : std::exp(p * std::log(z));
}
template <class T>
KW_COMPLEX_MATH c10::complex<T> pow(const c10::complex<T>& z, const T& p) { return std::pow(z, c10::complex<T>(p)); }
template <class T>
KW_COMPLEX_MATH c10::complex<T> pow(const T& x, const c10::complex<T>& p) { return std::pow(c10::complex<T>(x), p); }
template <class T>
KW_COMPLEX_MATH c10::complex<T> sinh(const c10::complex<T>& z) {
  return {static_cast<T>(::sinh(z.real_) * ::cos(z.imag_)), static_cast<T>(::cosh(z.real_) * ::sin(z.imag_))};
}
template <class T>
KW_COMPLEX_MATH c10::complex<T> cosh(const c10::complex<T>& z) {
  return {static_cast<T>(::cosh(z.real_) * ::cos(z.imag_)), static_cast<T>(::sinh(z.real_) * ::sin(z.imag_))};
}
template <class T>
KW_COMPLEX_MATH c10::complex<T> tanh(const c10::complex<T>& z) { return std::sinh(z) / std::cosh(z); }
template <class T>
KW_COMPLEX_MATH c10::complex<T> sin(const c10::complex<T>& z) {
  return {static_cast<T>(::sin(z.real_) * ::cosh(z.imag_)), static_cast<T>(::cos(z.real_) * ::sinh(z.imag_))};
}
template <class T>
KW_COMPLEX_MATH c10::complex<T> cos(const c10::complex<T>& z) {
  return {static_cast<T>(::cos(z.real_) * ::cosh(z.imag_)), static_cast<T>(-::sin(z.real_) * ::sinh(z.imag_))};
}
template <class T>
KW_COMPLEX_MATH c10::complex<T> tan(const c10::complex<T>& z) { return std::sin(z) / std::cos(z); }
}  // namespace std
#undef KW_COMPLEX
#undef KW_COMPLEX_MATH
