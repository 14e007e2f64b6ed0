// Bitwise operations, bit fields, comparison, selection and predicates.
#include "decode/emit.h"
#include "arithmetic/half.h"
#include "arithmetic/lanes.h"

namespace kw {
namespace {
struct And {
  template <class T>
  static T f(T a, T b) {
    return a & b;
  }
};
struct Or {
  template <class T>
  static T f(T a, T b) {
    return a | b;
  }
};
struct Xor {
  template <class T>
  static T f(T a, T b) {
    return a ^ b;
  }
};
struct Not {
  template <class T>
  static T f(T a) {
    return (T)~a;
  }
};
struct Cnot {
  template <class T>
  static T f(T a) {
    return a == 0;
  }
};
struct Brev {
  static u32 f(u32 a) {
    a = (a >> 1 & 0x55555555u) | (a & 0x55555555u) << 1;
    a = (a >> 2 & 0x33333333u) | (a & 0x33333333u) << 2;
    a = (a >> 4 & 0x0f0f0f0fu) | (a & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(a);
  }
  static u64 f(u64 a) { return (u64)f((u32)a) << 32 | f((u32)(a >> 32)); }
};
struct Popc {
  static u32 f(u32 a) { return (u32)__builtin_popcount(a); }
  static u32 f(u64 a) { return (u32)__builtin_popcountll(a); }
};
struct Clz {
  static u32 f(u32 a) { return a ? (u32)__builtin_clz(a) : 32; }
  static u32 f(u64 a) { return a ? (u32)__builtin_clzll(a) : 64; }
};
template <bool SHIFT>
struct Bfind {
  template <class T>
  static u32 f(T a) {
    using U = std::make_unsigned_t<T>;
    U v = std::is_signed_v<T> && a < (T)0 ? (U) ~(U)a : (U)a;
    if (v == 0) return ~0u;
    u32 pos = sizeof(T) == 8 ? 63 - (u32)__builtin_clzll(v) : 31 - (u32)__builtin_clz((u32)v);
    return SHIFT ? (u32)(sizeof(T) * 8 - 1) - pos : pos;
  }
};

// Shifts clamp their amount, as the hardware does.
template <class T>
const Inst* op_shl(Warp& w, const Inst* in) {
  const T* a = slot<T>(w, in->a);
  const u32* b = slot<u32>(w, in->b);
  put<T>(w, active(w, in), in->d, [&](int i) { return b[i] < 8 * sizeof(T) ? (T)(a[i] << b[i]) : (T)0; });
  return in + 1;
}
template <class T>
const Inst* op_shr(Warp& w, const Inst* in) {
  const T* a = slot<T>(w, in->a);
  const u32* b = slot<u32>(w, in->b);
  constexpr u32 last = 8 * sizeof(T) - 1;
  put<T>(w, active(w, in), in->d, [&](int i) {
    if constexpr (std::is_signed_v<T>)
      return (T)(a[i] >> (b[i] < last ? b[i] : last));
    else
      return b[i] <= last ? (T)(a[i] >> b[i]) : (T)0;
  });
  return in + 1;
}
// in->x: bit 0 left, bit 1 wrap
const Inst* op_shf(Warp& w, const Inst* in) {
  const u32 *a = slot<u32>(w, in->a), *b = slot<u32>(w, in->b), *c = slot<u32>(w, in->c);
  bool left = in->x & 1, wrap = in->x & 2;
  put<u32>(w, active(w, in), in->d, [&](int i) {
    u32 n = wrap ? c[i] & 31 : (c[i] < 32 ? c[i] : 32);
    u64 v = (u64)b[i] << 32 | a[i];
    return left ? (u32)((n == 32 ? v << 32 : v << n) >> 32) : (u32)(v >> n);
  });
  return in + 1;
}
// A position or length of a bit field: 32-bit fields take its low byte, 64-bit ones (which a GPU composes of shifts) all
// of it, which is then as good as 64.
template <class T>
u32 field(u32 v) {
  return sizeof(T) == 8 ? std::min(v, 255u) : v & 255;
}
template <class T>
const Inst* op_bfe(Warp& w, const Inst* in) {
  const T* a = slot<T>(w, in->a);
  const u32 *b = slot<u32>(w, in->b), *c = slot<u32>(w, in->c);
  put<T>(w, active(w, in), in->d, [&](int i) -> T {
    u32 msb = 8 * sizeof(T) - 1, pos = field<T>(b[i]), len = field<T>(c[i]);
    T sign = 0;
    if (std::is_signed_v<T> && len) sign = (T)((a[i] >> std::min(pos + len - 1, msb)) & 1);
    T r = sign ? (T)-1 : (T)0;
    if (pos > msb || len == 0) return r;
    u32 n = std::min(len, msb + 1 - pos);
    using U = std::make_unsigned_t<T>;
    U mask = n > msb ? (U) ~(U)0 : (U)(((U)1 << n) - 1);
    return (T)(((U)r & ~mask) | (((U)a[i] >> pos) & mask));
  });
  return in + 1;
}
template <class T>
const Inst* op_bfi(Warp& w, const Inst* in) {
  const T *a = slot<T>(w, in->a), *b = slot<T>(w, in->b);
  const u32 *c = slot<u32>(w, in->c), *n = slot<u32>(w, w.ext[in->ext]);
  put<T>(w, active(w, in), in->d, [&](int i) -> T {
    u32 bits = 8 * sizeof(T), pos = field<T>(c[i]), len = field<T>(n[i]);
    if (pos >= bits || len == 0) return b[i];
    len = std::min(len, bits - pos);
    T mask = (T)((len >= bits ? (T) ~(T)0 : (T)(((T)1 << len) - 1)) << pos);
    return (T)((b[i] & ~mask) | ((T)(a[i] << pos) & mask));
  });
  return in + 1;
}
const Inst* op_lop3(Warp& w, const Inst* in) {
  const u32 *a = slot<u32>(w, in->a), *b = slot<u32>(w, in->b), *c = slot<u32>(w, in->c);
  u32 t[8];
  for (int k = 0; k < 8; k++) t[k] = in->x >> k & 1 ? ~0u : 0;
  put<u32>(w, active(w, in), in->d, [&](int i) {
    u32 x = a[i], y = b[i], z = c[i];
    return (t[0] & ~x & ~y & ~z) | (t[1] & ~x & ~y & z) | (t[2] & ~x & y & ~z) | (t[3] & ~x & y & z) |
           (t[4] & x & ~y & ~z) | (t[5] & x & ~y & z) | (t[6] & x & y & ~z) | (t[7] & x & y & z);
  });
  return in + 1;
}
// in->x: mode, 0 is the general form
const Inst* op_prmt(Warp& w, const Inst* in) {
  const u32 *a = slot<u32>(w, in->a), *b = slot<u32>(w, in->b), *c = slot<u32>(w, in->c);
  u8 mode = in->x;
  put_each<u32>(w, active(w, in), in->d, [&](int i) {
    u64 v = (u64)b[i] << 32 | a[i];
    u32 r = 0, s = c[i] & 3;
    for (u32 k = 0; k < 4; k++) {
      u32 sel = c[i] >> (4 * k) & 15;
      if (mode == 1) sel = s + k;                   // f4e
      if (mode == 2) sel = (8 + s - k) & 7;         // b4e
      if (mode == 3) sel = s;                       // rc8
      if (mode == 4) sel = std::max(s, k);          // ecl
      if (mode == 5) sel = std::min(s, k);          // ecr
      if (mode == 6) sel = (k & 1) | (s & 1) << 1;  // rc16
      u32 byte = (u32)(v >> (8 * (sel & 7))) & 255;
      if (mode == 0 && sel & 8) byte = byte & 128 ? 255 : 0;
      r |= byte << (8 * k);
    }
    return r;
  });
  return in + 1;
}
// in->x: bit 0 signed, bit 1 wrap (szext) ; d = a extended from b bits
const Inst* op_szext(Warp& w, const Inst* in) {
  const u32 *a = slot<u32>(w, in->a), *b = slot<u32>(w, in->b);
  u8 x = in->x;
  put<u32>(w, active(w, in), in->d, [&](int i) {
    u32 n = x & 2 ? b[i] & 31 : std::min(b[i], 32u);
    if (n == 0) return 0u;
    u32 v = n == 32 ? a[i] : a[i] & ((1u << n) - 1);
    return x & 1 && n < 32 && v >> (n - 1) & 1 ? v | ~((1u << n) - 1) : v;
  });
  return in + 1;
}
const Inst* op_bmsk(Warp& w, const Inst* in) {  // ones from bit a, b of them; in->x: wrap
  const u32 *a = slot<u32>(w, in->a), *b = slot<u32>(w, in->b);
  bool wrap = in->x;
  put<u32>(w, active(w, in), in->d, [&](int i) {
    u32 start = wrap ? a[i] & 31 : std::min(a[i], 32u), n = wrap ? b[i] & 31 : std::min(b[i], 32u);
    return (u32)((((1ull << n) - 1) << start));
  });
  return in + 1;
}
const Inst* op_fns(Warp& w, const Inst* in) {
  const u32 *a = slot<u32>(w, in->a), *b = slot<u32>(w, in->b), *c = slot<u32>(w, in->c);
  put_each<u32>(w, active(w, in), in->d, [&](int i) {
    i32 n = (i32)c[i], step = n < 0 ? -1 : 1, found = 0;
    if (b[i] > 31) return ~0u;
    if (n == 0) return a[i] >> b[i] & 1 ? b[i] : ~0u;
    for (i32 k = (i32)b[i]; k >= 0 && k < 32; k += step)
      if (a[i] >> k & 1 && ++found == n * step) return (u32)k;
    return ~0u;
  });
  return in + 1;
}

template <class Op>
const Inst* op_pred2(Warp& w, const Inst* in) {
  set_pred(w, in->d, active(w, in),
           Op::f(pred(w, in->a) ^ (in->x & 1 ? FULL : 0), pred(w, in->b) ^ (in->x & 2 ? FULL : 0)));
  return in + 1;
}
const Inst* op_pred_not(Warp& w, const Inst* in) {
  set_pred(w, in->d, active(w, in), ~pred(w, in->a));
  return in + 1;
}

template <class T>
const Inst* op_selp(Warp& w, const Inst* in) {
  const T *a = slot<T>(w, in->a), *b = slot<T>(w, in->b);
  u32 p = pred(w, in->c) ^ (in->x ? FULL : 0);
  if constexpr (sizeof(T) == 8)
    put<T>(w, active(w, in), in->d, [&](int i) { return ((u64)p >> i) & 1 ? a[i] : b[i]; });
  else
    put<T>(w, active(w, in), in->d, [&](int i) { return (p >> i) & 1 ? a[i] : b[i]; });
  return in + 1;
}
template <class T, class C>
const Inst* op_slct(Warp& w, const Inst* in) {  // in->x: ftz, which makes a small negative number a zero
  const T *a = slot<T>(w, in->a), *b = slot<T>(w, in->b);
  const C* c = slot<C>(w, in->c);
  C least = 0;
  if constexpr (std::is_same_v<C, float>)
    if (in->x) least = -0x1.fffffcp-127f;  // the largest subnormal
  put<T>(w, active(w, in), in->d, [&](int i) { return c[i] >= least ? a[i] : b[i]; });
  return in + 1;
}

template <class Op>
Fn by_bits(Ty t) {
  int n = size_of(t);
  return n == 2 ? binary<Op, u16> : n == 4 ? binary<Op, u32> : n == 8 ? binary<Op, u64> : nullptr;
}
template <class Op>
Fn by_bits1(Ty t) {
  int n = size_of(t);
  return n == 2 ? unary<Op, u16> : n == 4 ? unary<Op, u32> : n == 8 ? unary<Op, u64> : nullptr;
}

void h_bitwise(Decoder& d, Mods& m) {
  Ty t = m.type();
  m.finish();
  int which = m.op == "and" ? 0 : m.op == "or" ? 1 : 2;
  if (t == Ty::Pred) {
    d.need(3);
    u8 x = (u8)((d.op(1).negated ? 1 : 0) | (d.op(2).negated ? 2 : 0));
    u32 a = d.pred_src(d.op(1)), b = d.pred_src(d.op(2)), p = d.pred_dst(d.op(0));
    Inst& in = d.emit(which == 0 ? op_pred2<And> : which == 1 ? op_pred2<Or> : op_pred2<Xor>, Class::Int);
    in.a = a, in.b = b, in.d = p, in.x = x;
    return;
  }
  if (!is_bits(t)) throw PtxError("a .b type is expected");
  emit_plain(d, which == 0 ? by_bits<And>(t) : which == 1 ? by_bits<Or>(t) : by_bits<Xor>(t), Class::Int, 2, t);
}

void h_not(Decoder& d, Mods& m) {
  Ty t = m.type();
  m.finish();
  if (t == Ty::Pred && m.op == "not") {
    d.need(2);
    u32 a = d.pred_src(d.op(1)), p = d.pred_dst(d.op(0));
    Inst& in = d.emit(op_pred_not, Class::Int);
    in.a = a, in.d = p;
    return;
  }
  emit_plain(d, m.op == "not" ? by_bits1<Not>(t) : by_bits1<Cnot>(t), Class::Int, 1, t);
}

// A value of type t, then others of type u32.
Inst& emit_fields(Decoder& d, Fn fn, Ty t, u32 values, u32 fields) {
  if (!fn) throw PtxError("no such operation for this type");
  d.need(1 + values + fields);
  u32 s[4] = {};
  for (u32 i = 0; i < values + fields; i++) s[i] = d.src(d.op(i + 1), i < values ? t : Ty::U32);
  u32 r = d.dst(d.op(0), t);
  Inst& in = d.emit(fn, Class::Int);
  in.a = s[0], in.b = s[1], in.c = s[2], in.d = r;
  if (values + fields == 4) in.ext = d.ext({s[3]});
  return in;
}

void h_shift(Decoder& d, Mods& m) {
  Ty t = m.type();
  m.finish();
  bool s = is_signed(t);
  int n = size_of(t);
  Fn f = m.op == "shl" ? (n == 2   ? op_shl<u16>
                          : n == 4 ? op_shl<u32>
                          : n == 8 ? op_shl<u64>
                                   : nullptr)
         : n == 2      ? (s ? op_shr<i16> : op_shr<u16>)
         : n == 4      ? (s ? op_shr<i32> : op_shr<u32>)
         : n == 8      ? (s ? op_shr<i64> : op_shr<u64>)
                       : nullptr;
  emit_fields(d, f, t, 1, 1);
}

void h_shf(Decoder& d, Mods& m) {
  bool left = m.take("l");
  if (!left && !m.take("r")) throw PtxError(".l or .r is missing");
  bool wrap = m.take("wrap");
  if (!wrap) m.take("clamp");
  if (!m.take("b32")) m.unsupported(m.peek());
  m.finish();
  emit_plain(d, op_shf, Class::Int, 3, Ty::B32).x = (u8)(left | wrap << 1);
}

void h_bfe(Decoder& d, Mods& m) {
  Ty t = m.type();
  m.finish();
  Fn f = t == Ty::U32   ? op_bfe<u32>
         : t == Ty::S32 ? op_bfe<i32>
         : t == Ty::U64 ? op_bfe<u64>
         : t == Ty::S64 ? op_bfe<i64>
                        : nullptr;
  emit_fields(d, f, t, 1, 2);
}

void h_bfi(Decoder& d, Mods& m) {
  Ty t = m.type();
  m.finish();
  emit_fields(d, t == Ty::B32 ? op_bfi<u32> : t == Ty::B64 ? op_bfi<u64> : nullptr, t, 2, 2);
}

// p = (d != 0) combined with q; in->x: 0 and, 1 or; in->y: q is negated
const Inst* op_lop3_test(Warp& w, const Inst* in) {
  const u32* a = slot<u32>(w, in->a);
  u32 set = bits_of([&](int i) { return a[i] != 0; }), q = pred(w, in->b) ^ (in->y ? FULL : 0);
  set_pred(w, in->d, active(w, in), in->x ? set | q : set & q);
  return in + 1;
}

void h_lop3_test(Decoder& d, Mods& m, bool is_or) {
  if (!m.take("b32")) m.unsupported(m.peek());
  m.finish();
  d.need(6);
  const Operand dest = d.op(0);
  if (dest.kind != Operand::Pair) throw PtxError("lop3 with a predicate needs two destinations");
  i64 table = d.immediate(d.op(4));
  bool negated = d.op(5).negated;
  u32 a = d.src(d.op(1), Ty::B32), b = d.src(d.op(2), Ty::B32), c = d.src(d.op(3), Ty::B32), q = d.pred_src(d.op(5));
  u32 r = d.dst(d.element(dest, 0), Ty::B32), p = d.pred_dst(d.element(dest, 1)), t = d.scratch(4);
  Inst& in = d.emit(op_lop3, Class::Int);
  in.a = a, in.b = b, in.c = c, in.d = t, in.x = (u8)table;
  Inst& move = d.emit(binary<Or, u32>, Class::Int);
  move.a = move.b = t, move.d = r;
  Inst& test = d.emit(op_lop3_test, Class::Int);
  test.a = t, test.b = q, test.d = p, test.x = is_or, test.y = negated;
}

void h_lop3(Decoder& d, Mods& m) {
  bool is_or = m.take("or");
  if (is_or || m.take("and")) return h_lop3_test(d, m, is_or);
  if (!m.take("b32")) m.unsupported(m.peek());
  m.finish();
  d.need(5);
  i64 table = d.immediate(d.op(4));
  u32 a = d.src(d.op(1), Ty::B32), b = d.src(d.op(2), Ty::B32), c = d.src(d.op(3), Ty::B32),
      r = d.dst(d.op(0), Ty::B32);
  Inst& in = d.emit(op_lop3, Class::Int);
  in.a = a, in.b = b, in.c = c, in.d = r, in.x = (u8)table;
}

void h_prmt(Decoder& d, Mods& m) {
  if (!m.take("b32")) m.unsupported(m.peek());
  const char* modes[] = {"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"};
  u8 mode = 0;
  for (u8 i = 0; i < 6; i++)
    if (m.take(modes[i])) mode = (u8)(i + 1);
  m.finish();
  emit_plain(d, op_prmt, Class::Int, 3, Ty::B32).x = mode;
}

void h_count(Decoder& d, Mods& m) {
  bool shift = m.take("shiftamt");
  Ty t = m.type();
  m.finish();
  bool wide = size_of(t) == 8;
  if (size_of(t) != 4 && !wide) throw PtxError("32 or 64 bits are expected");
  Fn f = nullptr;
  Ty dest = Ty::U32;
  if (m.op == "popc") f = wide ? unary<Popc, u64, u32> : unary<Popc, u32>;
  if (m.op == "clz") f = wide ? unary<Clz, u64, u32> : unary<Clz, u32>;
  if (m.op == "brev") f = wide ? unary<Brev, u64> : unary<Brev, u32>, dest = t;
  if (m.op == "bfind") {
    if (shift)
      f = t == Ty::S32   ? unary<Bfind<true>, i32, u32>
          : t == Ty::U32 ? unary<Bfind<true>, u32>
          : t == Ty::S64 ? unary<Bfind<true>, i64, u32>
                         : unary<Bfind<true>, u64, u32>;
    else
      f = t == Ty::S32   ? unary<Bfind<false>, i32, u32>
          : t == Ty::U32 ? unary<Bfind<false>, u32>
          : t == Ty::S64 ? unary<Bfind<false>, i64, u32>
                         : unary<Bfind<false>, u64, u32>;
  } else if (shift) {
    m.unsupported("shiftamt");
  }
  emit_plain(d, f, Class::Int, 1, t, dest);
}

void h_szext(Decoder& d, Mods& m) {
  bool wrap = m.take("wrap");
  if (!wrap) m.take("clamp");
  Ty t = m.type();
  m.finish();
  if (size_of(t) != 4) throw PtxError("32 bits are expected");
  emit_plain(d, op_szext, Class::Int, 2, t).x = (u8)(is_signed(t) | wrap << 1);
}

void h_bmsk(Decoder& d, Mods& m) {
  bool wrap = m.take("wrap");
  if (!wrap) m.take("clamp");
  if (!m.take("b32")) m.unsupported(m.peek());
  m.finish();
  emit_plain(d, op_bmsk, Class::Int, 2, Ty::B32).x = wrap;
}

void h_fns(Decoder& d, Mods& m) {
  m.take("b32");
  m.finish();
  emit_plain(d, op_fns, Class::Int, 3, Ty::B32);
}

void h_selp(Decoder& d, Mods& m) {
  Ty t = m.type();
  m.finish();
  d.need(4);
  bool negated = d.op(3).negated;
  u32 a = d.src(d.op(1), t), b = d.src(d.op(2), t), p = d.pred_src(d.op(3)), r = d.dst(d.op(0), t);
  int n = size_of(t);
  Fn f = n == 2 ? op_selp<u16> : n == 4 ? op_selp<u32> : n == 8 ? op_selp<u64> : nullptr;
  if (!f) throw PtxError("selp of this type");
  Inst& in = d.emit(f, Class::Int);
  in.a = a, in.b = b, in.c = p, in.d = r, in.x = negated;
}

void h_slct(Decoder& d, Mods& m) {
  bool ftz = m.take("ftz");
  Ty t = m.type(), c = m.type();
  m.finish();
  d.need(4);
  u32 a = d.src(d.op(1), t), b = d.src(d.op(2), t), s = d.src(d.op(3), c), r = d.dst(d.op(0), t);
  int n = size_of(t);
  bool fl = c == Ty::F32;
  if (!fl && c != Ty::S32) throw PtxError("slct needs .s32 or .f32");
  Fn f = n == 2   ? (fl ? op_slct<u16, float> : op_slct<u16, i32>)
         : n == 4 ? (fl ? op_slct<u32, float> : op_slct<u32, i32>)
         : n == 8 ? (fl ? op_slct<u64, float> : op_slct<u64, i32>)
                  : nullptr;
  if (!f) throw PtxError("slct of this type");
  Inst& in = d.emit(f, Class::Int);
  in.a = a, in.b = b, in.c = s, in.d = r, in.x = ftz;
}
}  // namespace

void add_compare_handlers(Handlers& h);

void add_logic_handlers(Handlers& h) {
  h["and"] = h["or"] = h["xor"] = h_bitwise;
  h["not"] = h["cnot"] = h_not;
  h["shl"] = h["shr"] = h_shift;
  h["shf"] = h_shf;
  h["bfe"] = h_bfe;
  h["bfi"] = h_bfi;
  h["lop3"] = h_lop3;
  h["prmt"] = h_prmt;
  h["popc"] = h["clz"] = h["brev"] = h["bfind"] = h_count;
  h["szext"] = h_szext;
  h["fns"] = h_fns;
  h["bmsk"] = h_bmsk;
  h["selp"] = h_selp;
  h["slct"] = h_slct;
  add_compare_handlers(h);
}
}  // namespace kw
