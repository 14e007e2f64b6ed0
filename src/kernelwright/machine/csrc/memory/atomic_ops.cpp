// atom and red: lanes execute one after another, which is a valid order of the hardware's.
#include "checks/order.h"
#include "decode/decode.h"
#include "arithmetic/half.h"
#include "launch/launch.h"

namespace kw {
namespace {
struct And {
  template <class T>
  static T f(T a, T b, T) {
    return a & b;
  }
};
struct Or {
  template <class T>
  static T f(T a, T b, T) {
    return a | b;
  }
};
struct Xor {
  template <class T>
  static T f(T a, T b, T) {
    return a ^ b;
  }
};
struct Exch {
  template <class T>
  static T f(T, T b, T) {
    return b;
  }
};
struct Cas {
  template <class T>
  static T f(T a, T b, T c) {
    return a == b ? c : a;
  }
};
struct Add {
  template <class T>
  static T f(T a, T b, T) {
    if constexpr (std::is_floating_point_v<T>)
      return a + b;
    else
      return (T)((std::make_unsigned_t<T>)a + (std::make_unsigned_t<T>)b);
  }
};
struct Min {
  template <class T>
  static T f(T a, T b, T) {
    return b < a ? b : a;
  }
};
struct Max {
  template <class T>
  static T f(T a, T b, T) {
    return a < b ? b : a;
  }
};
struct Inc {
  template <class T>
  static T f(T a, T b, T) {
    return a >= b ? 0 : a + 1;
  }
};
struct Dec {
  template <class T>
  static T f(T a, T b, T) {
    return a == 0 || a > b ? b : a - 1;
  }
};
template <bool BF>
struct HalfOp {
  static u16 add(u16 a, u16 b) {
    return BF ? float_to_bf16(bf16_to_float(a) + bf16_to_float(b)) : float_to_half(half_to_float(a) + half_to_float(b));
  }
  static u16 pick(u16 a, u16 b, bool max) {
    float x = BF ? bf16_to_float(a) : half_to_float(a), y = BF ? bf16_to_float(b) : half_to_float(b);
    if (x != x) return b;
    if (y != y) return a;
    return (x < y) == max ? b : a;
  }
};
template <bool BF, int KIND>
struct Half {  // 0 add, 1 min, 2 max
  static u16 one(u16 a, u16 b) { return KIND == 0 ? HalfOp<BF>::add(a, b) : HalfOp<BF>::pick(a, b, KIND == 2); }
  static u16 f(u16 a, u16 b, u16) { return one(a, b); }
  static u32 f(u32 a, u32 b, u32) { return (u32)one((u16)a, (u16)b) | (u32)one((u16)(a >> 16), (u16)(b >> 16)) << 16; }
};

// in->x: space; in->n: bit 0 no result, bit 1 lock-like, bit 2 releases
template <class Op, class T>
const Inst* op_atomic(Warp& w, const Inst* in) {
  u32 m = active(w, in);
  if (!m) return in + 1;
  resolve(w, in, m, sizeof(T), (Space)in->x, true, true);
  w.launch->count.atomics += (u64)__builtin_popcount(m);
  if (w.launch->races) {
    atomic_order(w, in->n & 2);
    w.synced |= !(in->n & 1);
    if (w.access.space == Space::Global) note_signal(w, in->n & 4);
    note_access(w, in, m, sizeof(T), Touch::Atomic, nullptr);
  }
  if (!(in->n & 1)) w.polls = true, w.polled = in;
  Access& x = w.access;
  const T *b = slot<T>(w, in->b), *c = slot<T>(w, in->c);
  T* d = slot<T>(w, in->d);
  bool changed = false;
  for (u32 r = m; r; r &= r - 1) {
    int i = __builtin_ctz(r);
    char* p = x.kind == Access::Gather ? x.at[i] : x.base + (x.kind == Access::Contiguous ? i * (int)sizeof(T) : 0);
    T old;
    std::memcpy(&old, p, sizeof old);
    T now;
    if constexpr (std::is_same_v<T, float>)  // add is the only one; in global memory it flushes subnormals
      now = x.space == Space::Global ? flush(Op::f(flush(old), flush(b[i]), 0.0f)) : Op::f(old, b[i], 0.0f);
    else
      now = Op::f(old, b[i], c[i]);
    std::memcpy(p, &now, sizeof now);
    changed |= std::memcmp(&old, &now, sizeof now) != 0;
    if (!(in->n & 1)) d[i] = old;
  }
  w.launch->changes += changed;
  return go_on(w, in);
}

// Vectors: one access, element by element; ext holds the destinations, then the sources.
template <class Op, class T, int N>
const Inst* op_atomic_vector(Warp& w, const Inst* in) {
  u32 m = active(w, in);
  if (!m) return in + 1;
  resolve(w, in, m, sizeof(T) * N, (Space)in->x, true, true);
  w.launch->count.atomics += (u64)__builtin_popcount(m);
  if (w.launch->races) {
    atomic_order(w, false);
    note_access(w, in, m, sizeof(T) * N, Touch::Atomic, nullptr);
  }
  Access& x = w.access;
  constexpr int bytes = (int)sizeof(T) * N;
  for (u32 r = m; r; r &= r - 1) {
    int i = __builtin_ctz(r);
    char* p = x.kind == Access::Gather ? x.at[i] : x.base + (x.kind == Access::Contiguous ? i * bytes : 0);
    T old[N], now[N];
    std::memcpy(old, p, sizeof old);
    for (u32 k = 0; k < N; k++) {
      T v = slot<T>(w, w.ext[in->ext + N + k])[i];
      if constexpr (std::is_same_v<T, float>)
        now[k] = flush(Op::f(flush(old[k]), flush(v), 0.0f));
      else
        now[k] = Op::f(old[k], v, v);
    }
    std::memcpy(p, now, sizeof now);
    for (u32 k = 0; k < N && !(in->n & 1); k++) slot<T>(w, w.ext[in->ext + k])[i] = old[k];
  }
  return in + 1;
}

template <class Op, class T>
Fn vector_of(int n) {
  if (n == 8) return sizeof(T) == 2 ? op_atomic_vector<Op, T, 8> : nullptr;
  return n == 2 ? op_atomic_vector<Op, T, 2> : op_atomic_vector<Op, T, 4>;
}
template <int K>
Fn half_vector(Ty t, int n) {
  return t == Ty::F16      ? vector_of<Half<false, K>, u16>(n)
         : t == Ty::BF16   ? vector_of<Half<true, K>, u16>(n)
         : t == Ty::F16X2  ? vector_of<Half<false, K>, u32>(n)
         : t == Ty::BF16X2 ? vector_of<Half<true, K>, u32>(n)
                           : nullptr;
}
Fn pick_vector(string_view op, Ty t, int n) {
  if (op == "add" && t == Ty::F32) return n == 8 ? nullptr : vector_of<Add, float>(n);
  return op == "add"   ? half_vector<0>(t, n)
         : op == "min" ? half_vector<1>(t, n)
         : op == "max" ? half_vector<2>(t, n)
                       : nullptr;
}

void emit_vector(Decoder& d, Mods& m, string_view op, Ty t, int n, Space space, bool red) {
  Fn fn = pick_vector(op, t, n);
  if (!fn || space != Space::Global) throw Unsupported(string(m.op) + "." + string(op) + ".v" + std::to_string(n));
  u32 at = red ? 0 : 1;
  std::vector<u32> slots((size_t)n, 0);
  const Operand values = d.op(at + 1);
  if (values.kind != Operand::Vec || (int)values.count != n) throw PtxError("vector of the wrong length");
  for (int i = 0; i < n; i++) slots.push_back(d.src(d.element(values, (u32)i), t));
  if (!red) {
    const Operand dests = d.op(0);
    if (dests.kind != Operand::Vec || (int)dests.count != n) throw PtxError("vector of the wrong length");
    for (int i = 0; i < n; i++) slots[(size_t)i] = d.dst(d.element(dests, (u32)i), t);
  }
  d.kernel().has_atomics = true;
  Inst& in = d.emit(fn, Class::Memory);
  d.set_address(in, d.op(at), space);
  in.ext = d.ext(slots);
  in.x = (u8)space;
  in.n = red;
}

template <class Op>
Fn bits(Ty t) {
  int n = size_of(t);
  return n == 4 ? op_atomic<Op, u32> : n == 8 ? op_atomic<Op, u64> : nullptr;
}
template <class Op>
Fn order(Ty t) {
  return t == Ty::U32   ? op_atomic<Op, u32>
         : t == Ty::S32 ? op_atomic<Op, i32>
         : t == Ty::U64 ? op_atomic<Op, u64>
         : t == Ty::S64 ? op_atomic<Op, i64>
                        : nullptr;
}
template <int K>
Fn half(Ty t) {
  return t == Ty::F16      ? op_atomic<Half<false, K>, u16>
         : t == Ty::F16X2  ? op_atomic<Half<false, K>, u32>
         : t == Ty::BF16   ? op_atomic<Half<true, K>, u16>
         : t == Ty::BF16X2 ? op_atomic<Half<true, K>, u32>
                           : nullptr;
}

Fn pick(string_view op, Ty t) {
  if (op == "and") return bits<And>(t);
  if (op == "or") return bits<Or>(t);
  if (op == "xor") return bits<Xor>(t);
  if (op == "exch" && t == Ty::B128) return op_atomic<Exch, unsigned __int128>;
  if (op == "cas" && t == Ty::B128) return op_atomic<Cas, unsigned __int128>;
  if (op == "exch") return bits<Exch>(t);
  if (op == "cas") return size_of(t) == 2 ? op_atomic<Cas, u16> : bits<Cas>(t);
  if (op == "inc") return t == Ty::U32 ? op_atomic<Inc, u32> : nullptr;
  if (op == "dec") return t == Ty::U32 ? op_atomic<Dec, u32> : nullptr;
  if (op == "add" && t == Ty::F32) return op_atomic<Add, float>;
  if (op == "add" && t == Ty::F64) return op_atomic<Add, double>;
  if (op == "add") return half<0>(t) ? half<0>(t) : order<Add>(t);
  if (op == "min") return half<1>(t) ? half<1>(t) : order<Min>(t);
  if (op == "max") return half<2>(t) ? half<2>(t) : order<Max>(t);
  return nullptr;
}

void h_atom(Decoder& d, Mods& m) {
  bool red = m.op == "red";
  bool releases = m.take("release") | m.take("acq_rel"), orders = m.take("acquire") | releases;
  for (const char* s : {"relaxed", "cta", "gpu", "sys", "cluster", "noftz"}) m.take(s);
  Space space = m.take("global")                            ? Space::Global
                : m.take("shared") || m.take("shared::cta") ? Space::Shared
                : m.take("shared::cluster")                 ? Space::Cluster
                                                            : Space::Generic;
  string_view op;
  for (const char* s : {"and", "or", "xor", "exch", "cas", "inc", "dec", "add", "min", "max"})
    if (op.empty() && m.take(s)) op = s;
  if (op.empty()) m.unsupported(m.peek());
  int vector = m.take("v2") ? 2 : m.take("v4") ? 4 : m.take("v8") ? 8 : 1;
  bool hint = m.take("L2::cache_hint");
  Ty t = m.type();
  m.finish();
  if (vector > 1) return d.need((red ? 2 : 3) + hint), emit_vector(d, m, op, t, vector, space, red);
  Fn fn = pick(op, t);
  if (!fn) throw Unsupported(string(m.op) + "." + string(op) + " of this type");
  u32 at = red ? 0 : 1;
  bool cas = op == "cas";
  d.need(at + 2 + cas + hint);
  u32 b = d.src(d.op(at + 1), t), c = cas ? d.src(d.op(at + 2), t) : b;
  u32 r = red ? 0 : d.dst(d.op(0), t);
  d.kernel().has_atomics = d.kernel().may_wait = true;
  if (space != Space::Global) d.kernel().shared_granule = std::min(d.kernel().shared_granule, (u32)size_of(t));
  Inst& in = d.emit(fn, Class::Memory);
  d.set_address(in, d.op(at), space);
  in.b = b, in.c = c, in.d = r;
  in.x = (u8)space;
  in.n = (u16)(red | (cas || orders || op == "exch") << 1 | releases << 2);
}
}  // namespace

void add_atomic_handlers(Handlers& h) { h["atom"] = h["red"] = h_atom; }
}  // namespace kw
