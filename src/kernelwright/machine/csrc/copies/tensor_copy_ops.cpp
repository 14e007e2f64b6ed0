// cp.async.bulk.tensor (TMA): boxes of tensors that a tensor map describes, to and from shared memory, tiled.
#include <algorithm>

#include "copies/bulk.h"
#include "checks/watch.h"
#include "memory/shadow.h"

namespace kw {
namespace {
constexpr u32 MOST_DIMENSIONS = 5;

// The part of a row of the box that lies inside the tensor; offsets are in the box as it lies in shared memory.
struct Row {
  u64 global;
  u32 offset, bytes;
};

struct Box {
  std::vector<Row> rows;
  u32 bytes = 0;
};

TensorMap read_map(Warp& w, const Inst* in, int lane, u64 address) {
  Launch& l = *w.launch;
  int thread = thread_of(w, lane);
  const u8* at = nullptr;
  if (address >> 60 == 3) {
    u64 offset = address & ((1ull << 60) - 1);
    if (offset + sizeof(TensorMap) <= l.params.size()) at = l.params.data() + offset;
  } else if (Region* r = find_region(l, address); r && address + sizeof(TensorMap) <= r->begin + r->bytes) {
    at = reinterpret_cast<const u8*>(address);
  }
  if (!at) raise(in, thread, "out-of-bounds-read", "the tensor map's address: " + describe_address(l, address));
  if (address % 64) raise(in, thread, "misaligned-access", "a tensor map must be aligned to 64 bytes");
  TensorMap m;
  std::memcpy(&m, at, sizeof m);
  if (m.magic != TensorMap::MAGIC)
    raise(in, thread, "bad-descriptor",
          "there is no tensor map of cuTensorMapEncodeTiled here (a kernel parameter must be const __grid_constant__ "
          "CUtensorMap)");
  return m;
}

Box box_of(const TensorMap& m, const i32* at) {
  Box box;
  u32 extent[MOST_DIMENSIONS] = {1, 1, 1, 1, 1}, steps = 1;
  for (u32 i = 0; i < m.rank; i++) extent[i] = (m.box[i] + m.element_stride[i] - 1u) / m.element_stride[i];
  bool dense = m.element_stride[0] == 1;
  u32 row_bytes = extent[0] * m.element_bytes;
  for (u32 i = 1; i < m.rank; i++) steps *= extent[i];
  for (u32 k = 0; k < steps; k++) {
    u64 global = m.address;
    bool inside = true;
    for (u32 i = 1, rest = k; i < m.rank; rest /= extent[i], i++) {
      i64 c = at[i] + (i64)(rest % extent[i]) * m.element_stride[i];
      inside &= c >= 0 && c <= (i64)m.last[i];
      global += (u64)c * m.stride[i - 1];
    }
    u32 offset = k * row_bytes;
    if (!inside) continue;
    if (dense) {
      i64 first = std::max<i64>(0, at[0]), end = std::min<i64>((i64)m.last[0] + 1, (i64)at[0] + extent[0]);
      if (first < end)
        box.rows.push_back({global + (u64)first * m.element_bytes, offset + (u32)(first - at[0]) * m.element_bytes,
                            (u32)(end - first) * m.element_bytes});
      continue;
    }
    for (u32 j = 0; j < extent[0]; j++) {
      i64 c = at[0] + (i64)j * m.element_stride[0];
      if (c >= 0 && c <= (i64)m.last[0])
        box.rows.push_back({global + (u64)c * m.element_bytes, offset + j * m.element_bytes, m.element_bytes});
    }
  }
  box.bytes = steps * row_bytes;
  return box;
}

// Where the 16 bytes at this offset of shared memory really are.
u64 swizzled(u64 at, int mode) {
  u64 bits = mode == 0 ? 0 : at >> 7 & ((1u << mode) - 1);
  return at ^ bits << 4;
}

// Between shared memory, with its swizzle, and the box as one array.
void copy_box(char* shared, u64 offset, char* box, u32 bytes, int swizzle, bool to_shared) {
  for (u32 i = 0; i < bytes; i += 16) {
    char* place = shared + swizzled(offset + i, swizzle);
    u32 n = std::min(16u, bytes - i);
    std::memcpy(to_shared ? place : box + i, to_shared ? box + i : place, n);
  }
}

void fill_outside(const TensorMap& m, std::vector<char>& data) {
  if (!m.fill_nan) return;
  const u16 half = 0x7fff;
  const u32 single = 0x7fffffff;
  const u64 wide = ~0ull >> 1;
  const void* nan = m.element_bytes == 2 ? (const void*)&half : m.element_bytes == 4 ? (const void*)&single : &wide;
  for (size_t i = 0; i < data.size(); i += m.element_bytes) std::memcpy(data.data() + i, nan, m.element_bytes);
}

Ty element_type(const TensorMap& m) {
  constexpr Ty types[] = {Ty::U8,  Ty::U16, Ty::U32, Ty::S32, Ty::U64, Ty::S64,
                          Ty::F16, Ty::F32, Ty::F64, Ty::BF16, Ty::F32};
  return types[m.type];
}

enum Slot { Map, Shared_, Barrier_, Mask, Coordinates };
// tables[imm]: dimensions, store, multicast, reduction

void load_tile(Warp& w, const Inst* in, int lane, const TensorMap& m, const i32* at, bool multicast) {
  const u32* e = w.ext + in->ext;
  Box box = box_of(m, at);
  BulkTarget to = shared_target(w, in, lane, slot<u64>(w, e[Shared_])[lane], box.bytes, 128, true);
  BulkTarget signal = shared_target(w, in, lane, slot<u64>(w, e[Barrier_])[lane], 8, 8, true);
  std::vector<char> data(box.bytes);
  fill_outside(m, data);
  for (const Row& r : box.rows) {
    check_global(w, in, lane, r.global, r.bytes, false);
    std::memcpy(data.data() + r.offset, reinterpret_cast<const char*>(r.global), r.bytes);
  }
  i64 mask = multicast ? slot<u16>(w, e[Mask])[lane] : -1;
  Launch* l = w.launch;
  u32 bytes = box.bytes;
  int swizzle = m.swizzle;
  each_destination(w, in, lane, to, signal, mask, [&](BulkTarget t, char* barrier) {
    mark_pending(*l, *t.resident, in, t.offset, bytes);
    t.resident->async->inbound.push_back({in, barrier, bytes, [=]() mutable {
      clear_pending(*t.resident, t.offset, bytes);
      char* shared = reinterpret_cast<char*>(t.resident->shared);
      copy_box(shared, t.offset, data.data(), bytes, swizzle, true);
      if (l->watch) l->watch->filled(*t.resident, t.offset, bytes);
    }});
  });
}

// Only the parts of rows that lie in the tensor are read.
void check_source(Warp& w, const Inst* in, int lane, BulkTarget from, const Row& r, int swizzle) {
  for (u32 i = r.offset; i < r.offset + r.bytes;) {
    u32 n = std::min(16 - i % 16, r.offset + r.bytes - i);
    w.launch->watch->source(w, in, lane, *from.resident, swizzled(from.offset + i, swizzle), n);
    i += n;
  }
}

void store_tile(Warp& w, const Inst* in, int lane, const TensorMap& m, const i32* at, Reduce op) {
  Box box = box_of(m, at);
  Ty type = element_type(m);
  if (op >= Reduce::And) type = m.element_bytes == 8 ? Ty::B64 : m.element_bytes == 4 ? Ty::B32 : Ty::None;
  if (op != Reduce::None && !can_reduce(op, type))
    raise(in, thread_of(w, lane), "bad-descriptor", "the tensor map's type has no such reduction");
  BulkTarget from =
      shared_target(w, in, lane, slot<u64>(w, w.ext[in->ext + Shared_])[lane], box.bytes, 128, false);
  for (const Row& r : box.rows) {
    if (w.launch->watch) check_source(w, in, lane, from, r, m.swizzle);
    check_global(w, in, lane, r.global, r.bytes, true);
    if (op != Reduce::None) track_range(w, in, lane, r.global, r.bytes, true, false);
  }
  Launch* l = w.launch;
  int swizzle = m.swizzle;
  queue_store(w, in, lane, [=] {
    std::vector<char> data(box.bytes);
    copy_box(reinterpret_cast<char*>(from.resident->shared), from.offset, data.data(), box.bytes, swizzle, false);
    for (const Row& r : box.rows) {
      char* place = reinterpret_cast<char*>(r.global);
      if (op == Reduce::None)
        std::memcpy(place, data.data() + r.offset, r.bytes);
      else
        reduce_bytes(op, type, place, data.data() + r.offset, r.bytes);
      note_written(*l, r.global, r.bytes);
    }
    l->changes++;
  });
}

const Inst* op_tensor(Warp& w, const Inst* in) {
  const auto& t = w.launch->kernel->tables[(size_t)in->imm];
  const u32* e = w.ext + in->ext;
  for (u32 r = active(w, in); r; r &= r - 1) {
    int i = __builtin_ctz(r);
    TensorMap m = read_map(w, in, i, slot<u64>(w, e[Map])[i]);
    if (m.rank != (u32)t[0])
      raise(in, thread_of(w, i), "bad-descriptor",
            "a copy of " + std::to_string(t[0]) + " dimensions with a tensor map of " + std::to_string(m.rank));
    i32 at[MOST_DIMENSIONS] = {};
    for (u32 k = 0; k < m.rank; k++) at[k] = slot<i32>(w, e[Coordinates + k])[i];
    if (t[1])
      store_tile(w, in, i, m, at, (Reduce)t[3]);
    else
      load_tile(w, in, i, m, at, t[2] != 0);
  }
  return in + 1;
}

const Inst* op_nothing(Warp&, const Inst* in) { return in + 1; }

u32 take_dimensions(Mods& m) {
  const char* names[] = {"1d", "2d", "3d", "4d", "5d"};
  for (u32 i = 0; i < 5; i++)
    if (m.take(names[i])) return i + 1;
  m.unsupported("async.bulk.tensor." + string(m.peek()));
}

// Only the tiled mode; the others are refused by name.
void take_mode(Mods& m) { m.take("tile"); }

std::vector<u32> coordinates(Decoder& d, const Operand& o, u32 dimensions) {
  if (o.kind != Operand::Indexed || o.count != 1) throw PtxError("[tensorMap, coordinates] is expected");
  const Operand c = d.element(o, 0);
  if (c.kind != Operand::Vec || c.count != dimensions) throw PtxError("coordinates of the wrong length");
  std::vector<u32> slots;
  for (u32 i = 0; i < dimensions; i++) slots.push_back(d.src(d.element(c, i), Ty::S32));
  return slots;
}
}  // namespace

void tensor_prefetch(Decoder& d, Mods& m) {
  u32 dimensions = take_dimensions(m);
  if (!m.take("L2")) m.unsupported("async.bulk.prefetch.tensor");
  m.take("global");
  take_mode(m);
  m.take("L2::cache_hint");
  m.finish();
  coordinates(d, d.op(0), dimensions);
  d.emit(op_nothing, Class::Memory);
}

void tensor_copy(Decoder& d, Mods& m, bool reduce) {
  u32 dimensions = take_dimensions(m);
  string_view to = m.next();
  bool store = to == "global";
  if (!store && to != "shared::cluster" && to != "shared::cta") m.unsupported("async.bulk.tensor." + string(to));
  if (!m.take(store ? "shared::cta" : "global")) m.unsupported("async.bulk.tensor." + string(m.peek()));
  Reduce op = reduce ? take_reduction(m) : Reduce::None;
  take_mode(m);
  if (!m.take(store ? "bulk_group" : "mbarrier::complete_tx::bytes"))
    m.unsupported("async.bulk.tensor." + string(m.peek()));
  bool multicast = !store && m.take("multicast::cluster"), hint = m.take("L2::cache_hint");
  m.finish();
  d.need((store ? 2u : 3u) + multicast + hint);
  const Operand described = d.op(store ? 0 : 1);
  std::vector<u32> at = coordinates(d, described, dimensions);
  u32 mask = multicast ? d.src(d.op(3), Ty::U16) : 0;
  u32 map = address_slot(d, described, Space::Generic);
  u32 shared = address_slot(d, d.op(store ? 1 : 0), store ? Space::Shared : Space::Cluster);
  u32 barrier = store ? 0 : address_slot(d, d.op(2), Space::Cluster);
  std::vector<u32> slots = {map, shared, barrier, mask};
  slots.insert(slots.end(), at.begin(), at.end());
  Inst& in = d.emit(op_tensor, Class::Memory);
  in.ext = d.ext(slots);
  in.imm = (i64)d.kernel().tables.size();
  d.kernel().tables.push_back({dimensions, store, multicast, (i64)op});
}
}  // namespace kw

extern "C" __attribute__((visibility("default"))) int kw_encode_tiled(
    void* out, int type, uint32_t rank, const void* address, const uint64_t* dims, const uint64_t* strides,
    const uint32_t* box, const uint32_t* element_strides, int interleave, int swizzle, int promotion, int fill) {
  return kw::encode_tiled(out, type, rank, address, dims, strides, box, element_strides, interleave, swizzle, promotion,
                          fill);
}
