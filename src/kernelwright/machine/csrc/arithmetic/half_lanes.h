// Rows of halves to rows of floats and back.
#pragma once
#include "arithmetic/half.h"

namespace kw {
template <bool BF>
inline void to_floats(const u16* h, float* f, int n, bool ftz) {
  if constexpr (BF) {
    for (int i = 0; i < n; i++) f[i] = bit_cast<float>((u32)h[i] << 16);
    if (ftz)
      for (int i = 0; i < n; i++) f[i] = flush(f[i]);
    return;
  } else {
#if defined(__F16C__) && defined(__AVX__)
    for (int i = 0; i < n; i += 8)
      _mm256_storeu_ps(f + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(h + i))));
#else
    for (int i = 0; i < n; i++) f[i] = half_to_float(h[i]);
#endif
    if (ftz)
      for (int i = 0; i < n; i++) f[i] = std::fabs(f[i]) < 0x1p-14f ? std::copysign(0.0f, f[i]) : f[i];
  }
}

template <bool BF>
inline void from_floats(const float* f, u16* h, int n, bool ftz) {
  if constexpr (BF) {
    for (int i = 0; i < n; i++) h[i] = float_to_bf16(ftz ? flush(f[i]) : f[i]);
    if (ftz)
      for (int i = 0; i < n; i++) h[i] = h[i] & 0x7f80 ? h[i] : h[i] & 0x8000;
  } else {
#if defined(__F16C__) && defined(__AVX__)
    for (int i = 0; i < n; i += 8)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(h + i), _mm256_cvtps_ph(_mm256_loadu_ps(f + i), 0));
    for (int i = 0; i < n; i++) h[i] = (h[i] & 0x7fff) > 0x7c00 ? (u16)0x7fff : h[i];
#else
    for (int i = 0; i < n; i++) h[i] = float_to_half(f[i]);
#endif
    // What is smaller than every normal number before it is rounded is flushed, even where it would round up to one.
    if (ftz)
      for (int i = 0; i < n; i++) h[i] = std::fabs(f[i]) < 0x1p-14f ? h[i] & 0x8000 : h[i];
  }
}
}  // namespace kw
