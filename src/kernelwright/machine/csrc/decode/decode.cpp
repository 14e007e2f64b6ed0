// The decoder's frame: functions, scopes, labels, variables and the final layout. Operands are in operands.cpp.
#include "decode/decode.h"

#include <algorithm>

namespace kw {
constexpr size_t MAX_CODE = 1'000'000;

const Handlers& all_handlers() {
  static const Handlers table = [] {
    Handlers h;
    add_int_handlers(h);
    add_logic_handlers(h);
    add_float_handlers(h);
    add_half_handlers(h);
    add_cvt_handlers(h);
    add_memory_handlers(h);
    add_atomic_handlers(h);
    add_warp_handlers(h);
    add_control_handlers(h);
    add_tensor_handlers(h);
    add_call_handlers(h);
    add_video_handlers(h);
    add_texture_handlers(h);
    add_async_handlers(h);
    add_mbarrier_handlers(h);
    add_cluster_handlers(h);
    return h;
  }();
  return table;
}

Kernel Decoder::decode(const Function& entry) {
  kernel_.name = string(entry.name);
  kernel_.max_threads = entry.max_threads;
  std::copy(entry.cluster, entry.cluster + 3, kernel_.cluster);
  vregs_.push_back({4, false, {}});  // number 0 is "no slot"
  open_scope();
  u32 at = 0;
  for (const Variable& p : entry.params) {
    at = (at + p.align - 1) / p.align * p.align;
    u32 bytes = (u32)std::max<u64>(p.bytes, 1);
    kernel_.params.push_back({p.name, at, bytes, p.align});
    Name n;
    n.name = p.name;
    n.symbol = Symbol{Space::Param, at, false, true};
    names_.push_back(n);
    if (p.bytes > 32764) throw PtxError("kernel parameter '" + string(p.name) + "' is too large");
    at += bytes;
  }
  kernel_.param_bytes = at;
  stack_.push_back(&entry);
  begin_stack(entry);
  body(entry);
  stack_.pop_back();
  close_scope();
  kernel_.local_bytes = (u32)(frame_most_ + 15) / 16 * 16;
  decode_routines();
  finish();
  return std::move(kernel_);
}

void Decoder::open_scope() { scopes_.push_back({{}, fixups_.size(), names_.size(), frame_}); }

void Decoder::close_scope() {
  LabelScope scope = std::move(scopes_.back());
  scopes_.pop_back();
  size_t keep = scope.first_fixup;
  for (size_t i = scope.first_fixup; i < fixups_.size(); i++) {
    const Fixup f = fixups_[i];
    auto it = scope.labels.find(f.label);
    if (it == scope.labels.end()) {
      fixups_[keep++] = f;
    } else if (f.table < 0) {
      kernel_.code[f.inst].imm = (i64)it->second - (i64)f.inst;
    } else {
      kernel_.tables[(size_t)f.table][f.entry] = (i64)it->second - (i64)f.inst;
    }
  }
  fixups_.resize(keep);
  names_.resize(scope.first_name);
  frame_ = scope.frame;  // locals of a scope are dead behind it
  bool outermost_of_function = scopes_.empty();
  if (outermost_of_function && !fixups_.empty())
    throw PtxError("branch to an unknown label '" + string(fixups_[0].label) + "'");
}

void Decoder::body(const Function& f) {
  const Function* outer = fn_;
  fn_ = &f;
  open_scope();
  size_t unresolved = fixups_.size(), depth = scopes_.size();
  for (const Item& item : f.items) {
    fn_ = &f;
    switch (item.kind) {
      case Item::Open:
        open_scope();
        break;
      case Item::Close:
        if (scopes_.size() <= depth) throw PtxError("unbalanced scopes");
        close_scope();
        break;
      case Item::Label:
        if (!scopes_.back().labels.emplace(item.name, (u32)kernel_.code.size()).second)
          throw PtxError("label '" + string(item.name) + "' is defined twice");
        break;
      case Item::Regs: {
        const RegDecl& r = f.regs[item.index];
        Name n;
        n.name = r.name;
        n.count = r.count;
        n.type = r.type;
        n.first = (u32)vregs_.size();
        for (u32 i = 0; i < std::max(1u, r.count); i++)
          new_vreg(r.type == Ty::B8 || r.type == Ty::U8 || r.type == Ty::S8 ? 2 : size_of(r.type));
        names_.push_back(n);
        break;
      }
      case Item::Var:
        declare(f, f.vars[item.index], item.index);
        break;
      case Item::Targets: {
        Name n;
        n.name = item.name;
        n.type = Ty::None;
        n.first = item.index;
        n.symbol.space = Space::Reg;
        n.symbol.value = ~0ull;
        names_.push_back(n);
        break;
      }
      case Item::Ins:
        instruction(f.instrs[item.index]);
        break;
    }
  }
  end_of_body();  // falling off the end returns
  scopes_.back().labels["#end"] = (u32)kernel_.code.size();
  close_scope();
  if (fixups_.size() > unresolved)
    throw PtxError("branch to an unknown label '" + string(fixups_[unresolved].label) + "'");
  fn_ = outer;
}

// Opcodes that integers, floats and halves share are registered as "#i...", "#f..." and "#h...".
Handler Decoder::handler(const Mods& m, string_view opcode) const {
  auto it = handlers_.find(m.op);
  if (it != handlers_.end()) return it->second;
  string_view last = opcode.substr(opcode.rfind('.') + 1);
  Ty t = type_named(last);
  bool half = t == Ty::F16 || t == Ty::F16X2 || t == Ty::BF16 || t == Ty::BF16X2;
  string name = string(half ? "#h" : t == Ty::F32 || t == Ty::F64 ? "#f" : "#i") + string(m.op);
  it = handlers_.find(name);
  if (it != handlers_.end()) return it->second;
  string_view second = m.peek();
  bool known = false;  // the opcode, with other types
  for (const char* family : {"#i", "#f", "#h"}) known |= handlers_.count(family + string(m.op)) > 0;
  bool plain = second.empty() || (!known && type_named(second) != Ty::None);
  throw Unsupported(string(m.op) + (plain ? "" : "." + string(second)));
}

void Decoder::instruction(const Instr& in) {
  ins_ = &in;
  u32 code_begin = (u32)kernel_.code.size(), ref_begin = (u32)refs_.size();
  guard_ = in.guard.empty() ? true_pred() : 0;
  guard_flip_ = in.guard_negated ? FULL : 0;
  try {
    if (!in.guard.empty()) {
      Operand g;
      g.kind = Operand::Name;
      g.name = in.guard;
      guard_ = pred_src(g);
    }
    Mods mods(in.opcode);
    handler(mods, in.opcode)(*this, mods);
    ins_ = &in;
  } catch (const TooLarge&) {
    throw;
  } catch (const Unsupported& e) {
    string what = e.what();
    if (std::find(program.unsupported.begin(), program.unsupported.end(), what) == program.unsupported.end())
      program.unsupported.push_back(what);
    kernel_.code.resize(code_begin);
    kernel_.meta.resize(kernel_.code.size());
    flow_.resize(code_begin);
    guarded_flow_.resize(code_begin);
    while (!fixups_.empty() && fixups_.back().inst >= code_begin) fixups_.pop_back();
    while (!groups_.empty() && groups_.back().code_end > code_begin) groups_.pop_back();
    refs_.resize(ref_begin);
  } catch (const PtxError& e) {
    string text(in.text.substr(0, 160));
    throw PtxError(string(e.what()) + " in '" + text + "'");
  }
  if (kernel_.code.size() > MAX_CODE) throw TooLarge("code of more than 1000000 instructions after inlining");
  if (kernel_.code.size() > code_begin && (groups_.empty() || groups_.back().code_end <= code_begin))
    groups_.push_back({code_begin, (u32)kernel_.code.size(), ref_begin, (u32)refs_.size(), !in.guard.empty()});
}

// Bytes behind the last shared variable that are nobody's, so that leaving it shows. Whole KiB: banks and alignment stay
// those of the real layout.
void Decoder::add_shared_gap() {
  if (kernel_.shared_variables.empty()) return;
  u32 bytes = kernel_.shared_variables.back().bytes;
  kernel_.shared_gaps += std::clamp((bytes + 1023) / 1024, 1u, 8u) * 1024;
}

void Decoder::declare(const Function& f, const Variable& v, u32 index) {
  Name n;
  n.name = v.name;
  n.symbol.space = v.space;
  if (v.space == Space::Shared) {
    if (v.is_extern || v.bytes == 0) {
      n.symbol.dynamic = true;
      dynamic_align_ = std::max(dynamic_align_, v.align);
      dynamic_name_ = v.name;
    } else {
      auto key = std::make_pair((const void*)&f, index);
      auto it = shared_at_.find(key);
      if (it == shared_at_.end()) {
        u64 at = (kernel_.static_shared + v.align - 1) / v.align * v.align;
        if (at + v.bytes > (1u << 30)) throw PtxError("shared variable '" + string(v.name) + "' is too large");
        kernel_.static_shared = (u32)(at + v.bytes);
        add_shared_gap();
        at += kernel_.shared_gaps;
        kernel_.shared_variables.push_back({v.name, (u32)at, (u32)v.bytes});
        it = shared_at_.emplace(key, at).first;
      }
      n.symbol.value = it->second;
    }
  } else if (v.space == Space::Local || v.space == Space::Param) {
    n.symbol.space = Space::Local;
    n.symbol.value = local(std::max<u64>(v.bytes, 1), v.align);
    n.symbol.on_stack = routine_ >= 0;
  } else {
    throw Unsupported("module variable declared inside a function");
  }
  names_.push_back(n);
}

u32 Decoder::local(u64 bytes, u32 align) {
  frame_ = (frame_ + align - 1) / align * align;
  u64 at = frame_;
  frame_ += bytes;
  if (frame_ > 512 * 1024) throw PtxError("more than 512 KiB of local memory");
  frame_most_ = std::max(frame_most_, frame_);
  return (u32)at;
}

Inst& Decoder::emit(Fn fn, Class cls) {
  kernel_.code.emplace_back();
  Inst& in = kernel_.code.back();
  in.fn = fn;
  in.guard = guard_;
  in.flip = guard_flip_;
  Meta m;
  m.loc = ins_->loc;
  m.text = ins_->text;
  m.cls = cls;
  kernel_.meta.push_back(m);
  flow_.push_back(Next);
  guarded_flow_.push_back(guard_ != true_pred());
  return in;
}

void Decoder::finish() {
  kernel_.dynamic_offset = (kernel_.static_shared + dynamic_align_ - 1) / dynamic_align_ * dynamic_align_;
  if (!dynamic_name_.empty()) add_shared_gap();
  kernel_.dynamic_offset += kernel_.shared_gaps;
  if (!dynamic_name_.empty()) kernel_.shared_variables.push_back({dynamic_name_, kernel_.dynamic_offset, 0});
  for (u32 i : dynamic_imm_)
    if (i < kernel_.code.size()) kernel_.code[i].imm += kernel_.dynamic_offset;
  kernel_.local_bytes = (kernel_.local_bytes + 15) / 16 * 16;
  if (!program.unsupported.empty()) return;
  find_early_reads();
  find_index_arithmetic();
  find_spins();
  allocate_registers();
}

void Decoder::patch(const std::vector<u32>& offset) {
  for (Inst& in : kernel_.code) {
    in.d = offset[in.d];
    in.a = offset[in.a];
    in.b = offset[in.b];
    in.c = offset[in.c];
    in.guard = offset[in.guard];
  }
  for (u32& e : kernel_.ext) e = offset[e];
  kernel_.frame_slot = offset[sp_];
  kernel_.top_slot = offset[top_];
  for (size_t v = 0; v < vregs_.size(); v++) {
    if (!vregs_[v].fixed) continue;
    FixedSlot s = vregs_[v].slot;
    s.offset = offset[v];
    if (vregs_[v].dynamic) s.bits += kernel_.dynamic_offset;
    kernel_.fixed.push_back(s);
  }
}
}  // namespace kw
