// Decodes calls. Ordinary functions are inlined; recursive functions and functions called through pointers get their own
// code and registers, and a frame in the caller's local memory.
#include "decode/calls.h"

#include <algorithm>

#include "copies/async.h"
#include "launch/call_ops.h"
#include "decode/decode.h"

namespace kw {
namespace {
constexpr u32 STACK = 16 * 1024;  // bytes a thread, where the depth of calls is not known

void walk_operand(const Function& f, const Operand& o, const std::unordered_map<string_view, u32>& index,
                  std::vector<u32>& out) {
  if (o.kind == Operand::Vec) {
    for (u32 i = 0; i < o.count; i++) walk_operand(f, f.operands[o.first + i], index, out);
  } else if (o.kind == Operand::Name) {
    if (auto it = index.find(o.name); it != index.end()) out.push_back(it->second);
  }
}

void scan(const Module& m, const Function& f, CallGraph::Node& node, std::vector<u32>& taken) {
  for (const Instr& in : f.instrs) {
    bool call = in.opcode == "call" || in.opcode.substr(0, 5) == "call.";
    node.alloca |= in.opcode.substr(0, 7) == "alloca.";
    bool named = false;
    for (u32 i = 0; i < in.count; i++) {
      const Operand& o = f.operands[in.first + i];
      if (!call) {
        walk_operand(f, o, m.function_index, taken);
      } else if (o.kind == Operand::Name && !named) {
        named = true;
        auto it = m.function_index.find(o.name);
        if (it == m.function_index.end())
          node.indirect = true;
        else
          node.callees.push_back(it->second);
      }
    }
  }
}

void h_alloca(Decoder& d, Mods& m) {
  if (!m.take("u64")) m.unsupported(m.peek());
  m.finish();
  d.need(2, 3);
  i64 align = d.count() == 3 ? d.immediate(d.op(2)) : 8;
  if (align < 1 || align > 4096 || (align & (align - 1))) throw PtxError("bad alignment");
  u32 bytes = d.src(d.op(1), Ty::U64), dest = d.dst(d.op(0), Ty::U64);
  Inst& in = d.emit(op_alloca, Class::Control);
  in.a = bytes, in.d = dest, in.n = (u16)align;
}

void h_stack(Decoder& d, Mods& m) {
  if (!m.take("u64")) m.unsupported(m.peek());
  m.finish();
  d.need(1);
  if (!d.stack_top()) throw Unsupported(string(m.op) + " without alloca");
  bool save = m.op == "stacksave";
  u32 r = save ? d.dst(d.op(0), Ty::U64) : d.src(d.op(0), Ty::U64);
  Inst& in = d.emit(save ? op_stack_save : op_stack_restore, Class::Control);
  (save ? in.d : in.a) = r;
}
}  // namespace

std::vector<u32> CallGraph::reachable(u32 f) const {
  std::vector<u32> seen, todo{f};
  std::vector<u8> known(nodes.size(), 0);
  bool pointers = false;
  auto push = [&](u32 g) {
    if (!known[g]) known[g] = 1, todo.push_back(g);
  };
  known[f] = 1;
  while (!todo.empty()) {
    u32 g = todo.back();
    todo.pop_back();
    seen.push_back(g);
    for (u32 c : nodes[g].callees) push(c);
    if (!nodes[g].indirect || pointers) continue;
    pointers = true;
    for (u32 c = 0; c < nodes.size(); c++)
      if (nodes[c].taken) push(c);
  }
  return seen;
}

const CallGraph& call_graph(Program& p) {
  if (p.calls) return *p.calls;
  auto g = std::make_shared<CallGraph>();
  const Module& m = p.module;
  g->nodes.resize(m.functions.size());
  std::vector<u32> taken;
  for (size_t i = 0; i < m.functions.size(); i++) scan(m, m.functions[i], g->nodes[i], taken);
  for (const Variable& v : m.vars)
    for (const Variable::Pointer& q : v.pointers)
      if (auto it = m.function_index.find(q.symbol); it != m.function_index.end()) taken.push_back(it->second);
  for (u32 f : taken) g->nodes[f].taken = !m.functions[f].is_entry;
  for (u32 i = 0; i < g->nodes.size(); i++) {
    if (!m.functions[i].has_body || m.functions[i].is_entry) continue;
    for (u32 below : g->reachable(i)) {
      const auto& c = g->nodes[below].callees;
      g->nodes[i].recursive |= std::find(c.begin(), c.end(), i) != c.end();
    }
  }
  p.calls = g;
  return *p.calls;
}

Signature signature_of(const std::vector<Variable>& params, const std::vector<Variable>& returns) {
  Signature s;
  u64 at = 0;
  for (const auto* list : {&params, &returns}) {
    for (const Variable& v : *list) {
      at = (at + v.align - 1) / v.align * v.align;
      s.at.push_back((u32)at);
      s.bytes.push_back((u32)v.bytes);
      at += std::max<u64>(v.bytes, 1);
      (list == &params ? s.param_bytes : s.return_bytes) += (u32)v.bytes;
      if (at > 32768) throw PtxError("function with too large parameters");
    }
  }
  s.end = (u32)at;
  return s;
}

void Decoder::plain_text(const char* text) {
  plain_ = Instr{};
  plain_.text = text;
  plain_.loc = kernel_.meta.empty() ? 0 : kernel_.meta.back().loc;
  ins_ = &plain_;
  guard_ = true_pred();
  guard_flip_ = 0;
}

void Decoder::begin_stack(const Function& entry) {
  const CallGraph& g = call_graph(program);
  u32 self = program.module.function_index.at(entry.name);
  bool needed = false;
  for (u32 f : g.reachable(self)) needed |= g.nodes[f].alloca || (f != self && g.out_of_line(f));
  if (!needed) return;
  for (u32* v : {&sp_, &top_}) vregs_[*v = new_vreg(8)].pinned = true;
  kernel_.routine_of.assign(program.module.functions.size(), -1);
  plain_text("(start of kernel)");
  emit(op_stack_begin, Class::Control);
  groups_.push_back({0, 1, 0, 0, false});
  ins_ = nullptr;
}

Symbol Decoder::frame_symbol(const Operand& o) {
  Symbol s;
  if (o.kind != Operand::Name || !find_symbol(o.name, s) || s.space != Space::Local)
    throw Unsupported("call with arguments that are no .param variables");
  return s;
}

void Decoder::call(Mods& m) {
  m.take("uni");
  m.finish();
  const Operand *rets = nullptr, *args = nullptr, *name = nullptr, *prototype = nullptr;
  for (u32 i = 0; i < count(); i++) {
    const Operand& o = op(i);
    if (o.kind == Operand::Vec)
      (name ? args : rets) = &o;
    else if (!name)
      name = &o;
    else
      prototype = &o;
  }
  if (!name || name->kind != Operand::Name) throw PtxError("call without a function");
  u32 v;
  if (const Name* n = find(name->name, v); n && n->type != Ty::None)
    return indirect_call(*name, rets, args, prototype);
  auto it = program.module.function_index.find(name->name);
  if (it == program.module.function_index.end())
    throw PtxError("call of the unknown function '" + string(name->name) + "'");
  const Function& f = program.module.functions[it->second];
  if (f.is_entry) throw Unsupported("call of the kernel " + string(f.name));
  if (!f.has_body) return builtin_call(name->name, rets, args);
  if (call_graph(program).out_of_line(it->second))
    return real_call(&f, 0, signature_of(f.params, f.returns), rets, args);
  if (stack_.size() > 64) throw Unsupported("calls nested deeper than 64");
  bind_and_inline(f, rets, args);
}

// Parameters of functions live in the caller's local frame; the callee's names are aliases of them.
void Decoder::bind_and_inline(const Function& f, const Operand* rets, const Operand* args) {
  u32 nrets = rets ? rets->count : 0, nargs = args ? args->count : 0;
  if (nrets != f.returns.size() || nargs != f.params.size()) throw PtxError("call with the wrong number of arguments");
  std::vector<Name> bound;
  for (u32 i = 0; i < nrets + nargs; i++) {
    const Variable& formal = i < nrets ? f.returns[i] : f.params[i - nrets];
    Name n;
    n.symbol = frame_symbol(i < nrets ? element(*rets, i) : element(*args, i - nrets));
    n.name = formal.name;
    bound.push_back(n);
  }
  const Instr* saved = ins_;
  const Function* outer = fn_;
  bool skip = !saved->guard.empty();
  open_scope();
  u32 first = (u32)kernel_.code.size(), refs = (u32)refs_.size();
  if (skip) {
    guard_flip_ ^= FULL;
    branch("#skip");
    groups_.push_back({first, first + 1, refs, refs, true});
  }
  names_.insert(names_.end(), bound.begin(), bound.end());
  stack_.push_back(&f);
  depth_++;
  ins_ = nullptr;
  body(f);
  depth_--;
  stack_.pop_back();
  ins_ = saved;
  fn_ = outer;
  scopes_.back().labels["#skip"] = (u32)kernel_.code.size();
  close_scope();
}

void Decoder::indirect_call(const Operand& name, const Operand* rets, const Operand* args, const Operand* prototype) {
  if (!prototype || prototype->kind != Operand::Name) throw Unsupported("call through a register without a prototype");
  u32 address = src(name, Ty::U64);
  for (const Function::Prototype& p : fn_->prototypes)
    if (p.name == prototype->name) return real_call(nullptr, address, signature_of(p.params, p.returns), rets, args);
  u32 v;
  const Name* n = find(prototype->name, v);
  if (!n || n->symbol.value != ~0ull || n->type != Ty::None) throw PtxError("unknown prototype of a call");
  for (string_view target : fn_->targets[n->first]) {
    auto it = program.module.function_index.find(target);
    if (it == program.module.function_index.end()) throw PtxError("unknown function among the targets of a call");
    const Function& f = program.module.functions[it->second];
    return real_call(nullptr, address, signature_of(f.params, f.returns), rets, args);
  }
  throw PtxError("a call without targets");
}

void Decoder::real_call(const Function* callee, u32 address, const Signature& s, const Operand* rets,
                        const Operand* args) {
  CallSite site;
  u32 nargs = args ? args->count : 0, nrets = rets ? rets->count : 0;
  if (nargs + nrets != s.at.size()) throw PtxError("call with the wrong number of arguments");
  site.param_bytes = s.param_bytes;
  site.return_bytes = s.return_bytes;
  site.owner = routine_;
  if (callee) site.callee = program.module.function_index.at(callee->name);
  for (u32 i = 0; i < nargs + nrets; i++) {
    u32 at = s.at[i], bytes = s.bytes[i];
    u32 mine = (u32)frame_symbol(i < nargs ? element(*args, i) : element(*rets, i - nargs)).value;
    if (mine + (u64)bytes > frame_most_) throw PtxError("an argument is smaller than the parameter");
    if (i < nargs)
      site.in.push_back({mine, at, bytes});
    else
      site.out.push_back({at, mine, bytes});
  }
  Inst& in = emit(op_call, Class::Control);
  in.imm = (i64)kernel_.call_sites.size();
  in.a = address;
  in.x = !callee;
  kernel_.call_sites.push_back(std::move(site));
  std::vector<u32> targets;
  if (callee) targets.push_back((u32)kernel_.call_sites.back().callee);
  const CallGraph& g = call_graph(program);
  for (u32 f = 0; !callee && f < g.nodes.size(); f++)
    if (g.nodes[f].taken && program.module.functions[f].has_body) targets.push_back(f);
  for (u32 f : targets)
    if (kernel_.routine_of[f] == -1) kernel_.routine_of[f] = -2, pending_.push_back(f);
}

void Decoder::leave_routine() {
  u32 at = (u32)kernel_.code.size();
  emit(op_return, Class::Control).imm = routine_;
  flow_[at] = Leave;
}

void Decoder::routine(Routine& r) {
  const Function& f = program.module.functions[r.function];
  Signature s = signature_of(f.params, f.returns);
  r.param_bytes = s.param_bytes;
  r.return_bytes = s.return_bytes;
  frame_ = frame_most_ = s.end;
  open_scope();
  for (size_t i = 0; i < s.at.size(); i++) {
    const Variable& v = i < f.params.size() ? f.params[i] : f.returns[i - f.params.size()];
    Name n;
    n.name = v.name;
    n.symbol = Symbol{Space::Local, s.at[i], false, false, true};
    names_.push_back(n);
  }
  stack_.push_back(&f);
  depth_ = 1;
  body(f);
  depth_ = 0;
  stack_.pop_back();
  close_scope();
  r.frame = (u32)(frame_most_ + 15) / 16 * 16;
}

void Decoder::decode_routines() {
  if (!sp_) return;
  while (!pending_.empty()) {
    u32 f = pending_.back();
    pending_.pop_back();
    routine_ = (int)kernel_.routines.size();
    kernel_.routine_of[f] = routine_;
    Routine r;
    r.function = f;
    r.code = (u32)kernel_.code.size();
    kernel_.routines.push_back(r);
    routine(r);
    r.end = (u32)kernel_.code.size();
    kernel_.routines[(size_t)routine_] = r;
  }
  routine_ = -1;
}

// Which registers an activation needs after a call: those that are alive across one.
void Decoder::save_registers(const std::vector<Interval>& at, const std::vector<u32>& offset) {
  if (!sp_) return;
  for (Routine& r : kernel_.routines) {
    std::vector<u32> calls;
    for (u32 i = r.code; i < r.end; i++)
      if (kernel_.code[i].fn == op_call) calls.push_back(i);
    u32 bytes = sizeof(CallRecord);
    for (u32 v = 1; v < vregs_.size(); v++) {
      if (vregs_[v].fixed || vregs_[v].pinned || at[v].first < r.code || at[v].first >= r.end) continue;
      bool across = false;
      for (u32 c : calls) across |= at[v].first < c && at[v].last > c;
      std::pair<u32, u32> saved{offset[v], vregs_[v].bytes};
      if (!across || std::find(r.saved.begin(), r.saved.end(), saved) != r.saved.end()) continue;
      r.saved.push_back(saved);
      bytes += saved.second ? saved.second : 1;
    }
    r.record = (bytes + 15) / 16 * 16;
  }
  bool bounded = true;  // no call can come back to a function that is active
  u64 sum = 0;
  const CallGraph& g = call_graph(program);
  for (const Routine& r : kernel_.routines) {
    const CallGraph::Node& n = g.nodes[r.function];
    bounded &= !n.recursive && !n.indirect && !n.alloca;
    sum += 16 + r.record + r.frame;
  }
  for (u32 i : g.reachable(program.module.function_index.at(kernel_.name))) bounded &= !g.nodes[i].alloca;
  kernel_.stack_begin = kernel_.local_bytes;
  kernel_.local_bytes += (u32)std::min<u64>(bounded ? sum : std::max<u64>(sum, STACK), 1u << 20);
}

void Decoder::builtin_call(string_view name, const Operand* rets, const Operand* args) {
  std::vector<i64> at;
  bool on_stack = false;
  for (const Operand* list : {args, rets}) {
    for (u32 i = 0; list && i < list->count; i++) {
      Symbol s = frame_symbol(element(*list, i));
      on_stack |= s.on_stack;
      at.push_back((i64)s.value);
    }
  }
  Fn fn = builtin_named(name, at.size());
  if (!fn && name.substr(0, 10) == "__cudaCDP2")
    throw Unsupported("cuda" + string(name.substr(10)) + " in a kernel (line " +
                      std::to_string(source_line(program, ins_->loc)) + ")");
  if (!fn) throw Unsupported("call." + string(name));
  kernel_.uses_heap |= name == "malloc" || name == "free" || name == "__cudaCDP2GetParameterBufferV2";
  kernel_.launches |= name.substr(0, 10) == "__cudaCDP2";
  Inst& in = emit(fn, Class::Control);
  in.imm = (i64)kernel_.tables.size();
  in.a = on_stack ? sp_ : 0;
  in.x = on_stack;
  kernel_.tables.push_back(at);
}

void add_call_handlers(Handlers& h) {
  h["alloca"] = h_alloca;
  h["stacksave"] = h["stackrestore"] = h_stack;
}
}  // namespace kw
