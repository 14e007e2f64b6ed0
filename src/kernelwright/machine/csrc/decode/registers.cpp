// Allocates virtual registers in the warp's register file: liveness analysis over the control flow, then linear scan. A
// small register file stays in the L1 cache, which matters more than any single instruction.
#include <algorithm>

#include "decode/decode.h"

namespace kw {
std::vector<Decoder::BasicBlock> Decoder::basic_blocks() const {
  size_t n = kernel_.code.size();
  std::vector<u8> leader(n + 1, 0);
  leader[0] = 1;
  for (size_t i = 0; i < n; i++) {
    if (flow_[i] == Next) continue;
    leader[i + 1] = 1;
    const Inst& in = kernel_.code[i];
    if (flow_[i] == Leave) continue;
    if (in.n)
      for (i64 t : kernel_.tables[(size_t)in.imm]) leader[(size_t)((i64)i + t)] = 1;
    else
      leader[(size_t)((i64)i + in.imm)] = 1;
  }
  std::vector<BasicBlock> blocks;
  std::vector<u32> block_of(n + 1, 0);
  for (size_t i = 0; i < n; i++) {
    if (leader[i]) blocks.push_back({(u32)i, (u32)i, {}, {}, {}, {}, {}});
    blocks.back().end = (u32)i + 1;
    block_of[i] = (u32)blocks.size() - 1;
  }
  for (BasicBlock& b : blocks) {
    u32 last = b.end - 1;
    const Inst& in = kernel_.code[last];
    u8 f = flow_[last];
    bool falls = f == Next || ((f == Branch || f == Leave) && guarded_flow_[last]);
    if (f == Jump) falls = false;
    if (falls && b.end < n) b.next.push_back(block_of[b.end]);
    if (f == Branch || f == Jump) {
      auto add = [&](i64 delta) {
        i64 t = (i64)last + delta;
        if (t < (i64)n) b.next.push_back(block_of[(size_t)t]);
      };
      if (in.n)
        for (i64 t : kernel_.tables[(size_t)in.imm]) add(t);
      else
        add(in.imm);
    }
  }
  return blocks;
}

void Decoder::solve_liveness(std::vector<BasicBlock>& blocks, const std::vector<int>& shared_index,
                             size_t words) const {
  std::vector<u32> group_of(kernel_.code.size());
  for (u32 g = 0; g < groups_.size(); g++)
    for (u32 i = groups_[g].code_begin; i < groups_[g].code_end; i++) group_of[i] = g;
  for (BasicBlock& b : blocks) {
    b.use.assign(words, 0), b.def.assign(words, 0), b.in.assign(words, 0), b.out.assign(words, 0);
    for (u32 i = b.begin; i < b.end; i++) {
      const Group& g = groups_[group_of[i]];
      for (int pass = 0; pass < 2; pass++) {
        for (u32 r = g.ref_begin; r < g.ref_end; r++) {
          if (refs_[r].def != (pass == 1)) continue;
          int s = shared_index[refs_[r].vreg];
          if (s < 0) continue;
          u64 bit = 1ull << (s & 63);
          // A guarded write keeps the other lanes' value, so it needs the old one.
          bool reads = pass == 0 || g.guarded;
          if (reads && !(b.def[(size_t)s >> 6] & bit)) b.use[(size_t)s >> 6] |= bit;
          if (pass == 1 && !g.guarded) b.def[(size_t)s >> 6] |= bit;
        }
      }
    }
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t k = blocks.size(); k-- > 0;) {
      BasicBlock& b = blocks[k];
      for (size_t w = 0; w < words; w++) {
        u64 out = 0;
        for (u32 s : b.next) out |= blocks[s].in[w];
        u64 in = b.use[w] | (out & ~b.def[w]);
        changed |= in != b.in[w];
        b.out[w] = out;
        b.in[w] = in;
      }
    }
  }
}

static u32 slot_bytes(int lane_bytes) { return lane_bytes == 0 ? 4 : (u32)lane_bytes * 32; }

std::vector<u32> Decoder::assign_slots(std::vector<Interval>& intervals) {
  std::vector<u32> offset(vregs_.size(), 0);
  u32 top = 64;  // offset 0 holds "no slot"
  // Predicates and fixed slots live for the whole kernel and are never shared.
  u32 preds = 0;
  for (size_t v = 1; v < vregs_.size(); v++)
    if (vregs_[v].bytes == 0) offset[v] = top + 4 * preds++;
  top += (4 * preds + 63) / 64 * 64;
  for (size_t v = 1; v < vregs_.size(); v++)
    if (vregs_[v].fixed && vregs_[v].bytes) offset[v] = top, top += slot_bytes(vregs_[v].bytes);
  for (size_t v = 1; v < vregs_.size(); v++)
    if (vregs_[v].pinned) offset[v] = top, top += slot_bytes(vregs_[v].bytes);
  std::vector<u32> order;
  for (u32 v = 1; v < vregs_.size(); v++)
    if (vregs_[v].bytes && !vregs_[v].fixed && !vregs_[v].pinned && intervals[v].first != ~0u) order.push_back(v);
  std::sort(order.begin(), order.end(), [&](u32 a, u32 b) {
    return intervals[a].first != intervals[b].first ? intervals[a].first < intervals[b].first : a < b;
  });
  std::vector<u32> free_slots[17];
  std::vector<std::pair<u32, u32>> heap;  // (end, vreg), smallest end first
  auto later = [](const std::pair<u32, u32>& a, const std::pair<u32, u32>& b) { return a > b; };
  size_t routine = 0;
  for (u32 v : order) {
    while (routine < kernel_.routines.size() && kernel_.routines[routine].code <= intervals[v].first) {
      routine++;  // a routine shares no slot with those who call it
      heap.clear();
      for (auto& pool : free_slots) pool.clear();
    }
    while (!heap.empty() && heap.front().first < intervals[v].first) {
      u32 dead = heap.front().second;
      std::pop_heap(heap.begin(), heap.end(), later);
      heap.pop_back();
      free_slots[vregs_[dead].bytes].push_back(offset[dead]);
    }
    auto& pool = free_slots[vregs_[v].bytes];
    if (pool.empty()) {
      offset[v] = top;
      top += slot_bytes(vregs_[v].bytes);
    } else {
      offset[v] = pool.back();
      pool.pop_back();
    }
    heap.push_back({intervals[v].last, v});
    std::push_heap(heap.begin(), heap.end(), later);
  }
  kernel_.register_bytes = top;
  return offset;
}

void Decoder::allocate_registers() {
  std::vector<Interval> at(vregs_.size());
  std::vector<BasicBlock> blocks = basic_blocks();
  // Only registers that appear in more than one block take part in the dataflow.
  std::vector<int> home(vregs_.size(), -1), shared_index(vregs_.size(), -1);
  int shared = 0;
  size_t block = 0;
  for (const Group& g : groups_) {
    while (block + 1 < blocks.size() && blocks[block].end <= g.code_begin) block++;
    bool spans = g.code_end > blocks[block].end;
    for (u32 r = g.ref_begin; r < g.ref_end; r++) {
      u32 v = refs_[r].vreg;
      if (vregs_[v].fixed || vregs_[v].pinned) continue;
      at[v].first = std::min(at[v].first, g.code_begin);
      at[v].last = std::max(at[v].last, g.code_end - 1);
      bool first_is_read = home[v] < 0 && (!refs_[r].def || g.guarded);
      if (home[v] < 0) home[v] = (int)block;
      if ((home[v] != (int)block || spans || first_is_read) && shared_index[v] < 0) shared_index[v] = shared++;
    }
  }
  size_t words = ((size_t)shared + 63) / 64;
  if (words * blocks.size() > 20'000'000) throw TooLarge("control flow too large to analyse");
  solve_liveness(blocks, shared_index, words);
  for (u32 v = 1; v < vregs_.size(); v++) {
    int s = shared_index[v];
    if (s < 0) continue;
    for (const BasicBlock& b : blocks) {
      if (b.in[(size_t)s >> 6] >> (s & 63) & 1)
        at[v].first = std::min(at[v].first, b.begin), at[v].last = std::max(at[v].last, b.begin);
      if (b.out[(size_t)s >> 6] >> (s & 63) & 1)
        at[v].last = std::max(at[v].last, b.end - 1), at[v].first = std::min(at[v].first, b.end - 1);
    }
  }
  std::vector<u32> offset = assign_slots(at);
  for (const BasicBlock& b : blocks) {
    bool starts = b.begin == 0;
    for (const Routine& r : kernel_.routines) starts |= b.begin == r.code;
    for (u32 v = 1; starts && v < vregs_.size(); v++) {
      int s = shared_index[v];
      if (s >= 0 && vregs_[v].bytes && (b.in[(size_t)s >> 6] >> (s & 63) & 1))
        kernel_.poison.push_back({offset[v], slot_bytes(vregs_[v].bytes)});
    }
  }
  save_registers(at, offset);
  patch(offset);
}
}  // namespace kw
