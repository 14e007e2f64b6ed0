// The machine's C interface, as machine/csrc/capi.cpp and machine/library.py declare it. Fields that come after these are
// zero: the program is given the whole structure's size and checks that it is no smaller.
#pragma once
#include <cstdint>

extern "C" {
struct KwAllocation {
  uint64_t address, bytes;
  uint64_t writable;
};
struct KwLaunch {
  uint32_t grid[3], block[3];
  uint64_t shared_bytes, budget, seed;
  uint32_t races, order, kernel, allocations;
  const KwAllocation* allocation;
  const char* names;
  const uint8_t* params;
  uint64_t param_bytes;
};
}
