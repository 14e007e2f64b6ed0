// wmma: fragments have no documented layout. Ours: the elements of a matrix, row by row, are dealt to the lanes in
// equal runs; where the registers hold more than the matrix does, later lanes hold copies.
#include "tensor.h"

namespace kw {
using namespace tensor;
namespace {
// in->n: number of registers; in->x: space; in->c... see code_of: the kind of fragment sits above the register count.
struct Fragment {
  int rows, columns;
  Element type;
  bool column_major;
};
constexpr Shape shapes[] = {{16, 16, 16}, {32, 8, 16}, {8, 32, 16}, {16, 16, 8}};
const char* const shape_names[] = {"m16n16k16", "m32n8k16", "m8n32k16", "m16n16k8"};

u16 pack(u32 registers, int which, int shape, Element e, bool column) {
  return (u16)(registers | (u32)which << 5 | (u32)shape << 7 | (u32)e << 9 | (u32)column << 13);
}
Fragment unpack(u16 n) {
  const Shape& s = shapes[n >> 7 & 3];
  int which = n >> 5 & 3;
  return {which == 1 ? s.k : s.m, which == 0 ? s.k : s.n, (Element)(n >> 9 & 15), (n >> 13 & 1) != 0};
}

int bytes_of(Element e) { return e == Half || e == Bf16 ? 2 : e == Double ? 8 : 4; }

// Fills w.access.address for element j of every lane; returns nothing that depends on j's value.
void aim(Warp& w, const Fragment& f, int j, int per_lane, u64 base, i64 stride) {
  for (int lane = 0; lane < LANES; lane++) {
    int e = (lane * per_lane + j) % (f.rows * f.columns), r = e / f.columns, c = e % f.columns;
    i64 at = f.column_major ? (i64)c * stride + r : (i64)r * stride + c;
    w.access.address[lane] = base + (u64)(at * bytes_of(f.type));
  }
}

char* place(const Access& x, int lane, int bytes) {
  return x.kind == Access::Gather ? x.at[lane] : x.base + (x.kind == Access::Contiguous ? lane * bytes : 0);
}

template <bool STORE>
const Inst* op_wmma_memory(Warp& w, const Inst* in) {
  const Inst* next;
  if (!whole_warp(w, in, &next)) return next;
  Fragment f = unpack(in->n);
  int registers = in->n & 31, per = per_register(f.type), bytes = bytes_of(f.type);
  u64 base = (in->y & 1 ? (u64)(i64)(i32)slot<u32>(w, in->a)[0] : slot<u64>(w, in->a)[0]) + (u64)in->imm;
  i64 stride = slot<i32>(w, in->b)[0];
  for (int j = 0; j < registers * per; j++) {
    u32* reg = slot<u32>(w, w.ext[in->ext + (u32)(j / per)]);
    int shift = 16 * (j % per);
    aim(w, f, j, registers * per, base, stride);
    resolve_addresses(w, in, FULL, (u32)bytes, (Space)in->x, STORE);
    u8 values[LANES * 4];
    for (int i = 0; i < LANES && STORE; i++) {
      u32 v = reg[i] >> shift;
      std::memcpy(values + i * bytes, &v, (size_t)bytes);
    }
    if (w.launch->races)
      note_access(w, in, FULL, (u32)bytes, STORE ? Touch::Write : Touch::Read, STORE ? values : nullptr);
    for (int i = 0; i < LANES; i++) {
      char* p = place(w.access, i, bytes);
      if (STORE) {
        std::memcpy(p, values + i * bytes, (size_t)bytes);
      } else {
        u32 v = 0;
        std::memcpy(&v, p, (size_t)bytes);
        reg[i] = per == 1 ? v : (reg[i] & ~(0xffffu << shift)) | v << shift;
      }
    }
  }
  return in + 1;
}

void read_fragment(const Warp& w, const u32* regs, u32 n, const Fragment& f, double* out) {
  int per = per_register(f.type), per_lane = (int)n * per, total = f.rows * f.columns;
  for (int e = 0; e < total; e++) {
    int lane = e / per_lane, j = e % per_lane;
    out[e] = element_at(w, regs[j / per], f.type, lane, j % per);
  }
}

// tables[imm] = {packed A, B, C, D}; ext: D, A, B, C registers
const Inst* op_wmma(Warp& w, const Inst* in) {
  const Inst* next;
  if (!whole_warp(w, in, &next)) return next;
  const auto& t = w.launch->kernel->tables[(size_t)in->imm];
  Fragment fa = unpack((u16)t[0]), fb = unpack((u16)t[1]), fc = unpack((u16)t[2]), fd = unpack((u16)t[3]);
  u32 na = t[0] & 31, nb = t[1] & 31, nc = t[2] & 31, nd = t[3] & 31;
  const u32* regs = w.ext + in->ext;
  double a[512], b[512], c[256], sum[256] = {};
  read_fragment(w, regs + nd, na, fa, a);
  read_fragment(w, regs + nd + na, nb, fb, b);
  read_fragment(w, regs + nd + na + nb, nc, fc, c);
  multiply({fa.rows, fb.columns, fa.columns}, a, b, sum);
  int per = per_register(fd.type), per_lane = (int)nd * per;
  for (int e = 0; e < fd.rows * fd.columns; e++)
    set_element(w, regs[e % per_lane / per], fd.type, e / per_lane, e % per_lane % per, sum[e] + c[e], false);
  w.launch->count.mma++;
  return in + 1;
}

int take_shape(Mods& m) {
  for (int i = 0; i < 4; i++)
    if (m.take(shape_names[i])) return i;
  m.unsupported(m.peek());
}

u32 registers_of(int shape, int which, Element e) {
  const Shape& s = shapes[shape];
  if (which == 2) return e == Single ? 8 : 4;
  if (e == Half) return 8;
  u32 elements = (u32)(which == 0 ? s.m * s.k : s.k * s.n);
  return elements / 32 / (u32)per_register(e);
}

void check(Mods& m, int shape, int which, Element e) {
  bool inputs =
      which < 2 ? (shape == 3 ? e == Tf32 : e == Half || e == Bf16) : e == Single || (e == Half && shape != 3);
  if (!inputs) m.unsupported("of this shape and type");
}

void h_memory(Decoder& d, Mods& m, bool store) {
  int which = m.take("a") ? 0 : m.take("b") ? 1 : m.take("c") || m.take("d") ? 2 : -1;
  if (which < 0 || !m.take("sync") || !m.take("aligned")) m.unsupported(m.peek());
  bool column = m.take("col");
  if (!column && !m.take("row")) m.unsupported(m.peek());
  int shape = take_shape(m);
  Space space = m.take("global")                            ? Space::Global
                : m.take("shared") || m.take("shared::cta") ? Space::Shared
                                                            : Space::Generic;
  Element e = take_element(m);
  m.finish();
  check(m, shape, which, e);
  d.need(2, 3);
  const Shape& s = shapes[shape];
  int rows = which == 1 ? s.k : s.m, columns = which == 0 ? s.k : s.n;
  u32 stride = d.count() == 3 ? d.src(d.op(2), Ty::U32) : d.constant((u64)(column ? rows : columns), 4);
  u32 n = registers_of(shape, which, e);
  std::vector<u32> slots;
  append(d, slots, d.op(store ? 1 : 0), e, n, !store);
  u32 bytes = (u32)bytes_of(e);
  if (space != Space::Global) d.kernel().shared_granule = std::min(d.kernel().shared_granule, bytes);
  if (space != Space::Shared) d.kernel().global_granule = std::min(d.kernel().global_granule, bytes);
  Inst& in = d.emit(store ? op_wmma_memory<true> : op_wmma_memory<false>, Class::Tensor);
  d.set_address(in, d.op(store ? 0 : 1), space);
  in.b = stride;
  in.ext = d.ext(slots);
  in.x = (u8)space;
  in.n = pack(n, which, shape, e, column);
}

void h_multiply(Decoder& d, Mods& m) {
  if (!m.take("sync") || !m.take("aligned")) m.unsupported(m.peek());
  for (int i = 0; i < 2; i++)
    if (!m.take("row") && !m.take("col")) m.unsupported("layout");
  int shape = take_shape(m);
  Element types[4];
  int n = 0;
  while (!m.peek().empty() && n < 4) types[n++] = take_element(m);
  m.finish();
  // f16 inputs name only D and C; the others name D, A, B and C.
  if (n != 2 && n != 4) throw PtxError("wmma.mma without its types");
  Element ed = types[0], ea = n == 2 ? Half : types[1], eb = n == 2 ? Half : types[2],
          ec = n == 2 ? types[1] : types[3];
  check(m, shape, 0, ea);
  check(m, shape, 1, eb);
  check(m, shape, 2, ec);
  check(m, shape, 2, ed);
  if (ea != eb) m.unsupported("of mixed types");
  d.need(4);
  Element e[4] = {ed, ea, eb, ec};
  int which[4] = {2, 0, 1, 2};
  std::vector<u32> slots;
  std::vector<i64> table(4);
  for (u32 i = 0; i < 4; i++) {
    u32 count = registers_of(shape, which[i], e[i]);
    append(d, slots, d.op(i), e[i], count, i == 0);
    table[(i + 3) % 4] = pack(count, which[i], shape, e[i], false);
  }
  Inst& in = d.emit(op_wmma, Class::Tensor);
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
