// setp and set: comparisons of every type, with boolean combination.
#include "decode/emit.h"
#include "arithmetic/half.h"
#include "arithmetic/lanes.h"

namespace kw {
namespace {
enum Cmp { Eq, Ne, Lt, Le, Gt, Ge, Equ, Neu, Ltu, Leu, Gtu, Geu, Num, Nan, CmpCount };
const char* const cmp_names[CmpCount] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                                         "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};

template <int C, class T>
[[gnu::always_inline]] inline bool test(T a, T b) {
  constexpr bool real = std::is_floating_point_v<T>;
  switch (C) {
    case Eq:
      return a == b;
    case Ne:
      return real ? (a < b || a > b) : a != b;  // ordered
    case Lt:
      return a < b;
    case Le:
      return a <= b;
    case Gt:
      return a > b;
    case Ge:
      return a >= b;
    case Equ:
      return !(a < b || a > b);
    case Neu:
      return a != b;
    case Ltu:
      return !(a >= b);
    case Leu:
      return !(a > b);
    case Gtu:
      return !(a <= b);
    case Geu:
      return !(a < b);
    case Num:
      return a == a && b == b;
    default:
      return a != a || b != b;
  }
}

template <int C, class T>
inline u32 compare(const T* a, const T* b) {
  if constexpr (sizeof(T) == 8)
    return bits_of_wide([&](int i) { return test<C>(a[i], b[i]); });
  else
    return bits_of([&](int i) { return test<C>(a[i], b[i]); });
}

template <int C, class T>
const Inst* op_setp(Warp& w, const Inst* in) {
  set_pred(w, in->d, active(w, in), compare<C>(slot<T>(w, in->a), slot<T>(w, in->b)));
  return in + 1;
}

template <int C>
const Inst* op_setp_ftz(Warp& w, const Inst* in) {
  const float *a = slot<float>(w, in->a), *b = slot<float>(w, in->b);
  set_pred(w, in->d, active(w, in), bits_of([&](int i) { return test<C>(flush(a[i]), flush(b[i])); }));
  return in + 1;
}

// Halves: in->x: bit 0 bfloat16, bit 1 ftz, bit 2 the upper half of a pair, bit 3 operands are pairs
template <int C>
const Inst* op_setp_half(Warp& w, const Inst* in) {
  alignas(64) float a[LANES], b[LANES];
  bool pair = in->x & 8;
  for (int i = 0; i < LANES; i++) {
    u16 p = pair ? (u16)(slot<u32>(w, in->a)[i] >> (in->x & 4 ? 16 : 0)) : slot<u16>(w, in->a)[i];
    u16 q = pair ? (u16)(slot<u32>(w, in->b)[i] >> (in->x & 4 ? 16 : 0)) : slot<u16>(w, in->b)[i];
    if (in->x & 2) {
      u16 e = in->x & 1 ? 0x7f80 : 0x7c00;
      if (!(p & e)) p &= 0x8000;
      if (!(q & e)) q &= 0x8000;
    }
    a[i] = in->x & 1 ? bf16_to_float(p) : half_to_float(p);
    b[i] = in->x & 1 ? bf16_to_float(q) : half_to_float(q);
  }
  set_pred(w, in->d, active(w, in), compare<C>(a, b));
  return in + 1;
}

template <template <int> class K, int... I>
Fn pick(int c, std::integer_sequence<int, I...>) {
  static const Fn table[] = {K<I>::fn...};
  return table[c];
}
template <class T>
struct Plain {
  template <int C>
  struct At {
    static constexpr Fn fn = op_setp<C, T>;
  };
};
template <int C>
struct Ftz {
  static constexpr Fn fn = op_setp_ftz<C>;
};
template <int C>
struct Half {
  static constexpr Fn fn = op_setp_half<C>;
};

Fn setp_fn(Ty t, int c, bool ftz) {
  using Ints = std::make_integer_sequence<int, 6>;
  using Reals = std::make_integer_sequence<int, CmpCount>;
  if (t == Ty::F32) return ftz ? pick<Ftz>(c, Reals{}) : pick<Plain<float>::At>(c, Reals{});
  if (t == Ty::F64) return pick<Plain<double>::At>(c, Reals{});
  if (t == Ty::F16 || t == Ty::BF16 || t == Ty::F16X2 || t == Ty::BF16X2) return pick<Half>(c, Reals{});
  if (c >= 6) throw PtxError("a float comparison of integers");
  switch (t) {
    case Ty::U16:
    case Ty::B16:
      return pick<Plain<u16>::At>(c, Ints{});
    case Ty::S16:
      return pick<Plain<i16>::At>(c, Ints{});
    case Ty::U32:
    case Ty::B32:
      return pick<Plain<u32>::At>(c, Ints{});
    case Ty::S32:
      return pick<Plain<i32>::At>(c, Ints{});
    case Ty::U64:
    case Ty::B64:
      return pick<Plain<u64>::At>(c, Ints{});
    case Ty::S64:
      return pick<Plain<i64>::At>(c, Ints{});
    default:
      throw PtxError("comparison of this type");
  }
}

template <int KIND>                                // 0 and, 1 or, 2 xor
const Inst* op_combine(Warp& w, const Inst* in) {  // in->x: bit 0 negate a, bit 1 negate b
  u32 a = pred(w, in->a) ^ (in->x & 1 ? FULL : 0), b = pred(w, in->b) ^ (in->x & 2 ? FULL : 0);
  set_pred(w, in->d, active(w, in), KIND == 0 ? a & b : KIND == 1 ? a | b : a ^ b);
  return in + 1;
}

// set: all ones or 1.0 where the predicate holds. in->imm is the value for true
template <class T>
const Inst* op_set(Warp& w, const Inst* in) {
  u32 p = pred(w, in->a), q = pred(w, in->b);
  T yes = (T)in->imm, high = (T)((u64)in->imm >> 32);  // the second half of a pair, if any
  put<T>(w, active(w, in), in->d, [&](int i) { return (T)((p >> i & 1 ? yes : (T)0) | (q >> i & 1 ? high : (T)0)); });
  return in + 1;
}

struct Comparison {
  int cmp = -1, combine = -1;
  bool ftz = false;
};

Comparison take_comparison(Mods& m) {
  Comparison c;
  for (int i = 0; i < CmpCount && c.cmp < 0; i++)
    if (m.take(cmp_names[i])) c.cmp = i;
  // The unsigned names mean the plain comparisons of unsigned types.
  const std::pair<const char*, int> unsigned_names[] = {{"lo", Lt}, {"ls", Le}, {"hi", Gt}, {"hs", Ge}};
  for (auto [name, cmp] : unsigned_names)
    if (c.cmp < 0 && m.take(name)) c.cmp = cmp;
  if (c.cmp < 0) m.unsupported(m.peek());
  const char* ops[] = {"and", "or", "xor"};
  for (int i = 0; i < 3; i++)
    if (m.take(ops[i])) c.combine = i;
  c.ftz = m.take("ftz");
  return c;
}

u8 half_flags(Ty t, bool ftz, bool high) {
  bool pair = t == Ty::F16X2 || t == Ty::BF16X2, bf = t == Ty::BF16 || t == Ty::BF16X2;
  return (u8)(bf | ftz << 1 | high << 2 | pair << 3);
}

// Emits the comparison alone into a predicate.
void emit_test(Decoder& d, const Comparison& c, Ty t, u32 a, u32 b, u32 p, bool high) {
  bool half = t == Ty::F16 || t == Ty::F16X2 || t == Ty::BF16 || t == Ty::BF16X2;
  Inst& in = d.emit(setp_fn(t, c.cmp, c.ftz), half           ? Class::Half
                                              : t == Ty::F32 ? Class::Float
                                              : t == Ty::F64 ? Class::Double
                                                             : Class::Int);
  in.a = a, in.b = b, in.d = p;
  if (half) in.x = half_flags(t, c.ftz, high);
}

void emit_combine(Decoder& d, int kind, u32 a, u32 b, bool not_a, bool not_b, u32 p) {
  Inst& in = d.emit(kind == 0 ? op_combine<0> : kind == 1 ? op_combine<1> : op_combine<2>, Class::Int);
  in.a = a, in.b = b, in.d = p;
  in.x = (u8)(not_a | not_b << 1);
}

void h_setp(Decoder& d, Mods& m) {
  Comparison c = take_comparison(m);
  Ty t = m.type();
  m.finish();
  d.need(c.combine < 0 ? 3 : 4);
  const Operand dest = d.op(0);
  bool two = dest.kind == Operand::Pair, pair = t == Ty::F16X2 || t == Ty::BF16X2;
  if (pair && !two) throw PtxError("two predicates are expected");
  u32 a = d.src(d.op(1), t), b = d.src(d.op(2), t);
  u32 p = d.pred_dst(two ? d.element(dest, 0) : dest), q = two ? d.pred_dst(d.element(dest, 1)) : 0;
  if (!two && c.combine < 0) return emit_test(d, c, t, a, b, p, false);
  u32 r = d.scratch(0), s = d.scratch(0), k = d.true_pred(), pr = d.scratch(0), qr = d.scratch(0);
  emit_test(d, c, t, a, b, r, false);
  if (pair) emit_test(d, c, t, a, b, s, true);
  bool not_k = c.combine >= 0 && d.op(3).negated;
  if (c.combine >= 0) k = d.pred_src(d.op(3));
  int kind = c.combine < 0 ? 0 : c.combine;
  // Results go through scratch predicates: a destination may also be the third operand.
  emit_combine(d, kind, r, k, false, not_k, pr);
  if (two) emit_combine(d, kind, pair ? s : r, k, !pair, not_k, qr);
  bool guard_is_p = d.guard_is(p);
  auto copy = [&](u32 from, u32 to) { emit_combine(d, 0, from, from, false, false, to); };
  if (two && guard_is_p) copy(qr, q);
  copy(pr, p);
  if (two && !guard_is_p) copy(qr, q);
}

void h_set(Decoder& d, Mods& m) {
  Comparison c = take_comparison(m);
  Ty to = m.type(), t = m.type();
  m.finish();
  d.need(c.combine < 0 ? 3 : 4);
  bool pair = t == Ty::F16X2 || t == Ty::BF16X2;
  u32 a = d.src(d.op(1), t), b = d.src(d.op(2), t), r = d.dst(d.op(0), to);
  u32 p = d.scratch(0), q = d.constant(0, 0);
  emit_test(d, c, t, a, b, p, false);
  if (pair) emit_test(d, c, t, a, b, q = d.scratch(0), true);
  if (c.combine >= 0) {
    u32 k = d.pred_src(d.op(3));
    emit_combine(d, c.combine, p, k, false, d.op(3).negated, p);
    if (pair) emit_combine(d, c.combine, q, k, false, d.op(3).negated, q);
  }
  u64 one = to == Ty::F32 ? 0x3f800000u : to == Ty::F16 ? 0x3c00 : to == Ty::BF16 ? 0x3f80 : 0xffffffffu;
  u64 yes = to == Ty::F16X2    ? 0x3c00 | 0x3c00ull << 48
            : to == Ty::BF16X2 ? 0x3f80 | 0x3f80ull << 48
            : pair             ? 0xffffull | 0xffff0000ull << 32
                               : one;
  int n = size_of(to);
  if (n != 2 && n != 4) throw PtxError("set into this type");
  Inst& in = d.emit(n == 2 ? op_set<u16> : op_set<u32>, Class::Int);
  in.a = p, in.b = q, in.d = r;
  in.imm = (i64)yes;
}

// testp: in->x: 0 finite, 1 infinite, 2 number, 3 notanumber, 4 normal, 5 subnormal
template <class T, class U>
const Inst* op_testp(Warp& w, const Inst* in) {
  const T* a = slot<T>(w, in->a);
  u32 r = 0;
  for (int i = 0; i < LANES; i++) {
    int k = std::fpclassify(a[i]);
    bool v = in->x == 0   ? k != FP_NAN && k != FP_INFINITE
             : in->x == 1 ? k == FP_INFINITE
             : in->x == 2 ? k != FP_NAN
             : in->x == 3 ? k == FP_NAN
             : in->x == 4 ? k == FP_NORMAL || k == FP_ZERO
                          : k == FP_SUBNORMAL;
    r |= (u32)v << i;
  }
  set_pred(w, in->d, active(w, in), r);
  return in + 1;
}

void h_testp(Decoder& d, Mods& m) {
  const char* names[] = {"finite", "infinite", "number", "notanumber", "normal", "subnormal"};
  int which = -1;
  for (int i = 0; i < 6; i++)
    if (m.take(names[i])) which = i;
  Ty t = m.type();
  m.finish();
  d.need(2);
  if (which < 0 || (t != Ty::F32 && t != Ty::F64)) throw PtxError("testp of this form");
  u32 a = d.src(d.op(1), t), p = d.pred_dst(d.op(0));
  Inst& in = d.emit(t == Ty::F32 ? op_testp<float, u32> : op_testp<double, u64>, Class::Float);
  in.a = a, in.d = p, in.x = (u8)which;
}
}  // namespace

void add_compare_handlers(Handlers& h) {
  h["setp"] = h_setp;
  h["set"] = h_set;
  h["testp"] = h_testp;
}
}  // namespace kw
