// Branches, calls, returns and traps.
#include <algorithm>

#include "copies/async.h"
#include "decode/specials.h"

namespace kw {
namespace {
const Inst* op_bra(Warp& w, const Inst* in) {
  u32 taken = active(w, in), rest = w.mask & ~taken;
  close_segment(w, in);
  const Inst* target = in + in->imm;
  if (!rest) return jump(w, in, target);
  if (!taken) return jump(w, in, in + 1);
  w.launch->count.divergent++;
  bool forward = target > in;  // the lower address runs first
  push_split(w, forward ? target : in + 1, forward ? taken : rest, Wait::Run);
  w.mask = forward ? rest : taken;
  return jump(w, in, forward ? in + 1 : target);
}

const Inst* op_brx(Warp& w, const Inst* in) {
  u32 m = active(w, in), rest = w.mask & ~m;
  const auto& table = w.launch->kernel->tables[(size_t)in->imm];
  const u32* index = slot<u32>(w, in->a);
  close_segment(w, in);
  if (rest) push_split(w, in + 1, rest, Wait::Run);
  while (m) {
    int lane = __builtin_ctz(m);
    u32 v = index[lane], same = 0;
    if (v >= table.size())
      raise(in, thread_of(w, lane), "trap",
            "brx.idx with index " + std::to_string(v) + " outside its " + std::to_string(table.size()) + " targets");
    for (u32 r = m; r; r &= r - 1)
      if (index[__builtin_ctz(r)] == v) same |= r & -r;
    m &= ~same;
    push_split(w, in + table[v], same, Wait::Run);
  }
  w.mask = 0;
  w.event = Event::Blocked;
  return STOP;
}

const Inst* op_exit(Warp& w, const Inst* in) {
  u32 gone = active(w, in);
  close_segment(w, in);
  w.live &= ~gone;
  w.mask &= ~gone;
  w.block->live -= (u32)__builtin_popcount(gone);
  if (gone) {
    leave_copies(w, gone);
    leave_cluster(w, gone);
    if (!w.block->live) leave_block(*w.block->resident);
    release_syncs(w);
    check_barriers(*w.launch, *w.block);
  }
  if (w.mask) {
    w.segment = in + 1;
    return in + 1;
  }
  w.event = Event::Exit;
  return STOP;
}

const Inst* op_trap(Warp& w, const Inst* in) {
  u32 m = active(w, in);
  if (!m) return in + 1;
  string what = in->x ? "breakpoint (brkpt)" : "the kernel called trap";
  for (const FixedSlot& s : w.launch->kernel->fixed)
    if (s.kind == FixedSlot::Special && special_is_workspace((int)s.bits) && !w.launch->cooperative)
      what += " (this_grid().sync() needs a cooperative launch: cudaLaunchCooperativeKernel)";
  raise(in, thread_of(w, __builtin_ctz(m)), "trap", what);
  return in + 1;
}

const Inst* op_nothing(Warp&, const Inst* in) { return in + 1; }

const Inst* op_nanosleep(Warp& w, const Inst* in) {
  if (active(w, in)) give_way(w);
  return in + 1;
}

void h_bra(Decoder& d, Mods& m) {
  m.take("uni");
  m.finish();
  d.need(1);
  d.branch(d.op(0).name);
}

void h_brx(Decoder& d, Mods& m) {
  if (!m.take("idx")) m.unsupported(m.peek());
  m.take("uni");
  m.finish();
  d.need(2);
  u32 index = d.src(d.op(0), Ty::U32);
  d.branch_table(d.op(1).name, index);
}

void h_ret(Decoder& d, Mods& m) {
  m.take("uni");
  m.finish();
  d.leave_function();
}

void h_exit(Decoder& d, Mods& m) {
  m.finish();
  d.exit();
}

void h_trap(Decoder& d, Mods& m) {
  m.finish();
  d.emit(op_trap, Class::Control).x = m.op == "brkpt";
}

void h_call(Decoder& d, Mods& m) { d.call(m); }

void h_nanosleep(Decoder& d, Mods& m) {
  m.take("u32");
  m.finish();
  d.need(1);
  d.src(d.op(0), Ty::U32);
  d.kernel().may_wait = true;
  d.emit(op_nanosleep, Class::Control);
}

void h_nothing(Decoder& d, Mods& m) {  // hints without effect on results
  if (m.op == "griddepcontrol") m.take("launch_dependents"), m.take("wait");
  if (m.op == "pmevent") m.take("mask");
  m.finish();
  d.emit(op_nothing, Class::Control);
}
}  // namespace

void Decoder::branch(string_view label) {
  u32 at = (u32)kernel_.code.size();
  emit(op_bra, Class::Control);
  flow_[at] = Branch;
  if (!guarded_flow_[at]) flow_[at] = Jump;
  fixups_.push_back({at, label, -1, 0});
}

void Decoder::branch_table(string_view targets, u32 index) {
  u32 v, at = (u32)kernel_.code.size();
  const Name* n = find(targets, v);
  if (!n || n->symbol.value != ~0ull || n->type != Ty::None) throw PtxError("unknown branch targets");
  Inst& in = emit(op_brx, Class::Control);
  in.a = index;
  in.n = 1;
  in.imm = (i64)kernel_.tables.size();
  flow_[at] = guarded_flow_[at] ? Branch : Jump;
  const auto& names = fn_->targets[n->first];
  kernel_.tables.emplace_back(names.size(), 0);
  for (u32 i = 0; i < names.size(); i++) fixups_.push_back({at, names[i], (i64)kernel_.tables.size() - 1, i});
}

void Decoder::exit() {
  u32 at = (u32)kernel_.code.size();
  emit(op_exit, Class::Control);
  flow_[at] = Leave;
}

void Decoder::leave_function() {
  if (depth_ == 0)
    exit();
  else if (routine_ >= 0 && depth_ == 1)
    leave_routine();
  else
    branch("#end");
}

void Decoder::end_of_body() {
  Instr end;
  end.text = "(end of function)";
  end.loc = kernel_.meta.empty() ? 0 : kernel_.meta.back().loc;
  const Instr* saved = ins_;
  ins_ = &end;
  guard_ = true_pred();
  guard_flip_ = 0;
  u32 begin = (u32)kernel_.code.size(), refs = (u32)refs_.size();
  leave_function();
  groups_.push_back({begin, begin + 1, refs, refs, false});
  ins_ = saved;
}

void add_control_handlers(Handlers& h) {
  h["bra"] = h_bra;
  h["brx"] = h_brx;
  h["ret"] = h_ret;
  h["exit"] = h_exit;
  h["trap"] = h["brkpt"] = h_trap;
  h["call"] = h_call;
  h["nanosleep"] = h_nanosleep;
  h["griddepcontrol"] = h["pmevent"] = h_nothing;
}
}  // namespace kw
