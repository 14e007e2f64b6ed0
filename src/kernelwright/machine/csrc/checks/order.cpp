// Orders the accesses of different blocks to global memory. A store is published when a device-wide fence lies between it
// and a signal: an atomic or a strong store (volatile, relaxed, release). A block that has seen signals of others may read
// what they have published, and nothing else.
#include "checks/order.h"

#include "checks/watch.h"
#include "decode/decode.h"

namespace kw {
namespace {
constexpr size_t MOST_BLOCKS = 1u << 16;  // later blocks count as having published everything
constexpr i64 LONGEST_SPIN = 32;          // instructions of a loop that waits

u32 key_of(const Block& b) { return (u32)(b.linear + 1); }

const Published* published_by(const Launch& l, u32 block) {
  auto found = l.published.find(block);
  return found == l.published.end() ? nullptr : &found->second;
}
}  // namespace

void begin_order(Launch& l, Block& b) {
  b.mine = nullptr;
  b.polled_from.clear();
  for (Warp& w : b.warps) w.synced = false;
  if (!l.kernel->may_wait || (u64)l.grid[0] * l.grid[1] * l.grid[2] == 1 || l.published.size() >= MOST_BLOCKS) return;
  b.mine = &l.published[key_of(b)];
  for (u32 w = 0; w < b.warps.size(); w++) std::fill(b.fenced[w], b.fenced[w] + 32, b.clock_base);
}

void join_order(Block& b, u32 warps) {
  if (!b.mine) return;
  u32 joined[32] = {}, n = (u32)b.warps.size();
  bool synced = false;
  for (u32 w = 0; w < n; w++) {
    if (!(warps >> w & 1)) continue;
    synced |= b.warps[w].synced;
    for (u32 i = 0; i < n; i++) joined[i] = std::max(joined[i], b.fenced[w][i]);
  }
  for (u32 w = 0; w < n; w++)
    if (warps >> w & 1) std::copy(joined, joined + n, b.fenced[w]), b.warps[w].synced = synced;
}

void note_fence(Warp& w) {
  Block& b = *w.block;
  if (!b.mine || !w.launch->races) return;
  std::copy(b.clock[w.id], b.clock[w.id] + b.warps.size(), b.fenced[w.id]);
  b.clock[w.id][w.id]++;
}

void note_signal(Warp& w, bool release) {
  Block& b = *w.block;
  if (!b.mine) return;
  const u32 *clock = b.clock[w.id], *fenced = release ? clock : b.fenced[w.id];
  for (u32 i = 0; i < b.warps.size(); i++) {
    b.mine->fenced[i] = std::max(b.mine->fenced[i], fenced[i] - b.clock_base);
    b.mine->signalled[i] = std::max(b.mine->signalled[i], clock[i] - b.clock_base);
  }
  b.clock[w.id][w.id]++;
}

void publish_all(Block& b) {
  for (u32 i = 0; i < b.warps.size(); i++) {
    b.warps[i].synced = true;
    if (b.mine) b.mine->fenced[i] = b.clock[i][i] - b.clock_base;
  }
}

Order order_of(const Warp& w, u64 mark) {
  const Block& b = *w.block;
  u32 block = (u32)(mark >> 32), warp = (u32)mark >> 5 & 31, clock = (u32)((mark & MARK_CLOCK) >> 10);
  if (block == key_of(b)) {
    if ((mark & MARK_STRONG) || warp == w.id) return Order::Fine;
    return b.clock_base + clock > b.clock[w.id][warp] ? Order::Race : Order::Fine;
  }
  const Published* p = published_by(*w.launch, block);
  if (mark & MARK_STRONG) {
    auto seen = b.polled_from.find(block);
    bool later = seen != b.polled_from.end() && seen->second[warp] > clock;
    return p && later && clock > p->fenced[warp] ? Order::Unfenced : Order::Fine;
  }
  if (!w.synced) return Order::Race;
  if (!p || clock <= p->fenced[warp]) return Order::Fine;
  return p->signalled[warp] >= clock ? Order::Unfenced : Order::Race;
}

void saw_signal(Warp& w, u64 mark) {
  u32 block = (u32)(mark >> 32), warp = (u32)mark >> 5 & 31;
  if (!(mark & MARK_STRONG) || block == key_of(*w.block)) return;
  u32& seen = w.block->polled_from[block][warp];
  seen = std::max(seen, (u32)((mark & MARK_CLOCK) >> 10));
}

// Marks the strong loads of loops that only wait: short, and without a store.
void Decoder::find_spins() {
  auto& code = kernel_.code;
  for (size_t end = 0; end < code.size(); end++) {
    bool back = (flow_[end] == Branch || flow_[end] == Jump) && code[end].imm <= 0 && code[end].n == 0;
    if (!back || -code[end].imm > LONGEST_SPIN || -code[end].imm > (i64)end) continue;
    size_t begin = end - (size_t)-code[end].imm;
    bool stores = false;
    for (size_t i = begin; i < end; i++) stores |= opcode_of(kernel_.meta[i].text).substr(0, 3) == "st.";
    for (size_t i = begin; i < end && !stores; i++)
      if (opcode_of(kernel_.meta[i].text).substr(0, 3) == "ld." && (code[i].n & 1)) code[i].n |= 2;
  }
}
}  // namespace kw
