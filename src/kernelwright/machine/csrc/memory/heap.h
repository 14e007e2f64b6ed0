// The device heap of in-kernel malloc. It outlives launches, so there is one per process. Every access is checked
// against its block, and freed blocks are reused as late as possible.
#pragma once
#include <deque>

#include "launch/launch.h"
#include "memory/shadow.h"

namespace kw {
class DeviceHeap {
 public:
  static DeviceHeap& instance();
  void open();  // makes the memory, once
  bool is_open() const { return arena_ != nullptr; }
  u64 begin() const { return (u64)arena_; }
  u64 bytes() const { return limit_; }
  KwShadow* shadow() { return &shadow_; }
  void set_limit(u64 bytes);  // only before the memory is made; else it is forgotten with all blocks
  u64 allocate(u64 bytes);    // 0 when nothing is left
  enum class Freed { Ok, Unknown, Twice };
  Freed release(u64 address);
  // Null when [address, address + bytes) is inside one live block, else what is wrong.
  const char* fault(u64 address, u64 bytes) const;
  string describe(u64 address) const;
  u64 live_blocks() const { return live_blocks_; }
  u64 live_bytes() const { return live_bytes_; }

 private:
  struct HeapBlock {
    u64 at = 0, bytes = 0;
    bool live = false;
  };
  static constexpr u64 GRAIN = 16;
  u64 place(u64 grains);
  std::vector<u64> store_;
  std::vector<u8> written_;  // what shadow_ shows
  KwShadow shadow_{nullptr, 0, 0};
  u8* arena_ = nullptr;
  u64 limit_ = 8ull << 20, used_ = 0;  // used_: grains handed out at least once
  std::vector<u32> owner_;             // of each grain: number of its block + 1
  std::vector<HeapBlock> blocks_;
  std::deque<u32> freed_;  // oldest first
  u64 live_blocks_ = 0, live_bytes_ = 0;
};

// Raises the finding for the first lane of m that touches heap memory that it may not touch.
void check_heap(Warp& w, const Inst* in, u32 m, u32 bytes, bool write);
}  // namespace kw
