// Moves, address conversions, fences and prefetches.
#include "checks/order.h"
#include "memory/memory_ops.h"
#include "launch/resident_blocks.h"
#include "memory/shadow.h"

namespace kw {
namespace {
template <class T>
const Inst* op_mov(Warp& w, const Inst* in) {
  u32 m = active(w, in);
  const T* a = slot<T>(w, in->a);
  if (m == FULL) {
    if (in->a != in->d) std::memcpy(slot<T>(w, in->d), a, sizeof(T) * LANES);
  } else if constexpr (sizeof(T) == 16) {
    put_each<T>(w, m, in->d, [&](int i) { return a[i]; });
  } else {
    blend(slot<T>(w, in->d), a, m);
  }
  return in + 1;
}

const Inst* op_mov_pred(Warp& w, const Inst* in) {
  set_pred(w, in->d, active(w, in), pred(w, in->a));
  return in + 1;
}

// {a, b, ...} = wide, and wide = {a, b, ...}
template <class Part, class Whole, int N>
const Inst* op_unpack(Warp& w, const Inst* in) {
  u32 m = active(w, in);
  alignas(64) Whole a[LANES];
  std::memcpy(a, slot<Whole>(w, in->a), sizeof a);
  for (int k = 0; k < N; k++)
    put<Part>(w, m, w.ext[in->ext + (u32)k], [&](int i) {
      if constexpr (sizeof(Whole) == 16)
        return k ? a[i].hi : a[i].lo;
      else
        return (Part)(a[i] >> (k * 8 * (int)sizeof(Part)));
    });
  return in + 1;
}

template <class Part, class Whole, int N>
const Inst* op_pack(Warp& w, const Inst* in) {
  u32 m = active(w, in);
  const Part* p[N];
  for (int k = 0; k < N; k++) p[k] = slot<Part>(w, w.ext[in->ext + (u32)k]);
  if constexpr (sizeof(Whole) == 16) {
    put_each<Whole>(w, m, in->d, [&](int i) { return Whole{p[0][i], p[1][i]}; });
  } else {
    put<Whole>(w, m, in->d, [&](int i) {
      Whole v = 0;
      for (int k = 0; k < N; k++) v |= (Whole)((Whole)p[k][i] << (k * 8 * (int)sizeof(Part)));
      return v;
    });
  }
  return in + 1;
}

template <class T>
const Inst* op_clock(Warp& w, const Inst* in) {  // time is the number of thread instructions so far
  u64 now = w.launch->total + (u64)(in - w.segment);
  put<T>(w, active(w, in), in->d, [&](int) { return (T)(now >> in->x); });
  return in + 1;
}

const Inst* op_cvta(Warp& w, const Inst* in) {
  const u64* a = slot<u64>(w, in->a);
  u64 add = (u64)in->imm;
  put<u64>(w, active(w, in), in->d, [&](int i) { return a[i] + add; });
  return in + 1;
}

const Inst* op_isspacep(Warp& w, const Inst* in) {
  const u64* a = slot<u64>(w, in->a);
  u32 r = 0;
  u64 own = in->x ? w.block->resident->rank + 1 : 0;  // shared::cta: another block's memory is none of it
  for (int i = 0; i < LANES; i++) {
    u64 rank = a[i] >> RANK_SHIFT & 0xff;
    r |= (u32)((a[i] >> 60) == (u64)in->imm && !(in->x && rank && rank != own)) << i;
  }
  set_pred(w, in->d, active(w, in), r);
  return in + 1;
}

const Inst* op_fence(Warp& w, const Inst* in) {  // in->n: device-wide
  if (!active(w, in)) return in + 1;
  w.fenced = true;
  if (in->n) note_fence(w);
  return go_on(w, in);
}

const Inst* op_skip(Warp&, const Inst* in) { return in + 1; }

}  // namespace

Fn mov_fn(int bytes) {
  return bytes == 2 ? op_mov<u16> : bytes == 4 ? op_mov<u32> : bytes == 8 ? op_mov<u64> : op_mov<Wide>;
}

namespace {
void move_vector(Decoder& d, Ty t, bool unpack) {
  const Operand& vec = d.op(unpack ? 0 : 1);
  int whole = size_of(t), n = (int)vec.count, part = n ? whole / n : 0;
  Ty pt = part == 2 ? Ty::B16 : part == 4 ? Ty::B32 : part == 8 ? Ty::B64 : Ty::None;
  if (pt == Ty::None || part * n != whole || !(n == 2 || n == 4)) throw Unsupported("mov of this vector");
  std::vector<u32> parts;
  for (u32 i = 0; i < vec.count; i++) {
    const Operand o = d.element(vec, i);
    parts.push_back(unpack ? d.dst(o, pt) : d.src(o, pt));
  }
  u32 wide = unpack ? d.src(d.op(1), t) : d.dst(d.op(0), t);
  Fn fn = nullptr;
  if (whole == 4 && n == 2) fn = unpack ? op_unpack<u16, u32, 2> : op_pack<u16, u32, 2>;
  if (whole == 8 && n == 2) fn = unpack ? op_unpack<u32, u64, 2> : op_pack<u32, u64, 2>;
  if (whole == 8 && n == 4) fn = unpack ? op_unpack<u16, u64, 4> : op_pack<u16, u64, 4>;
  if (whole == 16 && n == 2) fn = unpack ? op_unpack<u64, Wide, 2> : op_pack<u64, Wide, 2>;
  if (!fn) throw Unsupported("mov of this vector");
  Inst& in = d.emit(fn, Class::Int);
  in.ext = d.ext(parts);
  (unpack ? in.a : in.d) = wide;
}

void h_mov(Decoder& d, Mods& m) {
  Ty t = m.type();
  m.finish();
  d.need(2);
  if (t == Ty::Pred) {
    u32 a = d.pred_src(d.op(1)), p = d.pred_dst(d.op(0));
    Inst& in = d.emit(op_mov_pred, Class::Int);
    in.a = a;
    in.d = p;
    return;
  }
  if (d.op(0).kind == Operand::Vec) return move_vector(d, t, true);
  if (d.op(1).kind == Operand::Vec) return move_vector(d, t, false);
  string_view name = d.op(1).name;
  bool clock = name == "%clock" || name == "%clock64" || name == "%clock_hi" || name.substr(0, 12) == "%globaltimer";
  if (clock) {
    u32 dest = d.dst(d.op(0), t);
    Inst& in = d.emit(size_of(t) == 8 ? op_clock<u64> : op_clock<u32>, Class::Int);
    in.d = dest;
    in.x = name == "%clock_hi" || name == "%globaltimer_hi" ? 32 : 0;
    return;
  }
  u32 a = d.src(d.op(1), t), dest = d.dst(d.op(0), t);
  Inst& in = d.emit(mov_fn(size_of(t) == 1 ? 2 : size_of(t)), Class::Int);
  in.a = a;
  in.d = dest;
}

void h_cvta(Decoder& d, Mods& m) {
  bool to = m.take("to");
  Space s = take_space(m);
  if (!m.take("u64")) m.unsupported(m.peek());
  m.finish();
  d.need(2);
  u64 base = s == Space::Shared || s == Space::Cluster ? SHARED_WINDOW
             : s == Space::Local ? LOCAL_WINDOW
             : s == Space::Param ? PARAM_WINDOW
                                 : 0;
  if (s == Space::Generic) throw Unsupported("cvta without a space");
  u32 a = d.src(d.op(1), Ty::U64), dest = d.dst(d.op(0), Ty::U64);
  Inst& in = d.emit(base ? op_cvta : op_mov<u64>, Class::Int);
  in.a = a;
  in.d = dest;
  in.imm = (i64)(to ? 0 - base : base);
}

void h_isspacep(Decoder& d, Mods& m) {
  Space s = take_space(m);
  m.finish();
  d.need(2);
  if (s == Space::Const || s == Space::Generic) m.unsupported(m.peek().empty() ? "const" : m.peek());
  u32 a = d.src(d.op(1), Ty::U64), p = d.pred_dst(d.op(0));
  Inst& in = d.emit(op_isspacep, Class::Int);
  in.a = a;
  in.d = p;
  in.x = s == Space::Shared;
  in.imm = s == Space::Shared || s == Space::Cluster ? 1 : s == Space::Local ? 2 : s == Space::Param ? 3 : 0;
}

void h_fence(Decoder& d, Mods& m) {
  d.kernel().may_wait = true;
  if (m.take("proxy")) {  // between the ways to memory, which are one here
    if (m.take("tensormap::generic")) {
      m.take("acquire") || m.take("release");
    } else if (!m.take("async") && !m.take("alias") && !m.take("async::generic") && !m.take("tensormap")) {
      m.unsupported("proxy." + string(m.peek()));
    }
    for (const char* s : {"acquire", "release"}) m.take(s);
    for (const char* s : {"global", "shared", "shared::cta", "shared::cluster"}) m.take(s);
  }
  m.take("mbarrier_init");
  for (const char* s : {"sync_restrict::shared::cta", "sync_restrict::shared::cluster"}) m.take(s);
  bool narrow = m.take("cta");
  for (const char* s : {"sc", "acq_rel", "acquire", "release", "cta", "gl", "gpu", "sys", "cluster"}) narrow |= m.take(s) && s == string_view("cta");
  m.finish();
  d.emit(op_fence, Class::Sync).n = !narrow;
}

void h_prefetch(Decoder& d, Mods& m) {
  if (m.take("tensormap"))
    for (const char* s : {"param", "const"}) m.take(s);
  for (const char* s : {"global", "local", "L1", "L2", "L2::evict_last", "L2::evict_normal"}) m.take(s);
  m.finish();
  d.emit(op_skip, Class::Memory);
}
const Inst* op_discard(Warp& w, const Inst* in) {  // what is in the line afterwards is nobody's business: poison
  u32 m = active(w, in);
  if (!m) return in + 1;
  resolve(w, in, m, 128, (Space)in->x, true);
  Access& x = w.access;
  for (u32 r = m; r; r &= r - 1) {
    int i = __builtin_ctz(r);
    char* line = x.kind == Access::Gather ? x.at[i] : x.base + (x.kind == Access::Contiguous ? i * 128 : 0);
    std::memset(line, w.launch->poison, 128);
    note_written(*w.launch, (u64)line, 128, false);
  }
  return in + 1;
}

void h_line(Decoder& d, Mods& m) {  // discard, applypriority: of one cache line
  Space s = take_space(m);
  bool known = m.take(m.op == "discard" ? "L2" : "L2::evict_normal");
  m.finish();
  d.need(2);
  if (!known || (s != Space::Global && s != Space::Generic) || d.immediate(d.op(1)) != 128)
    throw PtxError(string(m.op) + " of this form");
  if (m.op != "discard") return void(d.emit(op_skip, Class::Memory));
  Inst& in = d.emit(op_discard, Class::Memory);
  d.set_address(in, d.op(0), s);
  in.x = (u8)s;
}

void h_createpolicy(Decoder& d, Mods& m) {  // policies change no result, so every one of them is zero
  if (!m.take("fractional") && !m.take("range") && !m.take("cvt")) m.unsupported(m.peek());
  m.take("global");
  for (const char* s : {"L2", "L2::evict_last", "L2::evict_normal", "L2::evict_first", "L2::evict_unchanged"}) m.take(s);
  if (!m.take("b64")) m.unsupported(m.peek());
  m.finish();
  d.need(1, 4);
  u32 zero = d.constant(0, 8), r = d.dst(d.op(0), Ty::B64);
  Inst& in = d.emit(op_mov<u64>, Class::Int);
  in.a = zero, in.d = r;
}
}  // namespace

void add_move_handlers(Handlers& h) {
  h["mov"] = h_mov;
  h["cvta"] = h_cvta;
  h["isspacep"] = h_isspacep;
  h["membar"] = h["fence"] = h_fence;
  h["discard"] = h["applypriority"] = h_line;
  h["createpolicy"] = h_createpolicy;
  h["prefetch"] = h["prefetchu"] = h_prefetch;
}
}  // namespace kw
