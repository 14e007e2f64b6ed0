// Detects data races: two accesses by different threads, at least one a write, without a barrier between. Threads of one
// warp run in lock-step and count as ordered, except when one store instruction writes two values to one address. Stamps
// are vector clocks of warps, so named barriers and barriers of part of a block are handled exactly.
#include <algorithm>
#include <cstdlib>

#include "checks/order.h"
#include "checks/watch.h"

namespace kw {
namespace {
// Marks of earlier launches: clearing them again is several times cheaper than new pages from the system.
constexpr u64 KEPT_BYTES = 64ull << 20;
struct Kept {
  std::vector<std::pair<u64*, u64>> blocks;
  u64 bytes = 0;
  ~Kept() {
    for (auto& block : blocks) std::free(block.first);
    bytes = ~0ull;  // whatever is given back later is freed at once
  }
};
thread_local Kept kept;

std::unique_ptr<u64[], FreeMemory> take_marks(u64 bytes) {
  for (size_t i = 0; i < kept.blocks.size(); i++) {
    auto [memory, size] = kept.blocks[i];
    if (size < bytes || size > 2 * bytes + 4096) continue;
    kept.blocks.erase(kept.blocks.begin() + (long)i);
    kept.bytes -= size;
    std::memset(memory, 0, bytes);
    return {memory, FreeMemory{size}};
  }
  return {static_cast<u64*>(std::calloc(bytes, 1)), FreeMemory{bytes}};
}
}  // namespace

void FreeMemory::operator()(u64* p) const {
  if (kept.bytes > KEPT_BYTES || bytes > KEPT_BYTES - kept.bytes || kept.blocks.size() >= 16) return std::free(p);
  kept.blocks.push_back({p, bytes});
  kept.bytes += bytes;
}

namespace {
constexpr u64 SHARED_CHECKS = 2'000'000;   // lane accesses checked per launch, besides the last blocks
constexpr u64 MARKED_BYTES = 64ull << 20;  // larger allocations go unmarked
constexpr u32 ATOMIC = 1u << 31;
constexpr u64 WHEN = MARK_CLOCK | MARK_STRONG;  // what differs between stores of one thread

string where(const Launch& l, u32 at) {
  u32 line = line_of(l, at);
  return line ? " (line " + std::to_string(line) + ")" : "";
}

// The lines that stored to an allocation in this launch: one of them is the other side of a race.
string stored_on(const Launch& l, const Region& r) {
  u32 number = (u32)(&r - l.regions.data()) + 1;
  std::vector<u32> lines;
  for (u32 i = 0; i < l.stored_region.size(); i++) {
    if (l.stored_region[i] != number) continue;
    u32 line = line_of(l, i);
    if (line && std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
  }
  if (lines.empty() || lines.size() > 4) return "";
  string out = lines.size() == 1 ? " (stored on line " : " (stored on one of lines ";
  for (size_t i = 0; i < lines.size(); i++) out += (i ? ", " : "") + std::to_string(lines[i]);
  return out + ")";
}

string thread_text(u32 t) { return "thread " + std::to_string(t & ~ATOMIC); }

void report_shared(Warp& w, const Inst* in, int lane, u64 offset, const char* kind, const char* story, u32 other,
                   u32 at) {
  Launch& l = *w.launch;
  int me = thread_of(w, lane);
  warn(w, in, me,
       string("race ") + kind + ": " + describe_shared(l, offset) + " " + story + " by " + thread_text(other) +
           where(l, at) + " with no barrier between");
}

void check_shared_mark(Warp& w, const Inst* in, int lane, u64 g, u32 granule, Touch touch, const u8* value) {
  Launch& l = *w.launch;
  Block& b = *w.block;
  SharedMark& k = l.shared_marks[g];
  const u32* clock = b.clock[w.id];
  u32 writer_warp = (k.writer & ~ATOMIC) >> 5;
  bool unordered_write = k.write_clock > clock[writer_warp] && writer_warp != w.id;
  if (touch == Touch::Atomic && (k.writer & ATOMIC)) unordered_write = false;
  // The same value written twice is no harm.
  if (touch == Touch::Write && unordered_write && value && !std::memcmp(l.shared + g * granule, value, granule))
    unordered_write = false;
  if (unordered_write) {
    bool read = touch == Touch::Read;
    report_shared(w, in, lane, g * granule, read ? "RAW" : "WAW", read ? "read after write" : "written after write",
                  k.writer, k.write_at);
  }
  u32 at = (u32)(in - l.kernel->code.data());
  if (touch == Touch::Read) {
    if (k.read_clock != clock[w.id]) k.read_clock = clock[w.id], k.readers = 0;
    k.readers |= 1u << w.id;
    k.read_at = at;
    return;
  }
  if (u32 others = k.readers & ~(1u << w.id); others && k.read_clock > b.clock_base) {
    for (; others; others &= others - 1) {
      u32 reader = (u32)__builtin_ctz(others);
      if (k.read_clock > clock[reader] && !(value && !std::memcmp(l.shared + g * granule, value, granule))) {
        warn(w, in, thread_of(w, lane),
             "race WAR: " + describe_shared(l, g * granule) + " written after read by warp " +
                 std::to_string(reader) + where(l, k.read_at) + " with no barrier between");
        break;
      }
    }
  }
  // An atomic does not hide the plain store that the same warp just made: others' atomics still race with that.
  bool plain_before = !(k.writer & ATOMIC) && writer_warp == w.id && k.write_clock == clock[w.id];
  if (touch == Touch::Atomic && plain_before) return;
  k.write_clock = clock[w.id];
  k.writer = (w.id << 5 | (u32)lane) | (touch == Touch::Atomic ? ATOMIC : 0);
  k.write_at = at;
}

void note_shared(Warp& w, const Inst* in, u32 m, u32 bytes, Touch touch, const u8* values) {
  Launch& l = *w.launch;
  if (!w.block->check_shared) return;
  if (l.kernel->has_copies) check_pending(w, in, m, bytes, touch != Touch::Read);
  u32 granule = l.kernel->shared_granule, per = std::max(1u, bytes / granule), own = w.block->clock[w.id][w.id];
  Access& x = w.access;
  if (x.kind == Access::Uniform) m &= 0u - m;  // one lane stands for all
  l.shared_checked += (u64)__builtin_popcount(m);
  for (u32 r = m; r; r &= r - 1) {
    int i = __builtin_ctz(r);
    char* at = x.kind == Access::Gather ? x.at[i] : x.base + (x.kind == Access::Contiguous ? (u64)i * bytes : 0);
    u64 g = (u64)(at - reinterpret_cast<char*>(l.shared)) / granule;
    for (u32 j = 0; j < per; j++) {
      SharedMark& k = l.shared_marks[g + j];
      bool quiet = k.write_clock <= w.known || (k.writer >> 5) == w.id;
      if (quiet && touch == Touch::Read && k.read_clock == own && (k.readers >> w.id & 1)) continue;
      check_shared_mark(w, in, i, g + j, granule, touch, values ? values + (u64)i * bytes + (u64)j * granule : nullptr);
    }
  }
}

// Two lanes of one store instruction that write different values to one place.
void note_same_store(Warp& w, const Inst* in, u32 m, u32 bytes, const u8* values, const char* space) {
  Access& x = w.access;
  if (x.kind == Access::Contiguous) return;
  u64 seen = 0;
  for (u32 r = m; r; r &= r - 1) {
    int i = __builtin_ctz(r);
    u64 a = x.kind == Access::Uniform ? 0 : (u64)x.at[i];
    u64 bit = 1ull << ((a / bytes * 0x9e3779b97f4a7c15ull) >> 58);
    if (seen & bit) {
      for (u32 q = m & ((1u << i) - 1); q; q &= q - 1) {
        int j = __builtin_ctz(q);
        if (x.kind == Access::Gather && x.at[j] != x.at[i]) continue;
        if (!std::memcmp(values + (u64)i * bytes, values + (u64)j * bytes, bytes)) continue;
        return warn(w, in, thread_of(w, i),
                    string("race WAW: threads ") + std::to_string(thread_of(w, j)) + " and " +
                        std::to_string(thread_of(w, i)) + " of the block store different values to " + "one place in " +
                        space + " memory with the same instruction");
      }
    }
    seen |= bit;
  }
}

u64* marks_of(Launch& l, Region& r) {
  if (r.marks || r.unmarked) return r.marks.get();
  if (r.bytes > MARKED_BYTES) return r.unmarked = true, nullptr;
  r.marks = take_marks((r.bytes / l.kernel->global_granule + 2) * 8);
  r.unmarked = !r.marks;
  return r.marks.get();
}

u64 mark_of(const Warp& w) {  // of lane 0
  const Block& b = *w.block;
  u64 clock = (u64)(b.clock[w.id][w.id] - b.clock_base) << 10 & MARK_CLOCK;
  return (u64)(u32)(b.linear + 1) << 32 | clock | (u64)w.id << 5;
}

string mark_text(const Warp& w, u64 mark) {
  u64 block = (mark >> 32) - 1;
  string t = "thread " + std::to_string(mark & 1023);
  return block == w.block->linear ? t + " of the same block" : t + " of block " + std::to_string(block);
}

// Tells of a read of what `mark` left at `offset` of the region; false when there is nothing to tell.
bool report_order(Warp& w, const Inst* in, int lane, Order order, u64 mark, u64 offset) {
  if (order == Order::Fine) return false;
  const Region& r = *w.access.region;
  string place = r.name + "[byte " + std::to_string(offset) + "]";
  string writer = mark_text(w, mark) + stored_on(*w.launch, r);
  if (order == Order::Race)
    warn(w, in, thread_of(w, lane),
         "race RAW: " + place + " read after a write by " + writer + " with nothing that orders them");
  else
    warn(w, in, thread_of(w, lane),
         place + " is read because of a flag or counter, and nothing orders the write by " + writer +
             " before that flag: a __threadfence() is needed between the two",
         "missing-fence");
  return true;
}

void note_global_load(Warp& w, const Inst* in, u32 m, u32 bytes) {
  Launch& l = *w.launch;
  Access& x = w.access;
  if (!x.region || !x.region->marks) return;
  u64* marks = x.region->marks.get();
  u32 granule = l.kernel->global_granule, per = std::max(1u, bytes / granule);
  u64 mine = (u64)(u32)(w.block->linear + 1) << 32 | (u64)w.id << 5;
  if (x.kind == Access::Uniform) m &= 0u - m;
  if (x.kind == Access::Contiguous) {
    const u64* at = marks + ((u64)x.base - x.region->begin) / granule;
    u64 foreign = 0;
#pragma GCC ivdep
    for (u32 i = 0; i < LANES * per; i++) foreign |= at[i] ? (at[i] ^ mine) & ~WHEN & ~31ull : 0;
    if (!foreign) return;
  }
  for (u32 r = m; r; r &= r - 1) {
    int i = __builtin_ctz(r);
    u64 g = (x.address[i] - x.region->begin) / granule;
    for (u32 j = 0; j < per; j++) {
      u64 k = marks[g + j];
      if (k == 0 || (k & ~WHEN & ~31ull) == mine) continue;
      if (report_order(w, in, i, order_of(w, k), k, (g + j) * granule)) return;
    }
  }
}

void note_global_store(Warp& w, const Inst* in, u32 m, u32 bytes, const u8* values) {
  Launch& l = *w.launch;
  Access& x = w.access;
  if (!x.region) return;
  u64* marks = marks_of(l, *x.region);
  if (!marks) return;
  if (l.stored_region.empty()) l.stored_region.resize(l.kernel->code.size());
  l.stored_region[(size_t)(in - l.kernel->code.data())] = (u32)(x.region - l.regions.data()) + 1;
  u32 granule = l.kernel->global_granule, per = std::max(1u, bytes / granule);
  const Block& b = *w.block;
  u64 mine = mark_of(w);
  if (x.kind == Access::Contiguous) {
    u64* at = marks + ((u64)x.base - x.region->begin) / granule;
    u32 shift = (u32)__builtin_ctz(per);
    u64 foreign = 0;
#pragma GCC ivdep
    for (u32 i = 0; i < LANES * per; i++) {
      u64 k = at[i];
      foreign |= k ? (k ^ (mine | i >> shift)) & ~WHEN : 0;
    }
    if (!foreign) {
#pragma GCC ivdep
      for (u32 i = 0; i < LANES * per; i++) at[i] = mine | i >> shift;
      return;
    }
  }
  for (u32 r = m; r; r &= r - 1) {
    u32 i = (u32)__builtin_ctz(r);
    u64 g = (x.address[i] - x.region->begin) / granule;
    for (u32 j = 0; j < per; j++) {
      u64 k = marks[g + j];
      marks[g + j] = mine | i;
      if (k == 0 || !((k ^ mine) & ~WHEN & ~31ull) || (k & MARK_STRONG)) continue;
      bool elsewhere = (k ^ mine) >> 32;
      if (elsewhere ? w.synced : order_of(w, k) == Order::Fine) continue;
      const char* old = reinterpret_cast<const char*>(x.region->begin) + (g + j) * granule;
      if (!std::memcmp(old, values + (u64)i * bytes + (u64)j * granule, std::min(granule, bytes))) continue;
      warn(w, in, thread_of(w, (int)i),
           "race WAW: " + x.region->name + "[byte " + std::to_string((g + j) * granule) +
               "] overwrites another value stored by " + mark_text(w, k) + stored_on(l, *x.region) +
               " with nothing that orders them");
    }
  }
}
}  // namespace

void begin_race_checks(Launch& l, Block& b, bool last_blocks) {
  u32 top = b.clock_base;
  for (u32 i = 0; i < b.warps.size(); i++) top = std::max(top, b.clock[i][i]);
  b.clock_base = top;
  for (u32 i = 0; i < b.warps.size(); i++) {
    std::fill(b.clock[i], b.clock[i] + 32, top);
    b.clock[i][i] = top + 1;
    b.sync_clock[i] = top;
    b.warps[i].known = top;
  }
  begin_order(l, b);
  b.check_shared = (b.warps.size() > 1 || l.kernel->has_copies) && l.shared_bytes && (l.shared_checked < SHARED_CHECKS || last_blocks);
  if (b.check_shared && l.shared_marks.empty()) l.shared_marks.resize(l.shared_bytes / l.kernel->shared_granule + 32);
}

static void refresh_known(Block& b, u32 w) {
  u32 least = ~0u;
  for (u32 i = 0; i < b.warps.size(); i++)
    if (i != w) least = std::min(least, b.clock[w][i]);
  b.warps[w].known = least;
}

void join_clocks(Block& b, u32 warps) {
  Launch& l = *b.warps[0].launch;
  for (u32 w = 0; l.watch && w < b.warps.size(); w++)
    if (warps >> w & 1) l.watch->meet(b.warps[w], FULL);
  join_order(b, warps);
  u32 joined[32] = {}, n = (u32)b.warps.size();
  for (u32 w = 0; w < n; w++)
    if (warps >> w & 1)
      for (u32 i = 0; i < n; i++) joined[i] = std::max(joined[i], b.clock[w][i]);
  for (u32 w = 0; w < n; w++) {
    if (!(warps >> w & 1)) continue;
    std::copy(joined, joined + n, b.clock[w]);
    b.clock[w][w]++;
    refresh_known(b, w);
  }
}

void atomic_order(Warp& w, bool lock_like) {
  if (!lock_like && !w.fenced) return;
  Block& b = *w.block;
  w.synced = true;
  u32 n = (u32)b.warps.size();
  for (u32 i = 0; i < n; i++) {
    u32 v = std::max(b.clock[w.id][i], b.sync_clock[i]);
    b.clock[w.id][i] = b.sync_clock[i] = v;
  }
  b.clock[w.id][w.id]++;
  if (n > 1) refresh_known(b, w.id);
}

void note_strong(Warp& w, const Inst* in, u32 m, u32 bytes, bool write) {
  Launch& l = *w.launch;
  Access& x = w.access;
  w.synced |= !write;
  if (!w.block->mine || x.space != Space::Global || !x.region) return;
  u64* marks = write ? marks_of(l, *x.region) : x.region->marks.get();
  u32 granule = l.kernel->global_granule, per = std::max(1u, bytes / granule);
  u64 mine = mark_of(w) | MARK_STRONG;
  for (u32 r = marks ? m : 0; r; r &= r - 1) {
    int i = __builtin_ctz(r);
    u64 g = (x.address[i] - x.region->begin) / granule;
    for (u32 j = 0; j < per; j++) {
      u64 k = marks[g + j];
      if (write) marks[g + j] = mine | (u64)i;
      if (write || !(k & MARK_STRONG)) continue;
      report_order(w, in, i, order_of(w, k), k, (g + j) * granule);
      if (in->n & 2) saw_signal(w, k);
    }
  }
  if (!write) return;
  if (l.stored_region.empty()) l.stored_region.resize(l.kernel->code.size());
  l.stored_region[(size_t)(in - l.kernel->code.data())] = (u32)(x.region - l.regions.data()) + 1;
  note_signal(w, in->n & 2);
}

void note_access(Warp& w, const Inst* in, u32 m, u32 bytes, Touch touch, const u8* values) {
  Access& x = w.access;
  if (x.space == Space::Shared) {
    if (touch == Touch::Write && values) note_same_store(w, in, m, bytes, values, "shared");
    note_shared(w, in, m, bytes, touch, values);
  } else if (x.space == Space::Global) {
    if (touch == Touch::Read) return note_global_load(w, in, m, bytes);
    if (touch == Touch::Atomic) return;
    note_same_store(w, in, m, bytes, values, "global");
    note_global_store(w, in, m, bytes, values);
  }
}
}  // namespace kw
