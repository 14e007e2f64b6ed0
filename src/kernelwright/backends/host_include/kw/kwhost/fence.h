// Protects device memory from host code; see fence.cpp.
#pragma once

#include <setjmp.h>

#include <cstdint>
#include <functional>

namespace kw {

void fence_shut();
void fence_open();
// While one is alive the device's memory can be read: in every call to the runner.
struct Opened {
  bool was_shut;
  Opened();
  ~Opened();
};
// While one is alive torch's memory is the host's.
struct Plain {
  bool before;
  Plain();
  ~Plain();
};
uintptr_t fence_around(const std::function<void()>& invoke);

}  // namespace kw
