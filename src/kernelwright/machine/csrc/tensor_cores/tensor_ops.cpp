// mma.sync and mma.sp: products of one warp, in the fragment layouts of the PTX ISA.
#include "tensor_cores/tensor.h"

namespace kw {
namespace tensor {
Element take_element(Mods& m) {
  constexpr std::pair<const char*, Element> types[] = {
      {"f16", Half},   {"bf16", Bf16}, {"tf32", Tf32}, {"e4m3", E4m3}, {"e5m2", E5m2}, {"f32", Single}, {"f64", Double},
      {"s8", Int8},    {"u8", Uint8},  {"s4", Int4},   {"u4", Uint4},  {"b1", Bit},    {"s32", Int32}};
  string_view name = m.next();
  for (auto& [known, element] : types)
    if (name == known) return element;
  m.unsupported("sync type " + string(name));
}

Shape take_shape(Mods& m) {
  string_view name = m.next();
  Shape s;
  size_t at = 0;
  for (auto [letter, part] : {std::pair('m', &s.m), std::pair('n', &s.n), std::pair('k', &s.k)}) {
    if (at >= name.size() || name[at++] != letter) m.unsupported(name);
    size_t first = at;
    while (at < name.size() && at < first + 4 && name[at] >= '0' && name[at] <= '9')
      *part = *part * 10 + (name[at++] - '0');
    if (at == first) m.unsupported(name);
  }
  if (at != name.size()) m.unsupported(name);
  return s;
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
enum class Family : u8 { F16, Bf16, Tf32, F8, F64, I8, I4, B1, None };

struct Form {
  Family family;
  Shape shape;
  bool sparse;
};
constexpr Form forms[] = {
    {Family::F16, {8, 8, 4}, false},    {Family::F16, {16, 8, 8}, false},    {Family::F16, {16, 8, 16}, false},
    {Family::Bf16, {16, 8, 8}, false},  {Family::Bf16, {16, 8, 16}, false},  {Family::Tf32, {16, 8, 4}, false},
    {Family::Tf32, {16, 8, 8}, false},  {Family::F8, {16, 8, 16}, false},    {Family::F8, {16, 8, 32}, false},
    {Family::F64, {8, 8, 4}, false},    {Family::F64, {16, 8, 4}, false},    {Family::F64, {16, 8, 8}, false},
    {Family::F64, {16, 8, 16}, false},  {Family::I8, {8, 8, 16}, false},     {Family::I8, {16, 8, 16}, false},
    {Family::I8, {16, 8, 32}, false},   {Family::I4, {8, 8, 32}, false},     {Family::I4, {16, 8, 32}, false},
    {Family::I4, {16, 8, 64}, false},   {Family::B1, {8, 8, 128}, false},    {Family::B1, {16, 8, 128}, false},
    {Family::B1, {16, 8, 256}, false},  {Family::F16, {16, 8, 16}, true},    {Family::F16, {16, 8, 32}, true},
    {Family::Bf16, {16, 8, 16}, true},  {Family::Bf16, {16, 8, 32}, true},   {Family::Tf32, {16, 8, 8}, true},
    {Family::Tf32, {16, 8, 16}, true},  {Family::I8, {16, 8, 32}, true},     {Family::I8, {16, 8, 64}, true},
    {Family::I4, {16, 8, 64}, true},    {Family::I4, {16, 8, 128}, true},    {Family::F8, {16, 8, 64}, true}};

Family family_of(Element e) {
  switch (e) {
    case Half:
      return Family::F16;
    case Bf16:
      return Family::Bf16;
    case Tf32:
      return Family::Tf32;
    case E4m3:
    case E5m2:
      return Family::F8;
    case Double:
      return Family::F64;
    case Int8:
    case Uint8:
      return Family::I8;
    case Int4:
    case Uint4:
      return Family::I4;
    case Bit:
      return Family::B1;
    default:
      return Family::None;
  }
}

bool accumulates(Family f, const Shape& s, Element c, Element d) {
  switch (f) {
    case Family::F16:
      if (s.m == 8 && c == Half && d == Single) return true;
      [[fallthrough]];
    case Family::F8:
      return c == d && (c == Half || c == Single);
    case Family::F64:
      return c == Double && d == Double;
    case Family::Bf16:
    case Family::Tf32:
      return c == Single && d == Single;
    default:
      return c == Int32 && d == Int32;
  }
}

// What tables[imm] holds of one mma; ext: registers of D, A, B, C, and the metadata of a sparse A.
struct Plan {
  Shape shape;
  Element a, b, c, d;
  u32 count_a, count_b, count_c, count_d;
  Clamp clamp;
  bool use_xor, ordered, a_columns, b_columns;
  int selector;

  std::vector<i64> pack() const {
    return {shape.m, shape.n, shape.k, a, b, c, d, count_a, count_b, count_c, count_d, (i64)clamp,
            use_xor, ordered, a_columns, b_columns, selector};
  }
  static Plan of(const Warp& w, const Inst* in) {
    const i64* t = w.launch->kernel->tables[(size_t)in->imm].data();
    return {{(int)t[0], (int)t[1], (int)t[2]}, (Element)t[3], (Element)t[4], (Element)t[5], (Element)t[6],
            (u32)t[7], (u32)t[8], (u32)t[9], (u32)t[10], (Clamp)t[11], t[12] != 0, t[13] != 0, t[14] != 0,
            t[15] != 0, (int)t[16]};
  }
};

struct Registers {
  const u32 *d, *a, *b, *c, *meta;
  Registers(const Warp& w, const Inst* in, const Plan& p) {
    d = w.ext + in->ext;
    a = d + p.count_d;
    b = a + p.count_a;
    c = b + p.count_b;
    meta = c + p.count_c;
  }
};

// B as k rows of eight columns.
void read_b(const Warp& w, const Registers& r, const Plan& p, double* b) {
  double columns[8 * 128];
  read_tiles(w, r.b, p.count_b, p.b, 1, p.shape.k, columns);
  transpose(8, p.shape.k, columns, b);
}

void finish(Warp& w, const Registers& r, const Plan& p, const double* a, const double* b) {
  double c[16 * 8];
  int row_tiles = p.shape.m / 8;
  read_accumulators(w, r.c, p.c, row_tiles, 8, c);
  multiply(p.shape, a, b, c, p.d == Double);
  write_accumulators(w, r.d, p.d, row_tiles, 8, c, p.clamp);
  w.launch->count.mma++;
}

const Inst* op_mma(Warp& w, const Inst* in) {
  const Inst* next;
  if (!whole_warp(w, in, &next)) return next;
  const Plan p = Plan::of(w, in);
  const Registers r(w, in, p);
  double a[16 * 64], b[64 * 8];
  read_tiles(w, r.a, p.count_a, p.a, p.shape.m / 8, p.shape.k, a);
  read_b(w, r, p, b);
  finish(w, r, p, a, b);
  return in + 1;
}

const Inst* op_mma_bits(Warp& w, const Inst* in) {
  const Inst* next;
  if (!whole_warp(w, in, &next)) return next;
  const Plan p = Plan::of(w, in);
  const Registers r(w, in, p);
  int words = p.shape.k / 32, row_tiles = p.shape.m / 8;
  u32 a[16 * 8], b[8 * 8], c[16 * 8];
  double wide[16 * 8];
  for (int i = 0; i < (int)p.count_a; i++)
    for (int lane = 0; lane < LANES; lane++)
      a[(i % row_tiles * 8 + lane / 4) * words + i / row_tiles * 4 + lane % 4] = slot<u32>(w, r.a[i])[lane];
  for (int i = 0; i < (int)p.count_b; i++)
    for (int lane = 0; lane < LANES; lane++) b[lane / 4 * words + i * 4 + lane % 4] = slot<u32>(w, r.b[i])[lane];
  read_accumulators(w, r.c, Int32, row_tiles, 8, wide);
  for (int i = 0; i < p.shape.m * 8; i++) c[i] = (u32)(i32)wide[i];
  multiply_bits(p.shape.m, 8, words, a, b, c, p.use_xor);
  for (int i = 0; i < p.shape.m * 8; i++) wide[i] = (i32)c[i];
  write_accumulators(w, r.d, Int32, row_tiles, 8, wide, Clamp::None);
  w.launch->count.mma++;
  return in + 1;
}

// m8n8k4 of f16: four products at once, each of eight lanes: four of the lower half-warp, four of the upper.
struct Octet {
  int first;
  int lane(int row) const { return first + (row & 3) + (row & 4) * 4; }
};

double half_at(const Warp& w, const u32* regs, int lane, int i) {
  return half_to_float((u16)(slot<u32>(w, regs[i / 2])[lane] >> (16 * (i & 1))));
}

// Lane and element of C and D at a row and column of the 8 x 8 product.
std::pair<int, int> volta_place(Octet o, Element e, int row, int column) {
  if (e == Half) return {o.lane(row), column};
  int lane = o.first + (row & 1) + (column & 2) + (row & 4) * 4;
  return {lane, (row & 2) + (column & 4) + (column & 1)};
}

const Inst* op_mma_volta(Warp& w, const Inst* in) {
  const Inst* next;
  if (!whole_warp(w, in, &next)) return next;
  const Plan p = Plan::of(w, in);
  const Registers r(w, in, p);
  double c[4][64];
  for (int q = 0; q < 4; q++) {
    Octet o{4 * q};
    double a[32], b[32];
    for (int i = 0; i < 8; i++)
      for (int k = 0; k < 4; k++) {
        // Stored along k, a lane holds one row (or column) of four; along the rows, four rows of one k.
        a[i * 4 + k] = p.a_columns ? half_at(w, r.a, o.lane(k + (i & 4)), i & 3) : half_at(w, r.a, o.lane(i), k);
        b[k * 8 + i] = p.b_columns ? half_at(w, r.b, o.lane(i), k) : half_at(w, r.b, o.lane(k + (i & 4)), i & 3);
      }
    for (int e = 0; e < 64; e++) {
      auto [lane, i] = volta_place(o, p.c, e / 8, e % 8);
      c[q][e] = p.c == Half ? half_at(w, r.c, lane, i) : slot<float>(w, r.c[i])[lane];
    }
    multiply(p.shape, a, b, c[q], false);
  }
  for (int q = 0; q < 4; q++)
    for (int e = 0; e < 64; e++) {
      auto [lane, i] = volta_place(Octet{4 * q}, p.d, e / 8, e % 8);
      u32 v = round_result(p.d, c[q][e], p.clamp);
      if (p.d == Half)
        slot<u16>(w, r.d[i / 2])[2 * lane + (i & 1)] = (u16)v;
      else
        slot<u32>(w, r.d[i])[lane] = v;
    }
  w.launch->count.mma++;
  return in + 1;
}

const Inst* op_mma_sparse(Warp& w, const Inst* in) {
  const Inst* next;
  if (!whole_warp(w, in, &next)) return next;
  const Plan p = Plan::of(w, in);
  const Registers r(w, in, p);
  double stored[16 * 64], a[16 * 128], b[128 * 8];
  read_tiles(w, r.a, p.count_a, p.a, 2, p.shape.k / 2, stored);
  expand_sparse(w, in, {p.a, p.shape.k, p.selector, p.ordered}, r.meta[0], stored, a);
  read_b(w, r, p, b);
  finish(w, r, p, a, b);
  return in + 1;
}

void take_layouts(Mods& m, Plan& p) {
  for (bool* columns : {&p.a_columns, &p.b_columns}) {
    string_view name = m.next();
    if (name != "row" && name != "col") m.unsupported(name);
    *columns = name == "col";
  }
}

Fn function_of(const Plan& p, bool sparse) {
  if (sparse) return op_mma_sparse;
  if (p.a == Bit) return op_mma_bits;
  return p.a == Half && p.shape.m == 8 ? op_mma_volta : op_mma;
}

void count_registers(Plan& p, bool sparse) {
  auto registers = [](int elements, Element e) { return (u32)(elements / 32 / per_register(e)); };
  p.count_a = registers(p.shape.m * p.shape.k / (sparse ? 2 : 1), p.a);
  p.count_b = registers(p.shape.n * p.shape.k, p.b);
  p.count_c = registers(p.shape.m * p.shape.n, p.c);
  p.count_d = registers(p.shape.m * p.shape.n, p.d);
  if (p.a == Half && p.shape.m == 8) {  // four products
    p.count_a = p.count_b = 2;
    p.count_c *= 4, p.count_d *= 4;
  }
}

bool known(const Plan& p, bool sparse, bool clamp, bool bit_operation) {
  Family f = family_of(p.a);
  bool volta = f == Family::F16 && p.shape.m == 8;
  bool mixed = f == Family::I8 || f == Family::I4 || f == Family::F8;
  if (f == Family::None || (mixed ? family_of(p.b) != f : p.a != p.b)) return false;
  if (!volta && (p.a_columns || !p.b_columns)) return false;
  if (clamp && f != Family::I8 && f != Family::I4) return false;
  if (bit_operation != (f == Family::B1) || !accumulates(f, p.shape, p.c, p.d)) return false;
  for (const Form& form : forms)
    if (form.family == f && form.shape == p.shape && form.sparse == sparse) return true;
  return false;
}

void h_mma(Decoder& d, Mods& m) {
  Plan p{};
  bool sparse = m.take("sp");
  if (m.take("sp::ordered_metadata")) sparse = p.ordered = true;
  if (!m.take("sync") || !m.take("aligned")) m.unsupported(m.peek());
  const string_view shape = m.peek();
  p.shape = take_shape(m);
  take_layouts(m, p);
  bool clamp = m.take("satfinite");
  p.d = take_element(m), p.a = take_element(m), p.b = take_element(m), p.c = take_element(m);
  p.use_xor = m.take("xor");
  bool bit_operation = (p.use_xor || m.take("and")) && m.take("popc");
  m.finish();
  if (!known(p, sparse, clamp, bit_operation)) throw Unsupported("mma." + string(shape) + " of these types");
  p.clamp = clamp ? Clamp::Saturate : Clamp::None;
  count_registers(p, sparse);
  d.need(sparse ? 6 : 4);
  std::vector<u32> slots;
  append(d, slots, d.op(0), p.d, p.count_d, true);
  append(d, slots, d.op(1), p.a, p.count_a, false);
  append(d, slots, d.op(2), p.b, p.count_b, false);
  append(d, slots, d.op(3), p.c, p.count_c, false);
  if (sparse) {
    slots.push_back(d.src(d.op(4), Ty::B32));
    p.selector = take_selector(d, 5, p.a, p.shape.k);
  }
  Inst& in = d.emit(function_of(p, sparse), Class::Tensor);
  in.ext = d.ext(slots);
  in.imm = (i64)d.kernel().tables.size();
  d.kernel().tables.push_back(p.pack());
}
}  // namespace

void add_tensor_handlers(Handlers& h) {
  h["mma"] = h_mma;
  add_matrix_move_handlers(h);
  add_wmma_handlers(h);
  add_wgmma_handlers(h);
}
}  // namespace kw
