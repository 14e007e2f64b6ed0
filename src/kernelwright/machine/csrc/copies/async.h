// Pending asynchronous copies. Data arrives only when a thread waits for it, so that a missing wait is detected.
#pragma once
#include <deque>
#include <functional>

#include "decode/decode.h"
#include "launch/resident_blocks.h"

namespace kw {
// One cp.async of a warp, or (when `arrives`) one cp.async.mbarrier.arrive behind the copies before it.
struct AsyncCopy {
  const Inst* in;
  u32 mask, group, bytes;
  bool arrives;
  u32 at[LANES];  // destination in shared memory, or the mbarrier
  u8 data[LANES][16];
};

// One bulk copy out of shared memory, of one thread.
struct BulkStore {
  const Inst* in;
  int lane;
  u32 group;
  std::function<void()> deliver;
};

struct AsyncQueue {
  std::deque<AsyncCopy> copies;
  AsyncCopy staged;  // between the two halves of cp.async
  std::deque<BulkStore> stores;
  u32 committed[LANES] = {}, stores_committed[LANES] = {};  // groups closed so far, by lane
};

// A bulk copy whose arrival an mbarrier counts.
struct Inbound {
  const Inst* in;
  char* barrier;
  u32 bytes;
  std::function<void()> deliver;
};

struct AsyncState {
  std::vector<std::unique_ptr<AsyncQueue>> queues;  // of the block's warps
  std::vector<Inbound> inbound;                     // in the order of issue
  std::vector<u32> pending;  // per 4 bytes of shared memory: 1 + the instruction that copies there
  u32 under_way = 0;                                // bytes of `pending` that are set
};

AsyncQueue& queue_of(Warp& w);
// async_ops.cpp
void reset_async(ResidentBlock& s);
void mark_pending(Launch& l, ResidentBlock& s, const Inst* in, u64 offset, u64 bytes);
void clear_pending(ResidentBlock& s, u64 offset, u64 bytes);
// Threads `gone` of the warp exit: copies that nobody waited for are noted and dropped.
void leave_copies(Warp& w, u32 gone);
void leave_block(ResidentBlock& s);  // its last thread has gone
// Lets everything arrive that the mbarrier at `barrier` counts.
void deliver_to(ResidentBlock& s, char* barrier);
void deliver_stores(Warp& w, u32 m, u32 allowed);  // all but the last `allowed` bulk groups of lanes m
// mbarrier_ops.cpp: one arrival, or bytes that arrived.
void arrive_on(Launch& l, const Inst* in, int thread, char* barrier, u32 count);
void complete_bytes(const Inst* in, int thread, char* barrier, u32 bytes);
void expect_arrival(const Inst* in, int thread, char* barrier);

// capi.cpp: the line of the user's own text, following inlined calls outwards; 0 when there is none.
u32 source_line(const Program& p, u32 loc);

inline char* lane_address(const Access& x, int lane, u32 bytes) {
  return x.kind == Access::Gather ? x.at[lane] : x.base + (x.kind == Access::Contiguous ? (u64)lane * bytes : 0);
}
}  // namespace kw
