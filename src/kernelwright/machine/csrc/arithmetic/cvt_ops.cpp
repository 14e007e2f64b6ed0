// cvt: one exact function for every pair of types, and fast loops for the pairs that kernels use all the time.
#include "decode/emit.h"
#include "arithmetic/half.h"
#include "arithmetic/half_lanes.h"
#include "arithmetic/lanes.h"

namespace kw {
namespace {
struct Spec {  // how to convert; packed into Inst::imm
  Ty from, to;
  u8 round;    // as round_to: 0 nearest even, 1 zero, 2 down, 3 up, 4 nearest away
  u8 integer;  // 0 none, 1 rni, 2 rzi, 3 rmi, 4 rpi
  u8 flags;
};
constexpr u8 FTZ = 1, SAT = 2, RELU = 4, FINITE = 8;
i64 pack(const Spec& s) {
  return (i64)((u64)s.from | (u64)s.to << 8 | (u64)s.round << 16 | (u64)s.integer << 24 | (u64)s.flags << 32);
}
Spec unpack(i64 v) { return {(Ty)(v & 255), (Ty)(v >> 8 & 255), (u8)(v >> 16), (u8)(v >> 24), (u8)(v >> 32)}; }

using i128 = __int128;
i128 low_of(Ty t) { return is_signed(t) ? -((i128)1 << (8 * size_of(t) - 1)) : 0; }
i128 high_of(Ty t) { return ((i128)1 << (8 * size_of(t) - (is_signed(t) ? 1 : 0))) - 1; }

u64 float_to_int(double x, const Spec& s) {
  int bits = 8 * size_of(s.to);
  if (std::isnan(x)) return s.from != Ty::F64 && bits < 64 ? 0 : 1ull << (bits - 1);
  x = s.integer == 1   ? std::nearbyint(x)
      : s.integer == 3 ? std::floor(x)
      : s.integer == 4 ? std::ceil(x)
                       : std::trunc(x);
  if (x <= (double)low_of(s.to)) return (u64)low_of(s.to);
  if (x >= std::ldexp(1.0, bits - (is_signed(s.to) ? 1 : 0))) return (u64)high_of(s.to);
  return (u64)(i128)x;
}

// A 64-bit integer as a double rounded to odd: safe to round once more to anything shorter.
double odd_double(i128 v) {
  u64 u = (u64)(v < 0 ? -v : v);
  int shift = u >> 53 ? 64 - __builtin_clzll(u) - 53 : 0;
  if (shift > 0) {
    bool sticky = u & ((1ull << shift) - 1);
    u = (u >> shift | (sticky ? 1 : 0)) << shift;
  }
  return v < 0 ? -(double)u : (double)u;
}

float double_to_float(double x, u8 mode) {
  if (mode == 0 || std::isnan(x) || std::isinf(x)) return (float)x;
  double r = round_to(x, 23, -126, mode);
  bool inward = mode == 1 || (mode == 2 && x > 0) || (mode == 3 && x < 0);
  if (std::fabs(r) > 0x1.fffffep127) return std::copysign(inward ? 0x1.fffffep127f : INFINITY, (float)(x > 0 ? 1 : -1));
  return (float)r;
}

double int_to_double(i128 v, u8 mode) {
  double d = (double)v;
  i128 back = (i128)d;
  if (back == v || mode == 0) return d;
  if (back > v && (mode == 2 || (mode == 1 && v > 0))) return std::nextafter(d, -INFINITY);
  if (back < v && (mode == 3 || (mode == 1 && v < 0))) return std::nextafter(d, INFINITY);
  return d;
}

u64 to_float_bits(double x, const Spec& s) {
  if (s.flags & SAT) x = x > 0 ? (x < 1 ? x : 1.0) : 0.0;
  if (s.flags & RELU) x = x < 0 || (x == 0 && std::signbit(x)) ? 0.0 : x;
  bool limit = (s.flags & FINITE) && !std::isnan(x);
  switch (s.to) {
    case Ty::F16:
      return double_to_half(limit ? std::min(std::max(x, -65504.0), 65504.0) : x, s.round);
    case Ty::BF16:
      return double_to_bf16(limit ? std::min(std::max(x, -0x1.fep127), 0x1.fep127) : x, s.round);
    case Ty::F32: {
      float f = double_to_float(x, s.round);
      if (f != f) return 0x7fffffff;
      return bit_cast<u32>(s.flags & FTZ ? flush(f) : f);
    }
    default:
      return bit_cast<u64>(x);
  }
}

// .rna is a sum of whole numbers on a GPU: it keeps the payload of a NaN, and .satfinite steps back from whatever has the
// largest exponent. A sum that would run over into the sign is left a NaN here.
u32 to_tf32_away(u32 u, bool finite) {
  constexpr u32 half = 0x1000, unit = 0x2000, top = 0x7f800000;
  u32 magnitude = u & 0x7fffffff, sign = u ^ magnitude;
  u32 r = std::min(magnitude, 0x7fffffff - half) + half & ~(unit - 1);
  return sign | (finite && r >= top ? r - unit : r);
}

u32 to_tf32(float x, const Spec& s) {
  if (s.round == 4) return to_tf32_away(bit_cast<u32>(x), s.flags & FINITE);
  if (s.flags & RELU) x = x <= 0 ? 0.0f : x;
  if (s.flags & FINITE) x = x < -0x1.ffcp127f ? -0x1.ffcp127f : x > 0x1.ffcp127f ? 0x1.ffcp127f : x;
  return float_to_tf32(x, s.round);
}

u64 convert(u64 bits, const Spec& s) {
  if (is_int(s.from)) {
    int n = 8 * size_of(s.from);
    i128 v = is_signed(s.from) ? (i128)((i64)(bits << (64 - n)) >> (64 - n))
                               : (i128)(n == 64 ? bits : bits & ((1ull << n) - 1));
    if (is_int(s.to)) {
      if (s.flags & SAT) v = v < low_of(s.to) ? low_of(s.to) : v > high_of(s.to) ? high_of(s.to) : v;
      return (u64)v;
    }
    if (s.to == Ty::F64 && !(s.flags & SAT)) return bit_cast<u64>(int_to_double(v, s.round));
    return to_float_bits(odd_double(v), s);
  }
  double x = s.from == Ty::F64   ? bit_cast<double>(bits)
             : s.from == Ty::F32 ? (double)bit_cast<float>((u32)bits)
             : s.from == Ty::F16 ? (double)half_to_float((u16)bits)
                                 : (double)bf16_to_float((u16)bits);
  // A conversion to f16 takes subnormal numbers as they are: it only matters where they are rounded away from zero.
  if (s.from == Ty::F32 && (s.flags & FTZ) && s.to != Ty::F16) x = flush((float)x);
  if (is_int(s.to)) return float_to_int(x, s);
  if (s.to == Ty::TF32) return to_tf32(bit_cast<float>((u32)bits), s);
  if (s.integer)
    x = s.integer == 1   ? std::nearbyint(x)
        : s.integer == 2 ? std::trunc(x)
        : s.integer == 3 ? std::floor(x)
                         : std::ceil(x);
  return to_float_bits(x, s);
}

u64 read_lane(const Warp& w, u32 offset, int bytes, int i) {
  return bytes == 2 ? slot<u16>(w, offset)[i] : bytes == 4 ? slot<u32>(w, offset)[i] : slot<u64>(w, offset)[i];
}
void write_lane(Warp& w, u32 offset, int bytes, int i, u64 v) {
  if (bytes == 2)
    slot<u16>(w, offset)[i] = (u16)v;
  else if (bytes == 4)
    slot<u32>(w, offset)[i] = (u32)v;
  else
    slot<u64>(w, offset)[i] = v;
}

// in->x, in->y: bytes of the source and destination registers, which may be wider than the types
const Inst* op_cvt(Warp& w, const Inst* in) {
  Spec s = unpack(in->imm);
  for (u32 r = active(w, in); r; r &= r - 1) {
    int i = __builtin_ctz(r);
    u64 v = convert(read_lane(w, in->a, in->x, i), s);
    int n = 8 * size_of(s.to);
    if (is_int(s.to) && n < 64) v = is_signed(s.to) ? (u64)((i64)(v << (64 - n)) >> (64 - n)) : v & ((1ull << n) - 1);
    write_lane(w, in->d, in->y, i, v);
  }
  return in + 1;
}

template <class S, class D, class R = D>
const Inst* op_cast(Warp& w, const Inst* in) {  // the D of an S, kept in an R
  const S* a = slot<S>(w, in->a);
  put<R>(w, active(w, in), in->d, [&](int i) { return (R)(D)a[i]; });
  return in + 1;
}

const Inst* op_double_to_float(Warp& w, const Inst* in) {
  const double* a = slot<double>(w, in->a);
  put<float>(w, active(w, in), in->d, [&](int i) { return a[i] != a[i] ? bit_cast<float>(0x7fffffffu) : (float)a[i]; });
  return in + 1;
}

template <int MODE>
inline float whole(float x) {
  return MODE == 1   ? __builtin_rintf(x)
         : MODE == 2 ? __builtin_truncf(x)
         : MODE == 3 ? __builtin_floorf(x)
                     : __builtin_ceilf(x);
}

template <int MODE>
const Inst* op_float_to_s32(Warp& w, const Inst* in) {
  const float* a = slot<float>(w, in->a);
  put<i32>(w, active(w, in), in->d, [&](int i) {
    float x = whole<MODE>(a[i]);
    float c = x < -2147483648.0f ? -2147483648.0f : x > 2147483520.0f ? 2147483520.0f : x;
    i32 r = (i32)(c != c ? 0.0f : c);
    return x >= 2147483648.0f ? INT32_MAX : r;
  });
  return in + 1;
}
template <int MODE>
const Inst* op_float_whole(Warp& w, const Inst* in) {
  const float* a = slot<float>(w, in->a);
  put<float>(w, active(w, in), in->d, [&](int i) { return whole<MODE>(a[i]); });
  return in + 1;
}
template <bool BF>
const Inst* op_half_to_float(Warp& w, const Inst* in) {
  alignas(64) float f[LANES];
  to_floats<BF>(slot<u16>(w, in->a), f, LANES, false);
  blend(slot<float>(w, in->d), f, active(w, in));
  return in + 1;
}
template <bool BF>
const Inst* op_float_to_half(Warp& w, const Inst* in) {
  alignas(64) u16 h[LANES];
  from_floats<BF>(slot<float>(w, in->a), h, LANES, false);
  blend(slot<u16>(w, in->d), h, active(w, in));
  return in + 1;
}

const Inst* op_float_adjust(Warp& w, const Inst* in) {  // cvt.{ftz}.{sat}.f32.f32
  const float* a = slot<float>(w, in->a);
  bool ftz = unpack(in->imm).flags & FTZ, sat = unpack(in->imm).flags & SAT;
  put<float>(w, active(w, in), in->d, [&](int i) {
    float x = ftz ? flush(a[i]) : a[i];
    return sat ? (x > 0 ? (x < 1 ? x : 1.0f) : 0.0f) : x;
  });
  return in + 1;
}

struct Fast {
  Ty from, to;
  u8 round, integer;
  Fn fn;
};
const Fast fast_table[] = {
    {Ty::S32, Ty::S64, 0, 0, op_cast<i32, i64>},       {Ty::U32, Ty::U64, 0, 0, op_cast<u32, u64>},
    {Ty::S32, Ty::U64, 0, 0, op_cast<i32, i64>},       {Ty::U32, Ty::S64, 0, 0, op_cast<u32, u64>},
    {Ty::U64, Ty::U32, 0, 0, op_cast<u64, u32>},       {Ty::U64, Ty::S32, 0, 0, op_cast<u64, u32>},
    {Ty::S64, Ty::U32, 0, 0, op_cast<u64, u32>},       {Ty::S64, Ty::S32, 0, 0, op_cast<u64, u32>},
    {Ty::U32, Ty::U16, 0, 0, op_cast<u32, u16>},       {Ty::S32, Ty::S16, 0, 0, op_cast<u32, u16>},
    {Ty::U16, Ty::U32, 0, 0, op_cast<u16, u32>},       {Ty::S16, Ty::S32, 0, 0, op_cast<i16, i32>},
    {Ty::U32, Ty::S16, 0, 0, op_cast<u32, u16>},       {Ty::S32, Ty::U16, 0, 0, op_cast<u32, u16>},
    {Ty::U16, Ty::S32, 0, 0, op_cast<u16, u32>},       {Ty::S32, Ty::F32, 0, 0, op_cast<i32, float>},
    {Ty::U32, Ty::F32, 0, 0, op_cast<u32, float>},     {Ty::S32, Ty::F64, 0, 0, op_cast<i32, double>},
    {Ty::U32, Ty::F64, 0, 0, op_cast<u32, double>},    {Ty::F32, Ty::F64, 0, 0, op_cast<float, double>},
    {Ty::F64, Ty::F32, 0, 0, op_double_to_float},  {Ty::F32, Ty::S32, 0, 1, op_float_to_s32<1>},
    {Ty::F32, Ty::S32, 0, 2, op_float_to_s32<2>},      {Ty::F32, Ty::S32, 0, 3, op_float_to_s32<3>},
    {Ty::F32, Ty::S32, 0, 4, op_float_to_s32<4>},      {Ty::F32, Ty::F32, 0, 1, op_float_whole<1>},
    {Ty::F32, Ty::F32, 0, 2, op_float_whole<2>},       {Ty::F32, Ty::F32, 0, 3, op_float_whole<3>},
    {Ty::F32, Ty::F32, 0, 4, op_float_whole<4>},       {Ty::F16, Ty::F32, 0, 0, op_half_to_float<false>},
    {Ty::BF16, Ty::F32, 0, 0, op_half_to_float<true>}, {Ty::F32, Ty::F16, 0, 0, op_float_to_half<false>},
    {Ty::F32, Ty::BF16, 0, 0, op_float_to_half<true>},
};

// Pairs: d = {convert(a), convert(b)}. in->y: 0 halves from two f32; 1 fp8 from two f32; 2 fp8 from a pair of halves;
// 3 halves from fp8
const Inst* op_cvt_pair(Warp& w, const Inst* in) {
  Spec s = unpack(in->imm);
  bool e5m2 = s.to == Ty::E5M2X2 || s.from == Ty::E5M2X2;
  for (u32 r = active(w, in); r; r &= r - 1) {
    int i = __builtin_ctz(r);
    if (in->y == 3) {
      u16 v = slot<u16>(w, in->a)[i], lo = fp8_to_half((u8)v, e5m2), hi = fp8_to_half((u8)(v >> 8), e5m2);
      if (s.flags & RELU) lo = (lo & 0x8000) && lo != 0x7fff ? 0 : lo, hi = hi & 0x8000 ? 0 : hi;
      slot<u32>(w, in->d)[i] = (u32)lo | (u32)hi << 16;
      continue;
    }
    float hi, lo;
    if (in->y == 2) {
      u32 v = slot<u32>(w, in->a)[i];
      bool bf = s.from == Ty::BF16X2;
      hi = bf ? bf16_to_float((u16)(v >> 16)) : half_to_float((u16)(v >> 16));
      lo = bf ? bf16_to_float((u16)v) : half_to_float((u16)v);
    } else {
      hi = slot<float>(w, in->a)[i];  // the first source is the upper half
      lo = slot<float>(w, in->b)[i];
    }
    if (in->y == 0) {
      Spec one = s;
      one.from = Ty::F32;
      one.to = s.to == Ty::F16X2 ? Ty::F16 : Ty::BF16;
      slot<u32>(w, in->d)[i] = (u32)convert(bit_cast<u32>(hi), one) << 16 | (u32)convert(bit_cast<u32>(lo), one);
    } else {
      if (s.flags & RELU) hi = hi <= 0 ? 0 : hi, lo = lo <= 0 ? 0 : lo;  // -0 becomes +0, NaNs stay
      slot<u16>(w, in->d)[i] = (u16)(float_to_fp8(hi, e5m2) << 8 | float_to_fp8(lo, e5m2));
    }
  }
  return in + 1;
}

bool is_real(Ty t) { return t == Ty::F16 || t == Ty::BF16 || t == Ty::F32 || t == Ty::F64; }
Class class_of(Ty a, Ty b) {
  if (a == Ty::F64 || b == Ty::F64) return Class::Double;
  return is_int(a) && is_int(b) ? Class::Int : is_real(a) && size_of(a) == 2 ? Class::Half : Class::Float;
}

void pair_cvt(Decoder& d, Mods& m, const Spec& s) {
  bool to8 = s.to == Ty::E4M3X2 || s.to == Ty::E5M2X2, from8 = s.from == Ty::E4M3X2 || s.from == Ty::E5M2X2;
  bool to_half = s.to == Ty::F16X2 || s.to == Ty::BF16X2, from_half = s.from == Ty::F16X2 || s.from == Ty::BF16X2;
  int kind = to_half && s.from == Ty::F32 ? 0
             : to8 && s.from == Ty::F32   ? 1
             : to8 && from_half           ? 2
             : s.to == Ty::F16X2 && from8 ? 3
                                          : -1;
  if (kind < 0) throw Unsupported("cvt between these pairs of types");
  if (kind > 0 && s.round != 0) m.unsupported("rounding mode of fp8");
  if (to8 && !(s.flags & FINITE)) throw PtxError(".satfinite is missing");
  d.need(kind < 2 ? 3 : 2);
  u32 a = d.src(d.op(1), s.from), b = kind < 2 ? d.src(d.op(2), s.from) : 0, r = d.dst(d.op(0), s.to);
  Inst& in = d.emit(op_cvt_pair, Class::Half);
  in.a = a, in.b = b, in.d = r;
  in.imm = pack(s);
  in.y = (u8)kind;
}

// cvt.pack: two saturated s32 into the low half or quarter of d, what c has behind them. in->n: bits; in->x: signed
const Inst* op_cvt_pack(Warp& w, const Inst* in) {
  const i32 *a = slot<i32>(w, in->a), *b = slot<i32>(w, in->b);
  const u32* c = slot<u32>(w, in->c);
  int n = in->n;
  i32 most = (i32)((1u << (n - in->x)) - 1), least = in->x ? -most - 1 : 0;
  auto part = [&](i32 v) { return (u32)(v < least ? least : v > most ? most : v) & ((1u << n) - 1); };
  put<u32>(w, active(w, in), in->d, [&](int i) {
    u32 low = part(b[i]) | part(a[i]) << n;
    return n == 16 ? low : low | c[i] << (2 * n);
  });
  return in + 1;
}

void h_cvt_pack(Decoder& d, Mods& m) {
  if (!m.take("sat")) throw PtxError(".sat is missing");
  const std::pair<const char*, int> to[] = {{"u16", 16}, {"s16", 16}, {"u8", 8}, {"s8", 8},
                                            {"u4", 4},   {"s4", 4},   {"u2", 2}, {"s2", 2}};
  int bits = 0;
  bool is_signed = false;
  for (auto [name, n] : to)
    if (!bits && m.take(name)) bits = n, is_signed = name[0] == 's';
  if (!bits || !m.take("s32")) m.unsupported(m.peek());
  bool third = m.take("b32");
  m.finish();
  if (third != (bits < 16)) throw PtxError("cvt.pack of this form");
  d.need(third ? 4 : 3);
  u32 a = d.src(d.op(1), Ty::S32), b = d.src(d.op(2), Ty::S32);
  u32 c = third ? d.src(d.op(3), Ty::B32) : d.constant(0, 4), r = d.dst(d.op(0), Ty::B32);
  Inst& in = d.emit(op_cvt_pack, Class::Int);
  in.a = a, in.b = b, in.c = c, in.d = r, in.n = (u16)bits, in.x = is_signed;
}

void h_cvt(Decoder& d, Mods& m) {
  if (m.take("pack")) return h_cvt_pack(d, m);
  Spec s{};
  const char* whole[] = {"rni", "rzi", "rmi", "rpi"};
  for (u8 i = 0; i < 4; i++)
    if (m.take(whole[i])) s.integer = (u8)(i + 1);
  Round r = m.round();
  s.round = r == Round::Zero ? 1 : r == Round::Down ? 2 : r == Round::Up ? 3 : r == Round::NearAway ? 4 : 0;
  s.flags = (u8)((m.take("ftz") ? FTZ : 0) | (m.take("sat") ? SAT : 0) | (m.take("relu") ? RELU : 0) |
                 (m.take("satfinite") ? FINITE : 0));
  s.to = m.type();
  s.from = m.type();
  m.finish();
  if (r == Round::NearAway && s.to != Ty::TF32) m.unsupported("rna");
  auto plain = [](Ty t) { return is_int(t) || is_real(t); };
  if (s.to != Ty::TF32 && (!plain(s.to) || !plain(s.from))) return pair_cvt(d, m, s);
  if (s.to == Ty::TF32 && s.from != Ty::F32) throw PtxError("tf32 from another type than f32");
  if (is_real(s.from) && is_int(s.to) && !s.integer) throw PtxError("an integer rounding mode is missing");
  d.need(2);
  int from = 0, to = 0;
  u32 a = d.src_any(d.op(1), s.from, from), dest = d.dst_any(d.op(0), s.to == Ty::TF32 ? Ty::B32 : s.to, to);
  bool exact_width = from == size_of(s.from) && to == size_of(s.to);
  bool plain_flags = s.flags == 0 || (is_int(s.from) && is_int(s.to) && !(s.flags & SAT));
  Fn fn = op_cvt;
  if (exact_width && plain_flags)
    for (const Fast& f : fast_table)
      if (f.from == s.from && f.to == s.to && f.round == s.round && f.integer == s.integer) fn = f.fn;
  if (exact_width && s.from == Ty::F32 && s.to == Ty::F32 && !s.integer && !s.round && !(s.flags & ~(FTZ | SAT)))
    fn = op_float_adjust;
  Inst& in = d.emit(fn, class_of(s.from, s.to));
  in.a = a, in.d = dest;
  in.imm = pack(s);
  in.x = (u8)from;
  in.y = (u8)to;
}

}  // namespace

void add_cvt_handlers(Handlers& h) { h["cvt"] = h_cvt; }
}  // namespace kw
