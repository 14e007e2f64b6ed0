// torch's complex numbers for device code: libcu++'s, which have the same layout and operators. Included only where a
// device text names c10::complex.
#pragma once
#include <cuda/std/complex>

namespace c10 {
template <class T>
using complex = cuda::std::complex<T>;
}  // namespace c10
namespace at {
using c10::complex;
}
namespace torch {
using c10::complex;
}

namespace std {
using cuda::std::arg;
using cuda::std::conj;
using cuda::std::imag;
using cuda::std::norm;
using cuda::std::polar;
using cuda::std::proj;
using cuda::std::real;
// Not by `using`: these names stand for plain numbers, too.
#define KW_OF_COMPLEX(NAME)                                                      \
  template <class T>                                                             \
  __device__ inline auto NAME(const cuda::std::complex<T>& z) { return cuda::std::NAME(z); }
KW_OF_COMPLEX(abs)
KW_OF_COMPLEX(cos)
KW_OF_COMPLEX(cosh)
KW_OF_COMPLEX(exp)
KW_OF_COMPLEX(log)
KW_OF_COMPLEX(sin)
KW_OF_COMPLEX(sinh)
KW_OF_COMPLEX(sqrt)
KW_OF_COMPLEX(tan)
KW_OF_COMPLEX(tanh)
#undef KW_OF_COMPLEX
template <class T, class U>
__device__ inline auto pow(const cuda::std::complex<T>& z, const U& p) { return cuda::std::pow(z, p); }
}  // namespace std
