// Runs one block for a turn: its warps one after another, a warp's divergent paths in order of address.
#include <algorithm>

#include "copies/async.h"
#include "decode/specials.h"
#include "checks/watch.h"

namespace kw {
namespace {
constexpr u32 SLICE = 2048;  // backward jumps before another split or warp gets its turn
constexpr u32 POLL = 32;     // the same for loops that may wait for another thread
constexpr u32 PATIENCE = 4;  // rounds of nothing but polling before another block gets its turn
constexpr u32 QUANTUM = 64;  // rounds before another block gets its turn in any case
constexpr size_t MAX_WARNINGS = 64;
constexpr u32 PREEMPT_ONE_IN = 4;  // chances to preempt that are taken

void fill_slot(Launch& l, Block& b, Warp& w, const FixedSlot& s) {
  if (s.bytes == 0) {
    bool on = s.kind == FixedSlot::Special && special_value(l, b, w, 0, (int)s.bits);
    pred(w, s.offset) = s.kind == FixedSlot::Special ? (on ? FULL : 0) : (u32)s.bits;
    return;
  }
  for (int i = 0; i < LANES; i++) {
    u64 v = s.bits;
    if (s.kind == FixedSlot::Special) v = special_value(l, b, w, i, (int)s.bits);
    if (s.kind == FixedSlot::Param) {
      v = 0;
      std::memcpy(&v, l.params.data() + s.bits, std::min<size_t>(s.mem_bytes, 8));
      if (s.sign && s.mem_bytes < 8) v = (u64)((i64)(v << (64 - 8 * s.mem_bytes)) >> (64 - 8 * s.mem_bytes));
    }
    u8* at = reinterpret_cast<u8*>(w.regs) + s.offset + i * s.bytes;
    std::memset(at, 0, s.bytes);
    std::memcpy(at, &v, std::min<size_t>(s.bytes, 8));
  }
}

}  // namespace

void prepare_warps(Launch& l, Block& b, char* registers, size_t stride) {
  const Kernel& k = *l.kernel;
  b.threads = l.block[0] * l.block[1] * l.block[2];
  b.warps.resize((b.threads + 31) / 32);
  for (u32 i = 0; i < b.warps.size(); i++) {
    Warp& w = b.warps[i];
    w.regs = registers + stride * i;
    w.id = i;
    w.launch = &l;
    w.block = &b;
    w.ext = k.ext.data();
    for (const FixedSlot& s : k.fixed) fill_slot(l, b, w, s);
  }
}

void start_block(Launch& l, Block& b) {
  const Kernel& k = *l.kernel;
  std::memset(l.shared, l.poison, l.shared_bytes);
  if (k.local_bytes) std::memset(l.local, l.poison, (size_t)k.local_bytes * b.threads);
  b.live = b.threads;
  for (Barrier& bar : b.barriers) bar = Barrier{};
  reset_async(*b.resident);
  l.blocks_run++;
  if (l.races) begin_race_checks(l, b, l.blocks_left < 2);
  if (l.watch) l.watch->begin_block(b, l.blocks_left < 2);
  for (Warp& w : b.warps) {
    w.live = lanes_below(std::min(32u, b.threads - w.id * 32));
    w.nsplits = 0;
    w.turn = 0;
    w.fenced = w.polls = false;
    w.polled = nullptr;
    w.cluster_open = w.cluster_owed = 0;
    w.choices = 0;
    for (const FixedSlot& s : k.fixed)
      if (s.kind == FixedSlot::Special && special_per_block((int)s.bits)) fill_slot(l, b, w, s);
    for (auto [offset, bytes] : k.poison) std::memset(w.regs + offset, l.poison, bytes);
    push_split(w, k.code.data(), w.live, Wait::Run);
  }
}

// In random order a warp's paths sometimes run in another order than by address: code that counts on lock-step fails.
// Only the first choices of a block are free, since paths meet again late.
namespace {
int any_split(Warp& w, int best) {
  constexpr u32 FREE_CHOICES = 64;
  if (w.choices >= FREE_CHOICES) return best;
  w.choices++;
  if (w.launch->random() % 2) return best;
  int ready[LANES], n = 0;
  for (int i = 0; i < w.nsplits; i++)
    if (w.splits[i].wait == Wait::Run && w.splits[i].turn == w.splits[best].turn) ready[n++] = i;
  return ready[w.launch->random() % (u64)n];
}

// Takes the runnable split with the lowest address (or the one that waited longest) and all others at the same place.
bool pick(Warp& w) {
  int best = -1;
  for (int i = 0; i < w.nsplits; i++) {
    const Split& s = w.splits[i];
    if (s.wait != Wait::Run) continue;
    if (best < 0 || s.turn < w.splits[best].turn || (s.turn == w.splits[best].turn && s.pc < w.splits[best].pc))
      best = i;
  }
  if (best < 0) return false;
  if (w.nsplits > 1 && w.launch->order == 2) best = any_split(w, best);
  const Inst* pc = w.splits[best].pc;
  w.turn = w.splits[best].turn;
  w.mask = 0;
  w.limit = STOP;
  int keep = 0;
  for (int i = 0; i < w.nsplits; i++) {
    const Split s = w.splits[i];
    if (s.wait == Wait::Run && s.pc == pc) {
      w.mask |= s.mask;
    } else {
      if (s.wait == Wait::Run && s.pc > pc && s.pc < w.limit) w.limit = s.pc;
      w.splits[keep++] = s;
    }
  }
  w.nsplits = keep;
  w.segment = pc;
  return true;
}

// False when the warp did nothing but poll.
bool run_warp(Warp& w) {
  w.ticks = 0;
  while (pick(w)) {
    const Inst* in = w.segment;
    w.event = Event::None;
    while (in < w.limit) in = in->fn(w, in);
    if (in != STOP) {  // reached a place where another split waits
      if (in > w.segment) close_segment(w, in - 1);
      push_split(w, in, w.mask, Wait::Run);
    } else if (w.launch->preempted) {
      return true;
    } else if (w.event == Event::Yield && (w.polls || w.ticks >= 2 * SLICE)) {
      bool polled = w.polls;
      w.polls = false;
      return !polled;
    }
  }
  return true;
}

bool runnable(const Warp& w) {
  for (int i = 0; i < w.nsplits; i++)
    if (w.splits[i].wait == Wait::Run) return true;
  return false;
}

string lanes_text(u32 mask) {
  char t[16];
  std::snprintf(t, sizeof t, "%08x", mask);
  return t;
}

}  // namespace

string waiting_text(Launch& l, const Block& b, const Inst** first, int* thread) {
  string text;
  int listed = 0;
  bool polling = false;  // the thread that polls is the one to name, not those that wait for it at a barrier
  for (const Warp& w : b.warps)
    for (int i = 0; i < w.nsplits; i++) {
      const Split& s = w.splits[i];
      const Inst* at = s.pc;
      if (s.wait == Wait::Barrier) at--;  // its split already points behind it
      bool polls = s.wait == Wait::Run && w.polled;
      if (polls) at = w.polled;
      if (!*first || (polls && !polling)) polling = polls, *first = at, *thread = thread_of(w, __builtin_ctz(s.mask));
      if (listed++ == 4) text += "; ...";
      if (listed > 4) continue;
      string op(l.kernel->meta[(size_t)(at - l.kernel->code.data())].text);
      text += (text.empty() ? "" : "; ") + string("warp ") + std::to_string(w.id) + " lanes " + lanes_text(s.mask) +
              " wait at '" + op.substr(0, 80) + "'";
    }
  return text;
}

static bool waits_for_cluster(const Block& b) {
  for (const Warp& w : b.warps)
    for (int i = 0; i < w.nsplits; i++)
      if (w.splits[i].wait == Wait::Cluster) return true;
  return false;
}

[[noreturn]] static void report_deadlock(Launch& l, Block& b) {
  const Inst* first = nullptr;
  int thread = -1;
  string text = waiting_text(l, b, &first, &thread);
  raise(first, thread, "barrier-deadlock",
        "deadlock: " + text + "; " + std::to_string(b.threads - b.live) + " of " + std::to_string(b.threads) +
            " threads have exited");
}

// A warp has faulted after it read shared memory that nobody had written. The other warps go on to their next barrier:
// if one of them writes there, the cause is that the warp did not wait for it.
static void run_others(Launch& l, Block& b, Warp& faulted) {
  bool read_early = false;
  for (const Warning& x : l.warnings) read_early |= x.fault.kind == "uninitialised-read";
  if (!read_early) return;
  l.interleave = false;
  for (Warp& w : b.warps) {
    if (&w == &faulted || !runnable(w)) continue;
    try {
      run_warp(w);
    } catch (const Fault&) {  // the first fault is the one to tell
    }
  }
}

Turn run_turn(Launch& l, Block& b) {
  u32 n = (u32)b.warps.size(), idle = 0;
  std::vector<u32> turns(n);
  for (u32 i = 0; i < n; i++) turns[i] = l.order == 1 ? n - 1 - i : i;
  Turn result;
  for (u32 round = 0; b.live; round++) {
    if (idle == PATIENCE || (round == QUANTUM && l.kernel->may_wait)) return result;
    if (l.order == 2) std::shuffle(turns.begin(), turns.end(), l.random);
    bool ran = false, worked = false;
    u64 before = l.changes + l.count.global_stores + l.count.shared_stores;
    for (u32 t : turns) {
      Warp& w = b.warps[t];
      if (!runnable(w)) continue;
      ran = true;
      try {
        worked |= run_warp(w);
      } catch (const Fault&) {
        run_others(l, b, w);
        throw;
      }
      if (!l.preempted) continue;
      l.preempted = false;
      result.preempted = l.random() % 2;  // else another warp of this block goes on
      if (result.preempted) return result.worked = true, result;
    }
    worked |= before != l.changes + l.count.global_stores + l.count.shared_stores;
    result.worked |= worked;
    idle = worked ? 0 : idle + 1;
    if (ran && worked && l.interleave && l.preemptions && l.random() % PREEMPT_ONE_IN == 0) {
      l.preemptions--;  // all of its warps wait at a barrier
      result.preempted = true;
      return result;
    }
    if (ran) continue;
    if (!waits_for_cluster(b)) report_deadlock(l, b);
    return result;
  }
  result.done = result.worked = true;
  return result;
}

void close_segment(Warp& w, const Inst* last) {
  Launch& l = *w.launch;
  const Inst* code = l.kernel->code.data();
  i64 lanes = __builtin_popcount(w.mask);
  l.executed[(size_t)(w.segment - code)] += lanes;
  l.executed[(size_t)(last + 1 - code)] -= lanes;
  if (l.watch) l.issues[(size_t)(w.segment - code)]++, l.issues[(size_t)(last + 1 - code)]--;
  l.total += (u64)(last + 1 - w.segment) * (u64)lanes;
  l.issued += (u64)(last + 1 - w.segment);
  if (l.total > l.budget)
    raise(last, thread_of(w, w.mask ? __builtin_ctz(w.mask) : 0), "instruction-budget",
          "instruction budget exceeded: more than " + std::to_string(l.budget) +
              " thread instructions (an endless loop, or a wait for a block that runs later)");
}

void push_split(Warp& w, const Inst* pc, u32 mask, Wait wait, u8 barrier) {
  if (!mask) return;
  if (wait == Wait::Run && pc < w.limit) w.limit = pc;
  for (int i = 0; i < w.nsplits; i++) {
    Split& s = w.splits[i];
    if (s.pc == pc && s.wait == wait && s.barrier == barrier) {
      s.mask |= mask;
      return;
    }
  }
  w.splits[w.nsplits++] = Split{pc, mask, wait, barrier, w.turn};
}

const Inst* jump(Warp& w, const Inst* from, const Inst* to) {
  w.segment = to;
  if (to <= from) w.jumps++;
  if (to <= from && ++w.ticks % (w.polls ? POLL : SLICE) == 0) {
    w.turn++;  // a spinning split gives way to those that wait behind it
    push_split(w, to, w.mask, Wait::Run);
    w.event = Event::Yield;
    return STOP;
  }
  w.limit = STOP;
  for (int i = 0; i < w.nsplits; i++) {
    const Split& s = w.splits[i];
    if (s.wait != Wait::Run) continue;
    if (s.pc >= to)
      w.limit = std::min(w.limit, s.pc);
    else if (s.turn <= w.turn)
      w.limit = to;  // somebody lower goes first: leave the loop at once
  }
  return to;
}

const Inst* preempt(Warp& w, const Inst* in) {
  Launch& l = *w.launch;
  if (!l.preemptions || l.random() % PREEMPT_ONE_IN) return in + 1;
  l.preemptions--;
  close_segment(w, in);
  push_split(w, in + 1, w.mask, Wait::Run);
  w.event = Event::Yield;
  l.preempted = true;
  return STOP;
}

void give_way(Warp& w) { w.ticks |= SLICE - 1; }

bool take_guarded(Warp& w, const Inst* in) {
  u32 m = active(w, in);
  if (m == w.mask) return true;
  if (!m) return false;
  if (in > w.segment) close_segment(w, in - 1);
  push_split(w, in + 1, w.mask & ~m, Wait::Run);
  w.mask = m;
  w.segment = in;
  return true;
}

bool arrive(Warp& w, const Inst* in, const u32* members) {
  u32 here = w.mask;
  for (int i = 0; i < w.nsplits; i++)
    if (w.splits[i].pc == in && w.splits[i].wait != Wait::Barrier) here |= w.splits[i].mask;
  u32 missing = w.live & ~here, ready = here;
  if (missing) ready = members ? here & ~bits_of([&](int i) { return (members[i] & missing) != 0; }) : 0;
  if (in > w.segment) close_segment(w, in - 1);
  w.segment = in;
  if (!ready) {
    push_split(w, in, w.mask, Wait::Sync);
    w.event = Event::Blocked;
    return false;
  }
  for (int i = 0; i < w.nsplits; i++)
    if (w.splits[i].pc == in && w.splits[i].wait != Wait::Barrier) w.splits[i--] = w.splits[--w.nsplits];
  push_split(w, in, here & ~ready, Wait::Sync);
  w.mask = ready;
  if (w.launch->watch) w.launch->watch->meet(w, ready);
  return true;
}

void release_syncs(Warp& w) {
  for (int i = 0; i < w.nsplits; i++)
    if (w.splits[i].wait == Wait::Sync) w.splits[i].wait = Wait::Run;
}

int thread_of(const Warp& w, int lane) { return (int)w.id * 32 + lane; }

void raise(const Inst* in, int thread, const char* kind, const string& message) {
  throw Fault{kind, message, in, thread};
}

void warn(Warp& w, const Inst* in, int thread, const string& message, const char* kind) {
  Launch& l = *w.launch;
  for (const Warning& x : l.warnings)
    if (x.fault.in == in && x.fault.kind == kind) return;  // one report per instruction
  if (l.warnings.size() >= MAX_WARNINGS) return;
  Warning x{Fault{kind, message, in, thread}, {0, 0, 0}};
  std::copy(w.block->index, w.block->index + 3, x.block);
  l.warnings.push_back(std::move(x));
}

}  // namespace kw
