// cp.async: copies of 4, 8 or 16 bytes per thread from global to shared memory, their groups, and pending copies.
#include "copies/async.h"

#include <algorithm>

#include "copies/bulk.h"
#include "memory/memory_ops.h"
#include "checks/watch.h"

namespace kw {
AsyncQueue& queue_of(Warp& w) {
  if (!w.copies) {
    AsyncState& state = *w.block->resident->async;
    state.queues.resize(w.block->warps.size());
    state.queues[w.id] = std::make_unique<AsyncQueue>();
    w.copies = state.queues[w.id].get();
  }
  return *w.copies;
}

void reset_async(ResidentBlock& s) {
  if (!s.async) s.async = std::make_shared<AsyncState>();
  AsyncState& a = *s.async;
  for (auto& q : a.queues)
    if (q) *q = AsyncQueue{};
  a.inbound.clear();
  if (a.under_way) std::fill(a.pending.begin(), a.pending.end(), 0u);
  a.under_way = 0;
}

void mark_pending(Launch& l, ResidentBlock& s, const Inst* in, u64 offset, u64 bytes) {
  if (!l.races || !s.block.check_shared) return;
  AsyncState& a = *s.async;
  if (a.pending.empty()) a.pending.resize(l.shared_bytes / 4 + 8);
  for (u64 g = offset / 4; g < (offset + bytes + 3) / 4; g++) {
    a.under_way += a.pending[g] == 0;
    a.pending[g] = (u32)(in - l.kernel->code.data()) + 1;
  }
}

void clear_pending(ResidentBlock& s, u64 offset, u64 bytes) {
  AsyncState& a = *s.async;
  if (!a.under_way) return;
  for (u64 g = offset / 4; g < (offset + bytes + 3) / 4; g++) {
    a.under_way -= a.pending[g] != 0;
    a.pending[g] = 0;
  }
}

void check_pending(Warp& w, const Inst* in, u32 m, u32 bytes, bool write) {
  ResidentBlock& s = *w.block->resident;
  const AsyncState& a = *s.async;
  Launch& l = *w.launch;
  if (!a.under_way) return;
  for (u32 r = m; r; r &= r - 1) {
    int i = __builtin_ctz(r);
    u64 offset = (u64)(lane_address(w.access, i, bytes) - reinterpret_cast<char*>(s.shared));
    for (u64 g = offset / 4; g < (offset + bytes + 3) / 4; g++) {
      if (!a.pending[g]) continue;
      u32 line = source_line(*l.program, l.kernel->meta[a.pending[g] - 1].loc);
      return warn(w, in, thread_of(w, i),
                  "shared[" + std::to_string(g * 4) + "] is " + (write ? "written" : "read") +
                      " while the asynchronous copy to it" +
                      (line ? " (line " + std::to_string(line) + ")" : "") +
                      " has not been waited for: the data may not be there yet",
                  "async-copy");
    }
  }
}

namespace {
void deliver(Warp& w, AsyncCopy& c, u32 m) {
  ResidentBlock& s = *w.block->resident;
  Access& x = w.access;
  x.kind = Access::Gather;
  x.space = Space::Shared;
  x.region = nullptr;
  alignas(64) u8 values[LANES * 16];
  for (u32 r = m; r; r &= r - 1) {
    int i = __builtin_ctz(r);
    x.at[i] = reinterpret_cast<char*>(s.shared) + c.at[i];
    std::memcpy(values + (u64)i * c.bytes, c.data[i], c.bytes);
    clear_pending(s, c.at[i], c.bytes);
  }
  if (w.launch->races) note_access(w, c.in, m, c.bytes, Touch::Write, values);
  for (u32 r = m; r; r &= r - 1) {
    int i = __builtin_ctz(r);
    std::memcpy(x.at[i], c.data[i], c.bytes);
    if (w.launch->watch) w.launch->watch->filled(s, c.at[i], c.bytes);
  }
  if (w.launch->watch) w.launch->watch->wrote(w, c.in, m, c.at, c.bytes);
  c.mask &= ~m;
}

void drop_done(AsyncQueue& q) {
  while (!q.copies.empty() && !q.copies.front().mask) q.copies.pop_front();
}

// Lane i waits for the groups before limit[i].
void deliver_groups(Warp& w, u32 m, const u32* limit) {
  AsyncQueue& q = *w.copies;
  for (AsyncCopy& c : q.copies) {
    if (c.arrives) continue;
    u32 ready = 0;
    for (u32 r = c.mask & m; r; r &= r - 1)
      if (c.group < limit[__builtin_ctz(r)]) ready |= r & -r;
    if (ready) deliver(w, c, ready);
  }
  drop_done(q);
}

// Copies of these lanes before entry `end`, then the arrival itself.
void deliver_arrival(Warp& w, AsyncCopy& arrival, u32 m) {
  for (AsyncCopy& c : w.copies->copies) {
    if (&c == &arrival) break;
    if (!c.arrives && (c.mask & m)) deliver(w, c, c.mask & m);
  }
  if (w.launch->watch) w.launch->watch->meet(w, m);  // the arrival orders them
  for (u32 r = m; r; r &= r - 1) {
    int i = __builtin_ctz(r);
    if (w.launch->races) atomic_order(w, true);
    char* barrier = reinterpret_cast<char*>(w.block->resident->shared) + arrival.at[i];
    arrive_on(*w.launch, arrival.in, thread_of(w, i), barrier, 1);
  }
  arrival.mask &= ~m;
}

// Calls f(lanes, value) with the lanes of m by their count of closed groups.
template <class F>
void each_group_count(const u32* committed, u32 m, F f) {
  while (m) {
    u32 value = committed[__builtin_ctz(m)], same = 0;
    for (u32 r = m; r; r &= r - 1)
      if (committed[__builtin_ctz(r)] == value) same |= r & -r;
    m &= ~same;
    f(same, value);
  }
}

// Lanes that read fewer bytes than they write: only those must be there.
void read_partly(Warp& w, const Inst* in, u32 m, const u32* wanted, AsyncCopy& copy) {
  const u64* base = slot<u64>(w, in->a);
  for (u32 r = m; r; r &= r - 1) {
    int i = __builtin_ctz(r);
    u64 address = base[i] + (u64)in->imm;
    if (address % in->n)
      raise(in, thread_of(w, i), "misaligned-access",
            "misaligned source of cp.async: no multiple of " + std::to_string(in->n) + " bytes");
    check_global(w, in, i, address, wanted[i], false);
    std::memcpy(copy.data[i], reinterpret_cast<const char*>(address), wanted[i]);
  }
}

// cp.async, first half: in->n bytes of which in->b are read.
const Inst* op_copy_in(Warp& w, const Inst* in) {
  u32 m = active(w, in);
  if (!m) return in + 1;
  AsyncCopy& copy = queue_of(w).staged;
  copy.in = in, copy.bytes = in->n, copy.arrives = false;
  const u32* wanted = slot<u32>(w, in->b);
  u32 reading = 0, partly = 0;
  for (u32 r = m; r; r &= r - 1) {
    int i = __builtin_ctz(r);
    if (wanted[i] > in->n)
      raise(in, thread_of(w, i), "misaligned-access",
            "cp.async of " + std::to_string(in->n) + " bytes with a source of " + std::to_string(wanted[i]));
    if (wanted[i] == in->n) reading |= r & -r;
    if (wanted[i] == in->n) continue;
    std::memset(copy.data[i], 0, 16);
    if (wanted[i]) partly |= r & -r;
  }
  if (partly) read_partly(w, in, partly, wanted, copy);
  if (!reading) return in + 1;
  resolve(w, in, reading, in->n, Space::Global, false);
  count_access(w, reading, in->n, false);
  if (w.launch->races) note_access(w, in, reading, in->n, Touch::Read, nullptr);
  for (u32 r = reading; r; r &= r - 1) {
    int i = __builtin_ctz(r);
    std::memcpy(copy.data[i], reinterpret_cast<const char*>(w.access.address[i]), wanted[i]);
  }
  return in + 1;
}

const Inst* op_copy_out(Warp& w, const Inst* in) {
  u32 m = active(w, in);
  if (!m) return in + 1;
  AsyncQueue& q = *w.copies;
  ResidentBlock& s = *w.block->resident;
  resolve(w, in, m, in->n, Space::Shared, true);
  count_access(w, m, in->n, true);
  // The copy may write from now on; `deliver` tells again when it has.
  if (w.launch->races) note_access(w, in, m, in->n, Touch::Write, nullptr);
  for (u32 r = m; r; r &= r - 1) {
    int i = __builtin_ctz(r);
    q.staged.at[i] = (u32)(lane_address(w.access, i, in->n) - reinterpret_cast<char*>(s.shared));
    mark_pending(*w.launch, s, in, q.staged.at[i], in->n);
  }
  if (w.launch->watch) w.launch->watch->wrote(w, in, m, q.staged.at, in->n);
  each_group_count(q.committed, m, [&](u32 lanes, u32 value) {
    q.staged.mask = lanes, q.staged.group = value;
    q.copies.push_back(q.staged);
  });
  return in + 1;
}

const Inst* op_commit(Warp& w, const Inst* in) {  // in->x: of bulk stores
  u32 m = active(w, in);
  AsyncQueue& q = queue_of(w);
  u32* committed = in->x ? q.stores_committed : q.committed;
  for (u32 r = m; r; r &= r - 1) committed[__builtin_ctz(r)]++;
  return in + 1;
}

const Inst* op_wait_group(Warp& w, const Inst* in) {  // in->imm groups may stay; -1: everything arrives
  u32 m = active(w, in);
  if (!m || !w.copies) return in + 1;
  if (in->x) {
    deliver_stores(w, m, (u32)in->imm);
    return in + 1;
  }
  u32 limit[LANES];
  for (int i = 0; i < LANES; i++) {
    u32 closed = w.copies->committed[i];
    limit[i] = in->imm < 0 ? FULL : closed > (u32)in->imm ? closed - (u32)in->imm : 0;
  }
  deliver_groups(w, m, limit);
  return in + 1;
}

const Inst* op_arrive_behind(Warp& w, const Inst* in) {  // in->x: space; in->n: .noinc
  u32 m = active(w, in);
  if (!m) return in + 1;
  resolve(w, in, m, 8, (Space)in->x, true);
  AsyncQueue& q = queue_of(w);
  ResidentBlock& s = *w.block->resident;
  AsyncCopy arrival;
  arrival.in = in, arrival.mask = m, arrival.group = 0, arrival.bytes = 0, arrival.arrives = true;
  for (u32 r = m; r; r &= r - 1) {
    int i = __builtin_ctz(r);
    char* at = lane_address(w.access, i, 8);
    if (w.access.space != Space::Shared)
      raise(in, thread_of(w, i), "mbarrier-misuse", "the mbarrier is not in this block's shared memory");
    arrival.at[i] = (u32)(at - reinterpret_cast<char*>(s.shared));
    if (!in->n) expect_arrival(in, thread_of(w, i), at);
  }
  q.copies.push_back(arrival);
  return in + 1;
}

void note_leak(Warp& w, const Inst* in, int lane) {
  warn(w, in, thread_of(w, lane),
       "the thread ended while this asynchronous copy was under way: nobody has waited for it", "leaked-copy");
}
}  // namespace

void leave_copies(Warp& w, u32 gone) {
  if (!w.copies) return;
  deliver_stores(w, gone, FULL);
  u32 awaited = 0;  // lanes that an mbarrier waits for: it completes the copies whether the thread is there or not
  auto& copies = w.copies->copies;
  for (size_t i = copies.size(); i-- > 0;) {
    AsyncCopy& c = copies[i];
    if (c.arrives) {
      awaited |= c.mask;
      continue;
    }
    u32 m = c.mask & gone & ~awaited;
    if (m) note_leak(w, c.in, __builtin_ctz(m));
    c.mask &= ~m;
  }
  drop_done(*w.copies);
}

void leave_block(ResidentBlock& s) {
  for (Warp& w : s.block.warps)
    if (w.copies)
      for (const AsyncCopy& c : w.copies->copies)
        if (c.mask && !c.arrives) note_leak(w, c.in, __builtin_ctz(c.mask));
  if (s.async->inbound.empty()) return;
  const Inbound& first = s.async->inbound.front();
  warn(s.block.warps[0], first.in, -1,
       "the block ended while this bulk copy into its shared memory was under way: nobody has waited for it",
       "leaked-copy");
  s.async->inbound.clear();
}

void deliver_to(ResidentBlock& s, char* barrier) {
  AsyncState& a = *s.async;
  std::vector<Inbound> now;
  for (size_t i = 0; i < a.inbound.size();) {
    if (a.inbound[i].barrier != barrier) {
      i++;
      continue;
    }
    now.push_back(std::move(a.inbound[i]));
    a.inbound.erase(a.inbound.begin() + (long)i);
  }
  for (Inbound& copy : now) {
    copy.deliver();
    complete_bytes(copy.in, -1, barrier, copy.bytes);
    s.block.warps[0].launch->changes++;
  }
  u32 at = (u32)(barrier - reinterpret_cast<char*>(s.shared));
  for (Warp& w : s.block.warps) {
    if (!w.copies) continue;
    for (AsyncCopy& c : w.copies->copies) {
      if (!c.arrives) continue;
      u32 m = 0;
      for (u32 r = c.mask; r; r &= r - 1)
        if (c.at[__builtin_ctz(r)] == at) m |= r & -r;
      if (m) deliver_arrival(w, c, m);
    }
    drop_done(*w.copies);
  }
}

void deliver_stores(Warp& w, u32 m, u32 allowed) {
  AsyncQueue& q = *w.copies;
  bool leaving = allowed == FULL;
  for (size_t i = 0; i < q.stores.size();) {
    BulkStore& store = q.stores[i];
    u32 closed = q.stores_committed[store.lane];
    bool due = (m >> store.lane & 1) && (leaving || store.group + allowed < closed);
    if (!due) {
      i++;
      continue;
    }
    if (leaving) note_leak(w, store.in, store.lane);
    store.deliver();
    q.stores.erase(q.stores.begin() + (long)i);
  }
}

namespace {
void emit_wait(Decoder& d, i64 groups, bool bulk) {
  Inst& in = d.emit(op_wait_group, Class::Sync);
  in.imm = groups;
  in.x = bulk;
}

void emit_arrival(Decoder& d, Mods& m) {
  m.take("arrive");
  bool noinc = m.take("noinc");
  Space space = take_space(m);
  if (!m.take("b64")) m.unsupported(m.peek());
  m.finish();
  d.need(1);
  d.kernel().may_wait = true;
  Inst& in = d.emit(op_arrive_behind, Class::Sync);
  d.set_address(in, d.op(0), space);
  in.x = (u8)space;
  in.n = noinc;
}

void emit_copy(Decoder& d, Mods& m) {
  if (!m.take("ca") && !m.take("cg")) m.unsupported("async." + string(m.peek()));
  if (!(m.take("shared") || m.take("shared::cta")) || !m.take("global")) m.unsupported("async." + string(m.peek()));
  bool hint = m.take("L2::cache_hint");
  for (const char* s : {"L2::64B", "L2::128B", "L2::256B"}) m.take(s);
  m.finish();
  d.need(3 + hint, 4 + hint);
  i64 bytes = d.immediate(d.op(2));
  if (bytes != 4 && bytes != 8 && bytes != 16) throw PtxError("cp.async of another size than 4, 8 or 16 bytes");
  bool sized = d.count() == 4u + hint;
  bool ignores = false;
  u32 wanted = d.constant((u64)bytes, 4);
  if (sized) {
    const Operand& o = d.op(3);
    int width = d.width(o);
    ignores = width == 0;
    if (!ignores) wanted = d.src(o, Ty::U32);
  }
  if (ignores) throw Unsupported("cp.async with an ignore-src predicate");
  note_granule(d, Space::Shared, (int)bytes);
  d.kernel().has_copies = true;
  Inst& first = d.emit(op_copy_in, Class::Memory);
  d.set_address(first, d.op(1), Space::Global);
  first.b = wanted;
  first.n = (u16)bytes;
  Inst& second = d.emit(op_copy_out, Class::Memory);
  d.set_address(second, d.op(0), Space::Shared);
  second.n = (u16)bytes;
}

void h_cp(Decoder& d, Mods& m) {
  if (m.take("reduce")) return bulk_copy(d, m, true);
  if (!m.take("async")) m.unsupported(m.peek());
  bool bulk = m.take("bulk");
  if (m.take("commit_group")) {
    m.finish();
    d.emit(op_commit, Class::Sync).x = bulk;
  } else if (!bulk && m.take("wait_all")) {
    m.finish();
    emit_wait(d, -1, false);
  } else if (m.take("wait_group")) {
    if (bulk) m.take("read");
    m.finish();
    d.need(1);
    i64 groups = d.immediate(d.op(0));
    if (groups < 0) throw PtxError("a negative number of groups");
    emit_wait(d, groups, bulk);
  } else if (bulk) {
    bulk_copy(d, m, false);
  } else if (m.take("mbarrier")) {
    emit_arrival(d, m);
  } else {
    emit_copy(d, m);
  }
}
}  // namespace

void add_async_handlers(Handlers& h) { h["cp"] = h_cp; }
}  // namespace kw
