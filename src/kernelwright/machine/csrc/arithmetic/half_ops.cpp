// Arithmetic on f16, bf16 and pairs of them. A pair register is 64 halves in a row, so pairs need no code of their own.
#include "decode/emit.h"
#include "arithmetic/half.h"
#include "arithmetic/half_lanes.h"
#include "arithmetic/lanes.h"

namespace kw {
namespace {
// Each functor gets numbers that hold its half inputs exactly, and gives one that still rounds right to a half:
// float for f16 and double for bf16 have more than twice the digits; fma rounds to odd first.
struct Add {
  template <class T>
  static T f(T a, T b, T) {
    return a + b;
  }
};
struct Sub {
  template <class T>
  static T f(T a, T b, T) {
    return a - b;
  }
};
struct Mul {
  template <class T>
  static T f(T a, T b, T) {
    return a * b;
  }
};
struct Fma {
  template <class T>
  static T f(T a, T b, T c) {
    return fma_odd(a, b, c);
  }
};
struct Ex2 {
  template <class T>
  static T f(T a, T, T) {
    return (T)std::exp2((double)a);
  }
};
struct Tanh {
  template <class T>
  static T f(T a, T, T) {
    return (T)std::tanh((double)a);
  }
};
template <bool MAX, bool NAN_WINS>
struct MinMax {
  template <class T>
  static T f(T a, T b, T) {
    if (a != a) return NAN_WINS ? a : b;
    if (b != b) return NAN_WINS ? b : a;
    if (a == b) return std::signbit(a) == MAX ? b : a;
    return (a > b) == MAX ? a : b;
  }
};
template <class M>
struct XorSign {
  template <class T>
  static T f(T a, T b, T c) {
    T r = M::f(std::fabs(a), std::fabs(b), c);
    return r != r ? r : std::copysign(r, std::signbit(a) != std::signbit(b) ? (T)-1 : (T)1);
  }
};

constexpr u8 FTZ = 1, SAT = 2, RELU = 4;

template <class Op, bool BF, int SOURCES>
const Inst* op_half(Warp& w, const Inst* in) {
  using T = std::conditional_t<BF, double, float>;
  int n = in->n;  // 32, or 64 for pairs
  alignas(64) float s[3][64];
  alignas(64) u16 r[64];
  u32 from[3] = {in->a, in->b, in->c};
  for (int k = 0; k < SOURCES; k++) to_floats<BF>(slot<u16>(w, from[k]), s[k], n, in->x & FTZ);
  alignas(64) float f[64];
  for (int i = 0; i < n; i++) {
    T v = Op::f((T)s[0][i], SOURCES > 1 ? (T)s[1][i] : (T)0, SOURCES > 2 ? (T)s[2][i] : (T)0);
    if constexpr (BF)
      f[i] = odd_float(v);
    else
      f[i] = v;
  }
  if (in->x & SAT)
    for (int i = 0; i < n; i++) f[i] = f[i] > 0 ? (f[i] < 1 ? f[i] : 1.0f) : 0.0f;
  if (in->x & RELU)
    for (int i = 0; i < n; i++) f[i] = f[i] < 0 || (f[i] == 0 && std::signbit(f[i])) ? 0.0f : f[i];
  from_floats<BF>(f, r, n, in->x & FTZ);
  if (n == 32)
    blend(slot<u16>(w, in->d), r, active(w, in));
  else
    blend(slot<u32>(w, in->d), reinterpret_cast<u32*>(r), active(w, in));
  return in + 1;
}

// in->x: ftz; in->y: bfloat16
template <bool ABS>
const Inst* op_half_sign_ftz(Warp& w, const Inst* in) {
  const u16* a = slot<u16>(w, in->a);
  u16 e = in->y ? 0x7f80 : 0x7c00;
  alignas(64) u16 r[64];
  for (int i = 0; i < in->n; i++) {
    u16 v = a[i] & e ? a[i] : a[i] & 0x8000;
    r[i] = ABS ? v & 0x7fff : v ^ 0x8000;
  }
  if (in->n == 32)
    blend(slot<u16>(w, in->d), r, active(w, in));
  else
    blend(slot<u32>(w, in->d), reinterpret_cast<u32*>(r), active(w, in));
  return in + 1;
}

template <bool ABS>
const Inst* op_half_sign(Warp& w, const Inst* in) {
  u32 m = active(w, in);
  if (in->n == 32) {
    const u16* a = slot<u16>(w, in->a);
    put<u16>(w, m, in->d, [&](int i) { return (u16)(ABS ? a[i] & 0x7fff : a[i] ^ 0x8000); });
  } else {
    const u32* a = slot<u32>(w, in->a);
    put<u32>(w, m, in->d, [&](int i) { return ABS ? a[i] & 0x7fff7fffu : a[i] ^ 0x80008000u; });
  }
  return in + 1;
}

bool is_bf(Ty t) { return t == Ty::BF16 || t == Ty::BF16X2; }
u16 lanes_of(Ty t) { return t == Ty::F16X2 || t == Ty::BF16X2 ? 64 : 32; }
template <class Op, int S>
Fn pick(Ty t) {
  return is_bf(t) ? op_half<Op, true, S> : op_half<Op, false, S>;
}

void finish(Decoder& d, Fn fn, u32 sources, Ty t, bool ftz, bool sat, bool relu) {
  Inst& in = emit_plain(d, fn, Class::Half, sources, t);
  in.n = lanes_of(t);
  in.x = (u8)((ftz ? FTZ : 0) | (sat ? SAT : 0) | (relu ? RELU : 0));
}

void h_arith(Decoder& d, Mods& m) {
  Round r = m.round();
  bool ftz = m.take("ftz"), sat = m.take("sat"), relu = m.op == "fma" && m.take("relu");
  if (m.take("oob")) m.unsupported("oob");
  Ty t = m.type();
  m.finish();
  if (r != Round::None && r != Round::Near) m.unsupported("rounding mode");
  if (m.op == "fma") return finish(d, pick<Fma, 3>(t), 3, t, ftz, sat, relu);
  Fn fn = m.op == "add" ? pick<Add, 2>(t) : m.op == "sub" ? pick<Sub, 2>(t) : pick<Mul, 2>(t);
  finish(d, fn, 2, t, ftz, sat, false);
}

void h_minmax(Decoder& d, Mods& m) {
  bool ftz = m.take("ftz"), nan = m.take("NaN"), xs = m.take("xorsign"), abs = m.take("abs"), max = m.op == "max";
  Ty t = m.type();
  m.finish();
  if (xs != abs) throw PtxError(".xorsign needs .abs");
  Fn fn;
  if (xs && nan)
    fn = max ? pick<XorSign<MinMax<true, true>>, 2>(t) : pick<XorSign<MinMax<false, true>>, 2>(t);
  else if (xs)
    fn = max ? pick<XorSign<MinMax<true, false>>, 2>(t) : pick<XorSign<MinMax<false, false>>, 2>(t);
  else if (nan)
    fn = max ? pick<MinMax<true, true>, 2>(t) : pick<MinMax<false, true>, 2>(t);
  else
    fn = max ? pick<MinMax<true, false>, 2>(t) : pick<MinMax<false, false>, 2>(t);
  finish(d, fn, 2, t, ftz, false, false);
}

void h_sign(Decoder& d, Mods& m) {
  bool ftz = m.take("ftz");
  Ty t = m.type();
  m.finish();
  Fn plain = m.op == "abs" ? op_half_sign<true> : op_half_sign<false>;
  Fn flushed = m.op == "abs" ? op_half_sign_ftz<true> : op_half_sign_ftz<false>;
  Inst& in = emit_plain(d, ftz ? flushed : plain, Class::Half, 1, t);
  in.n = lanes_of(t);
  in.y = is_bf(t);
}

void h_function(Decoder& d, Mods& m) {
  bool approx = m.take("approx"), ftz = m.take("ftz");
  Ty t = m.type();
  m.finish();
  if (!approx) throw PtxError(".approx is missing");
  finish(d, m.op == "ex2" ? pick<Ex2, 1>(t) : pick<Tanh, 1>(t), 1, t, ftz, false, false);
}
}  // namespace

void add_half_handlers(Handlers& h) {
  for (const char* s : {"#hadd", "#hsub", "#hmul", "#hfma"}) h[s] = h_arith;
  h["#hmin"] = h["#hmax"] = h_minmax;
  h["#habs"] = h["#hneg"] = h_sign;
  h["#hex2"] = h["#htanh"] = h_function;
}
}  // namespace kw
