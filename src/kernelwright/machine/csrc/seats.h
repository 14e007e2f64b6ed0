// Blocks that are alive: each sits in a seat with its registers and memories; the blocks of a cluster sit side by side.
#pragma once
#include "launch.h"

namespace kw {
struct Cluster;

struct Seat {
  Block block;
  Cluster* cluster = nullptr;
  u32 rank = 0;  // in the cluster
  bool done = false;
  std::vector<u8> shared_store, local_store, register_store;
  u8 *shared = nullptr, *local = nullptr;
  std::vector<SharedMark> marks;  // swapped into the launch while the block runs
};

struct Cluster {
  std::vector<std::unique_ptr<Seat>> seats;
  u32 arrived = 0;  // threads at barrier.cluster, exited ones not among them
};

// cluster_ops.cpp: after arrivals and exits, opens the barrier when nobody is missing.
void check_cluster_barrier(Cluster& c);
}  // namespace kw
