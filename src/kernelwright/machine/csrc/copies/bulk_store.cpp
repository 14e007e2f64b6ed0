// st.async: a store into the cluster's shared memory; an mbarrier counts its arrival.
#include "copies/bulk.h"
#include "checks/watch.h"
#include "memory/memory_ops.h"

namespace kw {
namespace {
// ext: address, mbarrier, values; in->n: bytes of one value; in->x: how many
const Inst* op_store_async(Warp& w, const Inst* in) {
  const u32* e = w.ext + in->ext;
  u32 bytes = (u32)in->n * in->x;
  Launch* l = w.launch;
  for (u32 r = active(w, in); r; r &= r - 1) {
    int i = __builtin_ctz(r);
    BulkTarget to = shared_target(w, in, i, slot<u64>(w, e[0])[i], bytes, bytes, true);
    BulkTarget signal = shared_target(w, in, i, slot<u64>(w, e[1])[i], 8, 8, true);
    std::vector<char> data(bytes);
    for (u32 v = 0; v < in->x; v++)
      std::memcpy(data.data() + v * in->n, reinterpret_cast<char*>(slot<u8>(w, e[2 + v])) + (u64)i * in->n, in->n);
    each_destination(w, in, i, to, signal, -1, [&](BulkTarget t, char* barrier) {
      mark_pending(*l, *t.resident, in, t.offset, bytes);
      t.resident->async->inbound.push_back({in, barrier, bytes, [=] {
        clear_pending(*t.resident, t.offset, bytes);
        std::memcpy(reinterpret_cast<char*>(t.resident->shared) + t.offset, data.data(), bytes);
        if (l->watch) l->watch->filled(*t.resident, t.offset, bytes);
      }});
    });
  }
  return in + 1;
}
}  // namespace

void async_store(Decoder& d, Mods& m) {
  m.take("weak");
  if (!m.take("shared::cluster") || !m.take("mbarrier::complete_tx::bytes")) m.unsupported("async." + string(m.peek()));
  u32 count = m.take("v2") ? 2 : m.take("v4") ? 4 : 1;
  Ty t = m.type();
  m.finish();
  d.need(3);
  if (size_of(t) != 4 && size_of(t) != 8) throw PtxError("st.async of this type");
  d.kernel().may_wait = d.kernel().has_copies = true;
  const Operand value = d.op(1);
  if (count > 1 && (value.kind != Operand::Vec || value.count != count)) throw PtxError("vector of the wrong length");
  std::vector<u32> values;
  for (u32 i = 0; i < count; i++) values.push_back(d.src(count > 1 ? d.element(value, i) : value, t));
  u32 to = address_slot(d, d.op(0), Space::Cluster), barrier = address_slot(d, d.op(2), Space::Cluster);
  std::vector<u32> slots = {to, barrier};
  slots.insert(slots.end(), values.begin(), values.end());
  Inst& in = d.emit(op_store_async, Class::Memory);
  in.ext = d.ext(slots);
  in.n = (u16)size_of(t);
  in.x = (u8)count;
}
}  // namespace kw
