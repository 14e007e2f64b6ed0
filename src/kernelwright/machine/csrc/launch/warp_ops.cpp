// Warp-level operations: shuffles, votes, matches, reductions, barriers.
#include "decode/decode.h"
#include "launch/resident_blocks.h"
#include "checks/watch.h"

namespace kw {
namespace {
string hex_mask(u32 mask) {
  char t[16];
  std::snprintf(t, sizeof t, "0x%08x", mask);
  return t;
}

// A thread that runs a warp-wide instruction must name itself among its members.
void check_members(Warp& w, const Inst* in, const u32* members) {
  u32 strangers = w.mask & ~bits_of([&](int i) { return (members[i] >> i & 1) != 0; });
  if (!strangers) return;
  int lane = __builtin_ctz(strangers);
  warn(w, in, thread_of(w, lane),
       "lane " + std::to_string(lane) + " executes a warp-wide operation whose mask " + hex_mask(members[lane]) +
           " does not name it: its result is undefined",
       "sync-mask");
}

// The start of every warp-wide instruction: true when all members are here and w.mask is the set that takes part.
// Otherwise `*next` says where to go on.
bool gather_lanes(Warp& w, const Inst* in, u32 members_slot, const Inst** next) {
  if (!take_guarded(w, in)) return *next = in + 1, false;
  if (w.launch->watch) check_members(w, in, slot<u32>(w, members_slot));
  if (arrive(w, in, slot<u32>(w, members_slot))) return true;
  *next = STOP;
  return false;
}

// Calls f with each set of lanes that named the same members: tiles of a warp run one instruction side by side.
template <class F>
void each_group(Warp& w, const Inst* in, F f) {
  const u32* members = slot<u32>(w, w.ext[in->ext]);
  for (u32 rest = w.mask; rest;) {
    u32 named = members[__builtin_ctz(rest)];
    u32 group = rest & bits_of([&](int i) { return members[i] == named; });
    rest &= ~group;
    f(group);
  }
}

// The lane that lane i takes its value from, or i itself when that is out of its segment.
template <int MODE>
int shfl_source(int i, u32 b, u32 c) {
  i32 n = (i32)(b & 31), clamp = (i32)(c & 31), segment = (i32)(c >> 8 & 31);
  i32 most = (i & segment) | (clamp & ~segment), least = i & segment;
  i32 j = MODE == 0 ? i - n : MODE == 1 ? i + n : MODE == 2 ? i ^ n : least | (n & ~segment);
  bool ok = MODE == 0 ? j >= most : j <= most;
  return ok ? j & 31 : i;
}

// What comes from a lane that takes no part is undefined: the lane gets poison, so that using it shows.
template <int MODE>
void shfl_from_absent(Warp& w, const Inst* in, const u32* b, const u32* c, u32* r) {
  for (u32 m = w.mask; m; m &= m - 1) {
    int i = __builtin_ctz(m), j = shfl_source<MODE>(i, b[i], c[i]);
    if (w.mask >> j & 1) continue;
    r[i] = w.launch->poison * 0x01010101u;
    warn(w, in, thread_of(w, i),
         "lane " + std::to_string(i) + " takes a value from lane " + std::to_string(j) +
             ", which takes no part in the shuffle" + (w.live >> j & 1 ? "" : " (there is no such thread any more)") +
             ": the value is undefined",
         "shuffle-from-inactive");
  }
}

// in->a value, b lane or distance, c clamp, ext[0] members, ext[1] predicate (when in->y)
template <int MODE>  // 0 up, 1 down, 2 bfly, 3 idx
const Inst* op_shfl(Warp& w, const Inst* in) {
  const Inst* next;
  if (!gather_lanes(w, in, w.ext[in->ext], &next)) return next;
  alignas(64) u32 a[LANES], r[LANES];
  std::memcpy(a, slot<u32>(w, in->a), sizeof a);
  const u32 *b = slot<u32>(w, in->b), *c = slot<u32>(w, in->c);
  u32 valid = 0;
  for (int i = 0; i < LANES; i++) {
    i32 lane = i, n = (i32)(b[i] & 31), clamp = (i32)(c[i] & 31), segment = (i32)(c[i] >> 8 & 31);
    i32 most = (lane & segment) | (clamp & ~segment), least = lane & segment, j;
    bool ok;
    if (MODE == 0)
      j = lane - n, ok = j >= most;
    else if (MODE == 1)
      j = lane + n, ok = j <= most;
    else if (MODE == 2)
      j = lane ^ n, ok = j <= most;
    else
      j = least | (n & ~segment), ok = j <= most;
    r[i] = a[ok ? j & 31 : lane];
    valid |= (u32)ok << i;
  }
  if (w.launch->watch && w.mask != FULL) shfl_from_absent<MODE>(w, in, b, c, r);
  blend(slot<u32>(w, in->d), r, w.mask);
  if (in->y) set_pred(w, w.ext[in->ext + 1], w.mask, valid);
  return in + 1;
}

// in->a predicate, d result, ext[0] members; in->x: 0 all, 1 any, 2 uni, 3 ballot; in->y negate
const Inst* op_vote(Warp& w, const Inst* in) {
  const Inst* next;
  if (!gather_lanes(w, in, w.ext[in->ext], &next)) return next;
  u32 votes = pred(w, in->a) ^ (in->y ? FULL : 0);
  each_group(w, in, [&](u32 m) {
    u32 p = votes & m;
    if (in->x == 3) {
      put<u32>(w, m, in->d, [&](int) { return p; });
    } else {
      bool v = in->x == 0 ? p == m : in->x == 1 ? p != 0 : p == m || p == 0;
      set_pred(w, in->d, m, v ? FULL : 0);
    }
  });
  return in + 1;
}

// in->x: match.all; ext[1] its predicate
template <class T>
const Inst* op_match(Warp& w, const Inst* in) {
  const Inst* next;
  if (!gather_lanes(w, in, w.ext[in->ext], &next)) return next;
  const T* a = slot<T>(w, in->a);
  each_group(w, in, [&](u32 m) {
    u32 r[LANES] = {};
    bool all = true;
    for (u32 q = m; q; q &= q - 1) {
      int i = __builtin_ctz(q);
      for (u32 s = m; s; s &= s - 1)
        if (a[__builtin_ctz(s)] == a[i]) r[i] |= s & -s;
      all &= r[i] == m;
    }
    if (in->x)
      for (int i = 0; i < LANES; i++) r[i] = all ? m : 0;
    put_each<u32>(w, m, in->d, [&](int i) { return r[i]; });
    if (in->x && in->y) set_pred(w, w.ext[in->ext + 1], m, all ? FULL : 0);
  });
  return in + 1;
}

u32 redux(int operation, bool is_signed, u32 v, u32 o) {
  bool less = is_signed ? (i32)o < (i32)v : o < v;
  switch (operation) {
    case 0:
      return v + o;
    case 1:
      return less ? o : v;
    case 2:
      return less ? v : o;
    case 3:
      return v & o;
    case 4:
      return v | o;
    default:
      return v ^ o;
  }
}

// in->x: 0 add, 1 min, 2 max, 3 and, 4 or, 5 xor; in->y signed
const Inst* op_redux(Warp& w, const Inst* in) {
  const Inst* next;
  if (!gather_lanes(w, in, w.ext[in->ext], &next)) return next;
  const u32* a = slot<u32>(w, in->a);
  each_group(w, in, [&](u32 m) {
    u32 v = a[__builtin_ctz(m)];
    for (u32 q = m & (m - 1); q; q &= q - 1) v = redux(in->x, in->y, v, a[__builtin_ctz(q)]);
    put<u32>(w, m, in->d, [&](int) { return v; });
  });
  return in + 1;
}

const Inst* op_elect(Warp& w, const Inst* in) {
  const Inst* next;
  if (!gather_lanes(w, in, w.ext[in->ext], &next)) return next;
  each_group(w, in, [&](u32 m) {
    u32 lane = (u32)__builtin_ctz(m);
    put<u32>(w, m, in->d, [&](int) { return lane; });
    set_pred(w, w.ext[in->ext + 1], m, 1u << lane);
  });
  return in + 1;
}

const Inst* op_activemask(Warp& w, const Inst* in) {
  u32 m = active(w, in);
  put<u32>(w, m, in->d, [&](int) { return m; });
  return in + 1;
}

const Inst* op_warpsync(Warp& w, const Inst* in) {
  const Inst* next;
  return gather_lanes(w, in, in->a, &next) ? in + 1 : next;
}

// in->a number, b thread count (when in->n), c predicate of bar.red; in->x: 0 sync, 1 arrive, 2 popc, 3 and, 4 or
const Inst* op_barrier(Warp& w, const Inst* in) {
  if (!take_guarded(w, in)) return in + 1;
  close_segment(w, in);
  int lead = __builtin_ctz(w.mask);
  u32 id = slot<u32>(w, in->a)[lead];
  if (id > 15) raise(in, thread_of(w, lead), "trap", "barrier " + std::to_string(id) + " does not exist (0 to 15)");
  Barrier& b = w.block->barriers[id];
  w.launch->count.barriers += (u64)__builtin_popcount(w.mask);
  b.counted = in->n;
  if (in->n) b.expected = slot<u32>(w, in->b)[lead];
  // With a thread count the hardware counts whole warps.
  b.arrived += in->n && w.mask == w.live ? 32 : (u32)__builtin_popcount(w.mask);
  b.warps |= 1u << w.id;
  if (in->x >= 2) {
    u32 p = (pred(w, in->c) ^ (in->y ? FULL : 0)) & w.mask;
    b.votes += (u32)__builtin_popcount(p);
    b.voters += (u32)__builtin_popcount(w.mask);
  }
  if (in->x == 1) {
    w.segment = in + 1;
    check_barriers(*w.launch, *w.block);
    return in + 1;
  }
  push_split(w, in + 1, w.mask, Wait::Barrier, (u8)id);
  w.event = Event::Blocked;
  check_barriers(*w.launch, *w.block);
  return STOP;
}

// A barrier that all threads complete from different places in the program: __syncthreads() in divergent code.
void check_sites(Block& b, u32 id) {
  const Inst* first = nullptr;
  int first_thread = 0;
  for (Warp& w : b.warps)
    for (int i = 0; i < w.nsplits; i++) {
      const Split& s = w.splits[i];
      if (s.wait != Wait::Barrier || s.barrier != id) continue;
      const Inst* at = s.pc - 1;
      int thread = thread_of(w, __builtin_ctz(s.mask));
      if (!first) first = at, first_thread = thread;
      if (at == first) continue;
      Launch& l = *w.launch;
      u32 here = (u32)(at - l.kernel->code.data()), there = (u32)(first - l.kernel->code.data());
      if (line_of(l, here) == line_of(l, there)) continue;
      warn(w, at, thread,
           "divergent barrier: thread " + std::to_string(thread) + " waits at line " +
               std::to_string(line_of(l, here)) + " while thread " + std::to_string(first_thread) + " waits at line " +
               std::to_string(line_of(l, there)) + "; all threads of a block must reach the same __syncthreads()",
           "divergent-barrier");
    }
}

void complete(Block& b, u32 id) {
  Barrier bar = b.barriers[id];
  b.barriers[id] = Barrier{};
  if (!bar.counted) check_sites(b, id);
  for (Warp& w : b.warps)
    for (int i = 0; i < w.nsplits; i++) {
      Split& s = w.splits[i];
      if (s.wait != Wait::Barrier || s.barrier != id) continue;
      s.wait = Wait::Run;
      s.barrier = 0;
      const Inst* in = s.pc - 1;
      if (in->x == 2) put<u32>(w, s.mask, in->d, [&](int) { return bar.votes; });
      if (in->x == 3) set_pred(w, in->d, s.mask, bar.votes == bar.voters ? FULL : 0);
      if (in->x == 4) set_pred(w, in->d, s.mask, bar.votes ? FULL : 0);
    }
  join_clocks(b, bar.warps);
}

void members(Decoder& d, Inst& in, std::vector<u32> slots) { in.ext = d.ext(slots); }

void h_shfl(Decoder& d, Mods& m) {
  if (!m.take("sync")) m.unsupported("without sync");
  int mode = m.take("up") ? 0 : m.take("down") ? 1 : m.take("bfly") ? 2 : m.take("idx") ? 3 : -1;
  m.take("b32");
  m.finish();
  if (mode < 0) throw PtxError("shfl without a mode");
  d.need(5);
  const Operand dest = d.op(0);
  bool two = dest.kind == Operand::Pair;
  u32 a = d.src(d.op(1), Ty::B32), b = d.src(d.op(2), Ty::B32), c = d.src(d.op(3), Ty::B32),
      k = d.src(d.op(4), Ty::B32);
  u32 r = d.dst(two ? d.element(dest, 0) : dest, Ty::B32), p = two ? d.pred_dst(d.element(dest, 1)) : 0;
  Inst& in = d.emit(mode == 0 ? op_shfl<0> : mode == 1 ? op_shfl<1> : mode == 2 ? op_shfl<2> : op_shfl<3>, Class::Sync);
  in.a = a, in.b = b, in.c = c, in.d = r, in.y = two;
  members(d, in, {k, p});
}

void h_vote(Decoder& d, Mods& m) {
  if (!m.take("sync")) m.unsupported("without sync");
  int kind = m.take("all") ? 0 : m.take("any") ? 1 : m.take("uni") ? 2 : m.take("ballot") ? 3 : -1;
  if (!m.take(kind == 3 ? "b32" : "pred")) throw PtxError("vote of this type");
  m.finish();
  d.need(3);
  bool negated = d.op(1).negated;
  u32 a = d.pred_src(d.op(1)), k = d.src(d.op(2), Ty::B32),
      r = kind == 3 ? d.dst(d.op(0), Ty::B32) : d.pred_dst(d.op(0));
  Inst& in = d.emit(op_vote, Class::Sync);
  in.a = a, in.d = r, in.x = (u8)kind, in.y = negated;
  members(d, in, {k});
}

void h_match(Decoder& d, Mods& m) {
  bool all = m.take("all");
  if (!all) m.take("any");
  if (!m.take("sync")) m.unsupported("without sync");
  Ty t = m.type();
  m.finish();
  d.need(3);
  if (size_of(t) != 4 && size_of(t) != 8) throw PtxError("match of this type");
  const Operand dest = d.op(0);
  bool two = dest.kind == Operand::Pair;
  u32 a = d.src(d.op(1), t), k = d.src(d.op(2), Ty::B32), r = d.dst(two ? d.element(dest, 0) : dest, Ty::B32);
  u32 p = two ? d.pred_dst(d.element(dest, 1)) : 0;
  Inst& in = d.emit(size_of(t) == 8 ? op_match<u64> : op_match<u32>, Class::Sync);
  in.a = a, in.d = r, in.x = all, in.y = two;
  members(d, in, {k, p});
}

void h_redux(Decoder& d, Mods& m) {
  if (!m.take("sync")) m.unsupported(m.peek());
  const char* ops[] = {"add", "min", "max", "and", "or", "xor"};
  int op = -1;
  for (int i = 0; i < 6; i++)
    if (m.take(ops[i])) op = i;
  Ty t = m.type();
  m.finish();
  if (op < 0 || size_of(t) != 4 || t == Ty::F32) throw Unsupported("redux.sync of this form");
  d.need(3);
  u32 a = d.src(d.op(1), t), k = d.src(d.op(2), Ty::B32), r = d.dst(d.op(0), t);
  Inst& in = d.emit(op_redux, Class::Sync);
  in.a = a, in.d = r, in.x = (u8)op, in.y = t == Ty::S32;
  members(d, in, {k});
}

void h_elect(Decoder& d, Mods& m) {
  if (!m.take("sync")) m.unsupported(m.peek());
  m.finish();
  d.need(2);
  const Operand dest = d.op(0);
  if (dest.kind != Operand::Pair) throw PtxError("elect needs two destinations");
  u32 k = d.src(d.op(1), Ty::B32), r = d.dst(d.element(dest, 0), Ty::B32), p = d.pred_dst(d.element(dest, 1));
  Inst& in = d.emit(op_elect, Class::Sync);
  in.d = r;
  members(d, in, {k, p});
}

void h_activemask(Decoder& d, Mods& m) {
  m.take("b32");
  m.finish();
  d.need(1);
  u32 r = d.dst(d.op(0), Ty::B32);
  d.emit(op_activemask, Class::Sync).d = r;
}

void h_bar(Decoder& d, Mods& m) {
  if (cluster_barrier(d, m)) return;
  if (m.take("warp")) {
    if (!m.take("sync")) m.unsupported("warp");
    m.finish();
    d.need(1);
    u32 k = d.src(d.op(0), Ty::B32);
    d.emit(op_warpsync, Class::Sync).a = k;
    return;
  }
  m.take("cta");
  int kind = m.take("sync") ? 0 : m.take("arrive") ? 1 : -1;
  if (m.take("red")) kind = m.take("popc") ? 2 : m.take("and") ? 3 : m.take("or") ? 4 : -1;
  if (kind < 0) m.unsupported(m.peek());
  m.take("aligned");
  if (kind >= 2 && !m.take(kind == 2 ? "u32" : "pred")) throw PtxError("bar.red of this type");
  m.finish();
  u32 first = kind >= 2 ? 1 : 0, last = d.count() - (kind >= 2 ? 1 : 0);
  if (last <= first || last - first > 2) throw PtxError("wrong number of operands");
  bool counted = last - first == 2;
  if (kind == 1 && !counted) throw PtxError("bar.arrive needs a thread count");
  u32 a = d.src(d.op(first), Ty::U32), b = counted ? d.src(d.op(first + 1), Ty::U32) : 0, c = 0, r = 0;
  bool negated = false;
  if (kind >= 2) {
    negated = d.op(last).negated;
    c = d.pred_src(d.op(last));
    r = kind == 2 ? d.dst(d.op(0), Ty::U32) : d.pred_dst(d.op(0));
  }
  Inst& in = d.emit(op_barrier, Class::Sync);
  in.a = a, in.b = b, in.c = c, in.d = r;
  in.n = counted, in.x = (u8)kind, in.y = negated;
}
}  // namespace

void check_barriers(Launch&, Block& b) {
  for (u32 id = 0; id < 16; id++) {
    const Barrier& bar = b.barriers[id];
    if (bar.arrived && bar.arrived >= (bar.counted ? bar.expected : b.live)) complete(b, id);
  }
}

void h_setmaxnreg(Decoder& d, Mods& m) {
  if (!m.take("inc") && !m.take("dec")) m.unsupported(m.peek());
  if (!m.take("sync")) m.unsupported(m.peek());
  m.take("aligned");
  if (!m.take("u32")) m.unsupported(m.peek());
  m.finish();
  d.need(1);
  i64 count = d.immediate(d.op(0));
  if (count < 24 || count > 256 || count % 8) throw PtxError("setmaxnreg of another count than 24, 32, ... 256");
  u32 all = d.constant(FULL, 4);
  d.emit(op_warpsync, Class::Sync).a = all;  // registers are not short here: it only gathers the warp
}

void add_warp_handlers(Handlers& h) {
  h["shfl"] = h_shfl;
  h["vote"] = h_vote;
  h["match"] = h_match;
  h["redux"] = h_redux;
  h["elect"] = h_elect;
  h["setmaxnreg"] = h_setmaxnreg;
  h["activemask"] = h_activemask;
  h["bar"] = h["barrier"] = h_bar;
}
}  // namespace kw
