// What blocks know of each other's stores to global memory, for race checks.
#pragma once
#include "launch/launch.h"

namespace kw {
// A mark of global memory names who stored there last: 32 bits 1 + the block, a bit for a strong store, 21 bits the
// clock of the warp since the block began, 5 bits the warp, 5 bits the lane. 0: nobody in this launch.
constexpr u64 MARK_STRONG = 1ull << 31, MARK_CLOCK = ((1ull << 21) - 1) << 10;

enum class Order : u8 {
  Fine,
  Race,
  Unfenced,  // the writer has sent a signal after the store, with no fence between
};

void begin_order(Launch& l, Block& b);
void join_order(Block& b, u32 warps);  // these warps met at a barrier
void note_fence(Warp& w);              // a device-wide fence
void note_signal(Warp& w, bool release);
void publish_all(Block& b);                   // a barrier over blocks: all stores so far
Order order_of(const Warp& w, u64 mark);      // of the store that left `mark` and a read by warp w now
void saw_signal(Warp& w, u64 mark);           // w waited for what left `mark`
}  // namespace kw
