// Integer arithmetic, shifts and bit fields.
#include "decode/emit.h"
#include "arithmetic/lanes.h"

namespace kw {
template <class T>
using Unsigned = std::make_unsigned_t<T>;

namespace {
struct Add {
  template <class T>
  static T f(T a, T b) {
    return (T)((Unsigned<T>)a + (Unsigned<T>)b);
  }
};
struct Sub {
  template <class T>
  static T f(T a, T b) {
    return (T)((Unsigned<T>)a - (Unsigned<T>)b);
  }
};
struct Mul {
  template <class T>
  static T f(T a, T b) {
    return (T)((u64)a * (u64)b);
  }
};
template <>
u32 Mul::f(u32 a, u32 b) {
  return a * b;
}
template <>
i32 Mul::f(i32 a, i32 b) {
  return (i32)((u32)a * (u32)b);
}
template <>
u16 Mul::f(u16 a, u16 b) {
  return (u16)((u32)a * b);
}
template <>
i16 Mul::f(i16 a, i16 b) {
  return (i16)((i32)a * b);
}
struct MulHi {
  template <class T>
  static T f(T a, T b) {
    if constexpr (sizeof(T) == 8) {
      if constexpr (std::is_signed_v<T>)
        return (T)(((__int128)a * b) >> 64);
      else
        return (T)(((unsigned __int128)a * b) >> 64);
    } else if constexpr (std::is_signed_v<T>) {
      return (T)(((i64)a * (i64)b) >> (8 * sizeof(T)));
    } else {
      return (T)(((u64)a * (u64)b) >> (8 * sizeof(T)));
    }
  }
};
struct MadLo {
  template <class T>
  static T f(T a, T b, T c) {
    return Add::f<T>(Mul::f<T>(a, b), c);
  }
};
struct MadHi {
  template <class T>
  static T f(T a, T b, T c) {
    return Add::f<T>(MulHi::f<T>(a, b), c);
  }
};
struct MadHiSat {
  static i32 f(i32 a, i32 b, i32 c) {
    i64 v = (i64)MulHi::f<i32>(a, b) + c;
    return v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : (i32)v;
  }
};
// Division by zero gives all ones on the hardware; it must not trap here.
struct Div {
  template <class T>
  static T f(T a, T b) {
    if (b == 0) return (T) ~(T)0;
    if constexpr (std::is_signed_v<T>)
      if (b == (T)-1) return (T)(0 - (Unsigned<T>)a);
    return (T)(a / b);
  }
};
struct Rem {
  template <class T>
  static T f(T a, T b) {
    if (b == 0) return a;
    if constexpr (std::is_signed_v<T>)
      if (b == (T)-1) return 0;
    return (T)(a % b);
  }
};
struct Min {
  template <class T>
  static T f(T a, T b) {
    return a < b ? a : b;
  }
};
struct Max {
  template <class T>
  static T f(T a, T b) {
    return a < b ? b : a;
  }
};
struct Relu {
  template <class T>
  static T f(T a) {
    return a < 0 ? (T)0 : a;
  }
};
struct Abs {
  template <class T>
  static T f(T a) {
    return a < 0 ? (T)(0 - (Unsigned<T>)a) : a;
  }
};
struct Neg {
  template <class T>
  static T f(T a) {
    return (T)(0 - (Unsigned<T>)a);
  }
};
struct Sad {
  template <class T>
  static T f(T a, T b, T c) {
    return (T)((Unsigned<T>)c +
               (Unsigned<T>)(a < b ? (Unsigned<T>)b - (Unsigned<T>)a : (Unsigned<T>)a - (Unsigned<T>)b));
  }
};
struct AddSat {
  static i32 f(i32 a, i32 b) {
    i64 v = (i64)a + b;
    return v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : (i32)v;
  }
};
struct SubSat {
  static i32 f(i32 a, i32 b) {
    i64 v = (i64)a - b;
    return v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : (i32)v;
  }
};
template <class T>
T mul24(T a, T b, int shift) {
  i64 x = std::is_signed_v<T> ? (i64)((i32)((u32)a << 8) >> 8) : (i64)((u32)a & 0xffffff);
  i64 y = std::is_signed_v<T> ? (i64)((i32)((u32)b << 8) >> 8) : (i64)((u32)b & 0xffffff);
  return (T)((u64)(x * y) >> shift);
}
struct Mul24Lo {
  template <class T>
  static T f(T a, T b) {
    return mul24(a, b, 0);
  }
};
struct Mul24Hi {
  template <class T>
  static T f(T a, T b) {
    return mul24(a, b, 16);
  }
};
struct Mad24Hi {
  template <class T>
  static T f(T a, T b, T c) {
    return (T)((u32)mul24(a, b, 16) + (u32)c);
  }
};
struct Mad24HiSat {
  static i32 f(i32 a, i32 b, i32 c) {
    i64 v = (i64)mul24(a, b, 16) + c;
    return v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : (i32)v;
  }
};
template <class Op>
struct AtLeastZero {
  template <class T>
  static T f(T a, T b) {
    T r = Op::template f<T>(a, b);
    return r < 0 ? (T)0 : r;
  }
};
struct Mad24Lo {
  template <class T>
  static T f(T a, T b, T c) {
    return (T)((u32)mul24(a, b, 0) + (u32)c);
  }
};

template <class Op>
Fn bin(Ty t) {
  switch (t) {
    case Ty::U16:
      return binary<Op, u16>;
    case Ty::S16:
      return binary<Op, i16>;
    case Ty::U32:
      return binary<Op, u32>;
    case Ty::S32:
      return binary<Op, i32>;
    case Ty::U64:
      return binary<Op, u64>;
    case Ty::S64:
      return binary<Op, i64>;
    default:
      return nullptr;
  }
}
template <class Op>
Fn bin_each(Ty t) {
  switch (t) {
    case Ty::U16:
      return binary_each<Op, u16>;
    case Ty::S16:
      return binary_each<Op, i16>;
    case Ty::U32:
      return binary_each<Op, u32>;
    case Ty::S32:
      return binary_each<Op, i32>;
    case Ty::U64:
      return binary_each<Op, u64>;
    case Ty::S64:
      return binary_each<Op, i64>;
    default:
      return nullptr;
  }
}
template <class Op>
Fn tern(Ty t) {
  switch (t) {
    case Ty::U16:
      return ternary<Op, u16>;
    case Ty::S16:
      return ternary<Op, i16>;
    case Ty::U32:
      return ternary<Op, u32>;
    case Ty::S32:
      return ternary<Op, i32>;
    case Ty::U64:
      return ternary<Op, u64>;
    case Ty::S64:
      return ternary<Op, i64>;
    default:
      return nullptr;
  }
}
template <class Op>
Fn un_signed(Ty t) {
  return t == Ty::S16 ? unary<Op, i16> : t == Ty::S32 ? unary<Op, i32> : t == Ty::S64 ? unary<Op, i64> : nullptr;
}

// Two 16-bit numbers in one register.
template <class Op, class T>
struct Pair16 {
  static u32 f(u32 a, u32 b) {
    return (u32)(u16)Op::template f<T>((T)a, (T)b) | (u32)(u16)Op::template f<T>((T)(a >> 16), (T)(b >> 16)) << 16;
  }
};

// wide = a * b [+ c]
template <class N, class W>
const Inst* op_mul_wide(Warp& w, const Inst* in) {
  const N *a = slot<N>(w, in->a), *b = slot<N>(w, in->b);
  put<W>(w, active(w, in), in->d, [&](int i) { return (W)((W)a[i] * (W)b[i]); });
  return in + 1;
}
template <class N, class W>
const Inst* op_mad_wide(Warp& w, const Inst* in) {
  const N *a = slot<N>(w, in->a), *b = slot<N>(w, in->b);
  const W* c = slot<W>(w, in->c);
  put<W>(w, active(w, in), in->d, [&](int i) { return (W)((Unsigned<W>)((W)a[i] * (W)b[i]) + (Unsigned<W>)c[i]); });
  return in + 1;
}

// Carry chains: the carry bit of each lane lives in one predicate slot (in->ext). Kind: 0 add, 1 sub, 2 mad.lo, 3
// mad.hi, whose product is that of numbers of type M. Carries are always those of unsigned numbers T.
template <class T, int KIND, class M = T>
const Inst* op_carry(Warp& w, const Inst* in) {
  u32 m = active(w, in), carry_in = in->x & 1 ? pred(w, w.ext[in->ext]) : 0, carry = 0;
  const T *a = slot<T>(w, in->a), *b = slot<T>(w, in->b), *c = slot<T>(w, in->c);
  alignas(64) T r[LANES];
  for (int i = 0; i < LANES; i++) {
    T x = a[i], y = b[i], bit = (T)(carry_in >> i & 1);
    if (KIND == 2) x = (T)(a[i] * b[i]), y = c[i];
    if (KIND == 3) x = (T)MulHi::f<M>((M)a[i], (M)b[i]), y = c[i];
    T s;
    bool over;
    if (KIND == 1) {
      T t;
      over = __builtin_sub_overflow(x, y, &t);
      over |= __builtin_sub_overflow(t, bit, &s);
    } else {
      T t;
      over = __builtin_add_overflow(x, y, &t);
      over |= __builtin_add_overflow(t, bit, &s);
    }
    r[i] = s;
    carry |= (u32)over << i;
  }
  blend(slot<T>(w, in->d), r, m);
  if (in->x & 2) set_pred(w, w.ext[in->ext], m, carry);
  return in + 1;
}

void emit_carry(Decoder& d, Ty t, int kind, bool use, bool set) {
  bool wide = size_of(t) == 8;
  if (size_of(t) != 4 && !wide) throw PtxError("carry chain of this type");
  Fn f[5][2] = {{op_carry<u32, 0>, op_carry<u64, 0>},
                {op_carry<u32, 1>, op_carry<u64, 1>},
                {op_carry<u32, 2>, op_carry<u64, 2>},
                {op_carry<u32, 3>, op_carry<u64, 3>},
                {op_carry<u32, 3, i32>, op_carry<u64, 3, i64>}};
  Inst& in = emit_plain(d, f[kind == 3 && is_signed(t) ? 4 : kind][wide], Class::Int, kind >= 2 ? 3 : 2, t);
  in.x = (u8)((use ? 1 : 0) | (set ? 2 : 0));
  in.ext = d.carry_ext();
}

void h_add(Decoder& d, Mods& m) {
  bool sub = m.op == "sub";
  bool cc = m.take("cc"), sat = m.take("sat");
  if (m.take("u16x2") || m.take("s16x2")) {
    if (sub || sat || cc) m.unsupported("u16x2");
    m.finish();
    emit_plain(d, binary<Pair16<Add, u16>, u32>, Class::Int, 2, Ty::B32);
    return;
  }
  Ty t = m.type();
  m.finish();
  if (cc) return emit_carry(d, t, sub, false, true);
  if (sat && t != Ty::S32) throw PtxError(".sat needs .s32");
  if (sat)
    emit_plain(d, sub ? binary<SubSat, i32> : binary<AddSat, i32>, Class::Int, 2, t);
  else
    emit_plain(d, sub ? bin<Sub>(t) : bin<Add>(t), Class::Int, 2, t);
}

void h_addc(Decoder& d, Mods& m) {
  bool cc = m.take("cc");
  Ty t = m.type();
  m.finish();
  emit_carry(d, t, m.op == "subc", true, cc);
}

void emit_wide(Decoder& d, Ty t, bool mad) {
  Ty w = t == Ty::U16 ? Ty::U32 : t == Ty::S16 ? Ty::S32 : t == Ty::U32 ? Ty::U64 : t == Ty::S32 ? Ty::S64 : Ty::None;
  if (w == Ty::None) throw PtxError(".wide of this type");
  d.need(mad ? 4 : 3);
  u32 a = d.src(d.op(1), t), b = d.src(d.op(2), t), c = mad ? d.src(d.op(3), w) : 0, r = d.dst(d.op(0), w);
  Fn mul = t == Ty::U16   ? op_mul_wide<u16, u32>
           : t == Ty::S16 ? op_mul_wide<i16, i32>
           : t == Ty::U32 ? op_mul_wide<u32, u64>
                          : op_mul_wide<i32, i64>;
  Fn add = t == Ty::U16   ? op_mad_wide<u16, u32>
           : t == Ty::S16 ? op_mad_wide<i16, i32>
           : t == Ty::U32 ? op_mad_wide<u32, u64>
                          : op_mad_wide<i32, i64>;
  Inst& in = d.emit(mad ? add : mul, Class::Int);
  in.a = a;
  in.b = b;
  in.c = c;
  in.d = r;
}

void h_mul(Decoder& d, Mods& m) {
  bool mad = m.op != "mul", hi = m.take("hi"), wide = m.take("wide"), cc = m.take("cc"), sat = m.take("sat");
  if (!hi && !wide && !m.take("lo")) throw PtxError(".lo, .hi or .wide is missing");
  Ty t = m.type();
  m.finish();
  if (!is_int(t)) throw PtxError("an integer type is expected");
  if (wide) return emit_wide(d, t, mad);
  if (m.op == "madc" || cc) return emit_carry(d, t, hi ? 3 : 2, m.op == "madc", cc);
  if (sat) {
    if (!mad || !hi || t != Ty::S32) throw PtxError(".sat needs mad.hi.s32");
    emit_plain(d, ternary<MadHiSat, i32>, Class::Int, 3, t);
    return;
  }
  if (mad)
    emit_plain(d, hi ? tern<MadHi>(t) : tern<MadLo>(t), Class::Int, 3, t);
  else
    emit_plain(d, hi ? bin<MulHi>(t) : bin<Mul>(t), Class::Int, 2, t);
}

void h_mul24(Decoder& d, Mods& m) {
  bool hi = m.take("hi"), mad = m.op == "mad24", sat = mad && hi && m.take("sat");
  if (!hi) m.take("lo");
  Ty t = m.type();
  m.finish();
  bool s = t == Ty::S32;
  if ((!s && t != Ty::U32) || (sat && !s)) throw PtxError(string(m.op) + " of this form");
  if (sat)
    emit_plain(d, ternary<Mad24HiSat, i32>, Class::Int, 3, t);
  else if (mad && hi)
    emit_plain(d, s ? ternary<Mad24Hi, i32> : ternary<Mad24Hi, u32>, Class::Int, 3, t);
  else if (mad)
    emit_plain(d, s ? ternary<Mad24Lo, i32> : ternary<Mad24Lo, u32>, Class::Int, 3, t);
  else if (hi)
    emit_plain(d, s ? binary<Mul24Hi, i32> : binary<Mul24Hi, u32>, Class::Int, 2, t);
  else
    emit_plain(d, s ? binary<Mul24Lo, i32> : binary<Mul24Lo, u32>, Class::Int, 2, t);
}

void h_div(Decoder& d, Mods& m) {
  Ty t = m.type();
  m.finish();
  emit_plain(d, m.op == "div" ? bin_each<Div>(t) : bin_each<Rem>(t), Class::Int, 2, t);
}

void h_minmax(Decoder& d, Mods& m) {
  bool min = m.op == "min", relu = m.take("relu");
  for (const char* pair : {"u16x2", "s16x2"}) {
    if (!m.take(pair)) continue;
    m.finish();
    bool s = pair[0] == 's';
    if (relu && !s) throw PtxError(".relu needs signed numbers");
    if (relu) {
      emit_plain(d, min ? binary<Pair16<AtLeastZero<Min>, i16>, u32> : binary<Pair16<AtLeastZero<Max>, i16>, u32>,
                 Class::Int, 2, Ty::B32);
      return;
    }
    Fn f = min ? (s ? binary<Pair16<Min, i16>, u32> : binary<Pair16<Min, u16>, u32>)
               : (s ? binary<Pair16<Max, i16>, u32> : binary<Pair16<Max, u16>, u32>);
    emit_plain(d, f, Class::Int, 2, Ty::B32);
    return;
  }
  Ty t = m.type();
  m.finish();
  emit_plain(d, min ? bin<Min>(t) : bin<Max>(t), Class::Int, 2, t);
  if (!relu) return;
  if (t != Ty::S32) throw PtxError(".relu needs .s32");
  u32 r = d.dst(d.op(0), t);
  Inst& in = d.emit(unary<Relu, i32>, Class::Int);
  in.a = in.d = r;
}

void h_abs(Decoder& d, Mods& m) {
  Ty t = m.type();
  m.finish();
  emit_plain(d, m.op == "abs" ? un_signed<Abs>(t) : un_signed<Neg>(t), Class::Int, 1, t);
}

void h_sad(Decoder& d, Mods& m) {
  Ty t = m.type();
  m.finish();
  emit_plain(d, tern<Sad>(t), Class::Int, 3, t);
}

// dp4a and dp2a: in->x: bit 0 a signed, bit 1 b signed, bit 2 the upper half of b (dp2a)
const Inst* op_dp4a(Warp& w, const Inst* in) {
  const u32 *a = slot<u32>(w, in->a), *b = slot<u32>(w, in->b), *c = slot<u32>(w, in->c);
  u8 x = in->x;
  put<u32>(w, active(w, in), in->d, [&](int i) {
    u32 s = c[i];
    for (int k = 0; k < 32; k += 8) {
      i32 p = x & 1 ? (i32)(i8)(a[i] >> k) : (i32)(u8)(a[i] >> k),
          q = x & 2 ? (i32)(i8)(b[i] >> k) : (i32)(u8)(b[i] >> k);
      s += (u32)(p * q);
    }
    return s;
  });
  return in + 1;
}
const Inst* op_dp2a(Warp& w, const Inst* in) {
  const u32 *a = slot<u32>(w, in->a), *b = slot<u32>(w, in->b), *c = slot<u32>(w, in->c);
  u8 x = in->x;
  put<u32>(w, active(w, in), in->d, [&](int i) {
    u32 s = c[i], half = x & 4 ? b[i] >> 16 : b[i];
    for (int k = 0; k < 2; k++) {
      i32 p = x & 1 ? (i32)(i16)(a[i] >> (16 * k)) : (i32)(u16)(a[i] >> (16 * k));
      i32 q = x & 2 ? (i32)(i8)(half >> (8 * k)) : (i32)(u8)(half >> (8 * k));
      s += (u32)p * (u32)q;
    }
    return s;
  });
  return in + 1;
}

void h_dp(Decoder& d, Mods& m) {
  bool two = m.op == "dp2a", hi = two && m.take("hi");
  if (two && !hi) m.take("lo");
  Ty a = m.type(), b = m.type();
  m.finish();
  Inst& in = emit_plain(d, two ? op_dp2a : op_dp4a, Class::Int, 3, Ty::B32);
  in.x = (u8)((a == Ty::S32) | (b == Ty::S32) << 1 | hi << 2);
}
}  // namespace

// "#i": the integer forms of opcodes that floats share; see Decoder::handler.
void add_int_handlers(Handlers& h) {
  h["#iadd"] = h["#isub"] = h_add;
  h["addc"] = h["subc"] = h_addc;
  h["#imul"] = h["#imad"] = h["madc"] = h_mul;
  h["mul24"] = h["mad24"] = h_mul24;
  h["#idiv"] = h["rem"] = h_div;
  h["#imin"] = h["#imax"] = h_minmax;
  h["#iabs"] = h["#ineg"] = h_abs;
  h["sad"] = h_sad;
  h["dp4a"] = h["dp2a"] = h_dp;
}
}  // namespace kw
