// Sparse A of mma.sp and wgmma.sp: half of the elements are stored; metadata gives their positions in the row.
#include "tensor_cores/tensor.h"

namespace kw::tensor {
namespace {
// The four bits of metadata for chunk q of a row: two indices of two bits. 16- and 32-bit elements keep the chunks of
// rows g and g + 8 in the halves of one register, 8- and 4-bit elements keep a row in a register.
u32 metadata(const u32* meta, const SparseRows& s, int row, int q, int chunks) {
  int group = row & 7, upper = row >> 3, lane = 4 * group, bit;
  if (bits_of(s.element) >= 16) {
    lane += chunks == 4 ? s.selector : 2 * s.selector + q / 4;
    bit = 16 * upper + 4 * (q % 4);
  } else {
    lane += upper + (chunks == 8 ? 2 * s.selector : 2 * (q / 8));
    bit = 4 * (q % 8);
  }
  return meta[lane] >> bit & 15;
}
}  // namespace

// Two of four elements are stored, of tf32 one of two, of 4-bit types two pairs of four.
void expand_sparse(Warp& w, const Inst* in, const SparseRows& s, u32 meta, const double* stored, double* out) {
  int k = s.k, bits = bits_of(s.element);
  int unit = bits == 4 ? 2 : 1, span = bits == 32 ? 2 : 4 * unit, chunks = k / span;
  std::fill(out, out + 16 * k, 0.0);
  for (int row = 0; row < 16; row++)
    for (int q = 0; q < chunks; q++) {
      u32 nibble = metadata(slot<u32>(w, meta), s, row, q, chunks), low = nibble & 3, high = nibble >> 2;
      const double* from = stored + row * k / 2 + q * span / 2;
      double* to = out + row * k + q * span;
      bool good = bits == 32 ? nibble == 4 || nibble == 14 : low != high && (!s.ordered || low < high);
      if (!good)
        raise(in, thread_of(w, row % 8 * 4), "trap",
              "sparse metadata " + std::to_string(nibble) + " of row " + std::to_string(row) + ", chunk " +
                  std::to_string(q) + " names no two elements");
      if (bits == 32) {
        to[low >> 1] = from[0];
        continue;
      }
      for (int i = 0; i < unit; i++) to[(int)low * unit + i] = from[i], to[(int)high * unit + i] = from[unit + i];
    }
}

int take_selector(Decoder& d, u32 operand, Element e, int k) {
  int row = bits_of(e) * k;  // bits of a full row of A
  int selectors = bits_of(e) >= 16 ? (row == 256 ? 4 : 2) : row == 256 ? 2 : 1;
  i64 selector = d.immediate(d.op(operand));
  if (selector < 0 || selector >= selectors) throw PtxError("sparsity selector out of range");
  return (int)selector;
}
}  // namespace kw::tensor
