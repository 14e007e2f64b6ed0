// Executes calls, returns and stack operations.
#include "launch/call_ops.h"

#include <algorithm>

#include "checks/watch.h"

namespace kw {
namespace {
const Routine& routine_at(Warp& w, const Inst* in, int lane, u64 address, const CallSite& site) {
  const Launch& l = *w.launch;
  const Kernel& k = *l.kernel;
  u64 f = (address & ~FUNCTION_WINDOW) / 16 - 1;
  if (address >> 60 != 7 || (address & 15) || f >= k.routine_of.size())
    raise(in, thread_of(w, lane), "trap", "call through a pointer that is no function's address");
  const Function& callee = l.program->module.functions[f];
  if (!callee.has_body || k.routine_of[f] < 0)
    raise(in, thread_of(w, lane), "trap", "call through a pointer to " + string(callee.name) + ", which has no code");
  const Routine& r = k.routines[(size_t)k.routine_of[f]];
  if (r.param_bytes != site.param_bytes || r.return_bytes != site.return_bytes)
    raise(in, thread_of(w, lane), "trap",
          "call through a pointer to " + string(callee.name) + ", whose parameters or result have other sizes");
  return r;
}

// Arguments and results go from frame to frame.
void copy_over(Warp& w, u8* to, const u8* from, u64 bytes) {
  std::memcpy(to, from, bytes);
  if (w.launch->watch) w.launch->watch->filled(reinterpret_cast<const char*>(to), bytes);
}

void empty(Warp& w, u8* at, u64 bytes) {
  std::memset(at, w.launch->poison, bytes);
  if (w.launch->watch) w.launch->watch->emptied(reinterpret_cast<const char*>(at), bytes);
}

void save(const Warp& w, const Routine& r, int lane, u8* at) {
  for (auto [offset, bytes] : r.saved) {
    if (bytes)
      std::memcpy(at, w.regs + offset + (u64)lane * bytes, bytes);
    else
      *at = (u8)(pred(w, offset) >> lane & 1);
    at += bytes ? bytes : 1;
  }
}

void restore(Warp& w, const Routine& r, int lane, const u8* at) {
  for (auto [offset, bytes] : r.saved) {
    if (bytes)
      std::memcpy(w.regs + offset + (u64)lane * bytes, at, bytes);
    else
      set_pred(w, offset, 1u << lane, *at ? FULL : 0);
    at += bytes ? bytes : 1;
  }
}

void enter(Warp& w, const Inst* in, int lane, const CallSite& site, const Routine& r) {
  const Kernel& k = *w.launch->kernel;
  u64 &frame = slot<u64>(w, k.frame_slot)[lane], &top = slot<u64>(w, k.top_slot)[lane];
  u64 base = (top + 15) / 16 * 16, next = base + r.record, end = next + r.frame;
  if (end > k.local_bytes)
    raise(in, thread_of(w, lane), "stack-overflow",
          "stack overflow: the call of " + string(w.launch->program->module.functions[r.function].name) +
              " needs more than the " + std::to_string(k.local_bytes - k.stack_begin) + " bytes of a thread's stack");
  u8* local = local_of(w, lane);
  empty(w, local + next, r.frame);
  for (const CallSite::Copy& c : site.in) copy_over(w, local + next + c.to, local + frame + c.from, c.bytes);
  CallRecord record{(u32)(in - k.code.data()), (u32)frame, (u32)top, (u32)(&r - k.routines.data())};
  std::memcpy(local + base, &record, sizeof record);
  save(w, r, lane, local + base + sizeof record);
  frame = next;
  top = end;
}

// Sends groups of lanes to their targets; `targets` holds one for each lane of m.
const Inst* scatter(Warp& w, const Inst* in, u32 m, const Inst* const* targets) {
  u32 rest = w.mask & ~m;
  if (rest) push_split(w, in + 1, rest, Wait::Run);
  const Inst* first = targets[__builtin_ctz(m)];
  u32 same = 0;
  for (u32 r = m; r; r &= r - 1)
    if (targets[__builtin_ctz(r)] == first) same |= r & -r;
  for (u32 r = m & ~same; r; r &= r - 1) push_split(w, targets[__builtin_ctz(r)], r & -r, Wait::Run);
  w.mask = same;
  return jump(w, in, first);
}

// A frame is the kernel's own memory, so what it holds is checked before it is believed.
bool is_good(const Kernel& k, const CallRecord& record, const Routine& r, u64 frame) {
  if (record.routine != (u32)(&r - k.routines.data()) || record.site >= k.code.size()) return false;
  if (k.code[record.site].fn != op_call || record.top > frame - r.record) return false;
  const CallSite& site = k.call_sites[(size_t)k.code[record.site].imm];
  if (site.param_bytes != r.param_bytes || site.return_bytes != r.return_bytes) return false;
  if (site.owner < 0) return record.frame == 0 && record.top >= k.stack_begin;
  const Routine& caller = k.routines[(size_t)site.owner];
  return record.frame >= k.stack_begin + (u64)caller.record && record.frame + (u64)caller.frame <= record.top;
}
}  // namespace

const Inst* op_stack_begin(Warp& w, const Inst* in) {
  const Kernel& k = *w.launch->kernel;
  put<u64>(w, w.mask, k.frame_slot, [](int) { return (u64)0; });
  put<u64>(w, w.mask, k.top_slot, [&](int) { return (u64)k.stack_begin; });
  return in + 1;
}

const Inst* op_call(Warp& w, const Inst* in) {  // in->imm: call site; in->a: the function's address when in->x
  u32 m = active(w, in);
  if (!m) return in + 1;
  const Kernel& k = *w.launch->kernel;
  const CallSite& site = k.call_sites[(size_t)in->imm];
  close_segment(w, in);
  const Inst* targets[LANES];
  for (u32 r = m; r; r &= r - 1) {
    int lane = __builtin_ctz(r);
    u64 address = in->x ? slot<u64>(w, in->a)[lane] : function_address((u32)site.callee);
    const Routine& callee = routine_at(w, in, lane, address, site);
    enter(w, in, lane, site, callee);
    targets[lane] = k.code.data() + callee.code;
  }
  return scatter(w, in, m, targets);
}

const Inst* op_return(Warp& w, const Inst* in) {  // in->imm: routine
  u32 m = active(w, in);
  if (!m) return in + 1;
  const Kernel& k = *w.launch->kernel;
  const Routine& r = k.routines[(size_t)in->imm];
  close_segment(w, in);
  const Inst* targets[LANES];
  for (u32 q = m; q; q &= q - 1) {
    int lane = __builtin_ctz(q);
    u64 &frame = slot<u64>(w, k.frame_slot)[lane], &top = slot<u64>(w, k.top_slot)[lane];
    u8* local = local_of(w, lane);
    CallRecord record;
    std::memcpy(&record, local + frame - r.record, sizeof record);
    if (!is_good(k, record, r, frame))
      raise(in, thread_of(w, lane), "out-of-bounds-write",
            "the stack of the thread was overwritten: " +
                string(w.launch->program->module.functions[r.function].name) + " cannot return");
    const CallSite& site = k.call_sites[(size_t)k.code[record.site].imm];
    for (const CallSite::Copy& c : site.out)
      copy_over(w, local + record.frame + c.to, local + frame + c.from, c.bytes);
    restore(w, r, lane, local + frame - r.record + sizeof record);
    frame = record.frame;
    top = record.top;
    targets[lane] = k.code.data() + record.site + 1;
  }
  return scatter(w, in, m, targets);
}

const Inst* op_alloca(Warp& w, const Inst* in) {  // in->a bytes, d pointer, n alignment
  const Kernel& k = *w.launch->kernel;
  for (u32 m = active(w, in); m; m &= m - 1) {
    int lane = __builtin_ctz(m);
    u64 bytes = slot<u64>(w, in->a)[lane], &top = slot<u64>(w, k.top_slot)[lane];
    u64 at = (top + in->n - 1) / in->n * in->n;
    if (at > k.local_bytes || bytes > k.local_bytes - at)
      raise(in, thread_of(w, lane), "stack-overflow",
            "stack overflow: alloca of " + std::to_string(bytes) + " bytes, " +
                std::to_string(k.local_bytes - std::min<u64>(at, k.local_bytes)) + " are left");
    empty(w, local_of(w, lane) + at, bytes);
    top = at + bytes;
    slot<u64>(w, in->d)[lane] = at;
  }
  return in + 1;
}

const Inst* op_stack_save(Warp& w, const Inst* in) {
  const u64* top = slot<u64>(w, w.launch->kernel->top_slot);
  put<u64>(w, active(w, in), in->d, [&](int i) { return top[i]; });
  return in + 1;
}

const Inst* op_stack_restore(Warp& w, const Inst* in) {
  const Kernel& k = *w.launch->kernel;
  for (u32 m = active(w, in); m; m &= m - 1) {
    int lane = __builtin_ctz(m);
    u64 to = slot<u64>(w, in->a)[lane], &top = slot<u64>(w, k.top_slot)[lane];
    if (to > top || to < slot<u64>(w, k.frame_slot)[lane] || to < k.stack_begin)
      raise(in, thread_of(w, lane), "trap", "stackrestore to a place that stacksave did not give");
    top = to;
  }
  return in + 1;
}
}  // namespace kw
