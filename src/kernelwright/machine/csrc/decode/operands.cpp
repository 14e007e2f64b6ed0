// Decodes operands: names, registers, constants and addresses.
#include <algorithm>

#include "decode/decode.h"
#include "decode/specials.h"

namespace kw {
namespace {
template <class T>
const Inst* op_stack_address(Warp& w, const Inst* in) {
  const u64* a = slot<u64>(w, in->a);
  put<T>(w, active(w, in), in->d, [&](int i) { return (T)(a[i] + (u64)in->imm); });
  return in + 1;
}
}  // namespace

const Operand& Decoder::op(u32 i) const {
  if (i >= ins_->count) throw PtxError("operand " + std::to_string(i + 1) + " is missing");
  return fn_->operands[ins_->first + i];
}

void Decoder::need(u32 n) const { need(n, n); }

void Decoder::need(u32 lo, u32 hi) const {
  if (ins_->count < lo || ins_->count > hi) throw PtxError("wrong number of operands");
}

u32 Decoder::new_vreg(int bytes) {
  if (vregs_.size() > 8'000'000) throw PtxError("too many registers");
  vregs_.push_back({(u8)bytes, false, {}});
  return (u32)vregs_.size() - 1;
}

u32 Decoder::scratch(int bytes) {
  u32 v = new_vreg(bytes);
  note(v, true);
  return v;
}

u32 Decoder::fixed(FixedSlot s, bool dynamic) {
  auto key = std::make_tuple((int)s.kind * 64 + (dynamic ? 32 : 0) + (s.sign ? 1024 : 0) + s.mem_bytes * 4096, s.bits,
                             (u64)s.bytes);
  auto it = pool_.find(key);
  if (it != pool_.end()) return it->second;
  u32 v = new_vreg(s.bytes);
  vregs_[v].fixed = true;
  vregs_[v].slot = s;
  vregs_[v].dynamic = dynamic;
  pool_[key] = v;
  return v;
}

u32 Decoder::constant(u64 bits, int bytes) {
  FixedSlot s{FixedSlot::Constant};
  s.bytes = (u8)bytes;
  s.bits = bytes == 0 || bytes >= 8 ? bits : bits & ((1ull << (bytes * 8)) - 1);
  return fixed(s);
}

const Decoder::Name* Decoder::find(string_view name, u32& vreg) {
  size_t digits = name.size();
  while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') digits--;
  u64 number = 0;
  bool numbered =
      digits < name.size() && name.size() - digits <= 9 && !(name[digits] == '0' && digits + 1 < name.size());
  if (numbered)
    for (size_t i = digits; i < name.size(); i++) number = number * 10 + (u64)(name[i] - '0');
  string_view prefix = name.substr(0, digits);
  for (size_t i = names_.size(); i-- > 0;) {
    const Name& n = names_[i];
    if (n.count == 0 ? n.name == name : (numbered && number < n.count && n.name == prefix)) {
      vreg = n.count ? n.first + (u32)number : n.first;
      return &n;
    }
  }
  return nullptr;
}

bool Decoder::find_symbol(string_view name, Symbol& out) {
  u32 v;
  if (const Name* n = find(name, v)) {
    if (n->type != Ty::None || n->symbol.space == Space::Reg) return false;
    out = n->symbol;
    return true;
  }
  for (size_t i = 0; i < program.module.vars.size(); i++) {
    const Variable& var = program.module.vars[i];
    if (var.name != name) continue;
    out = Symbol{var.space, 0, false, false};
    if (var.space == Space::Shared) {
      size_t before = names_.size();
      declare(*program.module.functions.data(), var, 1000000 + (u32)i);
      out = names_.back().symbol;
      names_.resize(before);
      return true;
    }
    for (const ModuleVariable& m : program.variables)
      if (m.name == name) return out.value = m.address, true;
    throw Unsupported("extern variable " + string(name));
  }
  return false;
}

int Decoder::width(const Operand& o) {
  u32 v;
  if (o.kind != Operand::Name) return -1;
  const Name* n = find(o.name, v);
  return n && n->type != Ty::None ? vregs_[v].bytes : -1;
}

u32 Decoder::src_any(const Operand& o, Ty t, int& bytes) {
  int want = size_of(t);
  if (t == Ty::Pred) throw PtxError("predicate where a value is expected");
  if (o.kind == Operand::Int) {
    bytes = want == 1 ? 2 : want;
    u64 v = (u64)o.value;
    if (t == Ty::F32) throw PtxError("integer immediate for a float");
    if (t == Ty::F64) throw PtxError("integer immediate for a float");
    if (want == 1) v = is_signed(t) ? (u64)(i64)(i8)v : (u8)v;
    return constant(v, bytes);
  }
  if (o.kind == Operand::Float) {
    bytes = want;
    double d = bit_cast<double>(o.value);
    if (want == 8) return constant((u64)o.value, 8);
    if (want == 4) return constant(o.is_double ? bit_cast<u32>((float)d) : o.count, 4);
    throw PtxError("float immediate of the wrong size");
  }
  if (o.kind != Operand::Name) throw PtxError("operand of the wrong form");
  if (o.negated) throw PtxError("'!' on a value");
  u32 v;
  const Name* n = find(o.name, v);
  if (n && n->type != Ty::None) {
    if (n->type == Ty::Pred) throw PtxError("predicate '" + string(o.name) + "' where a value is expected");
    if (o.value) throw PtxError("offset on a register");
    bytes = vregs_[v].bytes;
    if (bytes < want) throw PtxError("register '" + string(o.name) + "' is too narrow");
    note(v, false);
    return v;
  }
  bytes = want;
  if (o.name == "WARP_SZ") return constant(32, want);
  if (o.name[0] == '%') return special(o.name, t);
  Symbol s;
  if (!find_symbol(o.name, s)) {
    auto f = program.module.function_index.find(o.name);
    if (f == program.module.function_index.end()) throw PtxError("unknown name '" + string(o.name) + "'");
    if (want != 8) throw PtxError("address of a function in a narrow register");
    return constant(function_address(f->second), 8);
  }
  if (want < 4) throw PtxError("address in a narrow register");
  if (s.on_stack) {
    u32 sum = scratch(want);
    Inst& in = emit(want == 8 ? op_stack_address<u64> : op_stack_address<u32>, Class::Int);
    in.a = sp_, in.d = sum;
    in.imm = (i64)s.value + o.value;
    note(sum, false);
    return sum;
  }
  FixedSlot f{FixedSlot::Constant};
  f.bytes = (u8)want;
  f.bits = s.value + (u64)o.value;
  return fixed(f, s.dynamic);
}

u32 Decoder::src(const Operand& o, Ty t) {
  int bytes;
  u32 v = src_any(o, t, bytes);
  int want = size_of(t) == 1 ? 2 : size_of(t);
  if (bytes != want) throw PtxError("register '" + string(o.name) + "' does not fit the type");
  return v;
}

u32 Decoder::dst_any(const Operand& o, Ty t, int& bytes) {
  int want = size_of(t) == 1 ? 2 : size_of(t);
  if (o.kind == Operand::Sink) {
    bytes = want;
    return scratch(want);
  }
  u32 v;
  const Name* n = o.kind == Operand::Name ? find(o.name, v) : nullptr;
  if (!n || n->type == Ty::None) throw PtxError("the destination is no register");
  if (n->type == Ty::Pred) throw PtxError("predicate '" + string(o.name) + "' as destination of a value");
  bytes = vregs_[v].bytes;
  if (bytes < want) throw PtxError("register '" + string(o.name) + "' is too narrow");
  note(v, true);
  return v;
}

u32 Decoder::dst(const Operand& o, Ty t) {
  int bytes;
  u32 v = dst_any(o, t, bytes);
  if (bytes != (size_of(t) == 1 ? 2 : size_of(t)))
    throw PtxError("register '" + string(o.name) + "' does not fit the type");
  return v;
}

u32 Decoder::pred_src(const Operand& o) {
  if (o.kind == Operand::Int) return constant(o.value ? FULL : 0, 0);
  u32 v;
  if (o.kind == Operand::Name && o.name == "%is_explicit_cluster") {
    FixedSlot s{FixedSlot::Special};
    s.bytes = 0;
    s.bits = (u64)special_named(o.name);
    return fixed(s);
  }
  const Name* n = o.kind == Operand::Name ? find(o.name, v) : nullptr;
  if (!n || n->type != Ty::Pred) throw PtxError("'" + string(o.name) + "' is no predicate");
  note(v, false);
  return v;
}

u32 Decoder::pred_dst(const Operand& o) {
  if (o.kind == Operand::Sink) return scratch(0);
  u32 v;
  const Name* n = o.kind == Operand::Name ? find(o.name, v) : nullptr;
  if (!n || n->type != Ty::Pred) throw PtxError("'" + string(o.name) + "' is no predicate");
  note(v, true);
  return v;
}

i64 Decoder::immediate(const Operand& o) {
  if (o.kind != Operand::Int) throw PtxError("an integer constant is expected");
  return o.value;
}

u32 Decoder::special(string_view name, Ty t) {
  int which = special_named(name);
  // A name with a number at its end is a register that nobody declared; the others are special registers.
  bool numbered = name.back() >= '0' && name.back() <= '9' && name.substr(0, 3) != "%pm";
  if (which < 0 && numbered) throw PtxError("unknown register '" + string(name) + "'");
  if (which < 0) throw Unsupported(string(name));
  FixedSlot s{FixedSlot::Special};
  s.bytes = (u8)(size_of(t) == 1 ? 2 : size_of(t));
  s.bits = (u64)which;
  return fixed(s);
}

Decoder::Address Decoder::address(const Operand& o) {
  if (o.kind != Operand::Mem || o.count) throw PtxError("a plain address in brackets is expected");
  Address a;
  a.offset = o.value;
  u32 v;
  const Name* n = o.name.empty() ? nullptr : find(o.name, v);
  if (n && n->type != Ty::None) {
    a.bytes = n->type == Ty::Pred ? 0 : vregs_[v].bytes;
    if (a.bytes != 4 && a.bytes != 8) throw PtxError("address register of the wrong size");
    a.base = v;
    note(v, false);
    return a;
  }
  if (!o.name.empty()) {
    if (!find_symbol(o.name, a.symbol)) throw PtxError("unknown name '" + string(o.name) + "'");
    a.has_symbol = true;
  }
  a.base = a.symbol.on_stack ? sp_ : constant(0, 8);
  if (o.name.empty()) return a;
  a.offset += (i64)a.symbol.value;
  a.dynamic = a.symbol.dynamic;
  return a;
}

void Decoder::set_address(Inst& in, const Operand& o, Space space) {
  u32 at = (u32)(&in - kernel_.code.data());
  Address a = address(o);
  if (a.bytes == 4 && (space == Space::Global || space == Space::Generic || space == Space::Const))
    throw PtxError("32-bit address of 64-bit memory");
  if (a.has_symbol) {
    Space s = a.symbol.space;
    if (space == Space::Generic) {
      if (s == Space::Shared) a.offset += (i64)SHARED_WINDOW;
      if (s == Space::Local) a.offset += (i64)LOCAL_WINDOW;
      if (s == Space::Param) a.offset += (i64)PARAM_WINDOW;
    } else if (s != space && !(s == Space::Shared && space == Space::Cluster)) {
      throw PtxError("variable '" + string(o.name) + "' is in another space");
    }
  }
  if (a.has_symbol && (space == Space::Shared || space == Space::Cluster)) a.base = constant(0, a.bytes = 4);
  in.a = a.base;
  in.y = a.bytes == 4;
  in.imm = a.offset;
  in.site = new_site();
  if (a.dynamic) dynamic_imm_.push_back(at);
}

u32 Decoder::carry_ext() {
  if (!carry_) carry_ = new_vreg(0);
  return ext({carry_});
}

u32 Decoder::ext(const std::vector<u32>& slots) {
  u32 at = (u32)kernel_.ext.size();
  kernel_.ext.insert(kernel_.ext.end(), slots.begin(), slots.end());
  return at;
}
}  // namespace kw
