// Video instructions: scalar ones on bytes, half-words and words (vadd ... vset), and those on two half-words or four
// bytes at once (vadd2 ... vset4). Everything is computed in 64 bits and then cut.
#include <algorithm>

#include "decode/decode.h"
#include "launch/launch.h"

namespace kw {
namespace {
enum Op : u8 { Add, Sub, Avrg, AbsDiff, Min, Max, Shl, Shr, Mad, Set };
enum Second : u8 { None, SecondAdd, SecondMin, SecondMax };

struct Video {  // what Inst::imm holds
  u8 op = Add, second = None, cmp = 0;
  bool a_signed = false, b_signed = false, d_signed = false, sat = false, wrap = false, po = false;
  u8 scale = 0;                // vmad: 0, 7 or 15
  bool minus_product = false, minus_c = false;  // vmad
  u8 a = 0, b = 0, d = 0;      // scalar: 0 the word, 1 to 4 a byte, 5 and 6 a half-word
  u8 ways = 1;                 // 2 or 4: SIMD, d is then a mask
  u8 a_pick[4], b_pick[4];     // SIMD: elements of {b, a}
};

const char* const op_names[] = {"add", "sub", "avrg", "absdiff", "min", "max", "shl", "shr", "mad", "set"};
const char* const cmp_names[] = {"eq", "ne", "lt", "le", "gt", "ge"};
const char* const selectors[] = {"", "b0", "b1", "b2", "b3", "h0", "h1"};

i64 extend(u64 v, int bits, bool is_signed) {
  v &= (1ull << bits) - 1;
  return is_signed && v >> (bits - 1) ? (i64)v - (i64)(1ull << bits) : (i64)v;
}
i64 part(u32 v, u8 selector, bool is_signed) {
  if (selector == 0) return extend(v, 32, is_signed);
  if (selector <= 4) return extend(v >> (8 * (selector - 1)), 8, is_signed);
  return extend(v >> (16 * (selector - 5)), 16, is_signed);
}
i64 clamp(i64 v, int bits, bool is_signed) {
  i64 most = (1ll << (bits - (is_signed ? 1 : 0))) - 1, least = is_signed ? -most - 1 : 0;
  return std::min(std::max(v, least), most);
}
bool compare(u8 cmp, i64 a, i64 b) {
  const bool results[] = {a == b, a != b, a < b, a <= b, a > b, a >= b};
  return results[cmp];
}

i64 combine(const Video& v, i64 a, i64 b) {
  switch (v.op) {
    case Add:
      return a + b;
    case Sub:
      return a - b;
    case Avrg:
      return (a + b + (a + b >= 0 ? 1 : 0)) >> 1;
    case AbsDiff:
      return a > b ? a - b : b - a;
    case Min:
      return std::min(a, b);
    case Max:
      return std::max(a, b);
    case Shl:
      b = v.wrap ? b & 31 : std::min<i64>(b, 32);
      return (i64)((u64)a << b);
    case Shr:
      b = v.wrap ? b & 31 : std::min<i64>(b, 32);
      return a >> b;
    default:
      return compare(v.cmp, a, b);
  }
}

u32 multiply(const Video& v, i64 a, i64 b, u32 c) {
  // What is shifted afterwards is taken as a signed number, of whatever type it is.
  __int128 product = (__int128)a * b, last = v.d_signed || v.scale ? (__int128)(i32)c : (__int128)c;
  __int128 t = (v.minus_product ? -product : product) + (v.minus_c ? -last : last) + (v.po ? 1 : 0);
  t >>= v.scale;
  if (!v.sat) return (u32)t;
  __int128 most = v.d_signed ? INT32_MAX : UINT32_MAX, least = v.d_signed ? INT32_MIN : 0;
  return (u32)(t < least ? least : t > most ? most : t);
}

// Whether a result is smaller than the operand that .min and .max compare it with, as an H200 sees it: an absolute
// difference has no sign, and unsigned sums and differences are compared with at most 2^31.
bool precedes(const Video& v, u32 r, u32 c) {
  if (v.op == AbsDiff && v.d_signed) return (i64)r < (i64)(i32)c;
  if (v.d_signed) return (i32)r < (i32)c;
  return v.op == Add || v.op == Sub ? r < std::min(c, 0x80000000u) : r < c;
}

u32 scalar(const Video& v, u32 a, u32 b, u32 c) {
  i64 x = part(a, v.a, v.a_signed), y = part(b, v.b, v.b_signed);
  if (v.op == Mad) return multiply(v, x, y, c);
  i64 t = combine(v, x, y);
  // An unsigned word is only held at zero from below: what is beyond 32 bits is lost.
  if (v.sat) t = v.d == 0 && !v.d_signed ? std::max<i64>(t, 0) : clamp(t, v.d == 0 ? 32 : v.d <= 4 ? 8 : 16, v.d_signed);
  u32 r = (u32)t;
  if (v.second == SecondAdd) return r + c;
  if (v.second) return precedes(v, r, c) == (v.second == SecondMin) ? r : c;
  if (v.d == 0) return r;
  u32 shift = v.d <= 4 ? 8u * (v.d - 1u) : 16u * (v.d - 5u), mask = (v.d <= 4 ? 0xffu : 0xffffu) << shift;
  return (c & ~mask) | (r << shift & mask);
}

u32 simd(const Video& v, u32 a, u32 b, u32 c) {
  int bits = 32 / v.ways;
  u64 both = (u64)b << 32 | a;
  u32 sum = c, merged = 0, ones = (u32)((1ull << bits) - 1);
  for (int i = 0; i < v.ways; i++) {
    i64 x = extend(both >> (bits * v.a_pick[i]), bits, v.a_signed);
    i64 y = extend(both >> (bits * v.b_pick[i]), bits, v.b_signed);
    i64 t = combine(v, x, y);
    if (v.sat) t = clamp(t, bits, v.d_signed);
    bool chosen = v.d >> i & 1;
    if (chosen) sum += (u32)t;
    merged |= ((chosen ? (u32)t : c >> (bits * i)) & ones) << (bits * i);
  }
  return v.second ? sum : merged;
}

const Inst* op_video(Warp& w, const Inst* in) {
  Video v;
  std::memcpy(static_cast<void*>(&v), w.launch->kernel->tables[(size_t)in->imm].data(), sizeof v);
  const u32 *a = slot<u32>(w, in->a), *b = slot<u32>(w, in->b), *c = slot<u32>(w, in->c);
  if (v.ways == 1)
    put_each<u32>(w, active(w, in), in->d, [&](int i) { return scalar(v, a[i], b[i], c[i]); });
  else
    put_each<u32>(w, active(w, in), in->d, [&](int i) { return simd(v, a[i], b[i], c[i]); });
  return in + 1;
}

// Splits a selector off an operand: "%r1.b0" is register %r1 and "b0".
Operand without_selector(const Operand& o, string_view& selector) {
  Operand plain = o;
  selector = {};
  if (o.kind != Operand::Name) return plain;
  size_t dot = o.name.rfind('.');
  if (dot == string_view::npos || o.name.substr(0, dot).find('.') != string_view::npos) return plain;
  string_view tail = o.name.substr(dot + 1);
  if (tail.empty() || (tail[0] != 'b' && tail[0] != 'h')) return plain;  // %tid.x has none
  selector = tail;
  plain.name = o.name.substr(0, dot);
  return plain;
}

u8 scalar_selector(string_view s) {
  for (u8 i = 0; i < 7; i++)
    if (s == selectors[i]) return i;
  throw PtxError("unknown selector '" + string(s) + "'");
}

// ".h31" or ".b7210": one digit an element, the last one for element 0.
void pick_elements(string_view s, u8 ways, u8 first, u8* out) {
  for (u8 i = 0; i < ways; i++) out[i] = (u8)(first + i);
  if (s.empty()) return;
  if (s.size() != (size_t)ways + 1 || s[0] != (ways == 2 ? 'h' : 'b')) throw PtxError("unknown selector");
  for (u8 i = 0; i < ways; i++) {
    char digit = s[s.size() - 1 - i];
    if (digit < '0' || digit >= '0' + 2 * ways) throw PtxError("unknown selector '" + string(s) + "'");
    out[i] = (u8)(digit - '0');
  }
}

u8 element_mask(string_view s, u8 ways) {
  if (s.empty()) return (u8)((1 << ways) - 1);
  u8 mask = 0;
  for (char digit : s.substr(1)) {
    if (s[0] != (ways == 2 ? 'h' : 'b') || digit < '0' || digit >= '0' + ways) throw PtxError("unknown mask");
    mask |= (u8)(1 << (digit - '0'));
  }
  return mask;
}

Video take_video(Mods& m) {
  Video v;
  string_view name = m.op.substr(1);
  if (name.back() == '2' || name.back() == '4') v.ways = (u8)(name.back() - '0'), name.remove_suffix(1);
  while (name != op_names[v.op]) v.op++;
  Ty types[3] = {Ty::U32, Ty::U32, Ty::U32};
  for (int i = v.op == Set ? 1 : 0; i < 3; i++) {
    types[i] = m.type();
    if (types[i] != Ty::U32 && types[i] != Ty::S32) throw PtxError(string(m.op) + " of this type");
  }
  v.d_signed = types[0] == Ty::S32;
  v.a_signed = types[1] == Ty::S32;
  v.b_signed = types[2] == Ty::S32;
  bool compared = false;
  for (u8 i = 0; v.op == Set && i < 6; i++)
    if (m.take(cmp_names[i])) v.cmp = i, compared = true;
  if (v.op == Set && !compared) m.unsupported(m.peek());
  if (v.op != Set) v.sat = m.take("sat");
  if (v.op == Shl || v.op == Shr) {
    v.wrap = m.take("wrap");
    if (!v.wrap && !m.take("clamp")) throw PtxError(".clamp or .wrap is missing");
    if (v.op == Shl && v.sat) m.unsupported("sat");  // a GPU does not saturate to what the shift would give
  }
  if (v.op == Mad) {
    v.po = m.take("po");
    v.scale = m.take("shr7") ? 7 : m.take("shr15") ? 15 : 0;
  } else {
    v.second = m.take("add") ? SecondAdd : None;
    if (v.ways == 1 && !v.second) v.second = m.take("min") ? SecondMin : m.take("max") ? SecondMax : None;
  }
  if (v.ways > 1 && v.sat && v.second) throw PtxError(".sat with .add");
  m.finish();
  return v;
}

void h_video(Decoder& d, Mods& m) {
  Video v = take_video(m);
  d.need(3, 4);
  string_view ds, as, bs;
  Operand to = without_selector(d.op(0), ds), a = without_selector(d.op(1), as), b = without_selector(d.op(2), bs);
  bool third = d.count() == 4;
  if (to.minus) throw PtxError("'-' on a destination");
  v.minus_product = a.minus != b.minus;
  v.minus_c = third && d.op(3).minus;
  if (v.minus_product && v.minus_c) throw PtxError("only the product or the last operand can be negated");
  if (v.ways == 1) {
    v.d = scalar_selector(ds), v.a = scalar_selector(as), v.b = scalar_selector(bs);
    if (v.op != Mad && third != (v.second || v.d)) throw PtxError("wrong number of operands");
    if (v.second && v.d) throw PtxError("a selector of the destination with a second operation");
  } else {
    v.d = element_mask(ds, v.ways);
    pick_elements(as, v.ways, 0, v.a_pick);
    pick_elements(bs, v.ways, v.ways, v.b_pick);
  }
  if (!third && (v.op == Mad || v.ways > 1)) throw PtxError("wrong number of operands");
  u32 x = d.src(a, Ty::B32), y = d.src(b, Ty::B32), z = third ? d.src(d.op(3), Ty::B32) : d.constant(0, 4);
  u32 r = d.dst(to, Ty::B32);
  Inst& in = d.emit(op_video, Class::Int);
  in.a = x, in.b = y, in.c = z, in.d = r;
  in.imm = (i64)d.kernel().tables.size();
  std::vector<i64> words((sizeof v + 7) / 8);
  std::memcpy(words.data(), &v, sizeof v);
  d.kernel().tables.push_back(std::move(words));
}
}  // namespace

void add_video_handlers(Handlers& h) {
  for (const char* s : {"vadd", "vsub", "vabsdiff", "vmin", "vmax", "vshl", "vshr", "vmad", "vset"}) h[s] = h_video;
  for (const char* s : {"vadd2", "vsub2", "vavrg2", "vabsdiff2", "vmin2", "vmax2", "vset2"}) h[s] = h_video;
  for (const char* s : {"vadd4", "vsub4", "vavrg4", "vabsdiff4", "vmin4", "vmax4", "vset4"}) h[s] = h_video;
}
}  // namespace kw
