// Detects 32-bit index arithmetic that overflows. At load it finds the 32-bit results that are widened into addresses. A
// watched launch keeps the exact value of each that overflowed, and faults on a memory access through it.
#include <algorithm>

#include "decode/decode.h"
#include "checks/watch.h"

namespace kw {
string_view opcode_of(string_view text) {
  if (!text.empty() && text[0] == '@') text.remove_prefix(std::min(text.find(' '), text.size()));
  while (!text.empty() && (text[0] == ' ' || text[0] == '\t')) text.remove_prefix(1);
  return text.substr(0, text.find_first_of(" \t;"));
}

namespace {
IndexOp::Kind kind_of(string_view op) {
  static const std::pair<const char*, IndexOp::Kind> table[] = {
      {"add.s32", IndexOp::Add},
      {"add.u32", IndexOp::Add},
      {"sub.s32", IndexOp::Sub},
      {"sub.u32", IndexOp::Sub},
      {"mul.lo.s32", IndexOp::Mul},
      {"mul.lo.u32", IndexOp::Mul},
      {"mad.lo.s32", IndexOp::Mad},
      {"mad.lo.u32", IndexOp::Mad},
      {"shl.b32", IndexOp::Shift},
      {"div.s32", IndexOp::Divide},
      {"rem.s32", IndexOp::Remainder},
      {"shr.s32", IndexOp::ShiftDown},
      {"and.b32", IndexOp::And},
      {"or.b32", IndexOp::Or},
      {"xor.b32", IndexOp::Xor},
      {"lop3.b32", IndexOp::Logic},
      {"bfi.b32", IndexOp::Insert},
      {"min.s32", IndexOp::Least},
      {"max.s32", IndexOp::Most},
      {"selp.b32", IndexOp::Select},
      {"selp.s32", IndexOp::Select},
      {"selp.u32", IndexOp::Select},
      {"cvt.u32.u64", IndexOp::Narrow},
      {"cvt.s32.s64", IndexOp::Narrow},
      {"cvt.u32.s64", IndexOp::Narrow},
      {"cvt.s32.u64", IndexOp::Narrow},
      {"mov.b32", IndexOp::Move},
      {"mov.u32", IndexOp::Move},
      {"mov.s32", IndexOp::Move},
      {"mul.wide.s32", IndexOp::WidenSigned},
      {"mad.wide.s32", IndexOp::WidenSigned},
      {"cvt.s64.s32", IndexOp::WidenSigned},
      {"mul.wide.u32", IndexOp::WidenUnsigned},
      {"mad.wide.u32", IndexOp::WidenUnsigned},
      {"cvt.u64.u32", IndexOp::WidenUnsigned},
  };
  for (auto& [name, kind] : table)
    if (op == name) return kind;
  return IndexOp::None;
}

bool is_wide_arithmetic(string_view op) {
  for (const char* s : {"add.s64", "add.u64", "sub.s64", "sub.u64", "mov.b64", "mov.u64", "mov.s64", "shl.b64", "or.b64", "and.b64",
                        "xor.b64", "bfi.b64", "selp.b64", "min.s64", "max.s64",
                        "mad.lo.s64", "mul.lo.s64", "cvta.to.global.u64", "cvta.global.u64"})
    if (op == s) return true;
  return false;
}

bool widens(IndexOp::Kind k) { return k == IndexOp::WidenSigned || k == IndexOp::WidenUnsigned; }

i64 apply(IndexOp::Kind k, i64 a, i64 b, i64 c) {
  __int128 r = a;
  if (k == IndexOp::Add) r = (__int128)a + b;
  if (k == IndexOp::Sub) r = (__int128)a - b;
  if (k == IndexOp::Mul) r = (__int128)a * b;
  if (k == IndexOp::Mad) r = (__int128)a * b + c;
  if (k == IndexOp::Divide && b) r = a / b;
  if (k == IndexOp::Remainder && b) r = a % b;
  if (k == IndexOp::ShiftDown) r = a >> std::min<u64>((u64)b, 63);
  if (k == IndexOp::Shift) r = (u64)b < 32 ? (__int128)a << b : 0;
  if (k == IndexOp::And) r = a & b;
  if (k == IndexOp::Or) r = a | b;
  if (k == IndexOp::Xor) r = a ^ b;
  if (k == IndexOp::Least) r = std::min(a, b);
  if (k == IndexOp::Most) r = std::max(a, b);
  constexpr __int128 most = (__int128)1 << 62;
  return (i64)std::clamp(r, -most, most);
}

// bfi: `a` goes above bit `at` of `b`, in as many bits as it needs where the field ends with the register.
i64 insert(i64 a, i64 b, u32 at, u32 bits) {
  at &= 255, bits &= 255;
  if (at > 31 || !bits) return b;
  i64 low = b & ((1ll << at) - 1), mask = (1ll << std::min(bits, 32u)) - 1;
  if (at + bits >= 32) return (i64)((u64)a << at) | low;
  return (b & ~(mask << at)) | (a & mask) << at;
}

i64 logic(i64 a, i64 b, i64 c, u8 table) {
  i64 r = 0;
  for (int k = 0; k < 8; k++)
    if (table >> k & 1) r |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
  return r;
}

// How many of a, b and c are 32-bit numbers that the result is made of.
int operands(IndexOp::Kind k) {
  if (k == IndexOp::Narrow) return 0;
  return k == IndexOp::Move ? 1 : k == IndexOp::Mad || k == IndexOp::Logic ? 3 : 2;
}
}  // namespace

// Registers may be written in several places (loops), so this looks at registers, not at the order of instructions.
void Decoder::find_index_arithmetic() {
  size_t n = kernel_.code.size();
  std::vector<IndexOp::Kind> kinds(n);
  std::vector<u8> wide(n), wanted(vregs_.size());
  kernel_.index_ops.clear();
  for (size_t i = 0; i < n; i++) {
    string_view op = opcode_of(kernel_.meta[i].text);
    kinds[i] = kernel_.code[i].imm && !widens(kind_of(op)) ? IndexOp::None : kind_of(op);
    wide[i] = is_wide_arithmetic(op);
    if (!widens(kinds[i])) continue;
    wanted[kernel_.code[i].a] = 1;
    if (op[0] == 'm') wanted[kernel_.code[i].b] = 1;
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = n; i-- > 0;) {
      const Inst& in = kernel_.code[i];
      if (kinds[i] == IndexOp::None || widens(kinds[i]) || !wanted[in.d] || vregs_[in.d].bytes != 4) continue;
      const u32 from[] = {in.a, in.b, in.c};
      for (int k = 0; k < operands(kinds[i]); k++)
        if (!wanted[from[k]]) wanted[from[k]] = 1, changed = true;
    }
  }
  std::vector<std::vector<u16>> origins(vregs_.size());
  u32 widened = 0;
  for (size_t i = 0; i < n; i++) {
    const Inst& in = kernel_.code[i];
    bool mine = widens(kinds[i]) ? widened < MAX_WIDENED : kinds[i] != IndexOp::None && wanted[in.d];
    if (!mine) continue;
    if (widens(kinds[i])) origins[in.d].push_back((u16)widened++);
    kernel_.index_ops.push_back({kinds[i], (u32)i});
  }
  auto merge = [&](u32 to, u32 from) {
    bool changed = false;
    for (u16 o : origins[from])
      if (std::find(origins[to].begin(), origins[to].end(), o) == origins[to].end())
        origins[to].push_back(o), changed = true;
    return changed;
  };
  bool changed = widened > 0;
  for (int round = 0; changed && round < 8; round++) {
    changed = false;
    for (size_t i = 0; i < n; i++) {
      const Inst& in = kernel_.code[i];
      bool mad = kinds[i] != IndexOp::None && widens(kinds[i]) && in.c;
      if (!wide[i] && !mad) continue;
      const u32 from[] = {in.a, in.b, in.c};
      for (u32 r : from)
        if (r && r != in.d && !origins[r].empty()) changed |= merge(in.d, r);
    }
  }
  if (!widened) return void(kernel_.index_ops.clear());
  kernel_.index_origins.resize(n);
  for (size_t i = 0; i < n; i++)
    if (kernel_.code[i].site) kernel_.index_origins[i] = origins[kernel_.code[i].a];
}

static const Inst* watched_index(Warp& w, const Inst* in) { return w.launch->watch->index_op(w, in); }

void Watch::swap_index_ops() {
  if (l_.kernel->index_ops.empty()) return;
  kernel_ = std::make_unique<Kernel>(*l_.kernel);
  size_t n = kernel_->code.size();
  original_.resize(n);
  index_kind_.resize(n);
  widening_.resize(n);
  u16 widened = 0;
  for (const IndexOp& op : kernel_->index_ops) {
    Inst& in = kernel_->code[op.inst];
    original_[op.inst] = in.fn;
    index_kind_[op.inst] = (u8)op.kind;
    if (widens(op.kind)) widening_[op.inst] = widened++;
    in.fn = watched_index;
  }
  l_.kernel = kernel_.get();
}

namespace {
// What a register would hold with more bits: known only where it overflowed, and only while it holds that value.
void exact_operand(const Warp& w, const WarpIndices& v, u32 offset, i64* out, u32& origin) {
  const i32* actual = slot<i32>(w, offset);
  auto known = v.exact.find(offset);
  for (int i = 0; i < LANES; i++) {
    out[i] = actual[i];
    if (known == v.exact.end() || known->second.actual[(size_t)i] != actual[i]) continue;
    out[i] = known->second.value[(size_t)i];
    if (out[i] != actual[i]) origin = known->second.origin;
  }
}

// True when no lane's result leaves 32 bits.
bool fits(const Warp& w, const Inst* in, IndexOp::Kind k, u32 m) {
  const i32 *a = slot<i32>(w, in->a), *b = slot<i32>(w, in->b), *c = slot<i32>(w, in->c);
  u64 bad = 0;
  auto each = [&](auto f) {
#pragma GCC ivdep
    for (int i = 0; i < LANES; i++) bad |= ((m >> i) & 1) ? (u64)((i64)f(i) + 0x80000000ll) >> 32 : 0;
  };
  if (k == IndexOp::Add) each([&](int i) { return (i64)a[i] + b[i]; });
  if (k == IndexOp::Sub) each([&](int i) { return (i64)a[i] - b[i]; });
  if (k == IndexOp::Mul) each([&](int i) { return (i64)a[i] * b[i]; });
  if (k == IndexOp::Mad) each([&](int i) { return (i64)a[i] * b[i] + c[i]; });
  if (k == IndexOp::Shift) each([&](int i) { return (u32)b[i] < 32 ? (i64)a[i] << b[i] : 0; });
  if (k == IndexOp::Insert) {
    const u32 *at = slot<u32>(w, in->c), *bits = slot<u32>(w, w.ext[in->ext]);
    each([&](int i) { return insert(a[i], b[i], at[i], bits[i]); });
  }
  if (k == IndexOp::Narrow) {
    const i64* wide = slot<i64>(w, in->a);
    for (int i = 0; i < LANES; i++) bad |= ((m >> i) & 1) && (i64)(i32)wide[i] != wide[i];
  }
  return !bad;
}
}  // namespace

const Inst* Watch::index_op(Warp& w, const Inst* in) {
  u32 at = (u32)(in - kernel_->code.data());
  auto k = (IndexOp::Kind)index_kind_[at];
  u32 m = active(w, in);
  if (!m || !now_) return original_[at](w, in);
  WarpIndices& v = now_->indices[w.id];
  if (!v.dirty && (widens(k) || fits(w, in, k, m))) return original_[at](w, in);
  alignas(64) i64 a[LANES], b[LANES] = {}, c[LANES] = {};
  u32 origin = at;
  if (k == IndexOp::Narrow)
    std::memcpy(a, slot<i64>(w, in->a), sizeof a);
  else
    exact_operand(w, v, in->a, a, origin);
  if (operands(k) > 1) exact_operand(w, v, in->b, b, origin);
  if (operands(k) > 2) exact_operand(w, v, in->c, c, origin);
  if (v.widened.empty()) v.widened.resize(MAX_WIDENED);
  v.dirty = overflowed = true;
  if (widens(k)) {
    WarpIndices::Widened& x = v.widened[widening_[at]];
    const i32* actual = slot<i32>(w, in->a);
    auto lost = [&](i64 exact, i32 held) { return k == IndexOp::WidenSigned ? exact != held : exact > 0xffffffffll; };
    u32 over = bits_of([&](int i) { return lost(a[i], actual[i]); }) & m, by_factor = 0;
    if (opcode_of(kernel_->meta[at].text)[0] == 'm') {  // a product: either factor may have overflowed
      const i32* factor = slot<i32>(w, in->b);
      by_factor = bits_of([&](int i) { return lost(b[i], factor[i]); }) & m & ~over;
    }
    x.over = (x.over & ~m) | over | by_factor;
    if (over) x.origin = origin, x.value = a[__builtin_ctz(over)];
    if (!over && by_factor) x.origin = origin, x.value = b[__builtin_ctz(by_factor)];
    return original_[at](w, in);
  }
  auto exact = [&](int i) -> i64 {
    if (k == IndexOp::Narrow || k == IndexOp::Select) return a[i];
    if (k == IndexOp::Insert) return insert(a[i], b[i], slot<u32>(w, in->c)[i], slot<u32>(w, w.ext[in->ext])[i]);
    return k == IndexOp::Logic ? logic(a[i], b[i], c[i], in->x) : apply(k, a[i], b[i], c[i]);
  };
  alignas(64) i32 first[LANES];  // the destination may be a source
  std::memcpy(first, slot<i32>(w, in->a), sizeof first);
  Exact e;
  e.origin = origin;
  auto old = v.exact.find(in->d);
  for (int i = 0; i < LANES; i++)
    e.value[(size_t)i] = m >> i & 1                 ? exact(i)
                         : old != v.exact.end() ? old->second.value[(size_t)i]
                                                : slot<i32>(w, in->d)[i];
  const Inst* next = original_[at](w, in);
  std::copy(slot<i32>(w, in->d), slot<i32>(w, in->d) + LANES, e.actual.begin());
  for (u32 r = k == IndexOp::Select ? m : 0; r; r &= r - 1) {
    size_t i = (size_t)__builtin_ctz(r);
    if (e.actual[i] != first[i]) e.value[i] = b[i];
  }
  v.exact[in->d] = e;
  return next;
}

void Watch::check_index(Warp& w, const Inst* in, u32 m) {
  u32 at = (u32)(in - l_.kernel->code.data());
  if (at >= l_.kernel->index_origins.size()) return;
  const WarpIndices& v = now_->indices[w.id];
  if (v.widened.empty()) return;
  for (u16 o : l_.kernel->index_origins[at]) {
    const WarpIndices::Widened& x = v.widened[o];
    if (u32 over = x.over & m)
      raise(&l_.kernel->code[x.origin], thread_of(w, __builtin_ctz(over)), "index-overflow",
            "32-bit index overflow: " + std::to_string(x.value) + " does not fit 32 bits, and an address is computed " +
                "from it (accessed on line " + std::to_string(line_of(l_, at)) + "); compute it in 64 bits");
  }
}
}  // namespace kw
