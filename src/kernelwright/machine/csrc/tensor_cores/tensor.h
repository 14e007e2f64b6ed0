// Matrix fragments: element types, and the arithmetic that mma, wmma and wgmma share.
#pragma once
#include "decode/decode.h"
#include "arithmetic/half.h"
#include "launch/launch.h"

namespace kw::tensor {
enum Element : u8 { Half, Bf16, Tf32, E4m3, E5m2, Single, Double, Int8, Uint8, Int4, Uint4, Bit, Int32 };

struct Shape {
  int m = 0, n = 0, k = 0;
  bool operator==(const Shape&) const = default;
};

// How results leave the accumulators: as they are, at the ends of the range, or finite (wmma of floats).
enum class Clamp : u8 { None, Saturate };

int bits_of(Element e);
inline int per_register(Element e) { return e == Double ? 1 : 32 / bits_of(e); }

// tensor_math.cpp
// `count` elements that lie packed in memory, lowest bits first. Not for Bit.
void unpack(Element e, const void* packed, int count, double* out);
// The same for rows that follow one another in memory, `columns` apart in `out`.
void unpack_rows(Element e, const void* packed, int rows, int width, double* out, int columns);
void transpose(int rows, int columns, const double* from, double* to);
// c[m][n] += a[m][k] * b[k][n] for densely stored matrices, n a multiple of 8. Sums grow in the order of k; `fused`
// rounds each step once, as f64 does.
void multiply(const Shape& s, const double* a, const double* b, double* c, bool fused);
// c[i][j] += popc(a[i] op b[j]) over `words` words of 32 bits, b stored by columns; wraps around.
void multiply_bits(int m, int n, int words, const u32* a, const u32* b, u32* c, bool use_xor);
// Multiplicands of mma: register r holds 8 rows of 4 lanes; registers go down the rows first. Fills rows of `columns`.
void read_tiles(const Warp& w, const u32* regs, u32 count, Element e, int row_tiles, int columns, double* out);
// Accumulators of mma and wgmma: tiles of 8 x 8, down the rows first; `columns` is a multiple of 8.
void read_accumulators(const Warp& w, const u32* regs, Element e, int row_tiles, int columns, double* c);
void write_accumulators(Warp& w, const u32* regs, Element e, int row_tiles, int columns, const double* c, Clamp clamp);
// One accumulator's value rounded to the type of its register (32 bits, or 16 for Half).
u32 round_result(Element e, double x, Clamp clamp);

// sparse.cpp
struct SparseRows {
  Element element;
  int k, selector;
  bool ordered;
};
// Sixteen rows of k / 2 stored elements to rows of k; `meta` is the register with the metadata.
void expand_sparse(Warp& w, const Inst* in, const SparseRows& s, u32 meta, const double* stored, double* out);
int take_selector(Decoder& d, u32 operand, Element e, int k);

// Whole-warp instructions need every lane; fewer is undefined on the hardware and an error here.
inline bool whole_warp(Warp& w, const Inst* in, const Inst** next) {
  if (active(w, in) == FULL) return true;
  if (!take_guarded(w, in)) return *next = in + 1, false;
  if (!arrive(w, in, nullptr)) return *next = STOP, false;
  if (w.mask != FULL)
    raise(in, thread_of(w, __builtin_ctz(w.mask)), "trap", "matrix instruction with fewer than 32 threads of the warp");
  return true;
}

// tensor_ops.cpp
Element take_element(Mods& m);
Shape take_shape(Mods& m);  // mMnNkK
void append(Decoder& d, std::vector<u32>& slots, const Operand& o, Element e, u32 want, bool dest);
}  // namespace kw::tensor

namespace kw {
void add_matrix_move_handlers(Handlers& h);
void add_wmma_handlers(Handlers& h);
void add_wgmma_handlers(Handlers& h);
}  // namespace kw
