// Loads and stores of every space, type and vector width.
#include "memory/memory_ops.h"

#include "checks/watch.h"

namespace kw {
namespace {
template <class T>
T read_as(const char* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

template <class Mem, class Reg>
Reg widen(Mem v) {
  if constexpr (sizeof(Mem) == sizeof(Reg))
    return bit_cast<Reg>(v);
  else
    return (Reg)v;
}

// in->x: space; in->n bit 0: volatile or atomic, so no race check; bit 1: of a load, its loop waits, of a store, releases.
template <class Mem, class Reg, int V>
const Inst* op_load(Warp& w, const Inst* in) {
  u32 m = active(w, in);
  if (!m) return in + 1;
  constexpr u32 bytes = sizeof(Mem) * V;
  resolve(w, in, m, bytes, (Space)in->x, false);
  count_access(w, m, bytes, false);
  if (in->n & 1) {
    w.polls = true, w.polled = in;
    if (w.launch->races) note_strong(w, in, m, bytes, false);
  } else if (w.launch->races)
    note_access(w, in, m, bytes, Touch::Read, nullptr);
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
  if (m != FULL || w.block->check_shared || l.shared_bytes < bytes || (l.watch && l.watch->sane)) return false;
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
  if ((bad >> 31) || (low & (bytes - 1))) return false;
  if (l.watch) l.watch->banks_of_all((u32)(in - l.kernel->code.data()), at, bytes);
  return true;
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
      if constexpr (sizeof(Mem) == sizeof(Reg))
        values[i * V + v] = bit_cast<Mem>(s[i]);
      else
        values[i * V + v] = (Mem)s[i];
    }
  }
  bool strong = in->n & 1;
  if (w.launch->races && strong) note_strong(w, in, m, bytes, true);
  if (w.launch->races && !strong) note_access(w, in, m, bytes, Touch::Write, reinterpret_cast<u8*>(values));
  Access& x = w.access;
  if (x.kind == Access::Contiguous) {
    std::memcpy(x.base, values, sizeof values);
  } else {
    for (u32 r = m; r; r &= r - 1) {
      int i = __builtin_ctz(r);
      std::memcpy(x.kind == Access::Uniform ? x.base : x.at[i], values + i * V, bytes);
    }
  }
  return strong ? go_on(w, in) : in + 1;
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
      if constexpr (sizeof(Mem) == sizeof(Reg))
        value = bit_cast<Mem>(s[i]);
      else
        value = (Mem)s[i];
      std::memcpy(shared + at[i] + v * (int)sizeof(Mem), &value, sizeof value);
    }
  }
  return in + 1;
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
  for (const char* s :
       {"L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate", "L2::64B",
        "L2::128B", "L2::256B", "L2::evict_first", "L2::evict_last", "L2::evict_normal"})
    m.take(s);
  return strong;
}

int take_vector(Mods& m) {
  if (m.take("v2")) return 2;
  if (m.take("v4")) return 4;
  if (m.take("v8")) return 8;
  return 1;
}

template <class Mem, class Reg>
Fn load_vec(int v) {
  if (v == 8) return sizeof(Mem) == 4 && sizeof(Reg) == 4 ? op_load<Mem, Reg, 8> : nullptr;
  return v == 1 ? op_load<Mem, Reg, 1> : v == 2 ? op_load<Mem, Reg, 2> : op_load<Mem, Reg, 4>;
}
template <class U, class S, class Reg>
Fn load_sign(Ty t, int v) {
  return is_signed(t) && sizeof(U) < sizeof(Reg) ? load_vec<S, Reg>(v) : load_vec<U, Reg>(v);
}

Fn load_fn(Ty t, int reg, int v) {
  switch (size_of(t) * 100 + reg) {
    case 102:
      return load_sign<u8, i8, u16>(t, v);
    case 104:
      return load_sign<u8, i8, u32>(t, v);
    case 108:
      return load_sign<u8, i8, u64>(t, v);
    case 202:
      return load_vec<u16, u16>(v);
    case 204:
      return load_sign<u16, i16, u32>(t, v);
    case 208:
      return load_sign<u16, i16, u64>(t, v);
    case 404:
      return load_vec<u32, u32>(v);
    case 408:
      return load_sign<u32, i32, u64>(t, v);
    case 808:
      return v == 8 ? nullptr : load_vec<u64, u64>(v);
    case 1616:
      return v == 1 ? op_load<Wide, Wide, 1> : nullptr;
    default:
      return nullptr;
  }
}

template <class Mem, class Reg>
Fn store_vec(int v) {
  if (v == 8) return sizeof(Mem) == 4 && sizeof(Reg) == 4 ? op_store<Mem, Reg, 8> : nullptr;
  return v == 1 ? op_store<Mem, Reg, 1> : v == 2 ? op_store<Mem, Reg, 2> : op_store<Mem, Reg, 4>;
}

Fn store_fn(Ty t, int reg, int v) {
  switch (size_of(t) * 100 + reg) {
    case 102:
      return store_vec<u8, u16>(v);
    case 104:
      return store_vec<u8, u32>(v);
    case 108:
      return store_vec<u8, u64>(v);
    case 202:
      return store_vec<u16, u16>(v);
    case 204:
      return store_vec<u16, u32>(v);
    case 208:
      return store_vec<u16, u64>(v);
    case 404:
      return store_vec<u32, u32>(v);
    case 408:
      return store_vec<u32, u64>(v);
    case 808:
      return v == 8 ? nullptr : store_vec<u64, u64>(v);
    case 1616:
      return v == 1 ? op_store<Wide, Wide, 1> : nullptr;
    default:
      return nullptr;
  }
}

template <class T>
Fn quick_load(int v) {
  return v == 1   ? op_load_shared<T, T, 1>
         : v == 2 ? op_load_shared<T, T, 2>
         : v == 4 ? op_load_shared<T, T, 4>
                  : nullptr;
}
template <class T>
Fn quick_store(int v) {
  return v == 1   ? op_store_shared<T, T, 1>
         : v == 2 ? op_store_shared<T, T, 2>
         : v == 4 ? op_store_shared<T, T, 4>
                  : nullptr;
}

// The quick form for an instruction on shared memory whose address has 32 bits, if there is one.
void use_quick_shared(Inst& in, Space space, Ty t, int reg, int v, bool load, bool strong) {
  if (space != Space::Shared || !(in.y & 1) || strong || size_of(t) != reg || v == 8) return;
  if (reg == 2) in.fn = load ? quick_load<u16>(v) : quick_store<u16>(v);
  if (reg == 4) in.fn = load ? quick_load<u32>(v) : quick_store<u32>(v);
  if (reg == 8 && v < 4) in.fn = load ? quick_load<u64>(v) : quick_store<u64>(v);
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
  bool strong = take_hints(m, true), hint = m.take("L2::cache_hint");
  int v = take_vector(m);
  Ty t = m.type();
  m.take("unified");  // the same address on every GPU
  m.finish();
  d.need(hint ? 3 : 2);
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
  d.kernel().may_wait |= strong;
  use_quick_shared(in, space, t, bytes, v, true, strong);
  if (v == 1)
    in.d = regs[0];
  else
    in.ext = d.ext(regs);
}

void h_st(Decoder& d, Mods& m) {
  if (m.take("async")) return async_store(d, m);
  Space space = take_space(m);
  bool release = m.take("release"), strong = take_hints(m, false) || release, hint = m.take("L2::cache_hint");
  int v = take_vector(m);
  Ty t = m.type();
  m.finish();
  d.need(hint ? 3 : 2);
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
  in.n = (u16)(strong | release << 1);
  use_quick_shared(in, space, t, bytes, v, false, strong);
  if (v == 1)
    in.d = regs[0];
  else
    in.ext = d.ext(regs);
}

}  // namespace

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

Space take_space(Mods& m) {
  if (m.take("global")) return Space::Global;
  if (m.take("shared") || m.take("shared::cta")) return Space::Shared;
  if (m.take("shared::cluster")) return Space::Cluster;
  if (m.take("local")) return Space::Local;
  if (m.take("const")) return Space::Const;
  if (m.take("param") || m.take("param::entry") || m.take("param::func")) return Space::Param;
  return Space::Generic;
}

void note_granule(Decoder& d, Space s, int bytes) {
  u32 b = (u32)std::min(4, bytes);
  if (s == Space::Shared || s == Space::Generic || s == Space::Cluster) d.kernel().shared_granule = std::min(d.kernel().shared_granule, b);
  if (s == Space::Global || s == Space::Generic) d.kernel().global_granule = std::min(d.kernel().global_granule, b);
}

void add_memory_handlers(Handlers& h) {
  h["ld"] = h["ldu"] = h_ld;
  h["st"] = h_st;
  add_move_handlers(h);
}
}  // namespace kw
