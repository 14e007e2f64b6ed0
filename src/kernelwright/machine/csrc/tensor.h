// Matrix fragments: reading and writing the elements that lanes hold in registers.
#pragma once
#include "decode.h"
#include "half.h"
#include "launch.h"

namespace kw::tensor {
enum Element : u8 { Half, Bf16, Tf32, Single, Double, Int8, Uint8, Int32 };

struct Shape {
  int m, n, k;
};

inline int per_register(Element e) { return e == Half || e == Bf16 ? 2 : e == Int8 || e == Uint8 ? 4 : 1; }

inline double element_at(const Warp& w, u32 offset, Element e, int lane, int i) {
  if (e == Double) return slot<double>(w, offset)[lane];
  u32 v = slot<u32>(w, offset)[lane];
  switch (e) {
    case Half:
      return half_to_float((u16)(v >> (16 * i)));
    case Bf16:
      return bf16_to_float((u16)(v >> (16 * i)));
    case Tf32:
      return bit_cast<float>(v & 0xffffe000u);
    case Int8:
      return (i8)(v >> (8 * i));
    case Uint8:
      return (u8)(v >> (8 * i));
    case Int32:
      return (i32)v;
    default:
      return bit_cast<float>(v);
  }
}

inline void set_element(Warp& w, u32 offset, Element e, int lane, int i, double x, bool clamp) {
  if (e == Double) {
    slot<double>(w, offset)[lane] = x;
  } else if (e == Half) {
    u32& v = slot<u32>(w, offset)[lane];
    v = (v & ~(0xffffu << (16 * i))) | (u32)double_to_half(x, 0) << (16 * i);
  } else if (e == Int32) {
    if (clamp) x = std::min(std::max(x, -2147483648.0), 2147483647.0);
    slot<u32>(w, offset)[lane] = (u32)(i64)x;
  } else {
    slot<u32>(w, offset)[lane] = bit_cast<u32>((float)x);
  }
}

inline void multiply(const Shape& s, const double* a, const double* b, double* c) {
  for (int i = 0; i < s.m; i++)
    for (int k = 0; k < s.k; k++) {
      double x = a[i * s.k + k];
      for (int j = 0; j < s.n; j++) c[i * s.n + j] += x * b[k * s.n + j];
    }
}

// Whole-warp instructions need every lane; fewer is undefined on the hardware and an error here.
inline bool whole_warp(Warp& w, const Inst* in, const Inst** next) {
  if (!take_guarded(w, in)) return *next = in + 1, false;
  if (!arrive(w, in, nullptr)) return *next = STOP, false;
  if (w.mask != FULL)
    raise(in, thread_of(w, __builtin_ctz(w.mask)), "trap", "matrix instruction with fewer than 32 threads of the warp");
  return true;
}

Element take_element(Mods& m);
void append(Decoder& d, std::vector<u32>& slots, const Operand& o, Element e, u32 want, bool dest);
}  // namespace kw::tensor
