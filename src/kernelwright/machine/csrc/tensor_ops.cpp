// Matrix instructions of a whole warp: mma.sync, ldmatrix and wmma. Products are summed in double precision.
#include "tensor.h"

namespace kw {
namespace tensor {
namespace {
struct MmaType {
  const char* name;
  Element element;
};
const MmaType mma_types[] = {{"f16", Half},   {"bf16", Bf16}, {"tf32", Tf32}, {"f32", Single},
                             {"f64", Double}, {"s8", Int8},   {"u8", Uint8},  {"s32", Int32}};

}  // namespace

Element take_element(Mods& m) {
  string_view name = m.next();
  for (const MmaType& t : mma_types)
    if (name == t.name) return t.element;
  m.unsupported("sync type " + string(name));
}

static Ty register_type(Element e) {
  return e == Double ? Ty::F64 : e == Single ? Ty::F32 : e == Int32 ? Ty::S32 : Ty::B32;
}

void append(Decoder& d, std::vector<u32>& slots, const Operand& o, Element e, u32 want, bool dest) {
  if (o.kind == Operand::Vec ? o.count != want : want != 1)
    throw PtxError("fragment with the wrong number of registers");
  for (u32 i = 0; i < want; i++) {
    const Operand x = o.kind == Operand::Vec ? d.element(o, i) : o;
    Ty t = register_type(e);
    slots.push_back(dest ? d.dst(x, t) : d.src(x, t));
  }
}

}  // namespace tensor

using namespace tensor;
namespace {
// mma.sync. Registers in ext: D, A, B, C; tables[imm] = {m, n, k, type A, type B, type C, type D, count A, B, C, D,
// clamp}
const Inst* op_mma(Warp& w, const Inst* in) {
  const Inst* next;
  if (!whole_warp(w, in, &next)) return next;
  const auto& t = w.launch->kernel->tables[(size_t)in->imm];
  Shape s{(int)t[0], (int)t[1], (int)t[2]};
  Element ea = (Element)t[3], eb = (Element)t[4], ec = (Element)t[5], ed = (Element)t[6];
  u32 na = (u32)t[7], nb = (u32)t[8], nd = (u32)t[10];
  const u32* rd = w.ext + in->ext;
  const u32 *ra = rd + nd, *rb = ra + na, *rc = rb + nb;
  double a[16 * 32], b[32 * 8], c[16 * 8] = {};
  int pa = per_register(ea), pb = per_register(eb), pc = per_register(ec), pd = per_register(ed);
  for (int lane = 0; lane < LANES; lane++) {
    int group = lane >> 2, in_group = lane & 3;
    for (u32 r = 0; r < na; r++)
      for (int e = 0; e < pa; e++)
        a[(group + 8 * (int)(r & 1)) * s.k + in_group * pa + e + 4 * pa * (int)(r >> 1)] =
            element_at(w, ra[r], ea, lane, e);
    for (u32 r = 0; r < nb; r++)
      for (int e = 0; e < pb; e++)
        b[(in_group * pb + e + 4 * pb * (int)r) * s.n + group] = element_at(w, rb[r], eb, lane, e);
  }
  multiply(s, a, b, c);
  for (int lane = 0; lane < LANES; lane++)
    for (int v = 0; v < s.m / 8 * 2; v++) {
      int row = (lane >> 2) + 8 * (v >> 1), column = (lane & 3) * 2 + (v & 1);
      c[row * s.n + column] += element_at(w, rc[v / pc], ec, lane, v % pc);
    }
  for (int lane = 0; lane < LANES; lane++)
    for (int v = 0; v < s.m / 8 * 2; v++) {
      int row = (lane >> 2) + 8 * (v >> 1), column = (lane & 3) * 2 + (v & 1);
      set_element(w, rd[v / pd], ed, lane, v % pd, c[row * s.n + column], t[11]);
    }
  w.launch->count.mma++;
  return in + 1;
}

// ldmatrix: in->n matrices; in->x: bit 0 transposed, then the space; lanes 8i..8i+7 hold the row addresses of matrix i
const Inst* op_ldmatrix(Warp& w, const Inst* in) {
  const Inst* next;
  if (!whole_warp(w, in, &next)) return next;
  u32 m = lanes_below(8u * in->n);
  resolve(w, in, m, 16, (Space)(in->x >> 1), false);
  if (w.launch->races) note_access(w, in, m, 16, Touch::Read, nullptr);
  w.launch->count.shared_loads += 8u * in->n;
  Access& x = w.access;
  u16 rows[32][8];
  for (u32 i = 0; i < 8u * in->n; i++)
    std::memcpy(rows[i], x.kind == Access::Gather ? x.at[i] : x.base + (x.kind == Access::Contiguous ? i * 16 : 0), 16);
  for (u32 k = 0; k < in->n; k++) {
    u32* d = slot<u32>(w, w.ext[in->ext + k]);
    for (u32 lane = 0; lane < 32; lane++) {
      u32 r = lane / 4, c = lane % 4 * 2;
      u16 lo = in->x & 1 ? rows[8 * k + c][r] : rows[8 * k + r][c],
          hi = in->x & 1 ? rows[8 * k + c + 1][r] : rows[8 * k + r][c + 1];
      d[lane] = (u32)lo | (u32)hi << 16;
    }
  }
  return in + 1;
}

const Inst* op_stmatrix(Warp& w, const Inst* in) {
  const Inst* next;
  if (!whole_warp(w, in, &next)) return next;
  u32 m = lanes_below(8u * in->n);
  u16 rows[32][8] = {};
  for (u32 k = 0; k < in->n; k++) {
    const u32* s = slot<u32>(w, w.ext[in->ext + k]);
    for (u32 lane = 0; lane < 32; lane++) {
      u32 r = lane / 4, c = lane % 4 * 2;
      (in->x & 1 ? rows[8 * k + c][r] : rows[8 * k + r][c]) = (u16)s[lane];
      (in->x & 1 ? rows[8 * k + c + 1][r] : rows[8 * k + r][c + 1]) = (u16)(s[lane] >> 16);
    }
  }
  resolve(w, in, m, 16, (Space)(in->x >> 1), true);
  if (w.launch->races) note_access(w, in, m, 16, Touch::Write, reinterpret_cast<u8*>(rows));
  w.launch->count.shared_stores += 8u * in->n;
  Access& x = w.access;
  for (u32 i = 0; i < 8u * in->n; i++)
    std::memcpy(x.kind == Access::Gather ? x.at[i] : x.base + (x.kind == Access::Contiguous ? i * 16 : 0), rows[i], 16);
  return in + 1;
}

void h_mma(Decoder& d, Mods& m) {
  if (!m.take("sync") || !m.take("aligned")) m.unsupported(m.peek());
  Shape s{};
  const std::pair<const char*, Shape> shapes[] = {{"m16n8k4", {16, 8, 4}},
                                                  {"m16n8k8", {16, 8, 8}},
                                                  {"m16n8k16", {16, 8, 16}},
                                                  {"m16n8k32", {16, 8, 32}},
                                                  {"m8n8k4", {8, 8, 4}}};
  for (auto& [name, shape] : shapes)
    if (m.take(name)) s = shape;
  if (!s.m) m.unsupported(m.peek());
  if (!m.take("row") || !m.take("col")) m.unsupported("layout");
  bool clamp = m.take("satfinite");
  Element ed = take_element(m), ea = take_element(m), eb = take_element(m), ec = take_element(m);
  m.finish();
  bool known =
      ea == Double
          ? s.m == 8 && eb == Double && ec == Double && ed == Double
          : s.m == 16 && per_register(ea) == per_register(eb) &&
                ((ea == Half && eb == Half && (ec == Half || ec == Single) && ed == ec && s.k >= 8 && s.k <= 16) ||
                 (ea == Bf16 && eb == Bf16 && ec == Single && ed == Single && s.k >= 8 && s.k <= 16) ||
                 (ea == Tf32 && eb == Tf32 && ec == Single && ed == Single && s.k <= 8) ||
                 (per_register(ea) == 4 && ec == Int32 && ed == Int32 && s.k >= 16));
  if (!known) throw Unsupported("mma.sync of this shape and these types");
  d.need(4);
  int pa = per_register(ea), pc = per_register(ec);
  u32 nb = (u32)(s.k / (4 * pa)), na = nb * (u32)(s.m / 8), nc = (u32)(s.m / 8 * 2 / pc);
  std::vector<u32> slots;
  append(d, slots, d.op(0), ed, nc, true);
  append(d, slots, d.op(1), ea, na, false);
  append(d, slots, d.op(2), eb, nb, false);
  append(d, slots, d.op(3), ec, nc, false);
  Inst& in = d.emit(op_mma, Class::Tensor);
  in.ext = d.ext(slots);
  in.imm = (i64)d.kernel().tables.size();
  d.kernel().tables.push_back({s.m, s.n, s.k, ea, eb, ec, ed, na, nb, nc, nc, clamp});
}

void h_matrix(Decoder& d, Mods& m) {  // ldmatrix, stmatrix
  bool load = m.op == "ldmatrix";
  if (!m.take("sync") || !m.take("aligned")) m.unsupported(m.peek());
  if (!m.take("m8n8")) m.unsupported(m.peek());
  u16 n = m.take("x1") ? 1 : m.take("x2") ? 2 : m.take("x4") ? 4 : 0;
  bool trans = m.take("trans");
  Space space = m.take("shared") || m.take("shared::cta") ? Space::Shared : Space::Generic;
  if (!n || !m.take("b16")) m.unsupported(m.peek());
  m.finish();
  d.need(2);
  std::vector<u32> slots;
  append(d, slots, d.op(load ? 0 : 1), Half, n, load);
  d.kernel().shared_granule = std::min(d.kernel().shared_granule, 4u);
  Inst& in = d.emit(load ? op_ldmatrix : op_stmatrix, Class::Tensor);
  d.set_address(in, d.op(load ? 1 : 0), space);
  in.ext = d.ext(slots);
  in.n = n;
  in.x = (u8)(trans | (u8)space << 1);
}
}  // namespace

void add_wmma_handlers(Handlers& h);

void add_tensor_handlers(Handlers& h) {
  h["mma"] = h_mma;
  h["ldmatrix"] = h["stmatrix"] = h_matrix;
  add_wmma_handlers(h);
}
}  // namespace kw
