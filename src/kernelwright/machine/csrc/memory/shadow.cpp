// Marks and checks the written bytes of global memory.
#include "memory/shadow.h"

#include <algorithm>
#include <cstring>

namespace kw {
namespace {
u8* shadow_at(const Region& r, u64 address) { return r.shadow->written + (address - r.begin); }

u64 first_unwritten(const u8* shadow, u64 bytes) {
  const void* found = std::memchr(shadow, 0, bytes);
  return found ? (u64)(static_cast<const u8*>(found) - shadow) : bytes;
}

void unwritten(Warp& w, const Inst* in, int lane, const string& name, u64 offset, u64 bytes) {
  warn(w, in, thread_of(w, lane),
       "read of " + name + " at byte " + std::to_string(offset) + " (of " + std::to_string(bytes) +
           "), which nothing has written since it was allocated",
       "uninitialised-read");
}

void warn_unwritten(Warp& w, const Inst* in, int lane, const Region& r, u64 address) {
  u64 offset = address - r.begin;
  offset += first_unwritten(shadow_at(r, address), r.bytes - offset);
  unwritten(w, in, lane, r.name, offset, r.bytes);
}

template <u32 BYTES>
bool written_here(const u8* s, u32) {
  constexpr u64 full = 0x0101010101010101ull;
  u64 v[(BYTES + 7) / 8];
  std::fill_n(v, (BYTES + 7) / 8, full);
  std::memcpy(v, s, BYTES);
  u64 and_of = full;
  for (u64 one : v) and_of &= one;
  return and_of == full;
}
template <u32 BYTES>
void mark_here(u8* s, u32) {
  std::memset(s, 1, BYTES);
}
bool written_any(const u8* s, u32 bytes) { return all_written(s, bytes); }
void mark_any(u8* s, u32 bytes) { std::memset(s, 1, bytes); }

// Lane by lane. Atomics go so, too: a lane may read what the one before it has written.
template <auto WRITTEN, auto MARK>
void gather(Warp& w, const Inst* in, u32 m, u32 bytes, bool reads, bool writes) {
  const Access& x = w.access;
  Region* const common = x.region;
  bool told = !reads;
  for (u32 r = m; r; r &= r - 1) {
    int i = __builtin_ctz(r);
    u64 address = x.address[i];
    Region* g = common ? common : find_region(*w.launch, address);
    if (!g || !g->shadow) continue;
    u8* s = shadow_at(*g, address);
    if (!told && g->checked && !WRITTEN(s, bytes)) warn_unwritten(w, in, i, *g, address), told = true;
    if (writes) MARK(s, bytes);
  }
}

void track_gather(Warp& w, const Inst* in, u32 m, u32 bytes, bool reads, bool writes) {
  switch (bytes) {
    case 2:
      return gather<written_here<2>, mark_here<2>>(w, in, m, bytes, reads, writes);
    case 4:
      return gather<written_here<4>, mark_here<4>>(w, in, m, bytes, reads, writes);
    case 8:
      return gather<written_here<8>, mark_here<8>>(w, in, m, bytes, reads, writes);
    case 16:
      return gather<written_here<16>, mark_here<16>>(w, in, m, bytes, reads, writes);
    default:
      return gather<written_any, mark_any>(w, in, m, bytes, reads, writes);
  }
}
}  // namespace

bool all_written(const u8* shadow, u64 bytes) {
  constexpr u64 full = 0x0101010101010101ull;
  u64 and_of = full, i = 0;
  for (; i + 8 <= bytes; i += 8) {
    u64 v;
    std::memcpy(&v, shadow + i, 8);
    and_of &= v;
  }
  for (; i < bytes; i++) and_of &= full * shadow[i];
  return (and_of & full) == full;
}

void track_lanes(Warp& w, const Inst* in, u32 m, u32 bytes, bool reads, bool writes) {
  const Access& x = w.access;
  if (x.region && (writes ? !x.region->shadow : !x.region->checked)) return;
  if (!x.region || x.kind == Access::Gather || (reads && writes)) return track_gather(w, in, m, bytes, reads, writes);
  u64 base = (u64)x.base, count = x.kind == Access::Contiguous ? (u64)bytes * LANES : bytes;
  u8* s = shadow_at(*x.region, base);
  if (writes) return void(std::memset(s, 1, count));
  if (all_written(s, count)) return;
  u64 lane = x.kind == Access::Contiguous ? first_unwritten(s, count) / bytes : (u64)__builtin_ctz(m);
  warn_unwritten(w, in, (int)lane, *x.region, x.address[lane]);
}

void track_range(Warp& w, const Inst* in, int lane, u64 address, u64 bytes, bool reads, bool writes) {
  Region* r = w.launch->shadowed ? find_region(*w.launch, address) : nullptr;
  if (!r || !r->shadow || !bytes) return;
  if (reads && r->checked && !all_written(shadow_at(*r, address), bytes)) warn_unwritten(w, in, lane, *r, address);
  if (writes) std::memset(shadow_at(*r, address), 1, bytes);
}

void track_array(Warp& w, const Inst* in, int lane, KwShadow& s, u64 offset, u64 bytes, bool write) {
  if (offset + bytes > s.bytes) return;
  if (write) return void(std::memset(s.written + offset, 1, bytes));
  if (!all_written(s.written + offset, bytes)) unwritten(w, in, lane, "an array", offset, s.bytes);
}

void note_written(Launch& l, u64 address, u64 bytes, bool written) {
  Region* r = l.shadowed ? find_region(l, address) : nullptr;
  if (!r || !r->shadow) return;
  std::memset(shadow_at(*r, address), written, std::min(bytes, r->begin + r->bytes - address));
  if (!written) r->shadow->whole = std::min(r->shadow->whole, address - r->begin);
}

void advance(KwShadow& s) {
  constexpr u64 kernels = 0x0101010101010101ull;
  u64 at = s.whole;
  for (u64 v; at + 8 <= s.bytes; at += 8) {
    std::memcpy(&v, s.written + at, 8);
    if (v != kernels) break;
  }
  while (at < s.bytes && s.written[at] == 1) at++;
  s.whole = at;
}
}  // namespace kw
