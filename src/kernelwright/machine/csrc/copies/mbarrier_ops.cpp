// mbarrier: barrier objects of 8 bytes in shared memory that count arrivals and bytes. Their layout, opaque to programs:
// bits 0-19 pending arrivals, 20-39 arrivals per phase, 40-60 pending bytes (signed), 61 the phase's parity, 62-63 are 2
// in an initialised barrier.
#include "checks/order.h"
#include "checks/watch.h"
#include "copies/async.h"
#include "memory/memory_ops.h"

namespace kw {
namespace {
constexpr u32 MOST = (1u << 20) - 1;
const char* const MISUSE = "mbarrier-misuse";

struct State {
  u32 missing, expected;
  i32 bytes;
  u32 phase;
};

State unpack(u64 v) {
  return {(u32)v & MOST, (u32)(v >> 20) & MOST, (i32)((u32)(v >> 40) << 11) >> 11, (u32)(v >> 61) & 1};
}

u64 pack(const State& s) {
  return 2ull << 62 | (u64)s.phase << 61 | ((u64)(u32)s.bytes & 0x1fffff) << 40 | (u64)s.expected << 20 | s.missing;
}

State read(const Inst* in, int thread, const char* at) {
  u64 v;
  std::memcpy(&v, at, 8);
  if (v >> 62 != 2) raise(in, thread, MISUSE, "this is no mbarrier: it was not initialised, or something overwrote it");
  return unpack(v);
}

// Closes the phase when nothing is missing.
void write(State s, char* at) {
  if (!s.missing && !s.bytes) {
    s.phase ^= 1;
    s.missing = s.expected;
  }
  u64 v = pack(s);
  std::memcpy(at, &v, 8);
}

void arrive(const Inst* in, int thread, char* at, u32 count, bool drop, u32 expect) {
  State s = read(in, thread, at);
  if (count > s.missing)
    raise(in, thread, MISUSE,
          std::to_string(count) + " arrivals at an mbarrier whose phase lacks " + std::to_string(s.missing) + " of " +
              std::to_string(s.expected));
  s.bytes += (i32)expect;
  if (expect > MOST) raise(in, thread, MISUSE, "expect_tx of more than 1048575 bytes");
  s.missing -= count;
  if (drop) s.expected -= count;
  write(s, at);
}

enum Op : u8 { Init, Inval, ExpectTx, CompleteTx };

// in->x: space; in->n: Op; in->b: count
const Inst* op_barrier_object(Warp& w, const Inst* in) {
  u32 m = active(w, in);
  if (!m) return in + 1;
  resolve(w, in, m, 8, (Space)in->x, true);
  const u32* count = slot<u32>(w, in->b);
  bool own = w.access.space == Space::Shared;
  if (w.launch->races && own) note_access(w, in, m, 8, in->n == Init ? Touch::Write : Touch::Atomic, nullptr);
  if (w.launch->watch && own && in->n == Init) {
    u32 offsets[LANES];
    for (int i = 0; i < LANES; i++) offsets[i] = (u32)w.access.address[i];
    w.launch->watch->wrote(w, in, m, offsets, 8);
  }
  for (u32 r = m; r; r &= r - 1) {
    int i = __builtin_ctz(r), thread = thread_of(w, i);
    char* at = lane_address(w.access, i, 8);
    w.launch->changes++;
    if (in->n == Init) {
      if (!count[i] || count[i] > MOST)
        raise(in, thread, MISUSE, "mbarrier.init with a count of " + std::to_string(count[i]));
      u64 v = pack({count[i], count[i], 0, 0});
      std::memcpy(at, &v, 8);
    } else if (in->n == Inval) {
      read(in, thread, at);
      std::memset(at, 0, 8);
    } else {
      State s = read(in, thread, at);
      s.bytes += in->n == ExpectTx ? (i32)count[i] : -(i32)count[i];
      write(s, at);
    }
  }
  return in + 1;
}

// in->x: space; in->n: bit 0 drop, bit 1 expect_tx, bit 2 noComplete, bit 3 has a result; in->b: count or bytes
const Inst* op_arrive(Warp& w, const Inst* in) {
  u32 m = active(w, in);
  if (!m) return in + 1;
  resolve(w, in, m, 8, (Space)in->x, true);
  if (w.launch->races) {
    if (w.access.space == Space::Shared) note_access(w, in, m, 8, Touch::Atomic, nullptr);
    atomic_order(w, true);
    note_signal(w, true);
  }
  const u32* operand = slot<u32>(w, in->b);
  u64* state = slot<u64>(w, in->d);
  for (u32 r = m; r; r &= r - 1) {
    int i = __builtin_ctz(r), thread = thread_of(w, i);
    char* at = lane_address(w.access, i, 8);
    State before = read(in, thread, at);
    bool expects = in->n & 2;
    u32 count = expects ? 1 : operand[i];
    if ((in->n & 4) && count >= before.missing)
      raise(in, thread, MISUSE, "mbarrier.arrive.noComplete would complete the phase");
    arrive(in, thread, at, count, in->n & 1, expects ? operand[i] : 0);
    if (in->n & 8) state[i] = pack(before);
  }
  if (w.launch->watch) w.launch->watch->meet(w, m);  // what these lanes did before is ordered by the barrier's phase
  w.launch->changes++;
  return in + 1;
}

bool is_over(const State& s, u64 wanted, bool parity) {
  u32 phase = parity ? (u32)wanted & 1 : unpack(wanted).phase;
  return s.phase != phase;
}

// in->x: space; in->n: by parity; in->b: state or parity
const Inst* op_test_wait(Warp& w, const Inst* in) {
  u32 m = active(w, in);
  if (!m) return in + 1;
  resolve(w, in, m, 8, (Space)in->x, false);
  if (w.access.space != Space::Shared)
    raise(in, thread_of(w, __builtin_ctz(m)), MISUSE,
          "a wait for an mbarrier of another block or outside of shared memory");
  if (w.launch->races) note_access(w, in, m, 8, Touch::Atomic, nullptr);
  char* at[LANES];
  for (u32 r = m; r; r &= r - 1) at[__builtin_ctz(r)] = lane_address(w.access, __builtin_ctz(r), 8);
  const u64* states = slot<u64>(w, in->b);
  const u32* parities = slot<u32>(w, in->b);
  u32 over = 0;
  for (u32 r = m; r; r &= r - 1) {
    int i = __builtin_ctz(r), thread = thread_of(w, i);
    u64 wanted = in->n ? parities[i] : states[i];
    if (!is_over(read(in, thread, at[i]), wanted, in->n)) deliver_to(*w.block->resident, at[i]);
    if (is_over(read(in, thread, at[i]), wanted, in->n)) over |= r & -r;
  }
  if (over && w.launch->races) atomic_order(w, true);
  if (over && w.launch->watch) w.launch->watch->meet(w, over);
  if (over != m) w.polls = true, w.polled = in;
  set_pred(w, in->d, m, over);
  return in + 1;
}

const Inst* op_pending_count(Warp& w, const Inst* in) {
  const u64* a = slot<u64>(w, in->a);
  put<u32>(w, active(w, in), in->d, [&](int i) { return (u32)a[i] & MOST; });
  return in + 1;
}

void take_order(Mods& m) {
  for (const char* s : {"release", "acquire", "relaxed", "cta", "cluster"}) m.take(s);
}

void object_handler(Decoder& d, Mods& m, Op op) {
  take_order(m);
  Space space = take_space(m);
  if (!m.take("b64")) m.unsupported(m.peek());
  m.finish();
  d.need(op == Inval ? 1 : 2);
  u32 count = op == Inval ? 0 : d.src(d.op(1), Ty::U32);
  Inst& in = d.emit(op_barrier_object, Class::Sync);
  d.set_address(in, d.op(0), space);
  in.b = count;
  in.x = (u8)space;
  in.n = op;
}

void arrive_handler(Decoder& d, Mods& m, bool drop) {
  bool expects = m.take("expect_tx"), partial = m.take("noComplete");
  take_order(m);
  Space space = take_space(m);
  if (!m.take("b64")) m.unsupported(m.peek());
  m.finish();
  bool result = d.op(0).kind != Operand::Mem;
  u32 first = result;
  d.need(first + 1, first + 2);
  bool counted = d.count() == first + 2;
  if (expects && !counted) throw PtxError("mbarrier.arrive.expect_tx without a count of bytes");
  u32 operand = counted ? d.src(d.op(first + 1), Ty::U32) : d.constant(1, 4);
  bool kept = result && !d.is_sink(d.op(0));
  u32 state = kept ? d.dst(d.op(0), Ty::B64) : 0;
  Inst& in = d.emit(op_arrive, Class::Sync);
  d.set_address(in, d.op(first), space);
  in.b = operand, in.d = state;
  in.x = (u8)space;
  in.n = (u16)(drop | expects << 1 | partial << 2 | kept << 3);
}

void wait_handler(Decoder& d, Mods& m) {
  bool parity = m.take("parity");
  take_order(m);
  Space space = take_space(m);
  if (!m.take("b64")) m.unsupported(m.peek());
  m.finish();
  d.need(3, 4);  // the fourth is a hint for how long to sleep
  u32 wanted = d.src(d.op(2), parity ? Ty::U32 : Ty::B64), p = d.pred_dst(d.op(0));
  Inst& in = d.emit(op_test_wait, Class::Sync);
  d.set_address(in, d.op(1), space);
  in.b = wanted, in.d = p;
  in.x = (u8)space;
  in.n = parity;
}

void h_mbarrier(Decoder& d, Mods& m) {
  d.kernel().may_wait = true;
  d.kernel().has_copies = true;
  if (m.take("init")) return object_handler(d, m, Init);
  if (m.take("inval")) return object_handler(d, m, Inval);
  if (m.take("arrive")) return arrive_handler(d, m, false);
  if (m.take("arrive_drop")) return arrive_handler(d, m, true);
  if (m.take("expect_tx")) return object_handler(d, m, ExpectTx);
  if (m.take("complete_tx")) return object_handler(d, m, CompleteTx);
  if (m.take("test_wait") || m.take("try_wait")) return wait_handler(d, m);
  if (!m.take("pending_count")) m.unsupported(m.peek());
  if (!m.take("b64")) m.unsupported(m.peek());
  m.finish();
  d.need(2);
  u32 a = d.src(d.op(1), Ty::B64), r = d.dst(d.op(0), Ty::U32);
  Inst& in = d.emit(op_pending_count, Class::Sync);
  in.a = a, in.d = r;
}
}  // namespace

void arrive_on(Launch& l, const Inst* in, int thread, char* barrier, u32 count) {
  arrive(in, thread, barrier, count, false, 0);
  l.changes++;
}

void complete_bytes(const Inst* in, int thread, char* barrier, u32 bytes) {
  State s = read(in, thread, barrier);
  s.bytes -= (i32)bytes;
  write(s, barrier);
}

void expect_arrival(const Inst* in, int thread, char* barrier) {
  State s = read(in, thread, barrier);
  s.missing++;
  write(s, barrier);
}

void add_mbarrier_handlers(Handlers& h) { h["mbarrier"] = h_mbarrier; }
}  // namespace kw
