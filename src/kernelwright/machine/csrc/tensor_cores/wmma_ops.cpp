// wmma: fragments have no documented layout. Ours: the elements of A and B in the order of their memory layout, those
// of C and D row by row, are dealt to the lanes in equal runs; where the registers hold more than the matrix does,
// later lanes hold copies.
#include "memory/memory_ops.h"
#include "tensor_cores/tensor.h"

namespace kw {
using namespace tensor;
namespace {
constexpr Shape shapes[] = {{16, 16, 16}, {32, 8, 16}, {8, 32, 16}, {16, 16, 8}, {8, 8, 4}, {8, 8, 32}, {8, 8, 128}};
constexpr int SHAPES = sizeof shapes / sizeof *shapes;
constexpr int A = 0, B = 1, C = 2;

struct Fragment {
  int which, rows, columns;
  Element type;
  bool by_columns;  // of the memory that it is loaded from or stored to
  u32 registers;

  bool dealt_by_columns() const { return which != C && by_columns; }
  int elements() const { return rows * columns; }
  int per_lane() const { return (int)registers * per_register(type); }
};

u32 registers_of(int shape, int which, Element e) {
  const Shape& s = shapes[shape];
  if (which == C) return (u32)(s.m * s.n / 32 / per_register(e));
  if (e == Half) return 8;  // A and B of halves are held twice
  return (u32)((which == A ? s.m * s.k : s.k * s.n) / 32 / per_register(e));
}

u16 pack(int which, int shape, Element e, bool by_columns) {
  return (u16)(which | shape << 2 | (int)e << 5 | (int)by_columns << 9);
}

Fragment unpack_fragment(i64 n) {
  int which = n & 3, shape = n >> 2 & 7;
  const Shape& s = shapes[shape];
  Element e = (Element)(n >> 5 & 15);
  return {which, which == B ? s.k : s.m, which == A ? s.k : s.n, e, (n >> 9 & 1) != 0, registers_of(shape, which, e)};
}

// The widest access that the addresses, the runs of the lanes and the lines of the matrix allow.
u32 access_bytes(const Fragment& f, u64 base, i64 stride) {
  int bits = bits_of(f.type), line = f.by_columns ? f.rows : f.columns;
  int run = f.by_columns == f.dealt_by_columns() ? std::min(f.per_lane(), line) : 1;
  u64 together = base | (u64)(stride * bits / 8) | (u64)(std::max(run * bits, 8) / 8) | 16;
  return std::max((u32)(together & (0 - together)), (u32)std::max(1, bits / 8));
}

// Fills w.access.address with where piece p of each lane's run lies.
void aim(Warp& w, const Fragment& f, u32 bytes, u32 p, u64 base, i64 stride) {
  // All sizes are powers of two.
  int bits = bits_of(f.type), total = f.elements(), per_lane = f.per_lane(), first = (int)(p * bytes * 8) / bits;
  int line = f.dealt_by_columns() ? f.rows : f.columns, shift = __builtin_ctz((u32)line);
  bool crossed = f.dealt_by_columns() != f.by_columns;
  i64 by_major = crossed ? 1 : stride, by_minor = crossed ? stride : 1;
  for (int lane = 0; lane < LANES; lane++) {
    int e = (lane * per_lane + first) & (total - 1);
    w.access.address[lane] = base + (u64)(((e >> shift) * by_major + (e & (line - 1)) * by_minor) * bits / 8);
  }
}

void move(void* to, const void* from, u32 bytes) {
  if (bytes == 16)
    std::memcpy(to, from, 16);
  else
    std::memcpy(to, from, bytes);
}

char* place(const Access& x, u32 lane, u32 bytes) {
  return x.kind == Access::Gather ? x.at[lane] : x.base + (x.kind == Access::Contiguous ? lane * bytes : 0);
}

// Between the registers of all lanes and one row of bytes a lane.
template <bool TO_REGISTERS, class T>
void exchange_as(Warp& w, const u32* regs, u32 registers, u8 (*run)[32]) {
  for (u32 r = 0; r < registers; r++) {
    T* at = slot<T>(w, regs[r]);
    for (u32 lane = 0; lane < LANES; lane++) {
      if (TO_REGISTERS)
        std::memcpy(at + lane, run[lane] + r * sizeof(T), sizeof(T));
      else
        std::memcpy(run[lane] + r * sizeof(T), at + lane, sizeof(T));
    }
  }
}

template <bool TO_REGISTERS>
void exchange(Warp& w, const u32* regs, const Fragment& f, u8 (*run)[32]) {
  if (f.type == Double)
    exchange_as<TO_REGISTERS, u64>(w, regs, f.registers, run);
  else
    exchange_as<TO_REGISTERS, u32>(w, regs, f.registers, run);
}

template <bool STORE>
const Inst* op_wmma_memory(Warp& w, const Inst* in) {
  const Inst* next;
  if (!whole_warp(w, in, &next)) return next;
  const Fragment f = unpack_fragment(in->n);
  u64 base = (in->y & 1 ? (u64)(i64)(i32)slot<u32>(w, in->a)[0] : slot<u64>(w, in->a)[0]) + (u64)in->imm;
  i64 stride = slot<u32>(w, in->b)[0];
  u32 bytes = access_bytes(f, base, stride), run_bytes = f.registers * (f.type == Double ? 8u : 4u);
  u32 holders = (u32)(f.elements() / f.per_lane()), m = lanes_below(std::min(holders, 32u));
  u8 run[LANES][32], values[LANES * 16];
  const u32* regs = w.ext + in->ext;
  if (STORE) exchange<false>(w, regs, f, run);
  for (u32 p = 0; p * bytes < run_bytes; p++) {
    aim(w, f, bytes, p, base, stride);
    resolve_addresses(w, in, m, bytes, (Space)in->x, STORE);
    count_access(w, m, bytes, STORE);
    for (u32 i = 0; i < LANES && STORE; i++) move(values + i * bytes, run[i] + p * bytes, bytes);
    if (w.launch->races)
      note_access(w, in, m, bytes, STORE ? Touch::Write : Touch::Read, STORE ? values : nullptr);
    for (u32 i = 0; i < holders && i < LANES; i++) {
      if (STORE)
        move(place(w.access, i, bytes), values + i * bytes, bytes);
      else
        move(run[i] + p * bytes, place(w.access, i, bytes), bytes);
    }
  }
  for (u32 i = holders; i < LANES && !STORE; i++) std::memcpy(run[i], run[i % holders], run_bytes);
  if (!STORE) exchange<true>(w, regs, f, run);
  return in + 1;
}

// The fragment's elements as they lie packed, in the order in which they are dealt.
template <class T>
void gather_as(const Warp& w, const u32* regs, const Fragment& f, T* packed) {
  int n = (int)f.registers, holders = f.elements() / f.per_lane();
  for (int r = 0; r < n; r++) {
    const T* from = slot<T>(w, regs[r]);
    for (int lane = 0; lane < holders; lane++) packed[lane * n + r] = from[lane];
  }
}

void gather(const Warp& w, const u32* regs, const Fragment& f, void* packed) {
  if (f.type == Double)
    gather_as(w, regs, f, static_cast<u64*>(packed));
  else
    gather_as(w, regs, f, static_cast<u32*>(packed));
}

// Row by row.
void read_fragment(const Warp& w, const u32* regs, const Fragment& f, double* out) {
  alignas(8) u32 packed[256];
  gather(w, regs, f, packed);
  if (!f.dealt_by_columns()) return unpack(f.type, packed, f.elements(), out);
  double columns[512];
  unpack(f.type, packed, f.elements(), columns);
  transpose(f.columns, f.rows, columns, out);
}

void write_fragment(Warp& w, const u32* regs, const Fragment& f, const double* from, Clamp clamp) {
  int per = per_register(f.type), per_lane = f.per_lane();
  if (f.type == Single && clamp == Clamp::None) {
    for (int r = 0; r < per_lane; r++) {
      float* to = slot<float>(w, regs[r]);
      for (int lane = 0; lane < LANES; lane++) to[lane] = (float)from[lane * per_lane + r];
      for (int lane = 0; lane < LANES; lane++) to[lane] = to[lane] == to[lane] ? to[lane] : bit_cast<float>(0x7fffffffu);
    }
    return;
  }
  for (int e = 0; e < f.elements(); e++) {
    int lane = e / per_lane, j = e % per_lane;
    if (f.type == Double)
      slot<double>(w, regs[j])[lane] = from[e];
    else if (f.type == Half)
      slot<u16>(w, regs[j / per])[2 * lane + j % per] = (u16)round_result(Half, from[e], clamp);
    else
      slot<u32>(w, regs[j])[lane] = round_result(f.type, from[e], clamp);
  }
}

struct Operands {
  Fragment a, b, c, d;
  const u32 *rd, *ra, *rb, *rc;
  Operands(const Warp& w, const Inst* in, const std::vector<i64>& t)
      : a(unpack_fragment(t[1])), b(unpack_fragment(t[2])), c(unpack_fragment(t[3])), d(unpack_fragment(t[0])) {
    rd = w.ext + in->ext;
    ra = rd + d.registers;
    rb = ra + a.registers;
    rc = rb + b.registers;
  }
};

// tables[imm] = {packed D, A, B, C, clamp, xor}; ext: registers of D, A, B, C
const Inst* op_wmma(Warp& w, const Inst* in) {
  const Inst* next;
  if (!whole_warp(w, in, &next)) return next;
  const auto& t = w.launch->kernel->tables[(size_t)in->imm];
  const Operands o(w, in, t);
  double a[512], b[512], c[256];
  read_fragment(w, o.ra, o.a, a);
  read_fragment(w, o.rb, o.b, b);
  read_fragment(w, o.rc, o.c, c);
  multiply({o.a.rows, o.b.columns, o.a.columns}, a, b, c, o.d.type == Double);
  write_fragment(w, o.rd, o.d, c, (Clamp)t[4]);
  w.launch->count.mma++;
  return in + 1;
}

const Inst* op_wmma_bits(Warp& w, const Inst* in) {
  const Inst* next;
  if (!whole_warp(w, in, &next)) return next;
  const auto& t = w.launch->kernel->tables[(size_t)in->imm];
  const Operands o(w, in, t);
  u32 a[32], b[32], c[64];
  gather(w, o.ra, o.a, a);
  gather(w, o.rb, o.b, b);
  gather(w, o.rc, o.c, c);
  multiply_bits(8, 8, 4, a, b, c, t[5] != 0);
  for (int e = 0; e < 64; e++) slot<u32>(w, o.rd[e % 2])[e / 2] = c[e];
  w.launch->count.mma++;
  return in + 1;
}

int take_wmma_shape(Mods& m) {
  Shape s = take_shape(m);
  for (int i = 0; i < SHAPES; i++)
    if (shapes[i] == s) return i;
  m.unsupported("of this shape");
}

// Which types a shape has; the shapes of four and less bits know one layout only.
void check(Mods& m, int shape, int which, Element e, bool by_columns) {
  const Shape& s = shapes[shape];
  bool good = false;
  if (s.k == 16)
    good = which == C ? e == Half || e == Single || e == Int32 : e == Half || e == Bf16 || e == Int8 || e == Uint8;
  if (s.k == 8) good = e == (which == C ? Single : Tf32);
  if (s.k == 4) good = e == Double;
  if (s.k == 32) good = which == C ? e == Int32 : e == Int4 || e == Uint4;
  if (s.k == 128) good = which == C ? e == Int32 : e == Bit;
  if (s.k >= 32 && which != C) good &= by_columns == (which == B);
  if (!good) m.unsupported("of this shape and type");
}

void h_memory(Decoder& d, Mods& m, bool store) {
  int which = -1;
  if (!store) which = m.take("a") ? A : m.take("b") ? B : m.take("c") ? C : -1;
  if (store && m.take("d")) which = C;
  if (which < 0 || !m.take("sync") || !m.take("aligned")) m.unsupported(m.peek());
  bool by_columns = m.take("col");
  if (!by_columns && !m.take("row")) m.unsupported(m.peek());
  int shape = take_wmma_shape(m);
  Space space = m.take("global")                            ? Space::Global
                : m.take("shared") || m.take("shared::cta") ? Space::Shared
                                                            : Space::Generic;
  Element e = take_element(m);
  m.finish();
  check(m, shape, which, e, by_columns);
  d.need(2, 3);
  const Fragment f = unpack_fragment(pack(which, shape, e, by_columns));
  u32 stride = d.count() == 3 ? d.src(d.op(2), Ty::U32) : d.constant((u64)(by_columns ? f.rows : f.columns), 4);
  std::vector<u32> slots;
  append(d, slots, d.op(store ? 1 : 0), e, f.registers, !store);
  note_granule(d, space, std::max(1, bits_of(e) / 8));
  Inst& in = d.emit(store ? op_wmma_memory<true> : op_wmma_memory<false>, Class::Tensor);
  d.set_address(in, d.op(store ? 0 : 1), space);
  in.b = stride;
  in.ext = d.ext(slots);
  in.x = (u8)space;
  in.n = pack(which, shape, e, by_columns);
}

struct Types {
  Element d = Half, a = Half, b = Half, c = Half;
};

// f16 inputs name only D and C; the others name D, A, B and C.
Types take_types(Mods& m) {
  Element found[4];
  int n = 0;
  while (n < 4 && !m.peek().empty() && m.peek() != "satfinite") found[n++] = take_element(m);
  if (n == 2) return {found[0], Half, Half, found[1]};
  if (n == 4) return {found[0], found[1], found[2], found[3]};
  throw PtxError("wmma.mma without its types");
}

void check_types(Mods& m, int shape, const Types& t, bool a_columns, bool b_columns) {
  check(m, shape, A, t.a, a_columns);
  check(m, shape, B, t.b, b_columns);
  check(m, shape, C, t.c, false);
  check(m, shape, C, t.d, false);
  bool integers = t.a == Int8 || t.a == Uint8 || t.a == Int4 || t.a == Uint4 || t.a == Bit;
  bool results = integers ? t.c == Int32 && t.d == Int32
                          : t.c != Int32 && t.d != Int32 && (t.a == Half || (t.c != Half && t.d != Half));
  if (t.a != t.b || !results) m.unsupported("of mixed types");
}

void h_multiply(Decoder& d, Mods& m) {
  bool use_xor = m.take("xor"), bits = (use_xor || m.take("and")) && m.take("popc");
  if (!m.take("sync") || !m.take("aligned")) m.unsupported(m.peek());
  bool by_columns[2];
  for (bool& column : by_columns) {
    string_view layout = m.next();
    if (layout != "row" && layout != "col") m.unsupported("layout");
    column = layout == "col";
  }
  int shape = take_wmma_shape(m);
  m.take("rn");  // of f64; the other roundings are not known
  const Types t = take_types(m);
  bool clamp = m.take("satfinite");
  m.finish();
  check_types(m, shape, t, by_columns[0], by_columns[1]);
  if (bits != (t.a == Bit)) m.unsupported("of b1");
  d.need(4);
  const i64 packed[4] = {pack(C, shape, t.d, false), pack(A, shape, t.a, by_columns[0]),
                         pack(B, shape, t.b, by_columns[1]), pack(C, shape, t.c, false)};
  std::vector<u32> slots;
  std::vector<i64> table;
  for (u32 i = 0; i < 4; i++) {
    const Fragment f = unpack_fragment(packed[i]);
    append(d, slots, d.op(i), f.type, f.registers, i == 0);
    table.push_back(packed[i]);
  }
  table.push_back((i64)(clamp ? Clamp::Saturate : Clamp::None));
  table.push_back(use_xor);
  Inst& in = d.emit(t.a == Bit ? op_wmma_bits : op_wmma, Class::Tensor);
  in.ext = d.ext(slots);
  in.imm = (i64)d.kernel().tables.size();
  d.kernel().tables.push_back(table);
}

void h_wmma(Decoder& d, Mods& m) {
  if (m.take("load")) return h_memory(d, m, false);
  if (m.take("store")) return h_memory(d, m, true);
  if (m.take("mma")) return h_multiply(d, m);
  m.unsupported(m.peek());
}
}  // namespace

void add_wmma_handlers(Handlers& h) { h["wmma"] = h_wmma; }
}  // namespace kw
