// Loads, stores, moves, address conversions, cp.async and fences.
#include "decode.h"
#include "launch.h"

namespace kw {
namespace {
struct Wide {  // a 128-bit value
  u64 lo, hi;
};

void count_access(Warp& w, u32 m, u32 bytes, bool write) {
  Counters& c = w.launch->count;
  u64 lanes = (u64)__builtin_popcount(m);
  if (w.access.space == Space::Shared) {
    (write ? c.shared_stores : c.shared_loads) += lanes;
  } else if (w.access.space == Space::Global) {
    (write ? c.global_stores : c.global_loads) += lanes;
    (write ? c.global_store_bytes : c.global_load_bytes) += lanes * bytes;
  }
}

template <class T>
T read_as(const char* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

template <class Mem, class Reg>
Reg widen(Mem v) {
  if constexpr (sizeof(Mem) == sizeof(Reg)) return bit_cast<Reg>(v);
  else return (Reg)v;
}

// in->x: space; in->n bit 0: volatile or atomic, so no race check.
template <class Mem, class Reg, int V>
const Inst* op_load(Warp& w, const Inst* in) {
  u32 m = active(w, in);
  if (!m) return in + 1;
  constexpr u32 bytes = sizeof(Mem) * V;
  resolve(w, in, m, bytes, (Space)in->x, false);
  count_access(w, m, bytes, false);
  if (in->n & 1) w.polls = true;
  else if (w.launch->races) note_access(w, in, m, bytes, Touch::Read, nullptr);
  Access& x = w.access;
  for (int v = 0; v < V; v++) {
    Reg* d = slot<Reg>(w, V == 1 ? in->d : w.ext[in->ext + (u32)v]);
    if (x.kind == Access::Contiguous) {
      const char* p = x.base + v * (int)sizeof(Mem);
      if constexpr (V == 1 && sizeof(Mem) == sizeof(Reg)) {
        std::memcpy(d, p, sizeof(Reg) * LANES);
      } else {
        for (int i = 0; i < LANES; i++) d[i] = widen<Mem, Reg>(read_as<Mem>(p + i * (int)bytes));
      }
    } else if (x.kind == Access::Uniform) {
      Reg value = widen<Mem, Reg>(read_as<Mem>(x.base + v * (int)sizeof(Mem)));
      for (int i = 0; i < LANES; i++) d[i] = value;
    } else {
      if (m == FULL) {
#pragma GCC unroll 8
        for (int i = 0; i < LANES; i++) d[i] = widen<Mem, Reg>(read_as<Mem>(x.at[i] + v * (int)sizeof(Mem)));
        continue;
      }
      for (u32 r = m; r; r &= r - 1) {
        int i = __builtin_ctz(r);
        d[i] = widen<Mem, Reg>(read_as<Mem>(x.at[i] + v * (int)sizeof(Mem)));
      }
    }
  }
  return in + 1;
}

// Shared memory with 32-bit addresses, whole warp, no race check: no need to know the pattern of the addresses.
// Fills `at` with offsets; false when anything is unusual, then the general path says what.
[[gnu::always_inline]] inline bool quick_shared(Warp& w, const Inst* in, u32 m, u32 bytes, u32* at) {
  Launch& l = *w.launch;
  if (m != FULL || w.block->check_shared || l.shared_bytes < bytes) return false;
  const u32* base = slot<u32>(w, in->a);
  u32 add = (u32)in->imm, room = (u32)l.shared_bytes - bytes, bad = 0;
#pragma GCC ivdep
  for (int i = 0; i < LANES; i++) {
    at[i] = base[i] + add;
    bad |= at[i] | (room - at[i]);  // both are below 2^31 when the offset is right
  }
  u32 low = 0;
#pragma GCC ivdep
  for (int i = 0; i < LANES; i++) low |= at[i];
  return !(bad >> 31) && !(low & (bytes - 1));
}

template <class Mem, class Reg, int V>
const Inst* op_load_shared(Warp& w, const Inst* in) {
  alignas(64) u32 at[LANES];
  u32 m = active(w, in);
  if (!quick_shared(w, in, m, sizeof(Mem) * V, at)) return op_load<Mem, Reg, V>(w, in);
  w.launch->count.shared_loads += LANES;
  const char* shared = reinterpret_cast<const char*>(w.launch->shared);
  for (int v = 0; v < V; v++) {
    Reg* d = slot<Reg>(w, V == 1 ? in->d : w.ext[in->ext + (u32)v]);
#pragma GCC unroll 8
    for (int i = 0; i < LANES; i++) d[i] = widen<Mem, Reg>(read_as<Mem>(shared + at[i] + v * (int)sizeof(Mem)));
  }
  return in + 1;
}

template <class Mem, class Reg, int V>
const Inst* op_store(Warp& w, const Inst* in) {
  u32 m = active(w, in);
  if (!m) return in + 1;
  constexpr u32 bytes = sizeof(Mem) * V;
  resolve(w, in, m, bytes, (Space)in->x, true);
  count_access(w, m, bytes, true);
  alignas(64) Mem values[LANES * V];
  for (int v = 0; v < V; v++) {
    const Reg* s = slot<Reg>(w, V == 1 ? in->d : w.ext[in->ext + (u32)v]);
    for (int i = 0; i < LANES; i++) {
      if constexpr (sizeof(Mem) == sizeof(Reg)) values[i * V + v] = bit_cast<Mem>(s[i]);
      else values[i * V + v] = (Mem)s[i];
    }
  }
  if (w.launch->races && !(in->n & 1)) note_access(w, in, m, bytes, Touch::Write, reinterpret_cast<u8*>(values));
  Access& x = w.access;
  if (x.kind == Access::Contiguous) {
    std::memcpy(x.base, values, sizeof values);
  } else {
    for (u32 r = m; r; r &= r - 1) {
      int i = __builtin_ctz(r);
      std::memcpy(x.kind == Access::Uniform ? x.base : x.at[i], values + i * V, bytes);
    }
  }
  return in + 1;
}

template <class Mem, class Reg, int V>
const Inst* op_store_shared(Warp& w, const Inst* in) {
  alignas(64) u32 at[LANES];
  u32 m = active(w, in);
  if (!quick_shared(w, in, m, sizeof(Mem) * V, at)) return op_store<Mem, Reg, V>(w, in);
  w.launch->count.shared_stores += LANES;
  char* shared = reinterpret_cast<char*>(w.launch->shared);
  for (int v = 0; v < V; v++) {
    const Reg* s = slot<Reg>(w, V == 1 ? in->d : w.ext[in->ext + (u32)v]);
    for (int i = 0; i < LANES; i++) {
      Mem value;
      if constexpr (sizeof(Mem) == sizeof(Reg)) value = bit_cast<Mem>(s[i]);
      else value = (Mem)s[i];
      std::memcpy(shared + at[i] + v * (int)sizeof(Mem), &value, sizeof value);
    }
  }
  return in + 1;
}

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
      if constexpr (sizeof(Whole) == 16) return k ? a[i].hi : a[i].lo;
      else return (Part)(a[i] >> (k * 8 * (int)sizeof(Part)));
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
  for (int i = 0; i < LANES; i++) r |= (u32)((a[i] >> 60) == (u64)in->imm) << i;
  set_pred(w, in->d, active(w, in), r);
  return in + 1;
}

const Inst* op_copy_in(Warp& w, const Inst* in) {  // cp.async, first half: in->n bytes, in->b bytes of them read
  u32 m = active(w, in);
  if (!m) return in + 1;
  const u32* wanted = slot<u32>(w, in->b);
  for (u32 r = m; r; r &= r - 1) std::memset(w.stage[__builtin_ctz(r)], 0, 16);
  u32 reading = 0;
  for (u32 r = m; r; r &= r - 1)
    if (wanted[__builtin_ctz(r)]) reading |= r & -r;
  if (!reading) return in + 1;
  resolve(w, in, reading, in->n, Space::Global, false);
  count_access(w, reading, in->n, false);
  if (w.launch->races) note_access(w, in, reading, in->n, Touch::Read, nullptr);
  Access& x = w.access;
  for (u32 r = reading; r; r &= r - 1) {
    int i = __builtin_ctz(r);
    std::memcpy(w.stage[i], reinterpret_cast<const char*>(x.address[i]), std::min<u32>(wanted[i], in->n));
  }
  return in + 1;
}

const Inst* op_copy_out(Warp& w, const Inst* in) {
  u32 m = active(w, in);
  if (!m) return in + 1;
  resolve(w, in, m, in->n, Space::Shared, true);
  count_access(w, m, in->n, true);
  u8 values[LANES * 16];
  for (int i = 0; i < LANES; i++) std::memcpy(values + i * in->n, w.stage[i], in->n);
  if (w.launch->races) note_access(w, in, m, in->n, Touch::Write, values);
  Access& x = w.access;
  for (u32 r = m; r; r &= r - 1) {
    int i = __builtin_ctz(r);
    char* at = x.kind == Access::Gather ? x.at[i] : x.base + (x.kind == Access::Contiguous ? i * in->n : 0);
    std::memcpy(at, w.stage[i], in->n);
  }
  return in + 1;
}

const Inst* op_fence(Warp& w, const Inst* in) {
  if (active(w, in)) w.fenced = true;
  return in + 1;
}

const Inst* op_skip(Warp&, const Inst* in) { return in + 1; }

Space take_space(Mods& m) {
  if (m.take("global")) return Space::Global;
  if (m.take("shared") || m.take("shared::cta")) return Space::Shared;
  if (m.take("local")) return Space::Local;
  if (m.take("const")) return Space::Const;
  if (m.take("param") || m.take("param::entry") || m.take("param::func")) return Space::Param;
  return Space::Generic;
}

// Returns true when the access is strong (volatile, relaxed, acquire, release), so no data race by definition.
bool take_hints(Mods& m, bool load) {
  bool strong = false;
  for (const char* s : {"volatile", "relaxed", "mmio", load ? "acquire" : "release"}) strong |= m.take(s);
  m.take("weak");
  for (const char* s : {"cta", "gpu", "sys", "cluster"}) m.take(s);
  if (load)
    for (const char* s : {"nc", "ca", "cg", "cs", "lu", "cv"}) m.take(s);
  else
    for (const char* s : {"wb", "cg", "cs", "wt"}) m.take(s);
  for (const char* s : {"L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate",
                        "L2::64B", "L2::128B", "L2::256B", "L2::evict_first", "L2::evict_last", "L2::evict_normal"})
    m.take(s);
  return strong;
}

int take_vector(Mods& m) {
  if (m.take("v2")) return 2;
  if (m.take("v4")) return 4;
  return 1;
}

template <class Mem, class Reg>
Fn load_vec(int v) {
  return v == 1 ? op_load<Mem, Reg, 1> : v == 2 ? op_load<Mem, Reg, 2> : op_load<Mem, Reg, 4>;
}
template <class U, class S, class Reg>
Fn load_sign(Ty t, int v) {
  return is_signed(t) && sizeof(U) < sizeof(Reg) ? load_vec<S, Reg>(v) : load_vec<U, Reg>(v);
}

Fn load_fn(Ty t, int reg, int v) {
  switch (size_of(t) * 100 + reg) {
    case 102: return load_sign<u8, i8, u16>(t, v);
    case 104: return load_sign<u8, i8, u32>(t, v);
    case 108: return load_sign<u8, i8, u64>(t, v);
    case 202: return load_vec<u16, u16>(v);
    case 204: return load_sign<u16, i16, u32>(t, v);
    case 208: return load_sign<u16, i16, u64>(t, v);
    case 404: return load_vec<u32, u32>(v);
    case 408: return load_sign<u32, i32, u64>(t, v);
    case 808: return v == 4 ? nullptr : v == 2 ? op_load<u64, u64, 2> : op_load<u64, u64, 1>;
    case 1616: return v == 1 ? op_load<Wide, Wide, 1> : nullptr;
    default: return nullptr;
  }
}

template <class Mem, class Reg>
Fn store_vec(int v) {
  return v == 1 ? op_store<Mem, Reg, 1> : v == 2 ? op_store<Mem, Reg, 2> : op_store<Mem, Reg, 4>;
}

Fn store_fn(Ty t, int reg, int v) {
  switch (size_of(t) * 100 + reg) {
    case 102: return store_vec<u8, u16>(v);
    case 104: return store_vec<u8, u32>(v);
    case 108: return store_vec<u8, u64>(v);
    case 202: return store_vec<u16, u16>(v);
    case 204: return store_vec<u16, u32>(v);
    case 208: return store_vec<u16, u64>(v);
    case 404: return store_vec<u32, u32>(v);
    case 408: return store_vec<u32, u64>(v);
    case 808: return v == 4 ? nullptr : v == 2 ? op_store<u64, u64, 2> : op_store<u64, u64, 1>;
    case 1616: return v == 1 ? op_store<Wide, Wide, 1> : nullptr;
    default: return nullptr;
  }
}

Fn mov_fn(int bytes) {
  return bytes == 2 ? op_mov<u16> : bytes == 4 ? op_mov<u32> : bytes == 8 ? op_mov<u64> : op_mov<Wide>;
}

template <class T>
Fn quick_load(int v) {
  return v == 1 ? op_load_shared<T, T, 1> : v == 2 ? op_load_shared<T, T, 2> : v == 4 ? op_load_shared<T, T, 4> : nullptr;
}
template <class T>
Fn quick_store(int v) {
  return v == 1 ? op_store_shared<T, T, 1> : v == 2 ? op_store_shared<T, T, 2> : v == 4 ? op_store_shared<T, T, 4> : nullptr;
}

// The quick form for an instruction on shared memory whose address has 32 bits, if there is one.
void use_quick_shared(Inst& in, Space space, Ty t, int reg, int v, bool load, bool strong) {
  if (space != Space::Shared || !(in.y & 1) || strong || size_of(t) != reg) return;
  if (reg == 2) in.fn = load ? quick_load<u16>(v) : quick_store<u16>(v);
  if (reg == 4) in.fn = load ? quick_load<u32>(v) : quick_store<u32>(v);
  if (reg == 8 && v < 4) in.fn = load ? quick_load<u64>(v) : quick_store<u64>(v);
}

void note_granule(Decoder& d, Space s, int bytes) {
  u32 b = (u32)std::min(4, bytes);
  if (s == Space::Shared || s == Space::Generic) d.kernel().shared_granule = std::min(d.kernel().shared_granule, b);
  if (s == Space::Global || s == Space::Generic) d.kernel().global_granule = std::min(d.kernel().global_granule, b);
}

std::vector<Operand> elements(Decoder& d, const Operand& o, int v) {
  if (v == 1 && o.kind != Operand::Vec) return {o};
  if (o.kind != Operand::Vec || (int)o.count != v) throw PtxError("vector of the wrong length");
  std::vector<Operand> out;
  for (u32 i = 0; i < o.count; i++) out.push_back(d.element(o, i));
  return out;
}

// Parameters of the kernel are known at launch: their loads become moves from slots that the launch fills.
bool load_kernel_param(Decoder& d, const std::vector<Operand>& dests, const Operand& from, Ty t) {
  Decoder::Address a = d.address(from);
  if (!a.has_symbol || !a.symbol.kernel_param) return false;
  i64 at = a.offset;
  for (const Operand& o : dests) {
    if (at < 0 || at + size_of(t) > (i64)d.kernel().param_bytes) throw PtxError("load outside the kernel's parameters");
    int bytes;
    u32 dest = d.dst_any(o, t, bytes);
    FixedSlot s{FixedSlot::Param};
    s.bytes = (u8)bytes;
    s.mem_bytes = (u8)size_of(t);
    s.sign = is_signed(t);
    s.bits = (u64)at;
    if (size_of(t) > 8) throw Unsupported("ld.param.b128");
    u32 from_slot = d.param_slot(s);
    Inst& in = d.emit(mov_fn(bytes), Class::Memory);
    in.d = dest;
    in.a = from_slot;
    at += size_of(t);
  }
  return true;
}

void h_ld(Decoder& d, Mods& m) {
  Space space = take_space(m);
  bool strong = take_hints(m, true);
  int v = take_vector(m);
  Ty t = m.type();
  m.finish();
  d.need(2);
  std::vector<Operand> dests = elements(d, d.op(0), v);
  if (space == Space::Param) {
    if (load_kernel_param(d, dests, d.op(1), t)) return;
    Decoder::Address a = d.address(d.op(1));
    space = a.has_symbol || !d.in_entry() ? Space::Local : Space::Param;
  }
  std::vector<u32> regs;
  int bytes = 0;
  for (const Operand& o : dests) {
    int b;
    regs.push_back(d.dst_any(o, t, b));
    if (bytes && b != bytes) throw PtxError("registers of different sizes in a vector");
    bytes = b;
  }
  Fn fn = load_fn(t, bytes, v);
  if (!fn) throw Unsupported(string(m.op) + " of this vector and type");
  note_granule(d, space, size_of(t) * v);
  Inst& in = d.emit(fn, Class::Memory);
  d.set_address(in, d.op(1), space);
  in.x = (u8)space;
  in.n = strong;
  use_quick_shared(in, space, t, bytes, v, true, strong);
  if (v == 1) in.d = regs[0];
  else in.ext = d.ext(regs);
}

void h_st(Decoder& d, Mods& m) {
  Space space = take_space(m);
  bool strong = take_hints(m, false);
  int v = take_vector(m);
  Ty t = m.type();
  m.finish();
  d.need(2);
  if (space == Space::Const) m.unsupported("const");
  if (space == Space::Param) space = Space::Local;
  std::vector<u32> regs;
  int bytes = 0;
  std::vector<Operand> parts = elements(d, d.op(1), v);
  for (const Operand& o : parts) bytes = std::max(bytes, d.width(o));
  for (const Operand& o : parts) {
    int b;
    u32 s = d.src_any(o, t, b);
    if (bytes > 0 && b != bytes && o.kind != Operand::Name) s = d.constant((u64)o.value, b = bytes);
    if (bytes > 0 && b != bytes) throw PtxError("registers of different sizes in a vector");
    if (bytes <= 0) bytes = b;
    regs.push_back(s);
  }
  Fn fn = store_fn(t, bytes, v);
  if (!fn) throw Unsupported(string(m.op) + " of this vector and type");
  note_granule(d, space, size_of(t) * v);
  Inst& in = d.emit(fn, Class::Memory);
  d.set_address(in, d.op(0), space);
  in.x = (u8)space;
  in.n = strong;
  use_quick_shared(in, space, t, bytes, v, false, strong);
  if (v == 1) in.d = regs[0];
  else in.ext = d.ext(regs);
}

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
  bool clock = name == "%clock" || name == "%clock64" || name == "%clock_hi" || name.substr(0, 11) == "%globaltimer";
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
  u64 base = s == Space::Shared ? SHARED_WINDOW : s == Space::Local ? LOCAL_WINDOW : s == Space::Param ? PARAM_WINDOW : 0;
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
  if (s == Space::Const || s == Space::Generic) m.unsupported("const");
  u32 a = d.src(d.op(1), Ty::U64), p = d.pred_dst(d.op(0));
  Inst& in = d.emit(op_isspacep, Class::Int);
  in.a = a;
  in.d = p;
  in.imm = s == Space::Shared ? 1 : s == Space::Local ? 2 : s == Space::Param ? 3 : 0;
}

void h_cp(Decoder& d, Mods& m) {
  if (!m.take("async")) m.unsupported(m.peek());
  if (m.take("commit_group") || m.take("wait_all") || m.take("wait_group")) {
    m.finish();  // copies are done at once, so there is nothing to wait for
    d.emit(op_skip, Class::Sync);
    return;
  }
  if (m.take("bulk")) m.unsupported("async.bulk");
  if (!m.take("ca") && !m.take("cg")) m.unsupported("async." + string(m.peek()));
  if (!(m.take("shared") || m.take("shared::cta")) || !m.take("global")) m.unsupported("async." + string(m.peek()));
  for (const char* s : {"L2::64B", "L2::128B", "L2::256B"}) m.take(s);
  m.finish();
  d.need(3, 4);
  i64 bytes = d.immediate(d.op(2));
  if (bytes != 4 && bytes != 8 && bytes != 16) throw PtxError("cp.async of another size than 4, 8 or 16 bytes");
  u32 wanted = d.count() == 4 ? d.src(d.op(3), Ty::U32) : d.constant((u64)bytes, 4);
  note_granule(d, Space::Shared, (int)bytes);
  Inst& first = d.emit(op_copy_in, Class::Memory);
  d.set_address(first, d.op(1), Space::Global);
  first.b = wanted;
  first.n = (u16)bytes;
  Inst& second = d.emit(op_copy_out, Class::Memory);
  d.set_address(second, d.op(0), Space::Shared);
  second.n = (u16)bytes;
}

void h_fence(Decoder& d, Mods& m) {
  for (const char* s : {"sc", "acq_rel", "acquire", "release", "cta", "gl", "gpu", "sys", "cluster"}) m.take(s);
  m.finish();
  d.emit(op_fence, Class::Sync);
}

void h_prefetch(Decoder& d, Mods& m) {
  for (const char* s : {"global", "local", "L1", "L2", "L2::evict_last", "L2::evict_normal"}) m.take(s);
  m.finish();
  d.emit(op_skip, Class::Memory);
}
}  // namespace

void add_memory_handlers(Handlers& h) {
  h["ld"] = h["ldu"] = h_ld;
  h["st"] = h_st;
  h["mov"] = h_mov;
  h["cvta"] = h_cvta;
  h["isspacep"] = h_isspacep;
  h["cp"] = h_cp;
  h["membar"] = h["fence"] = h_fence;
  h["prefetch"] = h["prefetchu"] = h_prefetch;
}
}  // namespace kw
