// Checks and translates every address that a kernel uses: bounds, alignment, windows. Fast when all lanes of a warp
// access one region.
#include <algorithm>

#include "memory/heap.h"
#include "memory/shadow.h"
#include "checks/watch.h"

namespace kw {
namespace {
const char* const READ = "out-of-bounds-read";
const char* const WRITE = "out-of-bounds-write";

string bytes_text(u64 n) { return std::to_string(n) + (n == 1 ? " byte" : " bytes"); }

string hex(u64 v) {
  char t[24];
  std::snprintf(t, sizeof t, "0x%llx", (unsigned long long)v);
  return t;
}

[[noreturn]] void out_of_window(Warp& w, const Inst* in, int thread, const char* space, u64 offset, u32 bytes,
                                u64 size, bool write) {
  const Launch& l = *w.launch;
  string at = (i64)offset < 0 ? bytes_text(0 - offset) + " before the start" : "offset " + std::to_string(offset);
  string place = at + " of " + bytes_text(size) + " of " + space + " memory";
  if (space[0] == 's' && !l.kernel->shared_variables.empty()) place = describe_shared(l, offset);
  raise(in, thread, write ? WRITE : READ,
        string("out-of-bounds ") + space + (write ? " write of " : " read of ") + bytes_text(bytes) + ", " + place);
}

void misaligned(const Inst* in, int thread, const char* space, u64 address, u32 bytes) {
  raise(in, thread, "misaligned-access",
        string("misaligned ") + space + " access of " + bytes_text(bytes) + " at address " + hex(address));
}

[[noreturn]] void bad_global(Warp& w, const Inst* in, int lane, u64 address, u32 bytes, bool write) {
  Launch& l = *w.launch;
  string what = write ? "write of " : "read of ";
  if (Region* r = find_region(l, address); r && write && !r->writable && address + bytes <= r->begin + r->bytes)
    raise(in, thread_of(w, lane), WRITE, "write of " + bytes_text(bytes) + " to read-only " + r->name);
  // Where other lanes of the instruction are right, the address is told from what they access.
  const Region* meant = nullptr;
  for (int i = lane - 1; i >= 0 && !meant; i--) meant = find_region(l, w.access.address[i]);
  for (int i = lane + 1; i < LANES && !meant; i++) meant = find_region(l, w.access.address[i]);
  raise(in, thread_of(w, lane), write ? WRITE : READ,
        "out-of-bounds global " + what + bytes_text(bytes) + " at " + hex(address) + ", " +
            describe_address(l, address, meant));
}

// Sets base/kind from per-lane host addresses that are already known to be good.
void shape(Access& x, u32 m, const u64* host, u32 bytes) {
  u64 first = host[__builtin_ctz(m)];
  if (m == FULL) {
    u64 step = 0, same = 0;
#pragma GCC ivdep
    for (int i = 0; i < LANES; i++) {
      step |= host[i] ^ (first + (u64)i * bytes);
      same |= host[i] ^ first;
    }
    x.base = reinterpret_cast<char*>(first);
    if (!step) return void(x.kind = Access::Contiguous);
    if (!same) return void(x.kind = Access::Uniform);
  }
  x.kind = Access::Gather;
  for (int i = 0; i < LANES; i++) x.at[i] = reinterpret_cast<char*>(host[i]);
}

void global(Warp& w, const Inst* in, u32 m, u32 bytes, bool write) {
  Launch& l = *w.launch;
  Access& x = w.access;
  x.space = Space::Global;
  u64* a = x.address;
  u64 low = 0;
  for (int i = 0; i < LANES; i++) low |= a[i];
  if (low & (bytes - 1))
    for (u32 r = m; r; r &= r - 1)
      if (a[__builtin_ctz(r)] & (bytes - 1))
        misaligned(in, thread_of(w, __builtin_ctz(r)), "global", a[__builtin_ctz(r)], bytes);
  if (l.regions.empty()) bad_global(w, in, __builtin_ctz(m), a[__builtin_ctz(m)], bytes, write);
  u32& hint = l.hints[in->site];
  for (int attempt = 0; attempt < 2; attempt++) {
    Region& r = l.regions[hint];
    if (r.bytes >= bytes && (r.writable || !write)) {
      // Bad when an offset is negative or beyond the last start: both show in the sign bit.
      i64 bad = 0, room = (i64)(r.bytes - bytes);
#pragma GCC ivdep
      for (int i = 0; i < LANES; i++) {
        i64 off = (i64)(a[i] - r.begin);
        bad |= off | (room - off);
      }
      if (bad >= 0) {
        x.region = &r;
        (write ? r.written : r.read) += (u64)bytes * (u64)__builtin_popcount(m);
        if (r.heap) check_heap(w, in, m, bytes, write);
        return shape(x, m, a, bytes);
      }
    }
    if (attempt == 0) {
      Region* found = find_region(l, a[__builtin_ctz(m)]);
      if (!found) bad_global(w, in, __builtin_ctz(m), a[__builtin_ctz(m)], bytes, write);
      hint = (u32)(found - l.regions.data());
    }
  }
  x.region = nullptr;
  for (u32 r = m; r; r &= r - 1) {
    int i = __builtin_ctz(r);
    Region* g = find_region(l, a[i]);
    if (!g || a[i] + bytes > g->begin + g->bytes || (write && !g->writable)) bad_global(w, in, i, a[i], bytes, write);
    (write ? g->written : g->read) += bytes;
    if (g->heap) check_heap(w, in, r & -r, bytes, write);
  }
  shape(x, m, a, bytes);
}

// A window of `size` bytes that starts at address 0 of its space; lanes are `stride` apart in host memory.
void window(Warp& w, const Inst* in, u32 m, u32 bytes, bool write, Space space, u8* host, u64 size, u64 stride) {
  Access& x = w.access;
  const char* name = space == Space::Shared ? "shared" : space == Space::Local ? "local" : "parameter";
  x.space = space;
  x.region = nullptr;
  u64* a = x.address;
  i64 bad = 0, room = (i64)size - (i64)bytes;
  u64 low = 0;
#pragma GCC ivdep
  for (int i = 0; i < LANES; i++) {
    bad |= (i64)a[i] | (room - (i64)a[i]);
    low |= a[i];
  }
  if (bad < 0 || (low & (bytes - 1))) {
    for (u32 r = m; r; r &= r - 1) {
      int i = __builtin_ctz(r);
      if ((i64)a[i] < 0 || (i64)a[i] > room) out_of_window(w, in, thread_of(w, i), name, a[i], bytes, size, write);
      if (a[i] & (bytes - 1)) misaligned(in, thread_of(w, i), name, a[i], bytes);
    }
  }
  alignas(64) u64 at[LANES];
  u64 begin = (u64)host + (stride ? (u64)w.id * 32 * stride : 0);
#pragma GCC ivdep
  for (int i = 0; i < LANES; i++) at[i] = begin + (u64)i * stride + a[i];
  shape(x, m, at, bytes);
}

void in_space(Warp& w, const Inst* in, u32 m, u32 bytes, Space space, bool write) {
  Launch& l = *w.launch;
  switch (space) {
    case Space::Cluster:
      if (!only_own_block(w, m)) return resolve_cluster(w, in, m, bytes, write);
      [[fallthrough]];
    case Space::Shared:
      return window(w, in, m, bytes, write, Space::Shared, l.shared, l.shared_bytes, 0);
    case Space::Local:
      return window(w, in, m, bytes, write, space, l.local, l.kernel->local_bytes, l.kernel->local_bytes);
    case Space::Param:
      if (write) raise(in, thread_of(w, __builtin_ctz(m)), WRITE, "write to a kernel parameter");
      return window(w, in, m, bytes, write, space, l.params.data(), l.params.size(), 0);
    default:
      return global(w, in, m, bytes, write);
  }
}

Space space_of(u64 address) {
  switch (address >> 60) {
    case 1:
      return address >> 24 & 0xff ? Space::Cluster : Space::Shared;
    case 2:
      return Space::Local;
    case 3:
      return Space::Param;
    default:
      return Space::Global;
  }
}

void generic(Warp& w, const Inst* in, u32 m, u32 bytes, bool write) {
  Access& x = w.access;
  u64* a = x.address;
  u64 first = a[__builtin_ctz(m)] >> 60, differ = 0;
  for (int i = 0; i < LANES; i++) differ |= (a[i] >> 60) ^ first;
  Space space = space_of(a[__builtin_ctz(m)]);
  if (!differ && space == Space::Shared)  // lanes may point into different blocks of the cluster
    for (u32 r = m; r; r &= r - 1)
      if (space_of(a[__builtin_ctz(r)]) == Space::Cluster) space = Space::Cluster;
  if (!differ) {
    if (space != Space::Global)
      for (int i = 0; i < LANES; i++) a[i] &= (1ull << 60) - 1;
    return in_space(w, in, m, bytes, space, write);
  }
  // Lanes in different spaces: each group alone, then together as a gather.
  alignas(64) u64 all[LANES];
  char* at[LANES] = {};
  std::copy(a, a + LANES, all);
  u32 done = 0;
  for (u32 r = m; r; r &= ~done) {
    u32 group = 0, lead = (u32)__builtin_ctz(r);
    for (u32 q = r; q; q &= q - 1)
      if (space_of(all[__builtin_ctz(q)]) == space_of(all[lead])) group |= q & -q;
    Space s = space_of(all[lead]);
    for (int i = 0; i < LANES; i++) {
      u64 v = group >> i & 1 ? all[i] : all[lead];
      a[i] = s == Space::Global ? v : v & ((1ull << 60) - 1);
    }
    in_space(w, in, group, bytes, s, write);
    for (u32 q = group; q; q &= q - 1) at[__builtin_ctz(q)] = x.at[__builtin_ctz(q)];
    done |= group;
  }
  x.kind = Access::Gather;
  x.space = Space::Generic;
  x.region = nullptr;
  std::copy(at, at + LANES, x.at);
  std::copy(all, all + LANES, a);
}
}  // namespace

Region* find_region(Launch& l, u64 address) {
  auto it =
      std::upper_bound(l.regions.begin(), l.regions.end(), address, [](u64 v, const Region& r) { return v < r.begin; });
  if (it == l.regions.begin()) return nullptr;
  --it;
  return address - it->begin < it->bytes ? &*it : nullptr;
}

string describe_address(Launch& l, u64 address, const Region* meant) {
  const Region* best = nullptr;
  u64 distance = ~0ull;
  bool after = false;
  for (const Region& r : l.regions) {
    if (meant && &r != meant) continue;
    u64 end = r.begin + r.bytes;
    u64 d = address < r.begin ? r.begin - address : address >= end ? address - end : 0;
    if (d < distance) best = &r, distance = d, after = address >= end;
  }
  if (address < 4096) return "a null pointer";
  if (!best || distance > (1u << 30)) return "far from every allocation";
  string size =
      "the " + std::to_string(best->bytes) + "-byte allocation" + (best->name.empty() ? "" : " '" + best->name + "'");
  if (address >= best->begin && address < best->begin + best->bytes)
    return "across the end of " + size + " (offset " + std::to_string(address - best->begin) + ")";
  return bytes_text(distance) + (after ? " past the end of " : " before the start of ") + size;
}

void resolve(Warp& w, const Inst* in, u32 m, u32 bytes, Space space, bool write, bool update) {
  u64* a = w.access.address;
  if (in->y) {  // 32-bit addresses
    const u32* base = slot<u32>(w, in->a);
    u32 add = (u32)in->imm;
#pragma GCC ivdep
    for (int i = 0; i < LANES; i++) a[i] = (i64)(i32)(base[i] + add);
  } else {
    const u64* base = slot<u64>(w, in->a);
    u64 add = (u64)in->imm;
#pragma GCC ivdep
    for (int i = 0; i < LANES; i++) a[i] = base[i] + add;
  }
  resolve_addresses(w, in, m, bytes, space, write, update);
}

void resolve_addresses(Warp& w, const Inst* in, u32 m, u32 bytes, Space space, bool write, bool update) {
  u64* a = w.access.address;
  if (m != FULL) {  // lanes that take no part point where an active one does
    u64 first = a[__builtin_ctz(m)];
#pragma GCC ivdep
    for (int i = 0; i < LANES; i++) a[i] = ((u64)m >> i) & 1 ? a[i] : first;
  }
  Watch* watch = w.launch->watch.get();
  if (watch && watch->overflowed) watch->check_index(w, in, m);
  if (space == Space::Generic)
    generic(w, in, m, bytes, write);
  else
    in_space(w, in, m, bytes, space == Space::Const ? Space::Global : space, write);
  if (watch) watch->access(w, in, m, bytes, write, update);
  if ((write ? w.launch->shadowed : w.launch->checked) &&
      (w.access.space == Space::Global || w.access.space == Space::Generic))
    track_lanes(w, in, m, bytes, !write || update, write);
}
}  // namespace kw
