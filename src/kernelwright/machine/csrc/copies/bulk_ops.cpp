// cp.async.bulk and cp.reduce.async.bulk of plain ranges. Sources outside shared memory are read when the copy starts;
// sources in shared memory are read at the wait, so that a buffer reused too early is detected.
#include "copies/bulk.h"

#include <algorithm>

#include "memory/memory_ops.h"
#include "checks/watch.h"
#include "memory/shadow.h"

namespace kw {
namespace {
const Inst* op_address(Warp& w, const Inst* in) {
  u32 m = active(w, in);
  if (in->y) {
    const u32* base = slot<u32>(w, in->a);
    put<u64>(w, m, in->d, [&](int i) { return (u64)(u32)(base[i] + (u32)in->imm); });
  } else {
    const u64* base = slot<u64>(w, in->a);
    put<u64>(w, m, in->d, [&](int i) { return base[i] + (u64)in->imm; });
  }
  return in + 1;
}

[[noreturn]] void misaligned(const Inst* in, int thread, const char* what, u64 value, u32 alignment) {
  raise(in, thread, "misaligned-access",
        string("bulk copy: the ") + what + " (" + std::to_string(value) + ") is no multiple of " +
            std::to_string(alignment));
}
}  // namespace

u32 address_slot(Decoder& d, const Operand& o, Space space) {
  Operand plain = o;
  if (plain.kind == Operand::Indexed) plain.kind = Operand::Mem, plain.count = 0;  // coordinates are read elsewhere
  u32 out = d.scratch(8);
  Inst& in = d.emit(op_address, Class::Memory);
  d.set_address(in, plain, space);
  in.d = out;
  return out;
}

BulkTarget shared_target(Warp& w, const Inst* in, int lane, u64 address, u64 bytes, u32 alignment, bool write) {
  u64 size = w.launch->shared_bytes, offset = address & OFFSET_MASK;
  int thread = thread_of(w, lane);
  ResidentBlock* s = address >> 32 ? nullptr : owner_of(*w.block->resident, address);
  if (!s || offset + bytes > size)
    raise(in, thread, write ? "out-of-bounds-write" : "out-of-bounds-read",
          string("bulk copy ") + (write ? "to " : "from ") + std::to_string(bytes) + " bytes at offset " +
              std::to_string(offset) + " of " + std::to_string(size) + " bytes of shared memory" +
              (s ? "" : " of a block that the cluster does not have"));
  for (const SharedVariable& v : w.launch->kernel->shared_variables)
    if (v.bytes && offset >= v.offset && offset < v.offset + v.bytes && offset + bytes > v.offset + v.bytes)
      raise(in, thread, write ? "out-of-bounds-write" : "out-of-bounds-read",
            string("bulk copy ") + (write ? "to " : "from ") + std::to_string(bytes) + " bytes of shared memory, to " +
                describe_shared(*w.launch, offset + bytes));
  if (s->done)
    raise(in, thread, write ? "out-of-bounds-write" : "out-of-bounds-read",
          "bulk copy with the shared memory of block " + std::to_string(s->rank) + " of the cluster, which has exited");
  if (offset % alignment) misaligned(in, thread, "address in shared memory", offset, alignment);
  return {s, offset};
}

void check_global(Warp& w, const Inst* in, int lane, u64 address, u64 bytes, bool write) {
  Launch& l = *w.launch;
  if (!bytes) return;
  Region* r = find_region(l, address);
  if (!r || bytes > r->begin + r->bytes - address || (write && !r->writable)) {
    string where = describe_address(l, address);
    if (r)
      where = "across the end of the " + std::to_string(r->bytes) + "-byte allocation '" + r->name + "' (offset " +
              std::to_string(address - r->begin) + ")";
    if (r && write && !r->writable) where = "to read-only " + r->name;
    raise(in, thread_of(w, lane), write ? "out-of-bounds-write" : "out-of-bounds-read",
          string("asynchronous copy: global ") + (write ? "write" : "read") + " of " + std::to_string(bytes) +
              " bytes, " + where);
  }
  (write ? r->written : r->read) += bytes;
  (write ? l.count.global_store_bytes : l.count.global_load_bytes) += bytes;
  if (!write) track_range(w, in, lane, address, bytes, true, false);
}

void each_destination(Warp& w, const Inst* in, int lane, BulkTarget to, BulkTarget barrier, i64 multicast,
                      const std::function<void(BulkTarget, char*)>& f) {
  if (to.resident != barrier.resident)
    raise(in, thread_of(w, lane), "mbarrier-misuse",
          "bulk copy: the mbarrier is in another block than the destination");
  if (multicast < 0) return f(to, reinterpret_cast<char*>(to.resident->shared) + barrier.offset);
  auto& blocks = to.resident->cluster->blocks;
  for (u32 rank = 0; rank < 16; rank++) {
    if (!(multicast >> rank & 1)) continue;
    if (rank >= blocks.size() || blocks[rank]->done)
      raise(in, thread_of(w, lane), "out-of-bounds-write",
            "multicast to block " + std::to_string(rank) + " of the cluster, which " +
                (rank >= blocks.size() ? "does not exist" : "has exited"));
    ResidentBlock* s = blocks[rank].get();
    f({s, to.offset}, reinterpret_cast<char*>(s->shared) + barrier.offset);
  }
}

void queue_store(Warp& w, const Inst* in, int lane, std::function<void()> deliver) {
  AsyncQueue& q = queue_of(w);
  q.stores.push_back({in, lane, q.stores_committed[lane], std::move(deliver)});
}

namespace {
// ext: destination, source, bytes, mbarrier, multicast mask, byte mask. tables[imm]: the rest
enum Slot { To, From, Size, Barrier_, Mask };
struct Plan {
  bool from_global, to_global, multicast;
  Reduce reduce;
  Ty type;
};

Plan plan_of(const Warp& w, const Inst* in) {
  const auto& t = w.launch->kernel->tables[(size_t)in->imm];
  return {t[0] != 0, t[1] != 0, t[2] != 0, (Reduce)t[3], (Ty)t[4]};
}

void into_shared(Warp& w, const Inst* in, int lane, const Plan& p, u64 to, u64 from, u32 bytes) {
  u64 barrier = slot<u64>(w, w.ext[in->ext + Barrier_])[lane];
  i64 multicast = p.multicast ? slot<u16>(w, w.ext[in->ext + Mask])[lane] : -1;
  BulkTarget target = shared_target(w, in, lane, to, bytes, 16, true);
  BulkTarget signal = shared_target(w, in, lane, barrier, 8, 8, true);
  const char* source = reinterpret_cast<const char*>(from);
  if (p.from_global) {
    check_global(w, in, lane, from, bytes, false);
  } else {
    BulkTarget s = shared_target(w, in, lane, from, bytes, 16, false);
    if (w.launch->watch) w.launch->watch->source(w, in, lane, *s.resident, s.offset, bytes);
    source = reinterpret_cast<const char*>(s.resident->shared) + s.offset;
  }
  std::vector<char> data(source, source + bytes);
  Launch* l = w.launch;
  each_destination(w, in, lane, target, signal, multicast, [&](BulkTarget t, char* at) {
    mark_pending(*l, *t.resident, in, t.offset, bytes);
    t.resident->async->inbound.push_back({in, at, bytes, [=] {
      char* place = reinterpret_cast<char*>(t.resident->shared) + t.offset;
      clear_pending(*t.resident, t.offset, bytes);
      if (p.reduce == Reduce::None)
        std::memcpy(place, data.data(), bytes);
      else
        reduce_bytes(p.reduce, p.type, place, data.data(), bytes);
      if (l->watch) l->watch->filled(*t.resident, t.offset, bytes);
    }});
  });
}

void out_of_shared(Warp& w, const Inst* in, int lane, const Plan& p, u64 to, u64 from, u32 bytes) {
  BulkTarget source = shared_target(w, in, lane, from, bytes, 16, false);
  if (w.launch->watch) w.launch->watch->source(w, in, lane, *source.resident, source.offset, bytes);
  check_global(w, in, lane, to, bytes, true);
  if (p.reduce != Reduce::None) track_range(w, in, lane, to, bytes, true, false);
  Launch* l = w.launch;
  queue_store(w, in, lane, [=] {
    const char* data = reinterpret_cast<const char*>(source.resident->shared) + source.offset;
    char* place = reinterpret_cast<char*>(to);
    if (p.reduce == Reduce::None)
      std::memcpy(place, data, bytes);
    else
      reduce_bytes(p.reduce, p.type, place, data, bytes);
    note_written(*l, to, bytes);
    l->changes++;
  });
}

const Inst* op_bulk(Warp& w, const Inst* in) {
  Plan p = plan_of(w, in);
  for (u32 r = active(w, in); r; r &= r - 1) {
    int i = __builtin_ctz(r), thread = thread_of(w, i);
    u64 to = slot<u64>(w, w.ext[in->ext + To])[i], from = slot<u64>(w, w.ext[in->ext + From])[i];
    u32 bytes = slot<u32>(w, w.ext[in->ext + Size])[i];
    if (bytes % 16) misaligned(in, thread, "number of bytes", bytes, 16);
    if (p.from_global && from % 16) misaligned(in, thread, "global address", from, 16);
    if (p.to_global && to % 16) misaligned(in, thread, "global address", to, 16);
    if (p.to_global)
      out_of_shared(w, in, i, p, to, from, bytes);
    else
      into_shared(w, in, i, p, to, from, bytes);
  }
  return in + 1;
}

const Inst* op_nothing(Warp&, const Inst* in) { return in + 1; }
}  // namespace

void bulk_copy(Decoder& d, Mods& m, bool reduce) {
  if (reduce && (!m.take("async") || !m.take("bulk"))) m.unsupported("reduce." + string(m.peek()));
  d.kernel().may_wait = d.kernel().has_copies = true;
  if (m.take("prefetch")) {
    if (m.take("tensor")) return tensor_prefetch(d, m);
    if (!m.take("L2") || !m.take("global")) m.unsupported("async.bulk.prefetch." + string(m.peek()));
    m.take("L2::cache_hint");
    m.finish();
    d.emit(op_nothing, Class::Memory);
    return;
  }
  if (m.take("tensor")) return tensor_copy(d, m, reduce);
  // The order of the first two says which is the destination.
  string_view to = m.next(), from = m.next();
  bool to_global = to == "global", from_global = from == "global";
  if (!to_global && to != "shared::cluster" && to != "shared::cta") m.unsupported("async.bulk." + string(to));
  if (!from_global && from != "shared::cta") m.unsupported("async.bulk." + string(from));
  bool counted = m.take("mbarrier::complete_tx::bytes");
  if (counted == to_global || (!counted && !m.take("bulk_group"))) throw PtxError("bulk copy with another completion");
  bool multicast = m.take("multicast::cluster"), hint = m.take("L2::cache_hint");
  Reduce op = reduce ? take_reduction(m) : Reduce::None;
  m.take("noftz");
  Ty type = reduce ? m.type() : Ty::None;
  m.finish();
  if (reduce && !can_reduce(op, type)) throw Unsupported("cp.reduce.async.bulk of this type");
  d.need(3u + counted + multicast + hint);
  u32 size = d.src(d.op(2), Ty::U32), mask = multicast ? d.src(d.op(4), Ty::U16) : 0;
  u32 target = address_slot(d, d.op(0), to_global ? Space::Global : Space::Cluster);
  u32 source = address_slot(d, d.op(1), from_global ? Space::Global : Space::Shared);
  u32 barrier = counted ? address_slot(d, d.op(3), Space::Cluster) : 0;
  Inst& in = d.emit(op_bulk, Class::Memory);
  in.ext = d.ext({target, source, size, barrier, mask});
  in.imm = (i64)d.kernel().tables.size();
  d.kernel().tables.push_back({from_global, to_global, multicast, (i64)op, (i64)type});
}
}  // namespace kw
