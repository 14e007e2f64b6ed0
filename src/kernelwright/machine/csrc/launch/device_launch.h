// Kernels launched by kernels (dynamic parallelism, as nvcc compiles it since CUDA 12): the child launches that a launch
// requests. The launch's caller runs them afterwards; the machine runs one grid at a time.
#pragma once
#include <map>
#include <vector>

#include "parse/ptx.h"

namespace kw {
struct Launch;

struct ChildGrid {
  u32 kernel = 0;  // in Program::kernels
  u32 grid[3] = {0, 0, 0}, block[3] = {0, 0, 0};
  u64 shared_bytes = 0, stream = 0;
  u32 loc = 0;  // of the launch
  std::vector<u8> params;
};

struct DeviceLaunches {
  std::map<u64, ChildGrid> prepared;  // by the buffer of its arguments
  std::vector<ChildGrid> made;        // in the order of the launches
  std::map<u64, u32> errors;          // last error, by thread of the grid
  u64 streams = 0;                    // handles that were given out
};

// Where the texts are that kernels may read: address and bytes.
std::pair<u64, u64> error_texts();
// One line a child: its kernel, grid, block, shared memory, stream, source line, parameters.
string child_lines(const Launch& l);
}  // namespace kw
