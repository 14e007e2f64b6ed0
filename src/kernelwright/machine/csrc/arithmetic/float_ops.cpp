// Single and double precision arithmetic. Approximate instructions are computed with accurate functions.
#include "decode/emit.h"
#include "arithmetic/half.h"
#include "arithmetic/lanes.h"

namespace kw {
// rounding_ops.cpp: the operation with in->x = 1 toward zero, 2 down, 3 up; in->y bit 0 ftz, bit 1 sat
Fn directed(string_view op, Ty t);

namespace {
template <class T>
inline T canonical(T x) {  // NVIDIA's NaN
  if constexpr (sizeof(T) == 4)
    return x != x ? bit_cast<float>(0x7fffffffu) : x;
  else
    return x != x ? bit_cast<double>(0x7fffffffffffffffull) : x;
}
// Single precision makes one NaN, whatever came in; double precision hands the first operand's on, as the host does.
template <class T>
inline T single_nan(T x) {
  if constexpr (sizeof(T) == 4) return canonical(x);
  return x;
}
struct Add {
  template <class T>
  static T f(T a, T b) {
    return single_nan(a + b);
  }
};
struct Sub {
  template <class T>
  static T f(T a, T b) {
    return single_nan(a - b);
  }
};
struct Mul {
  template <class T>
  static T f(T a, T b) {
    return single_nan(a * b);
  }
};
struct Div {
  template <class T>
  static T f(T a, T b) {
    return single_nan(a / b);
  }
};
// a * (1 / b): the reciprocal of a large b is a flushed subnormal, as the instruction set says.
struct DivApprox {
  static float f(float a, float b) {
    float r = a / b, size = std::fabs(b);
    bool lost = size > 0x1p126f && size < INFINITY;
    return single_nan(lost ? a * std::copysign(0.0f, b) : r);
  }
};
struct Fma {
  static float f(float a, float b, float c) { return single_nan(__builtin_fmaf(a, b, c)); }
  static double f(double a, double b, double c) { return __builtin_fma(a, b, c); }
};
template <class T>
inline T either_zero(T a, T b, bool max) {  // a == b: -0 is smaller than +0
  if constexpr (sizeof(T) == 4) {
    u32 x = bit_cast<u32>(a), y = bit_cast<u32>(b);
    return bit_cast<T>(max ? x & y : x | y);
  } else {
    u64 x = bit_cast<u64>(a), y = bit_cast<u64>(b);
    return bit_cast<T>(max ? x & y : x | y);
  }
}
struct Min {
  template <class T>
  static T f(T a, T b) {
    T r = a < b ? a : b;
    r = a == b ? either_zero(a, b, false) : r;
    r = a != a ? b : r;
    r = b != b ? a : r;
    return canonical(r);
  }
};
struct Max {
  template <class T>
  static T f(T a, T b) {
    T r = a > b ? a : b;
    r = a == b ? either_zero(a, b, true) : r;
    r = a != a ? b : r;
    r = b != b ? a : r;
    return canonical(r);
  }
};
template <class M>
struct WithNan {
  template <class T>
  static T f(T a, T b) {
    T r = M::f(a, b);
    r = a != a ? a : r;
    r = b != b ? b : r;
    return canonical(r);
  }
};
template <class M>
struct XorSign {
  static float f(float a, float b) {
    u32 s = (bit_cast<u32>(a) ^ bit_cast<u32>(b)) & 0x80000000u;
    float r = M::f(std::fabs(a), std::fabs(b));
    return r != r ? r : bit_cast<float>((bit_cast<u32>(r) & 0x7fffffffu) | s);
  }
};
struct Abs {
  static float f(float a) { return bit_cast<float>(bit_cast<u32>(a) & 0x7fffffffu); }
  static double f(double a) { return bit_cast<double>(bit_cast<u64>(a) & ~(1ull << 63)); }
};
struct Neg {
  static float f(float a) { return bit_cast<float>(bit_cast<u32>(a) ^ 0x80000000u); }
  static double f(double a) { return bit_cast<double>(bit_cast<u64>(a) ^ (1ull << 63)); }
};
struct Copysign {  // the sign of a, the magnitude of b
  static float f(float a, float b) {
    return bit_cast<float>((bit_cast<u32>(a) & 0x80000000u) | (bit_cast<u32>(b) & 0x7fffffffu));
  }
  static double f(double a, double b) {
    return bit_cast<double>((bit_cast<u64>(a) & (1ull << 63)) | (bit_cast<u64>(b) & ~(1ull << 63)));
  }
};
struct Rcp {
  template <class T>
  static T f(T a) {
    return single_nan((T)1 / a);
  }
};
struct Sqrt {
  template <class T>
  static T f(T a) {
    return single_nan(std::sqrt(a));
  }
};
struct Rsqrt {
  static float f(float a) { return single_nan((float)(1.0 / std::sqrt((double)a))); }
  static double f(double a) { return 1.0 / std::sqrt(a); }
};
// rcp and rsqrt .approx.ftz.f64: of the upper word of the operand, and only the upper word of the result is computed.
struct HighWord {
  static double of(double x) {
    u64 u = bit_cast<u64>(x) & 0xffffffff00000000ull, sign = u & 1ull << 63;
    return bit_cast<double>(u & 0x7ff0000000000000ull ? u : sign);
  }
};
struct RcpHigh {
  static double f(double a) { return HighWord::of(1.0 / HighWord::of(a)); }
};
struct RsqrtHigh {
  static double f(double a) { return HighWord::of(1.0 / std::sqrt(HighWord::of(a))); }
};
// 2^x by a polynomial in double precision: good to about 1e-9, so the single result is right to the last bit nearly
// always.
struct Ex2 {
  static float f(float x) {
    double c = x < -160.0f ? -160.0 : x > 130.0f ? 130.0 : (double)x;
    double n = __builtin_floor(c + 0.5), r = (c - n) * 0.6931471805599453;
    double p =
        1 + r * (1 + r * (1 / 2. + r * (1 / 6. + r * (1 / 24. + r * (1 / 120. + r * (1 / 720. + r * (1 / 5040.)))))));
    i64 bits = (i64)((i32)n + 1023) << 52;
    float y = (float)(p * bit_cast<double>(bits));
    return x != x ? canonical(x) : y;
  }
};
struct Lg2 {
  static float f(float x) { return single_nan(std::log2(x)); }
};
struct Sin {
  static float f(float x) { return single_nan(std::sin(x)); }
};
struct Cos {
  static float f(float x) { return single_nan(std::cos(x)); }
};
struct Tanh {
  static float f(float x) { return single_nan(std::tanh(x)); }
};

inline float saturate(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }  // NaN becomes 0
// Flushes subnormal inputs and results, clamps to [0, 1].
template <class Op, bool FTZ, bool SAT>
struct Adjust {
  static float in(float x) { return FTZ ? flush(x) : x; }
  static float out(float x) {
    x = FTZ ? flush(x) : x;
    return SAT ? saturate(x) : x;
  }
  static float f(float a) { return out(Op::f(in(a))); }
  static float f(float a, float b) { return out(Op::f(in(a), in(b))); }
  static float f(float a, float b, float c) { return out(Op::f(in(a), in(b), in(c))); }
};

struct Flags {
  Round round = Round::None;
  bool ftz = false, sat = false, approx = false, full = false;
  Ty type = Ty::None;
};
Flags take_flags(Mods& m) {
  Flags f;
  f.round = m.round();
  f.approx = m.take("approx");
  f.full = m.take("full");
  f.ftz = m.take("ftz");
  f.sat = m.take("sat");
  f.type = m.type();
  return f;
}
Class cls(Ty t) { return t == Ty::F64 ? Class::Double : Class::Float; }

template <class Op>
Fn float_bin(const Flags& f) {
  if (f.ftz) return f.sat ? binary<Adjust<Op, true, true>, float> : binary<Adjust<Op, true, false>, float>;
  return f.sat ? binary<Adjust<Op, false, true>, float> : binary<Op, float>;
}
template <class Op>
Fn float_tern(const Flags& f) {
  if (f.ftz) return f.sat ? ternary<Adjust<Op, true, true>, float> : ternary<Adjust<Op, true, false>, float>;
  return f.sat ? ternary<Adjust<Op, false, true>, float> : ternary<Op, float>;
}
template <class Op>
Fn float_un(bool ftz) {
  return ftz ? unary<Adjust<Op, true, false>, float> : unary<Op, float>;
}
template <class Op>
Fn float_un_each(bool ftz) {
  return ftz ? unary_each<Adjust<Op, true, false>, float> : unary_each<Op, float>;
}

void emit_directed(Decoder& d, Mods& m, const Flags& f, u32 sources) {
  Inst& in = emit_plain(d, directed(m.op, f.type), cls(f.type), sources, f.type);
  in.x = f.round == Round::Zero ? 1 : f.round == Round::Down ? 2 : 3;
  in.y = (u8)(f.ftz | f.sat << 1);
}

bool is_directed(Round r) { return r == Round::Zero || r == Round::Down || r == Round::Up; }

void h_arith(Decoder& d, Mods& m) {
  Flags f = take_flags(m);
  m.finish();
  bool dbl = f.type == Ty::F64;
  if (f.approx || f.full || f.round == Round::NearAway) m.unsupported("approx");
  if (dbl && (f.ftz || f.sat)) throw PtxError(".ftz or .sat on .f64");
  u32 sources = m.op == "fma" || m.op == "mad" ? 3 : 2;
  if (is_directed(f.round)) return emit_directed(d, m, f, sources);
  Fn fn = nullptr;
  if (m.op == "add") fn = dbl ? binary<Add, double> : float_bin<Add>(f);
  if (m.op == "sub") fn = dbl ? binary<Sub, double> : float_bin<Sub>(f);
  if (m.op == "mul") fn = dbl ? binary<Mul, double> : float_bin<Mul>(f);
  if (sources == 3) fn = dbl ? ternary<Fma, double> : float_tern<Fma>(f);
  emit_plain(d, fn, cls(f.type), sources, f.type);
}

void h_div(Decoder& d, Mods& m) {
  Flags f = take_flags(m);
  m.finish();
  if (f.sat || f.round == Round::NearAway) m.unsupported("sat");
  if (is_directed(f.round)) return emit_directed(d, m, f, 2);
  Fn single = f.approx ? float_bin<DivApprox>(f) : float_bin<Div>(f);
  emit_plain(d, f.type == Ty::F64 ? binary<Div, double> : single, cls(f.type), 2, f.type);
}

void h_minmax(Decoder& d, Mods& m) {
  bool nan = m.take("NaN"), xorsign = m.take("xorsign"), abs = m.take("abs");
  Flags f;
  f.ftz = m.take("ftz");
  f.type = m.type();
  m.finish();
  bool min = m.op == "min", dbl = f.type == Ty::F64;
  if (xorsign != abs || ((xorsign || nan || f.ftz) && dbl)) throw PtxError("min or max of this form");
  Fn fn;
  if (dbl)
    fn = min ? binary<Min, double> : binary<Max, double>;
  else if (xorsign && nan)
    fn = min ? float_bin<XorSign<WithNan<Min>>>(f) : float_bin<XorSign<WithNan<Max>>>(f);
  else if (xorsign)
    fn = min ? float_bin<XorSign<Min>>(f) : float_bin<XorSign<Max>>(f);
  else if (nan)
    fn = min ? float_bin<WithNan<Min>>(f) : float_bin<WithNan<Max>>(f);
  else
    fn = min ? float_bin<Min>(f) : float_bin<Max>(f);
  if (d.count() == 4) {  // three inputs
    u32 a = d.src(d.op(1), f.type), b = d.src(d.op(2), f.type), c = d.src(d.op(3), f.type), r = d.dst(d.op(0), f.type);
    u32 t = d.scratch(size_of(f.type));
    Inst& first = d.emit(fn, cls(f.type));
    first.a = a, first.b = b, first.d = t;
    Inst& second = d.emit(fn, cls(f.type));
    second.a = t, second.b = c, second.d = r;
    return;
  }
  emit_plain(d, fn, cls(f.type), 2, f.type);
}

void h_sign(Decoder& d, Mods& m) {
  bool ftz = m.take("ftz");
  Ty t = m.type();
  m.finish();
  bool abs = m.op == "abs", dbl = t == Ty::F64;
  Fn fn = dbl ? (abs ? unary<Abs, double> : unary<Neg, double>) : abs ? float_un<Abs>(ftz) : float_un<Neg>(ftz);
  emit_plain(d, fn, cls(t), 1, t);
}

void h_copysign(Decoder& d, Mods& m) {
  Ty t = m.type();
  m.finish();
  emit_plain(d, t == Ty::F64 ? binary<Copysign, double> : binary<Copysign, float>, cls(t), 2, t);
}

void h_root(Decoder& d, Mods& m) {  // rcp, sqrt, rsqrt
  Flags f = take_flags(m);
  m.finish();
  bool dbl = f.type == Ty::F64;
  if ((f.type != Ty::F32 && !dbl) || f.sat || f.full) throw PtxError("this form of " + string(m.op));
  if (is_directed(f.round)) return emit_directed(d, m, f, 1);
  if (f.round == Round::None && !f.approx) throw PtxError("a rounding mode or .approx is missing");
  Fn fn = nullptr;
  if (m.op == "rcp") fn = dbl ? unary<Rcp, double> : float_un<Rcp>(f.ftz);
  if (m.op == "sqrt") fn = dbl ? unary<Sqrt, double> : float_un<Sqrt>(f.ftz);
  if (m.op == "rsqrt") fn = dbl ? unary<Rsqrt, double> : float_un<Rsqrt>(f.ftz);
  if (dbl && f.ftz) fn = m.op == "rcp" ? unary<RcpHigh, double> : m.op == "rsqrt" ? unary<RsqrtHigh, double> : nullptr;
  emit_plain(d, fn, cls(f.type), 1, f.type);
}

void h_function(Decoder& d, Mods& m) {  // ex2, lg2, sin, cos, tanh
  bool approx = m.take("approx"), ftz = m.take("ftz");
  Ty t = m.type();
  m.finish();
  if (!approx || t != Ty::F32) throw PtxError("this form of " + string(m.op));
  Fn fn = m.op == "ex2"   ? float_un<Ex2>(ftz)
          : m.op == "lg2" ? float_un_each<Lg2>(ftz)
          : m.op == "sin" ? float_un_each<Sin>(ftz)
          : m.op == "cos" ? float_un_each<Cos>(ftz)
                          : float_un_each<Tanh>(ftz);
  emit_plain(d, fn, cls(t), 1, t);
}
}  // namespace

void add_float_handlers(Handlers& h) {
  for (const char* s : {"#fadd", "#fsub", "#fmul", "#ffma", "#fmad"}) h[s] = h_arith;
  h["#fdiv"] = h_div;
  h["#fmin"] = h["#fmax"] = h_minmax;
  h["#fabs"] = h["#fneg"] = h_sign;
  h["#fcopysign"] = h_copysign;
  for (const char* s : {"#frcp", "#fsqrt", "#frsqrt"}) h[s] = h_root;
  for (const char* s : {"#fex2", "#flg2", "#fsin", "#fcos", "#ftanh"}) h[s] = h_function;
}
}  // namespace kw
