#include "memory/heap.h"

#include <algorithm>

namespace kw {
DeviceHeap& DeviceHeap::instance() {
  static DeviceHeap heap;
  return heap;
}

void DeviceHeap::open() {
  if (arena_) return;
  store_.assign(limit_ / 8 + 2, 0);
  arena_ = reinterpret_cast<u8*>(((u64)store_.data() + GRAIN - 1) / GRAIN * GRAIN);
  owner_.assign(limit_ / GRAIN, 0);
  written_.assign(limit_, 0);
  shadow_ = {written_.data(), limit_, 0};
}

void DeviceHeap::set_limit(u64 bytes) {
  store_ = {};
  written_ = {};
  owner_ = {};
  blocks_ = {};
  freed_ = {};
  arena_ = nullptr;
  used_ = live_blocks_ = live_bytes_ = 0;
  limit_ = std::min<u64>((bytes + GRAIN - 1) / GRAIN * GRAIN, 4ull << 30);
}

// Fresh memory first; then what was freed longest ago, neighbours joined.
u64 DeviceHeap::place(u64 grains) {
  if (used_ + grains <= owner_.size()) {
    u64 at = used_;
    used_ += grains;
    return at;
  }
  std::vector<u8> free_grain(owner_.size(), 0);
  for (u64 i = used_; i < owner_.size(); i++) free_grain[i] = 1;
  for (u32 number : freed_) {
    const HeapBlock& b = blocks_[number];
    u64 first = (b.at - begin()) / GRAIN, count = b.bytes / GRAIN + 2;
    for (u64 i = first; i < std::min<u64>(first + count, owner_.size()); i++) free_grain[i] = 1;
  }
  u64 run = 0;
  for (u64 i = 0; i < free_grain.size(); i++) {
    run = free_grain[i] ? run + 1 : 0;
    if (run < grains) continue;
    u64 first = i + 1 - grains;
    used_ = std::max(used_, i + 1);
    auto gone = [&](u32 number) {
      u64 at = (blocks_[number].at - begin()) / GRAIN, end = at + blocks_[number].bytes / GRAIN + 2;
      return at < first + grains && end > first;
    };
    // What is left of a block that is partly used again stays unknown until all of it is used: it is lost.
    freed_.erase(std::remove_if(freed_.begin(), freed_.end(), gone), freed_.end());
    return first;
  }
  return ~0ull;
}

u64 DeviceHeap::allocate(u64 bytes) {
  if (!bytes || bytes > limit_) return 0;
  u64 grains = bytes / GRAIN + 2;  // one grain behind the block belongs to nobody
  u64 first = place(grains);
  if (first == ~0ull) return 0;
  u64 at = begin() + first * GRAIN;
  blocks_.push_back({at, bytes, true});
  for (u64 i = 0; i < grains; i++) owner_[first + i] = i + 1 < grains ? (u32)blocks_.size() : 0;
  std::memset(reinterpret_cast<void*>(at), 0xff, (grains - 1) * GRAIN);
  std::memset(written_.data() + (at - begin()), 0, (grains - 1) * GRAIN);
  live_blocks_++;
  live_bytes_ += bytes;
  return at;
}

DeviceHeap::Freed DeviceHeap::release(u64 address) {
  if (!arena_ || address < begin() || address >= begin() + limit_) return Freed::Unknown;
  u32 number = owner_[(address - begin()) / GRAIN];
  if (!number || blocks_[number - 1].at != address) return Freed::Unknown;
  HeapBlock& b = blocks_[number - 1];
  if (!b.live) return Freed::Twice;
  b.live = false;
  live_blocks_--;
  live_bytes_ -= b.bytes;
  freed_.push_back(number - 1);
  return Freed::Ok;
}

const char* DeviceHeap::fault(u64 address, u64 bytes) const {
  u32 number = owner_[(address - begin()) / GRAIN];
  if (!number) return "out-of-bounds";
  const HeapBlock& b = blocks_[number - 1];
  if (!b.live) return "use-after-free";
  return address + bytes > b.at + b.bytes ? "out-of-bounds" : nullptr;
}

string DeviceHeap::describe(u64 address) const {
  u64 grain = (address - begin()) / GRAIN;
  u32 number = owner_[grain];
  for (u64 back = 1; !number && back <= 2 && back <= grain; back++) number = owner_[grain - back];
  if (!number) return "in no block of the device heap";
  const HeapBlock& b = blocks_[number - 1];
  u64 offset = address - b.at;
  return "offset " + std::to_string(offset) + " of a block of " + std::to_string(b.bytes) +
         (b.live ? " bytes from malloc" : " bytes that was freed");
}

void check_heap(Warp& w, const Inst* in, u32 m, u32 bytes, bool write) {
  const DeviceHeap& heap = DeviceHeap::instance();
  const u64* a = w.access.address;
  for (u32 r = m; r; r &= r - 1) {
    int i = __builtin_ctz(r);
    if (a[i] < heap.begin() || a[i] >= heap.begin() + heap.bytes()) continue;
    const char* what = heap.fault(a[i], bytes);
    if (!what) continue;
    bool freed = what[0] == 'u';
    string text = string(write ? "write of " : "read of ") + std::to_string(bytes) + " bytes at " + heap.describe(a[i]);
    raise(in, thread_of(w, i), freed ? "use-after-free" : write ? "out-of-bounds-write" : "out-of-bounds-read",
          string(freed ? "use after free: " : "out-of-bounds device heap ") + text);
  }
}
}  // namespace kw
