// Resident blocks: each keeps its registers and memories while it is alive. The blocks of a cluster are adjacent.
#pragma once
#include "launch/launch.h"

namespace kw {
struct Cluster;
struct AsyncState;
struct BlockWatch;

struct ResidentBlock {
  Block block;
  Cluster* cluster = nullptr;
  u32 rank = 0;  // in the cluster
  bool done = false;
  std::vector<u8> shared_store, local_store, register_store;
  u8 *shared = nullptr, *local = nullptr;
  std::shared_ptr<AsyncState> async;
  std::shared_ptr<BlockWatch> watch;
  std::vector<SharedMark> marks;  // swapped into the launch while the block runs
};

struct Cluster {
  std::vector<std::unique_ptr<ResidentBlock>> blocks;
  u32 arrived = 0;  // threads at barrier.cluster, exited ones not among them
};

// cluster_ops.cpp: after arrivals and exits, opens the barrier when nobody is missing.
void check_cluster_barrier(Cluster& c);
void leave_cluster(Warp& w, u32 gone);
class Decoder;
class Mods;
bool cluster_barrier(Decoder& d, Mods& m);  // decodes barrier.cluster; false when it is another barrier
// The block that owns a shared::cluster address of 32 bits, or null when there is no such block.
ResidentBlock* owner_of(ResidentBlock& mine, u64 address);
constexpr int RANK_SHIFT = 24;  // address bits 24 and up: 1 + rank of the block, or 0 for the own one
constexpr u64 OFFSET_MASK = (1u << RANK_SHIFT) - 1;
}  // namespace kw
