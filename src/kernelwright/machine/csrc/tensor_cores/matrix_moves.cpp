// ldmatrix, stmatrix and movmatrix: 8 x 8 matrices of 16-bit elements between shared memory and fragments.
#include "memory/memory_ops.h"
#include "tensor_cores/tensor.h"

namespace kw {
using namespace tensor;
namespace {
char* row_address(const Access& x, u32 i) {
  return x.kind == Access::Gather ? x.at[i] : x.base + (x.kind == Access::Contiguous ? i * 16 : 0);
}

// in->n matrices; in->x: bit 0 transposed, then the space; lanes 8i..8i+7 hold the row addresses of matrix i.
const Inst* op_ldmatrix(Warp& w, const Inst* in) {
  const Inst* next;
  if (!whole_warp(w, in, &next)) return next;
  u32 m = lanes_below(8u * in->n);
  resolve(w, in, m, 16, (Space)(in->x >> 1), false);
  if (w.launch->races) note_access(w, in, m, 16, Touch::Read, nullptr);
  w.launch->count.shared_loads += 8u * in->n;
  for (u32 k = 0; k < in->n; k++) {
    u16* d = slot<u16>(w, w.ext[in->ext + k]);
    if (!(in->x & 1)) {  // a register, lane by lane, is the matrix row by row
      for (u32 r = 0; r < 8; r++) std::memcpy(d + 8 * r, row_address(w.access, 8 * k + r), 16);
      continue;
    }
    u16 row[8];
    for (u32 r = 0; r < 8; r++) {
      std::memcpy(row, row_address(w.access, 8 * k + r), 16);
      for (u32 c = 0; c < 8; c++) d[8 * c + r] = row[c];
    }
  }
  return in + 1;
}

const Inst* op_stmatrix(Warp& w, const Inst* in) {
  const Inst* next;
  if (!whole_warp(w, in, &next)) return next;
  u32 m = lanes_below(8u * in->n);
  alignas(64) u16 rows[32][8] = {};
  for (u32 k = 0; k < in->n; k++) {
    const u16* s = slot<u16>(w, w.ext[in->ext + k]);
    for (u32 r = 0; r < 8; r++)
      for (u32 c = 0; c < 8; c++) rows[8 * k + r][c] = in->x & 1 ? s[8 * c + r] : s[8 * r + c];
  }
  resolve(w, in, m, 16, (Space)(in->x >> 1), true);
  if (w.launch->races) note_access(w, in, m, 16, Touch::Write, reinterpret_cast<u8*>(rows));
  w.launch->count.shared_stores += 8u * in->n;
  for (u32 i = 0; i < 8u * in->n; i++) std::memcpy(row_address(w.access, i), rows[i], 16);
  return in + 1;
}

const Inst* op_movmatrix(Warp& w, const Inst* in) {
  const Inst* next;
  if (!whole_warp(w, in, &next)) return next;
  u16 from[64];
  std::memcpy(from, slot<u16>(w, in->a), sizeof from);
  u16* d = slot<u16>(w, in->d);
  for (u32 r = 0; r < 8; r++)
    for (u32 c = 0; c < 8; c++) d[8 * r + c] = from[8 * c + r];
  return in + 1;
}

void h_matrix(Decoder& d, Mods& m) {  // ldmatrix, stmatrix; their 8-bit forms are of later devices
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
  note_granule(d, Space::Shared, 4);
  Inst& in = d.emit(load ? op_ldmatrix : op_stmatrix, Class::Tensor);
  d.set_address(in, d.op(load ? 1 : 0), space);
  in.ext = d.ext(slots);
  in.n = n;
  in.x = (u8)(trans | (u8)space << 1);
}

void h_movmatrix(Decoder& d, Mods& m) {
  for (const char* part : {"sync", "aligned", "m8n8", "trans", "b16"})
    if (!m.take(part)) m.unsupported(m.peek());
  m.finish();
  d.need(2);
  u32 a = d.src(d.op(1), Ty::B32), dest = d.dst(d.op(0), Ty::B32);
  Inst& in = d.emit(op_movmatrix, Class::Tensor);
  in.a = a;
  in.d = dest;
}
}  // namespace

void add_matrix_move_handlers(Handlers& h) {
  h["ldmatrix"] = h["stmatrix"] = h_matrix;
  h["movmatrix"] = h_movmatrix;
}
}  // namespace kw
