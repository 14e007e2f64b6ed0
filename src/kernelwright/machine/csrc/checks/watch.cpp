// Tracks memory in a watched launch: written bytes, unallocated bytes, and the lane of a warp that touched each last.
#include "checks/watch.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>

namespace kw {
namespace {
constexpr u64 CHECKS = 1'000'000;  // lane accesses to shared memory checked per launch, besides the last blocks
constexpr u64 SLOW_CHECKS = 4 * CHECKS;  // the same for blocks that go on after others had their turn
constexpr u64 MAX_LOCAL = 16ull << 20;
constexpr u64 MAX_HELD = 256ull << 20;  // bytes known of blocks that are alive
enum State : u8 { Nobody = 0, Unwritten = 1, Written = 2 };

string readable(string_view name) {
  if (name.substr(0, 2) != "_Z") return string(name);
  int status = 0;
  char* plain = abi::__cxa_demangle(string(name).c_str(), nullptr, nullptr, &status);
  string text = plain && !status ? plain : string(name);
  std::free(plain);
  size_t colons = text.rfind("::");
  return colons == string::npos ? text : text.substr(colons + 2);
}

u32 shared_bytes_of(const Launch& l, const SharedVariable& v) {
  return v.bytes ? v.bytes : (u32)(l.shared_bytes - v.offset);
}

// The smallest state of `bytes` bytes.
u8 least(const u8* p, u32 bytes) {
  u8 s = Written;
  for (u32 i = 0; i < bytes; i++) s = std::min(s, p[i]);
  return s;
}
bool all_written(const u8* p, u32 bytes) {
  constexpr u64 full = 0x0202020202020202ull;
  u64 v = full;
  std::memcpy(&v, p, std::min(bytes, 8u));
  if (bytes == 16) {
    u64 high;
    std::memcpy(&high, p + 8, 8);
    return v == full && high == full;
  }
  return v == full;
}

string plural(u64 n) { return std::to_string(n) + (n == 1 ? " byte" : " bytes"); }
}  // namespace

u32 line_of(const Launch& l, u32 at) { return l.program->module.locs[l.kernel->meta[at].loc].line; }

string describe_shared(const Launch& l, u64 offset) {
  const SharedVariable* best = nullptr;
  u64 distance = ~0ull;
  bool after = false, inside = false;
  for (const SharedVariable& v : l.kernel->shared_variables) {
    u64 end = v.offset + shared_bytes_of(l, v);
    bool holds = offset >= v.offset && offset < end;
    u64 d = holds ? 0 : (i64)offset < (i64)v.offset ? v.offset - offset : offset - end;
    if (d < distance || (d == distance && !after)) best = &v, distance = d, after = (i64)offset >= (i64)end, inside = holds;
  }
  if (!best) return "where the kernel has no shared variable";
  string name = "shared variable '" + readable(best->name) + "' (" + plural(shared_bytes_of(l, *best)) +
                (best->bytes ? ")" : ", dynamic)");
  if (inside) return "byte " + std::to_string(offset - best->offset) + " of " + name;
  return plural(distance) + (after ? " past the end of " : " before the start of ") + name;
}

Watch::Watch(Launch& l) : l_(l) {
  size_t n = l.kernel->code.size();
  role_.resize(n);
  where_.resize(n);
  patterns_.resize(n);
  traffic_.resize(n);
  for (size_t i = 0; i < n; i++) {
    string_view t = l.kernel->meta[i].text;
    if (t.substr(0, 1) == "@") t.remove_prefix(std::min(t.find(' ') + 1, t.size()));
    u8 role = t.substr(0, 4) == "atom" || t.substr(0, 4) == "red." ? Atomic | Update : Plain;
    if (t.substr(0, 9) == "mbarrier." || t.substr(0, 3) == "cp.") role = Atomic | Strong;  // ordered by themselves
    if (t.substr(0, 3) == "cp." || t.substr(0, 13) == "mbarrier.init") role |= Copy;
    if (t.substr(0, 8) == "ld.param") role |= Strong;  // results of calls, some of which the machine itself fills in
    string_view op = t.substr(0, t.find_first_of(" \t"));
    for (const char* s : {".volatile", ".relaxed", ".acquire", ".release", ".mmio", ".acq_rel"})
      if (op.find(s) != string_view::npos) role |= Strong;
    if (t.substr(0, 3) == "st." || t.substr(0, 4) == "red." || t.substr(0, 8) == "stmatrix") role |= Store;
    role_[i] = role;
  }
  touched_.resize(l.regions.size());
  swap_index_ops();
  shared_fresh_.assign(l.shared_bytes + 64, Nobody);
  for (const SharedVariable& v : l.kernel->shared_variables) {
    u64 bytes = shared_bytes_of(l, v);
    if (v.offset + bytes <= l.shared_bytes) std::memset(shared_fresh_.data() + v.offset, Unwritten, bytes);
  }
}

void Watch::enter(ResidentBlock& s) {
  if (now_) now_->sane = sane, now_->overflowed = overflowed;
  u64 warps = s.block.warps.size(), local = (u64)l_.kernel->local_bytes * s.block.threads;
  u64 needs = 2 * shared_fresh_.size() + sizeof(LaneMark) * (l_.shared_bytes / l_.kernel->shared_granule) +
              (local <= MAX_LOCAL ? local : 0) + warps * (LANES * sizeof(u32) + sizeof(WarpIndices));
  if (!s.watch && (!held_ || held_ + needs <= MAX_HELD)) {
    held_ += needs;
    s.watch = std::make_shared<BlockWatch>();
    s.watch->met.resize(warps);
    s.watch->indices.resize(warps);
  }
  BlockWatch* before = now_;
  now_ = s.watch.get();
  sane = now_ && now_->sane && (now_ == before || checked_ < SLOW_CHECKS);
  overflowed = now_ && now_->overflowed;
  if (now_) now_->sane = sane;
}

void Watch::begin_block(Block& b, bool last_blocks) {
  sane = overflowed = false;
  if (!now_) return;
  for (auto& lanes : now_->met) lanes.fill(++meetings_);
  for (WarpIndices& v : now_->indices) v.dirty = false, v.exact.clear(), v.widened.clear();
  u64 local = (u64)l_.kernel->local_bytes * b.threads;
  sane = now_->sane = checked_ < CHECKS || last_blocks;
  now_->overflowed = false;
  if (!sane) return;
  if (l_.shared_bytes) {
    now_->shared = shared_fresh_;
    if (now_->marks.empty()) now_->marks.resize(l_.shared_bytes / l_.kernel->shared_granule + 32);
  }
  if (local && local <= MAX_LOCAL) now_->local.assign(local + 64, Unwritten);
}

void Watch::meet(Warp& w, u32 lanes) {
  if (!now_) return;
  u32 now = ++meetings_;
  for (u32 r = lanes; r; r &= r - 1) now_->met[w.id][(size_t)__builtin_ctz(r)] = now;
}

void Watch::access(Warp& w, const Inst* in, u32 m, u32 bytes, bool write, bool update) {
  u32 at = (u32)(in - l_.kernel->code.data());
  switch (w.access.space) {
    case Space::Global:
      return global(w, in, at, m, bytes, write, update);
    case Space::Shared: {
      alignas(64) u32 offsets[LANES];
      for (int i = 0; i < LANES; i++) offsets[i] = (u32)w.access.address[i];
      banks(at, offsets, m, bytes);
      if (sane) shared(w, in, m, bytes, write, update, w.access.address);
      return;
    }
    case Space::Local:
      if (!(role_[at] & Strong)) {
        SiteTraffic& t = traffic_[at];
        where_[at] = OfLocal, t.accesses++, t.bytes += (u64)bytes * (u64)__builtin_popcount(m);
      }
      if (sane) local(w, in, m, bytes, write, w.access.address);
      return;
    case Space::Cluster:
      return cluster(w, in, m, bytes, write, update);
    case Space::Generic:
      if (sane) mixed(w, in, m, bytes, write, update);
      return;
    default:
      return;
  }
}

// Lanes in different spaces: those of the block's own memories.
void Watch::mixed(Warp& w, const Inst* in, u32 m, u32 bytes, bool write, bool update) {
  alignas(64) u64 offsets[LANES];
  u32 in_shared = 0, in_local = 0;
  for (u32 r = m; r; r &= r - 1) {
    int i = __builtin_ctz(r);
    u64 window = w.access.address[i] & ~((1ull << 60) - 1);
    offsets[i] = w.access.address[i] & ((1ull << 60) - 1);
    if (window == LOCAL_WINDOW) in_local |= r & -r;
    if (window == SHARED_WINDOW && offsets[i] <= OFFSET_MASK) in_shared |= r & -r;
  }
  if (in_shared) shared(w, in, in_shared, bytes, write, update, offsets);
  if (in_local) local(w, in, in_local, bytes, write, offsets);
}

// One lane's access to shared memory that is not all written.
void Watch::check(Warp& w, const Inst* in, int lane, const u8* state, u64 offset, u32 bytes, bool write, bool reads) {
  const u8* s = state + offset;
  if (least(s, bytes) == Nobody)
    raise(in, thread_of(w, lane), write ? "out-of-bounds-write" : "out-of-bounds-read",
          string("out-of-bounds shared ") + (write ? "write" : "read") + " of " + plural(bytes) + ", " +
              describe_shared(l_, offset));
  if (reads)
    warn(w, in, thread_of(w, lane),
         "read of shared memory that no thread of the block has written: " + describe_shared(l_, offset),
         "uninitialised-read");
}

void Watch::shared(Warp& w, const Inst* in, u32 m, u32 bytes, bool write, bool update, const u64* offsets) {
  u32 at = (u32)(in - l_.kernel->code.data());
  bool ordered = role_[at] & (Atomic | Strong);
  checked_ += (u64)__builtin_popcount(m);
  u8* state = now_->shared.data();
  for (u32 r = m; r; r &= r - 1) {
    int i = __builtin_ctz(r);
    if (!all_written(state + offsets[i], bytes)) check(w, in, i, state, offsets[i], bytes, write, !write || update);
    if (!ordered) hazards(w, in, at, i, offsets[i], bytes, write);
    if ((role_[at] & (Atomic | Copy)) == Atomic)
      after_store(w, in, now_->marks[offsets[i] / l_.kernel->shared_granule], i, offsets[i]);
  }
  if (!write) return;
  for (u32 r = m; r; r &= r - 1) std::memset(state + offsets[__builtin_ctz(r)], Written, bytes);
}

// Shared memory of other blocks of the cluster, too.
void Watch::cluster(Warp& w, const Inst* in, u32 m, u32 bytes, bool write, bool update) {
  checked_ += (u64)__builtin_popcount(m);
  for (u32 r = m; r; r &= r - 1) {
    int i = __builtin_ctz(r);
    ResidentBlock* s = owner_of(*w.block->resident, w.access.address[i]);
    if (!s->watch || !s->watch->sane) continue;
    u64 offset = w.access.address[i] & OFFSET_MASK;
    u8* state = s->watch->shared.data();
    if (!all_written(state + offset, bytes)) check(w, in, i, state, offset, bytes, write, !write || update);
    if (write) std::memset(state + offset, Written, bytes);
  }
}

void Watch::filled(const char* at, u64 bytes) {
  if (!sane) return;
  u64 in_local = (u64)(at - reinterpret_cast<const char*>(l_.local));
  if (in_local < now_->local.size() && in_local + bytes <= now_->local.size())  // results and arguments
    return void(std::memset(now_->local.data() + in_local, Written, bytes));
  u64 offset = (u64)(at - reinterpret_cast<char*>(l_.shared));
  if (offset < l_.shared_bytes && offset + bytes <= l_.shared_bytes)
    std::memset(now_->shared.data() + offset, Written, bytes);
}

void Watch::filled(ResidentBlock& s, u64 offset, u64 bytes) {
  if (s.watch && s.watch->sane) std::memset(s.watch->shared.data() + offset, Written, bytes);
}

void Watch::source(Warp& w, const Inst* in, int lane, ResidentBlock& s, u64 offset, u64 bytes) {
  if (!s.watch || !s.watch->sane) return;
  const u8* begin = s.watch->shared.data() + offset;
  const void* found = std::memchr(begin, Unwritten, bytes);
  if (!found) return;
  warn(w, in, thread_of(w, lane),
       "copy of shared memory that no thread of the block has written: " +
           describe_shared(l_, offset + (u64)(static_cast<const u8*>(found) - begin)),
       "uninitialised-read");
}

void Watch::emptied(const char* at, u64 bytes) {
  u64 offset = (u64)(at - reinterpret_cast<const char*>(l_.local));
  if (sane && offset + bytes <= now_->local.size()) std::memset(now_->local.data() + offset, Unwritten, bytes);
}

bool Watch::ordered(const Warp& w, u32 then, u32 other, int lane) const {
  const auto& met = now_->met[w.id];
  return met[other] > then && met[(size_t)lane] > then;
}

void Watch::tell_hazard(Warp& w, const Inst* in, int lane, u64 offset, const char* story, u32 other, u32 where) {
  string text = story;
  warn(w, in, thread_of(w, lane),
       "race " + text.substr(0, 3) + " inside a warp: " + describe_shared(l_, offset) + text.substr(3) + " by thread " +
           std::to_string(w.id * 32 + other) + " (line " + std::to_string(line_of(l_, where)) +
           ") of the same warp with no __syncwarp() or barrier between");
}

// What lane `lane` touches now after another lane's plain store.
void Watch::after_store(Warp& w, const Inst* in, const LaneMark& k, int lane, u64 offset) {
  u32 writer = (u32)k.writer - 1;
  if (!k.writer || writer / 32 != w.id || (int)(writer % 32) == lane || ordered(w, k.written, writer % 32, lane)) return;
  tell_hazard(w, in, lane, offset, "RAW read after a write", writer % 32, k.write_at);
}

// Lanes of one warp have no order between them unless they meet in a warp-wide operation.
void Watch::hazards(Warp& w, const Inst* in, u32 at, int lane, u64 offset, u32 bytes, bool write) {
  u32 granule = l_.kernel->shared_granule, per = std::max(1u, bytes / granule);
  for (u32 j = 0; j < per; j++) {
    LaneMark& k = now_->marks[offset / granule + j];
    if (k.reader_warp != w.id + 1) k.last.lanes = k.before.lanes = 0;
    if (!write) {
      if (k.writer) after_store(w, in, k, lane, offset);
      if (k.last.lanes && (k.last.at != at || k.last.step != w.jumps)) k.before = k.last, k.last.lanes = 0;
      u32 lanes = k.last.met == meetings_ ? k.last.lanes : 0;
      k.last = {meetings_, at, lanes | 1u << lane, w.jumps};
      k.reader_warp = (u16)(w.id + 1);
      continue;
    }
    for (const LaneMark::Reads& r : {k.last, k.before}) {
      // `s[t] += s[t + 16]` is one statement: a warp that is together at its reads is together at its writes.
      u32 others = r.lanes & ~(1u << lane);
      if (others && r.step == w.jumps && line_of(l_, r.at) == line_of(l_, at)) others = 0;
      for (; others; others &= others - 1) {
        u32 other = (u32)__builtin_ctz(others);
        if (ordered(w, r.met, other, lane)) continue;
        tell_hazard(w, in, lane, offset, "WAR written after a read", other, r.at);
        break;
      }
    }
    k.writer = (u16)(w.id * 32 + (u32)lane + 1), k.written = meetings_, k.write_at = at;
    k.reader_warp = 0;
  }
}

void Watch::wrote(Warp& w, const Inst* in, u32 m, const u32* offsets, u32 bytes) {
  if (!sane) return;
  u32 at = (u32)(in - l_.kernel->code.data());
  for (u32 r = m; r; r &= r - 1) hazards(w, in, at, __builtin_ctz(r), offsets[__builtin_ctz(r)], bytes, true);
}

void Watch::local(Warp& w, const Inst* in, u32 m, u32 bytes, bool write, const u64* offsets) {
  if (now_->local.empty()) return;
  u64 frame = l_.kernel->local_bytes;
  u8 role = role_[(size_t)(in - l_.kernel->code.data())];
  for (u32 r = m; r; r &= r - 1) {
    int i = __builtin_ctz(r);
    u8* s = now_->local.data() + (u64)thread_of(w, i) * frame + offsets[i];
    if (write)
      std::memset(s, Written, bytes);
    else if (!all_written(s, bytes) && !(role & Strong))
      warn(w, in, thread_of(w, i),
           "read of " + plural(bytes) + " of a local array that this thread has not written (offset " +
               std::to_string(offsets[i]) + " of its local memory)",
           "uninitialised-read");
  }
}
}  // namespace kw
