// Clusters: the cluster barrier and access to other blocks' shared memory. A shared::cluster address is an offset in the
// target block's shared memory with 1 + that block's rank in the high bits; plain shared addresses are the own block's.
#include "checks/order.h"
#include "copies/async.h"
#include "memory/memory_ops.h"

namespace kw {
ResidentBlock* owner_of(ResidentBlock& mine, u64 address) {
  u64 rank = address >> RANK_SHIFT;
  if (rank == 0) return &mine;
  Cluster& c = *mine.cluster;
  return rank <= c.blocks.size() ? c.blocks[rank - 1].get() : nullptr;
}

bool only_own_block(Warp& w, u32 m) {
  u64 own = w.block->resident->rank + 1;
  u64* a = w.access.address;
  for (u32 r = m; r; r &= r - 1) {
    u64 rank = a[__builtin_ctz(r)] >> RANK_SHIFT;
    if (rank && rank != own) return false;
  }
  for (int i = 0; i < LANES; i++)
    if (a[i] >> RANK_SHIFT == own) a[i] &= OFFSET_MASK;
  return true;
}

void resolve_cluster(Warp& w, const Inst* in, u32 m, u32 bytes, bool write) {
  Launch& l = *w.launch;
  Access& x = w.access;
  x.kind = Access::Gather;
  x.space = Space::Cluster;
  x.region = nullptr;
  ResidentBlock& mine = *w.block->resident;
  const char* kind = write ? "out-of-bounds-write" : "out-of-bounds-read";
  char* valid = nullptr;
  for (u32 r = m; r; r &= r - 1) {
    int i = __builtin_ctz(r), thread = thread_of(w, i);
    u64 offset = x.address[i] & OFFSET_MASK;
    ResidentBlock* s = owner_of(mine, x.address[i]);
    if (!s || offset + bytes > l.shared_bytes)
      raise(in, thread, kind,
            string("out-of-bounds ") + (write ? "write" : "read") + " of shared memory of a cluster: offset " +
                std::to_string(offset) + " of " + std::to_string(l.shared_bytes) + " bytes" +
                (s ? "" : ", of a block that the cluster does not have"));
    if (s->done)
      raise(in, thread, kind,
            string(write ? "write to" : "read of") + " the shared memory of block " + std::to_string(s->rank) +
                " of the cluster, which has exited: its blocks need a cluster barrier before they leave");
    if (offset & (bytes - 1))
      raise(in, thread, "misaligned-access",
            "misaligned access of " + std::to_string(bytes) + " bytes at offset " + std::to_string(offset) +
                " of a cluster's shared memory");
    x.at[i] = valid = reinterpret_cast<char*>(s->shared) + offset;
  }
  for (int i = 0; i < LANES; i++)
    if (!(m >> i & 1)) x.at[i] = valid;
}

void check_cluster_barrier(Cluster& c) {
  u32 live = 0;
  for (auto& s : c.blocks) live += s->done ? 0 : s->block.live;
  if (!c.arrived || c.arrived < live) return;
  c.arrived = 0;
  for (auto& s : c.blocks) {
    Block& b = s->block;
    for (Warp& w : b.warps) {
      w.cluster_open = 0;
      for (int i = 0; i < w.nsplits; i++)
        if (w.splits[i].wait == Wait::Cluster) w.splits[i].wait = Wait::Run;
    }
    if (s->done) continue;
    publish_all(b);
    join_clocks(b, (u32)((1ull << b.warps.size()) - 1));
  }
}

void leave_cluster(Warp& w, u32 gone) {
  Cluster& c = *w.block->resident->cluster;
  c.arrived -= (u32)__builtin_popcount(w.cluster_open & gone);
  w.cluster_open &= ~gone;
  check_cluster_barrier(c);
}

namespace {
const Inst* op_cluster_arrive(Warp& w, const Inst* in) {
  u32 m = active(w, in);
  if (!m) return in + 1;
  if (u32 twice = m & w.cluster_owed)
    raise(in, thread_of(w, __builtin_ctz(twice)), "barrier-misuse",
          "barrier.cluster.arrive for the second time without barrier.cluster.wait between");
  Cluster& c = *w.block->resident->cluster;
  w.cluster_owed |= m;
  w.cluster_open |= m;
  c.arrived += (u32)__builtin_popcount(m);
  w.launch->count.barriers += (u64)__builtin_popcount(m);
  w.launch->changes++;
  check_cluster_barrier(c);
  return in + 1;
}

const Inst* op_cluster_wait(Warp& w, const Inst* in) {
  if (!take_guarded(w, in)) return in + 1;
  if (u32 none = w.mask & ~w.cluster_owed)
    raise(in, thread_of(w, __builtin_ctz(none)), "barrier-misuse",
          "barrier.cluster.wait without barrier.cluster.arrive before it");
  u32 open = w.mask & w.cluster_open;
  if (!open) {
    w.cluster_owed &= ~w.mask;
    return in + 1;
  }
  if (in > w.segment) close_segment(w, in - 1);
  w.segment = in;
  push_split(w, in, open, Wait::Cluster);
  w.mask &= ~open;
  if (w.mask) push_split(w, in, w.mask, Wait::Run);
  w.mask = 0;
  w.event = Event::Blocked;
  return STOP;
}

// in->b: rank; in->imm: what shared::cluster addresses start with when they are generic
template <class T>
const Inst* op_mapa(Warp& w, const Inst* in) {
  u32 m = active(w, in);
  const T* a = slot<T>(w, in->a);
  const u32* rank = slot<u32>(w, in->b);
  u32 size = (u32)w.block->resident->cluster->blocks.size();
  for (u32 r = m; r; r &= r - 1) {
    int i = __builtin_ctz(r);
    if (rank[i] >= size)
      raise(in, thread_of(w, i), "trap",
            "mapa for block " + std::to_string(rank[i]) + " of a cluster of " + std::to_string(size));
    if (in->x && (u64)a[i] >> 60 != 1)
      raise(in, thread_of(w, i), "trap", "mapa of an address outside of shared memory");
  }
  put<T>(w, m, in->d, [&](int i) { return (T)((a[i] & ~((T)0xff << RANK_SHIFT)) | (T)(rank[i] + 1) << RANK_SHIFT); });
  return in + 1;
}

template <class T>
const Inst* op_getctarank(Warp& w, const Inst* in) {
  const T* a = slot<T>(w, in->a);
  u32 own = w.block->resident->rank;
  put<u32>(w, active(w, in), in->d, [&](int i) {
    u32 rank = (u32)(a[i] >> RANK_SHIFT) & 0xff;
    return rank ? rank - 1 : own;
  });
  return in + 1;
}

void h_mapa(Decoder& d, Mods& m) {
  bool shared = m.take("shared::cluster");
  Ty t = m.type();
  m.finish();
  d.need(3);
  if (t != Ty::U32 && t != Ty::U64) throw PtxError("mapa of this type");
  if (!shared && t == Ty::U32) throw PtxError("mapa of a 32-bit generic address");
  u32 a = d.src(d.op(1), t), b = d.src(d.op(2), Ty::U32), r = d.dst(d.op(0), t);
  Inst& in = d.emit(t == Ty::U32 ? op_mapa<u32> : op_mapa<u64>, Class::Int);
  in.a = a, in.b = b, in.d = r;
  in.x = !shared;
}

void h_getctarank(Decoder& d, Mods& m) {
  m.take("shared::cluster");
  Ty t = m.type();
  m.finish();
  d.need(2);
  if (t != Ty::U32 && t != Ty::U64) throw PtxError("getctarank of this type");
  u32 a = d.src(d.op(1), t), r = d.dst(d.op(0), Ty::U32);
  Inst& in = d.emit(t == Ty::U32 ? op_getctarank<u32> : op_getctarank<u64>, Class::Int);
  in.a = a, in.d = r;
}
}  // namespace

bool cluster_barrier(Decoder& d, Mods& m) {
  if (!m.take("cluster")) return false;
  bool arrive = m.take("arrive");
  if (!arrive && !m.take("wait")) m.unsupported("cluster");
  for (const char* s : {"release", "acquire", "relaxed", "aligned"}) m.take(s);
  m.finish();
  d.need(0);
  d.emit(arrive ? op_cluster_arrive : op_cluster_wait, Class::Sync);
  return true;
}

void add_cluster_handlers(Handlers& h) {
  h["mapa"] = h_mapa;
  h["getctarank"] = h_getctarank;
}
}  // namespace kw
