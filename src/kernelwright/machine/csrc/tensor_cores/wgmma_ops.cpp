// wgmma: products of a warpgroup with operands in shared memory. Each of the four warps computes its sixteen rows when
// it reaches the instruction, which is a valid order of the asynchronous hardware.
#include "tensor_cores/tensor.h"

namespace kw {
using namespace tensor;
namespace {
constexpr int ROWS = 16, WIDEST = 256;

// What a matrix descriptor says.
struct Descriptor {
  u32 start, leading, stride, base, swizzle;  // bytes; swizzle: 16 (none), 32, 64 or 128; base: in rows of 128 bytes

  explicit Descriptor(u64 bits) {
    constexpr u32 widths[] = {16, 128, 64, 32};
    start = (u32)(bits & 0x3fff) << 4;
    leading = (u32)(bits >> 16 & 0x3fff) << 4;
    stride = (u32)(bits >> 32 & 0x3fff) << 4;
    base = (u32)(bits >> 49 & 7);
    swizzle = widths[bits >> 62];
  }
  // 16 bytes along k of a row of A (or a column of B).
  u32 along_k(u32 row, u32 unit) const {
    u32 across = swizzle == 16 ? unit * leading : unit * 16;
    return swizzled(start + row % 8 * swizzle + row / 8 * stride + across);
  }
  // 16 bytes along the rows of A (or the columns of B), at one k.
  u32 across_k(u32 unit, u32 k) const {
    if (swizzle == 16) return start + unit * stride + k % 8 * 16 + k / 8 * leading;
    u32 wide = swizzle / 16;
    return swizzled(start + unit % wide * 16 + unit / wide * leading + k % 8 * swizzle + k / 8 * stride);
  }

 private:
  u32 swizzled(u32 at) const { return at ^ (((at >> 7) - base) & (swizzle / 16 - 1)) << 4; }
};

struct Plan {
  int n, k;
  Element a, b, d;
  u32 count_a, count_d;  // registers; no registers of A: a descriptor
  bool across_a, across_b, negate;
  Clamp clamp;
  bool sparse;
  int selector;
  i64 early_reader;  // an instruction that reads D before a wait, or -1: find_early_reads fills it in

  int stored_k() const { return sparse ? k / 2 : k; }  // of A
  std::vector<i64> pack() const {
    return {n, k, a, b, d, count_a, count_d, across_a, across_b, negate, (i64)clamp, sparse, selector, -1};
  }
  static Plan of(const Warp& w, const Inst* in) {
    const i64* t = w.launch->kernel->tables[(size_t)in->imm].data();
    return {(int)t[0], (int)t[1], (Element)t[2], (Element)t[3], (Element)t[4], (u32)t[5], (u32)t[6],
            t[7] != 0, t[8] != 0, t[9] != 0, (Clamp)t[10], t[11] != 0, (int)t[12], t[13]};
  }
};

// Copies units of 16 bytes out of shared memory, with the checks that every access gets.
template <class Address>
void fetch(Warp& w, const Inst* in, u32 units, u8* out, Address address) {
  for (u32 first = 0; first < units; first += LANES) {
    u32 count = std::min<u32>(LANES, units - first), m = lanes_below(count);
    for (u32 i = 0; i < count; i++) w.access.address[i] = address(first + i);
    resolve_addresses(w, in, m, 16, Space::Shared, false);
    if (w.launch->races) note_access(w, in, m, 16, Touch::Read, nullptr);
    w.launch->count.shared_loads += count;
    const Access& x = w.access;
    for (u32 i = 0; i < count; i++) {
      const char* at = x.kind == Access::Gather ? x.at[i] : x.base + (x.kind == Access::Contiguous ? i * 16 : 0);
      std::memcpy(out + (first + i) * 16, at, 16);
    }
  }
}

// `rows` rows of A (or columns of B) from `first` on: row by row into `lines`, or k by k when stored across k.
void fetch_matrix(Warp& w, const Inst* in, u64 bits, bool across, u32 first, u32 rows, u32 bytes, u8* lines) {
  const Descriptor d(bits);
  u32 units = bytes / 16, wide = rows / 8;  // bytes of k
  if (!across && units > 2 && d.swizzle == 32)
    raise(in, thread_of(w, 0), "trap", "wgmma.sp with 32-byte swizzle along k of B: 64 bytes of k do not fit");
  if (!across) return fetch(w, in, rows * units, lines, [&](u32 i) { return d.along_k(first + i / units, i % units); });
  u32 k = bytes / 2;  // of 16-bit elements
  fetch(w, in, k * wide, lines, [&](u32 i) { return d.across_k(first / 8 + i % wide, i / wide); });
}

u64 descriptor(const Warp& w, u32 offset) { return slot<u64>(w, offset)[0]; }

u32 first_row(const Warp& w) { return w.id % 4 * ROWS; }

void read_a(Warp& w, const Inst* in, const Plan& p, const u32* regs, u32 meta, double* a) {
  double kept[ROWS * 32], turned[ROWS * 32], *stored = p.sparse ? kept : a;
  int k = p.stored_k();
  if (p.count_a) {
    read_tiles(w, regs, p.count_a, p.a, 2, k, stored);
  } else {
    u8 lines[ROWS * 32];
    fetch_matrix(w, in, descriptor(w, regs[0]), p.across_a, first_row(w), ROWS, 32, lines);
    unpack(p.a, lines, ROWS * k, p.across_a ? turned : stored);
    if (p.across_a) transpose(k, ROWS, turned, stored);
  }
  if (p.sparse) expand_sparse(w, in, {p.a, p.k, p.selector, false}, meta, stored, a);
  for (int i = 0; i < ROWS * p.k && p.negate; i++) a[i] = -a[i];
}

void read_b(Warp& w, const Inst* in, const Plan& p, u64 bits, double* b) {
  u8 lines[WIDEST * 64];
  double stored[WIDEST * 64];
  fetch_matrix(w, in, bits, p.across_b, 0, (u32)p.n, p.sparse ? 64 : 32, lines);
  unpack(p.b, lines, p.n * p.k, p.across_b ? b : stored);
  if (!p.across_b) transpose(p.n, p.k, stored, b);
}

void finish(Warp& w, const Plan& p) {
  w.launch->count.mma++;
  if (p.early_reader < 0) return;
  warn(w, w.launch->kernel->code.data() + p.early_reader, thread_of(w, 0),
       "race RAW: accumulators of wgmma.mma_async read with no wgmma.wait_group between");
}

bool warpgroup(Warp& w, const Inst* in, const Inst** next) {
  if (!whole_warp(w, in, next)) return false;
  if (w.id / 4 * 4 + 4 > w.block->warps.size())
    raise(in, thread_of(w, 0), "trap", "wgmma in a warpgroup of fewer than four warps");
  return true;
}

// ext: registers of D, of A (or its descriptor), descriptor of B, predicate that keeps D, metadata
const Inst* op_wgmma(Warp& w, const Inst* in) {
  const Inst* next;
  if (!warpgroup(w, in, &next)) return next;
  const Plan p = Plan::of(w, in);
  const u32 *rd = w.ext + in->ext, *ra = rd + p.count_d, *rb = ra + std::max(1u, p.count_a);
  double a[ROWS * 64], b[64 * WIDEST], c[ROWS * WIDEST];
  read_a(w, in, p, ra, p.sparse ? rb[2] : 0, a);
  read_b(w, in, p, descriptor(w, rb[0]), b);
  if (pred(w, rb[1]) & 1)
    read_accumulators(w, rd, p.d, 2, p.n, c);
  else
    std::fill(c, c + ROWS * p.n, 0.0);
  multiply({ROWS, p.n, p.k}, a, b, c, false);
  write_accumulators(w, rd, p.d, 2, p.n, c, p.clamp);
  finish(w, p);
  return in + 1;
}

const Inst* op_wgmma_bits(Warp& w, const Inst* in) {
  const Inst* next;
  if (!warpgroup(w, in, &next)) return next;
  const Plan p = Plan::of(w, in);
  const u32 *rd = w.ext + in->ext, *ra = rd + p.count_d, *rb = ra + std::max(1u, p.count_a);
  alignas(16) u32 a[ROWS * 8], b[WIDEST * 8], c[ROWS * WIDEST];
  double wide[ROWS * WIDEST];
  if (p.count_a) {
    for (int r = 0; r < 4; r++)
      for (int lane = 0; lane < LANES; lane++)
        a[(r % 2 * 8 + lane / 4) * 8 + r / 2 * 4 + lane % 4] = slot<u32>(w, ra[r])[lane];
  } else {
    fetch_matrix(w, in, descriptor(w, ra[0]), false, first_row(w), ROWS, 32, reinterpret_cast<u8*>(a));
  }
  fetch_matrix(w, in, descriptor(w, rb[0]), false, 0, (u32)p.n, 32, reinterpret_cast<u8*>(b));
  bool keep = pred(w, rb[1]) & 1;
  if (keep) read_accumulators(w, rd, Int32, 2, p.n, wide);
  for (int i = 0; i < ROWS * p.n; i++) c[i] = keep ? (u32)(i32)wide[i] : 0;
  multiply_bits(ROWS, p.n, 8, a, b, c, false);
  for (int i = 0; i < ROWS * p.n; i++) wide[i] = (i32)c[i];
  write_accumulators(w, rd, Int32, 2, p.n, wide, Clamp::None);
  finish(w, p);
  return in + 1;
}

const Inst* op_order(Warp& w, const Inst* in) {
  const Inst* next;
  return warpgroup(w, in, &next) ? in + 1 : next;
}

struct Kind {
  bool integer, types, sixteen;
  int k;
};

Kind kind_of(Element a, Element b, Element d) {
  auto both = [&](Element x, Element y) { return (a == x || a == y) && (b == x || b == y); };
  if (both(Half, Half)) return {false, d == Half || d == Single, true, 16};
  if (both(Bf16, Bf16)) return {false, d == Single, true, 16};
  if (both(Tf32, Tf32)) return {false, d == Single, false, 8};
  if (both(E4m3, E5m2)) return {false, d == Half || d == Single, false, 32};
  if (both(Int8, Uint8)) return {true, d == Int32, false, 32};
  if (both(Bit, Bit)) return {true, d == Int32, false, 256};
  return {false, false, false, 0};
}

bool take_flag(Decoder& d, u32 operand, i64 yes, i64 no) {
  i64 v = d.immediate(d.op(operand));
  if (v != yes && v != no) throw PtxError("immediate of wgmma out of range");
  return v == yes;
}

// The immediates behind the predicate: signs, then for 16-bit types the directions of what lies in shared memory.
void take_immediates(Decoder& d, Plan& p, u32 at, bool sixteen) {
  bool both = !p.count_a;
  d.need(at + (sixteen ? (both ? 4 : 3) : 2));
  p.negate = take_flag(d, at, -1, 1) != take_flag(d, at + 1, -1, 1);
  if (!sixteen) return;
  if (both) p.across_a = take_flag(d, at + 2, 1, 0);
  p.across_b = take_flag(d, at + (both ? 3 : 2), 1, 0);
}

Plan take_plan(Mods& m) {
  Plan p{};
  p.sparse = m.take("sp");
  if (!m.take("sync") || !m.take("aligned")) m.unsupported(m.peek());
  string_view name = m.peek();
  Shape s = take_shape(m);
  bool clamp = m.take("satfinite");
  p.d = take_element(m), p.a = take_element(m), p.b = take_element(m);
  bool bits = m.take("and") && m.take("popc");
  m.finish();
  const Kind kind = kind_of(p.a, p.b, p.d);
  bool shape = s.m == 64 && s.n >= 8 && s.n <= WIDEST && s.n % 8 == 0 && s.k == (p.sparse ? 2 : 1) * kind.k;
  if (kind.integer && s.n > 32) shape &= s.n % 16 == 0;
  bool one_bit = p.a == Bit;
  if (!kind.types || !shape || bits != one_bit || (clamp && (!kind.integer || bits)) || (p.sparse && bits))
    m.unsupported(string(name) + " of these types");
  p.n = s.n, p.k = s.k;
  p.clamp = clamp ? Clamp::Saturate : Clamp::None;
  p.count_d = (u32)(s.n / (p.d == Half ? 4 : 2));
  return p;
}

// Operands: D, A, the descriptor of B, for a sparse A metadata and selector, the predicate, immediates.
void h_multiply(Decoder& d, Mods& m) {
  Plan p = take_plan(m);
  const Kind kind = kind_of(p.a, p.b, p.d);
  u32 keep = p.sparse ? 5 : 3;
  p.count_a = d.op(1).kind == Operand::Vec ? 4 : 0;
  if (kind.integer)
    d.need(keep + 1);
  else
    take_immediates(d, p, keep + 1, kind.sixteen);
  if (p.sparse) p.selector = take_selector(d, 4, p.a, p.k);
  std::vector<u32> slots, also_read;
  append(d, slots, d.op(0), p.d, p.count_d, true);
  append(d, also_read, d.op(0), p.d, p.count_d, false);
  if (p.count_a)
    append(d, slots, d.op(1), p.a, 4, false);
  else
    slots.push_back(d.src(d.op(1), Ty::B64));
  slots.push_back(d.src(d.op(2), Ty::B64));
  slots.push_back(d.pred_src(d.op(keep)));
  if (p.sparse) slots.push_back(d.src(d.op(3), Ty::B32));
  Inst& in = d.emit(p.a == Bit ? op_wgmma_bits : op_wgmma, Class::Tensor);
  in.ext = d.ext(slots);
  in.site = d.new_site();
  in.imm = (i64)d.kernel().tables.size();
  d.kernel().tables.push_back(p.pack());
}

void h_wgmma(Decoder& d, Mods& m) {
  if (m.take("mma_async")) return h_multiply(d, m);
  bool wait = m.take("wait_group");
  if (!wait && !m.take("fence") && !m.take("commit_group")) m.unsupported(m.peek());
  if (!m.take("sync") || !m.take("aligned")) m.unsupported(m.peek());
  m.finish();
  d.need(wait);
  if (wait && d.immediate(d.op(0)) < 0) throw PtxError("wgmma.wait_group of a negative number");
  d.emit(op_order, Class::Sync);
}
}  // namespace

void add_wgmma_handlers(Handlers& h) { h["wgmma"] = h_wgmma; }
}  // namespace kw
